"""Archives: written with the same bytes, believed only after checks, and a row of them trained again."""

import hashlib
import io
import json
import math
import random
import shutil
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from seqloom.batches.prepare import prepare
from seqloom.cli import run
from seqloom.comparison import unpack
from seqloom.comparison.archive import RUN_RECORDS, check_pack, pack
from seqloom.comparison.environment import Environment
from seqloom.comparison.records import JobResult, parse
from seqloom.comparison.run import compare
from seqloom.comparison.unpack import open_archive
from seqloom.comparison.verify import allowed_share, choose_tolerance, draws_on_device, score_of
from seqloom.errors import DataError, SeqloomError, UsageError
from seqloom.files import digest_of
from seqloom.metrics.intervals import VarianceComponent
from seqloom.recipes.library import find_recipe
from tests.comparison.archives import members, write
from tests.comparison.plans import BERT, GPT, LSTM, plan_of, write_text
from tests.mutation import damaged, mutated_json

NEXT = BERT | {"name": "next sentence", "settings": BERT["settings"][:-2]}
QUESTION = [{"name": "Which?", "rows": ["LSTM", "GPT"]}]
SEARCH = {"settings": {"train.optim.lr": [1e-3, 3e-2, "log"]}, "trials": 2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    text = write_text(tmp_path_factory.mktemp("archive") / "text.txt")
    plan = plan_of(text, rows=[LSTM, GPT], questions=QUESTION, search=SEARCH)
    compare(plan, text.parent / "out", jobs=2, device="cpu")
    return text.parent / "out"


@pytest.fixture(scope="module")
def packed(finished):
    return pack(finished, finished.parent / "packed.zip", with_text=True)


@pytest.fixture(scope="module")
def bare(finished):
    return pack(finished, finished.parent / "bare.zip")


def edited(contents: dict[str, bytes], name: str, change) -> dict[str, bytes]:
    """One record changed; a result or trial is hashed again."""
    record = json.loads(contents[name])
    change(record)
    if record.pop("whole", None) is not None:
        record["whole"] = digest_of(record)
    return contents | {name: json.dumps(record).encode()}


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught, open_archive(path):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- packing


def test_packing_twice_gives_the_same_bytes_and_no_path_of_the_machine(finished, packed, tmp_path):
    moved = shutil.copytree(finished, tmp_path / "elsewhere")
    again = pack(moved, tmp_path / "again.zip", with_text=True)
    assert again.read_bytes() == packed.read_bytes()
    for name, data in members(packed).items():
        assert str(finished.parent).encode() not in data and b"/tmp" not in data, name


def test_what_is_in_an_archive(finished, packed, bare):
    contents = members(bare)
    names = {"plan.json", "comparison.json", "manifest.json", "sets/pairs.npy", "data/bpe-300/manifest.json"}
    names |= {f"search/{row}/trial-{i}.json" for row in ("LSTM", "GPT") for i in range(2)}
    for row in ("LSTM", "GPT"):
        for seed in range(2):
            names |= {f"results/{row}/seed-{seed}.{ending}" for ending in ("json", "npz")}
            names |= {f"runs/{row}/seed-{seed}/{name}" for name in RUN_RECORDS}
    assert contents.keys() == names
    (text,) = members(packed).keys() - names
    assert text.startswith("files/") and text.endswith("/text.txt")
    (made,) = json.loads(contents["manifest.json"])["environments"]
    assert made.keys() >= {"device", "name", "precision", "threads", "platform", "seqloom", "git", "torch", "python"}


def test_an_archive_gives_the_table_again(finished, bare):
    with open_archive(bare) as opened:
        stored = json.loads((finished / "comparison.json").read_text())
        assert opened.found.record()["metrics"] == stored["metrics"] and opened.notes == []
        assert [question.name for question in opened.plan.questions] == ["Which?"]


def test_calls_that_cannot_work(finished, bare, tmp_path, capsys):
    for arguments in (
        ["report", str(finished), "--pack", str(bare)],
        ["report", str(finished), "--pack", str(tmp_path / "a.tar")],
        ["report", str(finished), "--with-text"],
        ["report", str(finished), "--csv", "--pack", str(tmp_path / "a.zip")],
        ["verify", str(bare), "--row", "LSTM"],
        ["verify", str(bare), "--text", "x"],
        ["verify", str(bare), "--budget", ""],
        ["verify", str(bare), "--row", "LSTN", "--seed", "0"],
        ["verify", str(bare), "--row", "LSTM", "--seed", "7"],
        ["verify", str(bare), "--row", "LSTM", "--seed", "0"],
    ):
        assert run(arguments) == 2, arguments
        assert capsys.readouterr().err.splitlines()[-1].startswith("seqloom: error: ")
    assert run(["report", str(tmp_path), "--pack", str(tmp_path / "a.zip")]) == 4
    assert run(["verify", str(tmp_path / "none.zip")]) == 5


# ---- what is refused


def higher(record):
    record["held_out"]["bits_per_byte"] += 0.01


def better_table(record):
    for kind in ("metrics", "figures"):
        record[kind][0]["rows"]["LSTM"]["values"][0] -= 0.5


def other_rate(record):
    record["recipe"]["train"]["optim"]["lr"] *= 2


CHEATS = {
    "results/LSTM/seed-0.json": (higher, "but its items give"),
    "comparison.json": (better_table, "the table does not follow from the results"),
    "plan.json": (lambda record: record["questions"].clear(), "the table does not follow from the results"),
    "runs/LSTM/seed-0/config.json": (other_rate, "does not follow plan.json"),
    "runs/LSTM/seed-0/metrics.json": (lambda record: record.update(flops=1), "other metrics than its run"),
    "data/bpe-300/manifest.json": (lambda record: record.update(fingerprint="0" * 64), "is of another text"),
    "search/GPT/trial-1.json": (other_rate, "another recipe"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_record_that_was_changed_and_hashed_again_is_refused(name, bare, tmp_path):
    change, words = CHEATS[name]
    assert words in refusal(write(tmp_path / "a.zip", edited(members(bare), name, change)))


def test_a_result_and_its_items_changed_alike_are_refused(bare, tmp_path):
    """Planted: whoever changes items and hashes everything anew is still found out by the table."""
    contents = members(bare)
    with np.load(io.BytesIO(contents["results/LSTM/seed-0.npz"])) as arrays:
        items = {name: values * 0.9 if name == "documents.bits" else values for name, values in arrays.items()}
    opened = io.BytesIO()
    np.savez(opened, **items)
    contents["results/LSTM/seed-0.npz"] = opened.getvalue()

    def change(record):
        record["held_out"]["bits_per_byte"] *= 0.9
        record["items"] = hashlib.sha256(opened.getvalue()).hexdigest()

    changed = edited(contents, "results/LSTM/seed-0.json", change)
    assert "the table does not follow from the results" in refusal(write(tmp_path / "a.zip", changed))


def test_another_version_may_compute_other_intervals_but_no_other_values(bare, tmp_path):
    contents = edited(members(bare), "manifest.json", lambda record: record.update(packed_by={"seqloom": "0.2.1"}))

    def wider(record):
        for kind in ("metrics", "figures"):
            record[kind][0]["rows"]["LSTM"]["high"] += 1

    with open_archive(write(tmp_path / "a.zip", edited(contents, "comparison.json", wider))) as opened:
        assert "0.2.1" in opened.notes[0]
    changed = edited(contents, "comparison.json", better_table)
    assert "does not follow" in refusal(write(tmp_path / "b.zip", changed))
    changed = edited(members(bare), "comparison.json", wider)
    assert "does not follow" in refusal(write(tmp_path / "c.zip", changed))


@pytest.mark.parametrize(
    "name", ["../outside.json", "/etc/passwd", "results/../../x/seed-0.json", "runs/LSTM/seed-0/model.py", "a/", "x"]
)
def test_strange_names_are_not_unpacked(name, bare, tmp_path):
    assert "no part of an archive" in refusal(write(tmp_path / "a.zip", members(bare) | {name: b"{}"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip"]


@pytest.mark.parametrize("place", ["../LSTM", "/etc", "..", "other"])
def test_a_plan_cannot_point_elsewhere(place, bare, tmp_path):
    def change(record):
        record["rows"][0]["place"] = place

    path = write(tmp_path / "a.zip", edited(members(bare), "plan.json", change))
    assert "name of a file" in refusal(path)


def test_members_that_are_missing_unlisted_twice_or_changed(bare, tmp_path):
    contents = members(bare)
    less = {name: data for name, data in contents.items() if name != "results/GPT/seed-1.npz"}
    assert "results/GPT/seed-1.npz is missing" in refusal(write(tmp_path / "a.zip", less, hashed=False))
    more = contents | {"results/GPT/seed-9.json": b"{}"}
    assert "seed-9.json is not listed" in refusal(write(tmp_path / "b.zip", more, hashed=False))
    changed = contents | {"plan.json": contents["plan.json"] + b" "}
    assert "plan.json was changed" in refusal(write(tmp_path / "c.zip", changed, hashed=False))
    with (
        pytest.warns(UserWarning, match="Duplicate"),
        zipfile.ZipFile(write(tmp_path / "d.zip", contents), "a") as twice,
    ):
        twice.writestr("plan.json", contents["plan.json"])
    assert "two files called 'plan.json'" in refusal(tmp_path / "d.zip")
    without = {name: data for name, data in contents.items() if name != "manifest.json"}
    assert "has no manifest.json" in refusal(write(tmp_path / "e.zip", without, hashed=False))
    newer = edited(contents, "manifest.json", lambda record: record.update(format=9, needs="0.9.0"))
    assert "seqloom 0.9.0 or later is needed" in refusal(write(tmp_path / "f.zip", newer))


def test_what_would_fill_the_disk_is_not_unpacked(bare, tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "FREE_GROWTH", 1 << 20)
    bomb = members(bare) | {"files/" + "0" * 64 + "/text.txt": bytes(30 << 20)}
    assert "would unpack to" in refusal(write(tmp_path / "a.zip", bomb))


def test_arrays_are_plain_numbers_of_their_size(bare, tmp_path):
    name = "results/GPT/seed-0.npz"
    for i, array in enumerate((np.array([{}]), np.array(["a"]))):
        opened = io.BytesIO()
        np.savez(opened, pairs=array, allow_pickle=True)
        assert "plain numbers" in refusal(write(tmp_path / f"{i}.zip", members(bare) | {name: opened.getvalue()}))
    opened = io.BytesIO()
    np.savez_compressed(opened, pairs=np.zeros(100))
    assert "is compressed" in refusal(write(tmp_path / "a.zip", members(bare) | {name: opened.getvalue()}))


def mutate(count: int, bare: Path, path: Path) -> list[int]:
    """The exit codes of so many damaged archives."""
    contents, data, found = members(bare), bare.read_bytes(), []
    records = [name for name in contents if name.endswith(".json")]
    for i in range(count):
        rng = random.Random(f"archive {i}")
        if i % 3 == 0:
            path.write_bytes(damaged(data, rng))
        else:  # hashed again, so that what is within is read
            name = rng.choice(records) if i % 3 == 1 else rng.choice(list(contents))
            changed = mutated_json(contents[name], rng) if name in records else damaged(contents[name], rng)
            write(path, contents | {name: changed}, hashed=name != "manifest.json")
        try:
            with open_archive(path):
                found.append(0)
        except SeqloomError as error:
            found.append(error.exit_code if "\n" not in str(error) else -1)
    return found


@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.long)])
def test_mutated_archives_are_never_an_internal_error(count, bare, tmp_path, capsys):
    codes = mutate(count, bare, tmp_path / "a.zip")
    assert set(codes) <= {0, 3, 4} and codes.count(0) < count / 4
    assert not capsys.readouterr().err


def test_the_mutations_find_errors_that_are_not_explained(bare, tmp_path, monkeypatch):
    """Planted: nobody turns what goes wrong in reading into a line."""
    monkeypatch.setattr(unpack, "BROKEN", ())
    with pytest.raises((ValueError, LookupError, TypeError, OSError, zipfile.BadZipFile, zlib.error)):
        mutate(60, bare, tmp_path / "a.zip")


# ---- verify


def test_a_row_comes_out_again(packed, capsys):
    assert run(["verify", str(packed), "--row", "LSTM", "--seed", "1", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inside"] and not found["environment"]["changed"] and not found["unchecked"]
    scores = {each["name"]: each for each in found["scores"]}
    common = "bits per byte at 16 tokens of context"  # of GPT, which is not trained again
    assert scores.keys() == {"parameters", "tokens", "flops", "bits per byte", common, "pairs"}
    assert all(each["difference"] == 0 for each in scores.values())


def test_the_text_is_given_or_refused(finished, bare, tmp_path, capsys):
    call = ["verify", str(bare), "--row", "GPT", "--seed", "0", "--device", "cpu"]
    assert run([*call, "--data", str(finished / "data/bpe-300")]) == 0
    out = capsys.readouterr().out
    assert "not checked: pairs" not in out or "give --text" in out
    other = write_text(tmp_path / "text.txt", documents=61)
    assert run([*call, "--text", str(other)]) == 3
    assert "no file has the content of text.txt" in capsys.readouterr().err
    assert run([*call, "--text", str(finished.parent / "text.txt")]) == 0
    out = capsys.readouterr().out
    assert "pairs" in out and "not checked" not in out and "OUTSIDE" not in out


def test_results_of_another_recipe_are_outside(finished, tmp_path, capsys):
    """Planted: results of a row with another seed's weights, in an archive in which everything fits together."""
    forged = shutil.copytree(finished, tmp_path / "out")
    for ending in ("json", "npz"):
        shutil.copyfile(finished / f"results/LSTM/seed-1.{ending}", forged / f"results/LSTM/seed-0.{ending}")
    for name in ("metrics.json", "metrics.jsonl"):
        shutil.copyfile(finished / "runs/LSTM/seed-1" / name, forged / "runs/LSTM/seed-0" / name)
    path = pack(forged, tmp_path / "forged.zip", with_text=True)
    assert run(["verify", str(path)]) == 0, "by itself it looks right"
    assert "bits per byte" in capsys.readouterr().out
    assert run(["verify", str(path), "--row", "LSTM", "--seed", "0", "--device", "cpu"]) == 1
    out, err = capsys.readouterr()
    assert "OUTSIDE" in out and err.splitlines()[-1].endswith("this archive was not reproduced here")


def test_suites_tasks_and_prepared_text(tmp_path, capsys):
    """Files are found by their content: in the archive, or below a folder that is given; what is not found is said."""
    prepare([write_text(tmp_path / "text.txt")], tmp_path / "prepared", vocab_size=300, valid=0.1, test=0.1)
    (tmp_path / "tests").mkdir()
    rows = [{"text": f"The {word} cat.", "label": label} for word, label in (("old", "a"), ("green", "b"))] * 8
    for name in ("train.jsonl", "test.jsonl"):
        lines = [json.dumps(row | {"text": f"{name} {i} {row['text']}"}) for i, row in enumerate(rows)]
        (tmp_path / "tests" / name).write_text("\n".join(lines) + "\n")
    pair = {"sentence_good": "The cat is old.", "sentence_bad": "The cat are old.", "UID": "agreement"}
    (tmp_path / "tests" / "blimp.jsonl").write_text(
        "".join(json.dumps(pair | {"UID": f"set {i % 4}"}) + "\n" for i in range(12))
    )
    task = {
        "task": "classify",
        "train": [str(tmp_path / "tests/train.jsonl")],
        "test": [str(tmp_path / "tests/test.jsonl")],
    }
    given = {
        "rows": [BERT, NEXT], "seeds": 1, "pairs": 5, "text": {"prepared": str(tmp_path / "prepared")},
        "suites": {"blimp": str(tmp_path / "tests/blimp.jsonl")}, "tasks": [task],
    }  # fmt: skip
    compare(plan_of(tmp_path / "text.txt", **given), tmp_path / "out", device="cpu")
    bare, whole = (pack(tmp_path / "out", tmp_path / f"{name}.zip", name == "whole") for name in ("bare", "whole"))
    assert not any(str(tmp_path).encode() in data for data in members(whole).values())
    call = ["--row", "BERT", "--seed", "0", "--device", "cpu", "--json"]
    forms = {
        "masked perplexity",
        "masked perplexity, pairs for the next sentence",
    }  # the second is that of the other row
    names = {"parameters", "tokens", "flops", *forms, "blimp", "pairs", "classify"}
    prepared = ["--data", str(tmp_path / "prepared")]
    for arguments, left_out in (
        ([str(whole)], set()),
        ([str(bare), *prepared], {"blimp", "classify"}),
        ([str(bare), *prepared, "--files", str(tmp_path / "tests")], set()),
    ):
        assert run(["verify", *arguments, *call]) == 0, capsys.readouterr().err
        found = json.loads(capsys.readouterr().out)
        assert found["unchecked"].keys() == left_out and {each["name"] for each in found["scores"]} == names - left_out
        assert all(each["difference"] == 0 for each in found["scores"])
    assert run(["verify", str(bare), *call]) == 2 and "give it by --data" in capsys.readouterr().err


# ---- tolerances


def test_the_tolerance_follows_from_what_is_different(bare):
    with open_archive(bare) as opened:
        plan, row = opened.plan, opened.plan.rows[0]
        result = parse(JobResult, json.loads((opened.folder / "results/LSTM/seed-0.json").read_text()))
    made = result.environment
    assert made is not None
    assert choose_tolerance(plan, row, result, made) == "equal"
    assert choose_tolerance(plan, row, result, made.model_copy(update={"threads": 64})) == "rounding"
    cuda = Environment.model_validate(made.model_dump() | {"device": "cuda", "name": "a GPU"})
    assert choose_tolerance(plan, row, result, cuda) == "rounding", "an LSTM without dropout draws nothing there"
    recipe = row.recipe.model_copy(update={"model": row.recipe.model | {"dropout": 0.1}})
    assert choose_tolerance(plan, row.model_copy(update={"recipe": recipe}), result, cuda) == "redrawn"
    assert choose_tolerance(plan.model_copy(update={"budget": {"minutes": 1.0}}), row, result, made) == "redrawn"
    unknown = result.model_copy(update={"environment": None})
    assert choose_tolerance(plan, row, unknown, made) == "rounding"


def test_bert_draws_on_the_device_by_default(finished, packed):
    plan = plan_of(finished.parent / "text.txt", rows=[BERT])
    with open_archive(packed) as opened:
        row = opened.plan.rows[0]
    recipe = find_recipe("bert-tiny", list(plan.rows[0].settings))
    given = recipe.model_copy(update={"model": {key: value for key, value in recipe.model.items() if key != "dropout"}})
    assert draws_on_device(row.model_copy(update={"recipe": given}))


def test_tolerances_widen_with_what_is_different():
    few, many, wide = VarianceComponent(0.01**2, 1), VarianceComponent(0.01**2, 30), VarianceComponent(0.08**2, 30)

    def tolerances(kind):
        return [score_of("bits", 2.0, 2.0, kind, spread, 0.01).tolerance for spread in (None, few, many, wide)]

    assert tolerances("equal") == pytest.approx([2e-6] * 4)
    assert tolerances("rounding") == pytest.approx([0.01, 0.01, 0.01, 0.02]), "or a quarter of the deviation"
    assert tolerances("redrawn") == pytest.approx([0.1, 0.1, 2.75 * 0.01 * 2**0.5, 0.1], rel=1e-3), "at most 5%"
    assert not score_of("bits", 2.0, None, "redrawn", many, 0.01).inside, "a score that is missing now"


def test_items_that_turn_in_either_direction_are_rounding() -> None:
    """Planted: of the same number of turned items all turn one way, or more turn than rounding explains."""
    before = np.array([0.0, 1.0] * 200)
    both, one_way, half = before.copy(), before.copy(), 1 - before
    both[:40] = 1 - both[:40]
    one_way[:80:2] = 1 - one_way[:80:2]
    half[::4] = before[::4]

    def inside(now: np.ndarray) -> bool:
        return abs(now.mean() - before.mean()) <= allowed_share(before, now)

    assert inside(both) and not inside(one_way)
    assert allowed_share(before, before) == allowed_share(before, None) == pytest.approx(2.576 * math.sqrt(8) / 400)
    assert allowed_share(before, half) == pytest.approx(2.576 * math.sqrt(60) / 400), "no more than 15% of the items"


def test_an_unfinished_folder_is_not_packed(tmp_path):
    with pytest.raises(SeqloomError):
        pack(tmp_path, tmp_path / "a.zip")
    with pytest.raises(UsageError, match="--with-text needs --pack"):
        check_pack(None, True)
