"""The run folder: started once, never overwritten silently, finished with its metrics.

config.json  tokenizer.json  backbone.safetensors  head.safetensors  weights.json (their hashes)
source-tokenizer.json, where the sources of a translator have a vocabulary of their own
metrics.jsonl  metrics.json  card.md  checkpoints/
"""

import json
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import torch

from seqloom import __version__, cost, migrations
from seqloom.batch import Learner
from seqloom.config import flatten
from seqloom.errors import DataError, FileError, ModelError, UsageError
from seqloom.files import (
    FolderKind,
    clear_folder,
    contents,
    read_json,
    remove_leftovers,
    sha256,
    write_bytes,
    write_json,
)
from seqloom.recipes.schema import Recipe, fill_defaults
from seqloom.runs.card import Card, write_card
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training import checkpoint as checkpoints
from seqloom.training.state import Milestone, StateDict, TrainState
from seqloom.weights import save_tensors

RATE_PAGE = "find-lr.html"  # may be there before a run starts
WEIGHTS = ("backbone.safetensors", "head.safetensors")
SOURCE_TOKENIZER = "source-tokenizer.json"
SHOWN = 5  # settings that an error names
SOURCE_KEY = "source_tokenizer"  # of config.json: its hash
BOUND = (*WEIGHTS, "config.json", "tokenizer.json")  # a model is all four; weights.json has their hashes


def bound(folder: Path) -> tuple[str, ...]:
    """The files that are the model in this folder."""
    return BOUND + ((SOURCE_TOKENIZER,) if (folder / SOURCE_TOKENIZER).is_file() else ())


def describe(recipe: Recipe, vocab_size: int, tokenizer: str, data: dict[str, Any], seed: int) -> dict[str, Any]:
    """The config.json of a run: enough to rebuild the learner, and to say where it is from. data: its folder or files, and their
    fingerprint; tokenizer: its hash."""
    return {
        **migrations.RUN.stamp(),
        "recipe": recipe.model_dump(),
        "vocab_size": vocab_size,
        "tokenizer": tokenizer,
        "data": data,
        "seed": seed,
        "versions": {
            "seqloom": __version__,
            "git": git_commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def read_config(path: Path) -> dict[str, Any]:
    """Reads the config.json of a run of any version, migrated to the current format."""
    return migrations.RUN.migrate(read_json(path), path)


def git_commit() -> str | None:
    """The commit of the program, where it runs from a checkout."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def begin_folder(
    folder: Path,
    config: dict[str, Any],
    tokenizer: Tokenizer,
    resume: bool,
    overwrite: bool,
    source_tokenizer: Tokenizer | None = None,
) -> None:
    """Starts or resumes a run in a folder. Nothing is overwritten silently; what is resumed must be the same run."""
    path = folder / "config.json"
    if resume and path.exists():
        try:
            check_same(folder, read_config(path), config)
        except (AttributeError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(f"{path} is damaged ({error}): restore it, or start anew with --overwrite") from error
        remove_leftovers(folder, RUN)
        checkpoints.collect(folder / "checkpoints", keep=1_000_000)
    else:
        clear(folder, overwrite)
        write_json(path, config)
    # after config.json, and again on resume: a run that was killed between the two has none
    tokenizer.save(folder / "tokenizer.json")
    if source_tokenizer is not None:
        source_tokenizer.save(folder / SOURCE_TOKENIZER)


def check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    if before["data"]["fingerprint"] != now["data"]["fingerprint"]:
        raise DataError(
            f"{folder} was trained on other data than {data_name(now['data'])} (the fingerprints differ): give the data "
            f"that it was started with, or start anew with --overwrite"
        )
    kinds = ("recipe", "vocab_size", "tokenizer", "seed")
    before, after = (
        each | {"recipe": fill_defaults(plain(each["recipe"]), each["vocab_size"])} for each in (before, now)
    )
    changed = [kind for kind in kinds if numeric_settings(before[kind]) != numeric_settings(plain(after[kind]))]
    changed += ["source tokenizer"] if before.get(SOURCE_KEY) != now.get(SOURCE_KEY) else []
    changed += ["plugin"] if before.get("plugin") != now.get("plugin") else []
    first = [config.get("from", {}).get("weights") for config in (before, now)]
    changed += ["--from"] if first[0] != first[1] else []
    others = [[each["weights"] for each in config.get("beside") or ()] for config in (before, now)]
    changed += ["--beside"] if others[0] != others[1] else []
    if changed:
        raise UsageError(
            f"{folder} was started with another {' and '.join(changed)}{differences(before['recipe'], after['recipe'])}: use the "
            f"original options, or start anew with --overwrite"
        )


def differences(before: Any, now: Any) -> str:
    """The settings that differ, in brackets; none: ""."""
    old, new = (flatten(numeric_settings(each)) for each in (before, now))
    names = [name for name in old | new if old.get(name) != new.get(name)]
    shown = ", ".join(f"{name} = {old.get(name)}, now {new.get(name)}" for name in names[:SHOWN])
    return f" ({shown}{', …' if names[SHOWN:] else ''})" if names else ""


def data_name(data: dict[str, Any]) -> str:
    return data["folder"] if "folder" in data else ", ".join(data["files"]["train"])


def numeric_settings(value: Any) -> Any:
    """A recipe without the settings that change no number: they may differ when a run is resumed."""
    if isinstance(value, dict) and isinstance(value.get("train"), dict):
        harmless = ("workers", "shard", "save_every", "keep", "milestones")
        return value | {"train": {key: part for key, part in value["train"].items() if key not in harmless}}
    return value


def check_free(folder: Path) -> None:
    """Raises UsageError where a new run would lose something."""
    if folder.is_dir() and set(contents(folder, RUN)) - {RATE_PAGE}:
        if (folder / "config.json").exists():
            raise UsageError(
                f"{folder} holds a run already: continue it with --resume, start anew with --overwrite, or choose another --out"
            )
        raise UsageError(f"{folder} is not empty and holds no run: choose another --out")


def clear(folder: Path, overwrite: bool) -> None:
    """Empties the folder for a new run, if that loses nothing or overwrite is given."""
    if not overwrite:
        check_free(folder)
    if any(entry.name not in ("lock", RATE_PAGE) for entry in folder.iterdir()):
        clear_folder(folder, RUN)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, by its config.json. One that cannot be read passes, because only files of a run are removed
    anyway. Before there is one, a run has at most a page about its learning rate."""
    if set(contents(folder, RUN)) <= {RATE_PAGE}:
        return True
    try:
        return {"format", "recipe"} <= set(read_json(folder / "config.json"))
    except FileError:
        return False
    except (ValueError, TypeError, RecursionError):
        return True


MODEL_FILES = r"(config|weights|milestone|(source-)?tokenizer)\.json|(backbone|head|unused)\.safetensors"
RUN_FILES = (
    rf"{MODEL_FILES}|metrics\.jsonl?|card\.md|calibration\.json|(report|find-lr)\.html|lock|milestones/\d+/({MODEL_FILES})"
    r"|checkpoints/(latest|step-\d+(\.old)?/((manifest|state)\.json|[a-z]+\.safetensors)(\.tmp)?)"
)
RUN = FolderKind("a run", re.compile(RUN_FILES), ("checkpoints", "milestones"), is_run, "config.json")


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def export(state: StateDict, folder: Path) -> None:
    """Writes the weights of a learner: the backbone, and the output layers apart."""
    backbone = {name.removeprefix("backbone."): t for name, t in state.items() if name.startswith("backbone.")}
    head = {name: t for name, t in state.items() if not name.startswith("backbone.")}
    written = {name: save_tensors(folder / name, part) for name, part in zip(WEIGHTS, (backbone, head), strict=True)}
    write_json(
        folder / "weights.json",
        written | {name: sha256(folder / name) for name in bound(folder) if name not in WEIGHTS},
    )


def keep_milestone(weights: StateDict, folder: Path, mark: Milestone, state: TrainState) -> None:
    """Writes a folder that can be loaded like the run itself; milestone.json comes last."""
    place = folder / "milestones" / str(mark.words)
    place.mkdir(parents=True, exist_ok=True)
    for name in bound(folder):
        if name in WEIGHTS:
            continue
        write_bytes(place / name, (folder / name).read_bytes())
    export(weights, place)
    write_json(
        place / "milestone.json",
        {
            "words": mark.words,
            "tokens": state.tokens,
            "step": state.step,
            "flops": state.flops,
            "seconds": round(state.seconds, 3),
        },
    )


def training_costs(state: TrainState, country: str, device: torch.device) -> dict[str, Any]:
    """The cost of the training, as metrics.json has it."""
    kwh = state.joules / 3.6e6
    cuda = device.type == "cuda"
    peak = cost.peak_of(torch.cuda.get_device_name(device)) if cuda else None
    rate = state.flops / max(state.seconds, 1e-9)
    memory = cost.peak_memory_mb(cuda)
    return {
        "flops": state.flops,
        "flops_per_second": round(rate),
        "mfu": None if peak is None else round(rate / peak, 4),
        "peak_memory_mb": None if memory is None else round(memory, 1),
        "device_seconds": round(state.device_seconds, 3),
        "energy_kwh": kwh,
        "energy_method": state.energy_method,
        "co2_kg": cost.co2_kg(kwh, country),
        "co2_country": country,
    }


def finish(
    folder: Path,
    config: dict[str, Any],
    state: TrainState,
    learner: Learner,
    data: dict[str, Any],
    costs: dict[str, Any],
    **scores: Any,
) -> None:
    """Writes metrics.json and the card. data: as in a manifest, the splits with their words and tokens, and those of an epoch,
    if that is not the training split; scores: further ones."""
    epoch = data.get("epoch", data["splits"]["train"])
    epochs = state.tokens / max(epoch["tokens"], 1)
    result = {
        "step": state.step,
        "tokens": state.tokens,
        "words": round(epochs * epoch["words"]),
        "epochs": epochs,
        "seconds": round(state.seconds, 3),
        "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9), 1),
        "skipped": state.skipped,
        "parameters": learner.size(),
        "train_loss": state.smooth,
        "valid_loss": state.best_loss,
        "best_step": state.best_step,
        "valid": state.evaluation,
        **scores,
        **costs,
    }
    write_json(folder / "metrics.json", result)
    write_card(folder, Card.model_validate({"config": config, "result": result, "data": data}))


def check_weights(folder: Path) -> None:
    if not (folder / "weights.json").is_file():
        if (folder / "card.md").exists():
            raise ModelError(
                f"{folder / 'weights.json'} is missing: restore it from a copy, or train it again with --overwrite"
            )
        raise ModelError(f"{folder} has no weights yet: its training was interrupted; continue it with --resume")
    try:
        listed = read_json(folder / "weights.json")
        damaged = [
            name for name in bound(folder) if not (folder / name).is_file() or sha256(folder / name) != listed[name]
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{folder / 'weights.json'} is damaged: {error}") from error
    if damaged:
        path = folder / damaged[0]
        what = "is damaged (its SHA-256 is not the recorded one)" if path.is_file() else "is missing"
        # a finished run has its best weights nowhere else
        again = "train it again with --overwrite" if (folder / "card.md").exists() else "--resume the run"
        raise ModelError(f"{path} {what}: restore it from a copy, or {again}")
