"""prepare and check: from text files to token ids, and reports on data."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import app
from seqloom.cli.options import IdColumn, LabelColumn, PairColumn, TextColumn, name_columns, reject_unused, require
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

seqloom prepare *.mid --out data/piano --tokenizer events --valid 0.1 --transpose 3 --stretch 0.05

seqloom prepare more.txt --out data/more --from-tokenizer data/books/tokenizer.json --test held-out.txt
"""
_CHECK_EXAMPLES = """Examples:

seqloom check books.txt

seqloom check train.jsonl --valid valid.jsonl --test test.jsonl --json

seqloom check train.conll --task tag --valid dev.conll --test test.conll
"""

_SYNTHETIC_EXAMPLES = """Examples:

seqloom synthetic copy --out copy.txt --count 20000

seqloom synthetic copy --out long.txt --length 511 --symbols 127 --seed 1
"""
_MOST_SYMBOLS = 100_000_000

_TASKS = ("lm", "translate", "classify", "regress", "pair", "choose", "tag", "span")
_MAX_LABELS = 20  # printed

_Texts = Annotated[
    list[Path],
    typer.Argument(
        help="Text files: .txt, .jsonl or .parquet, each also .gz, .xz or .zst; songs: .mid, or .json of frames.",
        show_default=False,
    ),
]
_HeldOut = Annotated[
    str | None,
    typer.Option(metavar="FILE|FRACTION", help="Held-out text: a file, or a fraction of the text such as 0.05."),
]
_Documents = Annotated[
    str,
    typer.Option(
        help="How a .txt is split into documents: auto, line (one per line), blank (blank lines between them) or file (one)."
    ),
]
_SplitField = Annotated[
    str | None, typer.Option(help="Field of each row that names its split: train, valid or test.", show_default=False)
]
_Encoding = Annotated[
    str | None,
    typer.Option(help="Encoding of text files that are not UTF-8: cp1252, latin-1, utf-16, …", show_default=False),
]
_LeakShare = Annotated[
    float,
    typer.Option(
        help="Fraction of 13-grams shared with held-out text above which a training document counts as a leak."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command(epilog=_PREPARE_EXAMPLES)
def prepare(
    texts: _Texts,
    out: Annotated[Path, typer.Option(help="Folder to write.", show_default=False)],
    tokenizer: Annotated[
        str,
        typer.Option(help="Tokenizer to learn: bpe, wordpiece, unigram, word, char or byte; for songs events or grid."),
    ] = "bpe",
    vocab_size: Annotated[
        int | None,
        typer.Option(
            help="Size of the vocabulary. Default for bpe, wordpiece and unigram: 8192, or fewer if the text is small."
        ),
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(help="Minimum count of a word in the vocabulary. Default for word: 2.")
    ] = None,
    words: Annotated[
        str, typer.Option(help="Where word tokenizers split: at punctuation (and whitespace), or only at space.")
    ] = "punctuation",
    from_tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this tokenizer.json instead of learning one.")
    ] = None,
    sentinels: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Add N tokens <extra_id_0>, <extra_id_1> … behind the vocabulary, for spans with sentinels (T5).",
        ),
    ] = 0,
    valid: _HeldOut = None,
    test: _HeldOut = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Convert all text to lower case.")] = False,
    documents: _Documents = "auto",
    split_field: _SplitField = None,
    split_by: Annotated[
        str,
        typer.Option(
            help="How --valid 0.05 takes its fraction: auto, document (whole documents) or characters (the last ones)."
        ),
    ] = "auto",
    keep_leaks: Annotated[
        bool, typer.Option("--keep-leaks", help="Keep training documents that repeat held-out text.")
    ] = False,
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Keep exact copies of documents.")] = False,
    keep_spelling: Annotated[
        bool,
        typer.Option(
            "--keep-spelling", help="Store the spelling of unknown words (word), for models such as big-lstm."
        ),
    ] = False,
    backward: Annotated[
        bool, typer.Option("--backward", help="Reverse the documents, for a right-to-left language model.")
    ] = False,
    encoding: _Encoding = None,
    leak_share: _LeakShare = 0.3,
    transpose: Annotated[
        int,
        typer.Option(
            metavar="N", help="Songs: add copies of the training songs, moved by up to N semitones up and down."
        ),
    ] = 0,
    stretch: Annotated[
        float,
        typer.Option(help="Songs: add copies of the training songs, slower and faster by this fraction, such as 0.05."),
    ] = 0.0,
    workers: Annotated[int | None, typer.Option(help="Number of processes that encode. Default: one per core.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete the prepared text that is in --out and start again.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Prepare text for training: learn a tokenizer, write token ids, and report on the data."""
    from seqloom.batches.prepare import PrepareOptions, as_report
    from seqloom.batches.prepare import prepare as run_prepare

    options = PrepareOptions(
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        min_count=min_count,
        lowercase=lowercase,
        sentinels=sentinels,
        words=words,
        from_tokenizer=from_tokenizer,
        valid=_file_or_fraction("valid", valid),
        test=_file_or_fraction("test", test),
        documents=documents,
        split_field=split_field,
        split_by=split_by,
        keep_leaks=keep_leaks,
        keep_duplicates=keep_duplicates,
        keep_spelling=keep_spelling,
        backward=backward,
        encoding=encoding,
        leak_share=leak_share,
        transpose=transpose,
        stretch=stretch,
    )
    with _interruptible():
        manifest = run_prepare(texts, out, options, workers=workers, overwrite=overwrite)
    if as_json:
        print(json.dumps(as_report(manifest), ensure_ascii=False, allow_nan=False))
        return
    _print_report(manifest.report)
    _print_splits(manifest, out)


@app.command(epilog=_CHECK_EXAMPLES)
def check(
    files: _Texts,
    task: Annotated[str, typer.Option(help=f"Task that the files are for: {', '.join(_TASKS)}.")] = "lm",
    valid: _HeldOut = None,
    test: _HeldOut = None,
    documents: _Documents = "auto",
    split_field: _SplitField = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    pair_column: PairColumn = None,
    id_column: IdColumn = None,
    encoding: _Encoding = None,
    leak_share: _LeakShare = 0.3,
    as_json: _Json = False,
) -> None:
    """Check data files without preparing them: counts, lengths, duplicates, leaks, and bad rows with their line numbers."""
    named = text_column, label_column, pair_column, id_column
    given = dict(zip(("--text-column", "--label-column", "--pair-column", "--id-column"), named, strict=True))
    if task in ("lm", "translate"):
        others = [each for each in _TASKS if each not in ("lm", "translate")]
        reject_unused(f"--task {task}", {option: (name, others) for option, name in given.items()})
    if task == "translate":
        from seqloom.text.pairs import survey_pairs

        _print_pairs(survey_pairs(files), as_json)
        return
    if task not in _TASKS:
        raise UsageError(f"--task {task}: available: {', '.join(_TASKS)}")
    if task != "lm":
        require((), files)
        from seqloom.evaluate.examples import survey_examples

        held_out = {
            name: _file_or_fraction(name, value)
            for name, value in (("valid", valid), ("test", test))
            if value is not None
        }
        for name, value in held_out.items():
            if not isinstance(value, Path):
                raise UsageError(f"--{name} {value}: give a file; check does not split examples")
        report = survey_examples(
            task,
            {"train": files} | {name: [Path(str(value))] for name, value in held_out.items()},
            name_columns(task, True, *named),
            encoding,
        )
        print(json.dumps(report, ensure_ascii=False)) if as_json else _print_task(report)
        if report["refused"] is not None:
            raise DataError(f"training would reject these files: {report['refused']}")
        return
    from seqloom.text.survey import Corpus, Request, survey

    request = Request(
        tuple(files),
        _file_or_fraction("valid", valid),
        _file_or_fraction("test", test),
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
        raise DataError(f"prepare would reject this text: {found.report['unreadable']['refused']}")


def _print_task(report: dict[str, Any]) -> None:
    for name, part in report["splits"].items():
        words = part["words"]
        print(
            f"{name:<6} {part['examples']:,} examples, {words['total']:,} words: median {words['median']:g}, "
            f"mean {words['mean']:.1f}, longest {words['longest']:,}"
            + (f", {part['scheme']}" if part.get("scheme") else "")
        )
        total = sum(part["labels"].values())
        for label, count in list(part["labels"].items())[:_MAX_LABELS]:
            print(f"  {label:<20} {count:>9,} {count / total:>7.1%}")
        if len(part["labels"]) > _MAX_LABELS:
            print(f"  … and {len(part['labels']) - _MAX_LABELS:,} more")
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
        print(f"{side}   {found['words']:,} words, {found['mean']:.1f} per line, {found['longest']:,} at most")
    for kind, found in report["problems"].items():
        print(f"{found['count']:,} lines: {kind} ({_list_places(found['places'], found['count'])})")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn SIGTERM into an error with its exit code. Finished shards are kept, and the same command resumes."""

    def stop(*_: object) -> None:
        raise Interrupted("stopped by SIGTERM: rerun the same command to resume")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _file_or_fraction(name: str, value: str | None) -> Path | float | None:
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
        f"words per document  min {lengths['min']:,}   median {lengths['median']:,.0f}   mean {lengths['mean']:,.1f}   "
        f"95% {lengths['p95']:,.0f}   max {lengths['max']:,}"
    )
    for kind, problem in report["problems"].items():
        print(f"{kind}: {problem['count']:,} ({_list_places(problem['places'], problem['count'])})")
    lost = report["unreadable"]
    if lost["documents"]:
        print(
            f"left out    {lost['documents']:,} documents, {lost['characters']:,} characters ({lost['share']:.2%}): not UTF-8"
        )
    copies = report["duplicates"]
    kept = f"{copies['dropped']:,} dropped" if copies["dropped"] else "kept"
    print(
        f"duplicates  {copies['count']:,}"
        + (f", {kept} ({_list_places(copies['places'], copies['count'])})" if copies["count"] else "")
    )
    _print_leaks(report)


def _print_leaks(report: dict[str, Any]) -> None:
    if "valid_in_test" in report:
        both = report["valid_in_test"]
        print(
            f"valid/test  {both['count']:,} documents of valid are also in test, {both['dropped']:,} dropped from valid"
        )
        _print_places(both)
    if "valid" in report["splits"] and "test" not in report["splits"]:
        print(
            "no test     scores on valid are biased, because the best weights are chosen on it: add --test for unbiased ones"
        )
    leaks = report["leaks"]
    if not leaks["checked"]:
        print(f"leaks       not checked: {leaks['reason']}")
        return
    print(
        f"leaks       {leaks['count']:,} training documents repeat held-out text ({leaks['copies']:,} as a whole), "
        f"{leaks['dropped']:,} dropped; "
        f"{leaks['held_out_repeated']:,} of {leaks['held_out_documents']:,} held-out documents are repeated, "
        f"{leaks['held_out_sharing']:,} share a 13-gram"
    )
    _print_places(leaks)


def _print_places(found: dict[str, Any]) -> None:
    for place in found["places"]:
        print(f"  {place}")
    if found["count"] > len(found["places"]):
        print(f"  … and {found['count'] - len(found['places']):,} more")


def _list_places(places: list[str], count: int) -> str:
    return ", ".join(places) + (f" and {count - len(places):,} more" if count > len(places) else "")


def _print_splits(manifest: "Manifest", out: Path) -> None:
    print(f"{'split':<8}{'documents':>12}{'words':>14}{'tokens':>14}{'bytes':>14}{'unknown':>10}")
    for name, split in manifest.splits.items():
        print(
            f"{name:<8}{split.documents:>12,}{split.words:>14,}{split.tokens:>14,}{split.bytes:>14,}"
            f"{split.unknown / max(split.tokens, 1):>10.2%}"
        )
    print(f"words: {manifest.word_rule}")
    print(f"bits per byte: {manifest.bits_per_byte}")
    tokens = sum(split.tokens for split in manifest.splits.values())
    print(f"{out}: {human(tokens)} tokens, vocabulary {manifest.vocab_size:,}, fingerprint {manifest.fingerprint[:12]}")


@app.command(epilog=_SYNTHETIC_EXAMPLES)
def synthetic(
    kind: Annotated[str, typer.Argument(help="Kind of text: copy (0 w 0 w, a random word twice).")],
    out: Annotated[Path, typer.Option(help="Text file to write, one text per line.", show_default=False)],
    count: Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of texts.")] = 10_000,
    length: Annotated[int, typer.Option(min=1, max=1_000_000, help="Symbols of a word.")] = 31,
    symbols: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of different symbols.")] = 31,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the words.")] = 0,
) -> None:
    """Write text made by a rule, to test whether a model can follow it."""
    from seqloom.config import unknown_name
    from seqloom.files import new_file
    from seqloom.text.synthetic import write_copy_texts

    if kind != "copy":
        raise UsageError(unknown_name("KIND", kind, kind, ["copy"]))
    if count * (length + 1) > _MOST_SYMBOLS:
        raise UsageError(
            f"--count {count} texts of --length {length}: more than {_MOST_SYMBOLS:,} symbols: make fewer or shorter ones"
        )
    new_file(out, "--out")
    print(f"{human(write_copy_texts(out, count, length, symbols, seed))} texts of {2 * (length + 1)} symbols in {out}")
