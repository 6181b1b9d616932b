"""Tasks of ours as `transformers` has them: a layer for labels, and in some families another between it and the body.

Only what its heads compute can be handed on: the last layer read as the family's paper reads it, nothing between that learnt
something else (a BiLSTM, a CRF, a mix of layers). What a folder's head is for, its config.json alone says: several have the
same tensors.
"""

from typing import Any

from torch import Tensor

from seqloom.convert.family import Family, Head
from seqloom.convert.names import stored_as
from seqloom.errors import ModelError, UsageError
from seqloom.tasks.tag import known_tags

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
SUMMARY = "sequence_summary.summary"  # what XLNet calls it, before the layer for labels of whole texts


def check_plain(section: dict[str, Any], where: str) -> None:
    """Raise ModelError for a task that transformers has no head for. section: of the recipe."""
    wanted = {"layers": "last", "reader": "none", "crf": False, "align": "first", "pool": "summary", "lm": 0}
    other = [f"task.{name} = {section[name]!r}" for name, plain in wanted.items() if section.get(name, plain) != plain]
    if section["name"] not in ARCHITECTURES or other:
        reason = ", ".join(other) or f"the task {section['name']}"
        raise ModelError(f"{where}: {reason} cannot be exported: heads of transformers read the last layer directly")


def has_task_heads(family: Family) -> bool:
    return "pooler" in family.table or family.model == "xlnet"


def task_head(family: Family, model_type: str, section: dict[str, Any], summarised: bool) -> Head:
    """summarised: whether ours has a layer between of its own."""
    name = ARCHITECTURES[section["name"]]
    place = "classifier.out_proj" if in_head(model_type, name) else "classifier"
    if name == "QuestionAnswering":
        place = "qa_outputs"
    if model_type == "xlnet":
        place = "logits_proj" if name in ("SequenceClassification", "MultipleChoice") else place
        name = "QuestionAnsweringSimple" if name == "QuestionAnswering" else name  # the other one searches by beams
    table: dict[str, Any] = {"head": stored_as(place)}
    if summarised:
        table["summary.dense"] = between(family, model_type, name)
    return Head("", f"{stem_of(family)}For{name}", {"task": section}, table)


def stem_of(family: Family) -> str:
    return family.heads[0].architecture.split("For")[0]


def stored_head(family: Family, config: dict[str, Any], task: str | None, where: str) -> Head | None:
    """Of a folder that was fine-tuned; None: it does not say so. task: of those with the same head the one that is meant."""
    named = config.get("architectures")
    architecture = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    name = architecture.removeprefix(f"{stem_of(family)}For").removesuffix("Simple")
    if not has_task_heads(family) or name == architecture or name not in ARCHITECTURES.values():
        return None
    section = section_of(name, config, task, where)
    model_type = config["model_type"]
    return task_head(family, model_type, section, between(family, model_type, name) != family.table.get("pooler"))


def section_of(name: str, config: dict[str, Any], task: str | None, where: str) -> dict[str, Any]:
    kinds = [kind for kind, architecture in ARCHITECTURES.items() if architecture == name]
    if name == "SequenceClassification":
        number = config.get("problem_type") == "regression" or len(labels_in(config, where)) == 1
        kinds = ["regress"] if number else ["classify", "pair"]
        if config.get("problem_type") == "multi_label_classification":
            raise ModelError(f"{where}: a multi-label classifier cannot be imported: here each text has one class")
    if task is not None and task not in kinds:
        raise UsageError(f"--task {task}: {where} has a head for {' or '.join(kinds)}")
    chosen = task or kinds[0]
    if chosen == "span":
        return {"name": chosen, "unanswered": True}  # one that has learnt to answer all finds it unlikely
    if chosen not in ("classify", "pair", "tag"):
        return {"name": chosen}
    labels = labels_in(config, where)
    return {"name": chosen, "labels": labels} | ({"scheme": scheme_in(labels)} if chosen == "tag" else {})


def labels_in(config: dict[str, Any], where: str) -> list[str]:
    """In the order of the layer's rows."""
    named = config.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    numbers = {str(i) for i in range(len(named))} if isinstance(named, dict) else set()
    if not numbers or set(named) != numbers or not all(isinstance(each, str) for each in named.values()):
        raise ModelError(f"{where}: config.json: id2label must name the labels by their numbers from 0")
    labels = [named[str(i)] for i in range(len(named))]
    if len(set(labels)) < len(labels):
        raise ModelError(f"{where}: config.json: id2label has the same label twice")
    return labels


def scheme_in(labels: list[str]) -> str | None:
    """Of tags: one in which all of them stand, and no others; None: plain labels."""
    return next((each for each in ("iob2", "iobes") if sorted(known_tags(labels, each)) == sorted(labels)), None)


def in_our_order(tensors: dict[str, Tensor], section: dict[str, Any]) -> dict[str, Tensor]:
    """The rows of a layer for tags, which ours has sorted."""
    if section.get("scheme") is None:
        return tensors
    rows = [section["labels"].index(tag) for tag in known_tags(section["labels"], section["scheme"])]
    return tensors | {name: tensors[name][rows] for name in ("head.weight", "head.bias")}


def between(family: Family, model_type: str, name: str) -> Any:
    if model_type == "electra" and name == "MultipleChoice":
        return stored_as(SUMMARY)
    if model_type == "xlnet" and name in ("SequenceClassification", "MultipleChoice"):
        return stored_as(SUMMARY)
    return stored_as("classifier.dense") if in_head(model_type, name) else family.table.get("pooler")


def in_head(model_type: str, name: str) -> bool:
    """Whether the layer between is a part of the head."""
    return model_type in OWN_LAYER and name == "SequenceClassification"


def has_pooler(head: Head, family: Family, values: dict[str, Any]) -> bool:
    """Whether the body has a pooler in transformers: the dense layer may be stored as it; heads for tokens have none."""
    if head.architecture.endswith(("TokenClassification", "QuestionAnswering", "QuestionAnsweringSimple")):
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


def rescale_regression(ours: dict[str, Tensor], learner: Any, section: dict[str, Any]) -> dict[str, Tensor]:
    """Rescale the output layer: here it predicts standard deviations from the mean, in transformers the number itself."""
    if section["name"] != "regress":
        return ours
    weight, bias = ours["head.weight"] * learner.spread, ours["head.bias"] * learner.spread + learner.mean
    return ours | {"head.weight": weight, "head.bias": bias}
