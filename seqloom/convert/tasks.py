"""Tasks of ours as `transformers` has them: a layer for labels, and in some families another between it and the body.

Only what its heads compute can be handed on: the last layer read as the family's paper reads it, nothing between that learnt
something else (a BiLSTM, a CRF, a mix of layers).
"""

from typing import Any

from torch import Tensor

from seqloom.convert.family import Family, Head
from seqloom.convert.names import kept
from seqloom.errors import ModelError

ARCHITECTURES = {
    "classify": "SequenceClassification",
    "pair": "SequenceClassification",
    "regress": "SequenceClassification",
    "choose": "MultipleChoice",
    "tag": "TokenClassification",
    "span": "QuestionAnswering",
}
# families whose heads bring the layer between themselves; the others have it in their body, as a pooler
OWN_LAYER = ("roberta", "xlm-roberta", "electra")


def check_plain(section: dict[str, Any], where: str) -> None:
    """section: the recipe's, of a task that tells something about texts."""
    wanted = {"layers": "last", "reader": "none", "crf": False, "align": "first", "pool": "summary", "lm": 0}
    other = [f"task.{name} = {section[name]!r}" for name, plain in wanted.items() if section.get(name, plain) != plain]
    if section["name"] not in ARCHITECTURES or other:
        told = ", ".join(other) or f"the task {section['name']}"
        raise ModelError(
            f"{where}: {told} cannot be exported: heads elsewhere read the last layer, and nothing is between"
        )


def task_head(family: Family, model_type: str, learner: Any, section: dict[str, Any]) -> Head:
    name = ARCHITECTURES[section["name"]]
    place = "classifier.out_proj" if in_head(model_type, name) else "classifier"
    if name == "QuestionAnswering":
        place = "qa_outputs"
    table: dict[str, Any] = {"head": kept(place)}
    if getattr(getattr(learner, "summary", None), "dense", None) is not None:
        table["summary.dense"] = between(family, model_type, name)
    stem = family.heads[0].architecture.split("For")[0]
    return Head("", f"{stem}For{name}", {"task": section}, table)


def between(family: Family, model_type: str, name: str) -> Any:
    if model_type == "electra" and name == "MultipleChoice":
        return kept("sequence_summary.summary")
    return kept("classifier.dense") if in_head(model_type, name) else family.table["pooler"]


def in_head(model_type: str, name: str) -> bool:
    """Whether the layer between is a part of the head."""
    return model_type in OWN_LAYER and name == "SequenceClassification"


def has_pooler(head: Head, family: Family, values: dict[str, Any]) -> bool:
    """Whether the body has one elsewhere: the layer between may stand for it; heads of single tokens have none."""
    if head.architecture.endswith(("TokenClassification", "QuestionAnswering")):
        return False
    return bool(values.get("pooler")) or head.table.get("summary.dense") == family.table.get("pooler")


def label_values(learner: Any, section: dict[str, Any]) -> dict[str, Any]:
    """What config.json says of labels."""
    if section["name"] == "regress":
        return {"num_labels": 1, "problem_type": "regression"}
    labels = getattr(learner, "labels", []) if section["name"] in ("classify", "pair", "tag") else []
    if not labels:
        return {}
    named = {str(i): label for i, label in enumerate(labels)}
    single = {"problem_type": "single_label_classification"} if section["name"] != "tag" else {}
    return {"id2label": named, "label2id": {label: int(i) for i, label in named.items()}, **single}


def in_their_numbers(ours: dict[str, Tensor], learner: Any, section: dict[str, Any]) -> dict[str, Tensor]:
    """A number is learnt as so many deviations from the mean; elsewhere the layer tells the number itself."""
    if section["name"] != "regress":
        return ours
    weight, bias = ours["head.weight"] * learner.spread, ours["head.bias"] * learner.spread + learner.mean
    return ours | {"head.weight": weight, "head.bias": bias}
