"""Run folders: what training leaves in one, and what loading refuses to take from one."""

import json
import os
import pickle
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
import seqloom.recipes
from seqloom.batch import pack
from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.errors import DataError, ModelError, SeqloomError, UsageError
from seqloom.files import TEMPORARY, sha256
from seqloom.runs import training as runs
from seqloom.runs.folder import BOUND, WEIGHTS
from seqloom.runs.language_model import Run
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.training import checkpoint as checkpoints
from seqloom.weights import fill, unique
from tests.training.material import RUN_FILES, prepared, write_text

SETTINGS = {
    "lstm-tiny": ["batches.streams=4", "batches.length=16", "model.dim=16"],
    "gpt2-tiny": ["batches.budget=128", "batches.length=32", "model.dim=20", "model.num_layers=2"],
}
SHORT = ["budget={steps=20}", "train.eval_every=7", "train.save_every=10", "train.schedule.warmup=5"]
FILES = {*RUN_FILES, "checkpoints"}


def train(name: str, data: Path, out: Path, *more: str, **options: Any) -> Run:
    return pretrain(name, data, out, settings=[*SETTINGS[name], *SHORT, *more], device="cpu", **options)


class Made:
    """The prepared text, a finished run of each kind, and the weights that training held at its best evaluation."""

    def __init__(self, folder: Path):
        self.data = prepared(folder / "data", 300)
        self.best: dict[str, dict[str, torch.Tensor]] = {}
        self.runs: dict[str, Path] = {}
        export = runs.export
        for name in SETTINGS:
            out = folder / name

            def kept(weights: dict[str, torch.Tensor], folder: Path, name: str = name) -> None:
                self.best[name] = {key: value.detach().clone() for key, value in weights.items()}
                export(weights, folder)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(runs, "export", kept)
                train(name, self.data, out)
            self.runs[name] = out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> Path:
    """A run that a test may damage. Whatever happens to it, nothing is written beside it."""
    shutil.copytree(made.runs["gpt2-tiny"], tmp_path / "run")
    return tmp_path / "run"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, words: str = "") -> None:
    with pytest.raises(ModelError) as caught:
        load(folder, "cpu")
    assert words in str(caught.value)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_folder_of_a_run(made: Made, name: str) -> None:
    folder = made.runs[name]
    assert set(os.listdir(folder)) == FILES
    assert not [path for path in folder.rglob("*") if path.name.endswith(TEMPORARY)]
    config = json.loads((folder / "config.json").read_text())
    store = Store.open(made.data)
    assert config["format"] == 2 and config["needs"] == "0.2.0" and config["seed"] == 0
    assert config["vocab_size"] == store.manifest.vocab_size and config["tokenizer"] == store.manifest.tokenizer
    assert config["data"]["fingerprint"] == store.fingerprint
    assert config["recipe"]["model"]["dim"] == (16 if name == "lstm-tiny" else 20)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["step"] == 20 and metrics["skipped"] == 0
    assert metrics["tokens"] == pytest.approx(20 * (64 if name == "lstm-tiny" else 128), rel=0.1)
    assert metrics["best_step"] in (7, 14, 20) and 0 < metrics["valid_loss"] < 5
    assert metrics["words"] == round(metrics["tokens"] * store.split("train").words / store.split("train").num_tokens)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "valid" in line] == [7, 14, 20]
    assert [line["step"] for line in lines if "lr" in line] == [10, 20]
    assert checkpoints.steps(folder / "checkpoints") == [10, 20]


@pytest.mark.parametrize("name", SETTINGS)
def test_the_card_tells_the_figures(made: Made, name: str) -> None:
    card = (made.runs[name] / "card.md").read_text()
    metrics = json.loads((made.runs[name] / "metrics.json").read_text())
    manifest = Store.open(made.data).manifest
    assert card.startswith(f"# {name}\n")
    for figure in (
        f"| parameters | {metrics['parameters']:,} |",
        "| steps | 20 |",
        f"| tokens read | {metrics['tokens']:,} ({metrics['epochs']:.2f} epochs) |",
        f"| words read | {metrics['words']:,} ",
        f"| best validation loss | {metrics['valid_loss']:.4f} nats per token, at step {metrics['best_step']} |",
        f"| training loss | {metrics['train_loss']:.4f} ",
        f"| train | {manifest.splits['train'].documents:,} | {manifest.splits['train'].words:,} | ",
        "data.txt",
        manifest.fingerprint,
        "seed 0",
        "[budget]\nsteps = 20",
        f"torch {torch.__version__}",
    ):
        assert figure in card, figure


@pytest.mark.parametrize("name", SETTINGS)
def test_load_gives_the_best_weights_bit_for_bit(made: Made, name: str) -> None:
    loaded = seqloom.load(made.runs[name], "cpu")
    assert isinstance(loaded, seqloom.Run) and not loaded.learner.training
    trained = seqloom.recipes.build_recipe(loaded.config["recipe"], "test").learner(loaded.config["vocab_size"]).eval()
    fill(trained, made.best[name], made.runs[name])
    torch.manual_seed(0)
    batch = pack([torch.randint(0, loaded.config["vocab_size"], (n,)).tolist() for n in (5, 16, 1, 30)])
    with torch.no_grad():
        expected, found = trained.backbone(batch).hidden, loaded.learner.backbone(batch).hidden
    assert torch.equal(found, expected) and expected.std() > 0
    for key, value in unique(loaded.learner).items():
        assert torch.equal(value, made.best[name][key])
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("the cat sees the dog")) == "the cat sees the dog"


@pytest.mark.parametrize("name", SETTINGS)
def test_evaluate_repeats_the_validation(made: Made, name: str) -> None:
    metrics = json.loads((made.runs[name] / "metrics.json").read_text())
    windows = {"max_len": 32, "stride": 32} if name.startswith("gpt") else {}  # recurrent models read whole documents
    result = load(made.runs[name], "cpu").evaluate(made.data, "valid", **windows)
    assert result["loss"] == pytest.approx(metrics["valid_loss"], rel=1e-6)
    assert result["parameters"] == metrics["parameters"] and result["split"] == "valid"


def test_evaluate_tells_how_documents_began_in_training(made: Made, tmp_path: Path) -> None:
    run = load(made.runs["lstm-tiny"], "cpu")
    assert run.evaluate(made.data)["state_in_training"] == "reset"
    assert run.evaluate_cached(made.data, 10, "valid", 0.1, 0.1)["state_in_training"] == "reset"
    assert "state_in_training" not in load(made.runs["gpt2-tiny"], "cpu").evaluate(made.data)
    shutil.copytree(made.runs["lstm-tiny"], old := tmp_path / "old")
    config, listed = (json.loads((old / name).read_text()) for name in ("config.json", "weights.json"))
    del config["recipe"]["batches"]["reset"]  # as older versions wrote it
    (old / "config.json").write_text(json.dumps(config))
    (old / "weights.json").write_text(json.dumps(listed | {"config.json": sha256(old / "config.json")}))
    assert load(old, "cpu").evaluate(made.data)["state_in_training"] == "carried"


def test_a_state_is_carried_from_document_to_document_where_that_is_asked_for(made: Made) -> None:
    run = load(made.runs["lstm-tiny"], "cpu")
    split = Store.open(made.data).split("valid")
    found = run.evaluate(made.data, "valid", carry=True)
    with torch.no_grad():
        row = np.concatenate(([run.tokenizer.end_id], split.read(0, split.num_tokens)))
        hidden = run.learner.backbone(pack([row[:-1].tolist()])).hidden
        expected = run.learner.softmax(hidden, torch.from_numpy(row[1:]), each=True).mean().item()
    assert found["loss"] == pytest.approx(expected, rel=1e-5) and found["context"] == "carried over documents"
    assert found["loss"] != pytest.approx(run.evaluate(made.data, "valid")["loss"], rel=1e-4)
    with pytest.raises(UsageError, match="--carry"):
        load(made.runs["gpt2-tiny"], "cpu").evaluate(made.data, carry=True)


def test_a_run_without_validation_keeps_its_last_weights(tmp_path: Path) -> None:
    text = write_text(tmp_path / "a.txt", 100)
    prepare([text], tmp_path / "data", tokenizer="word", min_count=1, keep_duplicates=True)
    run = train("lstm-tiny", tmp_path / "data", tmp_path / "run", "train.log_every=3")
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert metrics["valid_loss"] is None and metrics["step"] == 20 and metrics["valid"] == {}
    last = checkpoints.load_latest(tmp_path / "run/checkpoints")
    assert last is not None and last.step == 20
    for key, value in last.tensors["model"].items():
        assert torch.equal(run.learner.state_dict()[key], value)
    assert "best validation loss" not in (tmp_path / "run/card.md").read_text()


# ---- nothing is overwritten silently, only the same run goes on


def test_an_existing_run_is_left_alone(made: Made, copy: Path) -> None:
    before = tree(copy)
    with pytest.raises(
        UsageError, match=r"holds a run already: continue it with --resume, start anew with --overwrite"
    ):
        train("gpt2-tiny", made.data, copy)
    assert {name: data for name, data in tree(copy).items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }


def test_another_folder_is_left_alone(made: Made, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="not empty and holds no run"):
        train("gpt2-tiny", made.data, tmp_path / "mine")
    assert (tmp_path / "mine/letter.txt").read_text() == "dear"


def test_overwrite_starts_anew(made: Made, copy: Path) -> None:
    (copy / "metrics.json.tmp").write_text("")
    train("lstm-tiny", made.data, copy, overwrite=True)
    assert set(os.listdir(copy)) == FILES
    assert json.loads((copy / "config.json").read_text())["recipe"]["name"] == "lstm-tiny"
    assert load(copy, "cpu").learner.backbone.recurrent


@pytest.mark.parametrize("out", ["", ".", ".."])
def test_the_data_is_no_place_for_a_run(tmp_path: Path, out: str) -> None:
    data = prepared(tmp_path / "below/data", 100)
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="holds the data itself"):
        train("lstm-tiny", data, data / out, overwrite=True)
    assert tree(tmp_path) == before


def test_what_cannot_work_leaves_no_folder(made: Made, tmp_path: Path) -> None:
    for setting in ("batches.streams=100000", "batches.length=100000"):
        with pytest.raises(UsageError, match="lower one of them"):
            train("lstm-tiny", made.data, tmp_path / "run", setting)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match=r"batches\.budget 5 is smaller"):
        train("gpt2-tiny", made.data, tmp_path / "run", "batches.budget=5")
    assert not (tmp_path / "run").exists()


def test_data_with_another_tokenizer_file_is_refused_before_training(made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.data, tmp_path / "data")
    other = json.loads((tmp_path / "data/tokenizer.json").read_text())
    vocabulary = other["model"]["vocab"]
    vocabulary["zebra"] = vocabulary.pop("cat")
    (tmp_path / "data/tokenizer.json").write_text(json.dumps(other))
    with pytest.raises(ModelError, match="not the tokenizer that this data was made with"):
        train("lstm-tiny", tmp_path / "data", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"more": ["model.dim=40"]}, UsageError, "another recipe"),
        ({"more": ["train.optim.lr=1e-5"]}, UsageError, "another recipe"),
        ({"more": ["budget={steps=30}"]}, UsageError, "another recipe"),
        ({"seed": 1}, UsageError, "another seed"),
        ({"seed": 1, "more": ["model.dim=40"]}, UsageError, "another recipe and seed"),
        ({"data": 200}, DataError, "trained on other data"),
    ],
)
def test_only_the_same_run_goes_on(
    made: Made, copy: Path, tmp_path: Path, change: dict[str, Any], error: type[SeqloomError], words: str
) -> None:
    data = prepared(tmp_path / "other", change["data"]) if "data" in change else made.data
    before = tree(copy)
    with pytest.raises(error, match=words) as caught:
        train("gpt2-tiny", data, copy, *change.get("more", []), seed=change.get("seed", 0), resume=True)
    assert "--overwrite" in str(caught.value)
    after = tree(copy)
    assert after.keys() == before.keys() and all(after[name] == before[name] for name in before if name != "lock")


def test_a_finished_run_stays_as_it_is(made: Made, copy: Path) -> None:
    before = tree(copy)
    train("gpt2-tiny", made.data, copy, resume=True)
    after = tree(copy)
    assert after.keys() == before.keys()
    assert {name for name in before if after[name] != before[name]} <= {"lock"}


def test_a_resumed_run_ends_with_the_same_weights(made: Made, copy: Path) -> None:
    for name in (
        "backbone.safetensors",
        "weights.json",
        "metrics.json",
        "card.md",
        "checkpoints/step-20/manifest.json",
    ):
        (copy / name).unlink()
    for name in ("backbone.safetensors", "card.md"):
        (copy / f"{name}{TEMPORARY}").write_bytes(b"half")
    train("gpt2-tiny", made.data, copy, resume=True)
    assert set(os.listdir(copy)) == FILES  # and what the killed writer left is gone
    assert (copy / "weights.json").read_bytes() == (made.runs["gpt2-tiny"] / "weights.json").read_bytes()


def test_resume_where_nothing_is_yet_begins(made: Made, tmp_path: Path) -> None:
    train("gpt2-tiny", made.data, tmp_path / "run", resume=True)
    assert (tmp_path / "run/weights.json").read_bytes() == (made.runs["gpt2-tiny"] / "weights.json").read_bytes()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "5", "{}", '{"data": 5}', '{"data": {"fingerprint": 5}}', "[" * 100_000]
)
def test_resume_of_a_damaged_config_is_refused(made: Made, copy: Path, text: str) -> None:
    (copy / "config.json").write_text(text)
    with pytest.raises((ModelError, DataError), match="--overwrite"):
        train("gpt2-tiny", made.data, copy, resume=True)


# ---- evaluation on other data


def test_data_of_another_tokenizer_is_refused(made: Made, tmp_path: Path) -> None:
    other = tmp_path / "other"
    prepare([write_text(tmp_path / "a.txt", 100)], other, tokenizer="char", valid=0.1, keep_leaks=True)
    with pytest.raises(DataError, match="another tokenizer") as caught:
        load(made.runs["lstm-tiny"], "cpu").evaluate(other)
    remedy = str(made.runs["lstm-tiny"] / "tokenizer.json")
    assert f"--from-tokenizer {remedy}" in str(caught.value)
    prepare([tmp_path / "a.txt"], other, from_tokenizer=Path(remedy), valid=0.1, keep_leaks=True, overwrite=True)
    assert load(made.runs["lstm-tiny"], "cpu").evaluate(other)["split"] == "valid"


# ---- load: what is missing or damaged


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("config.json", "is not a run folder"),
        ("tokenizer.json", "no such tokenizer file"),
        ("weights.json", "is missing: restore it from a copy, or train it again with --overwrite"),
        ("backbone.safetensors", "is missing: restore it from a copy, or train it again with --overwrite"),
        ("head.safetensors", "is missing"),
    ],
)
def test_a_missing_file_is_named(copy: Path, name: str, words: str) -> None:
    (copy / name).unlink()
    refused(copy, words)
    (copy / name).mkdir()
    refused(copy)


def test_what_is_no_run_folder_is_refused(tmp_path: Path, made: Made) -> None:
    for folder in (tmp_path, tmp_path / "none", made.data):
        refused(folder, "is not a run folder")


def test_the_tokenizer_of_another_run_is_refused(made: Made, copy: Path, tmp_path: Path) -> None:
    prepare([write_text(tmp_path / "a.txt", 100)], tmp_path / "other", tokenizer="char", keep_duplicates=True)
    shutil.copy(tmp_path / "other/tokenizer.json", copy / "tokenizer.json")
    refused(copy, "not the tokenizer that this model was trained with")


def test_changed_bytes_in_weights_are_noticed(copy: Path) -> None:
    rng = random.Random(0)
    for name in ("backbone.safetensors", "head.safetensors"):
        data = (copy / name).read_bytes()
        for _ in range(50):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            (copy / name).write_bytes(changed)
            refused(copy, f"{name} is damaged")
        (copy / name).write_bytes(data + b"\0")
        refused(copy, f"{name} is damaged")
        (copy / name).write_bytes(data)
    load(copy, "cpu")


@pytest.mark.parametrize("text", ["", "[]", "{}", "5", "null", '{"backbone.safetensors": 5}', "[" * 100_000])
def test_a_damaged_list_of_hashes_is_refused(copy: Path, text: str) -> None:
    (copy / "weights.json").write_text(text)
    refused(copy, "damaged")


def seal(folder: Path) -> None:
    """Makes the recorded hashes fit again: an attacker can do that too."""
    hashes = {name: seqloom.files.sha256(folder / name) for name in BOUND}
    (folder / "weights.json").write_text(json.dumps(hashes))


def test_weights_of_another_model_are_refused(made: Made, copy: Path) -> None:
    for name in WEIGHTS:
        shutil.copy(made.runs["lstm-tiny"] / name, copy / name)
    seal(copy)
    refused(copy, "does not fit the model of config.json")


def damage(text: str, rng: random.Random) -> str:
    """A config with a few characters changed, dropped or doubled."""
    for _ in range(rng.randint(1, 3)):
        place, size = rng.randrange(len(text)), rng.randint(1, 6)
        match rng.randrange(4):
            case 0:
                text = text[:place] + rng.choice('0123456789{}[]",:.-eNaé\0') + text[place + 1 :]
            case 1:
                text = text[:place] + text[place + size :]
            case 2:
                text = text[:place] + text[place : place + size] + text[place:]
            case 3:
                text = text[:place]
    return text or "x"


def test_300_damaged_configs_are_refused_or_harmless(copy: Path) -> None:
    rng = random.Random(0)
    text = (copy / "config.json").read_text()
    before, refusals = tree(copy), 0
    for _ in range(300):
        (copy / "config.json").write_text(damage(text, rng), encoding="utf-8")
        try:
            load(copy, "cpu")
        except ModelError as error:
            refusals += any(part in str(error) for part in ("config.json", "tokenizer", "does not fit"))
    after = tree(copy)
    assert {**after, "config.json": b""} == {**before, "config.json": b""}
    assert refusals > 200
    for size in range(0, len(text) - 2, 50):  # cut short: never harmless
        (copy / "config.json").write_text(text[:size])
        refused(copy, "config.json")


HOSTILE_NAMES = [
    "__class__",
    "__init__",
    "__import__",
    "__reduce__",
    "__globals__",
    "__builtins__",
    "__dict__",
    "__proto__",
    "constructor",
    "os.system",
    "os",
    "subprocess.Popen",
    "builtins.eval",
    "eval",
    "exec",
    "import",
    "torch.load",
    "pickle.loads",
    "seqloom.runs.training:pretrain",
    "runs:pretrain",
    "../../x",
    "/etc/passwd",
    "..\\x",
    "C:\\x",
    "file:///etc/passwd",
    "http://127.0.0.1:9/x",
    "https://huggingface.co/gpt2",
    "openai-community/gpt2",
    "_target_",
    "_name_or_path",
    "auto_map",
    "trust_remote_code",
    "torch_dtype",
    "model_type",
    "architectures",
    "${oc.env:HOME}",
    "{{7*7}}",
    "%s%s%n",
    "$(touch",
    "x)",
    "`touch",
    "x`",
    ";touch",
    "x",
    "&&touch",
    "x",
    "\ud7ff",
    "\x00",
    "\n",
    "name..",
    ".name",
    "a.b.c",
]
HOSTILE_VALUES: tuple[Any, ...] = (
    2**31,
    2**63,
    10**400,
    -1,
    0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x" * 10_000,
    [],
    {},
    None,
    True,
    [[[[[[]]]]]],
    {"__class__": {"__init__": "os.system"}},
    "os.system",
    "../../../x",
    ["touch", "x"],
)


def hostile_configs(config: dict[str, Any]) -> dict[str, str]:
    """Configs with one thing that no honest run has, by what it is."""
    found: dict[str, Any] = {}

    def changed(*path: str, value: Any) -> dict[str, Any]:
        copy = json.loads(json.dumps(config))
        below = copy
        for key in path[:-1]:
            below = below[key]
        below[path[-1]] = value
        return copy

    for i, name in enumerate(HOSTILE_NAMES):
        section = (("recipe",), ("recipe", "model"), ("recipe", "objectives", 0), ("recipe", "train", "optim"))[i % 4]
        found[f"key {section} {name!r}"] = changed(*section, name, value=HOSTILE_VALUES[i % len(HOSTILE_VALUES)])
        found[f"model {name!r}"] = changed("recipe", "model", "name", value=name)
        found[f"objective {name!r}"] = changed("recipe", "objectives", 0, "name", value=name)
    places = (
        ("format",),
        ("recipe",),
        ("vocab_size",),
        ("tokenizer",),
        ("recipe", "model"),
        ("recipe", "model", "name"),
        ("recipe", "model", "dim"),
        ("recipe", "model", "num_layers"),
        ("recipe", "model", "max_len"),
        ("recipe", "batches", "kind"),
        ("recipe", "train"),
    )
    for place in places:
        for value in HOSTILE_VALUES:
            if value == {} and place == ("recipe", "train"):
                continue  # nothing given is every default: harmless
            found[f"value {place} {str(value)[:40]}"] = changed(*place, value=value)
    texts = {what: json.dumps(value) for what, value in found.items()}
    deep = json.dumps(changed("recipe", "model", "dim", value="DEEP"))
    texts |= {
        "deep list": deep.replace('"DEEP"', "[" * 50_000 + "]" * 50_000),
        "deep object": deep.replace('"DEEP"', '{"a":' * 50_000 + "1" + "}" * 50_000),
        "rather deep": deep.replace('"DEEP"', "[" * 800 + "]" * 800),
        "endless number": deep.replace('"DEEP"', "9" * 10_000),
        "lone surrogate": deep.replace('"DEEP"', '"\\ud800"'),
    }
    return texts


def test_hostile_configs_are_refused_and_nothing_happens(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def never(*arguments: Any, **_: Any) -> None:
        pytest.fail(f"executed: {arguments}")

    texts = hostile_configs(json.loads((copy / "config.json").read_text()))
    assert len(texts) > 300
    before, around = tree(copy), set(os.listdir(tmp_path))
    import socket
    import subprocess

    for module, name in ((os, "system"), (subprocess, "Popen"), (socket.socket, "connect"), (pickle, "loads")):
        monkeypatch.setattr(module, name, never)
    for what, text in texts.items():
        (copy / "config.json").write_text(text)
        try:
            load(copy, "cpu")
        except ModelError:
            continue
        pytest.fail(f"taken: {what}")
    assert {**tree(copy), "config.json": b""} == {**before, "config.json": b""}
    assert set(os.listdir(tmp_path)) == around


@pytest.mark.parametrize(
    "change", [{"dim": 5 << 20}, {"num_layers": 1 << 20}, {"max_len": 1 << 24}, {"ffn_dim": 1 << 24}]
)
def test_sizes_are_believed_only_where_the_weights_bear_them_out(copy: Path, change: dict[str, int]) -> None:
    """Nothing is allocated for a model of hundreds of terabytes, and no million layers are built."""
    config = json.loads((copy / "config.json").read_text())
    config["recipe"]["model"] |= change
    (copy / "config.json").write_text(json.dumps(config))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(copy)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 200 << 10  # KiB


class Planted:
    """Unpickling it runs a function of the attacker's choice."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.function, self.arguments


def pickles(marker: Path) -> list[bytes]:
    """60 files that create the marker when something unpickles them: plain, as a state dict, and as torch saves them."""
    import io

    actions = (
        Planted(os.mkdir, str(marker)),
        Planted(os.system, f"touch '{marker}'"),
        Planted(open, str(marker), "w"),
        Planted(exec, f"open({str(marker)!r}, 'w').close()"),
        Planted(eval, f"open({str(marker)!r}, 'w').close()"),
        Planted(shutil.copy, __file__, str(marker)),
    )
    found = []
    for action in actions:
        for protocol in (0, 1, 2, 3, 4, 5):
            found.append(pickle.dumps(action, protocol))
        for value in ({"weight": action}, [action], {"embedding.token.weight": torch.zeros(2), "x": action}):
            found.append(pickle.dumps(value))
        saved = io.BytesIO()
        torch.save({"a": action}, saved)
        found.append(saved.getvalue())
    return found


def test_60_planted_pickles_are_not_executed(copy: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    planted = pickles(marker)
    assert len(planted) == 60
    pickle.loads(planted[0])  # they do work
    assert marker.exists()
    marker.rmdir()
    for i, data in enumerate(planted):
        name = WEIGHTS[i % 2]
        original = (copy / name).read_bytes()
        (copy / name).write_bytes(data)
        refused(copy, "damaged")
        seal(copy)
        refused(copy, "damaged")
        length = len(data).to_bytes(8, "little")
        (copy / name).write_bytes(length + data)  # where the header should be
        seal(copy)
        refused(copy, "damaged")
        (copy / name).write_bytes(original)
        seal(copy)
        assert not marker.exists()
    for name in ("config.json", "tokenizer.json", "weights.json"):
        original = (copy / name).read_bytes()
        for data in planted[:10]:
            (copy / name).write_bytes(data)
            refused(copy)
        (copy / name).write_bytes(original)
    load(copy, "cpu")
    assert not marker.exists()


@pytest.mark.parametrize("parts", [1, 2])
def test_deterministic_ends_with_the_run(made: Made, tmp_path: Path, parts: int) -> None:
    """Processes that share the parts of a step have fewer threads than one alone, and threads decide how sums are rounded."""
    seen: set[int] = set()
    settings = ["model.dim=16", "budget={steps=2}", f"train.parts={parts}", "train.log_every=1"]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        pretrain(
            "lstm-tiny", made.data, tmp_path / "run", settings=settings, deterministic=True,
            on_log=lambda line: seen.add(torch.get_num_threads()),
        )  # fmt: skip
        assert seen == {1 if parts > 1 else 2} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert not torch.are_deterministic_algorithms_enabled()
