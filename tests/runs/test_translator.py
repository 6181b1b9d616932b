"""From aligned files to translations: training, beams, ensembles, alignments, and what is refused."""

import json
import math

import numpy as np
import pytest
import torch

from seqloom.errors import DataError, UsageError
from seqloom.metrics.translation import translation_scores
from seqloom.runs.load import load, load_language_model
from seqloom.runs.training import read_all, train
from seqloom.runs.translator import Translator
from seqloom.training import checkpoint as checkpoints
from tests.training.material import RUN_FILES, pairs, write_pairs

QUICK = ["budget={steps=180}", "train.eval_every=60", "train.save_every=30", "batches.budget=1024"]


def made(folder, recipe="transformer-tiny", settings=(), **options):
    files = {name: [folder / f"{name}.{side}" for side in ("en", "xx")] for name in ("train", "valid", "test")}
    return train(
        recipe,
        "translate",
        files["train"],
        folder / options.pop("out", "run"),
        **({"valid": files["valid"], "test": files["test"], "tokenizer": "word"} | options),
        settings=[*QUICK, *settings],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs")
    for name, count, seed in (("train", 1500, 0), ("valid", 40, 1), ("test", 40, 2)):
        write_pairs(path, count, seed, name)
    return path


@pytest.fixture(scope="module")
def run(folder):
    return made(folder, settings=["train.average_last=3"])


def test_it_learns_to_translate(run, folder):
    metrics = json.loads((run.folder / "metrics.json").read_text())
    assert metrics["test_scores"]["bleu"] > 80 and metrics["valid_scores"]["bleu"] > 80
    assert metrics["averaged"]["loss"] > 0
    assert {path.name for path in run.folder.iterdir()} >= RUN_FILES
    card = (run.folder / "card.md").read_text()
    assert "trained with the task translate" in card and "translation of test | BLEU" in card


def test_a_loaded_run_says_the_same(run):
    again = load(run.folder)
    assert isinstance(again, Translator)
    texts = [source for source, _ in pairs(7, 5)]
    assert [best[0].text for best in again.translate(texts)] == [best[0].text for best in run.translate(texts)]
    with pytest.raises(UsageError, match="seqloom translate"):
        load_language_model(run.folder)


def test_order_is_kept_and_empty_lines_are_answered_by_empty_ones(run):
    texts = [source for source, _ in pairs(6, 5)]
    mixed = [texts[0], "", *texts[1:3], "", *texts[3:], ""]
    found = [best[0].text for best in run.translate(mixed)]
    alone = [run.translate([text])[0][0].text if text else "" for text in mixed]
    assert found == alone and all(bool(a) == bool(b) for a, b in zip(found, mixed, strict=True))


def test_words_outside_the_vocabulary_lose_nothing(run):
    (best,) = run.translate(["the zebra sees a bird today ."])
    assert best[0].text and "<unk>" not in best[0].text


def test_unknown_words_are_copied_from_where_the_translation_looks(run):
    unk = run.tokenizer.unk_id
    source = "the zebra sees a bird today ."
    ids = np.array(run.tokenizer.encode(source))
    looks = np.zeros((3, len(ids) + 1))
    looks[1, 1] = 1.0
    tokens = [run.tokenizer.id("da"), unk, run.tokenizer.id("TODAY")]
    assert run.copied(tokens, 0, ids, source, looks) == "da zebra TODAY"
    with pytest.raises(UsageError, match="--copy-unknown"):
        Translator(run.folder, run.config, run.learner, type(run.tokenizer).train("byte", ["a"]), run.device).translate(
            ["a"], copy_unknown=True
        )


def test_alignments_are_shares_of_the_source(run):
    texts = [source for source, _ in pairs(4, 6)]
    for text, (best,) in zip(texts, run.translate(texts, align=True), strict=True):
        assert best.alignment.shape == (len(best.tokens), len(run.tokenizer.encode(text)) + 1)
        assert np.allclose(best.alignment.sum(1), 1, atol=1e-5)


def test_a_prefix_is_kept(run):
    source, target = pairs(1, 9)[0]
    begin = " ".join(target.split()[:2])
    (best,) = run.translate([source], prefixes=[begin])
    assert best[0].text.startswith(begin)
    wrong = "WITHOUT A"
    (best,) = run.translate([source], prefixes=[wrong])
    assert best[0].text.startswith(wrong)


def test_an_ensemble_of_a_run_with_itself_is_that_run(run, folder):
    texts = [source for source, _ in pairs(5, 7)]
    alone, both = run.translate(texts, n_best=3), run.translate(texts, others=[load(run.folder)], n_best=3)
    for one, two in zip(alone, both, strict=True):
        assert [each.text for each in one] == [each.text for each in two]
        assert all(math.isclose(a.log_prob, b.log_prob, abs_tol=1e-3) for a, b in zip(one, two, strict=True))
    other = made(folder, settings=["budget={steps=2}"], out="bytes", tokenizer="byte", test=())
    with pytest.raises(UsageError, match="different tokenizers"):
        run.translate(texts, others=[other])


def test_a_source_longer_than_the_model_reads_is_refused_by_its_line(run):
    limit = run.learner.backbone.max_len
    with pytest.raises(DataError, match=f"line 2 has {limit:,} tokens and the model reads {limit - 1} at most"):
        run.translate(["a bird", "bird " * limit])


@pytest.mark.parametrize("split", ["valid", "test"])
def test_held_out_sources_that_are_too_long_are_refused_before_training(folder, tmp_path, split):
    for side in ("en", "xx"):
        short = (folder / f"{split}.{side}").read_text().splitlines()[:3]
        (tmp_path / f"long.{side}").write_text("\n".join([*short, "bird " * 300, "bird"]) + "\n")
    out, files = tmp_path / "run", {split: [tmp_path / "long.en", tmp_path / "long.xx"]}
    problem = rf"{split}: 1 source is longer than the \d+ tokens .* \(first: .*long.en:4.*, 300 tokens\)"
    with pytest.raises(DataError, match=problem):
        made(folder, out=out, settings=["budget={steps=2}"], **files)
    assert not out.exists()


def test_a_model_without_attention_has_no_alignments(folder):
    plain = made(folder, "seq2seq-tiny", ["budget={steps=2}"], out="plain", test=())
    assert plain.translate(["a bird sees my friend today ."])
    for option in ({"align": True}, {"coverage_penalty": 0.2}, {"copy_unknown": True}):
        with pytest.raises(UsageError, match="has no attention"):
            plain.translate(["a bird"], **option)


def test_the_mean_of_checkpoints_is_their_mean(run, folder):
    """Measured at the end, and kept because it was better or left because it was not."""
    steps = checkpoints.steps(run.folder / "checkpoints")[-3:]
    loaded = [checkpoints.load(run.folder / "checkpoints" / f"step-{step}").tensors["model"] for step in steps]
    name = "backbone.decoder.stack.layers.0.ffn.up.weight"
    mean = torch.stack([tensors[name] for tensors in loaded]).mean(0)
    kept = dict(run.learner.named_parameters())[name]
    metrics = json.loads((run.folder / "metrics.json").read_text())
    averaged_won = math.isclose(metrics["averaged"]["loss"], metrics["valid_loss"])
    assert torch.allclose(kept, mean, atol=1e-6) == averaged_won


def test_bleu_can_decide_which_weights_are_kept(folder):
    found = made(
        folder, "luong-tiny", ["train.watch=bleu", "budget={steps=40}", "train.eval_every=20"], out="watched", test=()
    )
    lines = [json.loads(line) for line in (found.folder / "metrics.jsonl").read_text().splitlines()]
    scores = [line["bleu"] for line in lines if "bleu" in line]
    assert len(scores) == 2
    with pytest.raises(UsageError, match="needs --valid"):
        made(folder, settings=["train.watch=bleu"], out="none", valid=(), test=())


def test_without_held_out_pairs_the_last_weights_are_kept(folder):
    found = made(folder, settings=["budget={steps=3}"], out="alone", valid=(), test=())
    assert json.loads((found.folder / "metrics.json").read_text())["valid_loss"] is None


def test_scores_are_sacrebleus_own():
    import sacrebleu

    references = [target for _, target in pairs(30, 3)]
    found = [text.replace("miu", "wau") for text in references]
    ours = translation_scores(found, references)
    assert ours["bleu"] == sacrebleu.corpus_bleu(found, [references]).score
    assert ours["chrf"] == sacrebleu.corpus_chrf(found, [references]).score
    assert "tok:13a" in ours["bleu_signature"]
    with pytest.raises(DataError, match="29 translations for 30 references"):
        translation_scores(found[1:], references)


def test_evaluation_by_length_covers_every_line(run, folder):
    result = run.evaluate(read_all([folder / "test.en", folder / "test.xx"]))
    assert sum(bucket["lines"] for bucket in result["by_length"]) == result["lines"] == 40


@pytest.mark.long
def test_bleu_while_learning_is_that_of_the_weights_of_the_moment(folder, monkeypatch):
    """Steps on a CPU hold packed copies of the weights: those of the first measurement must not serve the second."""
    made(folder, settings=["train.watch=bleu", "budget={steps=120}"], out="moment", test=())
    lines = [json.loads(line) for line in (folder / "moment" / "metrics.jsonl").read_text().splitlines()]
    scores = [line["bleu"] for line in lines if "bleu" in line]
    assert len(set(scores)) == len(scores) == 2 and scores[1] > scores[0]
