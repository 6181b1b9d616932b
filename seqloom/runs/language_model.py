"""Runs: pre-train one into a folder, load it from there, use it."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom import cost, migrations
from seqloom.batch import Objective
from seqloom.batches.loader import Loader
from seqloom.batches.store import Store
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.config import build, unknown_name
from seqloom.decode.rules import BeamConfig, SampleConfig
from seqloom.decode.sample import Drawn, clipped
from seqloom.decode.sample import sample as draw
from seqloom.decode.search import beam_search
from seqloom.decode.step import Stepper
from seqloom.decode.stream import Continuation, Sample, TextStream
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.evaluate.cache import cached
from seqloom.evaluate.masked import masked_loss
from seqloom.evaluate.mix import Part
from seqloom.evaluate.mix import mix as mix_parts
from seqloom.evaluate.perplexity import half_context, perplexity
from seqloom.files import read_json, sole_owner
from seqloom.objectives.counted import Counted
from seqloom.objectives.masked import MaskedLM
from seqloom.objectives.translation_lm import TranslationLM
from seqloom.plugins import Plugin, check_recorded, open_plugin, record
from seqloom.progress import say
from seqloom.randomness import derive_seed
from seqloom.recipes.library import find_recipe
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.corpus import Prepared, held_out_passages, language_of, spoken
from seqloom.runs.folder import (
    WEIGHTS,
    begin_folder,
    check_weights,
    describe,
    export,
    finish,
    keep_milestone,
    spent,
)
from seqloom.runs.language import spoken_in
from seqloom.runs.predictor import Predictor
from seqloom.runs.scoring import Reading
from seqloom.runs.translator import Translator
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.count import Count, check_order, select_documents
from seqloom.training.find_rate import Found, find_rate
from seqloom.training.loop import Fit, Milestone
from seqloom.training.precision import choose_device, deterministic_algorithms
from seqloom.weights import check_fit, fill, load_tensors, shapes_only, unique


def pretrain(
    recipe: str | Recipe,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    settings: list[str] | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    deterministic: bool = False,
    country: str = "world",
    plugin: str | Path | Plugin | None = None,
    start: str | Path | None = None,
) -> "Run":
    """Trains a recipe on a prepared folder and returns the finished run. data: or several of one tokenizer, a language each;
    plugin: a file with code of your own; start: another run, whose weights this one begins with."""
    folder, where, own = Path(out), choose_device(device), open_plugin(plugin)
    recipe = from_text(recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own))
    check_country(country)
    text = Prepared.open(recipe, data)
    if resume:
        text.count_as(folder / "config.json")
    for store in text.stores.values():
        if folder.resolve() in (store.folder.resolve(), *store.folder.resolve().parents):
            raise UsageError(f"--out {folder} holds the data itself: choose another folder for the run")
    # what cannot work is refused before the folder is touched
    budget = recipe.budget.resolve(text)
    batches = text.batches(budget.tokens / text.num_tokens)
    if recipe.learns == "counts":
        chosen = select_documents(text.train[0], budget.tokens, seed)
        check_order(recipe.model_config_of(1).order, chosen)
    with shapes_only():
        shape = recipe.learner(text.vocab_size, own)
    if isinstance(shape, MaskedLM):
        PreparedVocabulary(text.tokenizer).mask()
    text.spell(shape.backbone.characters)
    source = None if start is None else Path(start)
    first = None if source is None else first_weights(source, recipe, text.first, folder, own)
    with sole_owner(folder), deterministic_algorithms(deterministic):
        config = describe(recipe, text.vocab_size, text.tokenizer.hash, text.origin(), seed)
        if source is not None:
            config["from"] = {"run": str(source), "weights": read_json(source / "weights.json")}
        if own is not None:
            config["plugin"] = record(own)
        begin_folder(folder, config, text.tokenizer, resume, overwrite)
        learner = begin_learner(text, own, seed).to(where)
        if first is not None:
            learner.load_state_dict(first, strict=False)  # a shared tensor is filled through its first name

        def validate(stop: Callable[[], bool]) -> dict[str, Any] | None:
            return text.measure(learner, where, stop)

        def keep(state: Any) -> None:
            export(learner, folder)

        measure = validate if text.held_out else None
        fit: Fit | Count
        if isinstance(learner, Counted):
            if budget.tokens > text.num_tokens and not resume:
                say("counting once: more epochs would count nothing new")
            fit = Count(learner, text.train[0], chosen, folder, measure, keep)
        else:
            loader = Loader(batches, learner, seed, recipe.train.workers)
            marks = milestones(budget.tokens, text) if recipe.train.milestones else []
            fit = Fit(
                learner, loader, recipe.train, budget, folder, where, seed, measure, keep, marks,
                lambda mark, state: keep_milestone(learner, folder, mark, state),
            )  # fmt: skip
            say(
                f"{recipe.name}: {learner.size():,} parameters, {text.num_tokens:,} training tokens{text.mixture()}, on "
                f"{where}, {fit.precision}"
            )
        state = fit.run(resume)
        if not (folder / "card.md").exists():  # written last; a run that was finished before keeps its figures
            finish(folder, config, state, learner, text.about(), spent(state, country, where))
    return language_model(folder, device=str(where), plugin=own)


def milestones(tokens: float, text: Prepared) -> list[Milestone]:
    """1, 2, … 10, 20, … of a million words; of a smaller unit where a run reads fewer than ten million. tokens: that it reads."""
    ratio = text.num_tokens / max(text.words, 1)
    words = min(tokens / ratio, 1e10)
    unit = 10 ** min(max(int(math.log10(max(words, 10))) - 1, 0), 6)
    counts = [n * unit * 10**power for power in range(10) for n in range(1, 10)]
    return [Milestone(count, count * ratio) for count in counts if count <= words]


def from_text(recipe: Recipe) -> Recipe:
    if recipe.task is not None:
        raise UsageError(
            f"{recipe.name} learns a task from labelled examples, not from plain text: "
            f"seqloom train {recipe.name} --task {recipe.learns} --train FILE… --out RUN"
        )
    return recipe


def check_country(country: str) -> None:
    if country not in cost.GRAMS_PER_KWH:
        raise UsageError(unknown_name("country", country, country, list(cost.GRAMS_PER_KWH)))


def begin_learner(text: Prepared, own: Plugin | None, seed: int) -> Objective:
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed))  # the values that the weights start from
        learner = text.recipe.learner(text.vocab_size, own)
    learner.introduce(PreparedVocabulary(text.tokenizer, text.train))
    return learner


def find_lr(
    recipe: str | Recipe,
    data: str | Path | Sequence[str | Path],
    *,
    settings: list[str] | None = None,
    seed: int = 0,
    device: str = "auto",
    plugin: str | Path | Plugin | None = None,
) -> Found:
    """A learning rate for a recipe on a text, by a short run whose rate rises until the loss breaks out."""
    where, own = choose_device(device), open_plugin(plugin)
    recipe = from_text(recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own))
    if recipe.learns == "counts":
        raise UsageError(f"--find-lr: {recipe.name} learns by counting, without a rate")
    text = Prepared.open(recipe, data)
    learner = begin_learner(text, own, seed).to(where)
    text.spell(learner.backbone.characters)
    return find_rate(learner, Loader(text.batches(1.0), learner, seed, recipe.train.workers), recipe.train, where, seed)


def first_weights(start: Path, recipe: Recipe, store: Store, out: Path, plugin: Plugin | None) -> dict[str, Tensor]:
    """The weights of a run that another one may begin with: the same tokens, the same model."""
    if out.resolve() == start.resolve():
        raise UsageError(f"--from {start} is --out itself: go on with it by --resume, or choose another --out")
    if recipe.learns == "counts":
        raise UsageError(f"--from {start}: {recipe.name} learns by counting and has no first weights: leave --from out")
    run = language_model(start, "cpu", plugin)
    if run.config["tokenizer"] != store.manifest.tokenizer:
        raise DataError(
            f"--from {start} has another tokenizer than {store.folder}: prepare the text with "
            f"--from-tokenizer {start / 'tokenizer.json'}"
        )
    theirs, size = build_recipe(run.config["recipe"], str(start)), store.manifest.vocab_size
    if theirs.model["name"] != recipe.model["name"]:
        raise UsageError(f"--from {start} is of the model {theirs.model['name']}, the recipe of {recipe.model['name']}")
    before, now = (chosen.model_config_of(size).model_dump() for chosen in (theirs, recipe))
    changed = [f"model.{key}={before[key]}" for key in now if now[key] != before[key]]
    if changed:
        raise UsageError(f"--from {start} is of another size: it needs --set {' --set '.join(changed)}")
    tensors = unique(run.learner)
    with shapes_only():
        check_fit(recipe.learner(size, plugin), tensors, start)
    return tensors


class Run(Reading):
    """A trained model with its tokenizer."""

    def __init__(
        self, folder: Path, config: dict[str, Any], learner: Objective, tokenizer: Tokenizer, device: torch.device
    ):
        self.folder, self.config, self.learner, self.tokenizer, self.device = folder, config, learner, tokenizer, device
        self.stepper: Stepper | None = None
        # unknown words are spelt where they were in training, too
        data = config.get("data")
        kept = isinstance(data, dict) and data.get("spelling") is True
        self.characters = learner.backbone.characters if kept else 0
        self.backward = isinstance(data, dict) and data.get("backward") is True
        if isinstance(learner, TranslationLM):
            self.languages = ["source", "target"]
        elif learner.backbone.told_language:
            self.languages = spoken(build_recipe(config["recipe"], str(folder)), data)

    def evaluate(self, data: str | Path, split: str | None = None, **options: Any) -> dict[str, Any]:
        """Perplexity and bits on a prepared folder that was made with the same tokenizer. Options are those of `perplexity`;
        a stride that is not given is half of the context."""
        store, name = self.open(data, split)
        started = time.monotonic()
        if isinstance(self.learner, MaskedLM):
            if options.get("carry"):
                raise UsageError(
                    f"--carry is for recurrent models, and {self.folder} {self.no_next_word}: leave it out"
                )
            recipe = build_recipe(self.config["recipe"], str(self.folder))
            named = [] if isinstance(self.learner, TranslationLM) else self.languages
            language = language_of(named, data)
            passages = held_out_passages(recipe, self.learner.form, store.split(name), self.tokenizer, language)
            found = masked_loss(self.learner, passages, self.device)
            assert found is not None
            return {
                "split": name,
                **found,
                "no_bits_per_byte": f"the model {self.no_next_word}",
                "parameters": self.learner.size(),
                "seconds": round(time.monotonic() - started, 3),
            }
        learner: Any = self.learner
        if options.get("stride") is None:
            options["stride"] = half_context(learner, options.get("max_len"))
        result = perplexity(learner, store.split(name), self.device, **options)
        assert result is not None
        return reported(name, store, result | self.state_in_training(), self.learner.size(), started)

    def state_in_training(self) -> dict[str, str]:
        """Of a recurrent network: whether its state began anew with every document in training, as it does in evaluation
        ("reset"), or was carried over their borders ("carried"), so that it never learnt how to begin one."""
        backbone = self.learner.backbone
        if not backbone.recurrent or backbone.counted:
            return {}
        batches = build_recipe(self.config["recipe"], str(self.folder)).batches
        return {"state_in_training": "carried" if batches.kind == "streams" and not batches.reset else "reset"}

    def mix(self, other: "Run", data: str | Path, split: str | None = None, **options: Any) -> dict[str, Any]:
        """The same of the two runs as one model, which gives λ of what this one and 1 − λ of what the other one says."""
        started = time.monotonic()
        for run in (self, other):
            if isinstance(run.learner, MaskedLM):
                raise UsageError(
                    f"--mix: {run.folder} reads in both directions and has no probability of the next token to mix"
                )
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
        parts = tuple(Part(str(run.folder), run.learner, run.device) for run in (self, other))  # type: ignore[arg-type]
        result = mix_parts(parts, store.split("valid"), store.split(name), **options)  # type: ignore[arg-type]
        return reported(name, store, result, self.learner.size() + other.learner.size(), started)

    def evaluate_cached(
        self,
        data: str | Path,
        size: int,
        split: str | None = None,
        theta: float | None = None,
        share: float | None = None,
    ) -> dict[str, Any]:
        """The same with a cache of the last `size` hidden states; θ and its share λ are tuned on valid where not given."""
        started = time.monotonic()
        store, name = self.open(data, split)
        valid = store.split("valid") if "valid" in store.splits else None
        result = cached(self.learner, self.device, valid, store.split(name), size, theta, share)  # type: ignore[arg-type]
        return reported(name, store, result | self.state_in_training(), self.learner.size(), started)

    def open(self, data: str | Path, split: str | None) -> tuple[Store, str]:
        """A prepared folder that this run can read, and the name of the split that is meant."""
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
        """Continues a prompt n times. Options are those of SampleConfig: temperature, top_k, top_p, max_new, …

        on_text is given the text of the first sample as it comes, in pieces that never split a character.
        """
        if not 1 <= n <= 10_000:
            raise UsageError(f"n = {n}: between 1 and 10,000 samples can be drawn at once")
        config = build(SampleConfig, options, source="generate")
        tokenizer = self.tokenizer
        stepper, ids, banned = self.begin(prompt, n)
        streams = [TextStream(tokenizer) for _ in range(n)]
        pieces: list[list[str]] = [[prompt] for _ in range(n)]
        made: list[list[Drawn]] = [[] for _ in range(n)]
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
        """The n best continuations of a prompt that a beam search finds, best first. Options are those of BeamConfig.

        A context does not slide here: hypotheses would be compared that have read different things. It ends them.
        """
        config = build(BeamConfig, options | {"n_best": n}, source="generate")
        stepper, ids, banned = self.begin(prompt, 1)
        ids = clipped(ids, stepper.limit)
        if stepper.limit is not None and len(ids) + config.max_new > stepper.limit + 1:
            room = stepper.limit + 1 - len(ids)
            say(f"warning: the model reads {stepper.limit} tokens, a beam ends there: at most {room} new ones")
        (found,) = beam_search(stepper, [ids], config, self.tokenizer.end_id, banned)
        return [Continuation(prompt + self.tokenizer.decode(h.tokens), *h[:4]) for h in found]

    def begin(self, prompt: str, n: int) -> tuple[Stepper, list[int], list[int]]:
        """What continues a text n times: the stepper, the tokens of the prompt, and those that must not come."""
        if isinstance(self.learner, MaskedLM):
            raise UsageError(
                f"{self.folder} reads in both directions and cannot go on from a text: 'seqloom fill {self.folder} TEXT' has it "
                f"fill [MASK] in one"
            )
        if self.backward:
            raise UsageError(f"{self.folder} reads from the end of a text and cannot go on from its beginning")
        ids, unknown = self.read(prompt)
        if unknown and not self.characters:
            say(f"warning: the model has never seen {', '.join(map(repr, unknown[:5]))}: read as unknown")
        limit = self.learner.backbone.max_len
        if limit is not None and len(ids) >= limit:
            half = f"only its last {limit // 2} are used"
            say(f"warning: the prompt has {len(ids)} tokens, the model reads {limit}: {half}")
        special = {self.tokenizer.unk_id, *self.tokenizer.special_ids.values()}
        banned = [i for i in special if i is not None and i != self.tokenizer.end_id]
        if self.stepper is None:  # kept: what it sets up for steps serves the next call, too
            self.stepper = Stepper(self.learner.backbone, self.learner.softmax)  # type: ignore[arg-type]
        rows = self.spell(ids, unknown)
        self.stepper.characters = None if rows is None else torch.from_numpy(rows).repeat(n, 1).to(self.device)
        return self.stepper, ids, banned

    def read(self, text: str) -> tuple[list[int], list[str]]:
        """The tokens of a text, the end token before them, and what of it is unknown."""
        (ids,), (unknown,) = self.tokenizer.encode_batch_with_unknown([text])
        return [self.tokenizer.end_id, *ids.tolist()], unknown


def reported(split: str, store: Store, result: dict[str, Any], parameters: int, started: float) -> dict[str, Any]:
    """What every evaluation says beside its own figures."""
    if store.manifest.bits_per_byte != "yes":
        result["no_bits_per_byte"] = store.manifest.bits_per_byte
    seconds = round(time.monotonic() - started, 3)
    return {"split": split, **result, "parameters": parameters, "seconds": seconds}


def language_model(
    folder: str | Path,
    device: str = "auto",
    plugin: str | Path | Plugin | None = None,
    language: str | None = None,
) -> Run:
    """A run folder that must hold a language model. language: that its texts are in, where it was told some in training."""
    found = load(folder, device, plugin)
    if isinstance(found, Translator):
        raise UsageError(f"{folder} is a translator, no language model: use 'seqloom translate {folder}'")
    if isinstance(found, Predictor):
        raise UsageError(
            f"{folder} tells something about texts ({found.task}), it is no language model: use 'seqloom predict'"
        )
    return spoken_in(found, language)


def translator(folder: str | Path, device: str = "auto") -> Translator:
    """A run folder that must hold a translator."""
    found = load(folder, device)
    if not isinstance(found, Translator):
        raise UsageError(f"{folder} is no translator: train one with 'seqloom train RECIPE --task translate'")
    return found


def predictor(folder: str | Path, device: str = "auto", language: str | None = None) -> Predictor:
    """A run folder that must hold a task that tells something about texts. language: that they are in, as above."""
    found = load(folder, device)
    if not isinstance(found, Predictor):
        raise UsageError(
            f"{folder} has learnt no task that tells something about texts: 'seqloom finetune {folder} --task classify …' has it "
            f"learn one"
        )
    return spoken_in(found, language)


class FolderOfOthers(ModelError):
    """No run, but what can become one."""


def load(
    folder: str | Path, device: str = "auto", plugin: str | Path | Plugin | None = None
) -> Run | Translator | Predictor:
    """Loads a run folder. Nothing in it is executed; every file is checked before it is used.

    plugin: the file with code of your own that the model was trained with.
    """
    folder, where, own = Path(folder), choose_device(device), open_plugin(plugin)
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} is no run folder: it has no config.json")
    try:
        config = read_json(path)
        if "model_type" in config and "format" not in config:
            raise FolderOfOthers(
                f"{folder} is a folder of another project: 'seqloom import {folder} --out RUN' makes a run of it"
            )
        config = migrations.RUN.migrate(config, path)
        recipe = build_recipe(config["recipe"], str(path))
        vocab_size = config["vocab_size"]
    except (ValueError, KeyError, TypeError, AttributeError, UsageError, RecursionError) as error:
        raise ModelError(f"{path} is damaged or of another version: {error}") from error
    if recipe.own_code:
        check_recorded(folder, config.get("plugin"), own)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    if tokenizer.hash != config.get("tokenizer"):
        raise ModelError(f"{folder / 'tokenizer.json'} is not the tokenizer that this model was trained with")
    if tokenizer.vocab_size != vocab_size:
        raise ModelError(f"{path}: vocab_size {vocab_size} does not fit the tokenizer's {tokenizer.vocab_size}")
    check_weights(folder)
    tensors: dict[str, Tensor] = {f"backbone.{name}": t for name, t in load_tensors(folder / WEIGHTS[0]).items()}
    tensors |= load_tensors(folder / WEIGHTS[1])
    # the sizes in config.json are believed only where the weights bear them out: nothing is allocated before
    if getattr(recipe.model_config_of(vocab_size), "num_layers", 0) > len(tensors):
        raise ModelError(f"{path} has more layers than {folder / WEIGHTS[0]} has tensors")
    with shapes_only():
        learner = recipe.learner(vocab_size, own)
        learner.adopt(tensors)
        check_fit(learner, tensors, folder)
    with torch.random.fork_rng():  # the first values are drawn, and then replaced
        learner = recipe.learner(vocab_size, own)
    learner.adopt(tensors)
    fill(learner, tensors, folder)
    try:
        learner.settle()
    except ValueError as error:
        raise ModelError(f"{folder}: its weights are damaged: {error}") from error
    learner = learner.to(where).eval()
    if recipe.learns == "translate":
        return Translator(folder, config, learner, tokenizer, where)
    if learner.reads == "labelled":
        return Predictor(folder, config, learner, tokenizer, where)
    return Run(folder, config, learner, tokenizer, where)
