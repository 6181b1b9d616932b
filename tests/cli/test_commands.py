"""The commands from the command line: results on standard output, everything else on standard error, and exit codes."""

import json
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from typer.core import TyperCommand

import seqloom.cli
from seqloom import progress
from seqloom.cli import GROUPS, app, command_name, register, run
from seqloom.models import MODELS
from seqloom.models.index import recipe_names as names
from seqloom.runs.load import load
from tests.release import RELEASE
from tests.training.material import prepared

register()
COMMANDS = [command_name(command) for command in app.registered_commands]
SHORT = (
    "--set",
    "budget.steps=20",
    "--set",
    "batches.streams=4",
    "--set",
    "batches.length=16",
    "--set",
    "model.dim=16",
)


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("made") / "data", 300)


# ---- help and version


def test_the_commands_are_there() -> None:
    assert {"prepare", "check", "pretrain", "evaluate", "models", "recipes", "doctor"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, command, "--help")
    assert (code, err) == (0, "")
    assert "Examples" in out and f"seqloom {command}" in out


def words_of(text: str) -> str:
    """The letters, digits and brackets of a text, without what a terminal's width and boxes make of it."""
    return re.sub(r"[^\w\[\]{}]", "", text)


def texts_of(command: str) -> list[str]:
    """The help texts of a command and of all of its options, as they are written."""
    found: Any = next(each for each in app.registered_commands if command_name(each) == command)
    infos = [kind.__metadata__[0] for kind in get_type_hints(found.callback, include_extras=True).values()
             if hasattr(kind, "__metadata__")]  # fmt: skip
    return [found.callback.__doc__, found.epilog, *(info.help for info in infos if info.help)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_leaves_nothing_out(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "400")  # every text on one line
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 400)
    out = words_of(call(capsys, command, "--help")[1])
    missing = [text for text in texts_of(command) if words_of(text) not in out]
    assert not missing


def test_help_that_is_taken_for_markup_is_noticed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "[search]" in call(capsys, "compare", "--help")[1]
    compare = next(each for each in app.registered_commands if command_name(each) == "compare")
    monkeypatch.setattr(compare, "cls", TyperCommand)
    monkeypatch.setattr(seqloom.cli, "register", lambda: None)
    with pytest.raises(AssertionError):
        test_help_leaves_nothing_out("compare", capsys, monkeypatch)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "--help")
    assert (code, err) == (0, "") and all(re.search(rf"\b{command}\b", out) for command in COMMANDS)
    assert call(capsys) == (code, out, err)  # no arguments: the same
    assert call(capsys, "-h") == (code, out, err)


def test_help_groups_commands_in_the_order_of_work(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "--help")
    assert (code, err) == (0, "")
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    places = [re.search(rf"─ {group} ─", out) for group in GROUPS]
    assert all(places) and [found.start() for found in places if found] == sorted(f.start() for f in places if f)
    rows = re.findall(r"^│ ([a-z]+) +[A-Z]", out, re.M)
    assert rows == [name for names in GROUPS.values() for name in names]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_texts_are_sentences_that_begin_with_a_verb(command: str) -> None:
    found = next(each for each in app.registered_commands if command_name(each) == command)
    first = (found.callback.__doc__ or "").strip().splitlines()[0]
    assert re.match(r"[A-Z][a-z-]+ ", first) and not re.match(r"(The|A|An|What|Built-in|Versions) ", first), first
    assert not re.search(r"\b(told|spelt|strange|goes on|as it was|anew)\b", first)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version") == (0, f"seqloom {seqloom.__version__}\n", "")


# ---- models and recipes


def test_models(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "models")
    assert (code, err) == (0, "")
    for name in MODELS:
        assert re.search(rf"^{name} +(19|20)\d\d ", out, re.M), name
    assert "tiny 0.9M" in out and "next-token" in out
    code, out, _ = call(capsys, "models", "lstm")
    assert code == 0 and out.startswith("lstm") and "gpt2" not in out


def test_models_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "models", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    found = json.loads(out)
    assert list(found) == list(MODELS)
    for name, row in found.items():
        assert row.keys() >= {"paper", "year", "kind", "objectives", "tasks", "presets", "config"}
        if row["kind"] == "counts":
            assert row["objectives"] == ["counts"] and row["presets"] == {"tiny": 0, "small": 0}
            continue
        if row["kind"] == "static":
            objectives = ["glove"] if name == "glove" else ["skip-gram", "cbow"]
            assert row["objectives"] == objectives and "classify" in row["tasks"]
            continue
        recurrent = [] if row["kind"] in ("transformer", "convolutional") else ["scheduled-sampling", "regularized"]
        if row["kind"] == "encoder–decoder":
            transfer = ["classify", "regress", "pair", "choose", "tag", "span"]
            assert (row["objectives"], row["tasks"]) == (["denoising"], [*transfer, "translate"])
        elif row["kind"] == "captioner":
            assert (row["objectives"], row["tasks"]) == ([], ["classify", "choose", "caption"])
        elif row["causal"]:
            assert row["objectives"] == ["next-token", *recurrent]
            assert "classify" in row["tasks"] and not {"translate", "entity-lm"} & set(row["tasks"])
        elif row["kind"] in ("bidirectional LSTM", "convolutional"):
            assert row["objectives"] == [] and {"tag", "classify"} <= set(row["tasks"])
        elif row["kind"] == "two LSTMs, one each way":
            assert row["objectives"] == ["bidirectional"] and {"tag", "classify"} <= set(row["tasks"])
        elif name == "xlnet":
            assert row["objectives"] == ["permuted"] and {"tag", "span"} <= set(row["tasks"])
        else:
            assert row["objectives"][0] == "masked" and "next-token" not in row["objectives"]
        most = (
            3_000_000 if row["kind"] == "captioner" else 1_000_000
        )  # counted with 10,000 words, of which captions have few
        assert 0 < row["presets"]["tiny"] <= most and row["presets"]["small"] > row["presets"]["tiny"]
    assert found["gpt2"]["presets"]["small"] == 124_439_808  # as published
    code, out, _ = call(capsys, "models", "gpt2", "--json")
    assert json.loads(out) == {"gpt2": found["gpt2"]}


def test_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "recipes")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == names()
    code, out, err = call(capsys, "recipes", "gru-tiny", "--toml")
    assert (code, err) == (0, "") and "[train.optim]" in out and "beta1 = 0.9" in out
    code, short, _ = call(capsys, "recipes", "gru-tiny")
    assert code == 0 and 'name = "gru"' in short and "beta1" not in short


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("models", "lstn"), "unknown model 'lstn' (did you mean 'lstm'?)"),
        (("models", "lstn", "--json"), "did you mean 'lstm'?"),
        (("recipes", "gpt2-tinny"), "unknown recipe 'gpt2-tinny' (did you mean 'gpt2-tiny'?)"),
        (("recipes", "--toml"), "needs the name of a recipe"),
        (("nonsense",), "nonsense"),
        (("models", "--nonsense"), "--nonsense"),
        (("pretrain",), "RECIPE"),
        (("pretrain", "lstm-tiny", "--data", "d"), "--out"),
        (("pretrain", "lstm-tiny", "--data", "d", "--out", "o", "--seed", "x"), "--seed"),
        (("pretrain", "lstm-tiny", "--data", "d", "--out", "o", "--seed", "-1"), "--seed"),
        (("evaluate",), "RUN"),
    ],
)
def test_a_wrong_call(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("seqloom: error: ") and err.count("\n") == 1 and words.lower() in err.lower()


# ---- doctor


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "doctor")
    assert (code, err) == (0, "")
    assert re.search(rf"^seqloom +{re.escape(seqloom.__version__)}$", out, re.M)
    assert re.search(rf"^torch +{re.escape(torch.__version__)}$", out, re.M) and "disk_free_gb" in out
    code, out, err = call(capsys, "doctor", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and found.keys() >= {"python", "cores", "devices", "kernels", "remarks"}


def test_doctor_tells_what_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from seqloom.cli import machine

    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 2e9}))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    _, out, _ = call(capsys, "doctor")
    remarks = [line for line in out.splitlines() if line.startswith("! ")]
    for words in ("no C++ compiler", "only 2.0 GB of disk", "OMP_NUM_THREADS="):
        assert any(words in remark for remark in remarks), words


# ---- pretrain and evaluate


def test_pretrain_then_evaluate(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out_folder = tmp_path / "run"
    code, out, err = call(capsys, "pretrain", "lstm-tiny", "--data", data, "--out", out_folder, *SHORT, "--seed", 3)
    assert code == 0
    assert re.fullmatch(rf"{re.escape(str(out_folder))}: 20 steps, 1,280 tokens, \d+ s, valid loss \d\.\d{{4}}\n", out)
    assert "lstm-tiny: " in err and "parameters" in err and "seqloom: error" not in err
    valid_loss = json.loads((out_folder / "metrics.json").read_text())["valid_loss"]
    assert json.loads((out_folder / "config.json").read_text())["seed"] == 3

    code, out, err = call(capsys, "evaluate", out_folder, "--data", data, "--json")
    assert code == 0 and "seqloom: error" not in err and out.count("\n") == 1
    result = json.loads(out)
    names_of_interface = {
        "perplexity",
        "bits_per_byte",
        "bits_per_char",
        "loss",
        "words",
        "tokens",
        "seconds",
        "parameters",
    }
    assert result.keys() >= names_of_interface
    assert result["split"] == "valid" and result["loss"] == pytest.approx(valid_loss, rel=1e-6)
    code, out, _ = call(capsys, "evaluate", out_folder, "--data", data, "--split", "train")
    assert code == 0 and re.search(r"^split +train$", out, re.M) and re.search(r"^perplexity +\d+\.\d{4}$", out, re.M)


def test_evaluate_with_windows(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("--set", "batches={budget=128, length=32}", "--set", "model.dim=20", "--tokens", 1000)
    assert call(capsys, "pretrain", "gpt2-tiny", "--data", data, "--out", tmp_path / "run", *settings)[0] == 0
    losses = {}
    for options in ((), ("--stride", 1), ("--max-len", 4), ("--batch-tokens", 64)):
        code, out, _ = call(capsys, "evaluate", tmp_path / "run", "--data", data, "--json", *options)
        assert code == 0
        losses[options] = json.loads(out)["loss"]
    # Python and the command line have one default
    result = load(tmp_path / "run", "cpu").evaluate(data)
    assert result["loss"] == losses[()] and result["context"] == "sliding, 128 tokens, stride 64"
    assert load(tmp_path / "run", "cpu").evaluate(data, max_len=4)["loss"] == losses["--max-len", 4]
    assert losses["--batch-tokens", 64] == pytest.approx(losses[()], rel=1e-6)
    assert losses["--max-len", 4] != pytest.approx(losses[()], rel=1e-5)
    for options in (("--stride", 0), ("--max-len", 1000), ("--max-len", 0), ("--stride", 500), ("--batch-tokens", 0)):
        code, out, err = call(capsys, "evaluate", tmp_path / "run", "--data", data, *options)
        assert (code, out) == (2, "") and err.splitlines()[-1].startswith("seqloom: error: "), options


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("bert", ("--stride", 1), "--stride 1 is for models that read from left to right"),
        ("bert", ("--max-len", 4), "--max-len 4 is for models that read from left to right"),
        ("lstm", ("--stride", 1), "reads whole documents: add --max-len"),
        ("lstm", ("--stride", 1, "--max-len", 4), ""),
    ],
)
def test_windows_that_a_model_does_not_read_are_refused(
    name: str, options: tuple[object, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(capsys, "evaluate", RELEASE / name, "--data", RELEASE / "prepared", *options)
    assert (code == 2 and problem in err) if problem else code == 0


def test_quiet_is_silent(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET", False)  # and put back in the end
    code, out, err = call(capsys, "--quiet", "pretrain", "lstm-tiny", "--data", data, "--out", tmp_path / "run", *SHORT)
    assert (code, err) == (0, "") and out.startswith(f"{tmp_path / 'run'}: 20 steps")
    code, out, err = call(capsys, "-q", "evaluate", tmp_path / "run", "--data", data, "--json")
    assert (code, err) == (0, "") and json.loads(out)["loss"] > 0
    code, out, err = call(capsys, "-q", "evaluate", tmp_path / "none", "--data", data)  # an error is still said
    assert (code, out) == (4, "") and err.startswith("seqloom: error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        (("--tokens", 100), {"tokens": 100.0}),
        (("--words", 50), {"words": 50.0}),
        (("--minutes", 0.001), {"minutes": 0.001}),
        (("--tokens", 100, "--minutes", 5), {"tokens": 100.0, "minutes": 5.0}),
        (("--set", "budget.steps=7", "--tokens", 100), {"tokens": 100.0}),
    ],
)
def test_a_budget_of_the_call_replaces_the_recipes(
    options: tuple[object, ...],
    budget: dict[str, float],
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = SHORT[2:]
    code, _, err = call(capsys, "pretrain", "lstm-tiny", "--data", data, "--out", tmp_path / "run", *small, *options)
    assert code == 0, err
    recipe = json.loads((tmp_path / "run/config.json").read_text())["recipe"]
    assert {key: value for key, value in recipe["budget"].items() if value is not None} == budget
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert metrics["step"] >= 1 and metrics["tokens"] < 1500


def test_overwrite_and_resume(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("pretrain", "lstm-tiny", "--data", data, "--out", tmp_path / "run", *SHORT)
    assert call(capsys, *command)[0] == 0
    code, out, err = call(capsys, *command)
    assert (code, out) == (2, "") and "--resume" in err and "--overwrite" in err
    code, first, err = call(capsys, *command, "--resume")
    assert code == 0 and "resuming at step 20" in err and "20 steps" in first
    code, again, err = call(capsys, *command, "--overwrite")
    assert code == 0 and "resuming" not in err and "20 steps" in again
