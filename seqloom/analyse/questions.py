"""Answers of trained models about one text, for saliency: what a run can be asked follows from what it can do."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.analyse.attention import find_token
from seqloom.analyse.read import name_token, read_text
from seqloom.analyse.saliency import Question
from seqloom.batch import Pair, pack, ragged, to_device, wide
from seqloom.decode.fill import read_gaps
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.encode import Reading
from seqloom.tokens.tokenizer import Tokenizer


def embedding_of(model: Any) -> Any:
    found = getattr(model, "embedding", None)
    if found is None or not list(found.parameters()):
        raise UsageError("this model reads no embedded tokens: there is nothing that its answers could be traced to")
    return found


def name_tokens(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [name_token(tokenizer, i) for i in ids]


def about_next_word(learner: Any, reading: Reading, text: str, token: str | None) -> Question:
    """log p of a token after all before it; the last one unless given."""
    read = read_text(reading, text)
    places = [i for i, _ in enumerate(read.tokens)][read.own]
    own = read.tokens[read.own]
    which = len(own) - 1 if token is None else find_token(own, token)
    place = places[which]
    if place == 0:
        raise DataError("the first token has no token before it: choose another with --token")
    target, device = read.batch.ids[place : place + 1], read.batch.ids.device
    before = ragged(read.batch.ids[:place], torch.tensor([place], device=device))
    if read.batch.chars is not None:
        before = before._replace(chars=read.batch.chars[:place])
    mask = np.zeros(place, bool)
    mask[places[:which]] = True
    if not mask.any():
        raise DataError(f"no word stands before {own[which]!r}: choose a later token with --token")

    def answer() -> Tensor:
        return -learner.softmax(learner.backbone(before).hidden[-1:], target, each=True)[0]

    name = f"log p({own[which]!r} | what stands before it)"
    return Question(read.tokens[:place], mask, embedding_of(learner.backbone), answer, name)


def about_gap(
    learner: Any, tokenizer: Tokenizer, text: str, surround: tuple[list[int], list[int]], word: str | None
) -> Question:
    """log p of a word in the first gap of a text; the likeliest unless given."""
    ids, gaps = read_gaps(text, tokenizer)
    if not gaps:
        raise DataError(f"no gap in {text[:60]!r}: write [MASK] where the answer is to be found")
    row = [*surround[0], *ids, *surround[1]]
    limit = learner.backbone.max_len
    if limit is not None and len(row) > limit:
        raise DataError(
            f"the text has {len(row):,} tokens with special tokens, and the model reads {limit:,}: shorten it"
        )
    place = len(surround[0]) + gaps[0]
    body = learner.reader
    device = next(body.parameters()).device
    batch = to_device(pack([row]), device)

    def log_probs() -> Tensor:
        return torch.log_softmax(wide(learner.scores(body(batch).hidden[place : place + 1])), 1)[0]

    if word is None:
        with torch.no_grad():
            chosen = int(log_probs().argmax())
    else:
        chosen = single_token(tokenizer, word)
    own = np.zeros(len(row), bool)
    own[len(surround[0]) : len(row) - len(surround[1])] = True
    own[place] = False
    name = f"log p({tokenizer.token(chosen)!r} in the gap)"
    return Question(name_tokens(tokenizer, row), own, embedding_of(body), lambda: log_probs()[chosen], name)


def single_token(tokenizer: Tokenizer, word: str) -> int:
    for written in (word, f" {word}"):
        ids = tokenizer.encode(written)
        if len(ids) == 1 and ids[0] != tokenizer.unk_id:
            return ids[0]
    raise UsageError(f"--label {word}: it is no single token of this vocabulary: choose another word")


def about_target(
    learner: Any, reading: Reading, text: str, start: list[int], target: list[int], names: list[str], token: str | None
) -> Question:
    """log p of a token of what an encoder–decoder writes, after those before it; the last one unless given."""
    source = read_text(reading, text)
    if not target:
        raise DataError(f"nothing is written for {text[:40]!r}: give a --target")
    which = len(names) - 1 if token is None else find_token(names, token)
    model = learner.backbone
    batch = to_device(pack([[*start, *target[:which]]]), source.batch.ids.device)
    asked = torch.tensor(target[which : which + 1], device=batch.ids.device)

    def answer() -> Tensor:
        return -learner.softmax(model(Pair(source.batch, batch, batch.ids)).hidden[-1:], asked, each=True)[0]

    own = np.zeros(len(source.tokens), bool)
    own[source.own] = True
    name = f"log p({names[which]!r} as token {which + 1} of the target)"
    return Question(source.tokens, own, embedding_of(model.encoder), answer, name)


def about_label(learner: Any, tokenizer: Tokenizer, example: Any, label: str | None, word: int | None) -> Question:
    """log p of a class of a text, or of the tag of a word; a predicted number itself. label: the likeliest unless given."""
    batch = example.batch
    if batch.num_sequences > 1:
        raise DataError("the text is read in several pieces: give a shorter one")
    row = word or 0

    def scores() -> Tensor:
        return learner.logits(learner.features(batch)[0], example)[row]

    labels = list(getattr(learner, "labels", ()))
    own = example.own.cpu().numpy().astype(bool)
    tokens = name_tokens(tokenizer, batch.ids.tolist())
    embedding = embedding_of(learner.backbone.encoder if hasattr(learner.backbone, "encoder") else learner.backbone)
    if not labels:
        return Question(tokens, own, embedding, lambda: scores().flatten()[0], "the predicted number")
    if label is not None and label not in labels:
        raise UsageError(f"--label {label}: the labels are {', '.join(map(str, labels[:20]))}: choose one")
    with torch.no_grad():
        chosen = labels.index(label) if label is not None else int(scores().argmax())
    name = f"log p({labels[chosen]!r})"
    return Question(tokens, own, embedding, lambda: F.log_softmax(wide(scores()), 0)[chosen], name)
