"""LAMBADA: targets as they are published, figures that are known beforehand, and who has none."""

import gzip
import json
import math
from pathlib import Path

import pytest

from seqloom.errors import DataError, UsageError
from seqloom.evaluate.continuations import ContinuationScore
from seqloom.evaluate.suites.lambada import read_lambada, score_lambada
from tests.encoders import run_of, tokenizer_of

PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "lambada"
WORD, BPE, BYTE = tokenizer_of("word"), tokenizer_of("bpe"), tokenizer_of("byte")


def write(path, texts):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{json.dumps({'text': text}) if '.jsonl' in path.name else text}\n" for text in texts)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.jsonl.gz", "plain"])
def test_targets(name, tmp_path):
    path = write(tmp_path / name, ["the cat sees the dog", "i do n't care about signs ", "no  child"])
    assert [(p.context, p.target) for p in read_lambada(path)] == [
        ("the cat sees the", " dog"),
        ("i do n't care about", " signs"),
        ("no", "  child"),
    ]
    assert [p.place for p in read_lambada(path)] == [f"{path}:{i}" for i in (1, 2, 3)]


def test_a_target_behind_a_line_end(tmp_path):
    (found,) = read_lambada(write(tmp_path / "a.jsonl", ['"No," she said.\n\n"Yes']))
    assert (found.context, found.target) == ('"No," she said.', '\n\n"Yes')


def test_known_figures(tmp_path):
    passages = read_lambada(write(tmp_path / "a.txt", ["a b", "a c", "a d"]))
    answers = {" b": (-1.0, True, False), " c": (-2.0, False, False), " d": (-6.0, True, False)}
    found = score_lambada(passages, lambda contexts, more: [ContinuationScore(*answers[word]) for word in more])
    assert found == {
        "accuracy": 2 / 3,
        "passages": 3,
        "unknown": 0,
        "perplexity": math.exp(3),
        "items": [1.0, 0.0, 1.0],
    }
    answers[" d"] = (-6.0, True, True)  # the likeliest is the unknown token
    found = score_lambada(passages, lambda contexts, more: [ContinuationScore(*answers[word]) for word in more])
    assert found["items"] == [1.0, 0.0, 0.0] and found["unknown"] == 1
    assert "perplexity" not in found and "lacks the target of 1 passages" in found["no_perplexity"]


@pytest.mark.parametrize(
    ("model", "objective", "tokenizer"),
    [("lstm", "next-token", BPE), ("gpt2", "next-token", BYTE), ("ngram", "counts", BPE), ("rnn", "next-token", WORD)],
)
def test_a_run(model, objective, tokenizer, tmp_path):
    run = run_of(model, objective, tokenizer)
    texts = ["the cat sees the dog", "no child remembers a", "the the"]
    if model == "rnn":  # one that greedy writing gives
        texts.append(run.generate("the cat", max_new=1, temperature=0.0)[0].text)
        texts[-1] = f"the cat {texts[-1].removeprefix('the cat').strip()}"
    found = run.evaluate_suite("lambada", write(tmp_path / "a.txt", texts), items=True)
    scores = []
    for text in texts:
        context = text.rpartition(" ")[0]
        whole, before = run.score([text, context])
        scores.append(sum(whole.log_probs) - sum(before.log_probs))
    assert found["perplexity"] == pytest.approx(math.exp(-sum(scores) / len(scores)), rel=1e-6)
    assert found["passages"] == len(found["items"]) == len(texts)
    assert found["accuracy"] == sum(found["items"]) / len(texts) and "the sentence before it" in found["definition"]
    if model == "rnn":
        assert found["items"][-1] == 1.0


def test_who_has_no_figure(tmp_path):
    path = write(tmp_path / "a.txt", ["the cat"])
    backward = run_of("lstm", "next-token", WORD)
    backward.backward = True
    for run in (run_of("bert", "masked", WORD), run_of("electra", "replaced-token", WORD), backward):
        assert "no probability of the next word" in run.lacks("lambada") and run.lacks("blimp") is None
        with pytest.raises(UsageError, match="no probability of the next word"):
            run.evaluate_suite("lambada", path)
    assert run_of("lstm", "next-token", WORD).lacks("lambada") is None


def test_what_is_refused(tmp_path):
    for name, texts, words in (
        ("a.txt", ["the cat", "cat"], r"a\.txt:2: 'cat' is one word"),
        ("b.jsonl", ["the cat", "   "], r'b\.jsonl:2: "text" is empty'),
        ("c.jsonl", ["the cat", 5], r'c\.jsonl:2: "text" is not a string'),
        ("d.txt", [], "no passage in it"),
    ):
        with pytest.raises(DataError, match=words):
            read_lambada(write(tmp_path / name, texts))
    (tmp_path / "e.jsonl").write_text('{"text": "a b"}\nnonsense\n')
    with pytest.raises(DataError, match=r"e\.jsonl:2: not valid JSON"):
        read_lambada(tmp_path / "e.jsonl")
    with pytest.raises(DataError, match="is a folder"):
        read_lambada(tmp_path)


@pytest.mark.long
def test_the_published_files():
    for name, count in (("dev.txt.gz", 4869), ("test.txt.gz", 5153), ("test_openai.jsonl.gz", 5153)):
        found = read_lambada(PUBLISHED / name)
        assert len(found) == count and all(passage.target[-1].isalnum() for passage in found)
    result = run_of("lstm", "next-token", BPE).evaluate_suite("lambada", PUBLISHED / "test.txt.gz", items=True)
    assert len(result["items"]) == 5153 and result["perplexity"] > 1000
