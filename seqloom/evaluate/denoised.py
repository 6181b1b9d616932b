"""How well a model restores noised text that was held out, and how it scores texts.

The noise is drawn with a fixed seed. `loss` and `perplexity` are of all targets of the noise that the run has learnt by: most of
them stand in the source, so they say little, and nothing about runs with another noise. `hidden_loss` and `hidden_perplexity`
count only the words that the source does not show. `infilled_perplexity` is that of the noise of BART's recipe, with nothing
permuted, for every run that writes whole texts: of all these it alone may be compared between runs with different noises, for the
same tokenizer, length of passages and size of batches. It is no perplexity of a language model: the decoder writes what is hidden
knowing what stands behind it.

A text is scored word by word: log p(word | the text without it, and once more the text before it), in the decoder, after one mask
has hidden the word in the source.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from seqloom.batch import IGNORE, exact, to_device
from seqloom.batches.languages import WithLanguage
from seqloom.batches.noise import place_within
from seqloom.batches.passages import Passages
from seqloom.batches.plan import portions
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.evaluators import EncodedTexts, Evaluator, HeldOutText
from seqloom.evaluate.pseudo import by_text
from seqloom.evaluate.score import Scored
from seqloom.objectives.denoising import Denoising
from seqloom.progress import Progress
from seqloom.randomness import derive_seed
from seqloom.training.share import ALONE, Share

SEED = 0
INFILLING = Denoising.Config(permute=0.0, infill=0.3, length=3.0, random=0.0)  # of `infilled_perplexity`


class DenoisingEvaluator(Evaluator):
    definitions = {  # noqa: RUF012
        "denoised": "Σ log p(word | the text without it, and the text before it): each word hidden in the source, and written "
        "after the words before it"
    }
    word_definitions = {  # noqa: RUF012
        "denoised": "log p(word | the sentence without it, and what stands before it): hidden in the source, and written after "
        "the words before it"
    }

    def prepare(self, text: HeldOutText) -> Passages | WithLanguage:
        return text.passages(self.learner.form)

    def measure(
        self, prepared: Any, limit: int | None = None, share: Share = ALONE, title: str = "evaluate"
    ) -> dict[str, Any]:
        sums = sum_losses(self.learner, prepared, self.device, self.learner.config, limit, share, title)
        return {
            "loss": sums["nats"] / max(sums["targets"], 1),
            "perplexity": exponential(sums["nats"], sums["targets"]),
            "hidden_loss": sums["hidden_nats"] / max(sums["hidden"], 1),
            "hidden_perplexity": exponential(sums["hidden_nats"], sums["hidden"]),
            "hidden_accuracy": sums["right"] / max(sums["hidden"], 1),
            "hidden": int(sums["hidden"]),
            "tokens": int(sums["tokens"]),
        }

    def evaluate(self, text: HeldOutText, **options: Any) -> dict[str, Any]:
        if options.get("carry"):
            raise UsageError("--carry is for models that carry a state: leave it out for this model, which has none")
        held_out = self.prepare(text)
        found = self.measure(held_out)
        if self.learner.config.targets == "whole":
            sums = sum_losses(self.learner, held_out, self.device, INFILLING, None, ALONE, "evaluate infilling")
            found["infilled_perplexity"] = exponential(sums["hidden_nats"], sums["hidden"])
            found["infilled_accuracy"] = sums["right"] / max(sums["hidden"], 1)
        return found

    def definition(self, variant: str | None, backward: bool) -> str:
        self.reject_variant(variant, "denoised")
        return "denoised"

    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> list[Scored]:
        held = texts.add_special_tokens()  # none is too long
        rows = [np.asarray(row, np.int64) for row in texts.ids]
        return [Scored(row, None) for row in by_text(self.word_scores(rows, batch_tokens, asked), held)]

    @torch.no_grad()
    def word_scores(self, rows: Sequence[np.ndarray], batch_tokens: int, asked: np.ndarray | None) -> np.ndarray:
        """(T,) of all texts end to end, 0 where a token is in no word that is asked for."""
        learner: Denoising = self.learner
        ids = np.concatenate([*rows, np.zeros(0, np.int64)])
        sizes = np.array([len(row) for row in rows], np.int64)
        found = np.zeros(len(ids))
        if not len(ids):
            return found
        owner = np.repeat(np.arange(len(rows)), sizes)
        begins = np.flatnonzero(learner.word_begins(ids, owner, "word"))
        ends = np.append(begins[1:], len(ids))
        if asked is not None:
            wanted = np.add.reduceat(asked.astype(np.int64), begins) > 0
            begins, ends = begins[wanted], ends[wanted]
        self.check_targets(owner[begins], ends - begins)
        starts = np.cumsum(sizes) - sizes
        order = np.argsort(sizes[owner[begins]], kind="stable")
        for part in portions([2 * sizes[owner[begins[order]]]], [batch_tokens]):
            first, last = begins[order[part]], ends[order[part]]
            text = owner[first]
            copies = np.repeat(np.arange(len(text)), sizes[text])
            places = starts[text][copies] + place_within(copies)
            covered = (places >= first[copies]) & (places < last[copies])
            limit = int(sizes[text].max()) + 2
            example = learner.cover(ids[places], copies, covered, limit + 2)
            losses = learner.losses(to_device(example, self.device))
            found[places[covered]] = -exact(losses).cpu().numpy()[example.hidden.numpy()]
        return found

    def check_targets(self, text: np.ndarray, tokens: np.ndarray) -> None:
        """Refuses a word that has no room between its sentinels. text: of each word its number; tokens: how many it has."""
        learner: Denoising = self.learner
        limit = learner.backbone.max_len
        if learner.config.targets != "sentinels" or limit is None:
            return
        most = limit - len(learner.before) - len(learner.after) - 2
        for i in np.flatnonzero(tokens > most).tolist():
            raise DataError(
                f"text {text[i] + 1} has a word of {tokens[i]:,} tokens, but this model writes words of at most {most:,} "
                f"between two sentinels: split the word"
            )


def exponential(nats: float, count: float) -> float:
    return math.exp(min(nats / max(count, 1), 700.0))


def sum_losses(
    learner: Denoising,
    passages: Any,
    device: torch.device,
    noise: Denoising.Config,
    limit: int | None,
    share: Share,
    title: str,
) -> dict[str, float]:
    """Sums over one split, or about `limit` tokens of it."""
    plan = passages.plan(SEED, 0)
    sums: dict[str, float] = {}
    was_training = learner.training
    learner.eval()

    def add_up(i: int) -> dict[str, float]:
        rng = torch.Generator().manual_seed(derive_seed(SEED, i))
        example = learner.corrupt(plan.batch(i), rng, noise)
        on_device = to_device(example, device)
        hidden = learner.backbone(on_device).hidden
        losses = exact(learner.softmax(hidden, on_device.targets, each=True))
        asked = on_device.hidden
        guesses = torch.cat([learner.softmax(part).argmax(1) for part in hidden[asked].split(4096)])
        return {
            "nats": float(losses.sum()),
            "targets": float((example.targets != IGNORE).sum()),
            "hidden_nats": float(losses[asked].sum()),
            "hidden": float(asked.sum()),
            "right": float((guesses == on_device.targets[asked]).sum()),
            "tokens": float(example.text),
        }

    def batches() -> Iterator[dict[str, float]]:
        with Progress(title, total=float(limit or passages.split.num_tokens), unit="tokens") as bar, torch.no_grad():
            tokens = 0.0
            for some in share.each(len(plan), add_up):
                yield some
                bar.advance(int(some["tokens"]))
                tokens += some["tokens"]
                if limit is not None and tokens >= limit:
                    return

    try:
        for some in batches():
            for name, value in some.items():
                sums[name] = sums.get(name, 0.0) + value
    finally:
        learner.train(was_training)
    return sums
