"""Small runs of every kind, and a server over them without a network."""

import pytest
from starlette.testclient import TestClient

from seqloom.batches.prepare import prepare
from seqloom.runs.load import load
from seqloom.runs.training import finetune, pretrain, train
from seqloom.serve.app import Limits, Server
from tests.tasks.labelled import examples, write
from tests.training.material import prepared, write_pairs

SIZES = {
    "lstm": ["model.dim=32", "batches.streams=4", "batches.length=32"],
    "gpt2": [
        "model.dim=32",
        "model.num_heads=2",
        "model.num_layers=1",
        "model.max_len=32",
        "batches.length=32",
        "batches.budget=256",
    ],
    "bert": [
        "model.dim=32",
        "model.num_heads=2",
        "model.num_layers=1",
        "model.max_len=64",
        "batches.length=64",
        "batches.budget=256",
    ],
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Run folders by name."""
    place = tmp_path_factory.mktemp("served")
    prepared(place / "data", 400)
    found = {}
    for name, settings in SIZES.items():
        pretrain(f"{name}-tiny", place / "data", place / name, settings=[*settings, "budget={steps=40}"])
        found[name] = place / name
    pretrain("ngram-tiny", place / "data", place / "ngram")
    found["ngram"] = place / "ngram"
    for task, ending in (("classify", "jsonl"), ("tag", "conll")):
        for seed, split in enumerate(("train", "valid")):
            write(place / f"{task}-{split}.{ending}", task, examples(task, 20, seed))
        files = [place / f"{task}-{split}.{ending}" for split in ("train", "valid")]
        finetune(place / "bert", task, *files, place / task, settings=["budget={steps=4}"])
        found[task] = place / task
    source, target = write_pairs(place, 40)
    settings = ["model.dim=32", "model.num_layers=1", "model.num_heads=2", "budget={steps=20}"]
    train("transformer-tiny", "translate", [source, target], place / "translator", settings=settings)
    found["translator"] = place / "translator"
    return found


@pytest.fixture(scope="session")
def runs(folders):
    return {name: load(folder, "cpu") for name, folder in folders.items()}


@pytest.fixture(scope="session")
def server(folders):
    """With runs of its own: the engines' threads own them."""
    made = Server({name: load(folder, "cpu") for name, folder in folders.items()}, Limits(rows=16))
    yield made
    for engine in made.engines.values():
        engine.close()


@pytest.fixture(scope="session")
def bytewise(folders, tmp_path_factory):
    """A server of models whose tokens are parts of characters."""
    place = tmp_path_factory.mktemp("bytewise")
    text = place / "text.txt"
    text.write_text("кот 🎉 the café\n" * 40, encoding="utf-8")
    prepare([text], place / "data", tokenizer="byte", valid=0.1, keep_leaks=True, keep_duplicates=True)
    for name, settings in (("lstm", [*SIZES["lstm"], "budget={steps=20}"]), ("ngram", [])):
        pretrain(f"{name}-tiny", place / "data", place / name, settings=settings)
    made = Server({name: load(place / name, "cpu") for name in ("lstm", "ngram")}, Limits())
    yield made
    for engine in made.engines.values():
        engine.close()


@pytest.fixture(scope="session")
def client(server):
    with TestClient(server.app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as found:
        yield found
