"""Streams that begin anew with every document: what is learnt from is each document alone, however batches cut it."""

import pytest
import torch
from torch.utils import _pytree as pytree

from seqloom.batch import Excerpt, Joints, select
from seqloom.batches.plan import Pieces, StreamPlan, Streams, excerpt
from seqloom.evaluate.perplexity import perplexity
from seqloom.objectives import next_token
from seqloom.objectives.regularized import Regularized
from seqloom.objectives.scheduled import ScheduledSampling
from tests.contract.properties import NEURAL, build, learner_of
from tests.corpus import END, MemorySplit, numbered_corpus, random_corpus

CARRIED = [name for name in NEURAL if build(name).carries]
STREAMS, LENGTH = 3, 8


def alone(learner, plan):
    """The summed loss of each document as far as it lies in a stream, from no state, in one pass."""
    total = 0.0
    for stream in range(plan.streams):
        begin = plan.phase + stream * plan.stride
        pieces = plan._run(begin, begin + int(plan.borders[-1]))
        for start, length in zip(pieces.starts, pieces.lengths, strict=True):
            piece = Pieces(*(torch.tensor([value]).numpy() for value in (start, length, 0)))
            total += float(learner.losses(excerpt(plan.split, piece, int(length)))[0].sum())
    return total


def equals_documents_alone(name, vary=False, make=learner_of):
    learner, split = make(build(name)), random_corpus(3, 40, 25)
    plan = Streams(split, STREAMS, 12 if vary else LENGTH, vary, reset=True).plan(0, 1)
    carry, total, count = learner.start(STREAMS), 0.0, 0
    with torch.no_grad():
        for i in range(len(plan)):
            loss = learner(plan.batch(i), carry)
            total, count, carry = total + float(loss.total), count + int(loss.count), loss.carry
        assert count == STREAMS * int(plan.borders[-1])
        assert total == pytest.approx(alone(learner, plan), rel=1e-10)


@pytest.mark.parametrize("name", CARRIED)
def test_streams_are_documents_alone(name):
    equals_documents_alone(name)


def test_streams_of_varying_length_are_documents_alone():
    equals_documents_alone("awd-lstm", vary=True)


@pytest.mark.parametrize("kind", [Regularized, ScheduledSampling])
def test_every_objective_of_streams(kind):
    """Outside training they are the loss of the next token; in training they take the same states in and give them out."""

    def make(model):
        return kind(model, kind.Config(bias=True)).to(torch.float64).eval()

    equals_documents_alone("lstm", make=make)
    learner, plan = make(build("lstm")), Streams(random_corpus(3, 40, 25), STREAMS, LENGTH, reset=True).plan(0, 0)
    learner.advance(1.0)
    learner.train()
    carry = learner.start(STREAMS)
    for i in range(4):
        carry = learner(plan.batch(i), carry).carry
        assert all(leaf.shape[0] == STREAMS and leaf.grad_fn is None for leaf in pytree.tree_leaves(carry))


def test_one_document_is_carried_on_as_without_reset():
    """Within a document nothing changes: the same batches, to the last bit."""
    split, learner = random_corpus(3, 1, 3000), learner_of(build("lstm"))
    losses = []
    for reset in (False, True):
        plan, carry = Streams(split, STREAMS, LENGTH, reset=reset).plan(0, 0), learner.start(STREAMS)
        for i in range(min(len(plan), 5)):
            loss = learner(plan.batch(i), carry)
            carry = loss.carry
        losses.append(loss.total.item())
    assert losses[0] == losses[1]


def gradient_stays_in_the_document():
    """No token of a stream has a gradient from the loss of another document."""
    learner, split = learner_of(build("gru")), random_corpus(5, 60, 9)
    plan = Streams(split, STREAMS, 24, reset=True).plan(0, 0)
    example, seen = plan.batch(0), []
    learner.backbone.embedding.register_forward_hook(lambda module, given, x: seen.append(x) or x.retain_grad())
    hidden = learner.backbone(example.batch, state=learner.state_before(example, learner.start(STREAMS))).hidden
    owner = example.batch.owner
    assert owner.max() > STREAMS
    for document in owner.unique():
        (gradient,) = torch.autograd.grad(hidden[owner == document].square().sum(), seen[0], retain_graph=True)
        assert gradient[owner == document].any() and not gradient[owner != document].any()


def test_no_gradient_passes_the_border_of_a_document():
    gradient_stays_in_the_document()


def test_validation_begins_documents_as_training_does():
    """One stream, one batch an epoch's worth: the loss of training is that of the measurement."""
    split = MemorySplit([[3, 4, 5], [6, 7], [8, 9, 3, 4, 6], []])
    learner = learner_of(build("lstm"))
    streams = Streams(split, 1, split.num_tokens, reset=True)
    loss = learner(streams.plan(0, 0).batch(0), learner.start(1))
    assert loss.total.item() / split.num_tokens == pytest.approx(
        perplexity(learner, split, torch.device("cpu"))["loss"], rel=1e-10
    )


def test_shapes_are_few_and_sequences_are_documents():
    split = numbered_corpus(1, 400, 60)
    plan = Streams(split, 8, 32, reset=True).plan(0, 0)
    shapes = set()
    for i in range(len(plan)):
        example = plan.batch(i)
        batch, joints = example.batch, example.joints
        assert batch.ids.shape == (8 * 32,) and (batch.max_len % 8, (batch.num_sequences - 8) % 2) == (0, 0)
        shapes.add((batch.max_len, batch.num_sequences))
        # only a sequence's last token may end a document, and only those that go on begin within one
        ends = (example.targets == END).nonzero().flatten() + 1
        assert torch.isin(ends, batch.offsets).all()
        starts = batch.offsets[:-1].long()[: int(batch.owner.max()) + 1]
        inside = batch.positions[starts] > 0
        assert torch.equal(inside.nonzero().flatten(), joints.first[joints.goes_on])
    assert len(shapes) < 16


def keep_the_state(fresh, carried, joints):
    return pytree.tree_map(lambda new, old: new.index_copy(0, joints.first, old.to(new.dtype)), fresh, carried)


PLANTED = {
    "a document that begins with a batch gets the state of the one before": (
        next_token,
        "join_streams",
        keep_the_state,
    ),
    "nothing is carried": (next_token, "join_streams", lambda fresh, carried, joints: fresh),
    "the first document's state is carried": (
        next_token.LeftToRight,
        "state_after",
        lambda self, example, output: select(output.state, example.joints.first),
    ),
    "rows are not parted": (
        StreamPlan,
        "_by_document",
        lambda self, pieces, counts, length: row_by_row(excerpt(self.split, pieces, length), self.streams, length),
    ),
}


def row_by_row(read, n, length):
    offsets = torch.arange(0, n * length + 1, length, dtype=torch.int32)
    batch = read.batch._replace(owner=torch.arange(n).repeat_interleave(length), offsets=offsets, max_len=length)
    rows = torch.arange(n)
    return Excerpt(batch, read.targets, Joints(rows, rows, torch.ones(n, dtype=torch.bool)))


@pytest.mark.parametrize("name", PLANTED)
def test_planted_states_across_documents_are_noticed(name, monkeypatch):
    monkeypatch.setattr(*PLANTED[name])
    with pytest.raises(AssertionError):
        equals_documents_alone("lstm")


def test_planted_rows_that_are_not_parted_pass_gradients(monkeypatch):
    monkeypatch.setattr(*PLANTED["rows are not parted"])
    with pytest.raises(AssertionError):
        gradient_stays_in_the_document()
