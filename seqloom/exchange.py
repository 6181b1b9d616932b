"""Folders of `transformers` ⇄ run folders. Nothing is written before all of it is known to fit, and nothing executed."""

import re
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom import __version__
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.card import made_by
from seqloom.convert.family import Family, Head
from seqloom.convert.hub import open_weights, read_config
from seqloom.convert.names import find, give
from seqloom.convert.read import Model, read_model, token_ids, told
from seqloom.convert.tasks import (
    check_plain,
    has_pooler,
    in_our_order,
    in_their_numbers,
    label_values,
    stored_head,
    task_head,
)
from seqloom.convert.values import FAMILIES, family_of, write_values
from seqloom.convert.vocabulary import names_of, take_tokenizer
from seqloom.errors import FileError, ModelError, UsageError
from seqloom.files import FolderKind, clear_folder, read_json, sha256, sole_owner, write_bytes, write_json
from seqloom.folder import BOUND, WEIGHTS, clear, describe
from seqloom.plugins import Plugin
from seqloom.predictor import Predictor
from seqloom.recipe import Recipe, build_recipe
from seqloom.recipes import labelled
from seqloom.runs import FolderOfOthers, Run
from seqloom.runs import load as load_run
from seqloom.tasks import task_class
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.translator import Translator
from seqloom.weights import load_tensors, save_tensors, shapes_only

UNUSED = "unused.safetensors"  # of an imported run: what the model has no use for, kept for an exact export
MODEL_TYPES = {family.model: name for name, family in FAMILIES.items()}
EXPORTED = "seqloom.json"  # in an exported folder: which files are ours
PADDING = 1  # behind this number a RoBERTa of theirs counts its positions: it must be no word


def import_folder(folder: str | Path, out: str | Path, overwrite: bool = False, task: str | None = None) -> Path:
    """A folder with config.json, weights and tokenizer → a run folder. task: of one that was fine-tuned, what it tells, where
    that could be several."""
    folder, out = Path(folder), Path(out)
    config = read_config(folder)
    family = family_of(config, f"{folder}: config.json")
    check_out(out, overwrite, folder)
    tuned = stored_head(family, config, task, str(folder))
    if task is not None and tuned is None:
        raise UsageError(f"--task {task}: by its config.json {folder} was not fine-tuned for a task: leave it out")
    with open_weights(folder) as weights:
        model = read_model(family, config, weights.shapes, str(folder), tuned)
        tokenizer = take_tokenizer(folder, config["model_type"], model.values["vocab_size"])
        recipe = recipe_of(model, config, tokenizer)
        learner = recipe_shape(recipe, model)
        beside = told(learner, PreparedVocabulary(tokenizer))
        tensors, unused = model.take(weights.read())
    if tuned is not None:
        tensors = in_our_order(tensors, tuned.learns["task"])
    check_finite(tensors | unused, str(folder))
    own = {name for name in tensors if find(family.table, name) is not None}
    parts = (
        {name: tensor for name, tensor in tensors.items() if name in own},
        {name: tensor for name, tensor in tensors.items() if name not in own} | beside,
    )
    with sole_owner(out):
        clear(out, overwrite=True)  # by now it is empty, or was to be overwritten
        write_run(out, folder, config["model_type"], recipe, tokenizer, parts, unused)
    return out


def load(
    folder: str | Path, device: str = "auto", plugin: str | Path | Plugin | None = None
) -> Run | Translator | Predictor:
    """A run folder, or a folder of `transformers`: that one becomes a run in a temporary folder, which lasts as long as what is
    returned."""
    try:
        return load_run(folder, device, plugin)
    except FolderOfOthers:
        place = Path(tempfile.mkdtemp(prefix="seqloom-"))
    try:
        found = load_run(import_folder(folder, place / Path(folder).resolve().name), device, plugin)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    weakref.finalize(found, shutil.rmtree, place, ignore_errors=True)
    return found


def check_finite(tensors: dict[str, Tensor], where: str) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ModelError(f"{where}: the weights are damaged: {name} holds what is no number (NaN, or infinite)")


def check_out(out: Path, overwrite: bool, source: Path) -> None:
    here, there = out.resolve(), source.resolve()
    if here in (there, *there.parents) or there in here.parents:
        raise UsageError(f"--out {out} and {source} lie in each other: choose another folder")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file: choose a folder")
    if not overwrite and out.is_dir() and any(entry.name != "lock" for entry in out.iterdir()):
        raise UsageError(
            f"--out {out} is not empty: choose another folder, or replace what seqloom wrote with --overwrite"
        )


def recipe_of(model: Model, config: dict[str, Any], tokenizer: Tokenizer) -> Recipe:
    values = {key: value for key, value in model.values.items() if key != "vocab_size"}
    learns = {kind: dict(section) for kind, section in model.head.learns.items()}
    length, kind = values["max_len"], "passages"
    more: dict[str, Any] = {}
    if "task" in learns and task_class(learns["task"]["name"]).reads == "labelled":
        more = labelled(learns["task"]["name"], {"name": model.family.model, **values}, "finetune")
        learns["task"] = more["task"] | learns["task"]
    elif "task" in learns:
        start, end = token_ids(config, model.values["vocab_size"], "decoder_start_token_id", "eos_token_id")
        if end != tokenizer.end_id:
            raise ModelError(
                f"{model.where}: config.json ends texts with token {end}, its tokenizer with {tokenizer.end_id} "
                f"({tokenizer.token(tokenizer.end_id)!r})"
            )
        learns["task"] |= {} if start == end else {"start_id": start}
        kind = "pairs"
    elif learns["objective"]["name"] == "next-token":
        kind = "packed"
    recipe = {
        "name": f"{model.family.model}-imported",
        "model": {"name": model.family.model, **values},
        "batches": {"kind": kind, "length": length, "budget": 16 * length},
        "budget": {"epochs": 1},
        **more,
        **learns,
    }
    try:
        return build_recipe(recipe, f"{model.where}: config.json")
    except UsageError as error:
        raise ModelError(str(error)) from error


def recipe_shape(recipe: Recipe, model: Model) -> Any:
    with shapes_only():
        return recipe.learner(model.values["vocab_size"])


def write_run(
    out: Path,
    source: Path,
    model_type: str,
    recipe: Recipe,
    tokenizer: Tokenizer,
    parts: tuple[dict[str, Tensor], dict[str, Tensor]],
    unused: dict[str, Tensor],
) -> None:
    about = {"folder": str(source), "fingerprint": tokenizer.hash, "spelling": False}
    config = describe(recipe, tokenizer.vocab_size, tokenizer.hash, about, seed=0)
    config["imported"] = {"folder": str(source), "model_type": model_type, "unused": None}
    if unused:
        save_tensors(out / UNUSED, unused)
        config["imported"]["unused"] = sha256(out / UNUSED)
    write_json(out / "config.json", config)
    tokenizer.save(out / "tokenizer.json")
    for name, tensors in zip(WEIGHTS, parts, strict=True):
        save_tensors(out / name, tensors)
    write_json(out / "weights.json", {name: sha256(out / name) for name in BOUND})
    write_bytes(out / "card.md", card(config, sum(t.numel() for t in parts[0].values()), tokenizer).encode())


def card(config: dict[str, Any], count: int, tokenizer: Tokenizer) -> str:
    recipe = config["recipe"]
    learns = recipe["objective"] or recipe["task"]
    return "\n".join(
        [
            f"# {recipe['name']}",
            "",
            f"A {recipe['model']['name']} model, not trained here: imported from `{config['imported']['folder']}`, a folder of "
            f"the type {config['imported']['model_type']}.",
            f"What it read, what that cost and what it scores is not known to this program. Its output layers are those of "
            f"{learns['name']}.",
            "",
            "| | |",
            "|---|---|",
            f"| parameters of the body | {count:,} |",
            f"| tokenizer | {tokenizer.kind}, {tokenizer.vocab_size:,} entries |",
            "",
            *made_by(config),
        ]
    )


class Exported(NamedTuple):
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer


def export_folder(run: str | Path, out: str | Path, overwrite: bool = False) -> Path:
    """A run folder → a folder that the Auto classes of `transformers` load."""
    run, out = Path(run), Path(out)
    loaded = load_run(run, "cpu")  # every file is checked by it
    check_out(out, overwrite, run)
    made = exported(run, loaded)
    with sole_owner(out):
        clear_folder(out, exported_folder(out))
        roles = names_of(made.tokenizer)
        write_bytes(out / "tokenizer.json", made.tokenizer.to_json().encode())
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        limit = loaded.learner.backbone.max_len
        write_json(out / "tokenizer_config.json", settings | {"model_max_length": limit} | roles)
        write_json(out / "special_tokens_map.json", roles)
        save_tensors(out / "model.safetensors", made.tensors, {"format": "pt"})
        write_json(out / "config.json", made.config)
        written = sorted(entry.name for entry in out.iterdir() if entry.name != "lock")
        write_json(out / EXPORTED, {"seqloom": __version__, "files": written})
        (out / "lock").unlink(missing_ok=True)
    return out


def exported_folder(folder: Path) -> FolderKind:
    """What an earlier export has written, as it lists it."""
    try:
        listed = read_json(folder / EXPORTED)["files"]
        names = [name for name in listed if isinstance(name, str)]
    except (FileError, ValueError, KeyError, TypeError, RecursionError):
        names = []
    pattern = re.compile("|".join(re.escape(name) for name in [EXPORTED, *names]))
    return FolderKind("an exported model", pattern, (), lambda place: (place / EXPORTED).is_file(), EXPORTED)


def exported(run: Path, loaded: Any) -> Exported:
    recipe, tokenizer = build_recipe(loaded.config["recipe"], str(run)), loaded.tokenizer
    name = recipe.model["name"]
    if name not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        raise ModelError(f"{run}: the model {name} cannot be exported; these can: {known}")
    model_type = MODEL_TYPES[name]
    if FAMILIES[model_type].skip and tokenizer.entry(PADDING) not in ("<pad>", "[PAD]"):
        # theirs would take word 1 for padding; the BERT that has no segments is the same model
        model_type = "bert"
    family = FAMILIES[model_type]
    imported = loaded.config.get("imported")
    values = recipe.model_config_of(tokenizer.vocab_size).model_dump()
    stored = {part.removeprefix("backbone."): t for part, t in raw(run).items()}
    ours = {part: stored[part] for part in (n.removeprefix("backbone.") for n, _ in loaded.learner.named_parameters())}
    if recipe.learns == "masked" and imported is None and values.get("pooler"):
        values["pooler"] = False  # it was never trained
        ours = {part: tensor for part, tensor in ours.items() if not part.startswith("pooler.")}
    if values.get("num_segments") == 0:
        table = ours["embedding.token.weight"]
        ours["embedding.segments.weight"] = table.new_zeros(1, table.shape[1])
    labels: dict[str, Any] = {}
    if isinstance(loaded, Predictor) and recipe.task is not None and family.heads and "pooler" in family.table:
        check_plain(recipe.task, str(run))
        dense = getattr(getattr(loaded.learner, "summary", None), "dense", None)
        head = task_head(family, model_type, recipe.task, dense is not None)
        ours, labels = in_their_numbers(ours, loaded.learner, recipe.task), label_values(loaded.learner, recipe.task)
        pooled = has_pooler(head, family, values)
        if "pooler" in values:
            values["pooler"] = pooled
        if not pooled:
            ours = {part: tensor for part, tensor in ours.items() if not part.startswith("pooler.")}
    else:
        head = head_of(family, recipe.learns, set(ours), str(run))
    ours = {part: tensor for part, tensor in ours.items() if not part.startswith(head.left_out or ("\0",))}
    tensors = give({**family.table, **head.table}, ours, unused_of(run, imported), str(run))
    config = write_values(model_type, values, set(tensors), str(run))
    config["architectures"] = [head.architecture]
    config["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    return Exported(config | labels | tokens_of(tokenizer, family, loaded.learner), tensors, tokenizer)


def raw(run: Path) -> dict[str, Tensor]:
    """As they are stored, in their own type."""
    return load_tensors(run / WEIGHTS[0]) | load_tensors(run / WEIGHTS[1])


def head_of(family: Family, learns: str, ours: set[str], where: str) -> Head:
    for head in family.heads:
        ((_, section),) = head.learns.items()
        wanted = [name for name in head.table if not any(part == name or part.startswith(f"{name}.") for part in ours)]
        if (section["name"] == learns or learns in head.also) and not wanted:
            return head
    can = ", ".join(sorted({section["name"] for head in family.heads for section in head.learns.values()}))
    raise ModelError(f"{where}: a {family.model} that learns {learns} cannot be exported; one that learns {can} can")


def unused_of(run: Path, imported: Any) -> dict[str, Tensor]:
    listed = imported.get("unused") if isinstance(imported, dict) else None
    if listed is None:
        return {}
    if not (run / UNUSED).is_file() or sha256(run / UNUSED) != listed:
        raise ModelError(f"{run / UNUSED} is damaged or missing (its SHA-256 is not the recorded one): import it again")
    return load_tensors(run / UNUSED)


def tokens_of(tokenizer: Tokenizer, family: Family, learner: Any) -> dict[str, Any]:
    roles = names_of(tokenizer)
    numbers = {role: tokenizer.id(roles[role]) if role in roles else None for role in ("bos_token", "pad_token")}
    found = {"bos_token_id": numbers["bos_token"], "eos_token_id": tokenizer.end_id}
    if family.skip == 0:
        found["pad_token_id"] = numbers["pad_token"]
    if family.model == "transformer":
        start = tokenizer.end_id if learner.start_id is None else learner.start_id
        pad = start if numbers["pad_token"] is None else numbers["pad_token"]
        found |= {"decoder_start_token_id": start, "pad_token_id": pad, "forced_eos_token_id": tokenizer.end_id}
    return found
