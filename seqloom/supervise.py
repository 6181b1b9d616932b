"""Training a task from its own labelled examples: files in, a run folder out."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from seqloom.batches.loader import Loader, mix
from seqloom.batches.pairs import encode_pairs
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.pairs import parallel_loss
from seqloom.files import sole_owner
from seqloom.folder import begin_folder, describe, export, finish, spent
from seqloom.materials import Encoded, Material, done, material_of
from seqloom.plugins import Plugin, open_plugin
from seqloom.progress import say
from seqloom.recipe import Recipe
from seqloom.recipes import find_recipe
from seqloom.runs import Run, check_country, load
from seqloom.tasks import task_class
from seqloom.tasks.translation_lm import TranslationLM
from seqloom.text.pairs import TextPair, read_pairs
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
    """Trains a task from scratch and returns the finished run. Files: as the task reads them, see `materials`.

    One tokenizer serves all of the text, both sides of pairs included: given, or learnt from the training text."""
    folder, where, own = Path(out), choose_device(device), open_plugin(plugin)
    task_class(task)  # refuses an unknown one
    recipe = recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own, task)
    if recipe.task is None or recipe.task["name"] != task:
        raise UsageError(
            f"{recipe.name} is no recipe for the task {task}: 'seqloom models' lists what each model learns"
        )
    check_country(country)
    names = {"train": train, "valid": valid, "test": test}
    given = {name: [Path(file) for file in files] for name, files in names.items() if files}
    if recipe.train.watch == "bleu" and "valid" not in given:
        raise UsageError('train.watch = "bleu" needs --valid, whose translation is scored')
    kind = material_of(task_class(task), task)
    words = learnt_tokenizer(kind.texts(given["train"]), tokenizer, vocab_size, lowercase, from_tokenizer)
    material: Material = kind(recipe, given, words)
    data = {
        "files": {name: [str(file) for file in files] for name, files in given.items()},
        "fingerprint": "-".join(part.fingerprint[:16] for part in material.splits.values()),
    }
    with torch.device("meta"):
        learner = recipe.learner(words.vocab_size)
    shapes = "free"
    if where.type == "cuda" and learner.static:
        shapes = "row" if worth_compiling(learner, where) else "grid"
    batches = material.batches(shapes)  # what cannot work is refused before the folder is touched
    with sole_owner(folder), deterministic_algorithms(deterministic):
        config = describe(recipe, words.vocab_size, words.hash, data, seed)
        begin_folder(folder, config, words, resume, overwrite)
        with torch.random.fork_rng():
            torch.manual_seed(mix(seed))  # the values that the weights start from
            learner = recipe.learner(words.vocab_size)
        learner.introduce(PreparedVocabulary(words))
        learner = learner.to(where)

        def validate(stop: Callable[[], bool]) -> dict[str, float] | None:
            result = material.measure(learner, where, stop)
            if result is not None and recipe.train.watch == "bleu":
                result["bleu"] = material.score(Translator(folder, config, learner, words, where), "valid")["bleu"]
            return result

        loader = Loader(batches, learner, seed, recipe.train.workers)
        first = material.splits["train"]
        budget = recipe.budget.resolve(first)
        measure = validate if "valid" in given else None
        fit = Fit(
            learner, loader, recipe.train, budget, folder, where, seed, measure, lambda state: export(learner, folder)
        )
        say(
            f"{recipe.name}: {learner.size():,} parameters, {len(first):,} {material.what} with {first.num_tokens:,} tokens "
            f"to learn from, on {where}, {fit.precision}"
        )
        state = fit.run(resume)
        if not (folder / "card.md").exists():
            about = {
                "splits": {name: counts(part) for name, part in material.splits.items()},
                "sources": [{"name": file.name} for files in given.values() for file in files],
                "options": {"tokenizer": words.kind},
                "vocab_size": words.vocab_size,
                "fingerprint": data["fingerprint"],
            }
            best = load(folder, str(where))  # the weights that were kept
            scores = {f"{name}_scores": material.score(best, name) for name in given if name != "train"}
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
    return done(parallel_loss(run.learner, encode_pairs(read_all(files), run.tokenizer, limit, "test"), run.device))


def learnt_tokenizer(
    texts: Iterator[str], kind: str, vocab_size: int | None, lowercase: bool, given: str | Path | None
) -> Tokenizer:
    """The given one, or one that is learnt from the texts."""
    if given is not None:
        if vocab_size is not None or lowercase:
            raise UsageError("--from-tokenizer brings its own vocabulary: leave out --vocab-size and --lowercase")
        return Tokenizer.load(given)
    check_options(kind, vocab_size, None)
    sample, size = [], 0
    for text in texts:
        sample.append(text)
        size += len(text)
        if size > SAMPLE:
            break
    if not sample:
        raise DataError("--train: no example to learn from: the files are empty")
    say(f"learning a {kind} vocabulary from the training text")
    return Tokenizer.train(kind, sample, vocab_size=vocab_size, lowercase=lowercase)


def counts(part: Encoded) -> dict[str, Any]:
    """As a manifest has it; of pairs the words and tokens of the targets."""
    return {"documents": len(part), "words": part.words, "tokens": part.num_tokens, "bytes": part.bytes}


def read_all(files: Files) -> list[TextPair]:
    return list(read_pairs([Path(file) for file in files]))
