"""Run folders: pre-train into one, load from one.

config.json  tokenizer.json  backbone.safetensors  head.safetensors  weights.json (their hashes)
metrics.jsonl  metrics.json  card.md  checkpoints/
"""

import json
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom import __version__, cost
from seqloom.batch import Objective
from seqloom.batches.loader import Loader, mix
from seqloom.batches.store import Store
from seqloom.card import write_card
from seqloom.config import build, unknown_name
from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import Drawn
from seqloom.decode.sample import sample as draw
from seqloom.decode.step import Stepper
from seqloom.decode.stream import TextStream
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.evaluate.perplexity import perplexity
from seqloom.evaluate.score import Scored, score
from seqloom.files import TEMPORARY, explained, read_json, sha256, sole_owner, write_json
from seqloom.plugins import Plugin, check_recorded, open_plugin, record
from seqloom.progress import say
from seqloom.recipe import Recipe, build_recipe
from seqloom.recipes import find_recipe
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.train import checkpoint as checkpoints
from seqloom.train.loop import Fit, Progressed
from seqloom.train.precision import choose_device
from seqloom.weights import check_fit, fill, load_tensors, save_tensors, unique

FORMAT = 1
WEIGHTS = ("backbone.safetensors", "head.safetensors")
BOUND = (*WEIGHTS, "config.json", "tokenizer.json")  # a model is all four; weights.json has their hashes


def pretrain(
    recipe: str | Recipe,
    data: str | Path,
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
) -> "Run":
    """Trains a recipe on a prepared folder and returns the finished run. plugin: a file with code of your own."""
    folder, where, own = Path(out), choose_device(device), open_plugin(plugin)
    recipe = recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own)
    if country not in cost.GRAMS_PER_KWH:
        raise UsageError(unknown_name("country", country, country, list(cost.GRAMS_PER_KWH)))
    store = Store.open(Path(data))
    train = store.split("train")
    if train.num_documents == 0:
        raise DataError(f"{data}: its training split is empty: prepare it from more text")
    if folder.resolve() in (store.folder.resolve(), *store.folder.resolve().parents):
        raise UsageError(f"--out {folder} holds the data itself: choose another folder for the run")
    # what cannot work is refused before the folder is touched
    batches, tokenizer = recipe.batches.build(train), store.tokenizer
    with torch.device("meta"):
        recipe.learner(store.manifest.vocab_size, own)
    with sole_owner(folder):
        config = describe(recipe, store, Path(data), seed)
        if own is not None:
            config["plugin"] = record(own)
        begin_folder(folder, config, tokenizer, resume, overwrite)
        if deterministic:
            torch.use_deterministic_algorithms(True)
        with torch.random.fork_rng():
            torch.manual_seed(mix(seed))  # the values that the weights start from
            learner = recipe.learner(store.manifest.vocab_size, own).to(where)
        held_out = store.split("valid") if "valid" in store.splits and store.split("valid").num_documents else None

        def validate(stop: Any) -> dict[str, Any] | None:
            assert held_out is not None
            limits = {
                "limit": recipe.valid.limit or None,
                "stride": recipe.valid.stride,
                "max_len": recipe.batches.length,
            }
            return perplexity(learner, held_out, where, stop=stop, title="validate", **limits)  # type: ignore[arg-type]

        fit = Fit(
            learner,
            Loader(batches, learner, seed, recipe.train.workers),
            recipe.train,
            recipe.budget.resolve(train),
            folder,
            where,
            seed,
            validate if held_out is not None else None,
            lambda state: export(learner, folder),
        )
        parameters = sum(p.numel() for p in learner.parameters())
        say(
            f"{recipe.name}: {parameters:,} parameters, {train.num_tokens:,} training tokens, on {where}, {fit.precision}"
        )
        state = fit.run(resume)
        if not (folder / "card.md").exists():  # written last; a run that was finished before keeps its figures
            finish(folder, config, state, learner, store, spent(state, fit.energy, country, where))
    return load(folder, device=str(where), plugin=own)


def describe(recipe: Recipe, store: Store, data: Path, seed: int) -> dict[str, Any]:
    """config.json: enough to rebuild the learner, and to say where it comes from."""
    return {
        "format": FORMAT,
        "recipe": recipe.model_dump(),
        "vocab_size": store.manifest.vocab_size,
        "tokenizer": store.manifest.tokenizer,
        "data": {"folder": str(data), "fingerprint": store.fingerprint},
        "seed": seed,
        "versions": {
            "seqloom": __version__,
            "git": git_commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def git_commit() -> str | None:
    """Of the program, where it runs from a checkout."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def begin_folder(folder: Path, config: dict[str, Any], tokenizer: Tokenizer, resume: bool, overwrite: bool) -> None:
    """Nothing is overwritten silently; what is resumed must be the same run."""
    path = folder / "config.json"
    if resume and path.exists():
        try:
            check_same(folder, read_json(path), config)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(f"{path} is damaged ({error}): restore it, or start anew with --overwrite") from error
        for orphan in folder.glob(f"*{TEMPORARY}"):
            orphan.unlink()
        checkpoints.collect(folder / "checkpoints", keep=1_000_000)
    else:
        clear(folder, overwrite)
        write_json(path, config)
    # after config.json, and again on resume: whoever was killed between the two left it out
    tokenizer.save(folder / "tokenizer.json")


def check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    if before["data"]["fingerprint"] != now["data"]["fingerprint"]:
        raise DataError(
            f"{folder} was trained on other data than {now['data']['folder']} (the fingerprints differ): give the data "
            f"that it was started with, or start anew with --overwrite"
        )
    kinds = ("recipe", "vocab_size", "tokenizer", "seed")
    changed = [kind for kind in kinds if decisive(before[kind]) != decisive(plain(now[kind]))]
    changed += ["plugin"] if before.get("plugin") != now.get("plugin") else []
    if changed:
        raise UsageError(
            f"{folder} was started with another {' and '.join(changed)}: call it as it was started, "
            f"or start anew with --overwrite"
        )


def decisive(value: Any) -> Any:
    """A recipe without what changes no number: that may differ when a run goes on."""
    if isinstance(value, dict) and isinstance(value.get("train"), dict):
        harmless = ("workers", "save_every", "keep")
        return value | {"train": {key: part for key, part in value["train"].items() if key not in harmless}}
    return value


def clear(folder: Path, overwrite: bool) -> None:
    """Makes room for a new run, if that loses nothing or was asked for."""
    found = [entry for entry in folder.iterdir() if entry.name != "lock"]
    if not overwrite and any(not entry.name.endswith(TEMPORARY) for entry in found):
        if (folder / "config.json").exists():
            raise UsageError(
                f"{folder} holds a run already: go on with --resume, start anew with --overwrite, or choose another --out"
            )
        raise UsageError(f"{folder} is not empty and holds no run: choose another --out, or --overwrite it")
    with explained(folder):
        for entry in found:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def export(learner: Objective, folder: Path) -> None:
    """The weights as they are now, under uncompiled names: what transfers, and the output layers apart from it."""
    state = unique(learner)
    backbone = {name.removeprefix("backbone."): t for name, t in state.items() if name.startswith("backbone.")}
    head = {name: t for name, t in state.items() if not name.startswith("backbone.")}
    for name, tensors in zip(WEIGHTS, (backbone, head), strict=True):
        save_tensors(folder / name, tensors)
    write_json(folder / "weights.json", {name: sha256(folder / name) for name in BOUND})


def spent(state: Progressed, method: str, country: str, device: torch.device) -> dict[str, Any]:
    """What the training has cost."""
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
        "energy_kwh": kwh,
        "energy_method": method,
        "co2_kg": cost.co2_kg(kwh, country),
        "co2_country": country,
    }


def finish(
    folder: Path, config: dict[str, Any], state: Progressed, learner: Objective, store: Store, costs: dict[str, Any]
) -> None:
    train = store.split("train")
    result = {
        "step": state.step,
        "tokens": state.tokens,
        "words": round(state.tokens * train.words / max(train.num_tokens, 1)),
        "epochs": state.tokens / train.num_tokens,
        "seconds": round(state.seconds, 3),
        "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9), 1),
        "skipped": state.skipped,
        "parameters": sum(p.numel() for p in learner.parameters()),
        "train_loss": state.smooth,
        "valid_loss": state.best,
        "best_step": state.best_step,
        "valid": state.evaluation,
        **costs,
    }
    write_json(folder / "metrics.json", result)
    write_card(folder, config, result, store.manifest.model_dump())


class Sample(NamedTuple):
    text: str  # the prompt and what follows it
    tokens: list[int]  # the new ones
    log_probs: list[float]  # of those, under the model


class Run:
    """A trained model with its tokenizer."""

    def __init__(
        self, folder: Path, config: dict[str, Any], learner: Objective, tokenizer: Tokenizer, device: torch.device
    ):
        self.folder, self.config, self.learner, self.tokenizer, self.device = folder, config, learner, tokenizer, device

    def evaluate(self, data: str | Path, split: str | None = None, **options: Any) -> dict[str, Any]:
        """Perplexity and bits on a prepared folder that was made with the same tokenizer."""
        store = Store.open(Path(data))
        if store.manifest.tokenizer != self.config["tokenizer"]:
            raise DataError(
                f"{data} was prepared with another tokenizer than {self.folder} was trained with: prepare it with "
                f"--from-tokenizer {self.folder / 'tokenizer.json'}"
            )
        name = split or next((name for name in ("test", "valid", "train") if name in store.splits), "test")
        started = time.monotonic()
        result = perplexity(self.learner, store.split(name), self.device, **options)  # type: ignore[arg-type]
        assert result is not None
        if store.manifest.bits_per_byte != "yes":
            result["no_bits_per_byte"] = store.manifest.bits_per_byte
        seconds = round(time.monotonic() - started, 3)
        parameters = sum(p.numel() for p in self.learner.parameters())
        return {"split": name, **result, "parameters": parameters, "seconds": seconds}

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
        ids, unknown = self.read(prompt)
        if unknown:
            say(f"warning: the model has never seen {', '.join(map(repr, unknown[:5]))}: read as unknown")
        limit = self.learner.backbone.max_len
        if limit is not None and len(ids) >= limit:
            say(
                f"warning: the prompt has {len(ids)} tokens, the model reads {limit}: only its last {limit // 2} are used"
            )
        banned = [
            i for i in {tokenizer.unk_id, *tokenizer.special_ids.values()} if i is not None and i != tokenizer.end_id
        ]
        stepper = Stepper(self.learner.backbone, self.learner.softmax)  # type: ignore[arg-type]
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

    def read(self, text: str) -> tuple[list[int], list[str]]:
        """The tokens of a text, the end token before them, and what of it is unknown."""
        (ids,), (unknown,) = self.tokenizer.encode_batch_with_unknown([text])
        return [self.tokenizer.end_id, *ids.tolist()], unknown

    def score(self, texts: list[str]) -> list[Scored]:
        """log p of every token of every text, and of its end."""
        ids = [part.tolist() for part in self.tokenizer.encode_batch(texts)]
        return score(self.learner, ids, self.tokenizer.end_id, self.device)  # type: ignore[arg-type]


def load(folder: str | Path, device: str = "auto", plugin: str | Path | Plugin | None = None) -> Run:
    """Loads a run folder. Nothing in it is executed; every file is checked before it is used.

    plugin: the file with code of your own that the model was trained with.
    """
    folder, where, own = Path(folder), choose_device(device), open_plugin(plugin)
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} is no run folder: it has no config.json")
    try:
        config = read_json(path)
        if config.get("format") != FORMAT:
            raise ModelError(f"{path} has format {config.get('format')!r}, this version reads {FORMAT}")
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
    with torch.device("meta"):
        check_fit(recipe.learner(vocab_size, own), tensors, folder)
    with torch.random.fork_rng():  # the first values are drawn, and then replaced
        learner = recipe.learner(vocab_size, own)
    fill(learner, tensors, folder)
    return Run(folder, config, learner.to(where).eval(), tokenizer, where)


def check_weights(folder: Path) -> None:
    if not (folder / "weights.json").is_file():
        raise ModelError(
            f"{folder} has no weights yet: its training was cut short; go on with 'seqloom pretrain … --resume'"
        )
    try:
        listed = read_json(folder / "weights.json")
        damaged = [name for name in BOUND if not (folder / name).is_file() or sha256(folder / name) != listed[name]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{folder / 'weights.json'} is damaged: {error}") from error
    if damaged:
        raise ModelError(
            f"{folder / damaged[0]} is damaged (its SHA-256 is not the recorded one): restore it, or --resume the run"
        )
