"""Masked tokens, and whether the second part of a passage follows the first. Devlin et al., 2018 (arXiv 1810.04805)."""

from torch import Tensor, nn

from seqloom.batch import IGNORE, Backbone, Loss, Output, State, wide, with_penalty
from seqloom.objectives.masked import Masked, MaskedLM, check_segments, counts


class NextSentence(MaskedLM):
    """Both losses are means in the paper and are added; here the sum over passages is weighted so that it is the same. So parts
    of a batch add up exactly only where they hide as many tokens a passage. Passages of one part count and have no relation:
    a pair weighs the same whatever else is in its batch."""

    form = "next"

    def __init__(self, backbone: Backbone, config: MaskedLM.Config):
        check_segments(backbone, "next-sentence" if self.form == "next" else "sentence-order")
        super().__init__(backbone, config)
        self.relation = nn.Linear(backbone.dim, 2)  # 0: as in the document, 1: not
        nn.init.normal_(self.relation.weight, std=0.02)
        nn.init.zeros_(self.relation.bias)

    def relation_logits(self, hidden: Tensor, example: Masked) -> Tensor:
        """(N, 2) scores from the first token of each passage; empty sequences have those of a token nearby."""
        first = example.batch.offsets[:-1].long().clamp(max=hidden.shape[0] - 1)
        return self.relation(self.backbone.pooled(hidden[first]))  # type: ignore[operator]

    def relation_scores(self, hidden: Tensor, example: Masked) -> tuple[Tensor, Tensor]:
        """The summed loss of the relations, weighted as above, and how many are predicted right."""
        scores = wide(self.relation_logits(hidden, example))
        total = nn.functional.cross_entropy(scores, example.labels, ignore_index=IGNORE, reduction="sum")
        count, passages = (example.targets != IGNORE).sum(), (counts(example.text, example.batch) > 0).sum()
        return total * (count / passages.clamp(min=1)), (scores.argmax(1) == example.labels).sum()

    def forward(self, example: Masked, carry: State | None = None) -> Loss:
        output: Output = self.backbone(example.batch)
        relation, _ = self.relation_scores(output.hidden, example)
        total = self.mlm_loss(output.hidden, example)
        return with_penalty(Loss(total + relation, (example.targets != IGNORE).sum()), output)

    def losses(self, example: Masked) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = self.backbone(example.batch).hidden
        losses, sums = self.measure(self.scores(hidden[example.where]), example)
        relation, right = self.relation_scores(hidden, example)
        passages = (example.labels != IGNORE).sum()
        return losses, sums | {"extra": relation, "relation_accuracy": right, "passages": passages}
