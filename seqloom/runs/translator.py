"""A trained translator: lines in, lines out, in their order, by one beam search for every model."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.analyse.beam_tree import BeamTree
from seqloom.batch import pack, to_device
from seqloom.batches.pairs import EncodedPairs, PairFrame, encode_pairs, round_up
from seqloom.config import build
from seqloom.decode.rules import BeamConfig
from seqloom.decode.search import Hypothesis
from seqloom.decode.trace import TracedSearch
from seqloom.errors import DataError
from seqloom.evaluate.encode import Encoder, Reading
from seqloom.evaluate.translation import pair_loss, target_log_probs
from seqloom.metrics.translation import bleu_by_length, translation_scores
from seqloom.objectives.denoising import Denoising
from seqloom.runs.folder import SOURCE_TOKENIZER
from seqloom.runs.results import Report, Results, Table
from seqloom.runs.writer import CELLS as CELLS
from seqloom.runs.writer import Translation as Translation
from seqloom.runs.writer import Writer
from seqloom.tasks.translate import Translate
from seqloom.text.pairs import TextPair
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.share import ALONE, Share

# unless another limit is given, a translation has at most so many tokens for each of its source's, and so many more
MOST_TOKENS = 2
SPARE_TOKENS = 16
LONGEST = 100_000


class Translator(Writer):
    """A trained translator with its tokenizer, on a device."""

    learner: Translate | Denoising

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
        super().__init__(folder, config, learner, tokenizer, device)
        self.own_source_tokenizer = source_tokenizer

    @property
    def frame(self) -> PairFrame:
        return PairFrame.of(self.learner.backbone, self.tokenizer, self.learner.start_id, self.own_source_tokenizer)

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.own_source_tokenizer or self.tokenizer

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        own = self.own_source_tokenizer
        return super().tokenizers | ({f"--from-source-tokenizer {self.folder / SOURCE_TOKENIZER}": own} if own else {})

    def encode_pairs(self, pairs: Sequence[TextPair], name: str) -> EncodedPairs:
        """Pairs as its model reads them. pairs: of sources and targets; name: for messages."""
        limit = self.learner.backbone.max_len
        return encode_pairs(pairs, self.tokenizer, limit, name, self.frame, self.own_source_tokenizer)

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
        rooms = [MOST_TOKENS * len(ids) + SPARE_TOKENS if max_new is None else max_new for ids in encoded]

        def finish(hypothesis: Hypothesis, i: int) -> Translation:
            return self.finished(hypothesis, encoded[i], texts[i], begun[i], copy_unknown)

        found = self._write(
            models,
            search,
            encoded,
            [len(ids) for ids in encoded],
            rooms,
            begun,
            finish,
            "translate",
            "lines",
            show,
            share,
        )
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
