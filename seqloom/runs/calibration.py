"""calibration.json of a run: the temperature of its probabilities and the threshold of a class, fitted to validation files."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.config import unknown_name
from seqloom.errors import ModelError, UsageError
from seqloom.files import read_record, write_json
from seqloom.metrics.calibration import (
    MIN_TEMPERATURE,
    best_threshold,
    calibration_error,
    fit_temperature,
    reliability,
    scale,
)
from seqloom.progress import say

if TYPE_CHECKING:
    from seqloom.tasks.transfer import Transfer

FILE = "calibration.json"


def fit_calibration(learner: Any, logits: np.ndarray, gold: np.ndarray) -> dict[str, Any]:
    """What a task's settings ask for. logits: (n, classes) of the validation examples; gold: (n,) numbers of their classes."""
    record: dict[str, Any] = {"split": "valid", "examples": len(gold), "temperature": 1.0, "threshold": None}
    if learner.calibrate:
        found = fit_temperature(logits, gold)
        if found < 1.01 * MIN_TEMPERATURE:  # nearly always where no prediction is wrong, which says nothing about doubt
            say(
                f"warning: no temperature fits the {len(gold):,} validation examples, nearly all are predicted right: it stays 1"
            )
            found = 1.0
        record["temperature"] = found
    errors = [error_of(scale(logits, each), gold) for each in (1.0, record["temperature"])]
    record["calibration_error"] = {"before": errors[0], "after": errors[1]}
    if learner.threshold_class is not None:
        number = learner.labels.index(learner.threshold_class)
        if not (gold == number).any():
            raise UsageError(
                f"'task.threshold_class' = {learner.threshold_class!r}: no validation example is of this class: leave it out, or "
                f"give validation files that have it"
            )
        value, f1 = best_threshold(scale(logits, record["temperature"])[:, number], gold == number)
        record["threshold"] = {"class": learner.threshold_class, "probability": value, "f1": f1}
    return record


def error_of(probabilities: np.ndarray, gold: np.ndarray) -> float:
    return calibration_error(reliability(probabilities.max(1).tolist(), (probabilities.argmax(1) == gold).tolist()))


def write_calibration(folder: Path, learner: Any, record: dict[str, Any]) -> None:
    """Writes it into a run folder, and says what it is."""
    write_json(folder / FILE, record)
    errors, threshold = record["calibration_error"], record["threshold"]
    if learner.calibrate:
        say(
            f"temperature {record['temperature']:.3g}, fitted to {record['examples']:,} validation examples: expected "
            f"calibration error {errors['before']:.4f} before, {errors['after']:.4f} after"
        )
    if threshold is not None:
        say(
            f"{threshold['class']!r} is predicted from a probability of {threshold['probability']:.4g} on, with F1 "
            f"{threshold['f1']:.4f} on the validation examples"
        )


def load_calibration(folder: Path, learner: Any) -> None:
    """Gives a learner the calibration of its run folder, if that has one."""
    path = folder / FILE
    if not path.is_file():
        return
    found = read_record(path, "restore it, or train the run anew")
    try:
        temperature, threshold = found["temperature"], found["threshold"]
        if isinstance(temperature, bool) or not 0 < float(temperature) < math.inf:
            raise ValueError(f"the temperature {temperature!r}")
        learner.temperature = float(temperature)
        if threshold is not None:
            set_threshold(learner, str(threshold["class"]), float(threshold["probability"]))
    except (ValueError, KeyError, TypeError, UsageError) as error:
        raise ModelError(f"{path} is damaged ({str(error)[:200]}): restore it, or train the run anew") from error


def set_threshold(learner: "Transfer", name: str, probability: float) -> None:
    """Has a class predicted where its probability is at least this, and the most likely of the others elsewhere."""
    labels = getattr(learner, "labels", None)
    if not labels or not hasattr(learner, "threshold_class"):
        raise UsageError("a threshold is for tasks with classes, classify and pair: leave it out")
    if name not in labels:
        raise UsageError(f"threshold: {unknown_name('class', name, name, list(labels))}")
    if not 0 <= probability <= 1:
        raise UsageError(f"threshold {probability:g}: give a probability from 0 to 1")
    learner.threshold = name, probability  # type: ignore[assignment]
