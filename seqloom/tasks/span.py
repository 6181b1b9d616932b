"""Extractive question answering: which span of a paragraph answers a question, if any. Rajpurkar et al., 2016 and 2018
(SQuAD); read as in Devlin et al., 2018: two scores for every token, as the first and as the last of the answer.

A paragraph that is longer than the model reads is read in windows that overlap; the answer is the best of all of them. That
there is no answer is scored at the token that stands for the whole text. It is predicted where its probability, among those of
the best answers, is above `threshold`, and never by a model whose training questions were all answered.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor

from seqloom.batch import Backbone, Labelled, Loss, exact, wide
from seqloom.batches.labelled import Frame, Row, add_special_tokens
from seqloom.blocks.pooling import log_softmax_within
from seqloom.errors import UsageError
from seqloom.metrics.spans import best_threshold, span_scores
from seqloom.tasks.transfer import Encoded, Rows, Transfer, label_layer
from seqloom.text.spans import Question, question_of, read_questions, read_rows
from seqloom.text.tables import PLAIN, Layout, is_table
from seqloom.tokens.tokenizer import Tokenizer

AROUND = 80  # characters that are shown on both sides of an answer


class PickSpan(Transfer):
    """Predicts the span that answers a question."""

    main_metric = "f1"
    finds_spots = False  # of paragraphs alone
    fields = ("question", "context")

    class Config(Transfer.Config):
        stride: int = Field(128, gt=0, description="Tokens between the starts of two windows of a long paragraph.")
        longest: int = Field(30, gt=0, description="The most tokens of an answer.")
        longest_question: int = Field(64, gt=0, description="The most tokens of a question; the rest is not read.")
        n_best: int = Field(5, gt=0, le=100, description="Number of answers that are kept for each question.")
        unanswered: bool = Field(False, description="Questions may have no answer; found in the training files.")
        threshold: float = Field(
            0.5,
            ge=0,
            le=1,
            description="Probability of no answer above which none is given.",
        )

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__(backbone, config)
        self.stride, self.longest, self.longest_question = config.stride, config.longest, config.longest_question
        self.n_best, self.unanswered, self.threshold = config.n_best, config.unanswered, config.threshold
        self.head = label_layer(self.width, 2)

    @classmethod
    def read(cls, paths: Sequence[Path], need_labels: bool = True, layout: Layout = PLAIN) -> Iterator[Any]:
        if not need_labels and all(is_table(path) for path in paths):
            return read_rows(paths, layout)
        return read_questions(paths, need_labels, layout)

    @classmethod
    def column_fields(cls, need_labels: bool) -> dict[str, str]:
        return {} if need_labels else {"text": "question", "pair": "context"}

    @classmethod
    def of_row(cls, row: dict[str, Any], place: str) -> Question:
        return question_of(row, place)

    @classmethod
    def survey(cls, examples: Sequence[Question]) -> dict[str, Any]:
        return {"unanswered": any(example.impossible for example in examples)}

    @staticmethod
    def texts_of(example: Question) -> Sequence[str]:
        return (example.question, example.context)

    def encode(self, examples: Sequence[Question], tokenizer: Tokenizer, frame: Frame) -> Encoded:
        """A row for each window. Its label is where the first answer begins and ends in it, or twice the place of no answer."""
        if frame.backward:
            raise UsageError("a model that reads texts from their end cannot pick spans: use one that reads forward")
        found: list[list[Row]] = []
        cut: list[str] = []
        known: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # a paragraph has several questions
        for example in examples:
            if example.context not in known:
                tokens, stretches = tokenizer.encode_with_offsets(example.context)
                known[example.context] = np.array(tokens, np.int64), np.array(stretches, np.int64).reshape(-1, 2)
            ids, spots = known[example.context]
            question = np.array(tokenizer.encode(example.question), np.int64)
            if len(question) > self.longest_question:
                cut.append(example.place)
                question = question[: self.longest_question]
            found.append(
                [
                    self.window(question, ids, spots, part, example, frame)
                    for part in self.windows(len(ids), len(question), frame)
                ]
            )
        return found, cut

    @property
    def nowhere_is_last(self) -> bool:
        """Whether the token that stands for no answer is the last of a sequence, and not the first."""
        return self.backbone.causal or self.backbone.segment_kind == "relative"

    def windows(self, size: int, question: int, frame: Frame) -> list[slice]:
        """Spans of a paragraph that together cover all of it."""
        room = frame.room(2)
        room = size if room is None else max(room - question, 1)
        step = max(min(self.stride, room), 1)
        starts = range(0, max(size - room, 0) + step, step)
        return [slice(start, min(start + room, size)) for start in starts]

    def window(
        self, question: np.ndarray, ids: np.ndarray, spots: np.ndarray, part: slice, example: Question, frame: Frame
    ) -> Row:
        row, segments, source, starts = add_special_tokens((question, ids[part]), frame)
        nowhere = len(row) - 1 if self.nowhere_is_last else 0
        label = np.array([nowhere, nowhere])
        if example.answers:
            text, begin = example.answers[0]
            inside = np.flatnonzero((spots[:, 1] > begin) & (spots[:, 0] < begin + len(text)))
            if len(inside) and part.start <= inside[0] and inside[-1] < part.stop:
                label = starts[1] - part.start + inside[[0, -1]]
        # the tokens' places in the paragraph's text, for the answer
        places = np.full((len(row), 2), -1)
        places[starts[1] : starts[1] + part.stop - part.start] = spots[part]
        return Row(row, segments, source == 1, label, spots=places)

    def logits(self, features: Tensor, example: Labelled) -> Tensor:
        """(T, 2) log-probabilities of the first and the last token within each sequence; −∞ outside the paragraph, but for the
        token that stands for no answer."""
        scores = wide(self.head(self.dropout(features)))
        batch = example.batch
        borders = batch.offsets.long()
        first, last = borders[:-1].clamp(max=len(scores) - 1), (borders[1:] - 1).clamp(min=0)
        nowhere = last if self.nowhere_is_last else first
        may = example.own.index_fill(0, nowhere, True)
        scores = scores.masked_fill(~may[:, None], -math.inf)
        return log_softmax_within(scores, batch.owner, batch.num_sequences)

    def loss(self, logits: Tensor, example: Labelled) -> Loss:
        known = example.known
        picked = logits.gather(0, example.labels.clamp(min=0))
        return Loss(-(picked.masked_fill(~known[:, None], 0.0)).sum() / 2, known.sum())

    def predictions(
        self, logits: Tensor, example: Labelled, asked: Sequence[Question], rows: Rows
    ) -> list[dict[str, Any]]:
        scores, borders = exact(logits).cpu().numpy(), iter(example.batch.offsets.tolist())
        low, found = next(borders), []
        for each, windows in zip(asked, rows, strict=True):
            best: list[tuple[float, int, int]] = []
            nothing = math.inf  # the score of no answer, of the window in which it is lowest
            for row in windows:
                high = next(borders)
                here = scores[low:high]
                assert row.spots is not None
                nothing = min(nothing, float(here[-1 if self.nowhere_is_last else 0].sum()))
                best += best_spans(here[row.own], row.spots[row.own], self.n_best, self.longest)
                low = high
            found.append(self.prediction_of(each, best, nothing))
        return found

    def prediction_of(self, asked: Question, found: list[tuple[float, int, int]], nothing: float) -> dict[str, Any]:
        """The best spans, each once, without blanks around them. Their probabilities, with that of no answer where it is
        allowed, add up to 1. score: the probability of the answer; context: the text around it."""
        once: dict[tuple[int, int], float] = {}
        for score, begin, end in sorted(found, reverse=True):
            text = asked.context[begin:end]
            begin, end = begin + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
            if begin < end:
                once.setdefault((begin, end), score)
        ranked = list(once.items())[: self.n_best]
        scores = np.array([score for _, score in ranked] + ([nothing] if self.unanswered else []))
        likely = np.exp(scores - scores.max(initial=-math.inf))
        likely = (likely / likely.sum()).tolist() if len(likely) else []
        listed = [
            {"answer": asked.context[begin:end], "begin": begin, "end": end, "probability": round(p, 6)}
            for ((begin, end), _), p in zip(ranked, likely, strict=False)
        ]
        none = likely[-1] if self.unanswered else float(not listed)
        unanswered = not listed or none > self.threshold
        chosen = {"answer": "", "begin": 0, "end": 0, "score": round(none, 6), "context": ""}
        if not unanswered:
            begin, end = listed[0]["begin"], listed[0]["end"]
            chosen |= {key: listed[0][key] for key in ("answer", "begin", "end")}
            chosen |= {
                "score": listed[0]["probability"],
                "context": asked.context[max(begin - AROUND, 0) : end + AROUND],
            }
        return chosen | {"no_answer": round(none, 6), "n_best": listed}

    @classmethod
    def scores(cls, examples: Sequence[Question], predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Scores of the predicted answers and, where some questions have none, those with the best threshold."""
        gold = {example.id: [text for text, _ in example.answers] for example in examples}
        pairs = list(zip(examples, predictions, strict=True))
        scores = span_scores(gold, {example.id: each["answer"] for example, each in pairs})
        if any(example.impossible for example in examples):
            first = {example.id: each["n_best"][0]["answer"] if each["n_best"] else "" for example, each in pairs}
            best = best_threshold(gold, first, {example.id: each["no_answer"] for example, each in pairs})
            scores |= {"best_f1": best.score, "best_f1_threshold": best.threshold}
        return scores


def best_spans(scores: np.ndarray, spots: np.ndarray, n_best: int, longest: int) -> list[tuple[float, int, int]]:
    """(score, first and last character) of the best spans of at most `longest` tokens. scores: (L, 2) of a paragraph's
    tokens; spots: (L, 2) where each stands in its text."""
    size = len(scores)
    if not size:
        return []
    width = min(longest, size)
    # (L, width): a span from i to i + j
    last = np.arange(size)[:, None] + np.arange(width)
    sums = np.where(last < size, scores[:, :1] + scores[np.minimum(last, size - 1), 1], -math.inf)
    order = np.argsort(-sums, axis=None, kind="stable")[:n_best]
    return [
        (float(sums.flat[k]), int(spots[k // width, 0]), int(spots[k // width + k % width, 1]))
        for k in order
        if np.isfinite(sums.flat[k])
    ]
