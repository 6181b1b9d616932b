"""Word vectors from the command line: learnt, asked, written, read, compared; and files that are none."""

import json
import os
import signal

import numpy as np
import pytest

import seqloom
from seqloom.batches.prepare import prepare
from seqloom.cli import run as command
from seqloom.comparison.run import compare
from seqloom.errors import Interrupted, UsageError
from seqloom.evaluate.contexts import Contexts
from seqloom.text.vectors import read_all_vectors
from tests.comparison.plans import LSTM, plan_of
from tests.forked import forked_jobs
from tests.tasks.labelled import examples, write
from tests.training.material import prepared, write_text

SMALL = ["model.dim=16", "batches.budget=512", "batches.length=64"]
ANALOGIES = (
    ": family\nking queen cat dog\ncat dog bird friend\n: gram1\nsees likes finds follows\nking queen cat zebra\n"
)
SIMILARITY = "king\tqueen\t9\ncat\tdog\t8\ncat\tnight\t1\nking\tzebra\t2\nsees\thears\t7\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text, and models that learnt from it."""
    place = tmp_path_factory.mktemp("words")
    prepared(place / "words", 400)
    text = write_text(place / "pieces.txt", 400)
    prepare([text], place / "pieces", tokenizer="bpe", vocab_size=300, valid=0.1, keep_leaks=True, keep_duplicates=True)
    (place / "analogies.txt").write_text(ANALOGIES)
    (place / "similarity.tsv").write_text(SIMILARITY)
    for name, objective in (("skip-gram", "skip-gram"), ("cbow", "cbow")):
        settings = [*SMALL, f"objective.name={objective}", "objective.subsample=0", "budget={steps=60}"]
        seqloom.pretrain("word2vec-tiny", place / "words", place / name, settings=settings, device="cpu")
    settings = ["model.dim=16", "batches.budget=512", "objective.passes=40"]
    seqloom.pretrain("glove-tiny", place / "words", place / "glove", settings=settings, device="cpu")
    settings = [*SMALL, "model.buckets=500", "objective.subsample=0", "budget={steps=60}"]
    seqloom.pretrain("fasttext-tiny", place / "words", place / "fasttext", settings=settings, device="cpu")
    short = ["budget={steps=2}", "valid.limit=100"]
    for name in ("lstm", "gpt2", "bert"):
        seqloom.pretrain(f"{name}-tiny", place / "pieces", place / name, settings=short, device="cpu")
    seqloom.pretrain("ngram-tiny", place / "pieces", place / "ngram", device="cpu")
    return place


def out(capsys, *call):
    assert command([str(each) for each in call]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, code, *call):
    assert command([str(each) for each in call]) == code
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("seqloom: error: ")
    return message


@pytest.mark.parametrize("name", ["skip-gram", "cbow", "glove", "fasttext"])
def test_vectors_are_learnt(folder, name, capsys):
    lines = (folder / name / "metrics.jsonl").read_text().splitlines()
    losses = [row["loss"] for line in lines if "loss" in (row := json.loads(line))]
    assert losses[-1] < 0.95 * losses[0]
    found = json.loads(out(capsys, "evaluate", folder / name, "--data", folder / "words", "--split", "valid", "--json"))
    again = json.loads(out(capsys, "evaluate", folder / name, "--data", folder / "words", "--split", "valid", "--json"))
    assert found["loss"] == again["loss"] and found["cells" if name == "glove" else "predictions"] > 0


@pytest.mark.parametrize("name", ["skip-gram", "glove", "fasttext", "lstm", "gpt2", "bert"])
def test_neighbours(folder, name, capsys):
    found = json.loads(out(capsys, "neighbours", folder / name, "king", "--top", "3", "--json"))["neighbours"]
    assert len(found) == 3 and "king" not in [each["word"] for each in found]
    assert found[0]["similarity"] >= found[2]["similarity"]
    shown = out(capsys, "neighbours", folder / name, "king", "-", "cat", "+", "dog", "--top", "2").splitlines()
    assert len(shown) == 2 and not {"king", "cat", "dog"} & {line.split()[1] for line in shown}


def test_neighbours_by_hand(folder):
    run = seqloom.load(folder / "skip-gram", device="cpu")
    tables = {name: run.table(name) for name in ("in", "out", "mean")}
    assert np.allclose(tables["mean"], (tables["in"] + tables["out"]) / 2)
    ids = run.word_vocabulary.ids
    for name, table in tables.items():
        words = [word for word in ids if word != "king" and table[ids[word]].any()]
        unit = {word: table[ids[word]] / np.linalg.norm(table[ids[word]]) for word in [*words, "king"]}
        cosines = sorted(((float(unit[word] @ unit["king"]), word) for word in words), reverse=True)
        found = run.neighbours("king", top=4, vectors=name)
        assert [each.word for each in found] == [word for _, word in cosines[:4]]
    assert run.neighbours("king - cat + dog") == run.neighbours("king", "-", "cat", "+", "dog")


def test_words_that_are_not_in_the_vocabulary(folder, capsys):
    """By their n-grams, in neighbours and similarity; in analogies they stay unknown."""
    found = json.loads(out(capsys, "neighbours", folder / "fasttext", "kingly", "--top", "3", "--json"))["neighbours"]
    run = seqloom.load(folder / "fasttext", device="cpu")
    (vector,) = run.word_vectors(["kingly"])
    assert np.array_equal(vector, run.learner.backbone.vector_of("kingly").detach().numpy())
    assert found[0]["similarity"] > 0 and "kingly" not in run.word_vocabulary.ids
    call = ("evaluate", folder / "fasttext", "--json", "--suite")
    similarity = json.loads(out(capsys, *call, "similarity", "--suite-data", folder / "similarity.tsv"))
    assert similarity["unknown"] == 0 and "n-grams" in similarity["definition"]
    analogies = json.loads(out(capsys, *call, "analogies", "--suite-data", folder / "analogies.txt"))
    assert analogies["unknown"] == 1
    assert run.neighbours("king")[0].word in run.word_vocabulary.ids


def test_what_neighbours_refuses(folder, capsys):
    assert "not in the vocabulary" in refused(capsys, 2, "neighbours", folder / "skip-gram", "zebra")
    assert "did you mean 'queen'" in refused(capsys, 2, "neighbours", folder / "skip-gram", "queem")
    assert "between them" in refused(capsys, 2, "neighbours", folder / "skip-gram", "king", "queen")
    assert "no second table" in refused(capsys, 2, "neighbours", folder / "lstm", "king", "--vectors", "out")
    assert "unknown --vectors" in refused(capsys, 2, "neighbours", folder / "lstm", "king", "--vectors", "up")
    assert "has no table of vectors" in refused(capsys, 2, "neighbours", folder / "ngram", "king")
    assert "from both sides of it" in refused(capsys, 2, "fill", folder / "skip-gram", "a [MASK]")
    nothing = refused(capsys, 2, "neighbours", folder / "skip-gram", "king - queen - king + queen")
    assert "'king - queen - king + queen'" in nothing and "no word is near" in nothing


@pytest.mark.parametrize("name", ["glove", "fasttext"])
def test_files_have_whole_words(folder, name, tmp_path, capsys):
    """Not the tables that they are added up of."""
    out(capsys, "export", folder / name, "--out", tmp_path / "v.vec")
    run, found = seqloom.load(folder / name, device="cpu"), read_all_vectors(tmp_path / "v.vec")
    assert len(found.words) == len(run.word_vocabulary.ids)
    assert np.allclose(run.encode(found.words[:5]), found.vectors[:5], atol=1e-6)


@pytest.mark.parametrize("suffix", [".bin", ".vec", ".txt"])
def test_a_file_and_back(folder, suffix, tmp_path, capsys):
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    out(capsys, "export", folder / "skip-gram", "--out", first)
    out(capsys, "import", first, "--out", tmp_path / "run")
    out(capsys, "export", tmp_path / "run", "--out", second)
    assert first.read_bytes() == second.read_bytes()
    run = seqloom.load(folder / "skip-gram", device="cpu")
    found = read_all_vectors(first)
    assert not {"<unk>", "<|endoftext|>", "<mask>"} & set(found.words)
    assert np.array_equal(found.vectors, run.table()[[run.tokenizer.id(word) for word in found.words]])
    before, after = (out(capsys, "neighbours", each, "king") for each in (folder / "skip-gram", tmp_path / "run"))
    assert before == after
    assert refused(capsys, 2, "export", tmp_path / "run", "--out", second).endswith("choose another file for --out")
    out(capsys, "export", folder / "skip-gram", "--out", second, "--vectors", "mean", "--overwrite")
    assert np.array_equal(
        read_all_vectors(second).vectors, run.table("mean")[[run.tokenizer.id(w) for w in found.words]]
    )


def test_a_word_is_found_in_lower_case(tmp_path, capsys):
    (tmp_path / "v.txt").write_text("athens 1 2\nrome 2 1\nRome 3 4\noslo 1 3\n")
    out(capsys, "import", tmp_path / "v.txt", "--out", tmp_path / "run")
    run = seqloom.load(tmp_path / "run", device="cpu")
    athens, upper, lower, none = run.word_vectors(["Athens", "Rome", "rome", "Paris"])
    assert (athens.tolist(), upper.tolist(), lower.tolist(), none) == ([1, 2], [3, 4], [2, 1], None)


def test_imported_vectors_have_no_second_table(tmp_path, capsys):
    """W′ is not in their file, and what a new one is filled with is learnt from nothing."""
    (tmp_path / "v.txt").write_text("the 1 2\ncat 3 4\ndog 5 7\n")
    (tmp_path / "pairs.tsv").write_text("cat\tdog\t3\n")
    out(capsys, "import", tmp_path / "v.txt", "--out", tmp_path / "run")
    suite = ("evaluate", tmp_path / "run", "--suite", "similarity", "--suite-data", tmp_path / "pairs.tsv")
    for table in ("out", "mean"):
        export = ("export", tmp_path / "run", "--out", tmp_path / "w.txt")
        for call in (export, ("neighbours", tmp_path / "run", "cat"), suite):
            assert "no second table" in refused(capsys, 2, *call, "--vectors", table)
    assert not (tmp_path / "w.txt").exists()


def test_special_tokens_of_a_file_stay_words(tmp_path, capsys):
    (tmp_path / "v.txt").write_text("<unk> 1 2\nthe 3 4\n<|endoftext|> 5 6\n")
    out(capsys, "import", tmp_path / "v.txt", "--out", tmp_path / "run")
    out(capsys, "export", tmp_path / "run", "--out", tmp_path / "w.txt")
    assert read_all_vectors(tmp_path / "w.txt").words == ["<unk>", "the", "<|endoftext|>"]


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("v.vec", b"2 2\nthe 1 2\ncat 1\n"),
        ("v.vec", b"the 1 nan\n"),
        ("v.txt", b"the 1 2\nthe 1 2\n"),
        ("v.vec", b"9 2\nthe 1 2\n"),
        ("v.txt", b"a" * 11_000_000),
        ("v.bin", b"9 2\nthe 12345678\n"),
        ("v.bin", b"1 2\nthe \x00\x00\xc0\x7f\x00\x00\x80\x3f\n"),
        ("v.bin", b"2 1\nthe 1234\nthe 1234\n"),
        ("v.bin", b"1 1\nthe 1234\nmore"),
        ("v.bin", b"99999999999999999999 300\nthe 1234\n"),
        ("v.bin", b"\xba\x16\x4f\x2f\x0c\x00\x00\x00" + bytes(100)),
        ("v.bin", b"1 2\n" + b"a" * 10_000 + b" 12345678\n"),
        ("v.vec", b"1 2\n" + b"a" * 10_000 + b" 1 2\n"),
        ("v.txt", b"caf\xe9 1 2\n"),
        ("v.txt", b""),
    ],
    ids=[
        "widths", "nan", "duplicate", "header", "one line", "bin", "nan in bin", "duplicate in bin", "more in bin",
        "huge header", "fastText's bin", "long word in bin", "long word", "latin-1", "empty",
    ],
)  # fmt: skip
def test_a_bad_file_leaves_nothing_behind(name, raw, tmp_path, capsys):
    (tmp_path / name).write_bytes(raw)
    message = refused(capsys, 3, "import", tmp_path / name, "--out", tmp_path / "run")
    assert name in message and len(message) < 400
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.bin"])
def test_a_gigabyte_without_a_line_end(name, tmp_path, capsys):
    """A file with a hole: it takes no room. Little of it is read."""
    with open(tmp_path / name, "wb") as file:
        file.write(b"the ")
        file.truncate(1 << 30)
    refused(capsys, 3, "import", tmp_path / name, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_exports_that_are_refused(folder, tmp_path, capsys):
    assert "vocabulary" in refused(capsys, 2, "export", folder / "gpt2", "--out", tmp_path / "v.bin")
    assert "file" in refused(capsys, 2, "export", folder / "cbow", "--out", tmp_path / "v.bin", "--milestones")
    assert "--vectors" in refused(capsys, 2, "export", folder / "gpt2", "--out", tmp_path / "x", "--vectors", "in")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["skip-gram", "cbow", "glove", "lstm", "gpt2", "bert"])
def test_suites(folder, name, capsys):
    static = name in ("skip-gram", "cbow", "glove")
    call = ("evaluate", folder / name, "--json", "--suite")
    found = json.loads(out(capsys, *call, "analogies", "--suite-data", folder / "analogies.txt"))
    assert found["questions"] == 4 and found["unknown"] == static  # pieces make up every word
    assert ("rows of the input table" in found["definition"]) == static
    table = json.loads(out(capsys, *call, "similarity", "--suite-data", folder / "similarity.tsv", "--vectors", "in"))
    assert "rows of the input table" in table["definition"] and table["unknown"] == static
    if not static:
        alone = json.loads(out(capsys, *call, "similarity", "--suite-data", folder / "similarity.tsv"))
        assert "alone" in alone["definition"] and alone["spearman"] != table["spearman"]


@pytest.mark.parametrize("name", ["skip-gram", "lstm", "gpt2", "bert"])
def test_means_over_contexts(folder, name, tmp_path, capsys):
    text = tmp_path / "contexts.txt"
    text.write_text((folder / "pieces.txt").read_text())
    call = ("evaluate", folder / name, "--json", "--suite", "similarity", "--suite-data", folder / "similarity.tsv")
    call = (*call, "--contexts", text)
    found = json.loads(out(capsys, *call, "--num-contexts", "4"))
    assert "at most 4 of each word, in contexts.txt" in found["definition"]
    assert found["unknown"] == 1, "a word that does not occur has no vector"
    again = json.loads(out(capsys, *call, "--num-contexts", "4", "--vectors", "contexts"))
    assert found["spearman"] == again["spearman"] and found["by_set"] == again["by_set"]
    questions = ("--suite", "analogies", "--suite-data", folder / "analogies.txt", "--contexts", text)
    assert json.loads(out(capsys, "evaluate", folder / name, "--json", *questions))["unknown"] == 1
    run = seqloom.load(folder / name, device="cpu")
    (vector,) = run.word_vectors(["king"], contexts=text, num_contexts=3)
    occurrences = Contexts(text, 3).find(["king"])["king"]
    by_hand = []
    for one in occurrences:
        tokens = run.tokenizer.encode_with_offsets(one.text)[1]
        own = [i for i, (a, b) in enumerate(tokens) if one.text[a:b].strip() and a < one.stop and b > one.start]
        by_hand.append(run.encode([one.text], pool="none")[0][own].mean(0))
    assert len(occurrences) == 3 and np.allclose(vector, np.mean(by_hand, axis=0), atol=1e-5)
    (table,) = run.word_vectors(["king"])
    assert np.allclose(vector, table, atol=1e-5) == (name == "skip-gram")


@pytest.mark.parametrize("name", ["skip-gram", "fasttext", "gpt"])
def test_unknown_words_have_no_vector_in_contexts_either(folder, name, tmp_path):
    """Nor has the token that stands for all of them, which would be a vector of none of them."""
    if name == "gpt":
        settings = ["budget={steps=2}", "valid.limit=100"]
        seqloom.pretrain("gpt-tiny", folder / "words", tmp_path / name, settings=settings, device="cpu")
    run = seqloom.load((tmp_path if name == "gpt" else folder) / name, device="cpu")
    (tmp_path / "text.txt").write_text("the king sees the zebra and the aardvark\n")
    (tmp_path / "pairs.tsv").write_text("zebra\taardvark\t1\nking\tzebra\t2\n")
    known, *unknown = run.word_vectors(["king", "zebra", "aardvark"], contexts=tmp_path / "text.txt")
    assert known is not None and unknown == [None, None]
    found = run.evaluate_suite("similarity", tmp_path / "pairs.tsv", contexts=tmp_path / "text.txt")
    assert found["unknown"] == 2 and "spearman_known" not in found


def test_a_model_that_reads_letters_knows_every_word(folder, tmp_path, capsys):
    """In similarity; an answer of analogies is a word of the vocabulary."""
    kept = {"keep_spelling": True, "keep_leaks": True, "keep_duplicates": True}
    prepare([folder / "pieces.txt"], tmp_path / "spelt", tokenizer="word", valid=0.1, **kept)
    settings = ["budget={steps=2}", "valid.limit=100", "model.dim=16", "model.proj_dim=8"]
    seqloom.pretrain("elmo-tiny", tmp_path / "spelt", tmp_path / "elmo", settings=settings, device="cpu")
    run = seqloom.load(tmp_path / "elmo", device="cpu")
    words = ["king", "zebra", "zebras"]
    vectors = run.word_vectors(words)
    assert all(np.allclose(one, run.encode([word])[0], atol=1e-6) for one, word in zip(vectors, words, strict=True))
    assert not np.allclose(vectors[1], vectors[2], atol=1e-3)
    (tmp_path / "text.txt").write_text("the king sees the zebra and the zebras\n")
    one, other = run.word_vectors(words[1:], contexts=tmp_path / "text.txt")
    assert one is not None and not np.allclose(one, other, atol=1e-3)
    found = run.evaluate_suite("similarity", folder / "similarity.tsv")
    assert found["unknown"] == 0
    assert run.evaluate_suite("analogies", folder / "analogies.txt")["unknown"] == 1
    assert "zebra" not in [each.word for each in run.neighbours("zebra", vectors="alone", top=1000)]


def test_a_context_longer_than_the_model_reads(folder, monkeypatch, tmp_path):
    """It is cut around the word."""
    monkeypatch.setattr("seqloom.evaluate.contexts.REACH", 5000)
    run = seqloom.load(folder / "bert", device="cpu")
    words = (folder / "pieces.txt").read_text().replace("\n", " ")[:3000]
    for place, text in enumerate((f"zebra {words}", f"{words} zebra {words}", f"{words} zebra")):
        (tmp_path / f"{place}.txt").write_text(text)
        (one,) = Contexts(tmp_path / f"{place}.txt", 1).find(["zebra"])["zebra"]
        short = run._shorten(one)
        assert short.text[short.start : short.stop] == "zebra" and len(one.text) > 3000
        assert run.learner.backbone.max_len // 2 < len(run.tokenizer.encode(short.text)) < run.learner.backbone.max_len
        assert run.word_vectors(["zebra"], contexts=tmp_path / f"{place}.txt")[0] is not None


def test_contexts_that_are_refused(folder, tmp_path, capsys):
    call = ("evaluate", folder / "gpt2", "--suite", "similarity", "--suite-data", folder / "similarity.tsv")
    (tmp_path / "other.txt").write_text("nothing of it\n")
    assert "no such file" in refused(capsys, 2, *call, "--contexts", tmp_path / "none.txt")
    assert "between 1 and" in refused(capsys, 2, *call, "--contexts", tmp_path / "other.txt", "--num-contexts", "0")
    assert "need each other" in refused(capsys, 2, *call, "--vectors", "contexts")
    assert "need each other" in refused(capsys, 2, *call, "--vectors", "in", "--contexts", tmp_path / "other.txt")
    assert "leave it out" in refused(capsys, 2, *call, "--num-contexts", "3")
    assert "need each other" in refused(capsys, 2, "neighbours", folder / "gpt2", "king", "--vectors", "contexts")
    questions = ("--suite", "analogies", "--suite-data", folder / "analogies.txt")
    message = refused(capsys, 2, "evaluate", folder / "gpt2", *questions, "--contexts", tmp_path / "other.txt")
    assert "vector of no word" in message


def test_a_model_of_vectors_scores_no_text(folder, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("the cat\n")
    assert "no probability of a text" in refused(capsys, 2, "score", folder / "cbow", tmp_path / "text.txt")
    assert command(["generate", str(folder / "cbow")]) == 2
    run = seqloom.load(folder / "cbow", device="cpu")
    assert "no probability" in run.lacks("blimp") and run.lacks("analogies") is None
    with pytest.raises(UsageError, match="no probability"):
        run.evaluate_suite("blimp", folder / "analogies.txt")
    assert run.encode(["the cat"]).shape == (1, 16)
    wanted = run.table()[[run.tokenizer.id("the"), run.tokenizer.id("cat")]].mean(0)
    assert np.allclose(run.encode(["the cat"])[0], wanted, atol=1e-6)


def test_a_run_of_counts_is_resumed(folder, tmp_path):
    """It counts again, and ends with the same bits."""
    settings = ["model.dim=16", "batches.budget=512", "objective.passes=4", "train.save_every=1", "train.log_every=1"]
    call = ("glove-tiny", folder / "words")
    seqloom.pretrain(*call, tmp_path / "whole", settings=settings, device="cpu")

    def interrupt(row):
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        seqloom.pretrain(*call, tmp_path / "cut", settings=settings, device="cpu", on_log=interrupt)
    seqloom.pretrain(*call, tmp_path / "cut", settings=settings, device="cpu", resume=True)
    for name in ("backbone.safetensors", "head.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def test_rows_of_a_comparison(tmp_path, monkeypatch):
    forked_jobs(monkeypatch)
    write_text(tmp_path / "text.txt", 200)
    (tmp_path / "analogies.txt").write_text(ANALOGIES)
    (tmp_path / "similarity.tsv").write_text(SIMILARITY)
    rows = [{"recipe": "word2vec-tiny", "settings": SMALL}, LSTM]
    suites = {name: str(next(tmp_path.glob(f"{name}*"))) for name in ("analogies", "similarity")}
    compare(plan_of(tmp_path / "text.txt", rows=rows, seeds=1, pairs=4, suites=suites), tmp_path / "out", device="cpu")
    result = json.loads((tmp_path / "out" / "results" / "word2vec-tiny" / "seed-0.json").read_text())
    assert result["suites"]["analogies"]["questions"] == 4 and "spearman" in result["suites"]["similarity"]
    assert "no probability of a text" in result["suites"]["pairs"]["refused"]
    assert "word2vec-tiny" in (tmp_path / "out" / "report.html").read_text()


def test_what_a_context_adds(tmp_path, monkeypatch):
    """Static vectors beside a model with a context, transferred to a classifier and a tagger: a question of a plan."""
    forked_jobs(monkeypatch)
    write_text(tmp_path / "text.txt", 200)
    write(tmp_path / "train.jsonl", "classify", examples("classify", 24))
    write(tmp_path / "test.jsonl", "classify", examples("classify", 16, 1))
    tagged = "the D\ncat N\nsees V\n\na D\ndog N\nfollows V\n\n"
    (tmp_path / "tags.conll").write_text(tagged * 6)
    small = ["model.dim=16", "batches.budget=512"]
    rows = [
        {"recipe": "word2vec-tiny", "settings": [*small, "batches.length=64"], "tokenizer": "word"},
        {"recipe": "glove-tiny", "settings": [*small, "objective.passes=3"], "tokenizer": "word"},
        {
            "recipe": "fasttext-tiny",
            "settings": [*small, "batches.length=64", "model.buckets=200"],
            "tokenizer": "word",
        },
        LSTM,
    ]
    short = ("budget={epochs=1}",)
    tasks = [
        {"task": "classify", "how": "features", "train": ["train.jsonl"], "test": ["test.jsonl"], "settings": short},
        {"task": "tag", "train": ["tags.conll"], "test": ["tags.conll"], "settings": short},
    ]
    tasks = [each | {key: [str(tmp_path / each[key][0])] for key in ("train", "test")} for each in tasks]
    asked = [{"name": "What does context add?", "rows": ["word2vec-tiny", "LSTM"]}]
    settings = ["train.save_every=5"]
    plan = plan_of(tmp_path / "text.txt", rows=rows, seeds=1, pairs=0, tasks=tasks, questions=asked, settings=settings)
    compare(plan, tmp_path / "out", device="cpu")
    for name in ("word2vec-tiny", "glove-tiny", "fasttext-tiny", "LSTM"):
        result = json.loads((tmp_path / "out" / "results" / name / "seed-0.json").read_text())
        assert all("refused" not in each for each in result["tasks"].values()) and len(result["tasks"]) == 2
    report = (tmp_path / "out" / "report.html").read_text()
    assert "What does context add?" in report
