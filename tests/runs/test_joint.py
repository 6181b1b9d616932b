"""Several tasks on one body: which steps are whose, what their weights do, what is stored and predicted, and what is refused."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
import torch

import seqloom
from seqloom.batches.joint import Joint, JointPlan
from seqloom.batches.labelled import Frame, LabelledBatches, batch_of
from seqloom.batches.prepare import prepare
from seqloom.cli import run as command
from seqloom.convert.huggingface import export_folder
from seqloom.errors import UsageError
from seqloom.files import read_json
from seqloom.recipes import schema
from seqloom.recipes.library import find_recipe
from seqloom.recipes.schema import build_recipe
from seqloom.runs.joint import TasksPlan, finetune_tasks, train_tasks
from seqloom.runs.load import load
from seqloom.runs.training import finetune, pretrain, train
from seqloom.tasks.several import OfTask, Several
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.weights import load_tensors, unique
from tests.cli.test_bad_input import fails
from tests.contract.test_planted_pairs import noticed
from tests.tasks.labelled import VALUES, WORDS, examples, learner
from tests.training.material import sentences

LINES = sentences(90)
FEW = ["model.dim=16", "model.embedding_dim=8", "model.max_chars=8", "model.num_layers=2"]
STEPS = ["budget={epochs=3}", "batches.examples=8"]
KINDS = {"nouns": ("B-x", "cdk"), "verbs": ("B-v", "hlsf")}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("joint")
    for task, (tag, letters) in KINDS.items():
        for split, lines in {"train": LINES[:24] if task == "nouns" else LINES[24:72], "dev": LINES[72:]}.items():
            columns = (
                "".join(f"{word} {tag if word[0] in letters else 'O'}\n" for word in line.split()) for line in lines
            )
            (folder / f"{task}-{split}.conll").write_text("\n".join(columns))
    rows = [{"text": line, "label": "animal" if "cat" in line or "dog" in line else "other"} for line in LINES[:40]]
    (folder / "topics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "plan.toml").write_text(
        """
        smoothing = 0.5
        [[tasks]]
        name = "nouns"
        task = "tag"
        train = ["nouns-train.conll"]
        valid = ["nouns-dev.conll"]
        settings = ["task.crf=true"]
        [[tasks]]
        name = "verbs"
        task = "tag"
        train = ["verbs-train.conll"]
        valid = ["verbs-dev.conll"]
        test = ["verbs-dev.conll"]
        weight = 0.5
        settings = ["task.layers=1"]
        """
    )
    return folder


def plan_of(place, weight=0.5, settings=(), **more):
    files = {
        name: {s: [str(place / f"{name}-{f}.conll")] for s, f in (("train", "train"), ("valid", "dev"))}
        for name in KINDS
    }
    return TasksPlan.model_validate(
        {
            "tasks": [
                {"name": "nouns", "task": "tag", **files["nouns"]},
                {"name": "verbs", "task": "tag", **files["verbs"], "weight": weight, "settings": settings},
            ]
        }
        | more
    )


def joint(place, out, weight=0.5, settings=(), **options):
    return train_tasks(
        "bilstm-cnn-tiny",
        plan_of(place, weight, settings),
        out,
        settings=[*FEW, *STEPS],
        from_tokenizer=words_of(place),
        **options,
    )


def words_of(place):
    path = place / "words.json"
    if not path.exists():
        Tokenizer.train("word", LINES, min_count=1, words="space").save(path)
    return path


def alone(place, out, **options):
    return train(
        "bilstm-cnn-tiny", "tag", place / "nouns-train.conll", out, valid=place / "nouns-dev.conll", settings=[*FEW, *STEPS],
        from_tokenizer=words_of(place), **options,
    )  # fmt: skip


# ---- a weight of 0


def nothing_but_the_main_task(place, folder):
    """With dropout, so that all that is random counts: the first weights, the order, the steps."""
    single, several = alone(place, folder / "alone"), joint(place, folder / "several", weight=0.0)
    ours, theirs = unique(several.learner), unique(single.learner)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    figures = [read_json(folder / name / "metrics.json") for name in ("alone", "several")]
    for key in ("step", "tokens", "flops", "train_loss", "valid_loss", "best_step"):
        assert figures[0][key] == figures[1][key], key
    rows = [{"text": line} for line in LINES[60:70]]
    assert single.predict(rows) == several.predict(rows)


def test_a_weight_of_zero_leaves_the_single_task_bit_for_bit(place, tmp_path):
    nothing_but_the_main_task(place, tmp_path)
    with pytest.raises(UsageError, match=r"it has the weight 0 in .* and was not learnt"):
        load(tmp_path / "several", task="verbs")


@pytest.mark.parametrize("bug", ["steps", "order", "first weights"])
def test_planted_traces_of_the_other_task_are_noticed(bug, place, tmp_path, monkeypatch):
    if bug == "steps":  # it has steps, whose gradient is zero, and Adam moves on
        monkeypatch.setattr(Joint, "steps_before", lambda self, epoch: [epoch * size for size in self.sizes])
    elif bug == "order":  # the main task has another order than alone
        right = JointPlan.batch

        def other(self, i):
            self.seed, seed = self.seed + 1, self.seed
            found = right(self, i)
            self.seed = seed
            return found

        monkeypatch.setattr(JointPlan, "batch", other)
    else:  # heads are drawn in another order
        right_class = schema.task_class

        def drawn(name):
            torch.rand(1)
            return right_class(name)

        monkeypatch.setattr(schema, "task_class", drawn)
    noticed(nothing_but_the_main_task, place, tmp_path)


# ---- weights and gradients


def two_tasks(weights, dtype=torch.float64):
    torch.manual_seed(0)
    first = learner("tag", "lstm", labels=VALUES["tag"]["labels"])
    second = type(first)(first.backbone, type(first).Config(**VALUES["tag"], dropout=0.0, layers="1"))
    return Several(first.backbone, {"a": first, "b": second}, weights).to(dtype).eval()


def batch_for(made, seed):
    asked = examples("tag", 5, seed)
    rows, _ = made.tasks[0].encode(asked, WORDS, Frame.of(made.backbone, WORDS, 48))
    return batch_of(rows)


def gradients_of(made, steps):
    made.zero_grad()
    for task, batch in steps:
        loss = made(OfTask(task, batch))
        (loss.total / loss.count).backward()
    return {name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None}


def body_has_the_weighted_sum(weights):
    made = two_tasks(weights)
    batches = [batch_for(made, 1), batch_for(made, 2)]
    whole = gradients_of(made, enumerate(batches))
    each = []
    for task, batch in enumerate(batches):
        made.zero_grad()
        loss = made.tasks[task](batch)
        (loss.total / loss.count).backward()
        each.append({name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None})
    for name, gradient in whole.items():
        parts = [weight * grads[name] for weight, grads in zip(weights, each, strict=True) if name in grads]
        torch.testing.assert_close(gradient, sum(parts), rtol=1e-9, atol=1e-12)
        assert name.startswith("backbone.") or len(parts) == 1


def test_the_body_has_the_weighted_sum_of_gradients():
    body_has_the_weighted_sum((1.0, 0.3))
    body_has_the_weighted_sum((2.0, 1.0))


def test_planted_weights_are_noticed(monkeypatch):
    right = Several.forward
    monkeypatch.setattr(Several, "forward", lambda self, example, carry=None: right(self, OfTask(0, example.example)))
    noticed(body_has_the_weighted_sum, (1.0, 0.3))


def test_two_copies_with_half_the_weight_are_one():
    made = two_tasks((0.5, 0.5))
    made.heads[1] = made.heads[0]
    batch = batch_for(made, 1)
    both = gradients_of(made, [(0, batch), (1, batch)])
    whole = gradients_of(two_tasks((1.0, 1.0)), [(0, batch)])
    for name, gradient in whole.items():
        torch.testing.assert_close(both[name], gradient, rtol=1e-9, atol=1e-12)


def test_a_head_learns_from_its_own_steps_alone():
    made = two_tasks((1.0, 1.0))
    found = gradients_of(made, [(0, batch_for(made, 1))])
    assert any(name.startswith("heads.0.") for name in found) and not any(name.startswith("heads.1.") for name in found)


def test_what_is_reported_has_no_weight():
    made = two_tasks((1.0, 0.25))
    batch = batch_for(made, 3)
    loss, plain = made(OfTask(1, batch)), made.tasks[1](batch)
    assert (loss.total - loss.logs["penalty"]).item() == pytest.approx(plain.total.item(), rel=1e-12)
    assert loss.total.item() == pytest.approx(0.25 * plain.total.item(), rel=1e-12)


def test_an_auxiliary_task_reads_its_layer():
    """The one at the first layer moves nothing above it."""
    made = two_tasks((1.0, 1.0))
    upper = {name for name, _ in made.named_parameters() if ".layers.1." in name}
    assert upper and not upper & {n for n, g in gradients_of(made, [(1, batch_for(made, 1))]).items() if g.any()}
    assert upper & {n for n, g in gradients_of(made, [(0, batch_for(made, 1))]).items() if g.any()}


# ---- shares


class Some:
    """As many examples, of which a batch is the list of their numbers."""

    def __init__(self, count):
        self.count, self.rows = count, None

    def __len__(self):
        return self.count


def batches_of(count, size):
    found = LabelledBatches.__new__(LabelledBatches)
    found.examples, found.size, found.max_len, found.max_words = Some(count), size, None, None
    return found


@pytest.fixture
def numbers(monkeypatch):
    monkeypatch.setattr("seqloom.batches.labelled.LabelledPlan.batch", lambda self, i: self.parts[i].tolist())


def shares_are_exact(smoothing, accumulate, epochs=40):
    counts, size = (60, 400, 33), 8
    weights = np.array(counts) ** smoothing
    often = weights / np.array(counts) * sum(counts) / weights.sum()
    made = Joint([batches_of(n, size) for n in counts], often.tolist(), accumulate, lambda task, batch: (task, batch))
    steps = Counter()
    read = [[], [], []]
    for epoch in range(epochs):
        plan = made.plan(7, epoch)
        found = [plan.batch(i) for i in range(len(plan))]
        assert len(found) % accumulate == 0
        for i in range(0, len(found), accumulate):
            tasks = {task for task, _ in found[i : i + accumulate]}
            assert len(tasks) == 1, "a step is of one task"
            steps[tasks.pop()] += 1
        for task, batch in found:
            read[task].append(batch)
    for task, count in enumerate(counts):
        exact = epochs * often[task] * -(-count // size) / accumulate
        assert abs(steps[task] - exact) <= 0.5 + 1e-9
        # read on, and begun again only when all of it was read
        whole = -(-count // size)
        for i in range(0, len(read[task]) - whole + 1, whole):
            assert sorted(n for batch in read[task][i : i + whole] for n in batch) == list(range(count))


@pytest.mark.parametrize("smoothing", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_shares_are_exact(smoothing, accumulate, numbers):
    shares_are_exact(smoothing, accumulate)


def test_planted_shares_are_noticed(numbers, monkeypatch):
    monkeypatch.setattr(
        Joint, "steps_before", lambda self, epoch: [epoch * size // self.accumulate for size in self.sizes]
    )
    noticed(shares_are_exact, 0.5, 1)


def test_any_batch_is_known_without_those_before(numbers):
    made = Joint([batches_of(20, 8), batches_of(50, 8)], [1.0, 1.0], 1, lambda task, batch: (task, batch))
    whole = [made.plan(1, 2).batch(i) for i in range(len(made.plan(1, 2)))]
    assert [made.plan(1, 2).batch(i) for i in reversed(range(len(whole)))][::-1] == whole
    assert whole != [made.plan(2, 2).batch(i) for i in range(len(whole))]


# ---- runs


@pytest.fixture(scope="module")
def run(place):
    call = ["train", "bilstm-cnn-tiny", "--tasks", place / "plan.toml", "--out", place / "run", "--tokenizer", "word"]
    assert command([str(each) for each in (*call, *(f"--set={each}" for each in (*FEW, *STEPS)))]) == 0
    return load(place / "run")


def test_both_tasks_are_learnt_and_predicted(run, place, capsys):
    metrics = read_json(run.folder / "metrics.json")
    assert {"score", "tasks"} <= metrics["valid"].keys() and set(metrics["valid_scores"]["tasks"]) == {"verbs"}
    assert "test_scores" not in metrics, "only the main task's files are scored by their split"
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert all(set(line["tasks"]) == {"verbs"} for line in lines if "valid" in line)
    capsys.readouterr()
    found = {}
    for name in (None, "nouns", "verbs"):
        more = () if name is None else ("--task", name)
        assert command([str(each) for each in ("predict", run.folder, place / "nouns-dev.conll", *more)]) == 0
        found[name] = capsys.readouterr().out
    assert found[None] == found["nouns"] != found["verbs"]
    assert run.learner.crf is not None and run.for_task("verbs").learner.crf is None
    other = load(run.folder, task="verbs")
    assert set(other.learner.labels) == {"B-v", "I-v", "O"} and other.learner.layers == "1"
    call = ["evaluate", run.folder, "--test", place / "verbs-dev.conll", "--task", "verbs", "--json"]
    assert command([str(each) for each in call]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(
        metrics["valid_scores"]["tasks"]["verbs"]["loss"], abs=1e-6
    )
    card = (run.folder / "card.md").read_text()
    assert "as nouns (weight 1), on one body with verbs (weight 0.5)" in card and "| valid of verbs |" in card


def test_seeds_have_intervals_of_all_tasks(place, tmp_path, capsys):
    call = [
        "train",
        "bilstm-cnn-tiny",
        "--tasks",
        place / "plan.toml",
        "--out",
        tmp_path / "run",
        "--tokenizer",
        "word",
        "--seeds",
        2,
    ]
    settings = [f"--set={each}" for each in (*FEW, "budget={steps=2}")]
    assert command([str(each) for each in (*call, *settings)]) == 0
    assert "valid of verbs: accuracy" in capsys.readouterr().out
    found = read_json(tmp_path / "run" / "seeds.json")
    assert len(found["valid of verbs"]["accuracy"]["values"]) == 2 and "valid" in found


def test_the_body_is_stored_once(run):
    stored = unique(run.learner)
    head = load_tensors(run.folder / "head.safetensors")
    assert {name.split(".")[1] for name in head} == {"0", "1"}
    assert not any("backbone" in name for name in head)
    assert sum(name.startswith("backbone.") for name in stored) == len(
        load_tensors(run.folder / "backbone.safetensors")
    )


def test_another_task_is_refused(run, capsys, place):
    call = ("predict", run.folder, place / "nouns-dev.conll", "--task")
    fails(capsys, 2, "unknown --task 'nouns2'", *call, "nouns2")
    single = alone(place, place / "single")
    fails(
        capsys, 2, "has learnt one thing, tag", "predict", single.folder, place / "nouns-dev.conll", "--task", "verbs"
    )


def test_a_resumed_run_is_the_same_in_the_middle_of_an_epoch(place, tmp_path):
    settings = [*FEW, "budget={epochs=1.5}", "batches.examples=8", "train.save_every=1", "train.keep=100"]
    call = {"settings": settings, "from_tokenizer": words_of(place)}
    whole = train_tasks("bilstm-cnn-tiny", plan_of(place), tmp_path / "run", **call)
    before = {name: tensor.clone() for name, tensor in unique(whole.for_task("verbs").learner).items()}
    steps = sorted(int(path.name[5:]) for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert len(steps) > 8
    for step in steps[4:]:
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{step}")
    (tmp_path / "run" / "checkpoints" / "latest").write_text(f"step-{steps[3]}")
    (tmp_path / "run" / "card.md").unlink()
    again = train_tasks("bilstm-cnn-tiny", plan_of(place), tmp_path / "run", resume=True, **call)
    after = unique(again.for_task("verbs").learner)
    assert all(torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(UsageError, match="started with another recipe"):
        train_tasks("bilstm-cnn-tiny", plan_of(place, weight=0.6), tmp_path / "run", resume=True, **call)


def test_a_pretrained_model_with_several_tasks(place, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(LINES))
    data = tmp_path / "data"
    prepare([text], data, tokenizer="word", valid=0.1, min_count=1, keep_duplicates=True)
    small = ["model.dim=12", "model.num_layers=2", "budget={steps=2}", "batches.streams=2", "batches.length=16"]
    start = pretrain("lstm-tiny", data, tmp_path / "lm", settings=small)
    tasks = [
        {
            "task": "classify",
            "name": "topics",
            "train": [str(place / "topics.jsonl")],
            "valid": [str(place / "topics.jsonl")],
        },
        {"task": "tag", "train": [str(place / "nouns-train.conll")], "settings": ["task.layers=1"]},
    ]
    plan = TasksPlan.model_validate({"tasks": tasks, "smoothing": 0.0})
    run = finetune_tasks(start, plan, tmp_path / "run", settings=["budget={epochs=1}"])
    assert run.predict("the cat sees the dog")[0]["label"] in ("animal", "other")
    assert len(run.for_task("tag").predict("the cat sees the dog")[0]["tags"]) == 5
    # and with no weight nothing is left of the other
    plan = TasksPlan.model_validate({"tasks": [tasks[0], tasks[1] | {"weight": 0}]})
    short = ["budget={steps=3}"]
    several = finetune_tasks(start, plan, tmp_path / "zero", settings=short)
    file = place / "topics.jsonl"
    single = finetune(start, "classify", file, file, tmp_path / "alone", settings=short)
    ours, theirs = unique(several.learner), unique(single.learner)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    onward = finetune(several, "classify", file, file, tmp_path / "onward", settings=short)
    assert onward.learner.labels == ["animal", "other"]


def test_the_main_task_can_be_exported(place, tmp_path):
    """As it is when it was learnt alone."""
    data = tmp_path / "data"
    text = tmp_path / "text.txt"
    text.write_text("\n".join(LINES))
    prepare([text], data, tokenizer="wordpiece", vocab_size=120, valid=0.1, keep_duplicates=True)
    small = [
        "model.dim=12",
        "model.num_layers=1",
        "model.num_heads=2",
        "budget={steps=1}",
        "batches.budget=256",
        "batches.length=32",
    ]
    start = pretrain("roberta-tiny", data, tmp_path / "lm", settings=small)
    run = finetune_tasks(start, plan_of(place), tmp_path / "run", settings=["budget={steps=2}"])
    exported = export_folder(run.folder, tmp_path / "exported")
    again = seqloom.load(exported, "cpu")
    rows = [{"text": line} for line in LINES[60:64]]
    ours, theirs = run.predict(rows), again.predict(rows)
    assert [each["tags"] for each in ours] == [each["tags"] for each in theirs]
    np.testing.assert_allclose(ours[0]["probabilities"], theirs[0]["probabilities"], atol=1e-5)


# ---- refused


def test_tasks_that_want_different_tokenizers(place, tmp_path, capsys):
    plan = place / "mixed.toml"
    plan.write_text(
        """
        [[tasks]]
        task = "tag"
        train = ["nouns-train.conll"]
        [[tasks]]
        task = "classify"
        train = ["topics.jsonl"]
        """
    )
    call = ("train", "bilstm-cnn-tiny", "--tasks", plan, "--out", tmp_path / "run", "--tokenizer")
    words = "the tasks want different tokenizers (tag words between space, classify words between punctuation)"
    fails(capsys, 3, words, *call, "word")
    assert not (tmp_path / "run").exists()
    settings = [f"--set={each}" for each in ("model.dim=8", "budget={steps=2}")]
    assert command([str(each) for each in (*call, "bpe", "--vocab-size", "300", *settings)]) == 0


def test_what_is_refused(place, tmp_path, capsys):
    out = ("--out", tmp_path / "run")
    train_call = ("train", "bilstm-cnn-tiny", *out)
    fails(capsys, 2, "--task is missing: name a task and its files, or several by --tasks", *train_call)
    fails(capsys, 2, "--train is missing", *train_call, "--task", "tag")
    fails(capsys, 2, "leave one of them out", *train_call, "--tasks", place / "plan.toml", "--task", "tag")
    for option in ("--beside", "--text-column", "--encoding", "--valid"):
        fails(
            capsys,
            2,
            f"and {option}: the plan has the tasks",
            *train_call,
            "--tasks",
            place / "plan.toml",
            option,
            place,
        )
    bad = {
        "[[tasks]]\ntask='tag'\ntrain=['a']": "tasks",
        "[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='tagg'\ntrain=['b']": "cannot be one of several",
        "[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='translate'\ntrain=['b']": "cannot be one of several",
        "[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='tag'\ntrain=['b']": "two tasks are called 'tag'",
        "[[tasks]]\ntask='tag'\ntrain=['a']\nweight=0\n[[tasks]]\ntask='classify'\ntrain=['b']": "the main task",
        "[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='classify'\ntrain=['b']\nweight=-1": "weight",
        "[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='classify'\ntrain=['b']\nsettings=['train.optim.lr=1']": "task.",
        "[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='classify'\ntrain=['b']\nsettings=['task.frozn=true']": "frozn",
        "[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='classify'\ntrain=['b']\nsettings=['task.weight=0']": "key 'weight'",
        "[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='classify'\ntrain=['b']\nsettings=['task.name=span']": "key 'task'",
        "[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='classify'\ntrain=['b']\nsettings=['task.called=x']": "key 'name'",
        "smooth=1\n[[tasks]]\ntask='tag'\ntrain=['a']\n[[tasks]]\ntask='classify'\ntrain=['b']": "smoothing",
    }
    for text, words in bad.items():
        (place / "bad.toml").write_text(text)
        fails(capsys, 2, words, *train_call, "--tasks", place / "bad.toml")
    (place / "bad.toml").write_text(
        "[[tasks]]\ntask='tag'\ntrain=['nowhere.conll']\n[[tasks]]\ntask='classify'\ntrain=['b']"
    )
    assert command([str(each) for each in (*train_call, "--tasks", place / "bad.toml")]) in (3, 5)
    assert not (tmp_path / "run").exists()


def test_a_body_is_frozen_for_all_or_none(place, tmp_path):
    plan = plan_of(place, settings=["task.frozen=true"])
    with pytest.raises(UsageError, match=r"'task.frozen' is False for nouns and True for verbs"):
        train_tasks("bilstm-cnn-tiny", plan, tmp_path / "run", settings=FEW, from_tokenizer=words_of(place))


def test_a_task_may_have_any_name():
    """Also that of something that a module of torch has."""
    body = two_tasks((1.0, 1.0))
    Several(body.backbone, {"forward": body.tasks[0], "items": body.tasks[1]}, (1.0, 1.0))


def test_recipes_with_several_tasks():
    values = find_recipe("bilstm-cnn-tiny").model_dump()
    several = build_recipe(
        values | {"tasks": [{"name": "tag", "called": "a"}, {"name": "tag", "called": "b", "weight": 0}]}, "here"
    )
    assert several.plain()["tasks"][1]["called"] == "b" and "task" not in several.plain()
    assert build_recipe(several.plain(), "here") == several
    with pytest.raises(UsageError, match=r"'tasks.called' = 'a b'"):
        build_recipe(values | {"tasks": [{"name": "tag", "called": "a b"}, {"name": "tag"}]}, "here")
    with pytest.raises(UsageError, match="shares no model with other tasks"):
        build_recipe(values | {"tasks": [{"name": "tag"}, {"name": "entity-lm"}]}, "here")
