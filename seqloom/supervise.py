"""Training a task from its own labelled examples: files in, a run folder out."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from seqloom.batches.loader import Loader, mix
from seqloom.batches.pairs import EncodedPairs, encode_pairs
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.pairs import parallel_loss
from seqloom.evaluate.translation import pair_loss
from seqloom.files import sole_owner
from seqloom.folder import begin_folder, describe, export, finish, spent
from seqloom.plugins import Plugin, open_plugin
from seqloom.progress import say
from seqloom.recipe import Recipe
from seqloom.recipes import find_recipe
from seqloom.runs import Run, check_country, load
from seqloom.tasks import task_class
from seqloom.tasks.translation_lm import TranslationLM
from seqloom.text.pairs import TextPair, read_pairs, repeated
from seqloom.tokens.learn import check_options
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.train.gradient import worth_compiling
from seqloom.train.loop import Fit
from seqloom.train.precision import choose_device, deterministic_algorithms
from seqloom.translator import Translator

SAMPLE = 32_000_000  # characters of the training text that a tokenizer is learnt from

Files = Sequence[str | Path]


def train(
    recipe: str | Recipe,
    task: str,
    train: Files,
    out: str | Path,
    *,
    valid: Files = (),
    test: Files = (),
    tokenizer: str = "bpe",
    vocab_size: int | None = None,
    lowercase: bool = False,
    from_tokenizer: str | Path | None = None,
    settings: list[str] | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    deterministic: bool = False,
    country: str = "world",
    plugin: str | Path | Plugin | None = None,
) -> Run | Translator:
    """Trains a task from scratch and returns the finished run. Files: two aligned ones, a TSV or a jsonl.

    One tokenizer serves both sides: given, or learnt from both sides of the training text."""
    folder, where, own = Path(out), choose_device(device), open_plugin(plugin)
    task_class(task)  # refuses an unknown one
    recipe = recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own, task)
    if recipe.task is None or recipe.task["name"] != task:
        raise UsageError(
            f"{recipe.name} is no recipe for the task {task}: 'seqloom models' lists what each model learns"
        )
    check_country(country)
    given = {name: [Path(file) for file in files] for name, files in zip(SPLITS, (train, valid, test), strict=True)}
    if recipe.train.watch == "bleu" and not given["valid"]:
        raise UsageError('train.watch = "bleu" needs --valid, whose translation is scored')
    words = shared_tokenizer(given["train"], tokenizer, vocab_size, lowercase, from_tokenizer)
    longest, start = recipe.batches.length, recipe.task.get("start_id")
    encoded = {
        name: encode_pairs(read_pairs(files), words, longest if name == "train" else limit_of(recipe), name, start)
        for name, files in given.items()
        if files
    }
    pairs, held_out = encoded["train"], encoded.get("valid")
    for name in ("valid", "test"):
        if places := repeated(read_pairs(given[name]), read_pairs(given["train"])) if given[name] else []:
            say(
                f"warning: {len(places):,} sources of {name} are in the training text, too (first: {', '.join(places[:3])})"
            )
    data = {
        "files": {name: [str(file) for file in files] for name, files in given.items() if files},
        "fingerprint": "-".join(part.fingerprint[:16] for part in encoded.values()),
    }
    with torch.device("meta"):
        learner = recipe.learner(words.vocab_size)
    shapes = "free"
    if where.type == "cuda" and learner.static:
        shapes = "row" if worth_compiling(learner, where) else "grid"
    batches = recipe.batches.build_pairs(pairs, shapes)  # what cannot work is refused before the folder is touched
    with sole_owner(folder), deterministic_algorithms(deterministic):
        config = describe(recipe, words.vocab_size, words.hash, data, seed)
        begin_folder(folder, config, words, resume, overwrite)
        with torch.random.fork_rng():
            torch.manual_seed(mix(seed))  # the values that the weights start from
            learner = recipe.learner(words.vocab_size)
        learner.introduce(PreparedVocabulary(words, None))
        learner = learner.to(where)
        texts = [] if held_out is None else list(read_pairs(given["valid"]))

        def validate(stop: Callable[[], bool]) -> dict[str, float] | None:
            assert held_out is not None
            if isinstance(learner, TranslationLM):
                return parallel_loss(learner, held_out, where, stop)
            result = pair_loss(learner, held_out, where, stop=stop)
            if result is not None and recipe.train.watch == "bleu":
                result["bleu"] = Translator(folder, config, learner, words, where).evaluate(texts)["bleu"]
            return result

        loader = Loader(batches, learner, seed, recipe.train.workers)
        budget = recipe.budget.resolve(pairs)
        measure = None if held_out is None else validate
        fit = Fit(
            learner, loader, recipe.train, budget, folder, where, seed, measure, lambda state: export(learner, folder)
        )
        say(
            f"{recipe.name}: {learner.size():,} parameters, {len(pairs):,} pairs with {pairs.num_tokens:,} target tokens, "
            f"on {where}, {fit.precision}"
        )
        state = fit.run(resume)
        if not (folder / "card.md").exists():
            about = {
                "splits": {name: counts(part) for name, part in encoded.items()},
                "sources": [{"name": file.name} for files in given.values() for file in files],
                "options": {"tokenizer": words.kind},
                "vocab_size": words.vocab_size,
                "fingerprint": data["fingerprint"],
            }
            best = load(folder, str(where))  # the weights that were kept
            scores = {
                f"{name}_scores": scored(best, encoded[name], given[name]) for name in ("valid", "test") if given[name]
            }
            averaged = {"averaged": state.averaged} if state.averaged else {}
            costs = spent(state, fit.energy, country, where)
            finish(folder, config, state, learner, about, costs, **scores, **averaged)
    return load(folder, str(where))


def evaluate_pairs(run: Run | Translator, files: Files, tokenize: str = "13a", beam: int = 4) -> dict[str, Any]:
    """A run that has learnt from pairs, on others: BLEU and loss of a translator, retrieval and loss of an encoder."""
    if isinstance(run, Translator):
        pairs = read_all(files)
        return run.loss(pairs) | run.evaluate(pairs, tokenize, beam=beam)
    if not isinstance(run.learner, TranslationLM):
        raise UsageError(f"{run.folder} has not learnt from pairs: evaluate it with --data DIR")
    limit = run.learner.backbone.max_len
    found = parallel_loss(run.learner, encode_pairs(read_all(files), run.tokenizer, limit, "test"), run.device)
    assert found is not None
    return found


def scored(run: Run | Translator, pairs: EncodedPairs, files: list[Path]) -> dict[str, Any]:
    """A trained run on held-out pairs."""
    if isinstance(run, Translator):
        return run.evaluate(list(read_pairs(files)))
    assert isinstance(run.learner, TranslationLM)
    found = parallel_loss(run.learner, pairs, run.device)
    assert found is not None
    return found


SPLITS = ("train", "valid", "test")


def limit_of(recipe: Recipe) -> int | None:
    """How long a held-out side may be: no longer than what the model can read at all."""
    return getattr(recipe.model_config_of(1), "max_len", None)


def shared_tokenizer(
    files: list[Path], kind: str, vocab_size: int | None, lowercase: bool, given: str | Path | None
) -> Tokenizer:
    if given is not None:
        if vocab_size is not None or lowercase:
            raise UsageError("--from-tokenizer brings its own vocabulary: leave out --vocab-size and --lowercase")
        return Tokenizer.load(given)
    check_options(kind, vocab_size, None)

    def texts() -> Iterator[str]:
        size = 0
        for pair in read_pairs(files):
            yield from pair[:2]
            size += len(pair.source) + len(pair.target)
            if size > SAMPLE:
                return

    first = list(itertools.islice(texts(), 2))
    if not first:
        raise DataError(f"{', '.join(map(str, files))}: no pair to learn from: the files are empty")
    say(f"learning one {kind} vocabulary from both sides")
    return Tokenizer.train(kind, list(texts()), vocab_size=vocab_size, lowercase=lowercase)


def counts(pairs: EncodedPairs) -> dict[str, Any]:
    """As a manifest has it; of pairs the words and tokens of the targets."""
    return {"documents": len(pairs), "words": pairs.words, "tokens": pairs.num_tokens, "bytes": pairs.bytes}


def read_all(files: Files) -> list[TextPair]:
    return list(read_pairs([Path(file) for file in files]))
