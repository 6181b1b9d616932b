"""A trained translator: lines in, lines out, in their order, by one beam search for every model."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.analyse.beam_tree import BeamTree
from seqloom.batch import pack, to_device
from seqloom.batches.pairs import EncodedPairs, PairFrame, encode_pairs, round_up
from seqloom.config import build
from seqloom.decode.rules import BeamConfig
from seqloom.decode.search import Hypothesis, Search
from seqloom.decode.step import Ensemble, Stepper
from seqloom.decode.trace import TracedSearch
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.encode import Encoder, Reading
from seqloom.evaluate.translation import pair_loss, target_log_probs
from seqloom.metrics.translation import bleu_by_length, translation_scores
from seqloom.objectives.denoising import Denoising
from seqloom.progress import Progress
from seqloom.runs.folder import SOURCE_TOKENIZER
from seqloom.runs.loaded import LoadedRun
from seqloom.runs.results import Report, Results, Table
from seqloom.tasks.translate import Translate
from seqloom.text.pairs import TextPair
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.share import ALONE, Share

CELLS = {"cpu": 4096, "cuda": 65536}  # hypotheses × source places in a batch
# unless another limit is given, a translation has at most so many tokens for each of its source's, and so many more
MOST_TOKENS = 2
SPARE_TOKENS = 16
LONGEST = 100_000


class Translation(NamedTuple):
    text: str
    tokens: list[int]
    log_prob: float  # of the tokens and the end
    score: float  # by which hypotheses are ranked
    finished: bool  # False: cut at the limit
    alignment: np.ndarray | None  # (tokens, source places), the last place being the end


class Translator(LoadedRun):
    """A trained translator with its tokenizer, on a device."""

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        learner: Translate | Denoising,
        tokenizer: Tokenizer,
        device: torch.device,
        source_tokenizer: Tokenizer | None = None,
    ):
        """tokenizer: of the targets; source_tokenizer: of the sources, if they have a vocabulary of their own."""
        self.folder, self.config, self.learner, self.tokenizer, self.device = folder, config, learner, tokenizer, device
        self.own_source_tokenizer = source_tokenizer
        self.steppers: dict[bool, Stepper] = {}  # kept, as the last search is, for the next call
        self.last: tuple[Any, Search] | None = None

    @property
    def start_id(self) -> int:
        """What a target is written from."""
        return self.frame.start

    @property
    def frame(self) -> PairFrame:
        return PairFrame.of(self.learner.backbone, self.tokenizer, self.learner.start_id, self.own_source_tokenizer)

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.own_source_tokenizer or self.tokenizer

    def encode_pairs(self, pairs: Sequence[TextPair], name: str) -> EncodedPairs:
        """Pairs as its model reads them. pairs: of sources and targets; name: for messages."""
        limit = self.learner.backbone.max_len
        return encode_pairs(pairs, self.tokenizer, limit, name, self.frame, self.own_source_tokenizer)

    def stepper(self, align: bool) -> Stepper:
        """The stepper of its decoder. It may hold copies of the weights: after further training a new translator is needed.
        align: whether it gives the alignment, too."""
        if align not in self.steppers:
            self.steppers[align] = Stepper(self.learner.backbone.decoder, self.learner.softmax, align=align)
        return self.steppers[align]

    def search(self, models: list["Translator"], config: BeamConfig, align: bool, keep_unknown: bool) -> Search:
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

    def __call__(
        self, texts: str | Iterable[str | dict[str, Any]] | Table, *, text: str = "text", **options: Any
    ) -> Results | Table:
        """Translates texts: the best "translation" of each, its "log_prob", and whether it is "finished" or was cut.

        Args:
            texts: a string, strings or dicts (they give a list of dicts), or a pandas DataFrame or datasets.Dataset, which is
                returned with the translations as further columns.
            text: the column or key of the texts.
            options: those of `translate`.
        """

        def answer(found: list[str]) -> list[dict[str, Any]]:
            best = [each[0] for each in self.translate(found, **options)]
            return [{"translation": each.text, "log_prob": each.log_prob, "finished": each.finished} for each in best]

        return self.answer_texts(texts, text, answer)

    def translate(
        self,
        texts: str | Sequence[str],
        *,
        others: Sequence["Translator"] = (),
        align: bool = False,
        copy_unknown: bool = False,
        prefixes: Sequence[str] | None = None,
        max_new: int | None = None,
        show: bool = True,
        share: Share = ALONE,
        **options: Any,
    ) -> list[list[Translation]]:
        """The n best translations of each text, in the order of the texts; an empty text has an empty one.

        Args:
            texts: a text, or several.
            others: runs with the same tokenizer, for an ensemble.
            align: give the alignment of each translation, too.
            copy_unknown: replace an unknown word by the source word that it attends to most.
            prefixes: what each translation must begin with.
            max_new: the most tokens of a translation; by default twice those of its source, and some.
            show: whether progress is shown.
            share: of the batches that are translated here, where several processes share them.
            options: those of BeamConfig: beam, length_penalty, n_best, …
        """
        texts = [texts] if isinstance(texts, str) else texts
        most = LONGEST if max_new is None else max_new
        config = build(BeamConfig, options | {"max_new": most}, source="translate")
        self.check_others(others)
        models = [self, *others]
        needs_alignment = self.check_alignment(models, align, copy_unknown, config.coverage_penalty)
        search = self.search(models, config, needs_alignment, copy_unknown)
        encoded = self.source_tokenizer.encode_batch(list(texts))
        begun = self.encode_prefixes(prefixes, len(texts))
        self.check_lengths(encoded, texts)
        found: list[list[Translation]] = [[] for _ in texts]
        batches = list(self.batches(encoded, config.beam))

        def translate_batch(number: int) -> list[list[Translation]]:
            index = batches[number]
            rooms = [MOST_TOKENS * len(encoded[i]) + SPARE_TOKENS if max_new is None else max_new for i in index]
            prompts = [[self.frame.start, *self.frame.before, *begun[i]] for i in index]
            hypotheses = search.run(prompts, self.contexts(models, [encoded[i] for i in index]), rooms)
            return [
                [self.finished(each, encoded[i], texts[i], begun[i], copy_unknown) for each in best]
                for i, best in zip(index, hypotheses, strict=True)
            ]

        with Progress("translate", total=len(texts), unit="lines") if show else nullcontext() as bar:
            for index, rows in zip(batches, share.each(len(batches), translate_batch), strict=True):
                for i, best in zip(index, rows, strict=True):
                    found[i] = [Translation(*each) for each in best]
                if bar is not None:
                    bar.advance(len(index))
        empty = Translation("", [], 0.0, 0.0, True, np.zeros((0, 1), np.float32) if align else None)
        return [each or [empty] for each in found]

    def target_log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The log-probability of each target, its end included, given its source.

        Args:
            sources: texts to translate.
            targets: as many translations.
        """
        both = enumerate(zip(sources, targets, strict=True), 1)
        rows = [TextPair(source, target, f"line {number}") for number, (source, target) in both]
        pairs = self.encode_pairs(rows, "targets")
        if len(pairs) < len(rows):
            raise DataError(f"of {len(rows):,} pairs {len(rows) - len(pairs):,} are empty or too long: shorten them")
        return target_log_probs(self.learner, pairs, self.device).tolist()

    def beam_tree(self, text: str, *, max_new: int | None = None, **options: Any) -> BeamTree:
        """How the beam search for a translation goes: every hypothesis that it keeps.

        Args:
            text: the source.
            max_new: as in `translate`.
            options: those of BeamConfig: beam, length_penalty, n_best, …
        """
        (ids,) = self.source_tokenizer.encode_batch([text])
        if not len(ids):
            raise DataError("the text is empty: give at least one word")
        self.check_lengths([ids], [text])
        room = MOST_TOKENS * len(ids) + SPARE_TOKENS if max_new is None else max_new
        config = build(BeamConfig, options | {"max_new": room}, source="translate")
        usual = self.search([self], config, False, False)
        search = TracedSearch(usual.stepper, config, usual.end_id, usual.banned.tolist())
        (found,) = search.run([[self.frame.start, *self.frame.before]], self.contexts([self], [ids]), [room])
        return BeamTree(self.folder.name, text, config.beam, list(search.considered.values()), found, self.tokenizer)

    def check_others(self, others: Sequence["Translator"]) -> None:
        """Raises UsageError where runs cannot be an ensemble with this one. others: those runs."""
        two = f" --from-source-tokenizer {self.folder / SOURCE_TOKENIZER}" if self.own_source_tokenizer else ""
        for other in others:
            if (other.tokenizer.hash, other.source_tokenizer.hash) != (self.tokenizer.hash, self.source_tokenizer.hash):
                raise UsageError(
                    f"{self.folder} and {other.folder} have different tokenizers: an ensemble needs the same; train them with "
                    f"--from-tokenizer {self.folder / 'tokenizer.json'}{two}"
                )
            if other.frame != self.frame:
                raise UsageError(f"{self.folder} and {other.folder} have different special tokens around a text")

    def check_alignment(self, models: list["Translator"], align: bool, copy_unknown: bool, penalty: float) -> bool:
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

    def encode_prefixes(self, prefixes: Sequence[str] | None, count: int) -> list[list[int]]:
        """The tokens that each translation begins with. prefixes: None: no tokens; count: of the texts."""
        if prefixes is None:
            return [[] for _ in range(count)]
        return [ids.tolist() for ids in self.tokenizer.encode_batch(prefixes)]

    def check_lengths(self, encoded: Sequence[np.ndarray], texts: Sequence[str]) -> None:
        """Raises DataError where a source is longer than the model reads. encoded: the tokens of each; texts: for the message."""
        limit = self.learner.backbone.max_len
        for number, ids in enumerate(encoded, 1):
            if limit is not None and len(ids) + len(self.frame.source_before) >= limit:
                most = limit - len(self.frame.source_before) - 1
                raise DataError(
                    f"line {number} has {len(ids):,} tokens and the model reads {most:,} at most: split it into "
                    f"sentences ({texts[number - 1][:40]!r}…)"
                )

    def batches(self, encoded: Sequence[np.ndarray], beam: int) -> Iterator[list[int]]:
        """Batches of lines of similar length, the longest first: what does not fit into memory fails at once. encoded: the tokens
        of each; beam: hypotheses of each."""
        order = sorted((i for i, ids in enumerate(encoded) if len(ids)), key=lambda i: -len(encoded[i]))
        while order:
            many = max(CELLS.get(self.device.type, CELLS["cpu"]) // ((len(encoded[order[0]]) + 1) * beam), 1)
            yield order[:many]
            order = order[many:]

    @torch.inference_mode()
    def contexts(self, models: list["Translator"], sources: list[np.ndarray]) -> Any:
        """What the encoders make of sources. models: one, or those of an ensemble; sources: the tokens of each."""
        source = pack([[*self.frame.source_before, *ids.tolist(), self.frame.source_end] for ids in sources])
        source = to_device(source._replace(max_len=round_up(source.max_len)), self.device)
        found = [each.learner.backbone.encode(source) for each in models]
        return found[0] if len(found) == 1 else found

    def finished(
        self, hypothesis: Hypothesis, source: np.ndarray, text: str, begun: list[int], copy_unknown: bool
    ) -> Translation:
        """A hypothesis as a translation. hypothesis: of the search; source: the tokens; text: the source itself; begun: the
        tokens of the prefix; copy_unknown: as in `translate`."""
        tokens = [*begun, *hypothesis.tokens]
        alignment = None
        if hypothesis.alignment is not None:
            alignment = hypothesis.alignment[: len(hypothesis.tokens), : len(source) + 1].float().cpu().numpy()
        copied = self.copied(tokens, len(begun), source, text, alignment) if copy_unknown else None
        words = self.tokenizer.decode(tokens) if copied is None else copied
        return Translation(words, tokens, hypothesis.log_prob, hypothesis.score, hypothesis.finished, alignment)

    def copied(self, tokens: list[int], begun: int, source: np.ndarray, text: str, alignment: Any) -> str:
        """Replaces each unknown word by the source word that it attends to most (Luong et al., 2015, arXiv 1410.8206). tokens: of
        the translation; begun: how many are the prefix; source: its tokens; text: the source itself; alignment: of both."""
        _, offsets = self.source_tokenizer.encode_with_offsets(text)
        parts, run = [], []
        for place, token in enumerate(tokens):
            if token != self.tokenizer.unk_id or place < begun:
                run.append(token)
                continue
            at = int(np.argmax(alignment[place - begun][: len(source)]))
            parts += [self.tokenizer.decode(run)] if run else []
            parts.append(text[slice(*offsets[at])])
            run = []
        parts += [self.tokenizer.decode(run)] if run else []
        return " ".join(parts)

    def encode(
        self, texts: Sequence[str], layers: str | int = "last", pool: str = "mean", names: Sequence[str] | None = None
    ) -> np.ndarray | list[np.ndarray]:
        """The encoder's states of each source. texts, layers, pool, names: as in `Run.encode`."""
        return self.reading.encode(texts, layers, pool, names)

    @property
    def reading(self) -> Reading:
        before, after = self.frame.source_before, [self.frame.source_end]
        reads = Encoder(self.learner.backbone.view("encoder").eval(), before, after, self.device)
        return Reading(reads, self.source_tokenizer)

    def _target_tokens(self, text: str) -> list[int]:
        return self.translate(text, show=False)[0][0].tokens

    def evaluate(self, pairs: Sequence[TextPair], tokenize: str = "13a", **options: Any) -> dict[str, Any]:
        """BLEU and chrF of the translation of the sources.

        Args:
            pairs: of a source and its target, as `text.pairs.read_pairs` reads them.
            tokenize: how sacreBLEU tokenizes: "13a", "intl", "zh", "char", …
            options: those of `translate`.
        """
        started = time.monotonic()
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        found = [best[0].text for best in self.translate(sources, show=False, **options)]
        result = translation_scores(found, references, tokenize)
        buckets = bleu_by_length(sources, found, references, tokenize)
        return Report(
            result,
            by_length=[bucket._asdict() for bucket in buckets],
            parameters=self.learner.size(),
            seconds=round(time.monotonic() - started, 3),
        )

    def loss(self, pairs: Sequence[TextPair]) -> dict[str, float]:
        """The loss of the true targets. pairs: as in `evaluate`."""
        return pair_loss(self.learner, self.encode_pairs(pairs, "test"), self.device)
