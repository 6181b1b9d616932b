"""`seqloom prepare` and `seqloom check`: parse, call, print."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import app
from seqloom.errors import DataError, Interrupted, UsageError
from seqloom.progress import human

if TYPE_CHECKING:
    from seqloom.batches.store import Manifest

_PREPARE_EXAMPLES = """Examples:

seqloom prepare books.txt --out data/books --valid 0.05

seqloom prepare news.jsonl.xz --out data/news --split-field split --vocab-size 16384

seqloom prepare input.txt --out data/chars --tokenizer char --documents file --valid 0.1

seqloom prepare books.txt --out data/words --tokenizer word --keep-spelling --valid 0.05

seqloom prepare old.txt --out data/old --encoding cp1252

seqloom prepare more.txt --out data/more --from-tokenizer data/books/tokenizer.json --test held-out.txt
"""
_CHECK_EXAMPLES = """Examples:

seqloom check books.txt

seqloom check train.jsonl --valid valid.jsonl --test test.jsonl --json

seqloom check train.conll --task tag --valid dev.conll --test test.conll
"""

_CHECKED = ("lm", "translate", "classify", "regress", "pair", "choose", "tag", "span")
_SHOWN = 20  # labels

_Texts = Annotated[
    list[Path],
    typer.Argument(help="Text files: .txt, .jsonl or .parquet, each also .gz, .xz or .zst.", show_default=False),
]
_Held = Annotated[
    str | None, typer.Option(metavar="FILE|FRACTION", help="Held-out text: a file, or a fraction such as 0.05.")
]
_Documents = Annotated[
    str, typer.Option(help="How a .txt is told apart: auto, line, blank (blank lines between), file (one document).")
]
_SplitField = Annotated[
    str | None, typer.Option(help="A field of each row that says train, valid or test.", show_default=False)
]
_Encoding = Annotated[
    str | None,
    typer.Option(help="Encoding of text files that are not in UTF-8: cp1252, latin-1, utf-16, …", show_default=False),
]
_LeakShare = Annotated[
    float,
    typer.Option(help="A document leaks when this share of its 13-grams, or of a held-out document's, is shared."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command(epilog=_PREPARE_EXAMPLES)
def prepare(
    texts: _Texts,
    out: Annotated[Path, typer.Option(help="The folder to write.", show_default=False)],
    tokenizer: Annotated[str, typer.Option(help="bpe, wordpiece, unigram, word, char or byte.")] = "bpe",
    vocab_size: Annotated[
        int | None,
        typer.Option(help="Entries of the vocabulary (bpe, wordpiece, unigram: 8192, or what a small text has)."),
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(help="How often a word must occur to get an entry (word: 2).")
    ] = None,
    words: Annotated[
        str, typer.Option(help="What parts words: punctuation (and blanks), or space alone.")
    ] = "punctuation",
    from_tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this tokenizer.json instead of learning one.")
    ] = None,
    valid: _Held = None,
    test: _Held = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lower the case of all text.")] = False,
    documents: _Documents = "auto",
    split_field: _SplitField = None,
    split_by: Annotated[
        str, typer.Option(help="A fraction takes whole documents, or the last characters: auto, document, characters.")
    ] = "auto",
    keep_leaks: Annotated[
        bool, typer.Option("--keep-leaks", help="Keep training documents that repeat held-out text.")
    ] = False,
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Keep exact copies of documents.")] = False,
    keep_spelling: Annotated[
        bool, typer.Option("--keep-spelling", help="Keep how unknown words are spelt (word): big-lstm reads them.")
    ] = False,
    backward: Annotated[
        bool, typer.Option("--backward", help="Read documents from their end, for a model that goes the other way.")
    ] = False,
    encoding: _Encoding = None,
    leak_share: _LeakShare = 0.3,
    workers: Annotated[int | None, typer.Option(help="Processes that encode; one a core unless given.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Prepare the folder anew if it exists.")] = False,
    as_json: _Json = False,
) -> None:
    """Turn text files into a prepared folder: tokenizer, token ids, and a report on the data."""
    from seqloom.batches.prepare import as_report
    from seqloom.batches.prepare import prepare as run

    with _stoppable():
        manifest = run(
            texts,
            out,
            tokenizer=tokenizer,
            vocab_size=vocab_size,
            min_count=min_count,
            lowercase=lowercase,
            words=words,
            from_tokenizer=from_tokenizer,
            valid=_held("valid", valid),
            test=_held("test", test),
            documents=documents,
            split_field=split_field,
            split_by=split_by,
            keep_leaks=keep_leaks,
            keep_duplicates=keep_duplicates,
            keep_spelling=keep_spelling,
            backward=backward,
            encoding=encoding,
            leak_share=leak_share,
            workers=workers,
            overwrite=overwrite,
        )
    if as_json:
        print(json.dumps(as_report(manifest), ensure_ascii=False, allow_nan=False))
        return
    _print_report(manifest.report)
    _print_splits(manifest, out)


@app.command(epilog=_CHECK_EXAMPLES)
def check(
    files: _Texts,
    task: Annotated[str, typer.Option(help=f"What the files are for: {', '.join(_CHECKED)}.")] = "lm",
    valid: _Held = None,
    test: _Held = None,
    documents: _Documents = "auto",
    split_field: _SplitField = None,
    encoding: _Encoding = None,
    leak_share: _LeakShare = 0.3,
    as_json: _Json = False,
) -> None:
    """Look at text files without preparing them: counts, lengths, duplicates, leakage, bad rows with line numbers."""
    if task == "translate":
        from seqloom.text.pairs import survey_pairs

        _print_pairs(survey_pairs(files), as_json)
        return
    if task not in _CHECKED:
        raise UsageError(f"--task {task}: available: {', '.join(_CHECKED)}")
    if task != "lm":
        from seqloom.evaluate.examples import survey_examples

        held = {name: _held(name, value) for name, value in (("valid", valid), ("test", test)) if value is not None}
        for name, value in held.items():
            if not isinstance(value, Path):
                raise UsageError(f"--{name} {value}: give a file: examples are not divided here")
        report = survey_examples(task, {"train": files} | {name: [Path(str(value))] for name, value in held.items()})
        print(json.dumps(report, ensure_ascii=False)) if as_json else _print_examples(report)
        if report["refused"] is not None:
            raise DataError(f"training would refuse these files: {report['refused']}")
        return
    from seqloom.text.survey import Corpus, Request, survey

    request = Request(
        tuple(files),
        _held("valid", valid),
        _held("test", test),
        documents,
        split_field,
        leak_share=leak_share,
        encoding=encoding,
    )
    found = survey(Corpus(request))
    if as_json:
        print(json.dumps(found.report, ensure_ascii=False, allow_nan=False))
    else:
        _print_report(found.report)
    if found.report["unreadable"]["refused"] is not None:
        raise DataError(f"prepare would refuse this text: {found.report['unreadable']['refused']}")


def _print_examples(report: dict[str, Any]) -> None:
    for name, part in report["splits"].items():
        words = part["words"]
        print(
            f"{name:<6} {part['examples']:,} examples, {words['total']:,} words: median {words['median']:g}, "
            f"mean {words['mean']:.1f}, longest {words['longest']:,}"
            + (f", {part['scheme']}" if part.get("scheme") else "")
        )
        total = sum(part["labels"].values())
        for label, count in list(part["labels"].items())[:_SHOWN]:
            print(f"  {label:<20} {count:>9,} {count / total:>7.1%}")
        if len(part["labels"]) > _SHOWN:
            print(f"  … and {len(part['labels']) - _SHOWN:,} more")
        if "numbers" in part:
            print("  " + ", ".join(f"{key} {value:.4g}" for key, value in part["numbers"].items()))
        for kind, found in part["problems"].items():
            print(f"  {kind}: {found['count']:,}")
            for place in found["places"]:
                print(f"    {place}")
            if found["count"] > len(found["places"]):
                print(f"    … and {found['count'] - len(found['places']):,} more")


def _print_pairs(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    print(f"pairs    {report['pairs']:,}")
    for side in ("source", "target"):
        found = report[side]
        print(f"{side}   {found['words']:,} words, {found['mean']:.1f} a line, {found['longest']:,} at most")
    for kind, found in report["problems"].items():
        print(f"{found['count']:,} lines: {kind} ({_places(found['places'], found['count'])})")


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM becomes an ordinary failure with its exit code: finished shards stay, and the same command goes on."""

    def stop(*_: object) -> None:
        raise Interrupted("stopped by SIGTERM: run the same command again, it goes on where it stopped")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _held(name: str, value: str | None) -> Path | float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return Path(value)
    if Path(value).exists():
        return Path(value)
    if not 0 < number < 1:
        raise UsageError(f"--{name} {value}: give a file, or a fraction between 0 and 1")
    return number


def _print_report(report: dict[str, Any]) -> None:
    lengths = report["words_per_document"]
    print(
        f"documents   {report['documents']:,}   words {report['words']:,}   "
        f"characters {report['characters']:,}   bytes {report['bytes']:,}"
    )
    print(
        f"words each  min {lengths['min']:,}   median {lengths['median']:,.0f}   mean {lengths['mean']:,.1f}   "
        f"95% {lengths['p95']:,.0f}   max {lengths['max']:,}"
    )
    for kind, problem in report["problems"].items():
        print(f"{kind}: {problem['count']:,} ({_places(problem['places'], problem['count'])})")
    lost = report["unreadable"]
    if lost["documents"]:
        print(
            f"left out    {lost['documents']:,} documents, {lost['characters']:,} characters ({lost['share']:.2%}): no UTF-8"
        )
    copies = report["duplicates"]
    kept = f"{copies['dropped']:,} dropped" if copies["dropped"] else "kept"
    print(
        f"duplicates  {copies['count']:,}"
        + (f", {kept} ({_places(copies['places'], copies['count'])})" if copies["count"] else "")
    )
    _print_leaks(report)


def _print_leaks(report: dict[str, Any]) -> None:
    if "valid_in_test" in report:
        both = report["valid_in_test"]
        print(
            f"valid/test  {both['count']:,} documents of valid stand in test, too, {both['dropped']:,} dropped from valid"
        )
        _print_examples_of(both)
    if "valid" in report["splits"] and "test" not in report["splits"]:
        print("no test     what is measured on valid was also chosen on it: give --test, too, for figures to report")
    leaks = report["leaks"]
    if not leaks["checked"]:
        print(f"leaks       not checked: {leaks['reason']}")
        return
    print(
        f"leaks       {leaks['count']:,} training documents repeat held-out text ({leaks['copies']:,} as a whole), "
        f"{leaks['dropped']:,} dropped; "
        f"{leaks['held_out_repeated']:,} of {leaks['held_out_documents']:,} held-out documents recur, "
        f"{leaks['held_out_sharing']:,} share a 13-gram"
    )
    _print_examples_of(leaks)


def _print_examples_of(found: dict[str, Any]) -> None:
    for place in found["places"]:
        print(f"  {place}")
    if found["count"] > len(found["places"]):
        print(f"  … and {found['count'] - len(found['places']):,} more")


def _places(places: list[str], count: int) -> str:
    return ", ".join(places) + (f" and {count - len(places):,} more" if count > len(places) else "")


def _print_splits(manifest: "Manifest", out: Path) -> None:
    print(f"{'split':<8}{'documents':>12}{'words':>14}{'tokens':>14}{'bytes':>14}{'unknown':>10}")
    for name, split in manifest.splits.items():
        print(
            f"{name:<8}{split.documents:>12,}{split.words:>14,}{split.tokens:>14,}{split.bytes:>14,}"
            f"{split.unknown / max(split.tokens, 1):>10.2%}"
        )
    print(f"bits per byte: {manifest.bits_per_byte}")
    tokens = sum(split.tokens for split in manifest.splits.values())
    print(f"{out}: {human(tokens)} tokens, vocabulary {manifest.vocab_size:,}, fingerprint {manifest.fingerprint[:12]}")
