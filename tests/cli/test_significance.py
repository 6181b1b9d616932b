"""seqloom significance: what files mean, what is concluded, and what is refused in one line."""

import gzip
import json

import numpy as np
import pytest
from scipy import stats

from seqloom.cli import run
from seqloom.comparison.metric import Metric
from seqloom.comparison.significance import significance
from seqloom.evaluate.item_scores import Choice, read_system
from seqloom.evaluate.suites import write_items


def call(capsys, *arguments):
    code = run(["significance", *map(str, arguments)])
    return code, *capsys.readouterr()


def result_of(capsys, *arguments):
    code, out, err = call(capsys, *arguments, "--json")
    assert (code, err) == (0, ""), err
    return json.loads(out)


def refused(capsys, code, words, *arguments):
    found, out, err = call(capsys, *arguments)
    assert (found, out) == (code, "") and words in err and err.count("\n") == 1, err


def outcomes(seeds=3, items=120, gaps=(0.0, 0.6, 0.65), seed=0):
    """(rows, seeds, items) of 0 and 1."""
    random = np.random.default_rng(seed)
    hard = random.normal(size=items)
    return [
        (hard + gap + random.normal(0, 0.1, (seeds, 1)) + random.normal(size=(seeds, items)) > 0).astype(float)
        for gap in gaps
    ]


def write_rows(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    mark = "," if path.suffix == ".csv" else "\t"
    lines = [mark.join(rows[0]), *(mark.join(str(value) for value in row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_system(folder, name, scores, ending=".jsonl", groups=None):
    """A file a seed; ids in another order in every file."""
    for s, row in enumerate(scores):
        order = np.random.default_rng(s).permutation(len(row))
        rows = [
            {"id": f"item-{i}", "score": row[i]} | ({} if groups is None else {"group": groups[i]})
            for i in order.tolist()
        ]
        write_rows(folder / f"{name}-{s}{ending}", rows)


def as_metric(systems, **options):
    return Metric("score", False, dict(zip("ABC", systems, strict=False)), {}, outcomes=True, **options)


def check_same(found, metric):
    """The command says what `Metric` says of the same numbers."""
    for name, row in found["systems"].items():
        interval = metric.interval(name)
        assert (row["value"], row["low"], row["high"]) == pytest.approx(tuple(interval))
    assert found["best"] == metric.leaders()
    for row, pair in zip(found["differences"], metric.differences, strict=True):
        assert (row["first"], row["second"]) == (pair.first, pair.second)
        assert (row["value"], row["low"], row["high"]) == pytest.approx(tuple(pair.difference.interval))
        assert (row["p"], row["p_adjusted"]) == pytest.approx((pair.difference.p, pair.p_adjusted))


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv"])
def test_files_of_seeds_are_paired_by_id(tmp_path, capsys, ending):
    systems = outcomes()
    for name, scores in zip("ABC", systems, strict=True):
        write_system(tmp_path, name, scores, ending)
    found = result_of(capsys, *(f"{name}={tmp_path}/{name}-*{ending}" for name in "ABC"))
    check_same(found, as_metric(systems))
    assert found["items"] == 120 and [row["seeds"] for row in found["systems"].values()] == [3, 3, 3]
    assert [row["significant"] for row in found["differences"]] == [True, True, False]
    files = (f"{name}=" + ",".join(f"{tmp_path}/{name}-{s}{ending}" for s in range(3)) for name in "ABC")
    assert result_of(capsys, *files) == found


def test_seeds_in_rows_and_in_folders_are_the_same(tmp_path, capsys):
    systems = outcomes()[:2]
    for name, scores in zip("AB", systems, strict=True):
        rows = [{"id": i, "score": x, "seed": s} for s, row in enumerate(scores.tolist()) for i, x in enumerate(row)]
        write_rows(tmp_path / f"{name}.csv", rows)
        for s, row in enumerate(scores.tolist()):
            (tmp_path / "folders" / name / f"seed-{s}").mkdir(parents=True)
            write_items(tmp_path / "folders" / name / f"seed-{s}" / "items.npz", row)
    by_rows = result_of(capsys, tmp_path / "A.csv", tmp_path / "B.csv")
    check_same(by_rows, as_metric(systems))
    by_folder = result_of(capsys, tmp_path / "folders" / "A", tmp_path / "folders" / "B")
    assert by_folder.pop("metric") == "items" and by_rows.pop("metric") == "score"
    assert by_folder.pop("method") and by_rows.pop("method") and by_folder == by_rows


@pytest.mark.parametrize("ending", [".jsonl", ".npz"])
def test_items_of_evaluate_keep_their_groups(tmp_path, capsys, ending):
    systems = outcomes()[:2]
    groups = [f"set-{i % 12}" for i in range(120)]
    for name, scores in zip("AB", systems, strict=True):
        for s, row in enumerate(scores.tolist()):
            write_items(tmp_path / f"{name}-{s}{ending}", row, groups)
    arguments = [f"{name}={tmp_path}/{name}-*{ending}" for name in "AB"]
    found = result_of(capsys, *arguments)
    check_same(found, as_metric(systems, sets=np.array(groups)))
    assert found["groups"] == 12 and "groups_needed" in found["differences"][0]
    fixed = result_of(capsys, *arguments, "--groups", "fixed")
    check_same(fixed, as_metric(systems, sets=np.array(groups), fixed_sets=True))
    refused(capsys, 2, "--groups random: give sampled or fixed", *arguments, "--groups", "random")


def test_arrays_of_a_comparison_are_chosen_by_name(tmp_path, capsys):
    systems = outcomes()[:2]
    for name, scores in zip("AB", systems, strict=True):
        (tmp_path / name).mkdir()
        for s, row in enumerate(scores):
            np.savez(tmp_path / name / f"seed-{s}.npz", **{"blimp": row, "lambada": row[:9], "documents.bits": row})
            sums = {"documents.nats": row, "common_documents.nats": row}
            np.savez(tmp_path / f"{name}-{s}.npz", **sums)
            (tmp_path / name / f"seed-{s}.json").write_text("{}")
    check_same(result_of(capsys, tmp_path / "A", tmp_path / "B", "--metric", "blimp"), as_metric(systems))
    refused(capsys, 3, "2 arrays (blimp, lambada): choose one with --metric", tmp_path / "A", tmp_path / "B")
    refused(capsys, 3, "no array 'documents.bits'", tmp_path / "A", tmp_path / "B", "--metric", "documents.bits")
    refused(capsys, 3, "only sums over documents", tmp_path / "A-0.npz", tmp_path / "B-0.npz")


# ---- the lm-evaluation-harness


def write_samples(folder, task, scores, **more):
    folder.mkdir(exist_ok=True)
    rows = [
        {"doc_id": i, "doc": {}, "target": 0, "filter": "none", "metrics": ["acc", "acc_norm"], "doc_hash": f"h{i}"}
        | {"acc": x, "acc_norm": 1 - x}
        | more
        for i, x in enumerate(scores)
    ]
    return write_rows(folder / f"samples_{task}_2026-11-16T10-00-00.123456.jsonl", rows)


def test_samples_of_the_harness(tmp_path, capsys):
    """Tasks are all that is meant: intervals are for other items of theirs."""
    systems = outcomes(seeds=1)[:2]
    for name, (scores,) in zip("AB", systems, strict=True):
        write_samples(tmp_path / name, "arc_easy", scores[:80].tolist())
        write_samples(tmp_path / name, "piqa", scores[80:].tolist())
        (tmp_path / name / "results_2026-11-16T10-00-00.123456.json").write_text("{}")
    found = result_of(capsys, tmp_path / "A", tmp_path / "B", "--metric", "acc", "--fixed")
    tasks = np.repeat(["arc_easy", "piqa"], (80, 40))
    check_same(found, as_metric(systems, deterministic=frozenset("AB"), sets=tasks, fixed_sets=True))
    assert found["metric"] == "acc" and found["differences"][0]["items_needed"] > 2
    file = next((tmp_path / "A").glob("samples_arc*"))
    one = result_of(capsys, f"A={file}", f"B={tmp_path / 'B' / file.name}", "--metric", "acc", "--fixed")
    pair = stats.ttest_rel(systems[0][0][:80], systems[1][0][:80])
    assert one["groups"] is None and one["differences"][0]["p"] == pytest.approx(pair.pvalue)
    refused(capsys, 3, f"{file}:1: 2 metrics (acc, acc_norm): choose one with --metric", tmp_path / "A", tmp_path / "B")
    refused(capsys, 3, ':1: no metric "f1": the row has acc', tmp_path / "A", tmp_path / "B", "--metric", "f1")


def test_samples_of_other_documents_and_of_several_filters_are_refused(tmp_path, capsys):
    scores = outcomes(seeds=1)[0][0].tolist()
    a, b = write_samples(tmp_path / "A", "piqa", scores), write_samples(tmp_path / "B", "piqa", scores, doc_hash="x")
    refused(
        capsys,
        3,
        f"{b}:1: item piqa/0 has the hash x, but h0 at {a}:1",
        f"A={a}",
        f"B={b}",
        "--metric",
        "acc",
        "--fixed",
    )
    rows = [json.loads(line) for line in a.read_text().splitlines()]
    write_rows(a, [row | {"filter": name} for row in rows for name in ("strict", "flexible")])
    b = write_samples(tmp_path / "B", "piqa", scores)
    refused(capsys, 3, "(filter strict)", f"A={a}", f"B={b}", "--metric", "acc")
    write_rows(b, [row | {"filter": "strict", "acc": 1 - row["acc"]} for row in rows])
    found = result_of(capsys, f"A={a}", f"B={b}", "--metric", "acc", "--filter", "strict", "--fixed")
    assert found["items"] == len(scores)


# ---- BabyLM


def write_babylm(folder, name, scores, packed=False):
    """Two subtasks of BLiMP and one of GLUE, and their gold files."""
    gold = folder / "gold"
    (gold / "blimp").mkdir(parents=True, exist_ok=True)
    half, found = len(scores) // 3, {"blimp": {}, "glue": {}}
    for k, subtask in enumerate(("islands", "npi", "rte")):
        part = scores[k * half : (k + 1) * half]
        if subtask == "rte":
            answers, wrong = [{"label": i % 2} for i in range(half)], [1 - i % 2 for i in range(half)]
            right = [row["label"] for row in answers]
            (gold / "rte.valid.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
        else:
            right, wrong = [f"Good {i}." for i in range(half)], [f"Bad {i}." for i in range(half)]
            rows = [{"sentence_good": a, "sentence_bad": b} for a, b in zip(right, wrong, strict=True)]
            write_rows(gold / "blimp" / f"{subtask}.jsonl", rows)
        predictions = [
            {"id": f"{subtask}_{i}", "pred": (right if x else wrong)[i]} for i, x in enumerate(part)
        ]  # fmt: skip
        if subtask != "rte":  # as the pipeline writes them
            predictions = [row | {"pred": f" {row['pred']}"} for row in predictions]
        found["glue" if subtask == "rte" else "blimp"][subtask] = {"predictions": predictions}
    data = json.dumps(found).encode()
    path = folder / f"{name}.json{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


def test_predictions_of_babylm(tmp_path, capsys):
    systems = outcomes(seeds=1)[:2]
    a, b = (write_babylm(tmp_path, n, s[0], n == "B") for n, s in zip("AB", systems, strict=True))
    gold = ("--gold", tmp_path / "gold")
    found = result_of(capsys, a, b, *gold, "--fixed")
    sets = np.repeat(["blimp/islands", "blimp/npi", "glue/rte"], 40)
    check_same(found, as_metric(systems, deterministic=frozenset("AB"), sets=sets))
    assert found["metric"] == "accuracy" and found["groups"] == 3
    refused(capsys, 3, f"{a}: predictions without gold answers: name the folder", a, b)
    (tmp_path / "gold" / "blimp" / "npi.jsonl").unlink()
    refused(capsys, 3, "0 files with gold answers of npi", a, b, *gold)
    write_rows(tmp_path / "gold" / "npi.jsonl", [{"sentence_good": "one"}])
    refused(capsys, 3, "40 predictions of blimp/npi, but 1 gold answers", a, b, *gold)
    write_rows(tmp_path / "gold" / "npi.jsonl", [{"sentence": "one"}])
    refused(capsys, 3, "npi.jsonl:1: no gold answer", a, b, *gold)
    a.write_text('{"blimp": {"islands": [1, 2]}}')
    refused(capsys, 3, f"{a}: no predictions: they are", a, b, *gold)
    a.write_text("{")
    refused(capsys, 3, f"{a}: not valid JSON", a, b, *gold)


# ---- what is concluded


def test_of_one_seed_nothing_is_concluded_unless_models_are_fixed(tmp_path, capsys):
    systems = outcomes(seeds=1)[:2]
    for name, scores in zip("AB", systems, strict=True):
        write_system(tmp_path, name, scores)
    files = [tmp_path / "A-0.jsonl", tmp_path / "B-0.jsonl"]
    found = result_of(capsys, *files)
    assert found["differences"][0]["p"] == 1 and found["best"] == ["A-0", "B-0"]
    assert "detectable" not in found["differences"][0] and "--fixed" in found["method"][-1]
    fixed = result_of(capsys, *files, "--fixed")
    assert fixed["differences"][0]["p"] == pytest.approx(stats.ttest_rel(systems[0][0], systems[1][0]).pvalue)
    code, out, _ = call(capsys, *files)
    assert code == 0 and "no difference could be found with so few seeds" in out


def test_power_is_printed(tmp_path, capsys):
    for name, scores in zip("AB", outcomes(items=400, gaps=(0.0, 0.12)), strict=True):
        write_system(tmp_path, name, scores)
    arguments = [f"{name}={tmp_path}/{name}-*.jsonl" for name in "AB"]
    row = result_of(capsys, *arguments)["differences"][0]
    assert row["detectable"] > abs(row["value"]) and row["power"] < 0.8 and row["seeds_needed"] > 3
    code, out, _ = call(capsys, *arguments)
    assert code == 0 and f"a difference of {row['detectable']:.2g} would be found in 80% of repetitions" in out
    assert f"you would need about {row['seeds_needed']:,} seeds" in out
    assert "A − B: " in out and "not significant" in out and "corrected" not in out


def test_lower_is_better(tmp_path, capsys):
    for name, scores in zip("AB", outcomes(gaps=(0.0, 1.0)), strict=True):
        write_system(tmp_path, name, scores)
    arguments = [f"{name}={tmp_path}/{name}-*.jsonl" for name in "AB"]
    assert result_of(capsys, *arguments)["best"] == ["B"]
    assert result_of(capsys, *arguments, "--lower")["best"] == ["A"]


def check_identical_systems(tmp_path):
    """Systems that score alike, and seeds that do: no interval without width, no p of 0, no winner."""
    right = outcomes(seeds=1)[0][0]
    for name, scores in (
        ("a", [right, right]),
        ("b", [right, right]),
        ("all", [np.ones(120)] * 2),
        ("none", [np.zeros(120)] * 2),
    ):
        write_system(tmp_path, name, scores)
    read = {name: read_system(f"{name}={tmp_path}/{name}-*.jsonl") for name in ("a", "b", "all", "none")}
    for pair in (("a", "b"), ("a", "all"), ("all", "none")):
        (found,) = significance([read[name] for name in pair]).record()["differences"]
        assert found["p"] > 0 and found.get("low", -1) < found["value"] < found.get("high", 1)


def test_identical_systems_are_no_certainty(tmp_path):
    check_identical_systems(tmp_path)


# ---- what is refused


def test_items_that_do_not_match(tmp_path, capsys):
    systems = outcomes()[:2]
    for name, scores in zip("AB", systems, strict=True):
        write_system(tmp_path, name, scores)
    for s in range(3):
        path = tmp_path / f"B-{s}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [row for row in rows if row["id"] not in ("item-3", "item-4", "item-5", "item-6", "item-7")]
        write_rows(path, [*sorted(rows, key=lambda row: row["id"]), {"id": "other", "score": 1}])
    a, b = (f"{name}={tmp_path}/{name}-*.jsonl" for name in "AB")
    code, out, err = call(capsys, a, b)
    assert (code, out) == (3, "") and err.count("\n") == 1
    assert "B lacks 5 items (item-" in err and ", …) of A; A lacks 1 items (other) of B" in err
    assert "--common" in err
    found = result_of(capsys, a, b, "--common")
    keep = [i for i in range(120) if not 3 <= i <= 7]
    order = [i for i in np.random.default_rng(0).permutation(120).tolist() if i in keep]
    check_same(found, as_metric([scores[:, order] for scores in systems]))
    assert (found["items"], found["left_out"]) == (115, 6) and "6 items that not all systems have" in found["method"][1]
    write_rows(tmp_path / "c.jsonl", [{"id": "x", "score": 1}])
    refused(capsys, 3, "lacks 120 items", a, tmp_path / "c.jsonl", "--common")
    write_rows(tmp_path / "B-1.jsonl", [{"id": "other", "score": 1}])
    refused(capsys, 3, f"seed {tmp_path}/B-1.jsonl lacks 115 items (item-", a, b, "--common")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"id": 1, "score": 1}, {"id": 2, "score": float("nan")}], '.jsonl:2: "score" is not a finite number: nan'),
        ([{"id": 1, "score": 1}, {"id": 2}], '.jsonl:2: no "score"'),
        ([{"score": 1}], '.jsonl:1: no "id"'),
        ([{"id": 1, "score": "many"}], '.jsonl:1: "score" is not a finite number: many'),
        ([{"id": 1, "score": [1]}], '.jsonl:1: "score" is not a finite number'),
        ([{"id": 1, "score": 1}, {"id": "1", "score": 0}], "bad.jsonl:2: the id '1' is also at "),
        ([{"id": 1, "score": 1, "seed": 0}, {"id": 2, "score": 1}], '.jsonl:2: no "seed", but other rows have one'),
        ([{"id": [1], "score": 1}], '.jsonl:1: "id" is no name or number: [1]'),
        ([{"id": 1, "score": 1, "group": "a"}, {"id": 2, "score": 1}], "jsonl:2: no group, but other items have one"),
        ([], "bad.jsonl: no item in it"),
    ],
)
def test_bad_rows_are_refused_with_file_and_line(tmp_path, capsys, rows, words):
    bad = write_rows(tmp_path / "bad.jsonl", rows)
    good = write_rows(tmp_path / "good.jsonl", [{"id": i, "score": 1} for i in (1, 2)])
    refused(capsys, 3, words, bad, good)


def test_bad_files_and_calls_are_refused(tmp_path, capsys):
    good = write_rows(tmp_path / "good.jsonl", [{"id": i, "score": i} for i in (1, 2)])
    other = write_rows(tmp_path / "other.jsonl", [{"id": i, "score": i, "group": "a"} for i in (1, 2)])
    (tmp_path / "a.csv").write_text("id,points\n1,2\n")
    refused(capsys, 3, 'a.csv:1: no column "score"', tmp_path / "a.csv", good)
    (tmp_path / "a.txt").write_text("1\n")
    refused(capsys, 3, "a.txt: not a .jsonl, .csv, .tsv, .npz or .json file", tmp_path / "a.txt", good)
    (tmp_path / "a.npz").write_text("1\n")
    refused(capsys, 3, "a.npz: not a readable .npz file", tmp_path / "a.npz", good)
    np.savez(tmp_path / "b.npz", items=np.array([1, np.nan]))
    refused(capsys, 3, "b.npz: item 1 of 'items' is not a finite number", tmp_path / "b.npz", good)
    np.savez(tmp_path / "b.npz", items=np.ones((2, 2)))
    refused(capsys, 3, "is not a row of numbers", tmp_path / "b.npz", good)
    (tmp_path / "empty").mkdir()
    refused(capsys, 3, "empty: no file with scores of items in this folder", tmp_path / "empty", good)
    refused(capsys, 3, "nowhere.jsonl: no such file or folder", tmp_path / "nowhere.jsonl", good)
    refused(capsys, 3, "no*.jsonl: no file has such a name", tmp_path / "no*.jsonl", good)
    refused(capsys, 2, "1 system: give at least two", good)
    refused(capsys, 2, "two systems are named 'good': name them", good, good)
    refused(capsys, 2, "names no file", "A=", good)
    np.savez(tmp_path / "c.npz", items=np.ones(2))
    refused(capsys, 2, "scores are items and score: choose one", tmp_path / "c.npz", good)
    seeds = write_rows(tmp_path / "s.jsonl", [{"id": i, "score": i, "seed": s} for i in (1, 2) for s in (0, 1)])
    refused(capsys, 2, "--fixed: s has 2 seeds", seeds, good, "--fixed")
    moved = write_rows(tmp_path / "moved.jsonl", [{"id": i, "score": i, "group": "b"} for i in (1, 2)])
    refused(capsys, 3, f"{moved}:1: item 1 is in group b, but a at {other}:1", other, moved)


def test_names_of_systems(tmp_path):
    path = write_rows(tmp_path / "a=b,c.jsonl", [{"id": 1, "score": 0.5}])
    assert read_system(str(path)).name == "a=b,c" and read_system(f"Mine={path}").name == "Mine"
    assert read_system(f"x={path}", Choice("score")).metric == "score"


def test_planted_pairing_by_order_is_noticed(tmp_path, capsys, monkeypatch):
    """Files have their items in other orders: seeds and systems are to be paired by id."""
    from seqloom.evaluate import item_scores

    monkeypatch.setattr(
        item_scores.System,
        "scores",
        lambda self, ids: np.array([[each.score for each in items.values()] for items in self.seeds.values()]),
    )
    with pytest.raises(AssertionError):
        test_files_of_seeds_are_paired_by_id(tmp_path, capsys, ".jsonl")


def test_planted_items_as_if_independent_are_noticed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Metric, "has_sampled_sets", False)
    systems = outcomes()[:2]
    groups = [f"set-{i // 10}" for i in range(120)]
    for name, scores in zip("AB", systems, strict=True):
        write_system(tmp_path, name, scores, groups=groups)
    found = result_of(capsys, *(f"{name}={tmp_path}/{name}-*.jsonl" for name in "AB"))
    monkeypatch.undo()
    order = np.random.default_rng(0).permutation(120)
    with pytest.raises(AssertionError):
        check_same(found, as_metric([each[:, order] for each in systems], sets=np.array(groups)[order]))
