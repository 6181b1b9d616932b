"""Number agreement: accuracies that are known beforehand, tables as they are published, every kind of model by its definition."""

import csv
import gzip
from pathlib import Path

import pytest

from seqloom.errors import DataError, UsageError
from seqloom.evaluate.suites import agreement as module
from seqloom.evaluate.suites.agreement import COLORLESS, LINZEN, Weighed, read_agreement, score_agreement
from tests.encoders import guesses, run_of, tokenizer_of

PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "agreement"
WORD, WORDPIECE, BPE = tokenizer_of("word"), tokenizer_of("wordpiece"), tokenizer_of("bpe")

# pattern, constr_id, sent_id, form, class, type, n_attr, len_prefix, sent
ROWS = [
    ("N V", "0", "0", "sees", "correct", "original", "0", "2", 'The cat sees " no " dog . <eos>'),
    ("N V", "0", "0", "see", "wrong", "original", "0", "2", 'The cat sees " no " dog . <eos>'),
    ("N V", "0", "1", "find", "wrong", "generated", "1", "2", "A bird leaves the sea . <eos>"),
    ("N V", "0", "1", "finds", "correct", "generated", "1", "2", "A bird leaves the sea . <eos>"),
    ("V N", "0", "0", "is", "correct", "generated", "1", "0", "leaves it so . <eos>"),
    ("V N", "0", "0", "are", "wrong", "generated", "1", "0", "leaves it so . <eos>"),
]
LINES = [
    "\t".join(LINZEN),
    "2\tsees\tsee\t0\tthe cat sees the dog . <eos>",
    "3\tAre\tIs\t2\tthe cats we are . <eos>",
    "4\tare\tis\t2\tthe dogs near it are here . <eos>",
]


def write_colorless(path, rows=ROWS):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([COLORLESS, *rows])
    return path


def write_linzen(path, lines=LINES):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def test_what_is_read(tmp_path):
    found, skipped = read_agreement(write_colorless(tmp_path / "colorless.tsv"))
    assert [(f.before, f.right, f.wrong, f.after) for f in found] == [
        ("The cat", "sees", "see", '" no " dog .'),
        ("A bird", "finds", "find", "the sea ."),
        ("", "is", "are", "it so ."),
    ]
    assert [(f.construction, f.type, f.attractors, f.group) for f in found] == [
        ("N V", "original", 0, "colorless"),
        ("N V", "generated", 1, "colorless"),
        ("V N", "generated", 1, "colorless"),
    ]
    assert [f.place for f in found] == [f"{tmp_path / 'colorless.tsv'}:{i}" for i in (2, 4, 6)] and skipped == []
    path = write_linzen(tmp_path / "linzen.tsv.gz")
    found, skipped = read_agreement(path)
    assert [(f.before, f.right, f.wrong, f.after, f.attractors, f.construction) for f in found] == [
        ("the cat", "sees", "see", "the dog .", 0, None),
        ("the dogs near it", "are", "is", "here .", 2, None),
    ]
    assert skipped == [f"{path}:3"]
    (tmp_path / "README.md").write_text("no data")
    both, skipped = read_agreement(tmp_path)
    assert [f.group for f in both] == ["colorless"] * 3 + ["linzen"] * 2 and len(skipped) == 1


SCORES = {"sees": 2.0, "see": 1.0, "finds": 1.0, "find": 1.0, "is": 0.0, "are": 3.0}


def weigh(befores, words, afters, names):
    return [Weighed(SCORES[word], word in ("finds", "find")) for word in words]


def check(folder):
    write_colorless(folder / "colorless.tsv")
    write_linzen(folder / "linzen.tsv.gz")
    found = score_agreement(*read_agreement(folder), weigh)
    assert found["items"] == [1.0, 0.5, 0.0, 1.0, 1.0]
    assert (found["accuracy"], found["pairs"], found["ties"], found["unknown"]) == (0.7, 5, 1, 1)
    assert found["skipped"] == 1 and found["skipped_because"].endswith("linzen.tsv.gz:3")
    assert found["by_construction"] == {"N V": 0.75, "V N": 0.0}
    assert found["by_type"] == {"generated": 0.25, "original": 1.0}
    assert found["by_attractors"] == {"0": 1.0, "1": 0.25, "2": 1.0}
    assert found["by_set"] == {"colorless": 0.5, "linzen": 1.0}


def test_known_accuracies(tmp_path):
    check(tmp_path)


def test_nothing_is_said_of_what_a_table_has_not(tmp_path):
    found = score_agreement(*read_agreement(write_linzen(tmp_path / "a.tsv.gz", LINES[:2])), weigh)
    assert not {"by_construction", "by_type", "skipped_because"} & set(found) and found["skipped"] == 0


# ---- every kind of model


def scored_by_hand(run, before, word, after):
    """What the definition of each kind says, from scores of whole texts or one hidden place at a time."""
    tokenizer, kind = run.tokenizer, run.evaluator.definition(None, run.backward)
    first, rest = (f"{before} " if before else ""), (f" {after}" if after else "")
    if kind == "causal":
        whole, context = run.score([first + word, before])
        return sum(whole.log_probs) - sum(context.log_probs)
    if kind == "replaced":
        return sum(run.score([first + word + rest])[0].log_probs)
    begin, stop = len(tokenizer.encode(before)), len(tokenizer.encode(first + word))
    ids = tokenizer.encode(first + word + rest)
    total = 0.0
    for i in range(begin, stop):
        hidden = [t if not i <= j < stop else tokenizer.mask_id for j, t in enumerate(ids)]
        total += float(guesses(run, [tokenizer.first_id, *hidden, tokenizer.separator_id])[i + 1, ids[i]])
    return total


KINDS = [
    ("lstm", "next-token", BPE), ("gpt2", "next-token", WORD), ("ngram", "counts", WORD), ("bert", "masked", WORDPIECE),
    ("roberta", "masked", BPE), ("electra", "replaced-token", WORDPIECE),
]  # fmt: skip
PLACES = [
    ("the cat", "remembers", "the dog ."), ("", "walking", "near the sea"), ("a small river", "answers", ""),
    ("no", "child", "."),
]  # fmt: skip


def check_words(run):
    found = run.weigh_words(*zip(*PLACES, strict=True), batch_tokens=30)
    for place, each in zip(PLACES, found, strict=True):
        assert each.log_prob == pytest.approx(scored_by_hand(run, *place), abs=1e-6), place


@pytest.mark.parametrize(("model", "objective", "tokenizer"), KINDS)
def test_words_by_the_definition(model, objective, tokenizer):
    check_words(run_of(model, objective, tokenizer))


@pytest.mark.parametrize(("model", "objective", "tokenizer"), KINDS)
def test_a_run_and_its_definition(model, objective, tokenizer, tmp_path):
    run = run_of(model, objective, tokenizer)
    path = write_linzen(tmp_path / "a.tsv.gz")
    found = run.evaluate_suite("agreement", path, items=True)
    scores = [scored_by_hand(run, b, w, a) for b, w, a in (
        ("the cat", "sees", "the dog ."), ("the cat", "see", "the dog ."),
        ("the dogs near it", "are", "here ."), ("the dogs near it", "is", "here ."),
    )]  # fmt: skip
    expected = [0.5 if a == pytest.approx(b, rel=1e-7) else float(a > b) for a, b in (scores[:2], scores[2:])]
    assert found["items"] == expected and found["accuracy"] == sum(expected) / 2 and found["suite"] == "agreement"
    after = "before and after it" in found["definition"] or "whole sentence" in found["definition"]
    assert after == (not run.learner.backbone.causal)
    assert "items" not in run.evaluate_suite("agreement", path)


def test_plain_pieces():
    run = run_of("bert", "masked", WORDPIECE)
    within, plain = (run.weigh_words(*zip(*PLACES, strict=True), pll=pll) for pll in (None, "plain"))
    assert within[0].log_prob != pytest.approx(plain[0].log_prob, abs=1e-3)  # "remembers" has several
    with pytest.raises(UsageError, match="is for masked models"):
        run_of("lstm", "next-token", WORD).evaluate_suite("agreement", ".", "plain")


def test_from_the_end_the_whole_sentence_is_read(tmp_path):
    run = run_of("lstm", "next-token", WORD)
    run.backward = True
    (found,) = run.weigh_words(["the cat"], ["sees"], ["the dog ."])
    assert found.log_prob == pytest.approx(sum(run.score(["the cat sees the dog ."])[0].log_probs), abs=1e-12)
    told = run.evaluate_suite("agreement", write_linzen(tmp_path / "a.tsv.gz"))["definition"]
    assert "after it) over the whole sentence" in told and "the text after it" in run.definition()


@pytest.mark.parametrize(
    ("model", "objective"), [("gpt2", "next-token"), ("bert", "masked"), ("electra", "replaced-token")]
)
def test_two_unknown_forms_are_a_tie(model, objective, tmp_path):
    run = run_of(model, objective, WORD)
    lines = [LINES[0], "1\txyz\txyzs\t0\tthe xyz sees . <eos>", "1\tcat\txyz\t0\tthe cat sees . <eos>"]
    found = run.evaluate_suite("agreement", write_linzen(tmp_path / "a.tsv.gz", lines), items=True)
    assert found["items"][0] == 0.5 and found["unknown"] == 2


# ---- bugs that must be noticed


def test_the_wrong_form_first(tmp_path, monkeypatch):
    right = module.won
    monkeypatch.setattr(module, "won", lambda a, b: right(b, a))
    with pytest.raises(AssertionError):
        check(tmp_path)


def test_rows_that_do_not_fit_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_linzen", lambda path, header, rows, skipped: iter(()))
    with pytest.raises(AssertionError):
        check(tmp_path)


def test_a_sentence_that_is_not_read_to_its_end(monkeypatch):
    from seqloom.runs.scoring import TextScorer

    right = TextScorer.weigh_words
    monkeypatch.setattr(
        TextScorer, "weigh_words", lambda run, b, w, a, *rest, **more: right(run, b, w, [""] * len(a), *rest, **more)
    )
    with pytest.raises(AssertionError):
        check_words(run_of("bert", "masked", WORDPIECE))


# ---- what is refused


def changed(row, **values):
    return tuple({**dict(zip(COLORLESS, row, strict=True)), **values}.values())


@pytest.mark.parametrize(
    ("rows", "line", "words"),
    [
        ([*ROWS[:2], changed(ROWS[2], **{"class": "right"})], 4, "\"class\" is 'right'"),
        ([*ROWS[:3]], 4, "of this one there is one"),
        ([*ROWS, ROWS[0]], 8, "stands in"),
        ([changed(ROWS[0], len_prefix="-1"), ROWS[1]], 2, "\"len_prefix\" is '-1': it is a whole number"),
        ([changed(ROWS[0], n_attr="many"), ROWS[1]], 2, '"n_attr"'),
        ([changed(ROWS[0], len_prefix="8"), ROWS[1]], 2, "the sentence 8 words"),
        ([changed(ROWS[0], form="to see"), ROWS[1]], 2, "'to see' is no form"),
        ([ROWS[0], ROWS[1][:-1]], 3, "8 columns, the first line names 9"),
    ],
)
def test_bad_rows_are_named(tmp_path, rows, line, words):
    with pytest.raises(DataError) as failure:
        read_agreement(write_colorless(tmp_path / "a.tsv", rows))
    assert f"{tmp_path / 'a.tsv'}:{line}: " in str(failure.value) and words in str(failure.value)


def test_no_table(tmp_path):
    (tmp_path / "a.tsv").write_text("index\tsentence\n1\tthe cat\n")
    with pytest.raises(DataError, match=r"a\.tsv:1: no table of agreement"):
        read_agreement(tmp_path)
    (tmp_path / "a.tsv").write_text("")
    with pytest.raises(DataError, match=r"a\.tsv:1: no table of agreement"):
        read_agreement(tmp_path)
    (tmp_path / "a.tsv").write_text("\t".join(LINZEN) + "\n")
    with pytest.raises(DataError, match="no pair of forms"):
        read_agreement(tmp_path)
    (tmp_path / "a.tsv").write_text("\t".join(LINZEN) + '\n"2\tsees\n')
    with pytest.raises(DataError, match=r"a\.tsv:2: no row of a table"):
        read_agreement(tmp_path)
    (tmp_path / "a.tsv").unlink()
    with pytest.raises(DataError, match=r"no \.tsv file"):
        read_agreement(tmp_path)


@pytest.mark.long
def test_the_published_tables():
    sizes = {}
    for name in ("colorless_english.tsv", "colorless_italian.tsv", "linzen_english.tsv.gz"):
        items, skipped = read_agreement(PUBLISHED / name)
        sizes[name] = len(items), len(skipped), len({each.construction for each in items})
    assert sizes == {
        "colorless_english.tsv": (410, 0, 2),
        "colorless_italian.tsv": (1190, 0, 8),
        "linzen_english.tsv.gz": (7485, 4, 1),
    }
    found = run_of("lstm", "next-token", BPE).evaluate_suite("agreement", PUBLISHED, items=True)
    assert len(found["items"]) == found["pairs"] == 9085 and 0.3 < found["accuracy"] < 0.7
