"""Masked tokens, and whether the second part of a passage follows the first. Devlin et al., 2018 (arXiv 1810.04805)."""

from torch import Tensor, nn

from seqloom.batch import IGNORE, Backbone, Loss, State
from seqloom.objectives.masked import Masked, MaskedLM, check_segments


class NextSentence(MaskedLM):
    """Both losses are means in the paper and are added; here the sum over passages is weighed so that it is the same."""

    form = "next"

    def __init__(self, backbone: Backbone, config: MaskedLM.Config):
        check_segments(backbone, "next-sentence" if self.form == "next" else "sentence-order")
        super().__init__(backbone, config)
        self.relation = nn.Linear(backbone.dim, 2)  # 0: as in the document, 1: not
        nn.init.normal_(self.relation.weight, std=0.02)
        nn.init.zeros_(self.relation.bias)

    def related(self, hidden: Tensor, example: Masked) -> Tensor:
        """(N, 2) scores from the first token of each passage; empty sequences have those of a token nearby."""
        first = example.batch.offsets[:-1].long().clamp(max=hidden.shape[0] - 1)
        return self.relation(self.backbone.pooled(hidden[first]))  # type: ignore[operator]

    def forward(self, example: Masked, carry: State | None = None) -> Loss:
        hidden = self.backbone(example.batch).hidden
        scores = self.related(hidden, example).float()
        told = nn.functional.cross_entropy(scores, example.labels, ignore_index=IGNORE, reduction="sum")
        count, passages = (example.targets != IGNORE).sum(), (example.labels != IGNORE).sum()
        relation = told * (count / passages.clamp(min=1))
        return Loss(self.guessed(hidden, example) + relation, count, {"relation": relation.detach()})

    def losses(self, example: Masked) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = self.backbone(example.batch).hidden
        scores, kept = self.scores(hidden[example.where]), example.targets != IGNORE
        losses = nn.functional.cross_entropy(scores.float(), example.targets, ignore_index=IGNORE, reduction="none")
        right = self.related(hidden, example).argmax(1) == example.labels
        return losses, {
            "accuracy": ((scores.argmax(1) == example.targets) & kept).sum(),
            "relation_accuracy": right.sum(),
            "passages": (example.labels != IGNORE).sum(),
        }
