"""ELMo as its authors publish it: options.json and one hdf5 file of weights → a run folder.

Their LSTMs have the gates in the order input, candidate, forget, output, and add 1 to the forget gate inside the cell: here it is
added to the bias. Their character numbers are byte, begin and end of a sentence, begin and end of a word, blank; the table of
vectors is put into our order. There is no output layer in these files: what is imported gives layers, and predicts nothing.
Shapes are checked against options.json before a number is read, and links in the file are not followed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.config import Config, problems
from seqloom.convert.hub import read_object
from seqloom.convert.huggingface import card, check_finite, check_out
from seqloom.errors import ModelError, UsageError
from seqloom.files import sole_owner, write_bytes, write_json
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.folder import RUN, clear, describe, export
from seqloom.tokens.learn import spelt_words
from seqloom.tokens.spelling import BEGIN, ELMO_CHARACTERS, END, FIRST_BYTE, PAD, SENTENCE_BEGIN, SENTENCE_END
from seqloom.weights import unique

OPTIONS = "options.json"
TABLE = "char_embed"  # by which a file of weights is known
# the rows of their table in the order of our characters
ROWS = np.zeros(ELMO_CHARACTERS, np.int64)
ROWS[FIRST_BYTE : FIRST_BYTE + 256] = np.arange(256)
ROWS[[SENTENCE_BEGIN, SENTENCE_END, BEGIN, END, PAD]] = (256, 257, 258, 259, 260)

Arrays = dict[str, np.ndarray]


class Lstm(Config):
    dim: int
    projection_dim: int
    n_layers: int
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False
    dropout: float | None = None


class CharEmbedding(Config):
    dim: int


class CharCnn(Config):
    embedding: CharEmbedding
    filters: tuple[tuple[int, int], ...]
    n_highway: int | None = None
    n_characters: int
    max_characters_per_token: int
    activation: str = "relu"


def is_elmo(folder: Path) -> bool:
    return (folder / OPTIONS).is_file() and not (folder / "config.json").is_file()


def import_elmo(folder: str | Path, out: str | Path, overwrite: bool = False) -> Path:
    """A folder with options.json and one hdf5 file of weights → a run folder."""
    folder, out = Path(folder), Path(out)
    values = read_options(folder / OPTIONS)
    recipe = recipe_of(values, folder)
    check_out(out, overwrite, folder, RUN)
    path, arrays = read_arrays(folder, shapes_of(values))
    tokenizer = spelt_words()
    learner = recipe.learner(tokenizer.vocab_size)
    learner.set_vocabulary(PreparedVocabulary(tokenizer))
    tensors = to_tensors(arrays, values)
    check_finite(tensors, str(path))
    learner.backbone.load_state_dict(tensors | {SPELLING: learner.backbone.state_dict()[SPELLING]})
    about = {"folder": str(folder), "fingerprint": tokenizer.hash, "spelling": True}
    config = describe(recipe, tokenizer.vocab_size, tokenizer.hash, about, seed=0)
    config["imported"] = {"folder": str(folder), "model_type": "elmo", "unused": None}
    with sole_owner(out):
        clear(out, overwrite=True)  # by now it is empty, or was to be overwritten
        write_json(out / "config.json", config)
        tokenizer.save(out / "tokenizer.json")
        export(unique(learner), out)
        write_bytes(out / "card.md", card(config, learner.size(), tokenizer).encode())
    return out


SPELLING = "embedding.single.spelling"


def read_options(path: Path) -> dict[str, Any]:
    """Values of our model. ModelError with everything that is wrong with the file."""
    found = read_object(path)
    wrong: list[str] = []
    for name, kind in (("lstm", Lstm), ("char_cnn", CharCnn)):
        part = found.get(name)
        if not isinstance(part, dict):
            wrong.append(f"{name!r} is missing")
        else:
            # training scripts write more into it
            known = {key: value for key, value in part.items() if key in kind.model_fields}
            wrong += problems(kind, known, name)
    if wrong:
        raise ModelError(f"{path}: {'; '.join(wrong)}")
    lstm = Lstm.model_validate({key: value for key, value in found["lstm"].items() if key in Lstm.model_fields})
    cnn = CharCnn.model_validate(
        {key: value for key, value in found["char_cnn"].items() if key in CharCnn.model_fields}
    )
    if cnn.activation != "relu":
        raise ModelError(f"{path}: char_cnn.activation = {cnn.activation!r}: only 'relu' can be imported")
    if not 0 < lstm.projection_dim < lstm.dim:
        raise ModelError(
            f"{path}: lstm.projection_dim = {lstm.projection_dim} is not between 1 and lstm.dim = {lstm.dim}: a model without "
            f"projection cannot be imported"
        )
    if cnn.n_characters not in (ELMO_CHARACTERS, ELMO_CHARACTERS + 1):
        raise ModelError(
            f"{path}: char_cnn.n_characters = {cnn.n_characters}: models that read bytes have {ELMO_CHARACTERS}, or one more"
        )
    return {
        "dim": lstm.dim,
        "proj_dim": lstm.projection_dim,
        "num_layers": lstm.n_layers,
        "residual": lstm.use_skip_connections,
        "dropout": 0.1,
        "cell_clip": lstm.cell_clip or 0.0,
        "proj_clip": lstm.proj_clip or 0.0,
        "characters": "elmo",
        "max_chars": cnn.max_characters_per_token,
        "char_dim": cnn.embedding.dim,
        "filters": cnn.filters,
        "num_highways": cnn.n_highway or 0,
    }


def recipe_of(values: dict[str, Any], folder: Path) -> Recipe:
    recipe = {
        "name": "elmo-imported",
        "model": {"name": "elmo", **values},
        "objective": {"name": "bidirectional", "output": False},
        "batches": {"length": 128, "budget": 2048},
        "budget": {"epochs": 1},
    }
    try:
        return build_recipe(recipe, f"{folder / OPTIONS}, as a recipe")
    except UsageError as error:
        raise ModelError(str(error)) from error


def shapes_of(values: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """What their file must hold."""
    width, dim = values["proj_dim"], values["dim"]
    features = sum(number for _, number in values["filters"])
    found: dict[str, tuple[int, ...]] = {TABLE: (ELMO_CHARACTERS, values["char_dim"])}
    for i, (reach, number) in enumerate(values["filters"]):
        found |= {f"CNN/W_cnn_{i}": (1, reach, values["char_dim"], number), f"CNN/b_cnn_{i}": (number,)}
    for i in range(values["num_highways"]):
        for part in ("carry", "transform"):
            found[f"CNN_high_{i}/W_{part}"] = (features, features)
            found[f"CNN_high_{i}/b_{part}"] = (features,)
    if features != width:  # they project only where they must
        found |= {"CNN_proj/W_proj": (features, width), "CNN_proj/b_proj": (width,)}
    for direction in range(2):
        for layer in range(values["num_layers"]):
            place = cell_place(direction, layer)
            found |= {f"{place}/W_0": (2 * width, 4 * dim), f"{place}/B": (4 * dim,), f"{place}/W_P_0": (dim, width)}
    return found


def cell_place(direction: int, layer: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def read_arrays(folder: Path, shapes: dict[str, tuple[int, ...]]) -> tuple[Path, Arrays]:
    """The arrays of the one file in the folder that holds weights."""
    try:
        import h5py
    except ImportError:
        raise ModelError(
            f"{folder}: its weights are an hdf5 file, which needs 'h5py': pip install \"seqloom[elmo]\""
        ) from None
    unreadable = ""
    found: list[Path] = []
    for path in sorted(each for each in folder.iterdir() if each.suffix in (".hdf5", ".h5")):
        try:
            with h5py.File(path, "r") as file:
                found += [path] if TABLE in file else []
        except (OSError, RuntimeError, ValueError) as error:
            unreadable = unreadable or f"{path} is damaged or not an hdf5 file: {error}"
    if len(found) != 1:
        several = (
            f"{folder} has {len(found)} files of weights ({', '.join(path.name for path in found)}): leave one in it"
        )
        none = unreadable or f"{folder} has no weights: no .hdf5 file in it holds {TABLE!r}"
        raise ModelError(several if found else none)
    (path,) = found
    try:
        with h5py.File(path, "r") as file:
            wrong = [problem for name, shape in shapes.items() if (problem := array_problem(h5py, file, name, shape))]
            if wrong:
                more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
                raise ModelError(f"{path}: {wrong[0]}{more}: it is damaged, or {OPTIONS} is of another model")
            return path, {name: np.asarray(file[name][()], np.float32) for name in shapes}
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise ModelError(f"{path} is damaged: {error}") from error


def array_problem(h5py: Any, file: Any, name: str, shape: tuple[int, ...]) -> str | None:
    """What is wrong with an array, by its header alone."""
    place = file
    for part in name.split("/"):
        if not isinstance(place, h5py.Group) or not isinstance(place.get(part, getlink=True), h5py.HardLink):
            return f"{name} is missing"
        place = place[part]
    if not isinstance(place, h5py.Dataset) or place.dtype.kind != "f" or place.external or place.is_virtual:
        return f"{name} is not a plain array of numbers"
    if place.shape != shape:
        turned = " (transposed)" if place.shape == shape[::-1] else ""
        return f"{name} has the shape {place.shape}{turned}, not {shape}"
    return None


def to_tensors(arrays: Arrays, values: dict[str, Any]) -> dict[str, Tensor]:
    """Their arrays under our names."""
    width = values["proj_dim"]
    cnn = "embedding.single.cnn"
    found: Arrays = {f"{cnn}.character.weight": arrays[TABLE][ROWS]}
    for i in range(len(values["filters"])):
        found[f"{cnn}.convolutions.{i}.weight"] = arrays[f"CNN/W_cnn_{i}"][0].transpose(2, 1, 0)
        found[f"{cnn}.convolutions.{i}.bias"] = arrays[f"CNN/b_cnn_{i}"]
    for i in range(values["num_highways"]):
        theirs = f"CNN_high_{i}"
        weights = [arrays[f"{theirs}/W_{part}"].T for part in ("transform", "carry")]
        found[f"{cnn}.highways.{i}.both.weight"] = np.concatenate(weights)
        biases = [arrays[f"{theirs}/b_{part}"] for part in ("transform", "carry")]
        found[f"{cnn}.highways.{i}.both.bias"] = np.concatenate(biases)
    found[f"{cnn}.projection.weight"] = arrays.get("CNN_proj/W_proj", np.eye(width, dtype=np.float32)).T
    found[f"{cnn}.projection.bias"] = arrays.get("CNN_proj/b_proj", np.zeros(width, np.float32))
    for direction, ours in enumerate(("ahead", "back")):
        for layer in range(values["num_layers"]):
            inner = ".layer" if values["residual"] and layer else ""
            kernel = f"stack.layers.{layer}.{ours}{inner}.cell.kernel"
            found |= {
                f"{kernel}.{name}": array for name, array in cell_of(arrays, cell_place(direction, layer)).items()
            }
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in found.items()}


def cell_of(arrays: Arrays, place: str) -> Arrays:
    """One LSTM: what it reads and what it remembers are multiplied by one matrix of theirs, and by one each of ours."""
    project = arrays[f"{place}/W_P_0"].T
    reads, remembers = np.split(in_our_order(arrays[f"{place}/W_0"].T), 2, axis=1)
    bias = in_our_order(arrays[f"{place}/B"]).copy()
    bias[len(bias) // 4 : len(bias) // 2] += 1.0
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0")
    return dict(zip(names, (reads, remembers, bias, np.zeros_like(bias), project), strict=True))


def in_our_order(rows: np.ndarray) -> np.ndarray:
    """Input, candidate, forget, output → input, forget, candidate, output."""
    gates = np.split(rows, 4)
    return np.concatenate([gates[0], gates[2], gates[1], gates[3]])
