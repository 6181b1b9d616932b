"""Which experts of a mixture words of each kind go through: by part of speech, or by any other tags of words.

A token counts with its gates: what it gets of each expert sums to 1. A token belongs to the word in which it begins. How much a
tag tells of the expert is the mutual information of the two, in bits; of experts that ignore tags it is 0. It is a little above
0 by chance, the more so the fewer words there are of each tag.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.analyse.read import read_text
from seqloom.blocks.experts import Experts
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.encode import Reading
from seqloom.text.tagged import Sentence, word_spans

MOST = 2000  # sentences that are read


class ExpertUse(NamedTuple):
    tags: list[str]  # most frequent first
    counts: np.ndarray  # (tags,) tokens of each
    use: list[np.ndarray]  # of each layer with experts (tags, experts): the sum of the shares of its tokens
    names: list[str]  # of these layers


def surface(word: str) -> str:
    """What a word looks like, where nobody has tagged it."""
    if not any(character.isalnum() for character in word):
        return "punctuation"
    if any(character.isdigit() for character in word):
        return "with digits"
    return "capitalised" if word[0].isupper() else "lower case"


def plain_sentences(texts: Iterable[str]) -> list[Sentence]:
    found = []
    for number, text in enumerate(texts):
        words = [text[a:b] for a, b in word_spans(text)]
        if words:
            found.append(Sentence(words, [surface(word) for word in words], f"text {number + 1}"))
    return found


@torch.no_grad()
def expert_use(reading: Reading, sentences: Sequence[Sentence]) -> ExpertUse:
    """Raises UsageError for a model without experts."""
    backbone: Any = reading.encoder.backbone
    parts = {name: part for name, part in backbone.named_modules() if isinstance(part, Experts)}
    if not parts:
        raise UsageError(
            "--show experts is for models with experts, and this one has none: train it with model.experts"
        )
    if reading.backward:
        raise UsageError("--show experts is for models that read from the beginning of a text")
    tags, shares = read_shares(reading, sentences[:MOST], parts)
    kinds = list(dict.fromkeys(tags))
    numbers = {tag: i for i, tag in enumerate(kinds)}
    where = [numbers[tag] for tag in tags]
    counts = np.bincount(where, minlength=len(kinds))
    order = np.argsort(-counts, kind="stable")
    use = np.zeros((len(parts), len(kinds), shares.shape[2]))
    for layer in range(len(parts)):
        np.add.at(use[layer], where, shares[layer])
    names = [name_layer(name) for name in parts]
    return ExpertUse([kinds[i] for i in order], counts[order], [each[order] for each in use], names)


def read_shares(
    reading: Reading, sentences: Sequence[Sentence], parts: Mapping[str, Experts]
) -> tuple[list[str], np.ndarray]:
    """The tag of every token that is read, and what it gets of each expert (layers, tokens, experts)."""
    tags: list[str] = []
    found: list[np.ndarray] = []
    read: dict[str, torch.Tensor] = {}

    def remember(name: str) -> Any:
        return lambda module, given: read.update({name: module.shares(given[0])})

    with ExitStack() as hooks:
        for name, part in parts.items():
            hooks.callback(part.register_forward_pre_hook(remember(name)).remove)
        for sentence in sentences:
            text = " ".join(sentence.words)
            if not text.strip():
                continue
            try:
                batch, _, own = read_text(reading, text, sentence.place, longest=None)
            except DataError:  # of many sentences some are longer than the model reads
                continue
            reading.encoder.backbone(batch)
            _, spans = reading.tokenizer.encode_with_offsets(text)
            begins = np.cumsum([0, *(len(word) + 1 for word in sentence.words)])[:-1]
            # a token may begin with the blank before its word
            starts = [begin + (text[begin:end][:1] == " ") for begin, end in spans]
            words = np.searchsorted(begins, starts, side="right") - 1
            tags += [sentence.tags[i] for i in words]
            found.append(torch.stack([read[name][own] for name in parts]).cpu().numpy())
    if not tags:
        raise DataError("there is no word to read: give a file with sentences")
    return tags, np.concatenate(found, 1)


def name_layer(module: str) -> str:
    """The name of the layer that a module stands in, counted from 1; its own where it stands in none."""
    return f"layer {int(module.split('layers.')[1].split('.')[0]) + 1}" if "layers." in module else module


def information(use: np.ndarray) -> float:
    """The mutual information of tag and expert, in bits, from (tags, experts) sums of shares."""
    joint = use / use.sum()
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    inside = joint > 0
    return float((joint[inside] * np.log2(joint[inside] / product[inside])).sum())
