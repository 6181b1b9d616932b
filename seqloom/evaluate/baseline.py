"""Hand-made features and a linear model: what a network has to beat.

Features of a word, after Stab & Gurevych, 2017 (Computational Linguistics 43:3), whose task is to find the parts of arguments:

    structural     where the word stands in its sentence, absolutely and relatively; punctuation before, behind and at it
    lexical        the word, its shape, its ends, and the two words on either side
    probability    how likely a part begins here after the one, two or three words before, as counted in the training files

Departures: no parser and no tagger are at hand, so there are no parts of speech and no tree; files have no paragraphs, so there
is no place of the sentence in its text. The features of whole texts are their words and pairs of words (lexical), their length,
their punctuation and their capitals (structural). The model is logistic regression by stochastic gradients
(scikit-learn), its penalty chosen on the valid files; or for tags a conditional random field (evaluate/feature_crf).
"""

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.errors import ModelError, UsageError
from seqloom.metrics.entities import convert, entities
from seqloom.progress import say
from seqloom.tasks import task_class
from seqloom.text.tables import NOTHING
from seqloom.text.tagged import Sentence

GROUPS = ("structural", "lexical", "probability")
TASKS = ("classify", "pair", "tag")
MODELS = ("regression", "crf")
SIZE = 1 << 18  # of the hashed feature vector
PENALTIES = (1e-6, 1e-5, 1e-4)
ORDERS = (1, 2, 3)  # words before

Features = dict[str, float]


def baseline(
    task: str,
    train: Sequence[str | Path],
    valid: Sequence[str | Path],
    test: Sequence[str | Path] = (),
    groups: Sequence[str] = GROUPS,
    seed: int = 0,
    columns: Mapping[str, str] = NOTHING,
    encoding: str | None = None,
    model: str = "regression",
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Scores by split, with the penalty that was chosen; and the predictions. model: "regression", or "crf" for tags."""
    check_features(task, groups, model)
    names = {"train": train, "valid": valid, "test": test}
    cls: Any = task_class(task)
    layout = cls.layout(columns, encoding, need_labels=True)
    read = {
        name: list(cls.read([Path(file) for file in files], layout=layout)) for name, files in names.items() if files
    }
    about = cls.survey(read["train"])
    for examples in read.values():
        cls.check_against(examples, about)
    work = Words(read["train"], about, groups) if task == "tag" else Texts(groups)
    hasher, regression = import_sklearn()
    rows = {
        name: hasher.transform(row for example in examples for row in work.features(example))
        for name, examples in read.items()
    }
    labels = [label for example in read["train"] for label in work.labels(example)]
    say(f"{task}: {rows['train'].shape[0]:,} rows to learn from, {len(set(labels))} labels, {', '.join(groups)}")

    def valid_score(predict: Callable[[str], Any]) -> float:
        return cls.scores(read["valid"], work.predictions(read["valid"], predict("valid")))[work.main_metric]

    if model == "crf":
        predict, chosen = fit_crf(read, rows, labels, valid_score, seed)
    else:
        predict, chosen = fit_regression(regression, rows, labels, valid_score, seed)
    predictions = {name: work.predictions(read[name], predict(name)) for name in read if name != "train"}
    scores = {f"{name}_scores": cls.scores(read[name], predicted) for name, predicted in predictions.items()}
    return {
        "task": task,
        "features": list(groups),
        "model": model,
        **chosen,
        "seed": seed,
        "main_metric": work.main_metric,
        "headline": work.main_metric,  # its name before 0.2, kept for one version
        **scores,
    }, predictions


Predict = Callable[[str], Any]  # the name of a split → its labels


def fit_regression(
    regression: Any, rows: Mapping[str, Any], labels: list[str], score: Callable[[Predict], float], seed: int
) -> tuple[Predict, dict[str, Any]]:
    """With the penalty that is best on the valid files."""
    tried = []
    for penalty in PENALTIES:
        fitted = regression(loss="log_loss", alpha=penalty, average=True, max_iter=30, random_state=seed).fit(
            rows["train"], labels
        )
        found = score(lambda name, fitted=fitted: fitted.predict(rows[name]))  # type: ignore[misc]
        tried.append((found, penalty, fitted))
        say(f"penalty {penalty:g}: {found:.4f} on the valid files")
    _, penalty, best = max(tried, key=lambda each: each[0])
    return lambda name: best.predict(rows[name]), {"penalty": penalty}


def fit_crf(
    read: Mapping[str, list[Any]],
    rows: Mapping[str, Any],
    labels: list[str],
    score: Callable[[Predict], float],
    seed: int,
) -> tuple[Predict, dict[str, Any]]:
    from seqloom.evaluate.feature_crf import FeatureCrf

    sizes = {name: [len(sentence.words) for sentence in sentences] for name, sentences in read.items()}
    chain = FeatureCrf(SIZE, sorted(set(labels)))

    def predict(name: str) -> list[str]:
        return chain.predict(rows[name], sizes[name])

    return predict, {"passes": chain.fit(rows["train"], sizes["train"], labels, lambda: score(predict), seed)}


def check_features(task: str, groups: Sequence[str], model: str = "regression") -> None:
    """Raises where there are no such features, or none of the task."""
    if task not in TASKS:
        raise UsageError(f"--task {task}: hand-made features are there for {', '.join(TASKS)}")
    if model not in MODELS:
        raise UsageError(f"--model {model}: choose one of {', '.join(MODELS)}")
    if model == "crf" and task != "tag":
        raise UsageError(f"--model crf is for sequences of tags, not for {task}: leave it out")
    wrong = [group for group in groups if group not in GROUPS]
    if wrong or not groups:
        raise UsageError(f"--features {','.join(wrong)}: choose among {', '.join(GROUPS)}")
    if task != "tag" and tuple(groups) == ("probability",):
        raise UsageError("--features probability: it is one of words, for the task tag")


def import_sklearn() -> tuple[Any, Any]:
    try:
        from sklearn.feature_extraction import FeatureHasher
        from sklearn.linear_model import SGDClassifier
    except ImportError:
        raise ModelError("baselines need scikit-learn: install seqloom[baselines]") from None
    return FeatureHasher(SIZE), SGDClassifier


class Texts:
    """Features of whole texts, or of pairs."""

    main_metric = "accuracy"

    def __init__(self, groups: Sequence[str]):
        self.groups = groups

    def features(self, example: Any) -> Iterator[Features]:
        found: Counter[str] = Counter()
        seen = []
        for place, text in enumerate(example.texts):
            words = [word.lower() for word in re.findall(r"\w+|[^\w\s]", text)]
            seen.append(set(words))
            if "lexical" in self.groups:
                found.update(f"{place} {word}" for word in words)
                found.update(f"{place} {a} {b}" for a, b in itertools.pairwise(words))
            if "structural" in self.groups:
                found[f"{place} length {int(math.log2(len(words) + 1))}"] += 1
                found.update(f"{place} mark {mark}" for mark in words if is_punctuation(mark))
                found[f"{place} capitals"] += sum(word[:1].isupper() for word in text.split())
        if len(seen) == 2 and "structural" in self.groups:
            share = len(seen[0] & seen[1]) / max(len(seen[0] | seen[1]), 1)
            found[f"in common {int(10 * share)}"] += 1
        total = math.sqrt(sum(value * value for value in found.values())) or 1.0
        yield {name: value / total for name, value in found.items()}

    def labels(self, example: Any) -> list[str]:
        return [str(example.label)]

    def predictions(self, examples: Sequence[Any], labels: Sequence[str]) -> list[dict[str, Any]]:
        return [{"label": str(label)} for label in labels]


class Words:
    """Features of every word; its tag depends on the one before only through them."""

    def __init__(self, train: Sequence[Sentence], about: dict[str, Any], groups: Sequence[str]):
        self.groups, self.scheme = groups, about["scheme"]
        self.main_metric = "accuracy" if self.scheme is None else "f1"
        counts: Counter[tuple[str, ...]] = Counter()
        begun: Counter[tuple[str, ...]] = Counter()
        for sentence in train:
            words = [word.lower() for word in sentence.words]
            starts = [tag.startswith("B") for tag in (convert(sentence.tags, "iob2") if self.scheme else sentence.tags)]
            for i, starting in enumerate(starts):
                for before in histories(words, i):
                    counts[before] += 1
                    begun[before] += starting
        self.begins = {before: (begun[before], many) for before, many in counts.items()}

    def features(self, sentence: Sentence) -> Iterator[Features]:
        words = [word.lower() for word in sentence.words]
        count = len(words)
        for i, word in enumerate(sentence.words):
            found: list[str] = ["always"]
            if "lexical" in self.groups:
                found += [f"{k} {words[i + k] if 0 <= i + k < count else '-'}" for k in (-2, -1, 0, 1, 2)]
                found += [f"pair {words[i - 1] if i else '-'} {words[i]}", f"shape {shape(word)}"]
                found += [f"begins {words[i][:k]}" for k in (2, 3)] + [f"ends {words[i][-k:]}" for k in (1, 2, 3)]
            if "structural" in self.groups:
                found += [f"from start {min(i, 8)}", f"to end {min(count - 1 - i, 8)}", f"relative {10 * i // count}"]
                marks = [j for j in (i - 1, i, i + 1) if 0 <= j < count and is_punctuation(words[j])]
                found += [f"mark {j - i} {words[j]}" for j in marks] + [f"mark {j - i}" for j in marks]
            if "probability" in self.groups:
                for order, before in zip(ORDERS, histories(words, i), strict=False):
                    hits, many = self.begins.get(before, (0, 0))
                    # a word of the training files must not be recognised by its own label: few counts are treated as none
                    found.append(f"begin {order} {'?' if many < 3 else round(10 * hits / many)}")
            yield dict.fromkeys(found, 1.0)

    def labels(self, sentence: Sentence) -> list[str]:
        return list(sentence.tags)

    def predictions(self, examples: Sequence[Sentence], labels: Sequence[str]) -> list[dict[str, Any]]:
        rest = iter(np.asarray(labels).tolist())
        found: list[dict[str, Any]] = []
        for each in examples:
            tags = [next(rest) for _ in each.words]
            parts = {} if self.scheme is None else {"entities": [part._asdict() for part in entities(tags)]}
            found.append({"words": list(each.words), "tags": tags, **parts})
        return found


def histories(words: Sequence[str], i: int) -> list[tuple[str, ...]]:
    """The one, two and three words before, and the start of the sentence where there are fewer."""
    padded = ("-", "-", "-", *words)
    return [tuple(padded[i + 3 - order : i + 3]) for order in ORDERS]


def is_punctuation(word: str) -> bool:
    return bool(word) and all(unicodedata.category(character)[0] in "PS" for character in word)


def shape(word: str) -> str:
    """Capitals as A, small letters as a, digits as 0; runs as one."""
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else c for c in word]
    return "".join(kind for i, kind in enumerate(kinds) if not i or kind != kinds[i - 1])
