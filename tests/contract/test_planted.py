"""Tests of the tests: for every property a bug that one could write, and that must be noticed."""

import pytest
import torch
import torch.nn.functional as F

from seqloom.batch import Excerpt, Loss, ragged
from seqloom.blocks import convolution, grid, kernels, recurrent, softmax
from seqloom.blocks import record_gates as gated
from seqloom.blocks.cells import ElmanCell, TorchCell
from seqloom.blocks.convolution import Convolution
from seqloom.blocks.lsh import LshAttention
from seqloom.models import jordan, nnlm
from seqloom.models.ngram import Ngram
from seqloom.objectives.next_token import NextToken
from tests.contract import properties as p


def noticed(check, *arguments):
    with pytest.raises((AssertionError, RuntimeError, IndexError)):
        check(*arguments)


@pytest.fixture
def off_by_one_mask(monkeypatch):
    """A query sees one key too many."""

    def padded(q, k, v, batch, **_):
        q, k, v = (grid.to_grid(x, batch).transpose(1, 2) for x in (q, k, v))
        mask = torch.ones(batch.max_len, batch.max_len, dtype=torch.bool).tril(1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return grid.from_grid(out.transpose(1, 2), batch)

    monkeypatch.setattr(kernels, "padded", padded)


@pytest.fixture
def loop_reads_ahead(monkeypatch):
    """The recurrence reads the input of the step after."""
    inputs = TorchCell.inputs
    monkeypatch.setattr(TorchCell, "inputs", lambda cell, x: inputs(cell, x.roll(-1, 0)))
    monkeypatch.setattr(recurrent, "has_kernel", lambda cell: False)


@pytest.fixture
def borders_forgotten(monkeypatch):
    """All sequences are taken for one."""

    def one(batch):
        t = batch.ids.shape[0]
        return batch._replace(offsets=torch.tensor([0, t]), owner=torch.zeros_like(batch.owner), max_len=t)

    padded, fused = kernels.padded, recurrent.fused

    def merged(q, k, v, batch, **options):
        return padded(q, k, v, one(batch), **options | {"keys": one(batch)})

    def merged_fused(cells, x, batch, states):
        hidden, after = fused(cells, x, one(batch), [None] * len(cells))
        return hidden, [tuple(a.expand(batch.num_sequences, -1) for a in state) for state in after]

    monkeypatch.setattr(kernels, "padded", merged)
    monkeypatch.setattr(recurrent, "fused", merged_fused)
    window, layer = nnlm.Nnlm.forward, jordan.JordanLayer.forward
    monkeypatch.setattr(nnlm.Nnlm, "forward", lambda model, batch, **options: window(model, one(batch), **options))
    monkeypatch.setattr(jordan.JordanLayer, "forward", lambda self, x, batch, *rest: layer(self, x, one(batch), *rest))


@pytest.fixture
def state_dropped(monkeypatch):
    """The state that was handed in is not read."""
    fused, cached = recurrent.fused, kernels.cached
    monkeypatch.setattr(recurrent, "fused", lambda cells, x, batch, states: fused(cells, x, batch, [None] * len(cells)))

    def forgetful(qkv, batch, past, *rest):
        return cached(qkv, batch, past.zero_(), *rest)

    monkeypatch.setattr(kernels, "cached", forgetful)
    window, layer = nnlm.Nnlm.forward, jordan.JordanLayer.forward
    monkeypatch.setattr(nnlm.Nnlm, "forward", lambda model, batch, **options: window(model, batch))
    monkeypatch.setattr(
        jordan.JordanLayer, "forward", lambda self, x, batch, state, *rest: layer(self, x, batch, None, *rest)
    )


@pytest.fixture
def padding_read(monkeypatch):
    """A sequence that has ended goes on through the empty cells of the grid."""

    def fused(cells, x, batch, states):
        n, length = batch.num_sequences, batch.max_len
        full = ragged(torch.zeros(n * length, dtype=torch.long), torch.full((n,), length))
        out, after = right(cells, grid.to_grid(x, batch).flatten(0, 1), full, states)
        return grid.from_grid(out.view(n, length, -1), batch), after

    right = recurrent.fused
    monkeypatch.setattr(recurrent, "fused", fused)
    for module in (nnlm, jordan):
        monkeypatch.setattr(module, "lengths", lambda batch: torch.full((batch.num_sequences,), batch.max_len))


@pytest.fixture
def carry_attached(monkeypatch):
    monkeypatch.setattr("seqloom.objectives.next_token.detach", lambda state: state)


@pytest.fixture
def mean_loss(monkeypatch):
    """A mean where a sum belongs."""
    forward = NextToken.forward

    def mean(self, example: Excerpt, carry=None) -> Loss:
        loss = forward(self, example, carry)
        return loss._replace(total=loss.total / loss.count.clamp(min=1))

    monkeypatch.setattr(NextToken, "forward", mean)


@pytest.fixture
def ignored_places_counted(monkeypatch):
    monkeypatch.setattr(softmax, "IGNORE", -1)


@pytest.mark.parametrize("name", ["gpt", "gpt2"])
def test_mask_off_by_one(off_by_one_mask, name):
    noticed(p.causality, p.build(name), 0)


def test_recurrence_that_reads_ahead(loop_reads_ahead):
    noticed(p.causality, p.build("lstm"), 0)


@pytest.mark.parametrize(
    "name", ["nnlm", "jordan", "rnn", "irnn", "gru", "lstm", "awd-lstm", "big-lstm", "gpt", "gpt2"]
)
def test_forgotten_borders(borders_forgotten, name):
    noticed(p.packing, p.build(name), 0)
    noticed(p.batch_order, p.build(name), 0)


@pytest.mark.parametrize("name", ["nnlm", "jordan", "rnn", "gru", "lstm", "awd-lstm", "big-lstm", "gpt", "gpt2"])
def test_dropped_state(state_dropped, name):
    noticed(p.steps, p.build(name), 0)
    noticed(p.chunks, p.build(name), 0)


@pytest.mark.parametrize("bug", ["borders", "state", "ahead", "filler"])
@pytest.mark.parametrize("name", ["bytenet", "bytenet-wide"])
def test_convolutions_over_what_is_not_theirs(name, bug, monkeypatch):
    """A filter stands over another sequence's tokens, forgets those before, stands over the next one, or remembers filler."""
    forward, lengths = Convolution.forward, convolution.lengths

    def wrong(self, x, batch, state=None):
        if bug == "state":
            state = None
        elif bug == "ahead":
            x = x + x.roll(-1, 0)
        elif bug == "borders":
            x = x + 0.1 * x.roll(1, 0)
        return forward(self, x, batch, state)

    monkeypatch.setattr(Convolution, "forward", wrong)
    if bug == "filler":
        monkeypatch.setattr(convolution, "lengths", lambda batch: torch.full_like(lengths(batch), batch.max_len))
    checks = {
        "borders": (p.packing, p.batch_order),
        "state": (p.steps, p.chunks),
        "ahead": (p.causality,),
        "filler": (p.chunks,),
    }
    for check in checks[bug]:
        noticed(check, p.build(name), 0)


@pytest.mark.parametrize("bug", ["borders", "state", "ahead", "rank"])
def test_buckets_over_what_is_not_theirs(bug, monkeypatch):
    """Buckets over all sequences, forgotten ones, chunks by the sort of a whole text, one token fewer of a bucket."""
    look, over_kept = LshAttention.look, LshAttention.over_kept

    def wrong(self, x, batch, *rest):
        if bug == "ahead":
            self.order = "published"
        if bug == "borders":
            t = batch.ids.shape[0]
            batch = batch._replace(offsets=torch.tensor([0, t]), owner=torch.zeros_like(batch.owner), max_len=t)
        if bug == "rank":
            self.chunk -= 1
        try:
            return look(self, x, batch, *rest)
        finally:
            self.chunk += bug == "rank"

    def forgetful(self, q, kv, buckets, *rest):
        return over_kept(self, q, kv, buckets * 0 if bug == "state" else buckets, *rest)

    monkeypatch.setattr(LshAttention, "look", wrong)
    monkeypatch.setattr(LshAttention, "over_kept", forgetful)
    checks = {"borders": (p.packing, p.batch_order), "state": (p.steps, p.chunks), "ahead": (p.causality,)}
    for check in checks.get(bug, (p.steps, p.chunks)):
        noticed(check, p.build("reformer"), 0)


@pytest.mark.parametrize("bug", ["borders", "state", "ahead"])
def test_runs_of_words_that_are_not_its_own(bug, monkeypatch):
    """The n-gram model goes on from another sequence's words, forgets its own, or reads the next one."""
    forward = Ngram.forward

    def wrong(model, batch, *, state=None, **asked):
        if bug == "state":
            return forward(model, batch, **asked)
        if bug == "ahead":
            return forward(model, batch._replace(ids=batch.ids.roll(-1)), **asked)
        t = batch.ids.shape[0]
        one = batch._replace(offsets=torch.tensor([0, t]), owner=torch.zeros_like(batch.owner), max_len=t)
        output = forward(model, one, **asked)
        return output._replace(state=p.select(output.state, torch.zeros(batch.num_sequences, dtype=torch.long)))

    monkeypatch.setattr(Ngram, "forward", wrong)
    checks = {"borders": (p.packing, p.batch_order), "state": (p.steps, p.chunks), "ahead": (p.causality,)}
    for check in checks[bug]:
        noticed(check, p.build("ngram"), 0)


@pytest.mark.parametrize("name", ["nnlm", "jordan", "rnn", "gru", "lstm", "awd-lstm", "big-lstm"])
def test_padding_that_is_read(padding_read, name):
    noticed(p.chunks, p.build(name), 0)


def test_positions_counted_from_the_chunk(monkeypatch):
    model = p.build("gpt2")
    lookup = model.embedding.positions.forward

    def relative(batch):
        column = torch.arange(batch.ids.shape[0]) - batch.offsets[:-1].long()[batch.owner]
        return lookup(batch._replace(positions=column))

    monkeypatch.setattr(model.embedding.positions, "forward", relative)
    noticed(p.steps, model, 0)


@pytest.mark.parametrize("name", ["jordan", "rnn", "gru", "lstm", "awd-lstm", "big-lstm", "transformer-xl", "bytenet"])
def test_gradient_past_the_segment(carry_attached, name):
    noticed(p.segment_gradient, p.build(name), 0)


def test_dead_parameter():
    model = p.build("gpt2")
    model.stack.layers[1].ffn.down.weight.requires_grad_(False)
    noticed(p.every_gradient, model, 0)


def test_wrong_initial_scale(monkeypatch):
    model = p.build("gpt2")
    monkeypatch.setattr(model, "init_weights", lambda: torch.nn.init.normal_(model.table.weight, std=2.0))
    noticed(p.initial_loss, model, 0)


def test_ignored_places_counted(ignored_places_counted):
    noticed(p.all_ignored, p.build("gpt2"), 0)


def test_step_without_targets(monkeypatch):
    """Weight decay moves the weights even where nothing was to be learnt."""
    monkeypatch.setattr(p, "step", lambda optimizer, count, clip: optimizer.step())
    noticed(p.all_ignored, p.build("gpt2"), 0)


def test_mean_instead_of_sum(mean_loss):
    noticed(p.accumulation, p.build("gpt2"), 0)


def test_reference_kernel_that_differs(monkeypatch):
    monkeypatch.setattr(
        kernels,
        "visibility",
        lambda batch, _, keys, *rest: (torch.ones(1, 1, batch.max_len, keys.max_len).bool(), None),
    )
    noticed(p.shown, p.build("gpt2"), 0)


def test_loop_that_differs_from_the_kernel(monkeypatch):
    step = ElmanCell.step

    def stronger(cell, x, state):
        (h,), gates = step(cell, x, state)
        return (1.01 * h,), gates

    monkeypatch.setattr(ElmanCell, "step", stronger)
    noticed(p.shown, p.build("rnn"), 0)


def test_gates_that_differ_from_the_kernel(monkeypatch):
    step, back = gated.STEPS["gru"]

    def stronger(x, u, cell):
        held, h, gates = step(x, u, cell)
        return held, 1.01 * h, gates

    monkeypatch.setitem(gated.STEPS, "gru", (stronger, back))
    gated.steps_of.cache_clear()
    noticed(p.shown, p.build("gru"), 0)
    gated.steps_of.cache_clear()


def test_unseeded_step(monkeypatch):
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    noticed(p.repeatable, "gpt2")


def test_learning_rate_of_zero(monkeypatch):
    monkeypatch.setattr(p, "step", lambda optimizer, count, clip: optimizer.zero_grad())
    noticed(p.overfits, "lstm")
