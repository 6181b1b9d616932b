"""Sequence labelling: a tag for every word, for entities, chunks or parts of speech. One linear layer over one vector for each
word, and a softmax or a CRF.

A word is read at its first token (Devlin et al., 2018) or by the mean of all of its tokens. With `crf` the tags of a sentence
are predicted together (Lample et al., 2016; Ma & Hovy, 2016), and transitions that their scheme forbids have probability 0.

Words are encoded one by one, with a blank before those that have one in the text: every token is of one word. A word of which a
tokenizer leaves nothing (a control character, a rare kind of blank) is read as the unknown token, or as a separator where the
vocabulary has none, so that it gets a tag like any other. A sentence that is longer than the model reads is cut between
words into pieces of about one size, a sequence each; its tags are still those of one sentence, for the CRF too.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, Labelled, Loss, wide
from seqloom.batches.labelled import Frame, Row, add_special_tokens, spelling_of
from seqloom.blocks.crf import Crf
from seqloom.blocks.pooling import pool_words
from seqloom.errors import DataError, UsageError
from seqloom.metrics.entities import (
    convert,
    entities,
    entity_scores,
    labels_of,
    legal_moves,
    nearest_scheme,
    remark_on_moves,
)
from seqloom.metrics.labels import label_scores
from seqloom.progress import say
from seqloom.tasks.transfer import Encoded, Rows, Transfer, label_layer
from seqloom.text.tables import PLAIN, Layout
from seqloom.text.tagged import Sentence, read_tagged, sentence_of, split_tag
from seqloom.tokens.tokenizer import Tokenizer


class TagWords(Transfer):
    """Predicts a tag for every word. learns: the scheme of the tags in training; predictions are in that of the files again."""

    over_targets = ("head",)  # it runs over words, not over tokens
    parted_by = "space"  # the words are given
    fields = ("text", "words")

    class Config(Transfer.Config):
        labels: tuple[str, ...] = Field(
            (), max_length=10_000, description="The tags; taken from the training files unless they are given."
        )
        scheme: Literal["iob1", "iob2", "iobes"] | None = Field(
            None, description="Tagging scheme of the training files; none: plain labels, such as parts of speech."
        )
        learns: Literal["as-given", "iob2", "iobes"] = Field(
            "as-given", description="Tagging scheme that is learnt; predictions are written in the scheme of the files."
        )
        align: Literal["first", "mean"] = Field(
            "first", description="State of a word of several tokens: that of its first token, or the mean."
        )
        crf: bool = Field(False, description="Put a conditional random field on top (Lample et al., 2016).")

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__(backbone, config)
        self.scheme, self.align = config.scheme, config.align
        self.learns = config.scheme if config.learns == "as-given" or config.scheme is None else config.learns
        self.main_metric = "accuracy" if self.scheme is None else "f1"
        self.labels = known_tags(config.labels, self.learns)
        self.head = label_layer(self.width, len(self.labels))
        self.crf = None
        if config.crf:
            self.crf = Crf(len(self.labels), torch.tensor(legal_moves(self.labels, self.learns)))

    @classmethod
    def read(cls, paths: Sequence[Path], need_labels: bool = True, layout: Layout = PLAIN) -> Iterator[Any]:
        return read_tagged(paths, need_labels, layout)

    @classmethod
    def column_fields(cls, need_labels: bool) -> dict[str, str]:
        return {"text": "words" if need_labels else "text", "label": "tags"}

    @classmethod
    def of_row(cls, row: dict[str, Any], place: str) -> Sentence:
        return sentence_of(row, place)

    @staticmethod
    def texts_of(example: Sentence) -> Sequence[str]:
        return (example.text,)

    @classmethod
    def survey(cls, examples: Sequence[Sentence]) -> dict[str, Any]:
        scheme = nearest_scheme([each.tags for each in examples], lambda i, j: examples[i].place_of(j))
        labels = sorted({tag for example in examples for tag in example.tags})
        if len(labels) < 2:
            raise DataError(f"{examples[0].place}: every word has the tag {labels[0]!r}: there is nothing to predict")
        return {"labels": labels, "scheme": scheme}

    @classmethod
    def check_against(cls, examples: Sequence[Sentence], about: Mapping[str, Any]) -> None:
        scheme = about["scheme"]
        known = dict.fromkeys(known_tags(about["labels"], scheme))
        for example in examples:
            for i, tag in enumerate(example.tags):
                if tag not in known:
                    shown = ", ".join(list(known)[:10]) + (" …" if len(known) > 10 else "")
                    raise DataError(f"{example.place_of(i)}: the tag {tag!r} is not in the training files ({shown})")
        if scheme is not None:
            remark = remark_on_moves([each.tags for each in examples], scheme, lambda i, j: examples[i].place_of(j))
            if remark is not None:
                say(remark)

    def encode(self, examples: Sequence[Sentence], tokenizer: Tokenizer, frame: Frame) -> Encoded:
        """Rows of whole words. Cut are only sentences with a word of more tokens than the model reads."""
        if frame.backward:
            raise UsageError("a model that reads texts from their end cannot tag words: use one that reads forward")
        number = {label: i for i, label in enumerate(self.labels)}
        written = [word for example in examples for word in as_written(example)]
        tokens, unknown = tokenizer.encode_batch_with_unknown(written)
        blank, room, at = tokenizer.encode(" "), frame.room(1), 0
        found: list[list[Row]] = []
        cut: list[str] = []
        for example in examples:
            words = []
            for i in range(at, at + len(example.words)):
                unknown_parts = unknown[i]
                if not len(tokens[i]):
                    stand_in = tokenizer.separator_id if tokenizer.unk_id is None else tokenizer.unk_id
                    tokens[i], unknown_parts = np.array([stand_in], tokens[i].dtype), [written[i].removeprefix(" ")]
                words.append((tokens[i][:room], unknown_parts))
                if room is not None and len(tokens[i]) > room and example.place not in cut[-1:]:
                    cut.append(example.place)
            at += len(words)
            tags = convert(example.tags, self.learns) if self.learns else example.tags
            labels = np.array([number[tag] for tag in tags] or [IGNORE] * len(words), np.int64)
            parts = pieces([len(ids) for ids, _ in words], room)
            rows = [row_of(words[a:b], labels[a:b], tokenizer, frame, blank) for a, b in parts]
            if frame.spots:
                spots = np.array(example.word_offsets, np.int64).reshape(-1, 2)
                sizes = np.array([len(ids) for ids, _ in words])
                rows = [with_spots(row, spots[a:b], sizes[a:b]) for row, (a, b) in zip(rows, parts, strict=True)]
            found.append(rows)
        return found, cut

    def logits(self, features: Tensor, example: Labelled) -> Tensor:
        """(W, labels)"""
        assert example.places is not None
        return self.head(self.dropout(pool_words(features, example.places, self.align)))

    def loss(self, logits: Tensor, example: Labelled) -> Loss:
        known = example.labels != IGNORE
        if self.crf is None:
            total = F.cross_entropy(wide(logits), example.labels, ignore_index=IGNORE, reduction="sum")
        else:  # the tags of a sequence are all known or all unknown, as those of filler are
            assert example.words is not None
            words = example.words
            missing = logits.new_zeros(words.num_sequences).index_add(0, words.owner, (~known).to(logits.dtype))
            total = (self.crf(logits, example.labels.clamp(min=0), words) * (missing == 0)).sum()
        return Loss(total, known.sum())

    def predictions(
        self, logits: Tensor, example: Labelled, asked: Sequence[Sentence], rows: Rows
    ) -> list[dict[str, Any]]:
        """Tags and entities. `start` and `stop` count words, `begin` and `end` characters of the text; both ends are exclusive.
        probabilities: of each word's tag; score: their mean; offsets: where each word begins and ends in a text without words."""
        if self.crf is None:
            probabilities = wide(logits).softmax(1)
            best = probabilities.argmax(1)
        else:
            assert example.words is not None
            best, probabilities = self.crf.decode(logits, example.words)[0], self.crf.marginals(logits, example.words)
        chosen, numbers = iter(probabilities.gather(1, best[:, None])[:, 0].tolist()), iter(best.tolist())
        found = []
        for each in asked:
            tags = [self.labels[next(numbers)] for _ in each.words]
            rounded = [round(next(chosen), 6) for _ in each.words]
            prediction: dict[str, Any] = {"words": each.words, "tags": tags, "probabilities": rounded}
            if each.source is not None:  # the words were found in a text
                prediction["offsets"] = [list(spot) for spot in each.word_offsets]
            if self.scheme is not None:
                prediction["tags"] = tags if self.learns == self.scheme else convert(tags, self.scheme)
                prediction["entities"] = self.entities_of(each, tags, rounded)
            found.append(prediction)
        return found

    @staticmethod
    def entities_of(sentence: Sentence, tags: Sequence[str], probabilities: Sequence[float]) -> list[dict[str, Any]]:
        text, spots, found = sentence.text, sentence.word_offsets, []
        for kind, start, stop in entities(tags):
            begin, end = spots[start][0], spots[stop - 1][1]
            found.append(
                {
                    "kind": kind, "start": start, "stop": stop, "begin": begin, "end": end, "text": text[begin:end],
                    "score": round(sum(probabilities[start:stop]) / (stop - start), 6),
                }
            )  # fmt: skip
        return found

    @classmethod
    def scores(cls, examples: Sequence[Sentence], predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        gold, predicted = [each.tags for each in examples], [each["tags"] for each in predictions]
        if predictions and "entities" in predictions[0]:
            return entity_scores(gold, predicted)
        return label_scores([tag for tags in gold for tag in tags], [tag for tags in predicted for tag in tags])


def known_tags(labels: Sequence[str], scheme: str | None) -> list[str]:
    """The tags themselves; with a scheme all tags of every kind: a held-out entity may be longer than any in training."""
    kinds = sorted({split_tag(label)[1] for label in labels if label != "O"})
    return list(labels) if scheme is None else labels_of(kinds, scheme)


def as_written(sentence: Sentence) -> list[str]:
    """Its words, with a blank before those that do not follow the one before directly."""
    spots = sentence.word_offsets
    gaps = [False, *(a[1] < b[0] for a, b in itertools.pairwise(spots))]
    return [" " * gap + word for gap, word in zip(gaps, sentence.words, strict=True)]


def pieces(sizes: Sequence[int], room: int | None) -> list[tuple[int, int]]:
    """Cuts sentences into pieces of at most `room` tokens: the first word of each, and the word after its last. sizes: the tokens
    of each word, none more than room. Pieces are about equally long, so that none is a short rest without context."""
    total = sum(sizes)
    if room is None or total <= room:
        return [(0, len(sizes))]
    even = -(-total // -(-total // room))
    found, start, size = [], 0, 0
    for i, each in enumerate(sizes):
        if size and (size >= even or size + each > room):
            found.append((start, i))
            start, size = i, 0
        size += each
    return [*found, (start, len(sizes))]


def row_of(
    words: Sequence[tuple[np.ndarray, list[str]]],
    labels: np.ndarray,
    tokenizer: Tokenizer,
    frame: Frame,
    blank: list[int],
) -> Row:
    """words: the tokens of each, and its unknown parts. blank: the tokens of a blank, at which no word is read."""
    sizes = np.array([len(ids) for ids, _ in words])
    ids, segments, source, starts = add_special_tokens([np.concatenate([ids for ids, _ in words])], frame)
    stops = starts[0] + np.cumsum(sizes)
    skipped = [len(blank) if len(blank) < len(ids) and ids[: len(blank)].tolist() == blank else 0 for ids, _ in words]
    places = np.stack((stops - sizes + skipped, stops), 1)
    chars = spelling_of(ids, words, tokenizer, frame)
    return Row(ids, segments, source >= 0, labels, places, chars)


def with_spots(row: Row, spots: np.ndarray, sizes: np.ndarray) -> Row:
    """With the characters that its tokens stand for: those of their whole word. spots: (W, 2) of its words; sizes: (W,) how many
    tokens each has."""
    placed, source = np.full((len(row.ids), 2), -1), np.where(row.own, 0, -1)
    placed[row.own] = np.repeat(spots, sizes, 0)
    return row._replace(spots=placed, source=source)
