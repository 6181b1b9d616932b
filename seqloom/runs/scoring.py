"""What a trained model computes for given texts: scores, words for gaps, vectors."""

import difflib
import itertools
import math
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from seqloom.batch import STATIC, Objective
from seqloom.batches.special_tokens import SpecialTokenTexts
from seqloom.config import unknown_name
from seqloom.decode.fill import Filled, fill_each, fill_jointly, fill_stretches, read_gaps
from seqloom.errors import UsageError
from seqloom.evaluate.contexts import Contexts, Occurrence
from seqloom.evaluate.continuations import ContinuationScore, count_after_context, score_continuations
from seqloom.evaluate.encode import Encoder, Reading
from seqloom.evaluate.evaluators import EncodedTexts, Evaluator, evaluator_of
from seqloom.evaluate.score import Scored
from seqloom.evaluate.suites import find_suite
from seqloom.evaluate.suites.agreement import Weighed
from seqloom.evaluate.suites.analogies import AskedWords
from seqloom.evaluate.words import VECTORS, Neighbour, Vocabulary, WordTable, parse_expression
from seqloom.objectives.next_token import as_left_to_right
from seqloom.progress import Progress
from seqloom.runs.loaded import LoadedRun
from seqloom.runs.results import Report
from seqloom.tokens.spelling import Characters, spell_text, spelling_table
from seqloom.tokens.tokenizer import Tokenizer

CONTEXTS_AT_ONCE = 512
NOTHING_LEFT = 1e-6  # length of a sum of vectors of length 1 that take each other away
SPARE = 8  # tokens that a context leaves free: special ones, and what is cut otherwise at its ends


class TextScorer(LoadedRun):
    """The part of `Run` that scores, fills and encodes texts."""

    folder: Path
    learner: Objective
    tokenizer: Tokenizer
    device: torch.device
    characters: int  # of an unknown word that it reads; 0: none
    backward: bool = False  # it reads texts from their end

    # ---- scores

    def definition(self, pll: str | None = None) -> str:
        """The definition of `score`, in words. pll: as there."""
        return self.evaluator.definitions[self.evaluator.definition(pll, self.backward)]

    @property
    def evaluator(self) -> Evaluator:
        return evaluator_of(self.learner, self.device)

    @property
    def no_next_word(self) -> str | None:
        """Why it cannot predict the next word of a text; None: it can."""
        if not self.learner.has_next_word:
            both = "" if self.learner.backbone.causal else "reads in both directions and "
            return f"{both}has no probability of the next word"
        return "reads texts from their end and has no probability of the next word" if self.backward else None

    def score(
        self,
        texts: str | Sequence[str],
        pll: str | None = None,
        names: Sequence[str] | None = None,
        batch_tokens: int = 16384,
    ) -> list[Scored]:
        """The log-probability of every token of every text, and of its end for left-to-right models.

        Args:
            texts: a text, or several.
            pll: of masked models, how pseudo-log-likelihoods are taken: "within-word" (the default) or "plain".
            names: where each text is from, for messages: models that read in both directions reject a text longer than their
                context.
            batch_tokens: computed at once; changes no figure.
        """
        encoded, unknown = self.tokenizer.encode_batch_with_unknown([texts] if isinstance(texts, str) else list(texts))
        definition = self.evaluator.definition(pll, self.backward)
        return self.evaluator.score(self.encoded(encoded, unknown, names), definition, batch_tokens)

    def encoded(
        self,
        ids: Sequence[Sequence[int] | np.ndarray],
        unknown: Sequence[Sequence[str]] = (),
        names: Sequence[str] | None = None,
    ) -> EncodedTexts:
        """Texts in the form that an evaluator takes. ids: their tokens; unknown: unknown words of each; names: as in `score`."""
        words = [word for some in unknown for word in some]
        return EncodedTexts(
            ids,
            lambda: self.add_special_tokens(ids, names),
            lambda flat: self.spell(flat, words),
            self.tokenizer.end_id,
            self.backward,
        )

    def add_special_tokens(
        self, encoded: Sequence[Sequence[int] | np.ndarray], names: Sequence[str] | None = None
    ) -> SpecialTokenTexts:
        """Texts with special tokens, as in training; raises where one is longer than the context. encoded: the tokens of each;
        names: as in `score`."""
        self.check_language()
        found = SpecialTokenTexts(encoded, *self.around)
        found.check(self.learner.backbone.max_len, names)
        return found

    @property
    def around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The special tokens before and after a text of a model that reads in both directions."""
        tokenizer, backbone = self.tokenizer, self.learner.backbone.as_backbone()
        before, _, after = backbone.surround(
            tokenizer.first_id, tokenizer.separator_id, tokenizer.end_id, tokenizer.end_id
        )
        return before, after

    def continuations(
        self, contexts: Sequence[str], continuations: Sequence[str], batch_tokens: int = 16384
    ) -> list[ContinuationScore]:
        """log p(continuation | context) of each pair, and whether greedy decoding gives it.

        Args:
            contexts: what stands before each continuation.
            continuations: as many. The blank between the two belongs to either of them: the caller writes it.
            batch_tokens: computed at once; changes no figure.
        """
        if self.no_next_word is not None:
            raise UsageError(f"{self.folder} {self.no_next_word}")
        if not contexts:
            return []
        texts = [context + more for context, more in zip(contexts, continuations, strict=True)]
        ids, unknown_words = self.tokenizer.encode_batch_with_unknown(texts)
        counts = count_after_context(self.tokenizer.encode_batch(contexts), ids)
        unknown = [word for words in unknown_words for word in words]
        log_probs, right = score_continuations(
            as_left_to_right(self.learner),
            ids,
            counts,
            self.tokenizer.end_id,
            self.device,
            batch_tokens,
            spell=lambda flat: self.spell(flat, unknown),
        )
        room = math.inf if self.learner.backbone.max_len is None else self.learner.backbone.max_len
        return [
            ContinuationScore(
                log_prob, share == 1, self.tokenizer.unk_id in row[len(row) - count :].tolist(), share, len(row) > room
            )
            for row, count, log_prob, share in zip(ids, counts, log_probs.tolist(), right.tolist(), strict=True)
        ]

    def weigh_words(
        self,
        befores: Sequence[str],
        words: Sequence[str],
        afters: Sequence[str],
        names: Sequence[str] | None = None,
        pll: str | None = None,
        batch_tokens: int = 16384,
    ) -> list[Weighed]:
        """The score of each word in its place, by the evaluator's definition.

        Args:
            befores: the text before each word.
            words: the words.
            afters: the text after each; models with a probability of the next word do not read it.
            names: as in `score`.
            pll: as in `score`.
            batch_tokens: computed at once; changes no figure.
        """
        if self.no_next_word is None:
            spaced = [f" {word}" if before else word for before, word in zip(befores, words, strict=True)]
            found = self.continuations(befores, spaced, batch_tokens)
            return [Weighed(each.log_prob, each.unknown) for each in found]
        texts = [" ".join(filter(None, parts)) for parts in zip(befores, words, afters, strict=True)]
        encoded, asked = [], []
        for text, before, word in zip(texts, befores, words, strict=True):
            ids, stretches = self.tokenizer.encode_with_offsets(text)
            stop = len(before) + bool(before) + len(word)
            encoded.append(ids)  # a token that is the blank before a word is the word's
            asked.append(np.array([a < stop and b > len(before) for a, b in stretches], bool))
        definition = self.evaluator.definition(pll, self.backward)
        chosen = np.concatenate([*asked, np.zeros(0, bool)])
        scored = self.evaluator.score(self.encoded(encoded, (), names), definition, batch_tokens, chosen)
        rows = [each.log_probs for each in scored]
        return [
            Weighed(sum(row), self.tokenizer.unk_id in np.array(ids)[own].tolist())
            for row, ids, own in zip(rows, encoded, asked, strict=True)
        ]

    def evaluate_suite(
        self,
        suite: str,
        data: str | Path,
        pll: str | None = None,
        batch_tokens: int = 16384,
        items: bool = False,
        vectors: str | None = None,
        contexts: str | Path | None = None,
        num_contexts: int = 10,
    ) -> dict[str, Any]:
        """The metrics of a suite on its published files, and the definition of scores.

        Args:
            suite: "blimp", "agreement", "lambada", "copy", "analogies" or "similarity".
            data: the published file or folder.
            pll: as in `score`.
            batch_tokens: computed at once; changes no figure.
            items: "items", too: a number for each of them in the order of the files, which is the same for every model.
            vectors: of analogies and similarity, how words become vectors: "in", "out", "mean", "alone" or "contexts", as in
                `word_vectors`.
            contexts, num_contexts: as there.
        """
        asks, read, measure, _ = find_suite(suite)
        definition, started = self.evaluator.definition(pll, self.backward), time.monotonic()
        if (why := self.lacks(suite)) is not None:
            raise UsageError(f"--suite {suite}: {self.folder} {why}: leave this suite out for it")
        if not Path(data).exists():
            raise UsageError(f"--suite-data {data}: no such file or folder: name the published files of {suite}")

        def sentences(texts: Sequence[str], names: Sequence[str]) -> list[float]:
            return [sum(found.log_probs) for found in self.score(texts, pll, names, batch_tokens)]

        def words(
            befores: Sequence[str], forms: Sequence[str], afters: Sequence[str], names: Sequence[str]
        ) -> list[Weighed]:
            return self.weigh_words(befores, forms, afters, names, pll, batch_tokens)

        def going_on(contexts: Sequence[str], more: Sequence[str]) -> list[ContinuationScore]:
            return self.continuations(contexts, more, batch_tokens)

        given = {"vectors": vectors, "contexts": contexts}
        if asks != "vectors" and (option := next((name for name in given if given[name] is not None), None)):
            raise UsageError(
                f"--{option} {given[option]} is for the suites analogies and similarity: leave it out for {suite}"
            )
        vectors, places = self._how_vectors(vectors, contexts, num_contexts)

        def of_words(words: Sequence[str], with_vocabulary: bool) -> AskedWords:
            return self.ask_words(words, vectors, with_vocabulary, places)

        ask: Any = {"sentences": sentences, "words": words, "continuations": going_on, "vectors": of_words}[asks]
        definitions = self.evaluator.definitions if asks == "sentences" else self.evaluator.word_definitions
        defined = self._describe_vectors(vectors, places) if asks == "vectors" else definitions[definition]
        result = measure(read(Path(data)), ask)
        if not items:
            del result["items"]
        seconds = round(time.monotonic() - started, 3)
        return Report(
            {"suite": suite, "definition": defined} | result | {"parameters": self.learner.size(), "seconds": seconds}
        )

    def lacks(self, suite: str) -> str | None:
        """Why it cannot be evaluated on a suite; None: it can. suite: its name."""
        asks = find_suite(suite).asks
        if asks == "vectors":
            return "counts words and has no vectors" if self.learner.count_based else None
        return self.evaluator.no_scores or (self.no_next_word if asks == "continuations" else None)

    # ---- gaps

    def fill(
        self, text: str, *, top: int = 5, joint: bool = False, beam: int = 64, longest: int = 16
    ) -> list[list[Filled]]:
        """The most likely words for every [MASK] (or <mask>) of a text: a list for each of them.

        Args:
            text: with at least one [MASK].
            top: the number of words for each.
            joint: one list, of combinations for all of them, found by a beam over p(m1) · p(m2 | m1) · …
            beam: the size of that beam.
            longest: the most tokens of a gap, for models that fill gaps of any length.
        """
        learner: Any = self.learner
        self._check_fills_gaps()
        if not 1 <= top <= 10_000 or not 1 <= beam <= 10_000 or not 1 <= longest <= 10_000:
            raise UsageError(f"top = {top}, beam = {beam}, longest = {longest}: each is between 1 and 10,000")
        ids, gaps = read_gaps(text, self.tokenizer)
        if not gaps:
            raise UsageError(f"no gap in {text[:60]!r}: write [MASK] (or <mask>) where a word is to be found")
        row = self.add_special_tokens([ids], ["the text"]).flat.tolist()
        places = [gap + len(self.around[0]) for gap in gaps]
        if learner.fills_any_length:
            several = fill_stretches(learner, ids, gaps, max(beam, top), longest, self.device)
            if joint:
                return [[self.filled(ids, gaps, parts, share) for parts, share in several[:top]]]
            return [self.of_one_gap(ids, gaps, i, several)[:top] for i in range(len(gaps))]
        if joint:
            found = fill_jointly(learner, row, places, top, beam, self.device)
            return [[self.filled(ids, gaps, [[token] for token in tokens], share) for tokens, share in found]]
        return [
            [self.filled(ids, [gap], [tokens], share) for tokens, share in some]
            for gap, some in zip(gaps, fill_each(learner, row, places, top, self.device), strict=True)
        ]

    def _check_fills_gaps(self) -> None:
        learner: Any = self.learner
        if not learner.fills_gaps and learner.fills_any_length:
            raise UsageError(
                f"{self.folder} has learnt to write one fragment whose length it is given, and does not find how long a gap is: "
                "to fill gaps, train one with objective.targets = whole or sentinels"
            )
        if not learner.fills_gaps and self.no_next_word is None:
            raise UsageError(
                f"{self.folder} reads from left to right and does not see what comes after a gap: to continue from what "
                f"comes before, use 'seqloom generate {self.folder} --prompt TEXT'"
            )
        if not learner.fills_gaps:
            raise UsageError(
                f"{self.folder} has not learnt to predict a word from both sides of it: choose a run that has, such as one of "
                f"bert, xlnet or bart"
            )
        if self.tokenizer.mask_id is None:
            raise UsageError(
                f"{self.folder} has a vocabulary without a mask token, which marks gaps: to continue from what comes before, "
                f"use 'seqloom generate {self.folder} --prompt TEXT'"
            )

    def of_one_gap(
        self, ids: list[int], gaps: list[int], number: int, several: list[tuple[list[list[int]], float]]
    ) -> list[Filled]:
        """What is in one gap, whatever is in the others. ids: the tokens of the text; gaps: the places of all; number: of the
        one; several: what is in all of them, with its probability."""
        sums: dict[tuple[int, ...], float] = {}
        for parts, share in several:
            sums[tuple(parts[number])] = sums.get(tuple(parts[number]), 0.0) + share
        best = sorted(sums.items(), key=lambda each: -each[1])
        return [self.filled(ids, [gaps[number]], [list(tokens)], share) for tokens, share in best]

    def filled(self, ids: list[int], gaps: list[int], parts: list[list[int]], probability: float) -> Filled:
        """A text with its gaps filled. ids: its tokens; gaps: their places; parts: the tokens that are put in each;
        probability: how likely they are."""
        put = dict(zip(gaps, parts, strict=True))
        row = [token for i, kept in enumerate(ids) for token in put.get(i, [kept])]
        text = self.tokenizer.decode(row, specials=True)
        return Filled([token for part in parts for token in part], probability, text, [len(part) for part in parts])

    # ---- vectors

    def encode(
        self, texts: Sequence[str], layers: str | int = "last", pool: str = "mean", names: Sequence[str] | None = None
    ) -> np.ndarray | list[np.ndarray]:
        """A vector for each text, (N, D), in their order, an empty text being zeros; with pool "none" a list of (tokens, D).

        Args:
            texts: a text, or several.
            layers: "embedding", "last", "second-to-last", "sum", "sum4", "concat4", "mix", a number, or "all" for (N, layers, D).
            pool: "mean", "max" and "last" over a text's own tokens; "first": [CLS] where the model has it.
            names: where each text is from, for messages.
        """
        return self.reading.encode(texts, layers, pool, names)

    @property
    def reading(self) -> Reading:
        self.check_language()
        tokenizer, backbone = self.tokenizer, self.learner.backbone.as_backbone()
        around: tuple[Sequence[int], Sequence[int]] = ([tokenizer.end_id], [])  # as left-to-right models read
        if not backbone.causal:
            around = self.around
        table = self._spellings if self.characters else None
        return Reading(Encoder(backbone, *around, self.device), tokenizer, table, self.backward)

    # ---- words

    @property
    def default_vectors(self) -> str:
        """How words become vectors unless somebody says otherwise: by the table where nothing else is learnt, else by what the
        model makes of each word alone."""
        return "in" if self.learner.backbone.learns_from in STATIC else "alone"

    @cached_property
    def word_vocabulary(self) -> Vocabulary:
        return Vocabulary(self.tokenizer)

    def _how_vectors(
        self, vectors: str | None, contexts: str | Path | None, num_contexts: int
    ) -> tuple[str, Contexts | None]:
        """How words become vectors, and where their contexts are found, if that is how."""
        vectors = known_vectors(vectors or ("contexts" if contexts is not None else self.default_vectors))
        if (vectors == "contexts") != (contexts is not None):
            raise UsageError("--vectors contexts and --contexts TEXT need each other: name a text in which words stand")
        return vectors, None if contexts is None else Contexts(Path(contexts), num_contexts)

    def word_vectors(
        self,
        words: Sequence[str],
        vectors: str | None = None,
        contexts: str | Path | None = None,
        num_contexts: int = 10,
    ) -> list[np.ndarray | None]:
        """The vector of each word, None where it is unknown: not in the vocabulary, and neither made of n-grams nor read by its
        letters.

        Args:
            words: as they would stand in a text; in lower case where the vocabulary has no other form.
            vectors: "in" and "out", rows of the input and the output table, "mean" of both; "alone": the last layer of the model
                that reads the word alone; "contexts": the mean over places where it stands in `contexts`. Unless given "in"
                for models without a context, and "alone" for others.
            contexts: a text, as `prepare` reads it.
            num_contexts: the most places of each word that are read there; always the same ones.
        """
        return self._vectors_of(words, *self._how_vectors(vectors, contexts, num_contexts))

    def _vectors_of(self, words: Sequence[str], vectors: str, contexts: Contexts | None) -> list[np.ndarray | None]:
        forms = [self.word_vocabulary.form(word) for word in words]
        tokens = [self.word_vocabulary.tokens(form) for form in forms]
        # a word that is not in the vocabulary can be read by its letters, if by anything
        readable = [ids is not None or self.characters > 0 for ids in tokens]
        found: Sequence[np.ndarray | None]
        if contexts is not None:
            places = contexts.find([word for word, known in zip(words, readable, strict=True) if known])
            found = self._mean_over_contexts([places.get(word, ()) for word in words])
        elif vectors == "alone":
            known_forms = [form for form, known in zip(forms, readable, strict=True) if known]
            rows = iter(self.encode(known_forms) if known_forms else ())
            found = [next(rows) if known else None for known in readable]
        else:
            found = self._rows_of_words(forms, tokens, vectors)
        return [None if vector is None or not vector.any() else vector for vector in found]

    def _rows_of_words(
        self, forms: Sequence[str], tokens: Sequence[list[int] | None], vectors: str
    ) -> list[np.ndarray | None]:
        """The mean of the rows of each word's tokens; of a word outside the vocabulary what the model makes of its n-grams."""
        table = self.table(vectors)
        return [
            (self._unknown_vector(form) if vectors == "in" else None) if ids is None else table[ids].mean(0)
            for form, ids in zip(forms, tokens, strict=True)
        ]

    def _mean_over_contexts(self, each: Sequence[Sequence[Occurrence]]) -> list[np.ndarray | None]:
        """The mean over the occurrences of each word; None where it has none."""
        every = [self._shorten(one) for some in each for one in some]
        vectors: list[np.ndarray] = []
        with Progress("read contexts", total=float(len(every)), unit="contexts") as bar:
            for first in range(0, len(every), CONTEXTS_AT_ONCE):
                some = every[first : first + CONTEXTS_AT_ONCE]
                for one, states in zip(some, self.encode([one.text for one in some], pool="none"), strict=True):
                    vectors.append(states[self._own_tokens(one)].mean(0))
                bar.advance(len(some))
        borders = np.cumsum([0, *(len(some) for some in each)]).tolist()
        return [np.mean(vectors[a:b], axis=0) if b > a else None for a, b in itertools.pairwise(borders)]

    def _own_tokens(self, one: Occurrence) -> list[int]:
        """The tokens of a word in its context."""
        _, stretches = self.tokenizer.encode_with_offsets(one.text)
        return [i for i, (a, b) in enumerate(stretches) if a < one.stop and b > one.start]

    def _shorten(self, one: Occurrence) -> Occurrence:
        """A context that the model can read whole: so many tokens around the word."""
        longest = self.learner.backbone.max_len
        _, stretches = self.tokenizer.encode_with_offsets(one.text)
        room = len(stretches) if longest is None else longest - SPARE
        if len(stretches) <= room:
            return one
        own = self._own_tokens(one)
        first = max(min(own[0] - (room - len(own)) // 2, len(stretches) - room), 0)
        begin, end = stretches[first][0], max(stretches[min(first + room, len(stretches)) - 1][1], one.stop)
        return Occurrence(one.text[begin:end], one.start - begin, one.stop - begin)

    def _describe_vectors(self, vectors: str, contexts: Contexts | None) -> str:
        """How words become vectors, in words."""
        if contexts is not None:
            return f"{VECTORS[vectors]}: at most {contexts.most} of each word, in {contexts.path.name}"
        own = vectors == "in" and self._unknown_vector("word") is not None
        return VECTORS[known_vectors(vectors)] + (
            "; of a word that is not in the vocabulary those of its n-grams" * own
        )

    def _unknown_vector(self, word: str) -> np.ndarray | None:
        """Of a word that is not in the vocabulary, where the model has one."""
        with torch.no_grad():
            found = self.learner.backbone.as_backbone().vector_of(word)
        return None if found is None else found.float().cpu().numpy()

    def table(self, vectors: str = "in") -> np.ndarray:
        """(V, D) the vectors of all tokens. vectors: "in", "out" or "mean"."""
        found = self.learner.vectors(vectors)
        if found is None and vectors == "in":
            raise UsageError(f"{self.folder} has no table of vectors of its words: choose another run")
        if found is None:
            raise UsageError(f"--vectors {vectors}: {self.folder} has no second table of vectors: leave it out")
        return found.detach().float().cpu().numpy()

    def ask_words(
        self, words: Sequence[str], vectors: str, with_vocabulary: bool, contexts: Contexts | None = None
    ) -> AskedWords:
        """What a suite wants to know. words: its words; vectors: as in `word_vectors`; with_vocabulary: all words of the
        vocabulary may be an answer, too; contexts: where words are looked up."""
        found = dict(zip(words, self._vectors_of(words, vectors, contexts), strict=True))
        keys = {word: self.word_vocabulary.form(word) for word in words}
        if not with_vocabulary:
            return AskedWords(found, keys, None)
        every = list(self.word_vocabulary.ids)
        rows = dict(zip(every, self._vectors_of(every, vectors, contexts), strict=True))
        # a word of several tokens may be an answer, too; one that is made of its letters alone may not
        rows |= {keys[word]: vector for word, vector in found.items() if self.word_vocabulary.tokens(keys[word])}
        known = {word: vector for word, vector in rows.items() if vector is not None}
        if not known:
            remedy = "choose another run" if contexts is None else "name a text for --contexts that has its words in it"
            raise UsageError(
                f"{self.folder} has a vector of no word of its vocabulary, among which answers are found: {remedy}"
            )
        return AskedWords(found, keys, WordTable(list(known), np.stack(list(known.values()))))

    def neighbours(self, *words: str, top: int = 10, vectors: str = "in") -> list[Neighbour]:
        """The words whose vectors are nearest to that of a word, or to a sum such as "king", "-", "man", "+", "woman".

        Args:
            words: a word, or words with "+" and "-" between them; "king - man + woman" is one string of that. Vectors have
                length 1 before they are added, and the words themselves are no answers.
            top: the number of neighbours.
            vectors: "in", "out", "mean" or "alone", as in `word_vectors`.
        """
        if not 1 <= top <= 1_000_000:
            raise UsageError(f"top = {top}: between 1 and 1,000,000 neighbours can be listed")
        terms = parse_expression([part for word in words for part in word.split()])
        vectors, _ = self._how_vectors(vectors, None, 1)
        asked = self.ask_words([word for _, word in terms], vectors, with_vocabulary=True)
        query: Any = 0.0
        for sign, word in terms:
            vector = asked.vectors[word]
            if vector is None:
                near = difflib.get_close_matches(asked.keys[word], list(self.word_vocabulary.ids), n=1, cutoff=0.7)
                hint = f"did you mean {near[0]!r}?" if near else "choose another word"
                raise UsageError(f"{word!r} is not in the vocabulary of {self.folder}: {hint}")
            query = query + sign * vector / np.linalg.norm(vector)
        if np.linalg.norm(query) < NOTHING_LEFT:
            raise UsageError(
                f"{' '.join(words)!r}: its words take each other away, and no word is near what is left: leave some of them out"
            )
        assert asked.table is not None
        return asked.table.nearest(query, top, set(asked.keys.values()))

    # ---- characters

    def spell(self, ids: npt.ArrayLike, unknown: list[str]) -> Characters | None:
        """(T, C) the characters of a text, if the model reads those of unknown words. ids: its tokens; unknown: those words."""
        if not self.characters:
            return None
        return spell_text(ids, unknown, self.tokenizer, self._spellings)

    @cached_property
    def _spellings(self) -> Characters:
        return spelling_table(self.tokenizer, self.characters)


def known_vectors(name: str) -> str:
    if name not in VECTORS:
        raise UsageError(unknown_name("--vectors", name, name, list(VECTORS)))
    return name
