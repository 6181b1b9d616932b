"""report.html of a run with labelled texts: its scores, their confidence intervals, and its mistakes.

Texts and labels come from users: all of them are escaped on the page, by `charts` or here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqloom.charts import FIT, Curve, Section, bars, chart, escaped, figure, looks, matrix, note, page, table
from seqloom.evaluate.items import Item, ItemScores, Score, score_items
from seqloom.files import write_bytes
from seqloom.metrics.calibration import calibration_error, reliability
from seqloom.metrics.intervals import Interval, bootstrap
from seqloom.runs.card import SCORES
from seqloom.runs.predictor import Predictor
from seqloom.text.tables import PLAIN, Layout
from seqloom.training.log import read_log

MISTAKES = 25  # shown at most
CLASSES = 30  # shown at most in a matrix or a table
LONGEST_NAME = 16  # characters of a class in a picture
LONGEST_TEXT = 600  # characters of the text of a mistake


def write_task_report(run: Predictor, files: Mapping[str, Sequence[Path]], layout: Layout = PLAIN) -> Path:
    """files: by split, of which `train` is left out; layout: of the files. The weights are those of the run folder, which are the
    best ones."""
    name = run.config["recipe"]["name"]
    parts: list[str | Section] = [f"<h1>{escaped(name)}</h1>", note(about(run))]
    parts += [split_section(run, split, paths, layout) for split, paths in files.items() if split != "train"]
    parts += training_curves(run.folder)
    mix = run.learner.mix if run.learner.mix is not None else run.learner.mix_above
    if mix is not None:
        shares = mix.shares.tolist()
        names = ["embedding", *(f"layer {i}" for i in range(1, len(shares)))]
        about_mix = note(f"weights of the scalar mix, scaled by {mix.gamma.item():.3f}")
        drawn = figure(bars(names, shares, "weight in the scalar mix"), "layers")
        parts.append(Section("Weight of each layer", about_mix + drawn))
    path = run.folder / "report.html"
    write_bytes(path, page(name, parts).encode())
    return path


def about(run: Predictor) -> str:
    start = run.config.get("from", {}).get("run")
    begun = "trained from scratch" if start is None else f"starting from the backbone of {start}"
    return (
        f"The task {run.task}, {begun}, seed {run.config['seed']}. The 95% confidence intervals are for other examples, by 2,000 "
        f"bootstrap samples; how much scores vary between seeds is shown by --seeds. "
        f"The baseline is always predicting the most frequent answer."
    )


def split_section(run: Predictor, split: str, paths: Sequence[Path], layout: Layout = PLAIN) -> Section:
    examples = list(run.learner.read(list(paths), layout=layout))
    run.learner.check(examples)
    answers = run.predict_examples(examples)
    scores, found = run.learner.scores(examples, answers), score_items(run.learner, run.task, examples, answers)
    header = ["metric", "score", "95% interval", "baseline", "remark"]
    rows = [score_row(SCORES.get(key, key), each) for key, each in found.scores.items()]
    parts = [table(header, rows, file=f"scores-{split}.csv")]
    if "confusion" in scores:
        parts.append(confusion(scores["confusion"]["labels"], scores["confusion"]["counts"]))
    if run.task in ("classify", "pair"):
        parts.append(reliability_picture(found, run, split))
    each = scores.get("per_class") or scores.get("per_kind")
    if each:
        parts.append(per_class(each, "class" if "per_class" in scores else "entity"))
    return Section(f"{split}: {len(examples):,} examples", "".join(parts + mistakes(found)))


def reliability_picture(found: ItemScores, run: Predictor, split: str) -> str:
    """Accuracy by confidence, beside the line on which probabilities are as they say."""
    bins = reliability([item.confidence for item in found.items], [not item.wrong for item in found.items])
    drawn = chart(
        "probability of the predicted class",
        "share that is right",
        [
            Curve("predictions", [(each.confidence, each.accuracy) for each in bins]),
            Curve("well calibrated", [(0.0, 0.0), (1.0, 1.0)], dash=FIT, markers=False),
        ],
    )
    temperature = run.learner.temperature
    how = "are not calibrated" if temperature == 1 else f"have the temperature {temperature:.3g}, fitted to valid"
    about = note(
        f"Expected calibration error {calibration_error(bins):.4f}, over ten bins of equal width; the probabilities {how}. "
        f"Below the line, predictions are too confident."
    )
    counts = "Examples in each point, from the left: " + ", ".join(f"{each.size:,}" for each in bins) + "."
    return f"<h3>Reliability</h3>{about}{figure(drawn, f'reliability-{split}', counts)}"


def score_row(name: str, score: Score) -> list[str]:
    interval = bootstrap(score.rows, score.of)
    baseline = "–" if score.baseline is None else f"{score.baseline:.4f}"
    return [
        name,
        f"{interval.value:.4f}",
        f"{interval.low:.4f} – {interval.high:.4f}" if interval.is_bounded else "–",
        baseline,
        compare_with_baseline(interval, score),
    ]


def compare_with_baseline(interval: Interval, score: Score) -> str:
    if score.baseline is None or interval.low > score.baseline:
        return ""
    return "at chance" if interval.contains(score.baseline) else "below chance"


def confusion(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Each row is normalised by the number of its gold examples."""
    size = [sum(row) for row in counts]
    largest = sorted(sorted(range(len(labels)), key=lambda i: -size[i])[:CLASSES])
    names = [shorten(labels[i], LONGEST_NAME) for i in largest]
    shares = [[counts[i][j] / max(size[i], 1) for j in largest] for i in largest]
    shown = "" if len(labels) <= CLASSES else f", the {CLASSES} largest of {len(labels):,} classes"
    heading = f"<h3>Confusion matrix (rows: gold, columns: predicted){shown}</h3>"
    caption = "Shares of the gold examples of each class."
    return heading + figure(matrix(names, names, shares, "confusion matrix"), "confusion", caption)


def per_class(each: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    largest = sorted(each.items(), key=lambda part: -part[1]["count"])[:CLASSES]
    scores = ("precision", "recall", "f1")
    rows = [
        [shorten(name, 80), *(f"{part[key]:.4f}" for key in scores), f"{part['count']:,}"] for name, part in largest
    ]
    shown = "" if len(each) <= CLASSES else f", the {CLASSES} largest of {len(each):,}"
    return f"<h3>By {kind}{shown}</h3>" + table(
        [kind, "precision", "recall", "F1", "count"], rows, file=f"by-{kind}.csv"
    )


def mistakes(found: ItemScores) -> list[str]:
    """The most confident ones."""
    wrong = sorted((item for item in found.items if item.wrong), key=lambda item: -item.confidence)
    if not wrong:
        return ["<p>Mistakes: none</p>"] if found.items else []
    most = "the largest" if found.measure == "error" else "the most confident"
    heading = f"Mistakes: {most} {min(len(wrong), MISTAKES)} of {len(wrong):,}"
    shown = [mistake(item, found.measure) for item in wrong[:MISTAKES]]
    return [f"<details><summary>{heading}</summary>", *shown, "</details>"]  # folded: they are long


def mistake(item: Item, measure: str) -> str:
    facts = [f"gold: {item.gold}", f"predicted: {item.predicted}", f"{measure}: {item.confidence:.4f}"]
    return f"<pre>{escaped(shorten(item.text, LONGEST_TEXT))}\n{escaped(chr(10).join(facts))}</pre>"


def training_curves(folder: Path) -> list[Section]:
    """Loss and score by step."""
    lines = read_log(folder)
    curves = [
        Curve("training", [(line["step"], line["loss"]) for line in lines if "loss" in line]),
        Curve("validation", [(line["step"], line["valid"]) for line in lines if "valid" in line]),
    ]
    score = Curve("score on valid", [(line["step"], line["score"]) for line in lines if "score" in line])
    parts = []
    for heading, better, group in (("Loss", "lower", curves), ("Score", "", [score])):
        known = [curve for curve in group if curve.points]
        signs = looks(curve.name for curve in known)
        if known:
            last = table(["", "last"], [[curve.name, f"{curve.points[-1][1]:.4f}"] for curve in known], signs)
            drawn = chart("step", heading.lower(), known, signs, better=better)
            parts.append(Section(heading, last + figure(drawn, heading.lower())))
    return parts


def shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
