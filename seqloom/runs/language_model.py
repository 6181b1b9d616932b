"""A trained language model: evaluation, interpolation with another, generation."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from seqloom.analyse.beam_tree import BeamTree
from seqloom.batch import Objective
from seqloom.batches.store import Store
from seqloom.config import build
from seqloom.decode.rules import BeamConfig, SampleConfig
from seqloom.decode.sample import SampledToken, last_window
from seqloom.decode.sample import sample as draw
from seqloom.decode.search import beam_search
from seqloom.decode.step import Stepper
from seqloom.decode.stream import Continuation, Sample, TextStream, continue_text
from seqloom.decode.trace import TracedSearch
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.cache import evaluate_with_cache
from seqloom.evaluate.mix import Part
from seqloom.evaluate.mix import mix as mix_parts
from seqloom.objectives.next_token import as_left_to_right
from seqloom.progress import say
from seqloom.recipes.schema import build_recipe
from seqloom.runs.corpus import held_out_text, language_of, languages_of
from seqloom.runs.music import measured_on_songs
from seqloom.runs.results import Report, Results, Table
from seqloom.runs.scoring import TextScorer
from seqloom.tokens.tokenizer import Tokenizer


class Run(TextScorer):
    """A trained language model with its tokenizer, on a device."""

    def __init__(
        self, folder: Path, config: dict[str, Any], learner: Objective, tokenizer: Tokenizer, device: torch.device
    ):
        self.folder, self.config, self.learner, self.tokenizer, self.device = folder, config, learner, tokenizer, device
        self.stepper: Stepper | None = None
        # unknown words are read by their characters if they were so in training
        data = config.get("data")
        kept = isinstance(data, dict) and data.get("spelling") is True
        self.characters = learner.backbone.characters if kept else 0
        self.backward = isinstance(data, dict) and data.get("backward") is True
        if learner.languages:
            self.languages = list(learner.languages)
        elif learner.backbone.segment_kind == "languages":
            self.languages = languages_of(build_recipe(config["recipe"], str(folder)), data)

    def __call__(
        self, texts: str | Iterable[str | dict[str, Any]] | Table, *, text: str = "text", pll: str | None = None
    ) -> Results | Table:
        """Scores texts: "log_prob", the sum over the tokens of each in nats, as `seqloom score` prints it, and the number of its
        "tokens".

        Args:
            texts: a string, strings or dicts (they give a list of dicts), or a pandas DataFrame or datasets.Dataset, which is
                returned with the scores as further columns.
            text: the column or key of the texts.
            pll: as in `score`.
        """

        def answer(found: list[str]) -> list[dict[str, Any]]:
            scored = self.score(found, pll) if found else []
            return [{"log_prob": sum(each.log_probs), "tokens": len(each.log_probs)} for each in scored]

        return self.answer_texts(texts, text, answer)

    def evaluate(self, data: str | Path, split: str | None = None, **options: Any) -> dict[str, Any]:
        """Perplexity and bits on prepared text.

        Args:
            data: a prepared folder that was made with the same tokenizer.
            split: "train", "valid" or "test"; unless given the first of test, valid and train that is there.
            options: those of `perplexity`; a stride that is not given is half of the context.
        """
        store, name = self.open(data, split)
        started = time.monotonic()
        recipe = build_recipe(self.config["recipe"], str(self.folder))
        language = None if self.learner.languages else language_of(self.languages, data)
        text = held_out_text(recipe, store.split(name), self.tokenizer, language)
        result = self.evaluator.evaluate(text, **options) | self.state_in_training()
        if not self.learner.has_next_word:
            result["no_bits_per_byte"] = f"the model {self.no_next_word}"
        return evaluation_report(name, store, result, self.learner.size(), started)

    def state_in_training(self) -> dict[str, Any]:
        """Whether the state of a recurrent network was reset at every document in training, as it is in evaluation ("reset"), or
        was carried over their borders ("carried"), so that it never learnt how to begin one. Of a memory also how many tokens
        each token sees."""
        backbone = self.learner.backbone
        if not backbone.carries or self.learner.count_based:
            return {}
        recipe = build_recipe(self.config["recipe"], str(self.folder))
        batches, window = recipe.batches, getattr(recipe.model_config_of(self.config["vocab_size"]), "window", None)
        found = {"state_in_training": "carried" if batches.kind == "streams" and not batches.reset else "reset"}
        return found if window is None else found | {"tokens_seen": window}

    def mix(self, other: "Run", data: str | Path, split: str | None = None, **options: Any) -> dict[str, Any]:
        """Evaluates the interpolation of two runs: λ times the probabilities of this one, 1 − λ times those of the other.

        Args:
            other: the other run, with the same tokenizer.
            data: a prepared folder; λ is tuned on its valid split.
            split: as in `evaluate`.
            options: those of `evaluate.mix.mix`.
        """
        started = time.monotonic()
        for run in (self, other):
            if not run.learner.has_next_word:
                raise UsageError(f"--mix: {run.folder} {run.no_next_word} to mix")
        if self.config["tokenizer"] != other.config["tokenizer"]:
            raise DataError(
                f"{self.folder} and {other.folder} have different tokenizers: only probabilities of the same tokens can be "
                f"mixed; prepare the text of one with --from-tokenizer of the other, and train it again"
            )
        if (
            self.learner.backbone.characters
            and other.learner.backbone.characters
            and self.characters != other.characters
        ):
            raise UsageError(
                f"{self.folder} and {other.folder} read unknown words in different ways (by up to {self.characters} and "
                f"{other.characters} characters): only runs that read the same text can be mixed"
            )
        store, name = (other if other.characters else self).open(data, split)
        if "valid" not in store.splits:
            raise DataError(
                f"{data} has no valid split, on which the shares of the two runs are tuned: prepare it with "
                f"--valid FILE or --valid 0.05"
            )
        parts = tuple(Part(str(run.folder), as_left_to_right(run.learner), run.device) for run in (self, other))
        result = mix_parts(parts, store.split("valid"), store.split(name), **options)  # type: ignore[arg-type]
        return evaluation_report(name, store, result, self.learner.size() + other.learner.size(), started)

    def evaluate_cached(
        self,
        data: str | Path,
        size: int,
        split: str | None = None,
        theta: float | None = None,
        share: float | None = None,
    ) -> dict[str, Any]:
        """Evaluates with a cache of hidden states (Grave et al., 2017).

        Args:
            data: a prepared folder.
            size: how many of the last hidden states are kept.
            split: as in `evaluate`.
            theta: θ, the sharpness of the cache's distribution; tuned on valid where not given.
            share: λ, the share of the cache; tuned on valid where not given.
        """
        started = time.monotonic()
        store, name = self.open(data, split)
        valid = store.split("valid") if "valid" in store.splits else None
        result = evaluate_with_cache(self.learner, self.device, valid, store.split(name), size, theta, share)  # type: ignore[arg-type]
        return evaluation_report(name, store, result | self.state_in_training(), self.learner.size(), started)

    def open(self, data: str | Path, split: str | None) -> tuple[Store, str]:
        """Opens prepared text. data: a folder that this run can read; split: chosen where none is given."""
        store = Store.open(Path(data))
        if store.manifest.tokenizer != self.config["tokenizer"]:
            raise DataError(
                f"{data} was prepared with another tokenizer than {self.folder} was trained with: prepare it with "
                f"--from-tokenizer {self.folder / 'tokenizer.json'}"
            )
        if self.characters and not store.has_spelling:
            raise DataError(
                f"{data} has no spelling of unknown words, which {self.folder} was trained to read: prepare it with "
                f"--keep-spelling and --from-tokenizer {self.folder / 'tokenizer.json'}"
            )
        if store.backward != self.backward:
            ways = ("forward", "backward")
            raise DataError(
                f"{data} is read {ways[store.backward]}, and {self.folder} was trained to read {ways[self.backward]}: prepare it "
                f"{'with' if self.backward else 'without'} --backward"
            )
        store.spell(self.characters)
        return store, split or next((name for name in ("test", "valid", "train") if name in store.splits), "test")

    def generate(
        self,
        prompt: str = "",
        *,
        n: int = 1,
        seed: int = 0,
        on_text: Callable[[str], None] | None = None,
        **options: Any,
    ) -> list[Sample]:
        """Continues a prompt n times.

        Args:
            prompt: the text to continue; unless given the start of a document.
            n: the number of samples.
            seed: the same seed gives the same text.
            on_text: called with the text of the first sample as it is generated, in pieces that never split a character.
            options: those of SampleConfig: temperature, top_k, top_p, max_new, …
        """
        if not 1 <= n <= 10_000:
            raise UsageError(f"n = {n}: between 1 and 10,000 samples can be drawn at once")
        config = build(SampleConfig, options, source="generate")
        tokenizer = self.tokenizer
        stepper, ids, banned = self.begin(prompt, n)
        streams = [TextStream(tokenizer, ids, prompt) for _ in range(n)]
        pieces: list[list[str]] = [[prompt] for _ in range(n)]
        made: list[list[SampledToken]] = [[] for _ in range(n)]
        for drawn in draw(stepper, [ids] * n, config, seed, tokenizer.end_id, banned):
            piece = "" if drawn.token == tokenizer.end_id else streams[drawn.sample].push(drawn.token)
            piece += streams[drawn.sample].close() if drawn.last else ""
            pieces[drawn.sample].append(piece)
            made[drawn.sample].append(drawn)
            if piece and drawn.sample == 0 and on_text is not None:
                on_text(piece)
        return [
            Sample("".join(text), [d.token for d in tokens], [d.log_prob for d in tokens])
            for text, tokens in zip(pieces, made, strict=True)
        ]

    def search(self, prompt: str = "", *, n: int = 1, **options: Any) -> list[Continuation]:
        """The n best continuations of a prompt that a beam search finds, best first.

        The context does not slide here, because hypotheses with different contexts cannot be compared: hypotheses end there.

        Args:
            prompt: the text to continue; unless given the start of a document.
            n: the number of continuations.
            options: those of BeamConfig: beam, max_new, length_penalty, …
        """
        config = build(BeamConfig, options | {"n_best": n}, source="generate")
        stepper, ids, banned = self.begin(prompt, 1)
        ids = last_window(ids, stepper.limit)
        if stepper.limit is not None and len(ids) + config.max_new > stepper.limit + 1:
            room = stepper.limit + 1 - len(ids)
            say(f"warning: the model reads {stepper.limit} tokens, a beam ends there: at most {room} new ones")
        (found,) = beam_search(stepper, [ids], config, self.tokenizer.end_id, banned)
        return [Continuation(continue_text(self.tokenizer, ids, prompt, h.tokens), *h[:4]) for h in found]

    def beam_tree(self, prompt: str = "", *, n: int = 1, **options: Any) -> BeamTree:
        """How a beam search for continuations goes: every hypothesis that it keeps.

        Args:
            prompt: as in `search`.
            n: the number of continuations.
            options: as in `search`.
        """
        config = build(BeamConfig, options | {"n_best": n}, source="generate")
        stepper, ids, banned = self.begin(prompt, 1)
        search = TracedSearch(stepper, config, self.tokenizer.end_id, banned)
        (found,) = search.run([last_window(ids, stepper.limit)])
        return BeamTree(self.folder.name, prompt, config.beam, list(search.considered.values()), found, self.tokenizer)

    def begin(self, prompt: str, n: int) -> tuple[Stepper, list[int], list[int]]:
        """What is needed to continue a text: the stepper, the tokens of the prompt, and the banned tokens. prompt: the text; n:
        how often it is continued."""
        if not self.learner.has_next_word:
            if not self.learner.fills_gaps:
                raise UsageError(
                    f"{self.folder} cannot continue a text: it was not trained to predict the next word alone"
                )
            raise UsageError(
                f"{self.folder} reads in both directions and cannot continue a text: to fill [MASK] in one, use "
                f"'seqloom fill {self.folder} TEXT'"
            )
        if self.backward:
            raise UsageError(f"{self.folder} reads from the end of a text and cannot continue its beginning")
        ids, unknown = self.read(prompt)
        if unknown and not self.characters:
            say(f"warning: the model has never seen {', '.join(map(repr, unknown[:5]))}: read as unknown")
        limit = self.learner.backbone.max_len
        if limit is not None and len(ids) >= limit:
            half = f"only its last {limit // 2} are used"
            say(f"warning: the prompt has {len(ids)} tokens, the model reads {limit}: {half}")
        special = {self.tokenizer.unk_id, *self.tokenizer.special_ids.values()}
        banned = [i for i in special if i is not None and i != self.tokenizer.end_id]
        if self.stepper is None:  # kept for the next call
            learner = as_left_to_right(self.learner)
            self.stepper = Stepper(learner.backbone, learner.softmax)  # type: ignore[arg-type]
        rows = self.spell(ids, unknown)
        self.stepper.characters = None if rows is None else torch.from_numpy(rows).repeat(n, 1).to(self.device)
        return self.stepper, ids, banned

    def read(self, text: str) -> tuple[list[int], list[str]]:
        """The tokens of a text, the end token before them, and its unknown words. text: as it stands."""
        (ids,), (unknown,) = self.tokenizer.encode_batch_with_unknown([text])
        return [self.tokenizer.end_id, *ids.tolist()], unknown


def evaluation_report(
    split: str, store: Store, result: dict[str, Any], parameters: int, started: float
) -> dict[str, Any]:
    """The result of an evaluation with what all of them report."""
    if store.manifest.bits_per_byte != "yes":
        result.setdefault("no_bits_per_byte", store.manifest.bits_per_byte)
    result = measured_on_songs(str(store.manifest.options.get("tokenizer")), result)
    seconds = round(time.monotonic() - started, 3)
    return Report({"split": split, **result, "parameters": parameters, "seconds": seconds})
