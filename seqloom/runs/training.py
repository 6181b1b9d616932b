"""Training: from a dataset to a finished run, and the functions pretrain, train and finetune."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch

from seqloom import progress
from seqloom.batch import Learner
from seqloom.batches.loader import Loader
from seqloom.batches.pairs import encode_pairs
from seqloom.batches.plan import select_documents
from seqloom.config import build, named_object
from seqloom.errors import UsageError
from seqloom.files import digest_of, sha256, sole_owner
from seqloom.plugins import Plugin, open_plugin, record
from seqloom.progress import say
from seqloom.recipes.library import find_recipe
from seqloom.recipes.schema import Recipe, task_settings
from seqloom.runs.beside import BesideRuns, open_beside
from seqloom.runs.captioner import Captioner
from seqloom.runs.corpus import Corpus
from seqloom.runs.dataset import Dataset, build_learner
from seqloom.runs.examples import dataset_class
from seqloom.runs.first_weights import Start, continue_from, transfer_from, vectors_from, vit_from
from seqloom.runs.folder import (
    SOURCE_KEY,
    begin_folder,
    check_free,
    describe,
    export,
    finish,
    keep_milestone,
    plain,
    training_costs,
)
from seqloom.runs.language import in_language
from seqloom.runs.language_model import Run
from seqloom.runs.load import Trained, load
from seqloom.runs.options import RunKeywords, RunOptions, TrainKeywords
from seqloom.runs.predictor import Predictor
from seqloom.runs.shared_start import can_share, keep_start, take_start
from seqloom.runs.task_report import write_task_report
from seqloom.runs.transfer_recipe import check_task, check_transfer, recipe_after
from seqloom.runs.translator import Translator
from seqloom.runs.vit import check_vit, vit_settings
from seqloom.runs.vocabularies import check_two_vocabularies, learn_tokenizer
from seqloom.tasks import task_class
from seqloom.text.images import read_captions
from seqloom.text.pairs import TextPair, read_pairs
from seqloom.text.tables import PLAIN, Layout
from seqloom.tokens.learn import TokenizerOptions
from seqloom.training.count import Count, check_order
from seqloom.training.find_rate import Found, find_rate
from seqloom.training.gradient import worth_compiling
from seqloom.training.loop import Callbacks, Fit, is_sharded
from seqloom.training.precision import choose_device, deterministic_algorithms
from seqloom.training.ranks import Ranks, is_first, join
from seqloom.training.share import Share, share_of
from seqloom.training.state import Milestone
from seqloom.weights import shapes_only

SETTLED = 10.0  # seconds after which a file system that machines share shows all of them the same

Files = str | Path | Sequence[str | Path]


def pretrain(
    recipe: str | Recipe,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    settings: list[str] | None = None,
    plugin: str | Path | Plugin | None = None,
    start: str | Path | None = None,
    options: RunOptions = RunOptions(),
    **keywords: Unpack[RunKeywords],
) -> Run:
    """Trains a language model on prepared text and returns the finished run.

    Args:
        recipe: a built-in name (`seqloom recipes` lists them), a TOML file, a function of the plugin, or a Recipe.
        data: a folder that `seqloom prepare` has made; or several with one tokenizer, one for each language.
        out: the run folder to write.
        settings: changes of the recipe, as "train.optim.lr=0.001" and "budget={words=1e6}".
        plugin: a file with code of your own.
        start: another run, whose weights this one starts from.
        options: a RunOptions, for what is the same in several calls.
        keywords: fields of RunOptions that differ from `options`: seed (of the first weights, the order of the data and dropout),
            resume (continue the run that is in `out`), overwrite (delete it and start again), device ("auto", "cpu", "cuda"),
            deterministic (the same bits every time on a GPU), country (whose electricity is counted as CO2), shared (a folder
            for the starts of runs that differ only in their budget), on_log (called with each line of metrics.jsonl as a dict; it
            holds the training up while it runs, what it raises stops nothing, and after a resume it gets the steps since the last
            checkpoint again).
    """
    options, folder, own = replace(options, **keywords), Path(out), open_plugin(plugin)
    recipe = check_plain_text(recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own))
    text = Corpus.open(recipe, data, own, folder if options.resume else None)
    text.check_outside(folder)
    first = None if start is None else continue_from(Path(start), recipe, text.first, folder, own)
    run = train_run(text, folder, options, first, own)
    assert isinstance(run, Run)
    return run


def train(
    recipe: str | Recipe,
    task: str,
    train: Files,
    out: str | Path,
    *,
    valid: Files = (),
    test: Files = (),
    vectors: str | Path | None = None,
    vit: str | Path | None = None,
    beside: Files = (),
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    settings: list[str] | None = None,
    plugin: str | Path | Plugin | None = None,
    options: RunOptions = RunOptions(),
    **keywords: Unpack[TrainKeywords],
) -> Trained:
    """Trains a task from scratch and returns the finished run.

    One tokenizer serves all of the text, both sides of pairs included, unless the sources of a translator get one of their own:
    given, or learnt from the training text.

    Args:
        recipe: a built-in name (`seqloom recipes` lists them), a TOML file, a function of the plugin, or a Recipe.
        task: classify, regress, pair, choose, tag, span, translate, caption, translation-lm or entity-lm.
        train: the training examples: a file in the task's format, or for pairs two aligned files.
        out: the run folder to write.
        valid: examples by which the best weights are chosen; without them the last weights are kept.
        test: examples that are scored once at the end.
        vectors: a file of word vectors to begin with, in the text format of word2vec or GloVe.
        vit: a folder with a Vision Transformer, as transformers saves it, whose sizes and weights a captioner's encoder begins
            with.
        beside: folders of other runs, whose features enter beside those of this model; they stay as they are.
        columns: what the fields of the task are called in the files, as {"text": "review", "label": "sentiment"}.
        encoding: of files that are not UTF-8, as "cp1252".
        settings: changes of the recipe, as "train.optim.lr=0.001" and "budget={epochs=10}".
        plugin: a file with code of your own.
        options: a RunOptions, for what is the same in several calls.
        keywords: fields of RunOptions that differ from `options`: seed (of the first weights, the order of the data and dropout),
            resume (continue the run that is in `out`), overwrite (delete it and start again), device ("auto", "cpu", "cuda"),
            deterministic (the same bits every time on a GPU), country (whose electricity is counted as CO2), shared (a folder
            for the starts of runs that differ only in their budget), on_log (called with each line of metrics.jsonl as a dict; it
            holds the training up while it runs, what it raises stops nothing, and after a resume it gets the steps since the last
            checkpoint again);
            and of the tokenizer: tokenizer (bpe, wordpiece, unigram, word, char, byte), vocab_size, lowercase, from_tokenizer (a
            tokenizer.json to use instead of learning one); of that of a translator's sources, one of which gives them a
            vocabulary of their own: source_tokenizer, source_vocab_size, from_source_tokenizer.
    """
    given: dict[str, Any] = dict(keywords)
    named = [field.name for field in fields(TokenizerOptions) if field.name in given]
    tokenizer = TokenizerOptions(**{name: given.pop(name) for name in named})
    options, own, cls = replace(options, **given), open_plugin(plugin), task_class(task)
    given_recipe = recipe
    recipe = recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own, task)
    if vit is not None:
        check_vit(vit, recipe, vectors)
        if not isinstance(given_recipe, Recipe):
            recipe = find_recipe(given_recipe, [*(settings or []), *vit_settings(Path(vit))], own, task)
    check_task(recipe, task)
    if is_first() and not (options.resume or options.overwrite):  # asked before a vocabulary is learnt
        check_free(Path(out))
    files, reader = files_of(train=train, valid=valid, test=test), dataset_class(cls, task)
    layout = layout_of(task, columns, encoding)
    others: dict[str, Any] = dict(beside_of(beside, recipe, Path(out), options, own))
    apart = tokenizer.of_source()
    if apart is None:
        texts = reader.texts(files["train"], task, **layout)
    else:
        check_two_vocabularies(recipe, task)
        sources = reader.texts(files["train"], task, slice(0, 1))
        others["source_tokenizer"] = learn_tokenizer(sources, apart, cls.parted_by, "source-")
        texts = reader.texts(files["train"], task, slice(1, 2))
    words = learn_tokenizer(texts, tokenizer, cls.parted_by)
    dataset = reader(recipe, files, words, **layout, **others)
    first = None if vectors is None else vectors_from(Path(vectors), words, dataset.recipe)
    first = first if vit is None else vit_from(Path(vit))
    return with_report(train_run(dataset, Path(out), options, first, own), files, **layout)


def layout_of(task: str, columns: Mapping[str, str] | None, encoding: str | None) -> dict[str, Layout]:
    """The layout of a task's files as an argument of its dataset; nothing for tasks whose files have no columns."""
    cls: Any = task_class(task)
    if cls.reads != "labelled":
        if columns or encoding:
            raise UsageError(
                f"the files of the task {task} have no named columns, and are UTF-8: leave columns and encoding out"
            )
        return {}
    return {"layout": cls.layout(columns or {}, encoding, need_labels=True)}


def finetune(
    start: str | Path | Trained,
    task: str,
    train: Files,
    valid: Files,
    out: str | Path,
    *,
    test: Files = (),
    how: str = "finetune",
    beside: Files = (),
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    settings: list[str] | None = None,
    plugin: str | Path | Plugin | None = None,
    language: str | None = None,
    options: RunOptions = RunOptions(),
    **keywords: Unpack[RunKeywords],
) -> Trained:
    """Trains a task with the backbone of another run, and its tokenizer, and returns the finished run.

    Args:
        start: the run, or its folder.
        task: classify, regress, pair, choose, tag, span; or translate, where `start` is a translator.
        train: the training examples: a file in the task's format, or several.
        valid: examples by which the best weights are chosen.
        out: the run folder to write.
        test: examples that are scored once at the end.
        how: "finetune" (all weights), "features" (the backbone stays as it is) or "gradual" (from the top layer down).
        beside: folders of other runs, whose features enter beside those of this model; they stay as they are.
        columns: what the fields of the task are called in the files, as {"text": "review", "label": "sentiment"}.
        encoding: of files that are not UTF-8, as "cp1252".
        settings: changes of the task's recipe, as "train.optim.lr=0.001" and "budget={epochs=3}".
        plugin: the file with code of your own that `start` was trained with.
        language: of the texts, for a model with language embeddings.
        options: a RunOptions, for what is the same in several calls.
        keywords: fields of RunOptions that differ from `options`: seed (of the first weights, the order of the data and dropout),
            resume (continue the run that is in `out`), overwrite (delete it and start again), device ("auto", "cpu", "cuda"),
            deterministic (the same bits every time on a GPU), country (whose electricity is counted as CO2), shared (a folder
            for the starts of runs that differ only in their budget), on_log (called with each line of metrics.jsonl as a dict; it
            holds the training up while it runs, what it raises stops nothing, and after a resume it gets the steps since the last
            checkpoint again).
    """
    check_transfer(task, how)
    before = open_start(start, out, plugin, language)
    options, files = replace(options, **keywords), files_of(train=train, valid=valid, test=test)
    recipe, layout = recipe_after(before, task, how, settings), layout_of(task, columns, encoding)
    others: dict[str, Any] = dict(beside_of(beside, recipe, Path(out), options, trained=before))
    two = isinstance(before, Translator) and before.own_source_tokenizer is not None
    pairs = task_class(task).reads == "pairs"
    words = before.tokenizer if pairs else before.source_tokenizer  # labels are of texts that its encoder reads
    others |= {"source_tokenizer": before.source_tokenizer} if two and pairs else {}
    dataset = dataset_class(task_class(task), task)(recipe, files, words, **layout, **others)
    return with_report(train_run(dataset, Path(out), options, transfer_from(before)), files, **layout)


def beside_of(
    runs: Files,
    recipe: Recipe,
    out: Path,
    options: RunOptions,
    plugin: Plugin | None = None,
    trained: Trained | None = None,
) -> dict[str, BesideRuns]:
    """The runs whose features a task reads beside those of its own model, as an argument of its dataset; nothing where there are
    none. trained: the run whose model that is, if it is not new."""
    folders = files_of(runs=runs).get("runs", [])
    if not folders:
        return {}
    cls: Any = task_class(recipe.learns)
    if cls.reads != "labelled" or not cls.finds_spots:
        raise UsageError(
            f"--beside is for classify, regress, pair, choose and tag, not for {recipe.learns}: leave it out"
        )
    settings = build(cls.Config, task_settings(recipe.task or {}), "task", recipe.name).beside
    if trained is not None and settings.at.isdecimal():
        raise UsageError(
            f"'task.beside.at' = {settings.at}: the layers of {trained.folder} are trained and read nothing new: use \"output\", "
            f'or "reader" with task.reader = "lstm"'
        )
    for folder in folders:
        if out.resolve() in (folder.resolve(), *folder.resolve().parents):
            raise UsageError(f"--out {out} is --beside {folder} itself, or holds it: choose another folder")
    device = choose_device(options.device)
    return {"beside": open_beside(folders, settings, lambda folder: load(folder, str(device), plugin))}


def train_run(
    dataset: Dataset, folder: Path, options: RunOptions, start: Start | None = None, plugin: Plugin | None = None
) -> Trained:
    """Trains on a dataset and writes a finished run: every model, objective and task goes through here."""
    recipe, tokenizer, device = (
        dataset.recipe,
        dataset.tokenizer,
        choose_device(options.device, dataset.recipe.count_based),
    )
    shape = checked_shape(dataset, plugin)  # what cannot work is rejected before the folder is touched
    budget = recipe.budget.resolve(dataset)
    batches = dataset.batches(budget.tokens / dataset.num_tokens, repeated_shapes(shape, device))
    counted = None
    if recipe.count_based:
        assert isinstance(dataset, Corpus), "what is counted is prepared text"
        text = dataset.train[0]
        counted = select_documents(text, budget.tokens, options.seed)
        check_order(recipe.model_config_of(1).order, counted)
    ranks = join(device, options.deterministic, recipe.train.shard)
    if counted is not None and ranks.world > 1:
        raise UsageError(f"{recipe.name} learns by counting, in one process: call it without ranks")
    parts = max(recipe.train.accumulate, recipe.train.parts)
    with alone(folder, ranks), deterministic_algorithms(options.deterministic, parts):
        config = describe_run(dataset, folder, options.seed, start, plugin)
        check_ranks(ranks, config)
        two = dataset.source_tokenizer
        ranks.on_first(lambda: begin_folder(folder, config, tokenizer, options.resume, options.overwrite, two))
        check_shared(ranks, folder)
        learner: Any = build_learner(dataset, options.seed, plugin)
        if start is not None:
            start.fill(learner)
        if not is_sharded(recipe.train, ranks):  # shards are moved one by one
            learner = learner.to(device)

        def validate(learner: Learner, share: Share) -> dict[str, Any]:
            return dataset.evaluate(learner, device, share)

        measure = validate if dataset.validates else None
        keep_best = partial(export, folder=folder)
        fit: Fit | Count
        taken: bool | None = False
        if counted is not None:
            if budget.tokens > dataset.num_tokens and not options.resume:
                say("counting once: more epochs would count nothing new")
            fit = Count(learner, text, counted, folder, measure, keep_best, options.on_log)
        else:
            train = recipe.train
            loader = Loader(batches, learner, options.seed, train.workers, train.accumulate, train.parts)
            marks = milestones(budget.tokens, dataset) if train.milestones else []
            precompute = None if is_sharded(train, ranks) else dataset.precompute(learner, device, budget)
            shared = options.shared if can_share(recipe, learner) else None
            if shared is not None:
                fall = train.schedule.fall
                taken = ranks.from_first(ranks.on_first(lambda: take_start(folder, shared, config, budget, fall)))
            callbacks = Callbacks(
                measure,
                keep_best,
                lambda weights, mark, state: keep_milestone(weights, folder, mark, state),
                None if shared is None else partial(keep_start, folder, shared, config),
                options.on_log,
                precompute,
            )
            fit = Fit(learner, loader, train, budget, folder, device, options.seed, callbacks, marks, ranks)
            what = f"{learner.size():,} parameters, {dataset.summary}, on {device}, {fit.precision}"
            say(f"{recipe.name}: {what}{ranks_in_words(ranks, fit.weights.is_sharded)}")
        state = fit.run(options.resume or bool(taken))
        # written last; a run that was finished before keeps its figures
        if not ranks.from_first((folder / "card.md").exists()):
            scores = score_splits(dataset, ranks, lambda: load(folder, str(device), plugin))
            scores |= {"averaged": state.averaged} if state.averaged else {}
            scores |= {"beside_flops": dataset.beside.flops} if dataset.beside is not None else {}
            known = dataset.describe() | {"fingerprint": config["data"]["fingerprint"]}
            costs = training_costs(state, options.country, device)
            ranks.on_first(lambda: finish(folder, config, state, learner, known, costs, **scores))
    return load(folder, str(device), plugin)


def ranks_in_words(ranks: Ranks, is_sharded: bool) -> str:
    """Empty for a single one."""
    return ("" if ranks.world == 1 else f", {ranks.world} ranks") + (", sharded" if is_sharded else "")


def checked_shape(dataset: Dataset, plugin: Plugin | None) -> Learner:
    """The learner of a dataset's recipe, without weights."""
    model, tokenizer = dataset.recipe.model, dataset.tokenizer
    with shapes_only():
        shape: Learner = dataset.recipe.learner(tokenizer.vocab_size, plugin)
    shape.check_vocabulary(dataset.vocabulary)
    if dataset.source_tokenizer is None and model.get("source_vocab_size") is not None:
        raise UsageError(
            f"'model.source_vocab_size' = {model['source_vocab_size']}: the tokenizer of the sources decides it: leave it "
            f"out, and give train --source-vocab-size"
        )
    return shape


def describe_run(
    dataset: Dataset, folder: Path, seed: int, start: Start | None, plugin: Plugin | None
) -> dict[str, Any]:
    """What config.json says."""
    tokenizer, two, data = dataset.tokenizer, dataset.source_tokenizer, dataset.source()
    if start is not None:
        data = data | start.data | {"fingerprint": data["fingerprint"] + start.fingerprint}
    config = describe(dataset.recipe, tokenizer.vocab_size, tokenizer.hash, data, seed)
    config |= {"from": start.origin} if start is not None and start.origin else {}
    config |= {SOURCE_KEY: two.hash} if two is not None else {}
    config |= {"plugin": record(plugin)} if plugin is not None else {}
    config |= {"beside": dataset.beside.record(folder)} if dataset.beside is not None else {}
    return config


def score_splits(dataset: Dataset, ranks: Ranks, open_run: Callable[[], Trained]) -> dict[str, Any]:
    """The scores of a finished run on all splits that are scored, by all ranks. open_run: loads it, with the weights that were
    kept."""
    if not dataset.scored:
        return {}
    ranks.on_first(lambda: dataset.calibrate(open_run()))
    best, share = open_run(), share_of(ranks)
    return {f"{split}_scores": dataset.score(best, split, share) for split in dataset.scored}


@contextmanager
def alone(folder: Path, ranks: Ranks) -> Iterator[None]:
    """Of several ranks the first owns the folder, and is the only one that says anything."""
    if ranks.first:
        with sole_owner(folder):
            yield
        return
    quiet, progress.QUIET = progress.QUIET, True
    try:
        yield
    finally:
        progress.QUIET = quiet


def check_ranks(ranks: Ranks, config: dict[str, Any]) -> None:
    """All must have been called alike."""
    known = [plain(config[name]) for name in ("recipe", "tokenizer", "vocab_size", "seed", "versions")]
    mine = digest_of({"known": known, "text": config["data"]["fingerprint"]})
    problem = "it has another recipe, text, seed or version than rank 0: call all ranks in the same way"
    ranks.check_all(mine == ranks.from_first(mine), problem)


def check_shared(ranks: Ranks, folder: Path) -> None:
    """All must see what the first has written, not a folder of their own with the same name."""
    written = ranks.from_first(sha256(folder / "config.json") if ranks.first else None)
    until = time.monotonic() + SETTLED
    while not (seen := sees(folder / "config.json", written)) and time.monotonic() < until:
        time.sleep(0.2)
    ranks.check_all(seen, f"{folder} is another folder there: choose one that all machines share")


def sees(path: Path, digest: str) -> bool:
    try:
        return sha256(path) == digest
    except OSError:
        return False


def repeated_shapes(learner: Learner, device: torch.device) -> str:
    """The kind of shapes of batches: they repeat where steps are compiled or recorded."""
    if device.type != "cuda" or not learner.static:
        return "free"
    return "row" if worth_compiling(learner, device) else "grid"


def milestones(tokens: float, dataset: Dataset) -> list[Milestone]:
    """1, 2, … 10, 20, … of a million words; of a smaller unit where a run reads fewer than ten million. tokens: that it reads."""
    ratio = dataset.num_tokens / max(dataset.words, 1)
    words = min(tokens / ratio, 1e10)
    unit = 10 ** min(max(int(math.log10(max(words, 10))) - 1, 0), 6)
    counts = [n * unit * 10**power for power in range(10) for n in range(1, 10)]
    return [Milestone(count, count * ratio) for count in counts if count <= words]


def check_plain_text(recipe: Recipe) -> Recipe:
    if recipe.task is not None:
        raise UsageError(
            f"{recipe.name} learns a task from labelled examples, not from plain text: "
            f"seqloom train {recipe.name} --task {recipe.learns} --train FILE… --out RUN"
        )
    return recipe


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
    recipe = check_plain_text(recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own))
    if recipe.count_based:
        raise UsageError(f"--find-lr: {recipe.name} learns by counting, without a rate")
    text = Corpus.open(recipe, data, own)
    learner = build_learner(text, seed, own).to(where)
    loader = Loader(text.batches(1.0, "free"), learner, seed, recipe.train.workers)
    return find_rate(learner, loader, recipe.train, where, seed)


def with_report(run: Trained, files: dict[str, list[Path]], layout: Layout = PLAIN) -> Trained:
    """Writes the report of a run that predicts labels. A run that was finished before keeps the one it has."""
    if isinstance(run, Predictor) and is_first() and not (run.folder / "report.html").exists():
        write_task_report(run, files, layout)
    return run


def open_start(
    start: str | Path | Trained,
    out: str | Path,
    plugin: str | Path | Plugin | None,
    language: str | None,
) -> Trained:
    """Loads the run that another one starts from. language: of the texts of the new one."""
    if isinstance(start, Run | Translator | Captioner | Predictor):
        start = start.folder
    source = Path(start).resolve()
    if Path(out).resolve() in (source, *source.parents):
        raise UsageError(f"--out {out} is the run itself, or holds it: choose another folder")
    found = in_language(load(Path(start), "cpu", plugin), language)
    found.check_language()
    if getattr(found, "beside", None) is not None:
        raise UsageError(
            f"{start} stands on other runs: start from the run that it was trained from, and name them by --beside"
        )
    return found


def files_of(**names: Files) -> dict[str, list[Path]]:
    several = {name: [files] if isinstance(files, str | Path) else files for name, files in names.items()}
    return {name: [Path(file) for file in files] for name, files in several.items() if files}


def evaluate_files(
    run: Trained, files: Files, tokenize: str = "13a", beam: int = 4, encoding: str | None = None, **columns: str
) -> dict[str, Any]:
    """A run that has learnt from labelled examples, on others: its task's scores; BLEU of a translator, retrieval of an
    encoder that has learnt from pairs. encoding, columns: as in `Predictor.evaluate`."""
    if isinstance(run, Predictor):
        return run.evaluate(files, (), encoding=encoding, **columns)
    if columns or encoding:
        raise UsageError(
            f"{run.folder} reads pairs, whose files have no named columns, and are UTF-8: leave these options out"
        )
    if isinstance(run, Captioner):
        rows = read_captions(files_of(given=files)["given"])
        return run.loss(rows) | run.evaluate(rows, beam=beam)
    if isinstance(run, Translator):
        pairs = read_all(files)
        return run.loss(pairs) | run.evaluate(pairs, tokenize, beam=beam)
    if run.learner.reads != "pairs":
        raise UsageError(f"{run.folder} has not learnt from labelled examples: evaluate it with --data DIR")
    limit = run.learner.backbone.max_len
    measure = named_object(run.learner.pair_evaluator)
    return measure(run.learner, encode_pairs(read_all(files), run.tokenizer, limit, "test"), run.device)


def read_all(files: Files) -> list[TextPair]:
    return list(read_pairs(files_of(given=files)["given"]))
