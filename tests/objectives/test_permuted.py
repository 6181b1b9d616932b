"""Permutation language modelling: what is predicted in which order, how it is measured and asked, and bugs to be noticed."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.batch import IGNORE, Excerpt, Joints, pack, to_device
from seqloom.batches.prepare import prepare
from seqloom.blocks import two_streams
from seqloom.cli import run as command
from seqloom.convert.huggingface import export_folder
from seqloom.decode.fill import fill_each, fill_jointly
from seqloom.objectives.next_token import as_left_to_right
from seqloom.objectives.permuted import PermutedLM, draw_runs, shares
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.training.loop import Fit
from tests.contract import encoders as e
from tests.contract.properties import VOCAB, sequences, widened
from tests.contract.test_planted import noticed
from tests.contract.test_traced import traced_equals_plain
from tests.models.test_xlnet import Words
from tests.training.material import prepared, sentences

TINY = ["model.dim=24", "model.num_layers=2", "model.num_heads=3", "model.mem_len=12", "model.eval_len=24",
        "batches.streams=8", "batches.length=16", "train.eval_every=20", "train.schedule.warmup=5"]  # fmt: skip


def learner(dtype=torch.float64, **config):
    torch.manual_seed(0)
    made = PermutedLM(e.build("xlnet", 1, dtype), PermutedLM.Config(**config)).to(dtype)
    made.set_vocabulary(Words())
    return made


def excerpt(texts):
    """As a loader cuts them: the last token of each is predicted, and not read."""
    return Excerpt(pack([text[:-1] for text in texts]), torch.tensor([i for text in texts for i in text[1:]]))


def drawn(made, texts, seed=0):
    return made.corrupt(excerpt(texts), torch.Generator().manual_seed(seed))


# ---- what is drawn


@pytest.mark.parametrize("rate", [1 / 6, 0.3, 1.0])
def test_exact_shares(rate):
    """In all as many as asked for; of each sequence its share."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = rng.integers(0, 40, 12)
        counts = shares(sizes, rate)
        assert counts.sum() == math.ceil(sizes.sum() * rate - 1e-9)
        assert (counts <= np.ceil(sizes * rate)).all() and (counts >= np.floor(sizes * rate)).all()
        taken = draw_runs(sizes, counts, 5, rng)
        assert len(taken) == sizes.sum()
        owner = np.repeat(np.arange(12), sizes)
        assert np.bincount(owner[taken], minlength=12).tolist() == counts.tolist()


def test_runs_are_short_and_everywhere():
    rng, sizes = np.random.default_rng(0), np.full(400, 60)
    taken = draw_runs(sizes, shares(sizes, 1 / 6), 5, rng).reshape(400, 60)
    assert (taken.mean(0) > 0.05).all() and (taken.mean(0) < 0.26).all()  # every place, about as often
    sizes = np.full(4, 6000)
    runs, alone = (draw_runs(sizes, shares(sizes, 1 / 6), longest, rng).reshape(4, -1) for longest in (5, 1))

    def joined(rows):
        return (rows[:, 1:] & rows[:, :-1]).sum() / rows.sum()

    # a run has n tokens with a chance ∝ 1/n, 2.19 in the mean, so that 54% follow one of their own; 8% of runs follow another
    assert joined(runs) == pytest.approx(0.543 + 0.457 * 0.084, abs=0.03)
    assert joined(alone) == pytest.approx(1 / 6, abs=0.03)


def what_is_predicted(made):
    """Targets are the tokens of their places; given ones have no order; special ones have one, and no loss."""
    texts = sequences(0, (20, 2, 33))
    example = drawn(made, texts)
    batch, queries = example.batch, example.queries
    assert batch.ids[queries.where].tolist() == example.targets.tolist()
    ends = batch.offsets.tolist()
    for text, (a, b) in zip(texts, itertools.pairwise(ends), strict=True):
        assert batch.ids[a:b].tolist() == [*text, 1] and batch.positions[a:b].tolist() == list(range(b - a))
    ordered = batch.order >= 0
    special = torch.zeros_like(ordered)
    special[batch.offsets[1:].long() - 1] = True
    predicted = torch.zeros_like(ordered)
    predicted[queries.where] = True
    first = torch.zeros_like(ordered)
    first[batch.offsets[:-1].long()] = batch.ids[batch.offsets[:-1].long()] == 0
    assert not (ordered & ~(special | predicted | first)).any() and (ordered | ~(special | predicted)).all()
    rest = batch.order[special | predicted].tolist()
    assert sorted(rest) == list(range(len(rest))) and (batch.order[ordered & first] == len(rest)).all()
    assert not (special & predicted).any()
    assert not predicted[batch.offsets[:-1].long()].any()  # the first token is the one before the text
    sizes = example.sizes()
    assert sizes.tokens == sum(len(text) - 1 for text in texts) and sizes.targets == len(example.targets)
    assert sizes.lengths == tuple(len(text) + 1 for text in texts) and sizes.read == sum(sizes.lengths)


def test_what_is_predicted():
    what_is_predicted(learner())
    what_is_predicted(learner(rate=1.0))


def test_half_of_the_documents_show_the_token_before_them():
    """What is hidden is seen by none: as if it were not there."""
    made = learner()
    example = drawn(made, [[0, *text] for text in sequences(0, (9,) * 60)])
    first = example.batch.order[example.batch.offsets[:-1].long()]
    assert 15 < (first > 0).sum() < 45 and set(first.tolist()) == {-1, int(first.max())}
    query = made.backbone(example.batch, queries=example.queries).query
    ids = example.batch.ids.clone()
    ids[example.batch.order == first.max()] = 7
    other = made.backbone(example.batch._replace(ids=ids), queries=example.queries).query
    assert torch.equal(query, other)


def test_a_planted_target_one_place_off_is_noticed(monkeypatch):
    right = PermutedLM.corrupt

    def corrupt(self, cut, rng):
        example = right(self, cut, rng)
        return example._replace(targets=example.targets.roll(1))

    monkeypatch.setattr(PermutedLM, "corrupt", corrupt)
    noticed(what_is_predicted, learner())


def test_every_shape_follows_from_the_shape_of_the_excerpt():
    """Filler and empty sequences too: so steps can be recorded."""
    made, found = learner(), set()
    for seed, lengths in enumerate(((9, 9, 6), (24,), (1, 1, 22), (2, 20, 2))):
        texts = sequences(seed, lengths)
        ids = pack(texts)
        cut = Excerpt(widened(ids, 24, 5 - len(lengths)), ids.ids.clone())
        cut.targets[-3:] = IGNORE  # filler
        example = made.corrupt(cut, torch.Generator().manual_seed(seed))
        assert (example.targets != IGNORE).sum() > 0
        assert torch.isfinite(made(example).total)
        tensors = torch.utils._pytree.tree_leaves(example)
        found.add(tuple(part.shape if isinstance(part, torch.Tensor) else part for part in tensors))
        assert example.sizes().tokens == 21
    assert len(found) == 1


def test_the_same_seed_draws_the_same():
    one, same, other = (drawn(learner(), sequences(0, (20, 30)), seed) for seed in (1, 1, 2))
    leaves = [torch.utils._pytree.tree_leaves(each) for each in (one, same, other)]
    assert all(torch.equal(a, b) for a, b in zip(*leaves[:2], strict=True) if isinstance(a, torch.Tensor))
    assert not torch.equal(one.batch.order, other.batch.order)


def test_an_untrained_model_finds_every_token_equally_likely():
    torch.manual_seed(0)
    from seqloom.models.xlnet import Xlnet

    made = PermutedLM(Xlnet(Xlnet.Config(vocab_size=VOCAB, **e.SMALL["xlnet"])), PermutedLM.Config())
    made.set_vocabulary(Words())
    loss = made(drawn(made, sequences(0, (64, 64))))
    assert (loss.total / loss.count).item() == pytest.approx(made.initial_loss(), rel=0.05)


def test_every_parameter_learns():
    made = learner()
    loss = made(drawn(made, sequences(0, (20, 30))), made.start(2))
    loss.total.backward()
    assert [name for name, weight in made.named_parameters() if not weight.grad.abs().sum() > 0] == []


class AsksNothing(TorchDispatchMode):
    """Raises where a step would wait for the device: such steps cannot be recorded."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function.overloadpacket.__name__ not in ("_local_scalar_dense", "nonzero", "masked_select", "unique_dim")
        return function(*args, **kwargs or {})


def step_asks_nothing():
    made = learner(torch.float32).train()
    texts = sequences(0, (20, 20, 9, 30))
    joints = Joints(torch.tensor([0, 2]), torch.tensor([1, 3]), torch.tensor([True, False]))
    example = drawn(made, texts)._replace(joints=joints)
    carry = made.start(2)
    with AsksNothing():
        loss = made(example, carry)
        loss.total.backward()
    assert [part.kept.shape for part in loss.carry.own] == [part.kept.shape for part in carry.own]


def test_a_step_asks_the_host_nothing():
    step_asks_nothing()


def test_a_planted_question_to_the_host_is_noticed(monkeypatch):
    right = two_streams.arrange

    def arrange(batch, state, queries, vectors):
        assert batch.order.max() > 0
        return right(batch, state, queries, vectors)

    monkeypatch.setattr(two_streams, "arrange", arrange)
    noticed(step_asks_nothing)


@pytest.mark.long
def test_it_can_be_traced():
    made = learner()
    traced_equals_plain(made, drawn(made, sequences(0, (9, 4))))


# ---- gaps


@torch.no_grad()
def filled_jointly():
    """All combinations of two words: p(m1) · p(m2 | m1), and of each alone p(m1) and p(m2)."""
    made = learner()
    row, gaps = [5, 0, 7, 0, 9, 2, 1], [1, 3]
    alone = fill_each(made, row, gaps, VOCAB, torch.device("cpu"))
    several = fill_jointly(made, row, gaps, VOCAB**2, VOCAB, torch.device("cpu"))
    joint = {tuple(tokens): share for tokens, share in several}
    assert len(joint) == VOCAB**2 and sum(joint.values()) == pytest.approx(1)
    first = {tokens[0]: share for tokens, share in alone[0]}
    second = {tokens[0]: share for tokens, share in alone[1]}
    for one in (0, 17, 60):
        assert sum(joint[one, two] for two in range(VOCAB)) == pytest.approx(first[one], rel=1e-9)
    apart = [first[one] * second[two] for one, two in joint]
    # the second knows of the first
    assert max(abs(a / b - 1) for a, b in zip(apart, joint.values(), strict=True)) > 0.01
    # what stands in an open gap is not seen
    other = [5, 33, 7, 44, 9, 2, 1]
    assert fill_each(made, other, gaps, 3, torch.device("cpu")) == [some[:3] for some in alone]


def test_gaps_are_filled_jointly():
    filled_jointly()


def test_a_planted_gap_that_is_seen_before_it_is_filled_is_noticed(monkeypatch):
    right = PermutedLM.gap_scores
    monkeypatch.setattr(
        PermutedLM, "gap_scores", lambda self, batch, places, gaps, done: right(self, batch, places, gaps, done + 1)
    )
    noticed(filled_jointly)


# ---- runs


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("permuted")
    prepared(folder / "data", 600)
    return folder


@pytest.fixture(scope="module")
def run(place):
    return pretrain("xlnet-tiny", place / "data", place / "run", settings=[*TINY, "budget={steps=60}"])


def test_it_learns_and_is_measured(run, place):
    log = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["valid"] for line in log if "valid" in line]
    found = run.evaluate(place / "data", "valid")
    assert losses[-1] < losses[0] and found["permuted_loss"] == pytest.approx(min(losses), rel=1e-5)
    assert found == run.evaluate(place / "data", "valid") | {"seconds": found["seconds"]}
    assert found["permuted_targets"] == pytest.approx(found["tokens"] / 6, rel=0.1)
    assert found["bits_per_byte"] > 0 and found["tokens_seen"] == 24


@torch.no_grad()
def test_scores_are_those_of_the_identity_order(run):
    text = "the cat sees a bird"
    (scored,) = run.score(text)
    ids = [run.tokenizer.end_id, *run.tokenizer.encode(text), run.tokenizer.end_id]
    made, size = run.learner.eval(), len(ids)
    from tests.models.test_xlnet import asked, laid

    places = torch.arange(size)[None]
    batch = to_device(laid(torch.tensor([ids]), places), run.device)
    query = made.backbone(batch, queries=asked(places, size)).query
    expected = made.softmax(query).log_softmax(1)[torch.arange(1, size), torch.tensor(ids[1:])]
    torch.testing.assert_close(torch.tensor([*scored.log_probs, scored.end]), expected.cpu(), rtol=1e-4, atol=1e-5)
    assert "identity" in run.evaluator.definition(None, False) and "query stream" in run.definition()
    whole = run.continuations(["the cat sees"], [" a bird"])[0].log_prob
    assert whole == pytest.approx(sum(scored.log_probs[-2:]), abs=1e-4)


def test_it_writes_and_continues(run):
    (one,) = run.generate("the cat", max_new=6, seed=1)
    assert one.text.startswith("the cat") and one.tokens
    learner = as_left_to_right(run.learner)
    ids = [run.tokenizer.end_id, *run.tokenizer.encode("the cat"), *one.tokens]
    with torch.no_grad():
        full = learner.softmax(learner.backbone(pack([ids])).hidden).log_softmax(1)
    start = len(ids) - len(one.tokens)
    expected = full[torch.arange(start - 1, len(ids) - 1), torch.tensor(ids[start:])]
    # what is banned there, special tokens, has next to no weight here
    torch.testing.assert_close(torch.tensor(one.log_probs), expected.float(), rtol=0, atol=0.05)
    assert len(run.search("the cat", n=2, beam=2, max_new=4)) == 2


@pytest.mark.parametrize("lost", ["", "memory"])
def test_resumed_with_its_memory_it_ends_alike(lost, place, tmp_path, monkeypatch):
    """Broken off between two saves; planted: the memory begins anew."""
    settings = [*TINY, "model.dropout=0.1", "train.save_every=4", "budget={steps=12}"]
    if not (place / "unbroken").exists():
        pretrain("xlnet-tiny", place / "data", place / "unbroken", settings=settings)
    one_step, restore, done = Fit.one_step, Fit.restore, itertools.count(1)

    def fragile(fit, items):
        if next(done) == 7:
            raise ConnectionAbortedError("power cut")
        one_step(fit, items)

    def forgetful(fit):
        restore(fit)
        fit.carry = {0: fit.learner.start(fit.loader.batches.rows)}

    monkeypatch.setattr(Fit, "one_step", fragile)
    with pytest.raises(ConnectionAbortedError):
        pretrain("xlnet-tiny", place / "data", tmp_path / "run", settings=settings)
    if lost:
        monkeypatch.setattr(Fit, "restore", forgetful)
    pretrain("xlnet-tiny", place / "data", tmp_path / "run", settings=settings, resume=True)
    whole, broken = (
        (folder / "backbone.safetensors").read_bytes() for folder in (place / "unbroken", tmp_path / "run")
    )
    assert (whole == broken) == (not lost)


BAD = [
    (["model.mem_len=-1"], 2, "mem_len"),
    (["model.mem_len=2000000"], 2, "mem_len"),
    (["batches.length=0"], 2, "length"),
    (["model.eval_len=0"], 2, "eval_len"),
    (["objective.rate=0"], 2, "rate"),
    (["objective.rate=1.5"], 2, "rate"),
    (["objective.name=masked"], 2, "masked"),
    (["batches.kind=passages"], 2, "passages"),
]


@pytest.mark.parametrize(("settings", "code", "word"), BAD)
def test_bad_settings_are_one_line(settings, code, word, place, tmp_path, capsys):
    sets = [part for setting in settings for part in ("--set", setting)]
    call = ["pretrain", "xlnet-tiny", "--data", str(place / "data"), "--out", str(tmp_path / "run"), *sets]
    assert command(call) == code
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("seqloom: error:") and word in said[0]
    assert not (tmp_path / "run").exists()


def test_documents_of_one_word(tmp_path):
    (tmp_path / "words.txt").write_text("\n".join(["cat", "dog", "bird"] * 60), encoding="utf-8")
    prepare([tmp_path / "words.txt"], tmp_path / "data", tokenizer="word", valid=0.1)
    made = pretrain("xlnet-tiny", tmp_path / "data", tmp_path / "run", settings=[*TINY, "budget={steps=5}"])
    assert math.isfinite(made.evaluate(tmp_path / "data")["permuted_loss"])


def test_a_vocabulary_without_a_mask_fills_no_gaps(run, tmp_path, capsys, monkeypatch):
    loaded = load(run.folder, "cpu")
    monkeypatch.setattr(loaded.tokenizer, "mask_id", None)
    from seqloom.errors import UsageError

    with pytest.raises(UsageError, match="without a mask token"):
        loaded.fill("the [MASK]")


def test_tables_that_do_not_fit_are_refused(run, tmp_path, capsys):
    export_folder(run.folder, tmp_path / "out")
    path = tmp_path / "out" / "config.json"
    config = json.loads(path.read_text())
    for change, word in (({"n_head": 2, "d_head": 12}, "shape"), ({"d_head": 5}, "d_head"), ({"mem_len": "x"}, "mem_len"),
                         ({"attn_type": "uni"}, "attn_type")):  # fmt: skip
        path.write_text(json.dumps(config | change))
        assert command(["import", str(tmp_path / "out"), "--out", str(tmp_path / "back")]) == 4
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == 1 and word in said[0], said
    assert not (tmp_path / "back").exists()


def test_minimal_pairs_and_lambada(run, tmp_path):
    pairs = [("the cat sees a bird", "cat the sees a bird"), ("my friend likes the dog", "my likes friend the dog")]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": "x"}) for good, bad in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = run.evaluate_suite("blimp", tmp_path / "pairs.jsonl")
    assert 0 <= found["accuracy"] <= 1 and "query stream" in found["definition"]
    (tmp_path / "lambada.txt").write_text("\n".join(sentences(5)), encoding="utf-8")
    assert 0 <= run.evaluate_suite("lambada", tmp_path / "lambada.txt")["accuracy"] <= 1
