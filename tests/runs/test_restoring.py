"""A run that restores texts: trained, measured, asked, exported, and the start of others."""

import json

import pytest

from seqloom.analyse.cells import write_cells
from seqloom.batches.prepare import prepare
from seqloom.convert.huggingface import export_folder, import_folder
from seqloom.errors import ModelError, UsageError
from seqloom.runs.load import load, load_translator
from seqloom.runs.predictor import Predictor
from seqloom.runs.training import evaluate_files, finetune, pretrain, train
from seqloom.runs.translator import Translator
from tests.tasks.labelled import examples, write
from tests.training.material import prepared, write_pairs

SIZE = ["model.dim=32", "model.num_layers=1", "batches.budget=512", "batches.length=64", "train.schedule.warmup=20"]
T5 = [
    "objective.targets=sentinels",
    "objective.spans=cut",
    "objective.infill=0.15",
    "objective.permute=0",
    "objective.random=0",
]
MASS = [
    "objective.targets=fragment",
    "objective.spans=one",
    "objective.infill=0.5",
    "objective.permute=0",
    "objective.random=0",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("restoring")
    prepared(folder / "data", 600)
    write_pairs(folder, 60)
    write_pairs(folder, 20, 1, "valid")
    for seed, (split, count) in enumerate({"train": 40, "valid": 20}.items()):
        write(folder / f"{split}.jsonl", "classify", examples("classify", count, seed))
    return folder


@pytest.fixture(scope="module")
def run(place):
    return pretrain(
        "bart-tiny", place / "data", place / "run", settings=[*SIZE, "budget={steps=60}", "train.eval_every=30"]
    )


def test_it_learns_and_is_measured_alike(run, place):
    log = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["valid"] for line in log if "valid" in line]
    found = run.evaluate(place / "data", "valid")
    assert losses[-1] < losses[0] and found["loss"] == pytest.approx(min(losses), rel=1e-5)
    assert found == run.evaluate(place / "data", "valid") | {"seconds": found["seconds"]}
    assert 0 < found["hidden"] < 0.45 * found["tokens"]
    assert min(found[f"{kind}perplexity"] for kind in ("", "hidden_", "infilled_")) > 1
    assert "next word" in found["no_bits_per_byte"]


def test_another_noise_changes_the_own_figures_alone(run, place):
    """Planted: the loss of a run would be taken for that of another noise."""
    own = run.evaluate(place / "data", "valid")
    run.learner.config = run.learner.config.model_copy(update={"infill": 0.05})
    try:
        other = run.evaluate(place / "data", "valid")
    finally:
        run.learner.config = run.learner.config.model_copy(update={"infill": 0.3})
    assert other["infilled_perplexity"] == own["infilled_perplexity"] and other["loss"] != own["loss"]


def test_it_has_no_units_to_write(run, tmp_path):
    with pytest.raises(UsageError, match="this model has none"):
        write_cells(run.learner.backbone, run.tokenizer, lambda: iter(["a"]), tmp_path / "a.npz", run.device)


def test_it_fills_scores_and_embeds(run):
    (gap,) = run.fill("the [MASK] today .", top=3, longest=3, beam=8)
    assert len(gap) == 3 and all(len(each.tokens) == sum(each.sizes) <= 3 for each in gap)
    assert all(each.text.endswith("today .") or not each.tokens for each in gap)
    ((best, *_),) = run.fill("the [MASK] sees [MASK] .", top=2, joint=True, longest=2, beam=4)
    assert len(best.sizes) == 2 and 0 < best.probability <= 1
    scored = run.score(["the cat sees .", "the cat"])
    assert all(value < 0 for each in scored for value in each.log_probs) and scored[0].end is None
    assert run.encode(["the cat", "a dog sees"]).shape == (2, 32)
    with pytest.raises(UsageError, match="fill"):
        run.generate("the")
    with pytest.raises(UsageError, match="longest = 0"):
        run.fill("a [MASK]", longest=0)


def test_it_goes_there_and_back(run, place):
    export_folder(run.folder, place / "theirs")
    again = load(import_folder(place / "theirs", place / "again"), "cpu")
    text = "the cat sees the dog ."
    assert again.score(text)[0].log_probs == pytest.approx(run.score(text)[0].log_probs, abs=1e-5)
    assert again.fill("the [MASK] .", beam=4, longest=2) == run.fill("the [MASK] .", beam=4, longest=2)


def test_it_becomes_a_translator(run, place):
    files = {split: [place / f"{split}.{side}" for side in ("en", "xx")] for split in ("train", "valid")}
    out = finetune(run, "translate", files["train"], files["valid"], place / "pairs", settings=["budget={steps=5}"])
    assert isinstance(out, Translator) and len(out.translate(["the cat"], show=False)) == 1
    assert out.config["from"]["run"] == str(run.folder)
    # it begins where the other ended: after no step to speak of it is the run itself
    still = finetune(
        run, "translate", files["train"], files["valid"], place / "still",
        settings=["budget={steps=1}", "train.optim.lr=1e-9"],
    )  # fmt: skip
    restoring = load_translator(run.folder, "cpu")
    assert [best[0].tokens for best in still.translate(["the cat sees"], show=False)] == [
        best[0].tokens for best in restoring.translate(["the cat sees"], show=False)
    ]
    assert evaluate_files(out, files["valid"])["bleu"] >= 0
    more = finetune(out, "translate", files["train"], (), place / "more", settings=["budget={steps=2}"])
    assert isinstance(more, Translator)


@pytest.mark.parametrize("how", ["finetune", "features"])
def test_it_learns_labels_from_the_last_state_of_its_decoder(run, place, how):
    out = finetune(
        run, "classify", place / "train.jsonl", place / "valid.jsonl", place / f"labels-{how}", how=how,
        settings=["budget={steps=4}"],
    )  # fmt: skip
    assert isinstance(out, Predictor) and out.config["recipe"]["tasks"][0]["view"] == "whole"
    backbone = out.learner.backbone
    assert backbone.surround(1, 2, 3, 4) == ((1,), (2, 2), (2,)) and backbone.head_style.hidden_activation == "tanh"
    assert len(out.predict(["a film"])) == 1
    with pytest.raises(ModelError, match="cannot be exported"):
        export_folder(out.folder, place / f"never-{how}")


@pytest.mark.parametrize(("name", "settings"), [("bart", MASS), ("transformer", [])])
def test_other_targets_and_models(place, name, settings):
    if name == "transformer":
        recipe = place / "transformer.toml"
        recipe.write_text(
            'name = "restoring"\n[model]\nname = "transformer"\ndim = 32\nnum_layers = 1\nnum_heads = 2\nmax_len = 64\n'
            '[objective]\nname = "denoising"\n[batches]\nkind = "passages"\nbudget = 512\nlength = 64\n[budget]\nsteps = 4\n'
        )
        out = pretrain(str(recipe), place / "data", place / name)
        assert out.fill("the [MASK] .", beam=4, longest=2)
    else:
        out = pretrain("bart-tiny", place / "data", place / "mass", settings=[*SIZE, *settings, "budget={steps=4}"])
        with pytest.raises(UsageError, match="whose length it is given"):
            out.fill("the [MASK] .")
    found = out.evaluate(place / "data", "valid")
    assert found["loss"] > 0 and ("infilled_perplexity" in found) == (name == "transformer")


def test_a_vocabulary_with_sentinels(place):
    """T5's noise, with a tokenizer that has its tokens."""
    prepare([place / "data.txt"], place / "t5", valid=0.1, sentinels=12, keep_leaks=True, keep_duplicates=True)
    out = pretrain("bart-tiny", place / "t5", place / "sentinels", settings=[*SIZE, *T5, "budget={steps=4}"])
    found = out.evaluate(place / "t5", "valid")
    assert 0.1 < found["hidden"] / found["tokens"] < 0.2 and "infilled_perplexity" not in found
    ((best, *_),) = out.fill("the [MASK] sees [MASK] .", joint=True, longest=2, beam=4)
    assert "extra_id" not in best.text and len(best.sizes) == 2
    assert out.score("the cat sees .")[0].log_probs[0] < 0


def test_what_cannot_be_is_refused(place, tmp_path):
    with pytest.raises(ModelError, match="extra_id_0"):
        pretrain("bart-tiny", place / "data", tmp_path / "t5", settings=[*SIZE, *T5, "budget={steps=1}"])
    with pytest.raises(UsageError, match="more than all"):
        pretrain("bart-tiny", place / "data", tmp_path / "all", settings=["objective.mask=0.8"])
    with pytest.raises(UsageError, match="not for the model gpt2"):
        pretrain("gpt2-tiny", place / "data", tmp_path / "gpt", settings=["objective={name='denoising'}"])
    assert not any(tmp_path.iterdir())


def test_from_scratch_it_translates_too(place):
    files = [place / f"train.{side}" for side in ("en", "xx")]
    out = train("bart-tiny", "translate", files, place / "scratch", settings=["model.dim=32", "budget={steps=2}"])
    assert isinstance(out, Translator)
