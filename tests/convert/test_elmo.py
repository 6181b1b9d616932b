"""ELMo's published format: a made-up model by an independent reference in numpy, the authors' own outputs, and bad folders."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import seqloom
from seqloom.batch import State, pack
from seqloom.cli import run as command
from seqloom.convert import elmo
from seqloom.convert.elmo import import_elmo
from tests.contract.test_planted import noticed

FIXTURE = Path(__file__).parents[3] / "shared/fixtures/elmo-bilm-tf"
OPTIONS = {
    "lstm": {
        "dim": 7, "projection_dim": 4, "n_layers": 2, "cell_clip": 0.4, "proj_clip": 0.3, "use_skip_connections": True,
    },
    "char_cnn": {
        "embedding": {"dim": 3}, "filters": [[1, 2], [2, 3], [3, 4]], "n_highway": 1, "n_characters": 262,
        "max_characters_per_token": 9, "activation": "relu",
    },
    "n_train_tokens": 768648884,
}  # fmt: skip
SENTENCES = [["The", "naïve", "incomprehensibilities", "."], ["word"]]


def arrays_of(options: dict, seed: int = 0) -> dict[str, np.ndarray]:
    """Written out, and not by the code that is tested."""
    rng = np.random.default_rng(seed)
    lstm, cnn = options["lstm"], options["char_cnn"]
    dim, proj, chars = lstm["dim"], lstm["projection_dim"], cnn["embedding"]["dim"]
    features = sum(number for _, number in cnn["filters"])
    shapes = {"char_embed": (261, chars)}
    for i, (width, number) in enumerate(cnn["filters"]):
        shapes |= {f"CNN/W_cnn_{i}": (1, width, chars, number), f"CNN/b_cnn_{i}": (number,)}
    for i in range(cnn["n_highway"]):
        for part in ("carry", "transform"):
            shapes |= {f"CNN_high_{i}/W_{part}": (features, features), f"CNN_high_{i}/b_{part}": (features,)}
    shapes |= {"CNN_proj/W_proj": (features, proj), "CNN_proj/b_proj": (proj,)}
    for way in (0, 1):
        for layer in range(lstm["n_layers"]):
            place = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes |= {f"{place}/B": (4 * dim,), f"{place}/W_0": (2 * proj, 4 * dim), f"{place}/W_P_0": (dim, proj)}
    return {name: rng.normal(0, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}


def write_folder(folder: Path, options: dict = OPTIONS, arrays: dict[str, np.ndarray] | None = None) -> Path:
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in (arrays_of(options) if arrays is None else arrays).items():
            file[name] = array
    return folder


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def letters_of(word: str, longest: int) -> list[int]:
    """Their numbers: bytes, 256 and 257 for the sentence, 258 and 259 for the word, 260 for blanks."""
    inner = {"<S>": [256], "</S>": [257]}.get(word) or list(word.encode()[: longest - 2])
    row = [258, *inner, 259]
    return row + [260] * (longest - len(row))


def reference(options: dict, arrays: dict[str, np.ndarray], sentence: list[str]) -> np.ndarray:
    """(layers + 1, words + 2, 2 proj) in float64, as the authors' code computes it from no state."""
    w = {name: array.astype(np.float64) for name, array in arrays.items()}
    lstm, cnn = options["lstm"], options["char_cnn"]
    rows = []
    for word in ["<S>", *sentence, "</S>"]:
        letters = w["char_embed"][letters_of(word, cnn["max_characters_per_token"])]
        found = []
        for i, (width, _) in enumerate(cnn["filters"]):
            places = [letters[p : p + width] for p in range(len(letters) - width + 1)]
            scores = [np.tensordot(place, w[f"CNN/W_cnn_{i}"][0], ((0, 1), (0, 1))) for place in places]
            found.append(np.maximum(np.max(scores, 0) + w[f"CNN/b_cnn_{i}"], 0))
        x = np.concatenate(found)
        for i in range(cnn["n_highway"]):
            gate = sigmoid(x @ w[f"CNN_high_{i}/W_carry"] + w[f"CNN_high_{i}/b_carry"])
            moved = np.maximum(x @ w[f"CNN_high_{i}/W_transform"] + w[f"CNN_high_{i}/b_transform"], 0)
            x = gate * moved + (1 - gate) * x
        rows.append(x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"])
    ways = []
    for way in (0, 1):
        inputs = rows[:: -1 if way else 1]
        layers = [inputs]
        for layer in range(lstm["n_layers"]):
            place = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            h, c, outputs = np.zeros(lstm["projection_dim"]), np.zeros(lstm["dim"]), []
            for x in inputs:
                i, j, f, o = np.split(np.concatenate((x, h)) @ w[f"{place}/W_0"] + w[f"{place}/B"], 4)
                c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
                c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
                h = np.clip((sigmoid(o) * np.tanh(c)) @ w[f"{place}/W_P_0"], -lstm["proj_clip"], lstm["proj_clip"])
                outputs.append(h + x if layer and lstm["use_skip_connections"] else h)
            inputs = outputs
            layers.append(outputs)
        ways.append(np.array([each[:: -1 if way else 1] for each in layers]))
    return np.concatenate(ways, 2)


def equals_reference(folder: Path, options: dict = OPTIONS) -> None:
    """All layers of an imported run, asked as anybody would ask it."""
    run = seqloom.load(import_elmo(folder, folder.parent / "run", overwrite=True), "cpu")
    run.learner.double()
    for sentence in SENTENCES:
        (found,) = run.encode([" ".join(sentence)], layers="all", pool="none")
        wanted = reference(options, arrays_of(options), sentence)[:, 1:-1]
        assert found.shape == (len(sentence), len(wanted), wanted.shape[2])
        assert np.abs(found.transpose(1, 0, 2) - wanted).max() < 1e-6


def test_a_made_up_model_equals_a_reference_in_numpy(tmp_path):
    equals_reference(write_folder(tmp_path / "elmo"))


@pytest.mark.parametrize("bug", ["gates", "forget", "rows", "specials", "highway"])
def test_planted_mistakes_of_an_import_are_noticed(bug, tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "elmo")
    cell_of, read_arrays = elmo.cell_of, elmo.read_arrays
    if bug == "gates":
        monkeypatch.setattr(elmo, "in_our_order", lambda rows: rows)
    elif bug == "forget":

        def closed(arrays, place):
            found = cell_of(arrays, place)
            found["bias_ih_l0"][7:14] -= 1
            return found

        monkeypatch.setattr(elmo, "cell_of", closed)
    elif bug == "rows":
        monkeypatch.setattr(elmo, "ROWS", np.arange(261))
    elif bug == "specials":
        monkeypatch.setattr("seqloom.blocks.characters.mark_sentences", lambda table: table)
    else:

        def swapped(*given):
            path, arrays = read_arrays(*given)
            names = ("CNN_high_0/b_carry", "CNN_high_0/b_transform")
            return path, arrays | dict(zip(names, (arrays[name] for name in names[::-1]), strict=True))

        monkeypatch.setattr(elmo, "read_arrays", swapped)
    noticed(equals_reference, folder)


def test_without_clips_skips_highways_and_projection(tmp_path):
    """What options.json may leave out; filters as many as the projection is wide need none."""
    options = json.loads(json.dumps(OPTIONS))
    for key in ("cell_clip", "proj_clip", "use_skip_connections"):
        del options["lstm"][key]
    options["char_cnn"] |= {"filters": [[2, 4]], "n_highway": 0}
    arrays = {name: array for name, array in arrays_of(options).items() if "proj" not in name}
    out = import_elmo(write_folder(tmp_path / "elmo", options, arrays), tmp_path / "run")
    whole = {"CNN_proj/W_proj": np.eye(4), "CNN_proj/b_proj": np.zeros(4)} | arrays
    filled = options | {"lstm": options["lstm"] | {"cell_clip": 1e9, "proj_clip": 1e9, "use_skip_connections": False}}
    run = seqloom.load(out, "cpu")
    run.learner.double()
    (found,) = run.encode(["a word"], layers="last", pool="none")
    assert np.abs(found - reference(filled, whole, ["a", "word"])[-1, 1:-1]).max() < 1e-6


def test_what_an_imported_run_can_do(tmp_path, capsys):
    out = tmp_path / "run"
    assert command(["import", str(write_folder(tmp_path / "elmo")), "--out", str(out)]) == 0
    assert "no output layer" in (out / "card.md").read_text()
    (tmp_path / "lines.txt").write_text("one line\n" + "x" * 10_000 + "\n")
    assert command(["embed", str(out), str(tmp_path / "lines.txt"), "--out", str(tmp_path / "v.npz")]) == 0
    assert np.isfinite(np.load(tmp_path / "v.npz")["embeddings"]).all()
    capsys.readouterr()
    assert command(["score", str(out), str(tmp_path / "lines.txt")]) == 4
    said = capsys.readouterr().err
    assert "has no output layer" in said and said.strip().count("\n") == 0
    assert command(["export", str(out), "--out", str(tmp_path / "theirs")]) == 4
    capsys.readouterr()


def test_features_of_an_imported_run_serve_a_task(tmp_path):
    rows = [
        {"text": f"{word} {i}", "label": label} for i in range(8) for word, label in (("cat", "a"), ("zzzzzz", "b"))
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = import_elmo(write_folder(tmp_path / "elmo"), tmp_path / "run")
    made = seqloom.finetune(
        out, "classify", tmp_path / "train.jsonl", tmp_path / "train.jsonl", tmp_path / "tuned", how="features",
        settings=["budget={steps=60}", "train.optim.lr=0.1"],
    )  # fmt: skip
    assert made.learner.mix is not None and len(made.learner.mix.shares) == 3
    assert [each["label"] for each in made.predict(["cat 9", "zzzzzz 9"])] == ["a", "b"]


# ---- bad folders


def break_arrays(change):
    def write(folder: Path) -> None:
        arrays = arrays_of(OPTIONS)
        change(arrays)
        shutil.rmtree(folder)
        write_folder(folder, OPTIONS, arrays)

    return write


def without(name):
    return break_arrays(lambda arrays: arrays.pop(name))


def changed(name, make):
    return break_arrays(lambda arrays: arrays.update({name: make(arrays[name])}))


def options_with(part, **values):
    def write(folder: Path) -> None:
        options = OPTIONS | {part: OPTIONS[part] | values}
        (folder / "options.json").write_text(json.dumps(options))

    return write


def truncate(folder: Path) -> None:
    path = folder / "weights.hdf5"
    path.write_bytes(path.read_bytes()[:3000])


def link_elsewhere(folder: Path) -> None:
    with h5py.File(folder / "other.h5x", "w") as other:
        other["table"] = arrays_of(OPTIONS)["CNN/b_cnn_0"]
    with h5py.File(folder / "weights.hdf5", "a") as file:
        del file["CNN/b_cnn_0"]
        file["CNN/b_cnn_0"] = h5py.ExternalLink(str(folder / "other.h5x"), "table")


CELL = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell"
BAD = {
    "missing weights": (without(f"{CELL}/W_0"), f"{CELL}/W_0 is missing"),
    "no table": (without("char_embed"), "holds 'char_embed'"),
    "transposed": (changed("CNN_proj/W_proj", np.transpose), "(transposed), not (9, 4)"),
    "wrong size": (changed(f"{CELL}/B", lambda array: array[:-1]), f"{CELL}/B has the shape (27,), not (28,)"),
    "words for numbers": (changed("CNN/b_cnn_0", lambda array: np.array([b"a", b"b"])), "not a plain array of numbers"),
    "NaN": (changed("CNN/b_cnn_0", lambda array: array * np.nan), "contains NaN or infinity"),
    "truncated": (truncate, "is damaged or not an hdf5 file"),
    "no hdf5": (lambda folder: (folder / "weights.hdf5").write_text("no"), "is damaged or not an hdf5 file"),
    "no file": (lambda folder: (folder / "weights.hdf5").unlink(), "has no weights"),
    "two files": (lambda f: shutil.copy(f / "weights.hdf5", f / "more.hdf5"), "has 2 files of weights"),
    "a link to another file": (link_elsewhere, "CNN/b_cnn_0 is missing"),
    "no json": (lambda folder: (folder / "options.json").write_text("{"), "not valid JSON"),
    "no lstm": (lambda folder: (folder / "options.json").write_text("{}"), "'lstm' is missing; 'char_cnn' is missing"),
    "other sizes": (options_with("lstm", dim=8), "has the shape"),
    "negative": (options_with("lstm", dim=-1), "lstm.projection_dim = 4 is not between 1 and lstm.dim = -1"),
    "enormous": (options_with("lstm", dim=1 << 60), "largest size"),
    "no projection": (options_with("lstm", projection_dim=7), "without projection cannot be imported"),
    "tanh": (options_with("char_cnn", activation="tanh"), "only 'relu' can be imported"),
    "characters": (options_with("char_cnn", n_characters=300), "n_characters = 300"),
    "a wide filter": (options_with("char_cnn", filters=[[12, 2]]), "does not fit into max_chars = 9"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_folders_are_refused_in_one_line(name, tmp_path, capsys):
    spoil, said = BAD[name]
    folder, out = write_folder(tmp_path / "elmo"), tmp_path / "run"
    spoil(folder)
    assert command(["import", str(folder), "--out", str(out)]) == 4
    line = capsys.readouterr().err.strip()
    assert said in line and "\n" not in line, line
    assert not out.exists() or not any(out.iterdir())


def test_a_task_of_a_published_model_is_refused(tmp_path, capsys):
    folder = write_folder(tmp_path / "elmo")
    assert command(["import", str(folder), "--out", str(tmp_path / "run"), "--task", "pair"]) == 2
    assert "trained for no task" in capsys.readouterr().err


# ---- the authors' own outputs


@torch.no_grad()
def published_difference(out: Path) -> float:
    """The largest difference of the top layer over ten batches of three sentences, states carried from each to the next."""
    run = seqloom.load(out, "cpu")
    model = run.learner.double().backbone
    sentences = json.loads((FIXTURE / "lm_embeddings_sentences.json").read_text())
    wanted = [h5py.File(FIXTURE / f"lm_embeddings_{k}.hdf5", "r") for k in range(3)]
    first, last = (run.tokenizer.id(name) for name in ("<s>", "</s>"))
    state, worst = State(tuple(layer.start(3, 0) for layer in model.stack.layers)), 0.0
    for i in range(10):
        texts = [sentences[k][i].split() for k in range(3)]
        rows = [[first, *[run.tokenizer.unk_id] * len(words), last] for words in texts]
        batch = pack(rows)
        spelt = run.spell(batch.ids.numpy(), [word for words in texts for word in words])
        batch = batch._replace(chars=torch.from_numpy(spelt))
        output = model.stack(model.embedding(batch), batch, state)
        state = output.state
        for k, hidden in enumerate(output.hidden.split([len(row) for row in rows])):
            theirs = wanted[k][str(i)][...]
            ours = hidden[1:-1].numpy()
            assert theirs.shape == (2, len(texts[k]), 16)
            worst = max(worst, float(np.abs(np.concatenate(theirs, 1) - ours).max()))
    return worst


@pytest.mark.long
def test_the_authors_own_outputs(tmp_path):
    worst = published_difference(import_elmo(FIXTURE, tmp_path / "run"))
    print(f"largest difference {worst:.3g}")
    assert worst < 1e-6
