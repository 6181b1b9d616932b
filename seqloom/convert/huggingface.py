"""Folders of `transformers` ⇄ run folders. Nothing is written before all of it is known to fit, and nothing executed."""

import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom import __version__
from seqloom.batches.pairs import PairFrame
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.convert.family import Family, Head, with_padding
from seqloom.convert.frame import (
    PADDING,
    frame_of,
    names_of,
    roles_of,
    tokenizer_settings,
    with_frame,
)
from seqloom.convert.hub import open_weights, read_config
from seqloom.convert.model_card import CardOptions, model_card
from seqloom.convert.names import find_place, to_their_tensors, with_heads
from seqloom.convert.read import Model, read_model, token_ids, vocabulary_buffers
from seqloom.convert.silent_heads import add_silent_heads
from seqloom.convert.tasks import (
    check_plain,
    has_pooler,
    has_task_heads,
    in_our_order,
    label_values,
    rescale_regression,
    stored_head,
    task_head,
)
from seqloom.convert.values import FAMILIES, family_of, write_values
from seqloom.convert.vocabulary import read_tokenizer
from seqloom.decode.rules import BeamConfig
from seqloom.errors import FileError, ModelError, UsageError
from seqloom.files import (
    FolderKind,
    clear_folder,
    contents,
    make_folder,
    read_json,
    sha256,
    sole_owner,
    write_bytes,
    write_json,
)
from seqloom.plugins import Plugin
from seqloom.recipes.library import task_sections
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.captioner import Captioner
from seqloom.runs.card import RunDescription, made_by
from seqloom.runs.folder import BOUND, RUN, WEIGHTS, clear, describe
from seqloom.runs.language_model import Run
from seqloom.runs.load import FolderOfOthers
from seqloom.runs.load import load as load_run
from seqloom.runs.predictor import Predictor
from seqloom.runs.translator import Translator
from seqloom.tasks import task_class
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.weights import load_tensors, save_tensors, shapes_only

UNUSED = "unused.safetensors"  # of an imported run: what the model has no use for, kept for an exact export
MODEL_TYPES = {family.model: name for name, family in FAMILIES.items()}
UNLIMITED = 512  # the length of batches of a model that reads texts of any length
EXPORTED = "seqloom.json"  # in an exported folder: which files are ours


def import_folder(folder: str | Path, out: str | Path, overwrite: bool = False, task: str | None = None) -> Path:
    """A folder with config.json, weights and tokenizer → a run folder. task: which task a fine-tuned model was trained
    for, if its head allows several."""
    folder, out = Path(folder), Path(out)
    config = read_config(folder)
    family = family_of(config, f"{folder}: config.json")
    check_out(out, overwrite, folder, RUN)
    tuned = stored_head(family, config, task, str(folder))
    if task is not None and tuned is None:
        raise UsageError(
            f"--task {task}: {folder} was not fine-tuned for a task, according to its config.json: leave it out"
        )
    with open_weights(folder) as weights:
        model = read_model(family, config, weights.shapes, str(folder), tuned)
        tokenizer = read_tokenizer(folder, config["model_type"], model.values["vocab_size"])
        check_padding(family, tokenizer, str(folder))
        recipe = recipe_of(model, config, tokenizer)
        learner = recipe_shape(recipe, model)
        beside = vocabulary_buffers(learner, PreparedVocabulary(tokenizer))
        tensors, unused = model.take(weights.read())
    if tuned is not None:
        tensors = in_our_order(tensors, tuned.learns["task"])
    check_finite(tensors | unused, str(folder))
    own = {name for name in tensors if find_place(family.table, name) is not None}
    parts = (
        {name: tensor for name, tensor in tensors.items() if name in own},
        {name: tensor for name, tensor in tensors.items() if name not in own} | beside,
    )
    with sole_owner(out):
        clear(out, overwrite=True)  # by now it is empty, or was to be overwritten
        write_run(out, folder, config, recipe, tokenizer, parts, unused)
    return out


def load(
    folder: str | Path,
    device: str = "auto",
    plugin: str | Path | Plugin | None = None,
    beside: Sequence[str | Path] = (),
    task: str | None = None,
) -> Run | Translator | Captioner | Predictor:
    """Loads a run. Nothing in its folder is executed; every file is checked before it is used.

    Args:
        folder: a run folder, or a folder of `transformers`: that one becomes a run in a temporary folder, which lasts as long as
            what is returned.
        device: "auto", "cpu" or "cuda".
        plugin: the file with code of your own that the model was trained with.
        beside: where the runs are whose features it reads, if they were moved.
        task: of several that it has learnt, the one that it predicts; else the main one.
    """
    try:
        return load_run(folder, device, plugin, beside, task)
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
            raise ModelError(f"{where}: the weights are damaged: {name} contains NaN or infinity")


def check_padding(family: Family, tokenizer: Tokenizer, where: str) -> None:
    """Where positions are counted from the padding token, elsewhere a text that holds it is read as padding."""
    if family.skip and family.skip - 1 not in tokenizer.special_ids.values():
        raise ModelError(
            f"{where}: config.json has pad_token_id = {family.skip - 1}, which is {tokenizer.entry(family.skip - 1)!r} in its "
            f"vocabulary, but not a special token: this word would be read as padding"
        )


def check_out(out: Path, overwrite: bool, source: Path, kind: FolderKind) -> None:
    here, there = out.resolve(), source.resolve()
    if here in (there, *there.parents) or there in here.parents:
        raise UsageError(f"--out {out} and {source} are inside each other: choose another folder")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file: choose a folder")
    if not overwrite and out.is_dir() and contents(out, kind):
        raise UsageError(
            f"--out {out} is not empty: choose another folder, or replace what seqloom wrote with --overwrite"
        )


def recipe_of(model: Model, config: dict[str, Any], tokenizer: Tokenizer) -> Recipe:
    values = {key: value for key, value in model.values.items() if key != "vocab_size"}
    learns = {kind: dict(section) for kind, section in model.head.learns.items()}
    length, kind = values.get("max_len", UNLIMITED), "passages"
    more: dict[str, Any] = {}
    if "task" in learns and task_class(learns["task"]["name"]).reads == "labelled":
        more = task_sections(learns["task"]["name"], {"name": model.family.model, **values}, "finetune")
        learns["task"] = more["task"] | learns["task"]
    elif "task" in learns:
        start, end = token_ids(config, model.values["vocab_size"], "decoder_start_token_id", "eos_token_id")
        if end != tokenizer.end_id:
            raise ModelError(
                f"{model.where}: config.json ends texts with the token {end}, but its tokenizer with {tokenizer.end_id} "
                f"({tokenizer.token(tokenizer.end_id)!r})"
            )
        learns["task"] |= {} if start == end else {"start_id": start}
        kind = "pairs"
    elif learns["objective"]["name"] == "next-token":
        kind = "packed"
    elif learns["objective"]["name"] == "permuted":
        kind = "streams"
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
    theirs: dict[str, Any],
    recipe: Recipe,
    tokenizer: Tokenizer,
    parts: tuple[dict[str, Tensor], dict[str, Tensor]],
    unused: dict[str, Tensor],
) -> None:
    about = {"folder": str(source), "fingerprint": tokenizer.hash, "spelling": False}
    config = describe(recipe, tokenizer.vocab_size, tokenizer.hash, about, seed=0)
    config["imported"] = {"folder": str(source), "model_type": theirs["model_type"], "unused": None}
    family = FAMILIES.get(theirs["model_type"])  # a file of vectors has none
    if family is not None and family.skip:
        config["imported"]["padding"] = theirs.get("pad_token_id", PADDING)
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
    (learns,) = recipe["objectives"] or recipe["tasks"]
    output = f"Its output layers are those of {learns['name']}."
    if learns.get("output") is False:
        output = "It has no output layer and predicts no words: it gives layers, for `embed` and `finetune`."
    return "\n".join(
        [
            f"# {recipe['name']}",
            "",
            f"A {recipe['model']['name']} model, not trained here: imported from `{config['imported']['folder']}`, of the "
            f"type {config['imported']['model_type']}.",
            f"What it read, what that cost and what it scores is not known to this program. {output}",
            "",
            "| | |",
            "|---|---|",
            f"| parameters of the body | {count:,} |",
            f"| tokenizer | {tokenizer.kind}, {tokenizer.vocab_size:,} entries |",
            "",
            *made_by(RunDescription.model_validate(config)),
        ]
    )


class Exported(NamedTuple):
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    roles: dict[str, str]  # of special tokens
    generation: dict[str, Any] | None  # how texts are written, by a model that writes


def export_folder(
    run: str | Path, out: str | Path, overwrite: bool = False, card_options: CardOptions = CardOptions()
) -> Path:
    """A run folder → a folder that the Auto classes of `transformers` load, with a card for model hubs."""
    run, out = Path(run), Path(out)
    card_options.check()
    loaded = load_run(run, "cpu")  # every file is checked by it
    if loaded.config.get("beside"):
        raise UsageError(
            f"{run} stands on other runs (--beside), whose features no exported folder can hold: export a run that does not"
        )
    if loaded.source_tokenizer is not loaded.tokenizer:
        raise UsageError(
            f"{run} has two vocabularies, and what it would be exported as has one: train it without --source-tokenizer, "
            f"--source-vocab-size and --from-source-tokenizer"
        )
    check_out(out, overwrite, run, exported_folder(out))
    made = convert_run(run, loaded)
    with sole_owner(out):
        clear_folder(out, exported_folder(out))
        tokenizer = loaded.tokenizer
        frame = frame_of(loaded.learner, tokenizer)
        names = [
            "config.json",
            *(["generation_config.json"] if made.generation is not None else []),
            "model.safetensors",
        ]
        names += ["README.md", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
        # first: what a killed export leaves is known by it, and can be overwritten
        write_json(out / EXPORTED, {"seqloom": __version__, "files": names})
        write_json(out / "tokenizer.json", with_frame(tokenizer, frame))
        write_json(out / "tokenizer_config.json", tokenizer_settings(tokenizer, frame, made.roles))
        write_json(out / "special_tokens_map.json", made.roles)
        save_tensors(out / "model.safetensors", made.tensors, {"format": "pt"})
        write_json(out / "config.json", made.config)
        write_bytes(out / "README.md", model_card(run, made.config, card_options).encode())
        if made.generation is not None:
            write_json(out / "generation_config.json", made.generation)
        (out / "lock").unlink(missing_ok=True)
    return out


def export_milestones(
    run: str | Path, out: str | Path, overwrite: bool = False, card_options: CardOptions = CardOptions()
) -> list[Path]:
    """All milestones of a run and its final weights, each as a folder of its own: OUT/words-1000000, …, OUT/final."""
    run, out = Path(run), Path(out)
    kept = [
        path for path in (run / "milestones").glob("*") if path.name.isdecimal() and (path / "milestone.json").is_file()
    ]
    if not kept:
        raise UsageError(f"{run} has no milestones: train it with --milestones")
    places = {out / f"words-{path.name}": path for path in sorted(kept, key=lambda path: int(path.name))}
    places[out / "final"] = run
    for place, source in places.items():  # all are checked before one is written
        check_out(place, overwrite, source, exported_folder(place))
    make_folder(out)
    return [export_folder(source, place, overwrite, card_options) for place, source in places.items()]


def exported_folder(folder: Path) -> FolderKind:
    """What an earlier export has written, as it lists it."""
    try:
        listed = read_json(folder / EXPORTED)["files"]
        names = [name for name in listed if isinstance(name, str)]
    except (FileError, ValueError, KeyError, TypeError, RecursionError):
        names = []
    pattern = re.compile("|".join(re.escape(name) for name in [EXPORTED, *names]))
    return FolderKind("an exported model", pattern, (), lambda place: (place / EXPORTED).is_file(), EXPORTED)


def convert_run(run: Path, loaded: Any) -> Exported:
    """A loaded run as config, tensors and special tokens of `transformers`."""
    recipe, tokenizer = build_recipe(loaded.config["recipe"], str(run)), loaded.tokenizer
    check_exportable(run, recipe, loaded)
    model_type = MODEL_TYPES[recipe.model["name"]]
    imported = loaded.config.get("imported")
    padding = padding_of(tokenizer, imported)
    if FAMILIES[model_type].skip and padding is None:
        # theirs would read a word as padding; BERT without segments is the same model
        model_type = "bert"
    family = with_padding(FAMILIES[model_type], padding)
    values = recipe.model_config_of(tokenizer.vocab_size).model_dump()
    values, ours = add_silent_heads(values, trained_tensors(run, loaded))
    if recipe.learns == "masked" and imported is None and values.get("pooler"):
        values["pooler"] = False  # it was never trained
        ours = without(ours, "pooler.")
    if values.get("num_segments") == 0:
        table = ours["embedding.token.weight"]
        ours["embedding.segments.weight"] = table.new_zeros(1, table.shape[1])
    labels: dict[str, Any] = {}
    if isinstance(loaded, Predictor) and recipe.task is not None and family.heads and has_task_heads(family):
        check_plain(recipe.task, str(run))
        dense = getattr(getattr(loaded.learner, "summary", None), "dense", None)
        head = task_head(family, model_type, recipe.task, dense is not None)
        ours, labels = rescale_regression(ours, loaded.learner, recipe.task), label_values(loaded.learner, recipe.task)
        pooled = has_pooler(head, family, values)
        if "pooler" in values:
            values["pooler"] = pooled
        if not pooled:
            ours = without(ours, "pooler.")
    else:
        head = head_of(family, recipe.learns, set(ours), str(run))
    ours = without(ours, *head.left_out) if head.left_out else ours
    names = with_heads({**family.table, **head.table}, values["num_heads"])
    tensors = to_their_tensors(names, ours, unused_of(run, imported), str(run))
    config = write_values(family, model_type, values, set(tensors), str(run))
    config["architectures"] = [head.architecture]
    config["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    roles = roles_of(tokenizer, loaded.learner, padding)
    tokens = tokens_of(tokenizer, roles, loaded.learner)
    return Exported(config | labels | tokens, tensors, roles, generation_of(tokenizer, loaded.learner, tokens))


def check_exportable(run: Path, recipe: Recipe, loaded: Any) -> None:
    name = recipe.model["name"]
    if name not in MODEL_TYPES:
        raise ModelError(f"{run}: the model {name} cannot be exported; these can: {', '.join(MODEL_TYPES)}")
    if recipe.batches.backward or getattr(loaded, "backward", False):
        raise ModelError(
            f"{run} reads texts from right to left, which no model of transformers does: it cannot be exported"
        )
    if recipe.model.get("experts", 1) > 1:
        raise ModelError(
            f"{run}: model.experts = {recipe.model['experts']} cannot be expressed in a {MODEL_TYPES[name]}"
        )


def trained_tensors(run: Path, loaded: Any) -> dict[str, Tensor]:
    """The parameters of a run in their stored type, named without "backbone."."""
    files = load_tensors(run / WEIGHTS[0]) | load_tensors(run / WEIGHTS[1])
    stored = {name.removeprefix("backbone."): tensor for name, tensor in files.items()}
    names = [name.removeprefix("backbone.") for name, _ in loaded.learner.named_parameters()]
    head = getattr(loaded, "stored_as", "")  # of one of several tasks
    return {name: stored[name] if name in stored else stored[head + name] for name in names}


def without(tensors: dict[str, Tensor], *prefixes: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(prefixes)}


def padding_of(tokenizer: Tokenizer, imported: Any) -> int | None:
    """The token that is used only for padding; the positions of an imported model start after it."""
    if isinstance(imported, dict) and imported.get("padding") is not None:
        return int(imported["padding"])
    name = names_of(tokenizer).get("pad_token")
    return None if name is None else tokenizer.id(name)


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
        raise ModelError(
            f"{run / UNUSED} is damaged or missing (its SHA-256 differs from the recorded one): import it again"
        )
    return load_tensors(run / UNUSED)


def tokens_of(tokenizer: Tokenizer, roles: dict[str, str], learner: Any) -> dict[str, Any]:
    """What config.json says of special tokens."""
    numbers = {role: tokenizer.id(name) for role, name in roles.items()}
    found = {"bos_token_id": numbers.get("bos_token"), "eos_token_id": numbers.get("eos_token", tokenizer.end_id)}
    found["pad_token_id"] = numbers["pad_token"]
    if "sep_token" in roles:
        found["sep_token_id"] = numbers["sep_token"]
    if hasattr(learner.backbone, "decoder"):
        frame = PairFrame.of(learner.backbone, tokenizer, learner.start_id)
        found |= {"decoder_start_token_id": frame.start, "forced_eos_token_id": frame.end}
        found |= {"forced_bos_token_id": frame.before[0]} if frame.before else {}
    return found


def generation_of(tokenizer: Tokenizer, learner: Any, tokens: dict[str, Any]) -> dict[str, Any] | None:
    """What our decoding does by itself: no special token but the end is ever written, and translations are searched for."""
    backbone, end = learner.backbone, tokens["eos_token_id"]
    translates = hasattr(backbone, "decoder")
    if not translates and not backbone.causal:
        return None
    special = {*tokenizer.special_ids.values(), tokenizer.unk_id, tokens.get("decoder_start_token_id")} - {end}
    forced = tokens.get("forced_bos_token_id")
    special -= {forced}  # it would not be written where it must be
    never = [number for number in special if number is not None]
    found = {name: number for name, number in tokens.items() if name != "forced_eos_token_id" and number is not None}
    found |= {"suppress_tokens": sorted(never)} if never else {}
    found |= {"bad_words_ids": [[forced]]} if forced is not None else {}  # nowhere else
    if translates:
        beam = BeamConfig()
        found |= {"num_beams": beam.beam, "early_stopping": "never", "length_penalty": beam.length_penalty}
        found |= {"max_length": backbone.max_len}
    return found
