"""Training a task from its own labelled examples: files in, a run folder out."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.batches.loader import Loader
from seqloom.batches.pairs import encode_pairs
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.config import override, unknown_name
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.pairs import parallel_loss
from seqloom.files import read_json, sole_owner
from seqloom.objectives import objective_class
from seqloom.objectives.next_token import NextToken
from seqloom.objectives.translation_lm import TranslationLM
from seqloom.plugins import Plugin, open_plugin
from seqloom.progress import say
from seqloom.randomness import derive_seed
from seqloom.recipes.library import find_recipe, labelled
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.examples import Encoded, Material, done, material_of
from seqloom.runs.folder import begin_folder, describe, export, finish, spent
from seqloom.runs.language import hear, spoken_in
from seqloom.runs.language_model import Run, check_country, load
from seqloom.runs.predictor import Predictor
from seqloom.runs.task_report import write_task_report
from seqloom.runs.translator import Translator
from seqloom.tasks import task_class
from seqloom.text.pairs import TextPair, read_pairs
from seqloom.text.vectors import read_vectors
from seqloom.tokens.learn import check_options
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.gradient import worth_compiling
from seqloom.training.loop import Fit
from seqloom.training.precision import choose_device, deterministic_algorithms
from seqloom.weights import shapes_only

HOWS = ("finetune", "features", "gradual")
SAMPLE = 32_000_000  # characters of the training text that a tokenizer is learnt from

Files = str | Path | Sequence[str | Path]


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
    vectors: str | Path | None = None,
    settings: list[str] | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    deterministic: bool = False,
    country: str = "world",
    plugin: str | Path | Plugin | None = None,
) -> Run | Translator | Predictor:
    """Trains a task from scratch and returns the finished run. Files: as the task reads them, see `materials`.

    One tokenizer serves all of the text, both sides of pairs included: given, or learnt from the training text. vectors: a file
    of word vectors to begin with, see `text.vectors`."""
    own = open_plugin(plugin)
    task_class(task)  # refuses an unknown one
    recipe = recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own, task)
    check_task(recipe, task)
    check_country(country)
    given = files_of(train=train, valid=valid, test=test)
    texts = material_of(task_class(task), task).texts(given["train"], task)
    words = learnt_tokenizer(texts, tokenizer, vocab_size, lowercase, from_tokenizer, task_class(task).parted_by)
    options = Options(seed, resume, overwrite, device, deterministic, country)
    return reported(learn(recipe, task, given, Path(out), words, options, vectors=vectors), given)


def finetune(
    start: str | Path | Run | Translator | Predictor,
    task: str,
    train: Files,
    valid: Files,
    out: str | Path,
    *,
    test: Files = (),
    how: str = "finetune",
    settings: list[str] | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    deterministic: bool = False,
    country: str = "world",
    plugin: str | Path | Plugin | None = None,
    language: str | None = None,
) -> Run | Translator | Predictor:
    """Trains a task with the backbone of another run, and its tokenizer. how: "finetune" (all weights), "features" (the
    backbone stays as it is), "gradual" (from the top layer down). language: that the texts are in, where it was told some."""
    check_transfer(task, how)
    before = opened(start, out, plugin, language)
    check_country(country)
    recipe = recipe_after(before, task, how, settings)
    given = files_of(train=train, valid=valid, test=test)
    options = Options(seed, resume, overwrite, device, deterministic, country, before.speech)
    return reported(learn(recipe, task, given, Path(out), before.tokenizer, options, before), given)


def reported(run: Run | Translator | Predictor, given: dict[str, list[Path]]) -> Run | Translator | Predictor:
    """With its page, where it tells something about texts. A run that was finished before keeps the one it has."""
    if isinstance(run, Predictor) and not (run.folder / "report.html").exists():
        write_task_report(run, given)
    return run


def check_transfer(task: str, how: str) -> None:
    if how not in HOWS:
        raise UsageError(unknown_name("--how", how, how, list(HOWS)))
    if task_class(task).reads != "labelled":
        raise UsageError(f"finetune --task {task}: it is learnt from scratch, by 'seqloom train'")


def opened(
    start: str | Path | Run | Translator | Predictor,
    out: str | Path,
    plugin: str | Path | Plugin | None,
    language: str | None,
) -> Run | Translator | Predictor:
    """The run that another one is to begin with, as its folder has it. language: that its texts will be in."""
    if isinstance(start, Run | Translator | Predictor):
        start = start.folder
    source = Path(start).resolve()
    if Path(out).resolve() in (source, *source.parents):
        raise UsageError(f"--out {out} is the run itself, or holds it: choose another folder")
    found = spoken_in(load(Path(start), "cpu", plugin), language)
    found.check_language()
    return found


def recipe_after(before: Run | Translator | Predictor, task: str, how: str, settings: list[str] | None) -> Recipe:
    """For the model of another run. how: as in `recipes.labelled`."""
    theirs = build_recipe(before.config["recipe"], str(before.folder))
    backward = getattr(before, "backward", False) or theirs.batches.backward
    return recipe_with(theirs, task, how, settings, f"{before.folder} for {task}", backward)


def recipe_with(
    theirs: Recipe, task: str, how: str, settings: Sequence[str] | None, source: str, backward: bool
) -> Recipe:
    """For the model of another recipe. source: for messages; backward: texts are read from their end."""
    values: dict[str, Any] = {
        "name": f"{theirs.name}-{task}" + ("-scratch" if how == "scratch" else ""),
        "model": theirs.model_dump()["model"],
        **labelled(task, theirs.model, how),
    }
    if theirs.objective is not None and issubclass(objective_class(theirs.learns), NextToken):
        values["task"] |= {f"lm_{key}": theirs.objective[key] for key in ("tie", "bias") if key in theirs.objective}
    if backward:
        values["batches"]["backward"] = True
    for assignment in settings or []:
        override(values, assignment)
    recipe = build_recipe(values, source)
    check_task(recipe, task)
    return recipe


class Options(NamedTuple):
    """What changes nothing about what is learnt, but for the seed and the language. speech: see `Speaking`."""

    seed: int
    resume: bool
    overwrite: bool
    device: str
    deterministic: bool
    country: str
    speech: dict[str, Any] = {}  # noqa: RUF012 (never changed)


def files_of(**names: Files) -> dict[str, list[Path]]:
    several = {name: [files] if isinstance(files, str | Path) else files for name, files in names.items()}
    return {name: [Path(file) for file in files] for name, files in several.items() if files}


def check_task(recipe: Recipe, task: str) -> None:
    if recipe.task is None or recipe.task["name"] != task:
        raise UsageError(
            f"{recipe.name} is no recipe for the task {task}: 'seqloom models' lists what each model learns"
        )


def learn(
    recipe: Recipe,
    task: str,
    given: dict[str, list[Path]],
    folder: Path,
    words: Tokenizer,
    options: Options,
    before: Run | Translator | Predictor | None = None,
    vectors: str | Path | None = None,
    material: Material | None = None,
) -> Run | Translator | Predictor:
    """From files to a finished run. before: the run whose backbone it begins with; vectors: of words, the same; material: what
    the files are read as, where that is not all of them."""
    where, seed = choose_device(options.device), options.seed
    if recipe.train.watch == "bleu" and "valid" not in given:
        raise UsageError('train.watch = "bleu" needs --valid, whose translation is scored')
    material = material or material_of(task_class(task), task)(recipe, given, words)
    assert material is not None
    recipe = material.recipe
    data: dict[str, Any] = {
        "files": {name: [str(file) for file in files] for name, files in given.items()},
        "fingerprint": "-".join(part.fingerprint[:16] for part in material.splits.values()),
        **options.speech,
    }
    with shapes_only():
        learner = recipe.learner(words.vocab_size)
    known = None
    if vectors is not None:
        known = known_words(Path(vectors), words, learner)
        data["fingerprint"] += f"-{known.fingerprint}"
        data["vectors"] = {"file": str(vectors), "words": len(known.ids)}
    shapes = "free"
    if where.type == "cuda" and learner.static:
        shapes = "row" if worth_compiling(learner, where) else "grid"
    batches = material.batches(shapes)  # what cannot work is refused before the folder is touched
    with sole_owner(folder), deterministic_algorithms(options.deterministic):
        config = describe(recipe, words.vocab_size, words.hash, data, seed)
        if before is not None:
            config["from"] = {"run": str(before.folder), "weights": read_json(before.folder / "weights.json")}
        begin_folder(folder, config, words, options.resume, options.overwrite)
        with torch.random.fork_rng():
            torch.manual_seed(derive_seed(seed))  # the values that the weights start from
            learner = recipe.learner(words.vocab_size)
        learner.introduce(PreparedVocabulary(words))
        if known is not None:
            with torch.no_grad():
                learner.backbone.table.weight[known.ids] = known.vectors
        if before is not None:
            take_over(learner, before)
        hear(learner, options.speech)
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
        state = fit.run(options.resume)
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
            costs = spent(state, options.country, where)
            finish(folder, config, state, learner, about, costs, **scores, **averaged)
    return load(folder, str(where))


class Known(NamedTuple):
    """Words of a vocabulary whose vectors are in a file."""

    ids: torch.Tensor  # (words,)
    vectors: torch.Tensor  # (words, D)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.ids.numpy().tobytes() + self.vectors.numpy().tobytes()).hexdigest()[:16]


def known_words(path: Path, tokenizer: Tokenizer, learner: Any) -> Known:
    """Each word by its own vector, else by that of the word in lower case, as files of one case have it."""
    if tokenizer.kind != "word":
        raise UsageError(
            f"--vectors {path}: they are of words, this vocabulary is of {tokenizer.kind}: --tokenizer word"
        )
    table = getattr(learner.backbone, "table", None)
    if table is None:
        raise UsageError(f"--vectors {path}: this model has no vectors of words: bilstm-cnn and others have")
    special = {tokenizer.unk_id, *tokenizer.special_ids.values()}
    entries = {i: entry for i in range(tokenizer.vocab_size) if i not in special and (entry := tokenizer.entry(i))}
    read = read_vectors(path, {form for entry in entries.values() for form in (entry, entry.lower())})
    found = {i: read.get(entry, read.get(entry.lower())) for i, entry in entries.items()}
    rows = {i: vector for i, vector in found.items() if vector is not None}
    if not rows:
        raise DataError(f"{path}: no word of the training text is in it: another language, or no file of vectors")
    vectors = torch.from_numpy(np.stack(list(rows.values())))
    if vectors.shape[1] != table.embedding_dim:
        raise UsageError(
            f"--vectors {path}: {vectors.shape[1]} numbers a word, the model has {table.embedding_dim}: set "
            f"model.embedding_dim={vectors.shape[1]} (model.dim, where a model has no such setting)"
        )
    say(f"vectors: {len(rows):,} of {len(entries):,} words of the vocabulary are in {path}")
    return Known(torch.tensor(list(rows)), vectors)


def take_over(learner: Any, before: Run | Translator | Predictor) -> None:
    """The backbone of another run, and where the next token goes on to be predicted, its output layer."""
    learner.backbone.load_state_dict(before.learner.backbone.state_dict())
    ours, theirs = getattr(learner, "softmax", None), getattr(before.learner, "softmax", None)
    if ours is None or theirs is None:
        return
    if type(ours) is not type(theirs):
        raise UsageError(
            f"'task.lm' goes on with an output layer over all words, and that of {before.folder} is {type(theirs).__name__}: "
            f"leave it out"
        )
    ours.load_state_dict(theirs.state_dict())


def evaluate_files(
    run: Run | Translator | Predictor, files: Files, tokenize: str = "13a", beam: int = 4
) -> dict[str, Any]:
    """A run that has learnt from labelled examples, on others: its task's scores; BLEU of a translator, retrieval of an
    encoder that has learnt from pairs."""
    if isinstance(run, Predictor):
        return run.evaluate(files)
    if isinstance(run, Translator):
        pairs = read_all(files)
        return run.loss(pairs) | run.evaluate(pairs, tokenize, beam=beam)
    if not isinstance(run.learner, TranslationLM):
        raise UsageError(f"{run.folder} has not learnt from labelled examples: evaluate it with --data DIR")
    limit = run.learner.backbone.max_len
    return done(parallel_loss(run.learner, encode_pairs(read_all(files), run.tokenizer, limit, "test"), run.device))


def learnt_tokenizer(
    texts: Iterator[str],
    kind: str,
    vocab_size: int | None,
    lowercase: bool,
    given: str | Path | None,
    parted_by: str = "punctuation",
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
    return Tokenizer.train(kind, sample, vocab_size=vocab_size, lowercase=lowercase, words=parted_by)


def counts(part: Encoded) -> dict[str, Any]:
    """As a manifest has it; of pairs the words and tokens of the targets."""
    return {"documents": len(part), "words": part.words, "tokens": part.num_tokens, "bytes": part.bytes}


def read_all(files: Files) -> list[TextPair]:
    return list(read_pairs(files_of(given=files)["given"]))
