"""`seqloom new`: what it writes can be run as it is, and follows from the text and the machine."""

import json
import re
from pathlib import Path

import pytest

from seqloom.cli import run
from seqloom.comparison import propose as proposing
from seqloom.comparison.plans import find_plan
from seqloom.comparison.propose import SIZES, Machine, TextSize, measure_machine, measure_text, propose
from seqloom.recipes.library import find_recipe

SLOW = Machine("cpu", "fp32", 1e6)  # so slow that one step is all there is time for


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(proposing, "measure_machine", lambda *given: SLOW)
    monkeypatch.chdir(tmp_path)
    lines = [f"the cat number {i} sees the dog number {i * 7 % 50} in the garden\n" for i in range(300)]
    (tmp_path / "my text.txt").write_text("".join(lines))
    return Path("my text.txt")


def test_what_is_written_trains(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", str(text), "--out", "own", "--minutes", "1"]) == 0
    out = capsys.readouterr().out
    assert 'seqloom prepare "my text.txt" --out own/data --valid 0.05 --vocab-size 512' in out
    recipe = Path("own/recipe.toml").read_text()
    for part in ("# text", "# machine", "# size", "# duration", "# memory", "estimates", "passes over the text"):
        assert part in recipe, part
    assert run(["prepare", str(text), "--out", "own/data", "--valid", "0.05", "--workers", "1"]) == 0
    assert run(["pretrain", "own/recipe.toml", "--data", "own/data", "--out", "own/run", "--quiet"]) == 0
    assert json.loads(Path("own/run/metrics.json").read_text())["step"] >= 1
    assert run(["new", str(text), "--out", "own"]) == 2  # nothing is overwritten


@pytest.mark.slow
def test_what_is_written_compares(text: Path) -> None:
    assert run(["new", str(text), "--out", "own", "--minutes", "1"]) == 0
    plan = find_plan("own/plan.toml")
    assert [row.name for row in plan.rows] == ["n-gram", "LSTM", "GPT-2"] and plan.seeds == 3
    path = Path("own/plan.toml")
    path.write_text(path.read_text().replace("seeds = 3", "seeds = 1"))
    assert run(["compare", "own/plan.toml", "--out", "own/compared", "--jobs", "2", "--quiet"]) == 0
    assert Path("own/compared/report.html").is_file()


def test_a_text_that_is_missing_or_empty(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "nowhere.txt"]) == 3
    Path("short.txt").write_text("three words only\n")
    assert run(["new", "short.txt"]) == 3 and not Path("short").exists()
    assert "too few to learn from" in capsys.readouterr().err


@pytest.mark.parametrize("words", [1e3, 1e5, 1e7, 1e10])
@pytest.mark.parametrize("machine", [SLOW, Machine("cpu", "fp32", 1e11), Machine("cuda", "bf16", 8e14)])
def test_every_proposal_is_a_recipe(words: float, machine: Machine, tmp_path: Path) -> None:
    sizes = []
    for minutes in (0.1, 10, 1000):
        found = propose(TextSize((Path("a.txt"),), round(words), False), machine, minutes)
        folder = tmp_path / f"{minutes}"
        proposing.write_proposal(found, folder)
        recipe = find_recipe(str(folder / "recipe.toml"))
        assert recipe.batches.tokens == found.batch * found.length and recipe.budget.tokens == round(found.tokens)
        learner_size = recipe.model_config_of(found.vocab_size)
        assert (learner_size.dim, learner_size.num_layers) == (found.dim, found.layers)
        plan = find_plan(str(folder / "plan.toml"))
        assert plan.budget.words is not None and plan.budget.words >= 1000
        step = found.batch * found.length  # one is always made
        assert found.hours * 60 <= minutes * 1.001 or found.tokens == step
        assert found.tokens <= max(proposing.MOST_EPOCHS * found.text.tokens, step)
        sizes.append(found.parameters)
    assert sizes == sorted(sizes), "more time is no reason for a smaller model"


def test_the_parameters_are_about_those_of_the_model() -> None:
    from seqloom.weights import shapes_only

    for dim, layers, heads in SIZES:
        settings = [f"model.dim={dim}", f"model.num_layers={layers}", f"model.num_heads={heads}"]
        with shapes_only():
            learner = find_recipe("gpt2-tiny", settings).learner(4096)
        assert proposing.count_parameters(dim, layers, 4096) == pytest.approx(learner.size(), rel=0.05)


def test_a_long_text_is_measured_by_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.txt"
    path.write_text("".join(f"line {i:06} of a long text\n" for i in range(140_000)))
    whole = measure_text([path])
    assert whole == TextSize((path,), 840_000, False, (6,) * 1000)
    monkeypatch.setattr(proposing, "SAMPLE", 2_000_000)
    part = measure_text([path])
    assert part.sampled and part.words == pytest.approx(whole.words, rel=0.15)  # files are read in blocks


def test_a_machine_is_measured() -> None:
    found = measure_machine("cpu", (3, 500), SIZES[0], 256, seconds=0.01)
    assert found.device == "cpu" and found.precision == "fp32" and found.flops > 1e7
    assert found.steps >= proposing.FEWEST_STEPS and found.size == SIZES[0]


def test_sequences_are_as_long_as_documents() -> None:
    assert proposing.sequence_lengths((10, 20), 20, 60) == [14, 20, 7, 14, 5]  # 1.35 tokens a word
    assert proposing.sequence_lengths((1000,), 16, 32) == [16, 16]
    assert sum(proposing.sequence_lengths((0, 3), 16, 50)) == 50


def test_the_proposal_itself_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is faster with larger models is known by the model that is proposed."""
    asked: list[tuple[int, int, int]] = []

    def measure(
        device: str, documents: tuple[int, ...], size: tuple[int, int, int] = SIZES[0], vocab_size: int = 2048
    ) -> Machine:
        asked.append(size)
        return Machine(device, "fp32", 1e10 * size[0], 3, size)

    monkeypatch.setattr(proposing, "measure_machine", measure)
    found = proposing.propose_for(TextSize((Path("a.txt"),), 10**8, False), "cpu", 60)
    assert asked[0] == SIZES[0] and len(asked) == 2 and found.machine.size == asked[1] != SIZES[0]


@pytest.mark.long
def test_the_duration_is_about_that_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"the cat number {i} sees the dog number {i * 7 % 50} in the garden\n" for i in range(20_000)]
    Path("text.txt").write_text("".join(lines))
    assert run(["new", "text.txt", "--out", "own", "--minutes", "0.2", "--device", "cpu"]) == 0
    estimate = re.search(r"duration  about ([\d.]+) minutes", Path("own/recipe.toml").read_text())
    prepare = re.search(r"# +seqloom (prepare .*)", Path("own/recipe.toml").read_text())
    assert estimate is not None and prepare is not None
    assert run([*prepare[1].split(), "--workers", "1"]) == 0
    assert run(["pretrain", "own/recipe.toml", "--data", "own/data", "--out", "own/run", "--device", "cpu"]) == 0
    seconds = json.loads(Path("own/run/metrics.json").read_text())["seconds"]
    assert 0.5 <= seconds / (60 * float(estimate[1])) <= 2
