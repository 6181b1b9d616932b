"""Self-contained HTML pages about runs: curves, tables, translations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqloom.charts import Curve, Mark, Section, chart, escaped, figure, looks, matrix, note, page, table
from seqloom.errors import ModelError
from seqloom.files import read_record, write_bytes
from seqloom.runs.translator import Translator
from seqloom.text.pairs import read_pairs
from seqloom.training.find_rate import Found
from seqloom.training.log import read_log


def rate_page(recipe: str, found: Found, command: str) -> str:
    """The page of a learning-rate range test."""
    rates = {"suggested": found.suggestion, "steepest fall": found.steepest}
    curve = Curve("loss while the rate rises", list(zip(found.rates, found.losses, strict=True)), markers=False)
    marks = [Mark(f"{name}: {rate:.2g}", x=rate) for name, rate in rates.items()]
    rows = [[name, f"{rate:.2g}"] for name, rate in rates.items()]
    drawn = chart("learning rate", "loss, nats per token", [curve], log_x=True, marks=marks, better="lower")
    parts = [
        f"<h1>A learning rate for {escaped(recipe)}</h1>",
        table(["", "rate"], rows),
        figure(drawn, "learning-rate"),
        f"<h2>Next</h2><pre>{escaped(command)}</pre>",
    ]
    return page(f"Learning rate of {recipe}", parts)


SHOWN = 5  # translations with their alignments
LONGEST_SHOWN = 24  # tokens of a source whose alignment is drawn


def write_translation_report(run: Translator, files: Sequence[Path]) -> Path:
    """report.html in the run folder: scores, curves, BLEU by the length of the source, translations and their alignments."""
    parts: list[str | Section] = [f"<h1>{escaped(run.config['recipe']['name'])}</h1>"]
    parts += score_parts(run.folder) + loss_parts(run.folder) + translation_parts(run, files)
    path = run.folder / "report.html"
    write_bytes(path, page(run.config["recipe"]["name"], parts).encode())
    return path


def score_parts(folder: Path) -> list[Section]:
    """A table and a chart for each split that was scored."""
    path, remedy = folder / "metrics.json", "remove it and card.md, and --resume the run"
    metrics = read_record(path, remedy)
    try:
        scored = {split: metrics[f"{split}_scores"] for split in ("valid", "test") if metrics.get(f"{split}_scores")}
        return [split_section(split, scores) for split, scores in scored.items()]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{path} is damaged ({type(error).__name__}: {str(error)[:200]}): {remedy}") from error


def caption_section(split: str, scores: Mapping[str, Any]) -> Section:
    bleu = "–" if scores.get("bleu") is None else f"{scores['bleu']:.2f}"
    rows = [[split, f"{scores['cider']:.3f}", bleu, f"{scores['exact_match']:.1%}", f"{scores['pictures']:,}"]]
    parts = [table(["", "CIDEr-D", "BLEU", "exact match", "pictures"], rows, looks([split]))]
    if "pointing" in scores:
        parts.append(
            note(
                f"Attention: {scores['attention_share']:.1%} of it lies on what a word names; its largest weight does for "
                f"{scores['pointing']:.1%} of {scores['named_words']:,} words (chance: {scores['pointing_chance']:.1%})."
            )
        )
    return Section(f"Captions of {split}", "".join(parts))


def split_section(split: str, scores: Mapping[str, Any]) -> Section:
    if "cider" in scores:
        return caption_section(split, scores)
    rows = [[f"{split}", f"{scores['bleu']:.2f}", f"{scores['chrf']:.2f}", f"{scores['lines']:,}"]]
    middle = [((part["shortest"] + part["longest"]) / 2, part["bleu"]) for part in scores["by_length"]]
    drawn = chart("words of the source", "BLEU", [Curve(split, middle)], better="higher")
    parts = [
        table(["", "BLEU", "chrF", "lines"], rows, looks([split])),
        note(f"{scores['bleu_signature']}; {scores['chrf_signature']}"),
        figure(drawn, f"bleu-by-length-{split}"),
    ]
    return Section(f"Translation of {split}", "".join(parts))


def loss_parts(folder: Path) -> list[Section]:
    lines = read_log(folder)
    curves = [
        Curve("training (smoothed targets)", [(line["step"], line["loss"]) for line in lines if "loss" in line]),
        Curve("validation", [(line["step"], line["valid"]) for line in lines if "valid" in line]),
    ]
    signs = looks(curve.name for curve in curves)
    known = [curve for curve in curves if curve.points]
    rows = [[curve.name, f"{curve.points[-1][1]:.4f}"] for curve in known]
    drawn = chart("step", "loss, nats per token", known, signs, better="lower")
    return [Section("Loss", table(["", "last"], rows, signs) + figure(drawn, "loss"))]


def translation_parts(run: Translator, files: Sequence[Path]) -> list[Section]:
    parts, reads = [], run.source_tokenizer
    pairs = [pair for pair in read_pairs(files) if 0 < len(reads.encode(pair.source)) <= LONGEST_SHOWN][:SHOWN]
    aligned = run.learner.backbone.aligned
    found = run.translate([pair.source for pair in pairs], align=aligned, show=False)
    for pair, (best, *_) in zip(pairs, found, strict=True):
        parts.append(f"<pre>{escaped(pair.source)}\n{escaped(best.text)}\n(reference) {escaped(pair.target)}</pre>")
        if best.alignment is not None:
            tokens = [run.tokenizer.decode([i]) for i in best.tokens]
            places = [*(reads.decode([i]) for i in reads.encode(pair.source)), "end"]
            drawn = matrix(tokens, places, best.alignment.tolist(), "attention of each token", write=percent)
            caption = "Attention of each token (rows) to the source, in per cent; below 5 it is not written."
            parts.append(figure(drawn, f"attention-{len(parts)}", caption))
    return [Section("Translations", "".join(parts))]


def percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.05 else ""
