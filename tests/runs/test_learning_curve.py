"""The curve over training sizes: nested parts, both kinds of run, resuming, and the page."""

import json
import random
import re
from collections import Counter

import pytest

from seqloom.cli import data, training, transfer  # noqa: F401  # commands register themselves
from seqloom.cli import run as main
from seqloom.metrics.intervals import student
from seqloom.recipes.library import find_recipe
from seqloom.runs import learning_curve as module
from seqloom.runs.learning_curve import Size, curve_page, long_enough, nested_order
from tests.pages import check_page
from tests.tasks.labelled import examples, sentence, write


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("curve")
    rng = random.Random(0)
    (folder / "text.txt").write_text("\n".join(sentence(rng, i % 2 == 0) for i in range(200)))
    prepared = ["--documents", "line", "--valid", "0.1", "--keep-duplicates", "--keep-leaks", "--tokenizer", "word"]
    assert main(["prepare", str(folder / "text.txt"), "--out", str(folder / "data"), *prepared]) == 0
    small = ["--set", "model.dim=16", "--set", "budget={steps=3}", "--set", "batches.streams=4"]
    assert main(["pretrain", "lstm-tiny", "--data", str(folder / "data"), "--out", str(folder / "lstm"), *small]) == 0
    for seed, (split, count) in enumerate({"train": 24, "valid": 16, "test": 16}.items()):
        write(folder / f"{split}.jsonl", "classify", examples("classify", count, seed))
    return folder


def call(place, out, *more, sizes="4,10,100,300", budget="{epochs=1}"):
    files = [f"--{split}={place / split}.jsonl" for split in ("train", "valid", "test")]
    options = ["--curve", sizes, "--device", "cpu", "--set", f"budget={budget}"]
    return main(["finetune", str(place / "lstm"), "--task", "classify", *files, "--out", str(out), *options, *more])


def test_both_lines(place, tmp_path, capsys):
    out = tmp_path / "out"
    assert call(place, out, "--seeds", "2") == 0
    told = capsys.readouterr()
    printed = told.out.splitlines()
    assert "there are 24 training examples: larger sizes become 24" in told.err
    assert [line.split()[0] for line in printed[1:4]] == ["4", "10", "24"] and "over 2 seeds" in printed[4]
    record = json.loads((out / "curve.json").read_text())
    assert [size["examples"] for size in record["sizes"]] == [4, 10, 24]  # of 100 and 300 one is left: all
    assert (record["score"], record["split"], record["seeds"]) == ("accuracy", "test", [0, 1])
    for size in record["sizes"]:
        for kind in ("pretrained", "scratch"):
            runs = [out / "curve" / kind / str(size["examples"]) / f"seed-{seed}" for seed in (0, 1)]
            values = [json.loads((run / "metrics.json").read_text())["test_scores"]["accuracy"] for run in runs]
            assert size[kind]["values"] == values and size[kind]["value"] == student(values).value
            configs = [json.loads((run / "config.json").read_text()) for run in runs]
            assert all(("from" in config) == (kind == "pretrained") for config in configs)
        assert size["gain"]["value"] == pytest.approx(size["pretrained"]["value"] - size["scratch"]["value"])
    data_of = {
        kind: json.loads((out / "curve" / kind / "10/seed-1/config.json").read_text())["data"]["fingerprint"]
        for kind in ("pretrained", "scratch")
    }
    assert len(set(data_of.values())) == 1  # the same examples
    page = (out / "curve.html").read_text()
    whiskers = sum("low" in size[kind] for size in record["sizes"] for kind in ("pretrained", "scratch"))
    assert page.count("<polyline") == 2 and "majority class" in page
    assert len(re.findall(r"V[\d.]+M[\d.]+ [\d.]+h8", page)) == whiskers


def test_it_goes_on(place, tmp_path, capsys):
    out = tmp_path / "out"
    assert call(place, out, "--seeds", "1", sizes="4") == 0
    assert "nothing can be concluded" in capsys.readouterr().out
    first = out / "curve/scratch/4/seed-0/metrics.json"
    before = first.stat().st_mtime_ns
    assert call(place, out, "--seeds", "1", sizes="4,8") == 2
    assert "--resume" in capsys.readouterr().err
    assert call(place, out, "--seeds", "1", "--resume", sizes="4,8") == 0
    assert first.stat().st_mtime_ns == before and (out / "curve/pretrained/8/seed-0/card.md").exists()


def test_wrong_calls(place, tmp_path, capsys):
    for sizes in ("ten", "0,3", "", "3,,4", "-1"):
        assert call(place, tmp_path / "out", sizes=sizes) == 2
        assert "--curve" in capsys.readouterr().err
    files = ["--train", str(place / "train.jsonl"), "--out", str(tmp_path / "out"), "--curve", "4"]
    assert main(["finetune", str(place / "lstm"), "--task", "classify", *files]) == 2
    assert "--valid or --test" in capsys.readouterr().err and not (tmp_path / "out").exists()


# ---- which examples


def check_shares():
    strata = ["a"] * 60 + ["b"] * 30 + ["c"] * 10
    for seed in range(20):
        order = nested_order(strata, seed)
        assert sorted(order) == list(range(100))
        for size in (10, 20, 50):
            counts = Counter(strata[i] for i in order[:size])
            assert all(abs(counts[name] - size * share) <= 2 for name, share in (("a", 0.6), ("b", 0.3), ("c", 0.1)))


def test_every_beginning_has_the_classes_in_their_shares():
    check_shares()
    strata = ["a", "b"] * 20
    assert nested_order(strata, 1) == nested_order(strata, 1) != nested_order(strata, 2)


def test_every_example_is_as_likely():
    drawn = Counter(i for seed in range(600) for i in nested_order(["a"] * 6 + ["b"] * 4, seed)[:5])
    assert all(240 < drawn[i] < 360 for i in range(10))


def test_a_planted_plain_order_is_noticed(monkeypatch):
    monkeypatch.setitem(globals(), "nested_order", lambda strata, seed: random.Random(seed).sample(range(100), 100))
    with pytest.raises(AssertionError):
        check_shares()


def test_few_examples_are_learnt_from_long_enough():
    recipe = find_recipe("lstm-tiny", None, None, "classify")
    few, many = long_enough(recipe, 10), long_enough(recipe, 32 * 100)
    assert few.budget.epochs == module.MIN_STEPS and few.train.eval_every == 5 and many == recipe
    assert long_enough(recipe, 64).budget.epochs == module.MIN_STEPS / 2


def test_the_page_has_a_bar_for_every_bounded_interval():
    """Also where the first one is unbounded."""
    sure, unsure = student([0.5, 0.6, 0.7]), student([0.5])
    sizes = [Size(10, unsure, unsure, unsure), Size(100, sure, unsure, unsure), Size(1000, sure, sure, sure)]
    record = {"task": "classify", "score": "accuracy", "split": "test", "from": "lstm", "seeds": [0], "majority": 0.5}
    page = curve_page(record, sizes)
    check_page(page)
    assert len(re.findall(r"V[\d.]+M[\d.]+ [\d.]+h8", page)) == 3 and "inf" not in re.sub(r"<script>.*", "", page)
