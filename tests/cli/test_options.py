"""Values of a recipe that have an option of their own, and mistyped names, which answer without torch."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

import seqloom
from seqloom.cli import app, register, run
from seqloom.cli.options import with_budget, with_options
from seqloom.comparison.plan_names import BUILT_IN
from seqloom.comparison.plans import PLANS
from seqloom.errors import UsageError
from seqloom.recipes.library import batch_setting, find_recipe
from tests.training.material import prepared
from tests.without_torch import answers


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("made") / "data", 300)


def recipe_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())["recipe"]


def test_options_are_settings_of_the_recipe(data: Path, tmp_path: Path) -> None:
    small = ["--set", "model.dim=16", "--set", "batches.length=8", "--quiet"]
    plain = ["--lr", "0.002", "--batch", "4", "--epochs", "2", "--milestones"]
    assert run(["pretrain", "lstm-tiny", "--data", str(data), "--out", str(tmp_path / "run"), *small, *plain]) == 0
    found = recipe_of(tmp_path / "run")
    assert found["train"]["optim"]["lr"] == 0.002 and found["train"]["milestones"] is True
    assert found["batches"]["streams"] == 4
    ends = {name: value for name, value in found["budget"].items() if value is not None}
    assert ends == {"epochs": 2.0}  # in place of the recipe's


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labelled") / "train.csv"
    path.write_text("text,label\n" + "".join(f"a {kind} day number {i},{kind}\n" for i in range(8) for kind in "xy"))
    return path


PLAIN_OPTIONS = ["--lr", "0.002", "--batch", "4", "--epochs", "2", "--milestones", "--device", "cpu", "--quiet"]


def check_plain_options(folder: Path) -> None:
    found = recipe_of(folder)
    assert found["train"]["optim"]["lr"] == 0.002 and found["batches"]["examples"] == 4
    assert {name: value for name, value in found["budget"].items() if value is not None} == {"epochs": 2.0}
    assert json.loads((folder / "metrics.json").read_text())["step"] == 8  # 2 epochs of 16 examples, 4 at once
    marks = sorted(int(path.name) for path in (folder / "milestones").iterdir())
    assert marks and seqloom.load(folder / "milestones" / str(marks[0]), "cpu").predict("a x day")


def test_tasks_take_the_same_options(labelled: Path, data: Path, tmp_path: Path) -> None:
    files = ["--task", "classify", "--train", str(labelled), "--valid", str(labelled)]
    assert (
        run(["train", "text-cnn-tiny", *files, "--out", str(tmp_path / "cnn"), "--tokenizer", "word", *PLAIN_OPTIONS])
        == 0
    )
    check_plain_options(tmp_path / "cnn")
    small = ["--set", "model.dim=16", "--set", "batches.length=8", "--epochs", "0.1", "--quiet"]
    assert run(["pretrain", "lstm-tiny", "--data", str(data), "--out", str(tmp_path / "lstm"), *small]) == 0
    assert run(["finetune", str(tmp_path / "lstm"), *files, "--out", str(tmp_path / "tuned"), *PLAIN_OPTIONS]) == 0
    check_plain_options(tmp_path / "tuned")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "4", "--set", "batches.examples=8"], "--batch 4 and --set batches.examples=8 set the same value"),
        (["--lr", "0.1", "--set", "train.optim.lr=0.2"], "--lr 0.1 and --set train.optim.lr=0.2 set the same value"),
        (["--epochs", "3", "--set", "budget.epochs=2"], "--epochs 3 and --set budget.epochs=2 set the same value"),
        (["--lr", "-1"], "train.optim.lr"),
    ],
)
def test_wrong_options_of_tasks(
    options: list[str], message: str, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "text-cnn-tiny", "--task", "classify", "--train", str(labelled), "--out", str(tmp_path / "run")]
    assert run([*command, *options]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_batches_of_pairs_are_counted_in_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\n" * 4)
    command = ["train", "seq2seq-tiny", "--task", "translate", "--train", str(tmp_path / "pairs.tsv")]
    assert run([*command, "--out", str(tmp_path / "run"), "--batch", "4"]) == 2
    assert "use --set batches.budget=" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("recipe", "settings", "expected"),
    [
        ("lstm-tiny", ["batches.length=32"], ("batches.streams", 8)),
        ("gpt2-tiny", ["batches.length=32"], ("batches.budget", 256)),
        ("bert-tiny", ["batches.length=64"], ("batches.budget", 512)),
    ],
)
def test_a_batch_is_counted_in_sequences(recipe: str, settings: list[str], expected: tuple[str, int]) -> None:
    found = batch_setting(find_recipe(recipe, settings), 8)
    assert found == expected
    changed = find_recipe(recipe, [*settings, f"{found[0]}={found[1]}"])
    assert changed.batches.tokens == 8 * changed.batches.length


def test_labelled_examples_are_counted_one_by_one() -> None:
    assert batch_setting(find_recipe("text-cnn-tiny", task="classify"), 8) == ("batches.examples", 8)


@pytest.mark.parametrize(("recipe", "part"), [("transformer-tiny", "batches.budget="), ("ngram-tiny", "at once")])
def test_where_batches_have_no_number_of_sequences(recipe: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        batch_setting(find_recipe(recipe), 8)


@pytest.mark.parametrize(
    ("options", "setting", "path"),
    [
        (["--lr", "0.1"], "train.optim.lr=0.2", "train.optim.lr"),
        (["--lr", "0.1"], "train.optim={lr=0.2}", "train.optim.lr"),
        (["--epochs", "3"], "budget.epochs=2", "budget.epochs"),
        (["--words", "3000"], "budget={words=2000}", "budget.words"),
        (["--milestones"], "train.milestones=false", "train.milestones"),
        (["--batch", "4"], "batches.streams=8", "batches.streams"),
    ],
)
def test_one_value_is_set_once(
    options: list[str], setting: str, path: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["pretrain", "lstm-tiny", "--data", str(data), "--out", str(tmp_path / "run"), "--set", setting, *options]
    assert run(command) == 2
    err = capsys.readouterr().err
    assert (
        err.startswith(f"seqloom: error: {options[0]}") and f"--set {path}=" in err and "leave one of them out" in err
    )
    assert not (tmp_path / "run").exists()


def test_nothing_given_changes_nothing() -> None:
    assert with_options(None) == [] == with_budget(None)
    assert with_options(["model.dim=3"]) == ["model.dim=3"]
    assert with_budget(["model.dim=3"], minutes=2.0) == ["model.dim=3", "budget={minutes=2.0}"]


# ---- mistyped names and paths


MISTYPED = [
    (2, ["pretrain", "lstm-tinny", "--data", "data", "--out", "o"]),
    (2, ["pretrain", "nowhere.toml", "--data", "data", "--out", "o"]),
    (3, ["pretrain", "lstm-tiny", "--data", "nowhere", "--out", "o"]),
    (2, ["train", "lstm-tinny", "--task", "tag", "--train", "x", "--out", "o"]),
    (2, ["recipes", "lstm-tinny"]),
    (2, ["models", "lsm"]),
    (2, ["compare", "clasroom", "--out", "o"]),
    (2, ["compare", "nowhere.toml", "--out", "o"]),
    (4, ["evaluate", "nowhere", "--data", "data"]),
    (4, ["generate", "nowhere"]),
    (4, ["score", "nowhere"]),
    (4, ["fill", "nowhere", "a [MASK]"]),
    (4, ["embed", "nowhere", "--out", "o.npz"]),
    (4, ["export", "nowhere", "--out", "o"]),
]


def test_mistyped_names_answer_without_torch(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    found = answers([arguments for _, arguments in MISTYPED], tmp_path)
    for (expected, arguments), (code, heavy, err) in zip(MISTYPED, found, strict=True):
        assert code == expected and err.count("\n") == 1 and err.startswith("seqloom: error: "), (arguments, err)
        assert not heavy, arguments


def test_names_of_plans_are_all_there() -> None:
    assert tuple(PLANS) == BUILT_IN


def test_no_placeholder_is_the_name_of_its_option() -> None:
    """typer 0.27 takes such a placeholder for the option itself: --ROW instead of --row."""
    register()
    commands: Any = typer.main.get_command(app)
    placeholders = {
        f"{name} --{option.name}": option.metavar
        for name, command in commands.commands.items()
        for option in command.params
        if option.param_type_name == "option"
    }
    assert len(placeholders) > 100
    same = {option for option, metavar in placeholders.items() if metavar == option.split("--")[1].upper()}
    assert not same
