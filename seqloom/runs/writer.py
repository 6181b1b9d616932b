"""A trained encoder–decoder that writes by beam search, whatever its sources are: what translators and captioners share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.batches.pairs import PairFrame
from seqloom.decode.rules import BeamConfig
from seqloom.decode.search import Hypothesis, Search
from seqloom.decode.step import Ensemble, Stepper
from seqloom.errors import UsageError
from seqloom.progress import Progress
from seqloom.runs.loaded import LoadedRun
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.share import Share

CELLS = {"cpu": 4096, "cuda": 65536}  # hypotheses × source places in a batch


class Translation(NamedTuple):
    text: str
    tokens: list[int]
    log_prob: float  # of the tokens and the end
    score: float  # by which hypotheses are ranked
    finished: bool  # False: cut at the limit
    alignment: np.ndarray | None  # (tokens, source places), the last place being the end


class Writer(LoadedRun):
    """A trained encoder–decoder with its tokenizer, on a device."""

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        learner: Any,
        tokenizer: Tokenizer,
        device: torch.device,
    ):
        self.folder, self.config, self.learner, self.tokenizer, self.device = folder, config, learner, tokenizer, device
        self.steppers: dict[bool, Stepper] = {}  # kept, as the last search is, for the next call
        self.last: tuple[Any, Search] | None = None

    @property
    def start_id(self) -> int:
        """What a target is written from."""
        return self.frame.start

    @property
    def frame(self) -> PairFrame:
        return PairFrame.of(self.learner.backbone, self.tokenizer, self.learner.start_id)

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """By the option with which another training takes over each."""
        return {f"--from-tokenizer {self.folder / 'tokenizer.json'}": self.tokenizer}

    def stepper(self, align: bool) -> Stepper:
        """The stepper of its decoder. It may hold copies of the weights: after further training a new translator is needed.
        align: whether it gives the alignment, too."""
        if align not in self.steppers:
            self.steppers[align] = Stepper(self.learner.backbone.decoder, self.learner.softmax, align=align)
        return self.steppers[align]

    def search(self, models: list[Any], config: BeamConfig, align: bool, keep_unknown: bool) -> Search:
        """The beam search of one model or an ensemble. models: all of them; config: of the search; align: with the alignment;
        keep_unknown: hypotheses may contain the unknown word."""
        key = ([id(model) for model in models], config, align, keep_unknown)
        if self.last is None or self.last[0] != key:
            steppers = [each.stepper(align) for each in models]
            never = {*self.tokenizer.special_ids.values(), self.frame.start} - {self.frame.end}
            never |= set() if keep_unknown or self.tokenizer.unk_id is None else {self.tokenizer.unk_id}
            stepper: Any = steppers[0] if len(steppers) == 1 else Ensemble(steppers)
            self.last = key, Search(stepper, config, self.frame.end, sorted(never))
        return self.last[1]

    def check_others(self, others: Sequence[Any]) -> None:
        """Raises UsageError where runs cannot be an ensemble with this one. others: those runs."""
        for other in others:
            if [each.hash for each in other.tokenizers.values()] != [each.hash for each in self.tokenizers.values()]:
                raise UsageError(
                    f"{self.folder} and {other.folder} have different tokenizers: an ensemble needs the same; train them with "
                    + " ".join(self.tokenizers)
                )
            if other.frame != self.frame:
                raise UsageError(f"{self.folder} and {other.folder} have different special tokens around a text")

    def check_alignment(self, models: list[Any], align: bool, copy_unknown: bool, penalty: float) -> bool:
        """Whether the options need an alignment; raises where a model or the tokenizer cannot serve them. models: all of them;
        align, copy_unknown: as in `translate`; penalty: that of coverage."""
        needs_alignment = align or copy_unknown or penalty > 0
        if needs_alignment and not all(each.learner.backbone.aligned for each in models):
            what = "--align" if align else "--copy-unknown" if copy_unknown else "--coverage-penalty"
            raise UsageError(
                f"{what}: {self.config['recipe']['model']['name']} has no attention to align by: leave it out"
            )
        if copy_unknown and self.tokenizer.unk_id is None:
            raise UsageError("--copy-unknown: this tokenizer has no unknown words: leave it out")
        return needs_alignment

    def batches(self, sizes: Sequence[int], beam: int) -> Iterator[list[int]]:
        """Batches of sources of similar length, the longest first: what does not fit into memory fails at once. sizes: the places
        of each, 0: nothing is written for it; beam: hypotheses of each."""
        order = sorted((i for i, size in enumerate(sizes) if size), key=lambda i: -sizes[i])
        while order:
            many = max(CELLS.get(self.device.type, CELLS["cpu"]) // ((sizes[order[0]] + 1) * beam), 1)
            yield order[:many]
            order = order[many:]

    def contexts(self, models: list[Any], sources: list[Any]) -> Any:
        """What the encoders make of sources. models: one, or those of an ensemble."""
        raise NotImplementedError

    def _write(
        self,
        models: list[Any],
        search: Search,
        sources: Sequence[Any],
        sizes: Sequence[int],
        rooms: Sequence[int],
        begun: Sequence[Sequence[int]],
        finish: Callable[[Hypothesis, int], Translation],
        title: str,
        unit: str,
        show: bool,
        share: Share,
    ) -> list[list[Translation]]:
        """The n best texts for each source, in order; nothing for a source of size 0. models: as in `search`; sizes: the places
        of each source; rooms: the most tokens; begun: what each text begins with; finish: from a hypothesis and the number of its
        source to a text; title, unit: of the progress, if it is shown; share: of the batches that are computed here."""
        found: list[list[Translation]] = [[] for _ in sources]
        batches = list(self.batches(sizes, search.config.beam))

        def write_batch(number: int) -> list[list[Translation]]:
            index = batches[number]
            prompts = [[self.frame.start, *self.frame.before, *begun[i]] for i in index]
            context = self.contexts(models, [sources[i] for i in index])
            hypotheses = search.run(prompts, context, [rooms[i] for i in index])
            return [[finish(each, i) for each in best] for i, best in zip(index, hypotheses, strict=True)]

        with Progress(title, total=len(sources), unit=unit) if show else nullcontext() as bar:
            for index, rows in zip(batches, share.each(len(batches), write_batch), strict=True):
                for i, best in zip(index, rows, strict=True):
                    found[i] = [Translation(*each) for each in best]
                if bar is not None:
                    bar.advance(len(index))
        return found
