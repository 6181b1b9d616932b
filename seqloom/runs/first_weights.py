"""Initial weights in place of random ones: those of another run, its backbone alone, or word vectors."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.batch import EncoderDecoder
from seqloom.batches.store import Store
from seqloom.blocks.narrowed import NarrowedTable
from seqloom.errors import DataError, UsageError
from seqloom.files import read_json
from seqloom.plugins import Plugin
from seqloom.progress import say
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.language import set_default_language
from seqloom.runs.load import Trained, load_language_model
from seqloom.runs.vit import read_vit
from seqloom.text.vectors import read_vectors
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.weights import check_fit, shapes_only, unique


class Start(NamedTuple):
    """Initial weights, and what config.json says of them."""

    fill: Callable[[Any], None]  # puts the weights into a learner that has random ones
    origin: dict[str, Any] = {}  # noqa: RUF012 (never changed)  # "from" of config.json; empty where it is no run
    data: dict[str, Any] = {}  # noqa: RUF012 (never changed)  # what is added to "data" of config.json
    fingerprint: str = ""  # and to the fingerprint there


def origin_of(folder: Path) -> dict[str, Any]:
    return {"run": str(folder), "weights": read_json(folder / "weights.json")}


def continue_from(start: Path, recipe: Recipe, store: Store, out: Path, plugin: Plugin | None) -> Start:
    """All weights of another run: of the same model, with the same tokens."""
    if out.resolve() == start.resolve():
        raise UsageError(f"--from {start} is --out itself: continue it with --resume, or choose another --out")
    if recipe.count_based:
        raise UsageError(f"--from {start}: {recipe.name} learns by counting and has no first weights: leave --from out")
    run = load_language_model(start, "cpu", plugin)
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

    def fill(learner: Any) -> None:
        learner.load_state_dict(tensors, strict=False)  # a shared tensor is filled through its first name

    return Start(fill, origin_of(start))


def transfer_from(before: Trained, weights: bool = True) -> Start:
    """The backbone of another run, and the language of the texts, where it has language embeddings. weights: False takes the
    language alone, for the same model from scratch."""

    def fill(learner: Any) -> None:
        if weights:
            take_over(learner, before)
        set_default_language(learner, before.language_record)

    return Start(fill, origin_of(before.folder) if weights else {}, before.language_record)


def take_over(learner: Any, before: Trained) -> None:
    """Copies the backbone of another run and, where the next token is still predicted, its output layer."""
    theirs: Any = before.learner.backbone
    if isinstance(theirs, EncoderDecoder) and not isinstance(learner.backbone, EncoderDecoder):
        theirs = theirs.view(learner.about["view"])
    learner.backbone.load_state_dict(theirs.state_dict())
    for head in getattr(learner, "tasks", [learner]):
        ours, output = getattr(head, "softmax", None), getattr(before.learner, "softmax", None)
        if ours is None or output is None:
            continue
        if type(ours) is not type(output):
            raise UsageError(
                f"'task.lm' goes on with an output layer over all words, and that of {before.folder} is "
                f"{type(output).__name__}: leave it out"
            )
        ours.load_state_dict(output.state_dict())


def vit_from(folder: Path) -> Start:
    """The encoder of a captioner from a Vision Transformer. folder: as transformers saves it."""
    tensors = read_vit(folder)

    def fill(learner: Any) -> None:
        getattr(learner.backbone, "model", learner.backbone).encoder.load_state_dict(tensors)

    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return Start(fill, {}, {"vit": {"folder": str(folder)}}, f"-{digest.hexdigest()[:16]}")


def vectors_from(path: Path, tokenizer: Tokenizer, recipe: Recipe) -> Start:
    """The vectors of known words."""
    with shapes_only():
        learner = recipe.learner(tokenizer.vocab_size)
    known = known_words(path, tokenizer, learner)

    def fill(learner: Any) -> None:
        with torch.no_grad():
            learner.backbone.table.weight[known.ids] = known.vectors

    data = {"vectors": {"file": str(path), "words": len(known.ids)}}
    return Start(fill, {}, data, f"-{known.fingerprint}")


class Known(NamedTuple):
    """Words of a vocabulary whose vectors are in a file."""

    ids: torch.Tensor  # (words,)
    vectors: torch.Tensor  # (words, D)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.ids.numpy().tobytes() + self.vectors.numpy().tobytes()).hexdigest()[:16]


def known_words(path: Path, tokenizer: Tokenizer, learner: Any) -> Known:
    """The vector of each word of the vocabulary, or else that of the word in lower case."""
    if tokenizer.kind != "word":
        raise UsageError(
            f"--vectors {path}: they are of words, this vocabulary is of {tokenizer.kind}: --tokenizer word"
        )
    table = getattr(learner.backbone, "table", None)
    if table is None:
        raise UsageError(f"--vectors {path}: this model has no vectors of words: bilstm-cnn and others have")
    if isinstance(table, NarrowedTable):
        raise UsageError(f"--vectors {path}: rare words of this model have narrower vectors: set model.narrow=1")
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
