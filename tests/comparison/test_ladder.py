"""A plan at several budgets: laws, predictions that are made first, and nothing that is lost."""

import io
import json
import random
import shutil
from pathlib import Path

import pytest

from seqloom.cli import run
from seqloom.comparison import ladder as module
from seqloom.comparison import ladder_archive, laws, unpack
from seqloom.comparison.ladder import compare_ladder
from seqloom.comparison.ladder_archive import open_ladder_archive, pack_ladder
from seqloom.comparison.plan import PlanConfig, Rung
from seqloom.comparison.run import compare
from seqloom.comparison.unpack import open_archive
from seqloom.config import build
from seqloom.errors import DataError, SeqloomError, UsageError
from seqloom.files import digest_of
from seqloom.runs.track import find_runs, is_finished
from tests.comparison.archives import members, write
from tests.comparison.plans import GPT, LSTM, plan_of, values, write_text
from tests.mutation import mutated_json
from tests.pages import check_page

WORDS = {"words": [300, 600, 1200], "predict": [2400]}


def ladder_plan(place: Path, /, **changes) -> PlanConfig:
    given = values(place, **{"rows": [LSTM, GPT], "pairs": 0, **changes})
    return build(
        PlanConfig, {key: value for key, value in given.items() if key != "budget"} | {"ladder": WORDS} | changes
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("ladder") / "text.txt")


@pytest.fixture(scope="module")
def climbed(text):
    return compare_ladder(ladder_plan(text), text.parent / "climbed", jobs=2, device="cpu"), text.parent / "climbed"


def test_every_budget_is_a_comparison_of_its_own(climbed):
    found, folder = climbed
    assert list(found.comparisons) == [300, 600, 1200, 2400] and found.unit == "words"
    for budget, each in found.comparisons.items():
        assert each.costs["GPT"]["words"] == pytest.approx(budget, rel=0.2)
        assert (folder / "budgets" / f"{budget:g}-words" / "report.html").exists()
    assert len(list((folder / "data").glob("*/manifest.json"))) == 1, "the text is prepared once"
    bits = found.metrics[0]
    assert bits.name == "bits per byte" and set(bits.laws) == {"LSTM", "GPT"}
    assert list(bits.values["GPT"]) == [300, 600, 1200, 2400] and len(bits.values["GPT"][300]) == 2
    assert list(bits.laws["GPT"].budgets) == [300, 600, 1200], "what is predicted is not fitted to"
    assert {pair.rows for pair in found.pairs} == {("LSTM", "GPT")}


def test_predictions_are_written_before_what_they_predict(climbed):
    found, folder = climbed
    bits = [each for each in found.predictions if each.metric == "bits per byte"]
    assert [(each.row, each.budget) for each in bits] == [("LSTM", 2400), ("GPT", 2400)]
    assert all(each.measured is not None for each in found.predictions)
    first = min(path.stat().st_mtime_ns for path in folder.glob("budgets/2400-words/**/config.json"))
    assert (folder / "predictions.json").stat().st_mtime_ns < first
    record = json.loads((folder / "ladder.json").read_text())
    assert [each["row"] for each in record["predictions"]] == ["LSTM", "GPT"] * len(found.metrics)
    assert record["metrics"][0]["laws"]["GPT"]["exponent"]["value"] is not None


def test_the_page(climbed):
    found, folder = climbed
    page = (folder / "report.html").read_text(encoding="utf-8")
    beside = {f"budgets/{budget:g}-words/report.html" for budget in found.comparisons}
    check_page(page, frozenset(beside | {path.name for path in folder.glob("*.svg")}))
    for word in ("Power laws", "Predictions", "Who is ahead where", "budgets/300-words/report.html", "fits exactly"):
        assert word in page
    assert len((folder / "ladder.csv").read_text().splitlines()) == 1 + 2 * 2 * 4 * len(found.metrics)
    assert any("not searched for at each budget" in line for line in found.caveats)


def test_all_its_runs_are_tracked_as_one_group(climbed):
    found, folder = climbed
    runs = find_runs([folder])
    expected = {
        f"climbed/budgets/{b:g}-words/runs/{row}/seed-{i}"
        for b in found.comparisons
        for row in ("LSTM", "GPT")
        for i in range(2)
    }
    assert {run.name for run in runs} == expected and {run.group for run in runs} == {"climbed"} and is_finished(folder)


def test_a_ladder_shows_itself(climbed):
    found, folder = climbed
    assert repr(found).startswith(f"<ladder {found.name}: LSTM, GPT at 300, 600, 1,200, 2,400 words; bits per byte")
    assert found._repr_html_().count("<table") == len(found.metrics)
    header, *lines = (folder / "ladder.csv").read_text().splitlines()
    assert found.to_pandas().columns.tolist() == header.split(",") and len(found.to_pandas()) == len(lines)
    assert "\n" not in repr(found)


def test_called_again_nothing_is_run_and_predictions_stay(climbed, text):
    found, folder = climbed
    kept = [folder / "predictions.json", *folder.glob("budgets/*/results/*/*.json")]
    before = {path: path.stat().st_mtime_ns for path in kept}
    again = compare_ladder(ladder_plan(text), folder, jobs=2, device="cpu")
    assert {path: path.stat().st_mtime_ns for path in kept} == before
    assert again.record() == found.record()


def test_predictions_that_were_changed_are_refused(climbed, text, tmp_path):
    copy = shutil.copytree(climbed[1], tmp_path / "copy")
    path = copy / "predictions.json"
    record = json.loads(path.read_text())
    record["predictions"][0]["value"] = 1.0
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match=r"predictions.json was changed"):
        compare_ladder(ladder_plan(text), copy, device="cpu")
    path.unlink()
    with pytest.raises(UsageError, match="was run before it was predicted"):
        compare_ladder(ladder_plan(text), copy, device="cpu")


def test_planted_a_law_that_has_seen_its_answer_is_noticed(climbed, text, monkeypatch):
    """Were the predicted budget among those that are fitted, the law would have four."""
    found, _ = climbed
    plan = ladder_plan(text)
    seen = plan.ladder.model_copy(update={"words": (300.0, 600.0, 1200.0, 2400.0), "predict": ()})
    cheated = laws.ladder_metrics(seen, {Rung(budget): each for budget, each in found.comparisons.items()})[0]
    assert list(cheated.laws["GPT"].budgets) != list(found.metrics[0].laws["GPT"].budgets)


def test_overwrite_removes_only_what_is_ours(climbed, text, tmp_path):
    copy = shutil.copytree(climbed[1], tmp_path / "copy")
    (copy / "budgets" / "600-words" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes.txt"):
        compare_ladder(ladder_plan(text), copy, overwrite=True, device="cpu")
    assert (copy / "budgets" / "300-words" / "plan.json").exists(), "nothing was removed"
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="does not hold a ladder"):
        compare_ladder(ladder_plan(text), other, device="cpu")


@pytest.mark.parametrize(
    ("ladder", "message"),
    [
        ({"words": [600, 300, 900]}, "from the smallest to the largest"),
        ({"words": [300, 600, 900], "predict": [800]}, "from the smallest to the largest"),
        ({"words": [300]}, "a ladder has 2 to 20 budgets"),
        ({"words": [300, 600], "predict": [900]}, "three budgets are needed"),
        ({"words": [300, 600], "tokens": [1, 2]}, "in one unit"),
        ({}, "in one unit"),
        ({"words": [0, 600]}, "from the smallest to the largest"),
        ({"steps": [1, 2]}, "ladder.steps"),
        ({"words": [300, 600], "passes": [3, 1]}, "from the fewest to the most, not 3, 1"),
        ({"words": [300, 600], "passes": [0, 1]}, "from the fewest to the most"),
        ({"epochs": [1, 2], "passes": [1, 3]}, "passes go with budgets in words, not in epochs"),
    ],
)
def test_ladders_that_make_no_sense(text, ladder, message):
    with pytest.raises(UsageError) as caught:
        ladder_plan(text, ladder=ladder)
    assert message in str(caught.value) and "budget' is missing" not in str(caught.value)


def test_a_ladder_and_a_budget(text):
    with pytest.raises(UsageError, match=r"give \[budget\] or \[ladder\], not both"):
        ladder_plan(text, budget={"tokens": 3000})
    with pytest.raises(UsageError, match="has several budgets"):
        compare(ladder_plan(text), text.parent / "plain", device="cpu")
    with pytest.raises(UsageError, match="has a single budget"):
        compare_ladder(plan_of(text), text.parent / "single", device="cpu")


def test_more_words_than_there_are_would_be_read_again(text, tmp_path):
    with pytest.raises(DataError, match="would read them again"):
        compare_ladder(ladder_plan(text, ladder={"words": [300, 600, 1e6]}), tmp_path / "out", device="cpu")


def test_runs_with_a_trapezoid_share_their_start(text, tmp_path):
    """One run serves several budgets, with the results of runs of their own; and this is said."""
    settings = [*values(text)["settings"], "train.schedule.name=trapezoid", "train.schedule.warmup=5"]
    plan = ladder_plan(text, settings=settings, rows=[LSTM], seeds=1, ladder={"words": [300, 1200]})
    found = compare_ladder(plan, tmp_path / "out", device="cpu")
    run = tmp_path / "out" / "budgets" / "1200-words" / "runs" / "LSTM" / "seed-0"
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shorter = tmp_path / "out" / "budgets" / "300-words" / "runs" / "LSTM" / "seed-0" / "metrics.jsonl"
    first = json.loads(shorter.read_text().splitlines()[0])
    assert log[0] == first, "the very same line, seconds and all"
    alone = compare(module.at_budget(plan, Rung(1200)), tmp_path / "alone", device="cpu")
    assert found.metrics[0].values["LSTM"][1200] == [float(alone.metrics[0].values["LSTM"].mean())]
    assert any("trapezoid" in line for line in found.caveats) and not (tmp_path / "out" / "shared").exists()


def test_passes_over_a_part_of_the_text(text, tmp_path):
    """Repeated text: the same words once and three times."""
    part = values(text)["text"] | {"words": 600}
    plan = ladder_plan(text, text=part, rows=[LSTM], seeds=1, ladder={"epochs": [1, 3]})
    found = compare_ladder(plan, tmp_path / "out", device="cpu")
    assert [each.costs["LSTM"]["words"] for each in found.comparisons.values()] == pytest.approx([600, 1800], rel=0.1)
    assert any(path.name.endswith(".600-words") for path in (tmp_path / "out" / "data").iterdir())


@pytest.fixture(scope="module")
def both(text):
    """Words and passes."""
    plan = ladder_plan(text, ladder={"words": [300, 600], "passes": [1, 3]})
    return compare_ladder(plan, text.parent / "both", jobs=2, device="cpu"), text.parent / "both"


def reads_each_text_so_often(found, folder):
    assert list(found.comparisons) == [(300, 1), (300, 3), (600, 1), (600, 3)]
    for (words, passes), each in found.comparisons.items():
        (run,) = folder.glob(f"budgets/{words:g}-words-{passes:g}-pass*/runs/GPT/seed-0/metrics.json")
        assert json.loads(run.read_text())["epochs"] == pytest.approx(passes, rel=0.1)
        assert 0.7 * words < each.costs["GPT"]["words"] / passes <= words, "documents are whole"


def test_words_and_passes_are_two_axes(both):
    found, folder = both
    reads_each_text_so_often(found, folder)
    assert [metric.name for metric in found.metrics[:2]] == ["bits per byte, 1 pass", "bits per byte, 3 passes"]
    assert [(metric.measure, metric.passes) for metric in found.metrics[:2]] == [
        ("bits per byte", 1),
        ("bits per byte", 3),
    ]
    assert all(list(metric.values["LSTM"]) == [300, 600] for metric in found.metrics)
    assert any("one number of passes" in line for line in found.caveats)
    assert any(line.startswith("documents are whole") and "300 (2" in line for line in found.caveats)
    page = (folder / "report.html").read_text(encoding="utf-8")
    beside = {f"budgets/{name}/report.html" for name in (path.name for path in (folder / "budgets").iterdir())}
    check_page(page, frozenset(beside | {path.name for path in folder.glob("*.svg")}))
    assert "Against passes" in page and "600 words, 3 passes" in page
    assert len(list(folder.glob("ladder-passes-bits-per-byte-?00.svg"))) == 2


def test_planted_new_words_in_place_of_passes_are_noticed(both, text, tmp_path, monkeypatch):
    """Three times as many words are another thing than the same words three times."""
    right = module.at_budget

    def new_words(plan, rung):
        alone = plan.model_copy(update={"ladder": plan.ladder.model_copy(update={"passes": ()})})
        return right(alone, Rung(rung.budget * rung.passes))

    monkeypatch.setattr(module, "at_budget", new_words)
    plan = ladder_plan(text, rows=[GPT], seeds=1, ladder={"words": [300, 600], "passes": [1, 3]})
    found = compare_ladder(plan, tmp_path / "out", device="cpu")
    with pytest.raises(AssertionError):
        reads_each_text_so_often(found, tmp_path / "out")


def test_passes_leave_the_size_of_the_text_to_the_budgets(text):
    with pytest.raises(UsageError, match=r"leave text.words out"):
        ladder_plan(text, text=values(text)["text"] | {"words": 600}, ladder={"words": [300, 600], "passes": [1, 3]})


# ---- one file


@pytest.fixture(scope="module")
def packed(climbed, text):
    return pack_ladder(climbed[1], text.parent / "climbed.zip", with_text=True)


def changed(path, source, name, change):
    """An archive in which one record was changed, and listed rightly, as somebody who cheats would do."""
    contents = members(source)
    record = json.loads(contents[name])
    change(record)
    if record.pop("whole", None) is not None:
        record["whole"] = digest_of(record)
    return write(path, contents | {name: json.dumps(record).encode()})


def refusal(path):
    with pytest.raises(DataError) as caught, open_ladder_archive(path):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_ladder_is_one_archive(climbed, packed, tmp_path):
    found, folder = climbed
    contents = members(packed)
    budgets = {f"budgets/{budget:g}-words.zip" for budget in found.comparisons}
    (text,) = contents.keys() - budgets - {"manifest.json", "ladder.json", "predictions.json"}
    assert text.startswith("files/") and text.endswith("/text.txt"), "once for all budgets"
    again = pack_ladder(shutil.copytree(folder, tmp_path / "copy"), tmp_path / "again.zip", with_text=True)
    assert again.read_bytes() == packed.read_bytes()
    with open_ladder_archive(packed) as opened:
        assert opened.found.record() == found.record() and opened.notes == []
        assert list(opened.budgets) == ["300-words", "600-words", "1200-words", "2400-words"]


def test_names_that_no_reader_would_take_are_refused_where_it_is_packed(climbed, tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_archive, "data_files", lambda *_: {"files/0/my\\text.txt": climbed[1] / "ladder.json"})
    with pytest.raises(DataError, match="cannot be packed under this name: rename the file"):
        pack_ladder(climbed[1], tmp_path / "packed.zip", with_text=True)
    assert not (tmp_path / "packed.zip").exists()


def test_a_row_of_a_ladder_comes_out_again(packed, capsys):
    call = ["verify", str(packed), "--row", "LSTM", "--seed", "1", "--device", "cpu", "--json"]
    assert run([*call, "--budget", "600-words"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert {"bits per byte", "tokens"} <= {each["name"] for each in scores}
    assert all(each["difference"] == 0 for each in scores)
    assert run(call) == 2 and "give one of them by --budget: 300-words" in capsys.readouterr().err
    assert run([*call, "--budget", "700-words"]) == 2 and "600-words" in capsys.readouterr().err
    missing = [call[0], str(packed.with_name("missing.zip")), *call[2:], "--budget", "600-words"]
    assert run(missing) != 0 and "missing.zip: no such file" in capsys.readouterr().err
    budget = members(packed)["budgets/600-words.zip"]
    (packed.parent / "one.zip").write_bytes(budget)
    assert run([call[0], str(packed.parent / "one.zip"), *call[2:], "--budget", "600-words"]) == 2
    assert "--budget is for the archive of a ladder" in capsys.readouterr().err


def test_a_text_of_so_many_words_is_found_again(both, text, capsys):
    """A budget that reads a part of the text several times; from the text, and from the whole prepared text."""
    packed = pack_ladder(both[1], text.parent / "both.zip")
    (data,) = (path.parent for path in (both[1] / "data").glob("*/manifest.json") if "words" not in path.parent.name)
    call = ["verify", str(packed), "--budget", "300-words-3-passes", "--row", "GPT", "--seed", "0", "--device", "cpu"]
    for given in (["--text", str(text)], ["--data", str(data)]):
        assert run([*call, *given]) == 0, capsys.readouterr().err
        assert "OUTSIDE" not in capsys.readouterr().out
    assert run(call) == 2 and "give its files by --text" in capsys.readouterr().err


def test_a_ladder_is_reported_again(climbed, tmp_path, capsys):
    copy = shutil.copytree(climbed[1], tmp_path / "copy")
    page = (copy / "report.html").read_bytes()
    (copy / "report.html").unlink()
    assert run(["report", str(copy)]) == 0 and (copy / "report.html").read_bytes() == page
    capsys.readouterr()
    assert run(["report", str(copy), "--csv"]) == 0
    assert capsys.readouterr().out.encode() == (copy / "ladder.csv").read_bytes()
    assert run(["report", str(copy), "--latex"]) == 2 and "give the comparison of one budget" in capsys.readouterr().err
    (copy / "ladder.json").unlink()
    assert run(["report", str(copy), "--pack", str(tmp_path / "a.zip")]) == 4
    assert "rerun seqloom compare, which finishes it" in capsys.readouterr().err
    assert not (tmp_path / "a.zip").exists()


def test_a_ladder_that_was_changed_is_refused(climbed, packed, tmp_path):
    def better(record):
        record["metrics"][0]["values"]["GPT"]["300"][0] -= 0.5

    def steeper(record):
        record["metrics"][0]["laws"]["GPT"]["exponent"]["value"] -= 0.5

    for change in (better, steeper):
        assert "ladder.json has metrics" in refusal(changed(tmp_path / "a.zip", packed, "ladder.json", change))
    contents = members(packed)
    path = write(tmp_path / "b.zip", {k: v for k, v in contents.items() if k != "budgets/600-words.zip"})
    assert "budgets/600-words.zip is missing" in refusal(path)
    path = write(tmp_path / "c.zip", contents | {"budgets/700-words.zip": contents["budgets/600-words.zip"]})
    assert "700-words.zip is of a budget that ladder.json does not have" in refusal(path)
    inner = write(
        tmp_path / "inner.zip", members(io.BytesIO(contents["budgets/600-words.zip"])) | {"x": b""}, hashed=False
    )
    path = write(tmp_path / "d.zip", contents | {"budgets/600-words.zip": inner.read_bytes()})
    assert "no part of an archive" in refusal(path)
    path = write(tmp_path / "e.zip", contents | {"budgets/600-words.zip": contents["budgets/300-words.zip"]})
    assert "600-words.zip is a comparison with 300 words" in refusal(path)
    assert "is damaged" in refusal(write(tmp_path / "f.zip", contents | {"ladder.json": b"[]"}))
    with pytest.raises(DataError, match="part of an archive"), open_archive(packed):
        pass


def test_a_budget_under_the_name_of_another_is_refused(packed, both, text, tmp_path):
    """Everything else fits together: the laws are those of an older version."""

    def relabelled(source, archives, old, new):
        contents = members(source)
        for name, other in archives.items():
            contents[f"budgets/{other}.zip"] = contents.pop(f"budgets/{name}.zip")
        record = json.loads(contents["ladder.json"])
        record["budgets"] = [new if each == old else each for each in record["budgets"]]
        for metric in record["metrics"]:
            for row in metric["values"].values():
                row[str(new)] = row.pop(str(old))
        manifest = json.loads(contents["manifest.json"])
        manifest["packed_by"]["seqloom"] = "0.1.0"
        contents |= {"ladder.json": json.dumps(record).encode(), "manifest.json": json.dumps(manifest).encode()}
        return write(tmp_path / "a.zip", contents)

    path = relabelled(packed, {"1200-words": "1300-words"}, 1200, 1300)
    said = "budgets/1300-words.zip is a comparison with 1,200 words, which ladder.json has as 1,300 words"
    assert said in refusal(path)
    names = {f"600-words-{passes}": f"700-words-{passes}" for passes in ("1-pass", "3-passes")}
    path = relabelled(pack_ladder(both[1], tmp_path / "both.zip"), names, 600, 700)
    assert "is a comparison with 1 epochs of 600 words, which ladder.json has as 700 words, 1 pass" in refusal(path)


def test_budgets_may_not_unpack_to_more_than_one_archive(packed, tmp_path, monkeypatch):
    """Planted: files of zeros, of which every budget alone has few enough."""
    monkeypatch.setattr(unpack, "FREE_GROWTH", 16 << 20)
    monkeypatch.setattr(unpack, "MOST_GROWTH", 1)
    contents = members(packed)
    for name in [name for name in contents if name.startswith("budgets/")]:
        inner = members(io.BytesIO(contents[name])) | {f"files/{'0' * 64}/zeros": bytes(8 << 20)}
        contents[name] = write(tmp_path / "inner.zip", inner).read_bytes()
        with open_archive(tmp_path / "inner.zip"):
            pass
    assert "would unpack to" in refusal(write(tmp_path / "a.zip", contents))


def test_predictions_that_do_not_follow_are_said(packed, tmp_path):
    """Planted: a prediction that was made to fit, in an archive in which everything is listed rightly."""

    def fitted(record):
        record["predictions"][0]["value"] -= 0.25

    forged = changed(tmp_path / "a.zip", packed, "predictions.json", fitted)
    contents = members(forged)
    record = json.loads(contents["ladder.json"])
    record["predictions"][0]["value"] -= 0.25
    with open_ladder_archive(
        write(tmp_path / "b.zip", contents | {"ladder.json": json.dumps(record).encode()})
    ) as opened:
        assert "is not what this version computes from the smaller budgets" in opened.notes[0]


def test_mutated_ladder_archives_are_never_an_internal_error(packed, tmp_path, capsys):
    contents, codes = members(packed), []
    records = [name for name in contents if name.endswith(".json")]
    for i in range(60):
        rng = random.Random(f"ladder {i}")
        name = rng.choice(records)
        try:
            mutated = contents | {name: mutated_json(contents[name], rng)}
            with open_ladder_archive(write(tmp_path / "a.zip", mutated, hashed=name != "manifest.json")):
                codes.append(0)
        except SeqloomError as error:
            codes.append(error.exit_code if "\n" not in str(error) else -1)
    assert set(codes) <= {0, 3, 4} and codes.count(0) < len(codes) / 2
    assert not capsys.readouterr().err
