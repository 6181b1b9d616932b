"""Senses: planted ones are told apart, figures equal scikit-learn's, words that do not occur are named."""

import json

import numpy as np
import pytest
from sklearn.manifold._t_sne import _joint_probabilities
from sklearn.metrics import silhouette_score

from seqloom.analyse.sense_items import read_same, read_senses
from seqloom.analyse.senses import (
    choose_threshold,
    mean_cosine,
    mean_cosine_of_words,
    nearest_senses,
    neighbour_probabilities,
    principal,
    silhouette,
    tsne,
    unit,
)
from seqloom.cli import run
from seqloom.errors import DataError, UsageError
from seqloom.runs.training import pretrain
from tests.training.material import prepared


def clouds(apart, seed=0):
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], 20)
    return apart * np.eye(3, 8)[labels] + random.normal(size=(60, 8)), labels


def test_planted_senses_are_told_apart_and_noise_is_not():
    vectors, labels = clouds(8)
    assert nearest_senses(vectors, labels).mean() == 1 and silhouette(vectors, labels) > 0.4
    noise, _ = clouds(0)
    assert nearest_senses(noise, labels).mean() < 0.6 and abs(silhouette(noise, labels)) < 0.1


def test_an_occurrence_does_not_vote_for_itself():
    """The planted bug would give 100% to any vectors with one neighbour."""
    noise, labels = clouds(0)
    near = unit(noise)
    itself = labels[np.argsort(-(near @ near.T), axis=1)[:, 0]]
    assert (itself == labels).all() and nearest_senses(noise, labels, 1).mean() < 0.7


def test_vectors_that_are_all_alike_say_no_more_than_the_most_frequent_sense():
    labels = np.array([1] * 3 + [0] * 7)
    assert nearest_senses(np.ones((10, 4)), labels).tolist() == [0.0] * 3 + [1.0] * 7


def test_silhouette_equals_that_of_scikit_learn():
    vectors, labels = clouds(2)
    labels[0] = 3  # a sense that occurs once
    assert silhouette(vectors, labels) == pytest.approx(silhouette_score(vectors, labels, metric="cosine"), abs=1e-9)


def test_calibration_equals_that_of_scikit_learn():
    vectors, _ = clouds(3)
    distances = np.square(vectors[:, None] - vectors).sum(-1)
    mine = neighbour_probabilities(distances, 12.0)
    entropy = -(mine * np.log(np.maximum(mine, 1e-300))).sum(1)
    np.testing.assert_allclose(np.exp(entropy), 12.0, rtol=1e-4)
    theirs = _joint_probabilities(distances.astype(np.float32), 12.0, 0)
    upper = np.triu_indices(60, 1)
    np.testing.assert_allclose(((mine + mine.T) / 120)[upper], theirs, rtol=2e-3, atol=1e-8)


def test_a_wrong_perplexity_is_noticed(monkeypatch):
    """The planted bug: the bisection aims at half of it."""
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            neighbour_probabilities(np.square(clouds(3)[0][:, None] - clouds(3)[0]).sum(-1), 6.0),
            neighbour_probabilities(np.square(clouds(3)[0][:, None] - clouds(3)[0]).sum(-1), 12.0),
            rtol=2e-3,
        )


def test_pictures_keep_clouds_together():
    vectors, labels = clouds(12)
    for places in (tsne(vectors, steps=300), principal(vectors)):
        assert places.shape == (60, 2) and np.isfinite(places).all()
        near = np.square(places[:, None] - places).sum(-1) + 1e9 * np.eye(60)
        assert (labels[near.argmin(1)] == labels).all()


def test_cosines():
    vectors = np.array([[1.0, 0], [1, 0], [0, 2]])
    assert mean_cosine(vectors) == pytest.approx(1 / 3)
    assert mean_cosine_of_words(vectors, np.array([0, 0, 1])) == 0


def test_the_threshold_is_the_best_of_all():
    random = np.random.default_rng(0)
    same = random.random(50) < 0.5
    cosines = random.normal(size=50) + same
    found = choose_threshold(cosines, same)
    every = [((cosines > value) == same).mean() for value in (*cosines, cosines.min() - 1)]
    assert found.accuracy == pytest.approx(max(every)) == ((cosines > found.value) == same).mean()


# ---- files and runs


def rows(count):
    for i in range(count):
        tokens = ["the", "king", "sees", "a", "bird"] if i % 2 else ["no", "king", "of", "the", "river"]
        yield json.dumps({"word": "king", "sense": f"k{i % 2}", "tokens": tokens, "head": 1})


def test_files_of_every_form(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(rows(6)))
    found = read_senses(tmp_path / "a.jsonl", "king", 4)
    assert [item.label for item in found.items][:2] == ["k0", "k1"] and len(found.items) == 4
    assert {found.texts[item.text][slice(*item.spans[0])] for item in found.items} == {"king"}
    (tmp_path / "b.txt").write_text("A King, a king\nkingdom\n")
    plain = read_senses(tmp_path / "b.txt", "king", 9)
    assert [item.spans[0] for item in plain.items] == [(2, 6), (10, 14)]
    assert plain.texts == ["A King, a king"], "a line is read once, however often the word stands in it"
    (tmp_path / "c.tsv").write_text("T\tgo\tV\t1-0\tyou go\tgo on\n")
    pairs = read_same(tmp_path / "c.tsv")
    assert pairs.same == [True] and [item.spans[0] for item in pairs.items.items] == [(4, 6), (0, 2)]
    for name, text, word in (("d.jsonl", "{}", "x"), ("e.txt", "nothing", "king"), ("f.tsv", "maybe", None)):
        (tmp_path / name).write_text(text + "\n")
        with pytest.raises(DataError):
            read_same(tmp_path / name) if word is None else read_senses(tmp_path / name, word, 9)
    with pytest.raises(UsageError):
        read_senses(tmp_path / "b.txt", None, 9)


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = prepared(tmp_path / "data", 300)
    pretrain("gpt2-tiny", data, tmp_path / "gpt2", settings=["model.dim=20", "budget={steps=1}", "valid.limit=100"])
    (tmp_path / "a.jsonl").write_text("\n".join(rows(12)))
    (tmp_path / "c.tsv").write_text("T\tking\tN\t1-0\tthe king\tking sees\nF\tking\tN\t1-1\tno king\tmy king\n")
    call = ["inspect", "gpt2", "--text", "a.jsonl", "--show", "senses"]
    assert run([*call, "--word", "king", "--same", "c.tsv", "--same", "c.tsv", "--out", "s.html"]) == 0
    assert "nearest-neighbour accuracy 1.0000" in capsys.readouterr().out, (
        "what follows is not read, what stands before is"
    )
    assert "t-SNE" in (tmp_path / "s.html").read_text()
    assert "self-similarity is left out" not in (tmp_path / "s.html").read_text().lower()
    (tmp_path / "line.txt").write_text("the king sees the king , and a king\n")
    call_line = ["inspect", "gpt2", "--text", "line.txt", "--show", "senses", "--word", "king", "--out", "line.html"]
    assert run(call_line) == 0 and "give a file with more texts" in capsys.readouterr().out
    assert "Self-similarity is left out" in (tmp_path / "line.html").read_text()
    for options, code, words in (
        (["--word", "zebra"], 3, "does not occur"), (["--word", "king", "--same", "c.tsv"], 2, "name two tables"),
        (["--word", "king", "--layer", "9"], 2, "layers 1 to 3"),
    ):  # fmt: skip
        assert run([*call, *options, "--out", "bad.html"]) == code
        said = capsys.readouterr().err
        assert words in said and "bug" not in said and not (tmp_path / "bad.html").exists()
