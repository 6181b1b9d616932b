"""The labelled data sets in the formats that seqloom reads: train, valid and test of each.

    python benchmarks/tasks_data.py DATA OUT [--only sst trec ...]

DATA: a folder with the sets as they were collected, one folder each. OUT/NAME/train.jsonl (or .conll, .json), valid, test.
Where a set has no such parts they are cut by a hash of what must stay together: a text, a document, an article. So the parts do
not depend on the order of the file, and a text that stands there twice is on one side. What is written is read again and counted.
"""

import argparse
import gzip
import hashlib
import json
import lzma
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seqloom.metrics.entities import scheme_of
from seqloom.text.labelled import read_labelled
from seqloom.text.spans import read_questions
from seqloom.text.tagged import read_tagged

SPLITS = ("train", "valid", "test")
Row = dict[str, Any]
Tagged = list[tuple[str, str]]  # the words of a sentence, each with its tag
Parts = dict[str, list[Any]]


def text_of(path: Path) -> str:
    raw = path.read_bytes()
    return (
        gzip.decompress(raw) if path.suffix == ".gz" else lzma.decompress(raw) if path.suffix == ".xz" else raw
    ).decode()


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in text_of(path).split("\n") if line]


def objects(path: Path) -> list[Row]:
    return [json.loads(line) for line in text_of(path).split("\n") if line]


def cut(rows: Iterable[Any], key: Callable[[Any], str], test: float = 0.1, valid: float = 0.1) -> Parts:
    """What has one key stays together. Keys go by their hashes: so many into test, so many into valid, all others into train."""
    rows = list(rows)
    order = sorted({key(row) for row in rows}, key=lambda each: hashlib.sha256(each.encode()).digest())
    first = round(test * len(order))
    second = first + round(valid * len(order))
    where = {each: "test" if i < first else "valid" if i < second else "train" for i, each in enumerate(order)}
    parts: Parts = {split: [] for split in SPLITS}
    for row in rows:
        parts[where[key(row)]].append(row)
    return parts


def held_out(train: Iterable[Any], test: Sequence[Any], key: Callable[[Any], str]) -> Parts:
    """A tenth of train as valid."""
    return cut(train, key, test=0.0) | {"test": list(test)}


def first_text(row: Row) -> str:
    return str(row["text"])


def words_of(sentence: Tagged) -> str:
    return " ".join(word for word, _ in sentence)


# ---- one text


def labelled(rows: Iterable[Sequence[str]]) -> list[Row]:
    return [{"text": text, "label": label} for label, text in rows]


def sst(data: Path, name: str = "binary") -> Parts:
    files = {"train": "train", "valid": "dev", "test": "test"}
    return {split: labelled(table(data / "sst" / f"{name}.{file}.tsv")) for split, file in files.items()}


def sst_fine(data: Path) -> Parts:
    return sst(data, "fine")


def trec(data: Path) -> Parts:
    """The six coarse classes."""
    train, test = (
        labelled((row[0], row[2]) for row in table(data / "trec" / f"{name}.tsv")) for name in ("train", "test")
    )
    return held_out(train, test, first_text)


def cola(data: Path) -> Parts:
    """Tested on both development sets, which are GLUE's: the labels of the test set are not public."""
    names = ("in_domain_train", "in_domain_dev", "out_of_domain_dev")
    train, inside, outside = (
        labelled((row[1], row[3]) for row in table(data / "cola" / f"{name}.tsv")) for name in names
    )
    return held_out(train, [*inside, *outside], first_text)


def subjectivity(data: Path) -> Parts:
    return cut(labelled(table(data / "subjectivity" / "subjectivity.tsv.gz")), first_text)


def cr(data: Path) -> Parts:
    return cut(labelled(table(data / "cr-mpqa" / "cr.tsv")), first_text)


def mpqa(data: Path) -> Parts:
    return cut(labelled(table(data / "cr-mpqa" / "mpqa.tsv")), first_text)


def product_reviews(data: Path) -> Parts:
    """Sentences whose opinions all point one way: 1 praise, 0 blame, as in sst."""
    rows = []
    for _, aspects, text in table(data / "product_reviews" / "product_reviews.tsv"):
        signs = set(re.findall(r"\[([+-])\d?\]", aspects))
        if len(signs) == 1:
            rows.append({"text": text, "label": str(int(signs == {"+"}))})
    return cut(rows, first_text)


# ---- two texts, and choices


def mrpc(data: Path) -> Parts:
    files = {"train": "train", "valid": "dev", "test": "test"}
    return {
        split: [{"text": a, "text2": b, "label": label} for label, a, b in table(data / "mrpc" / f"{file}.tsv")]
        for split, file in files.items()
    }


def wic(data: Path) -> Parts:
    """Whether a word has one sense in two sentences. The word stands before each of them, or nobody would know which it is."""
    files = {"train": "train", "valid": "dev", "test": "test"}
    return {
        split: [
            {"text": f"{word} : {first}", "text2": f"{word} : {second}", "label": label}
            for label, word, _, _, first, second in table(data / "wic" / f"{file}.tsv")
        ]
        for split, file in files.items()
    }


def sick(data: Path, label: int = 4) -> Parts:
    files = {"train": "train", "valid": "dev", "test": "test"}
    return {
        split: [
            {"text": row[1], "text2": row[2], "label": row[label], "id": row[0]}
            for row in table(data / "sick" / f"{file}.tsv")[1:]
        ]
        for split, file in files.items()
    }


def sick_relatedness(data: Path) -> Parts:
    return sick(data, label=3)


def rte(data: Path) -> Parts:
    """The three challenges together; their development sets are for training."""
    found: dict[str, list[Row]] = {}
    for part in ("dev", "test"):
        found[part] = [
            {"text": row["premise"], "text2": row["hypothesis"], "label": row["label"], "id": f"{year}-{row['id']}"}
            for year in ("rte1", "rte2", "rte3")
            for row in objects(data / "rte" / f"{year}_{part}.jsonl")
        ]
    return held_out(found["dev"], found["test"], first_text)


def sts(data: Path) -> Parts:
    """Tested on 2016."""
    found: dict[bool, list[Row]] = {True: [], False: []}
    for row in objects(data / "sts" / "sts2012-2016.jsonl.gz"):
        found[row["year"] == 2016].append({"text": row["s1"], "text2": row["s2"], "label": row["score"]})
    return held_out(found[False], found[True], first_text)


def codah(data: Path) -> Parts:
    """Tested on the first of the five published folds, chosen by the second."""
    parts: Parts = {split: [] for split in SPLITS}
    for row in objects(data / "codah" / "codah.jsonl"):
        split = {0: "test", 1: "valid"}.get(row["fold"], "train")
        parts[split].append({"text": row["prompt"], "choices": row["choices"], "label": row["label"]})
    return parts


# ---- tags


def sentences(text: str, word: int = 0, tag: Callable[[str], str] = str) -> Iterator[Tagged]:
    """Of columns, the tag in the last one. Words that are nothing but blanks (tweets have such) are left out."""
    for block in re.split(r"\n[ \t]*\n", text.replace("\r", "")):
        rows = [re.split(r"[ \t]", line) for line in block.split("\n") if line]
        found = [("".join(row[word].split()), tag(row[-1])) for row in rows if row[0] != "-DOCSTART-"]
        found = [(each, label) for each, label in found if each]
        if found:
            yield found


def conll2000(data: Path) -> Parts:
    train, test = (list(sentences(text_of(data / "conll2000" / f"{name}.txt.gz"))) for name in ("train", "test"))
    return held_out(train, test, words_of)


def wikigold(data: Path) -> Parts:
    """Cut by documents, two in ten to test on."""
    documents = (list(sentences(text)) for text in text_of(data / "wikigold" / "wikigold.conll").split("-DOCSTART-"))
    parts = cut((document for document in documents if document), lambda document: words_of(document[0]), test=0.2)
    return {split: [sentence for document in part for sentence in document] for split, part in parts.items()}


def wnut17(data: Path) -> Parts:
    files = {"train": "train", "valid": "dev", "test": "test"}
    return {split: list(sentences(text_of(data / "wnut17" / f"{file}.conll"))) for split, file in files.items()}


def btc(data: Path) -> Parts:
    """Section h to choose by, f to test on."""
    files = {"train": "abeg", "valid": "h", "test": "f"}
    return {
        split: [each for name in names for each in sentences(text_of(data / "btc" / f"{name}.conll"))]
        for split, names in files.items()
    }


def persuasive_essays(data: Path) -> Parts:
    """Paragraphs; components alone, without stance and relation."""
    files = {"train": "train.conll.gz", "valid": "dev.conll", "test": "test.conll"}
    folder = data / "persuasive-essays"
    return {
        split: list(sentences(text_of(folder / f"paragraph.{file}"), 1, lambda tag: tag.partition(":")[0]))
        for split, file in files.items()
    }


def brown_tag(tag: str) -> str:
    """Without what marks titles, headlines and foreign words; of a contraction the first part."""
    plain = re.sub(r"^fw-|-(tl|hl|nc)\b.*$", "", tag).partition("+")[0]
    return plain.rstrip("*") or plain


def brown(data: Path) -> Parts:
    """Parts of speech, cut by texts."""
    rows = table(data / "brown" / "brown.tsv.xz")
    parts = cut(rows, lambda row: str(row[0]))
    return {
        split: [
            [(word, brown_tag(tag)) for word, _, tag in (token.rpartition("/") for token in row[2].split())]
            for row in part
        ]
        for split, part in parts.items()
    }


# ---- questions


def squad(data: Path, version: str = "1.1") -> Parts:
    """Cut by articles. Only answers whose place is certain; questions with none of them are left out."""
    articles = json.loads(text_of(data / "squad" / f"dev-v{version}.json.xz"))["data"]
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                question["answers"] = [
                    {"text": answer["text"], "answer_start": answer["answer_start"]}
                    for answer in question["answers"]
                    if answer["unique"]
                ]
            paragraph["qas"] = [each for each in paragraph["qas"] if each["answers"] or each.get("is_impossible")]
    return cut(articles, lambda article: str(article["title"]))


def squad2(data: Path) -> Parts:
    return squad(data, "2.0")


# name: how it is read, its task
SETS: dict[str, tuple[Callable[[Path], Parts], str]] = {
    "sst": (sst, "classify"),
    "sst-fine": (sst_fine, "classify"),
    "trec": (trec, "classify"),
    "cola": (cola, "classify"),
    "subjectivity": (subjectivity, "classify"),
    "cr": (cr, "classify"),
    "mpqa": (mpqa, "classify"),
    "product_reviews": (product_reviews, "classify"),
    "mrpc": (mrpc, "pair"),
    "sick": (sick, "pair"),
    "wic": (wic, "pair"),
    "rte": (rte, "pair"),
    "sick-relatedness": (sick_relatedness, "regress"),
    "sts": (sts, "regress"),
    "codah": (codah, "choose"),
    "conll2000": (conll2000, "tag"),
    "wikigold": (wikigold, "tag"),
    "wnut17": (wnut17, "tag"),
    "btc": (btc, "tag"),
    "persuasive-essays": (persuasive_essays, "tag"),
    "brown": (brown, "tag"),
    "squad": (squad, "span"),
    "squad2": (squad2, "span"),
}


def written(part: list[Any], task: str) -> tuple[str, str]:
    """The ending of the file, and what is in it."""
    if task == "span":
        return "json", json.dumps({"data": part}, ensure_ascii=False)
    if task == "tag":
        return "conll", "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in part)
    return "jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in part)


def counted(path: Path, task: str) -> tuple[int, set[str]]:
    """How many examples seqloom reads there, and which labels; every one of them is checked by that."""
    if task == "span":
        questions = list(read_questions([path]))
        return len(questions), {"no answer" if question.impossible else "answer" for question in questions}
    if task == "tag":
        tagged = list(read_tagged([path]))
        scheme = scheme_of([each.tags for each in tagged], lambda i, j: tagged[i].place_of(j))
        return len(tagged), {tag for each in tagged for tag in each.tags} | ({f"({scheme})"} if scheme else set())
    examples = list(read_labelled([path], task))
    return len(examples), set() if task == "regress" else {str(example.label) for example in examples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS), metavar="NAME")
    options = parser.parse_args()
    print(f"{'set':18} {'task':9} {'train':>7} {'valid':>7} {'test':>7}  labels")
    for name in options.only:
        read, task = SETS[name]
        folder = options.out / name
        folder.mkdir(parents=True, exist_ok=True)
        counts, labels = [], set()
        for split, part in read(options.data).items():
            ending, text = written(part, task)
            path = folder / f"{split}.{ending}"
            path.write_text(text, encoding="utf-8")
            count, found = counted(path, task)
            counts.append(count)
            labels |= found
        shown = sorted(labels) if len(labels) <= 10 else [f"{len(labels)} of them"]
        print(f"{name:18} {task:9} {counts[0]:7,} {counts[1]:7,} {counts[2]:7,}  {' '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
