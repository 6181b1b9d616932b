"""Loading run folders: nothing in one is executed, and every file is checked before it is used."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom import migrations
from seqloom.batch import EncoderDecoder
from seqloom.config import build, unknown_name
from seqloom.errors import ModelError, UsageError
from seqloom.files import check_run_folder, read_json
from seqloom.models import model_class
from seqloom.plugins import Plugin, check_recorded, open_plugin
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.beside import BesideRuns, find_recorded, open_beside
from seqloom.runs.captioner import Captioner
from seqloom.runs.folder import SOURCE_KEY, SOURCE_TOKENIZER, WEIGHTS, check_weights
from seqloom.runs.language import in_language
from seqloom.runs.language_model import Run
from seqloom.runs.predictor import Predictor
from seqloom.runs.translator import Translator
from seqloom.tasks.several import Several
from seqloom.tasks.transfer import BesideConfig
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.precision import choose_device
from seqloom.weights import check_fit, fill, load_tensors, shapes_only

Trained = Run | Translator | Captioner | Predictor


class FolderOfOthers(ModelError):
    """No run, but what can become one."""


def load(
    folder: str | Path,
    device: str = "auto",
    plugin: str | Path | Plugin | None = None,
    beside: Sequence[str | Path] = (),
    task: str | None = None,
    memory: int | None = None,
) -> Trained:
    """Loads a run folder. Nothing in it is executed; every file is checked before it is used.

    plugin: the file with code of your own that the model was trained with; beside: where the runs are that it stands on, if they
    were moved; task: of several that it has learnt, the one that it predicts, else the main one; memory: of a model with a
    memory, how many tokens each token sees, itself included, in place of what its recipe says.
    """
    folder, where, own = Path(folder), choose_device(device), open_plugin(plugin)
    path, config, recipe = folder / "config.json", *read_recipe(folder)
    if memory is not None:
        config, recipe = with_memory(config, memory, folder)
    vocab_size = config["vocab_size"]
    where = choose_device(device, recipe.count_based)
    if recipe.own_code:
        check_recorded(folder, config.get("plugin"), own)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    if tokenizer.hash != config.get("tokenizer"):
        raise ModelError(f"{folder / 'tokenizer.json'} is not the tokenizer that this model was trained with")
    if tokenizer.vocab_size != vocab_size:
        raise ModelError(f"{path}: vocab_size {vocab_size} does not fit the tokenizer's {tokenizer.vocab_size}")
    source_tokenizer = load_source_tokenizer(folder, config, recipe)
    check_weights(folder)
    tensors: dict[str, Tensor] = {f"backbone.{name}": t for name, t in load_tensors(folder / WEIGHTS[0]).items()}
    tensors |= migrations.rename_tensors(load_tensors(folder / WEIGHTS[1]))
    # the sizes in config.json are believed only where the weights bear them out: nothing is allocated before
    if getattr(recipe.model_config_of(vocab_size), "num_layers", 0) > len(tensors):
        raise ModelError(f"{path} has more layers than {folder / WEIGHTS[0]} has tensors")
    with shapes_only():
        learner = recipe.learner(vocab_size, own)
        learner.resize_to(tensors)
        check_fit(learner, tensors, folder)
    with torch.random.fork_rng():  # the first values are drawn, and then replaced
        learner = recipe.learner(vocab_size, own)
    learner.resize_to(tensors)
    fill(learner, tensors, folder)
    try:
        learner.validate_loaded()
    except ValueError as error:
        raise ModelError(f"{folder}: its weights are damaged: {error}") from error
    learner = learner.to(where).eval()
    if recipe.learns == "translate":
        return Translator(folder, config, learner, tokenizer, where, source_tokenizer)
    if recipe.learns == "caption":
        return Captioner(folder, config, learner, tokenizer, where)
    if isinstance(learner, Several):
        return several_tasks(folder, config, learner, tokenizer, where, task)
    if task is not None:
        raise UsageError(f"--task {task}: {folder} has learnt one thing, {recipe.learns}: leave it out")
    if learner.reads == "labelled":
        return Predictor(folder, config, learner, tokenizer, where, stood_on(folder, config, learner, where, beside))
    if beside:
        raise UsageError(f"--beside: {folder} stands on no other runs: leave it out")
    return Run(folder, config, learner, tokenizer, where)


def load_source_tokenizer(folder: Path, config: dict[str, Any], recipe: Recipe) -> Tokenizer | None:
    """The tokenizer of the sources, where they have a vocabulary of their own."""
    entries, digest = recipe.model.get("source_vocab_size"), config.get(SOURCE_KEY)
    if entries is None and digest is None:
        return None
    path = folder / SOURCE_TOKENIZER
    found = Tokenizer.load(path)
    if found.hash != digest or found.vocab_size != entries:
        raise ModelError(f"{path} is not the tokenizer of the sources that this model was trained with")
    return found


def several_tasks(
    folder: Path, config: dict[str, Any], learner: Several, tokenizer: Tokenizer, device: torch.device, task: str | None
) -> Predictor:
    """What a run with several tasks predicts. task: which of them, else the main one."""
    sections = config["recipe"]["tasks"]
    names = learner.names
    if task is not None and task not in names:
        raise UsageError(unknown_name("--task", task, task, names))
    index = 0 if task is None else names.index(task)
    if not learner.tasks[index].predicts:
        raise UsageError(f"--task {task}: it predicts nothing itself: choose one of {', '.join(scored_names(learner))}")
    if not learner.weights[index]:
        raise UsageError(f"--task {task}: it has the weight 0 in {folder} and was not learnt: choose another")
    data, alone = config.get("data"), config["recipe"] | {"tasks": [sections[index]]}
    if isinstance(data, dict) and isinstance(data.get("tasks"), dict) and names[index] in data["tasks"]:
        data = data | {"columns": None} | data["tasks"][names[index]]
    return Predictor(
        folder, config | {"recipe": alone, "data": data}, learner.tasks[index], tokenizer, device, number=index,
        for_task=lambda name: several_tasks(folder, config, learner, tokenizer, device, name),
    )  # fmt: skip


def scored_names(learner: Several) -> list[str]:
    return [name for name, head in zip(learner.names, learner.tasks, strict=True) if head.predicts]


def stood_on(
    folder: Path, config: dict[str, Any], learner: Any, device: torch.device, given: Sequence[str | Path]
) -> BesideRuns | None:
    """The runs that a run stands on. given: where they are, if they were moved."""
    recorded = config.get("beside")
    if recorded is None:
        if given:
            raise UsageError(f"--beside: {folder} stands on no other runs: leave it out")
        if learner.beside_at:
            raise ModelError(f"{folder / 'config.json'} does not say whose features the run reads: it is damaged")
        return None
    places = find_recorded(folder, recorded, [Path(each) for each in given])
    found = open_beside(places, build(BesideConfig, learner.about["beside"]), lambda each: load(each, str(device)))
    if found.width != learner.about["beside"]["dim"]:
        raise ModelError(
            f"{folder}: the runs that it stands on give {found.width} features, and it reads others: it is damaged"
        )
    return found


def read_recipe(folder: Path) -> tuple[dict[str, Any], Recipe]:
    """The config.json of a run folder of any version, and its recipe; ModelError where it cannot be used."""
    path = folder / "config.json"
    check_run_folder(folder)
    try:
        config = read_json(path)
        if "model_type" in config and "format" not in config:
            raise FolderOfOthers(
                f"{folder} is a folder of another project: 'seqloom import {folder} --out RUN' makes a run of it"
            )
        config = migrations.RUN.migrate(config, path)
        recipe = build_recipe(config["recipe"], str(path))
        if "vocab_size" not in config:
            raise KeyError("vocab_size")
    except (ValueError, KeyError, TypeError, AttributeError, UsageError, RecursionError) as error:
        raise ModelError(f"{path} is damaged or of another version: {error}") from error
    return config, recipe


def with_memory(config: dict[str, Any], memory: int, folder: Path) -> tuple[dict[str, Any], Recipe]:
    """The same run with another length of what is seen in evaluation: no weight depends on it."""
    stored = config["recipe"]
    if "eval_len" not in model_class(stored["model"]["name"]).Config.model_fields:  # type: ignore[attr-defined]
        raise UsageError(
            f"--memory {memory} is for models with a memory, such as transformer-xl; {folder} is a "
            f"{stored['model']['name']}: leave it out"
        )
    config = config | {"recipe": stored | {"model": stored["model"] | {"eval_len": memory}}}
    return config, build_recipe(config["recipe"], f"--memory {memory}")


def load_language_model(
    folder: str | Path,
    device: str = "auto",
    plugin: str | Path | Plugin | None = None,
    language: str | None = None,
    memory: int | None = None,
) -> Run:
    """The language model of a run folder. language: of its texts, for a model with language embeddings; memory: as in `load`."""
    found = load(folder, device, plugin, memory=memory)
    if isinstance(found, Translator):
        raise UsageError(f"{folder} is a translator, no language model: use 'seqloom translate {folder}'")
    if isinstance(found, Captioner):
        raise UsageError(f"{folder} is a captioner, no language model: use 'seqloom caption {folder} IMAGE'")
    if isinstance(found, Predictor):
        raise UsageError(
            f"{folder} is trained for the task {found.task}, it is no language model: use 'seqloom predict'"
        )
    return in_language(found, language)


def load_translator(folder: str | Path, device: str = "auto") -> Translator:
    """A run folder that must hold a translator."""
    found = load(folder, device)
    if isinstance(found, Run) and isinstance(found.learner.backbone, EncoderDecoder):
        return Translator(found.folder, found.config, found.learner, found.tokenizer, found.device)
    if not isinstance(found, Translator):
        raise UsageError(f"{folder} is not a translator: train one with 'seqloom train RECIPE --task translate'")
    return found


def load_captioner(folder: str | Path, device: str = "auto") -> Captioner:
    """A run folder that must hold a captioner."""
    found = load(folder, device)
    if not isinstance(found, Captioner):
        raise UsageError(f"{folder} is no captioner: train one with 'seqloom train RECIPE --task caption'")
    return found


def load_predictor(
    folder: str | Path,
    device: str = "auto",
    language: str | None = None,
    beside: Sequence[str | Path] = (),
    task: str | None = None,
) -> Predictor:
    """The trained task of a run folder. language, beside, task: as above."""
    found = load(folder, device, beside=beside, task=task)
    if not isinstance(found, Predictor):
        raise UsageError(
            f"{folder} is not trained for a task that predicts labels: 'seqloom finetune {folder} --task classify …' has it "
            f"learn one"
        )
    return in_language(found, language)
