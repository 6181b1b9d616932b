"""Tasks that tell something about texts, on a GPU: the same numbers as on the CPU, plain, compiled and recorded."""

import copy

import pytest
import torch

from seqloom.batch import to_device
from seqloom.batches.labelled import batch_of
from seqloom.runs.training import train
from seqloom.training.gradient import Gradient, worth_compiling
from tests.tasks.labelled import MODELS, VALUES, WORDS, examples, frame, learner, write

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
FEW = [(task, model) for task in VALUES for model in ("bert", "gpt", "lstm")]


def rows_of(made, task, seed=0):
    return made.encode(examples(task, 12, seed), WORDS, frame(made))[0]


@pytest.mark.parametrize(("task", "model"), [(task, model) for task in VALUES for model in MODELS])
def test_the_gpu_equals_the_cpu(task, model):
    made = learner(task, model).eval()
    batch = batch_of(rows_of(made, task), 48)
    here = made(batch)
    there = copy.deepcopy(made).to(CUDA)(to_device(batch, CUDA))
    assert float(there.total) == pytest.approx(float(here.total), rel=1e-4) and int(there.count) == int(here.count)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("task", "model"), FEW)
def test_recorded_steps_equal_plain_ones(task, model, compiled):
    made = learner(task, model, dropout=0.2).to(CUDA).train()
    compiled = compiled and worth_compiling(made, CUDA)
    batches = [to_device(batch_of(rows_of(made, task, seed), 48), CUDA) for seed in (0, 1, 0, 1, 0)]
    results = []
    for recorded in (False, True):
        copied = copy.deepcopy(made)
        differentiate, seen = Gradient(copied, "fp32", CUDA, compiled, recorded), []
        for i, batch in enumerate(batches):
            torch.manual_seed(i)
            copied.zero_grad()
            loss = differentiate(batch, None)
            seen.append((float(loss.total), [None if p.grad is None else p.grad.clone() for p in copied.parameters()]))
        results.append(seen)
    for (plain, plain_gradients), (fast, fast_gradients) in zip(*results, strict=True):
        assert fast == pytest.approx(plain, rel=1e-4)
        for a, b in zip(plain_gradients, fast_gradients, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                assert (a - b).norm() <= 1e-3 * a.norm() + 1e-5


def test_recorded_steps_of_a_crf_equal_plain_ones():
    made = learner("tag", "lstm", dropout=0.2, crf=True).to(CUDA).train()
    rows = [rows_of(made, "tag", seed) for seed in (0, 1, 0, 1, 0)]
    most = max(sum(len(row.label) for row in each) for batch in rows for each in batch)
    batches = [to_device(batch_of(each, 48, most), CUDA) for each in rows]
    assert made.static
    differentiate, totals = {kind: Gradient(made, "fp32", CUDA, False, kind) for kind in (False, True)}, {}
    for kind, each in differentiate.items():
        totals[kind] = []
        for i, batch in enumerate(batches):
            torch.manual_seed(i)
            made.zero_grad()
            totals[kind].append(float(each(batch, None).total))
    assert differentiate[True].graphs, "nothing was recorded"
    assert totals[True] == pytest.approx(totals[False], rel=1e-4)


@pytest.mark.parametrize("crf", [False, True])
def test_words_are_tagged_as_on_the_cpu(crf):
    made = learner("tag", "bert", crf=crf).eval()
    asked = examples("tag", 12)
    rows = made.encode(asked, WORDS, frame(made))[0]
    batch, predicted = batch_of(rows), []
    for device in (torch.device("cpu"), CUDA):
        moved, there = made.to(device), to_device(batch, device)
        with torch.inference_mode():
            logits = moved.logits(moved.features(there.batch)[0], there)
            predicted.append([each["tags"] for each in moved.predictions(logits, there, asked, rows)])
    assert predicted[0] == predicted[1]


@pytest.mark.parametrize("recipe", ["lstm-tiny", "bert-tiny", "text-cnn-tiny", "gpt-tiny"])
def test_training_on_the_gpu_learns(recipe, tmp_path):
    for seed, split in enumerate(("train", "valid")):
        write(tmp_path / f"{split}.jsonl", "classify", examples("classify", (600, 100)[seed], seed))
    run = train(
        recipe, "classify", [tmp_path / "train.jsonl"], tmp_path / "run", valid=[tmp_path / "valid.jsonl"], tokenizer="word",
        device="cuda", settings=["budget={epochs=8}", "train.compile=false", "train.optim.lr=2e-3"],
    )  # fmt: skip
    assert run.evaluate([tmp_path / "valid.jsonl"])["accuracy"] > 0.9
