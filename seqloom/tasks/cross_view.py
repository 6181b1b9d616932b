"""Cross-view training: a tagger learns from unlabelled sentences, too. Clark et al., 2018 (arXiv 1809.08370).

The tagger predicts the tags of a sentence; this is taken as it is. From parts of what the first layer of the shared body has read
four auxiliary layers learn to predict the same: what has been read up to the word (forward), from its end down to it (backward),
and the same without the word itself (future, past). So the body learns to say more in each direction. The tagger's own
predictions are made without dropout, and no gradient goes through them.

Departures: the auxiliary layers are linear (the paper: one hidden layer); the tagger's layers have no projections.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Backbone, Labelled, Loss, State, wide
from seqloom.blocks.pooling import pool_words
from seqloom.blocks.recurrent import BothWays
from seqloom.errors import DataError, UsageError
from seqloom.tasks.tag import TagWords
from seqloom.tasks.transfer import Transfer, label_layer
from seqloom.text.labelled import BadRow
from seqloom.text.tables import PLAIN, Layout
from seqloom.text.tagged import Sentence, iter_sentences

VIEWS = ("forward", "backward", "future", "past")


class CrossView(TagWords):
    """Learns from unlabelled sentences what another of several tasks predicts for them. It predicts nothing itself."""

    predicts = False
    over_targets = ("views",)

    class Config(TagWords.Config):
        of: str = Field("", description="Name of the tagger whose predictions are learnt from.")

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__(backbone, config)
        stack: Any = getattr(backbone, "stack", None)
        if stack is None or not isinstance(stack.layers[0], BothWays):
            raise UsageError(
                "cross-view training is for models whose first layer reads in both directions apart: use bilstm-cnn or elmo"
            )
        self.of = config.of
        self.head = None  # type: ignore[assignment]  # it predicts by its views
        half = backbone.dim // 2
        self.views = nn.ModuleList(label_layer(half, len(self.labels)) for _ in VIEWS)
        self.tagger: tuple[Transfer, ...] = ()  # in a tuple: its weights are not of this task

    def look_at(self, others: Mapping[str, Transfer]) -> None:
        self.tagger = (others[self.of],)

    @classmethod
    def complete(cls, task: dict[str, Any], known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        taggers = [name for name, section in known.items() if section["name"] == "tag"]
        name = task.get("of") or next(iter(taggers), "")
        if name not in taggers:
            raise UsageError(
                f"'task.of' = {name!r}: cross-view training learns from a tagger that stands before it in the plan "
                f"({', '.join(taggers) or 'there is none'})"
            )
        if known[name].get("crf"):
            raise UsageError(
                f"cross-view training needs the distribution of each tag, and {name} has a CRF: leave task.crf out"
            )
        kept = {key: known[name][key] for key in ("labels", "scheme", "learns", "align") if key in known[name]}
        return {**task, **kept, "of": name}

    @classmethod
    def read(cls, paths: Sequence[Path], need_labels: bool = True, layout: Layout = PLAIN) -> Iterator[Any]:
        """Sentences, whose tags are not read if they have some."""
        for row in iter_sentences(paths, False, layout):
            if isinstance(row, BadRow):
                raise DataError(f"{row.place}: {row.reason}")
            if row.words:
                yield row._replace(tags=[])

    @classmethod
    def configure(cls, task: Mapping[str, Any], examples: Sequence[Sentence]) -> dict[str, Any]:
        return dict(task)

    @property
    def extra_forwards(self) -> int:
        return 1  # that of the tagger

    def forward(self, example: Labelled, carry: State | None = None) -> Loss:
        """Σ KL(tagger ‖ view) over words and views."""
        assert example.places is not None
        target = self.predicted(example)
        likely = target.exp()
        total = sum(
            ((likely * (target - wide(logits).log_softmax(1))).sum() for logits in self.view_logits(example).values()),
            target.new_zeros(()),
        )
        return Loss(total, target.new_tensor(len(target), dtype=torch.long))

    def predicted(self, example: Labelled) -> Tensor:
        """(W, labels) the log-probabilities of the tagger's tags, without dropout."""
        (tagger,) = self.tagger
        was = tagger.training
        tagger.eval()
        with torch.no_grad():
            found = wide(tagger.logits(tagger.features(example.batch)[0], example)).log_softmax(1)
        tagger.train(was)
        return found

    def view_logits(self, example: Labelled) -> dict[str, Tensor]:
        """(W, labels) of each view."""
        batch, places = example.batch, example.places
        assert places is not None
        left, right = self.backbone(batch, layers=True).layers[1].chunk(2, 1)
        first, behind = places.unbind(1)
        seen = {
            "forward": pool_words(left, places, self.align),
            "backward": pool_words(right, places, self.align),
            "future": beside_word(left, first - 1, first, batch.owner),
            "past": beside_word(right, behind, first, batch.owner),
        }
        return {name: layer(self.dropout(seen[name])) for name, layer in zip(VIEWS, self.views, strict=True)}


def beside_word(states: Tensor, place: Tensor, word: Tensor, owner: Tensor) -> Tensor:
    """(W, D) the states at places beside words; zeros where that is another sequence, or none. word: (W,) a token of each."""
    inside = place.clamp(0, len(states) - 1)
    own = (inside == place) & (owner[inside] == owner[word])
    return states[inside].masked_fill(~own[:, None], 0)
