"""Tests of the tests: for every property of encoder–decoders a bug that one could write, and that must be noticed."""

import pytest
import torch

from seqloom.batch import Context, EncoderDecoder, State
from seqloom.blocks import alignment, encoder, kernels, multi_step, recurrent
from seqloom.blocks.alignment import AlignedDecoder, Alignment
from seqloom.models import bahdanau, bytenet, convs2s, gnmt, luong, seq2seq
from seqloom.models.transformer import Transformer
from tests.contract import pairs as p

ALIGNED = ["bahdanau", "luong", "luong-parallel", "gnmt", "show-attend-tell"]
RECURRENT = ["seq2seq", "seq2seq-cho", "show-tell", *ALIGNED]


def noticed(check, *arguments):
    with pytest.raises(AssertionError):
        check(*arguments)


@pytest.mark.parametrize("name", ALIGNED)
def test_one_place_too_many(name, monkeypatch):
    """The weights reach one place behind the end of a source."""
    right = alignment.lengths
    monkeypatch.setattr(alignment, "lengths", lambda context: right(context) + 1)
    noticed(p.packing, p.build(name), 0)
    noticed(p.batch_order, p.build(name), 0)
    noticed(p.shown, p.build(name), 0)


@pytest.mark.parametrize("name", ["transformer", "captioner"])
def test_one_place_too_many_of_the_transformer(name, monkeypatch):
    def visibility(batch, causal, keys, *rest):
        place = torch.arange(keys.max_len)
        if causal:
            return (place[None, :] <= place[:, None])[None, None], None
        return (place <= kernels.lengths(keys)[:, None])[:, None, None].expand(-1, 1, batch.max_len, -1), None

    monkeypatch.setattr(kernels, "visibility", visibility)
    noticed(p.packing, p.build(name), 0)
    noticed(p.shown, p.build(name), 0)


@pytest.mark.parametrize("name", ALIGNED)
def test_weights_that_do_not_sum_to_one(name, monkeypatch):
    forward = Alignment.forward

    def wrong(self, *arguments):
        seen, weights = forward(self, *arguments)
        return seen, weights / 2

    monkeypatch.setattr(Alignment, "forward", wrong)
    noticed(p.shown, p.build(name), 0)


@pytest.mark.parametrize("name", RECURRENT)
def test_missing_shift(name, monkeypatch):
    """The decoder is given the token that it should predict."""
    model = p.build(name)
    embed = type(model.decoder.embedding).forward
    monkeypatch.setattr(
        model.decoder.embedding, "forward", lambda batch: embed(model.decoder.embedding, rolled(batch)), raising=False
    )
    noticed(p.causality, model, 0)


def rolled(batch):
    return batch._replace(ids=batch.ids.roll(-1))


@pytest.mark.parametrize("name", RECURRENT)
def test_the_target_is_not_read(name, monkeypatch):
    model = p.build(name)
    embed = type(model.decoder.embedding).forward
    monkeypatch.setattr(
        model.decoder.embedding,
        "forward",
        lambda batch: embed(model.decoder.embedding, batch._replace(ids=torch.zeros_like(batch.ids))),
        raising=False,
    )
    noticed(p.causality, model, 0)


@pytest.mark.parametrize("name", ["seq2seq", "luong"])
def test_source_not_reversed_back(name, monkeypatch):
    """Right for the decoder's beginning, and the places are those of other words."""

    def forward(self, source):
        x, mirror = self.embedding(source), encoder.mirrored(source)
        output = self.stack(x[mirror], source)
        return Context(output.hidden, source.owner, source.offsets, source.max_len, output.state)

    monkeypatch.setattr(encoder.RecurrentEncoder, "forward", forward)
    noticed(p.places, p.build(name), 0)


@pytest.mark.parametrize("name", [*RECURRENT, "transformer", "captioner", "bytenet-mt", "convs2s"])
def test_a_word_of_the_source_is_lost(name, monkeypatch):
    """The encoder takes the first word for a mark of the beginning, and does not read it."""
    model = p.build(name)
    encode = type(model).encode

    def wrong(self, source):
        return encode(self, source._replace(ids=torch.where(source.positions == 0, 0, source.ids)))

    monkeypatch.setattr(type(model), "encode", wrong)
    noticed(p.every_source_token, model, 0)


@pytest.mark.parametrize("name", ALIGNED)
def test_another_source_is_looked_at(name, monkeypatch):
    read = Alignment.read

    def wrong(self, context):
        memory = read(self, context)
        return memory._replace(values=memory.values.roll(1, 0))

    monkeypatch.setattr(Alignment, "read", wrong)
    for check in (p.packing, p.batch_order, p.every_source_token):
        noticed(check, p.build(name), 0)


@pytest.mark.parametrize("name", ALIGNED)
def test_hypotheses_of_different_sources_mixed_up(name, monkeypatch):
    """Rows are taken to go round the sources in turn; with one hypothesis a source nobody would see it."""
    forward = Alignment.forward

    def wrong(self, query, keys, *rest):
        n = keys.shape[0]
        seen, weights = forward(self, query.unflatten(0, (-1, n)).transpose(0, 1).flatten(0, 1), keys, *rest)
        return tuple(part.unflatten(0, (n, -1)).transpose(0, 1).flatten(0, 1) for part in (seen, weights))

    monkeypatch.setattr(Alignment, "forward", wrong)
    noticed(p.steps, p.build(name), 0)
    noticed(p.chunks, p.build(name), 0)


@pytest.mark.parametrize("name", ["seq2seq-cho", "seq2seq-every"])
def test_summaries_of_different_sources_mixed_up(name, monkeypatch):
    write = seq2seq.ReminderDecoder.write

    def wrong(self, x, batch, state, *rest):
        (summary,) = state.shared
        each = batch.num_sequences // summary.shape[0]
        output = write(self, x, batch, State(state.own, (summary.repeat(each, 1),)), *rest)
        return output._replace(state=State(output.state.own, state.shared))

    monkeypatch.setattr(seq2seq.ReminderDecoder, "write", wrong)
    noticed(p.steps, p.build(name), 0)


@pytest.mark.parametrize("name", ["bahdanau", "luong", "gnmt"])
def test_ended_sequences_go_on_through_the_filler(name, monkeypatch):
    """The states of shorter sequences are overwritten by the empty cells behind them."""
    right = recurrent.scan

    def scan(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(
                recurrent, "lengths", lambda batch: torch.full((batch.num_sequences,), batch.max_len)
            )  # in the loop alone: the encoder is read rightly
            return right(*arguments)

    for module in (bahdanau, luong, gnmt):
        monkeypatch.setattr(module, "scan", scan)
    p.steps(p.build(name), 0)
    noticed(p.chunks, p.build(name), 0)


@pytest.mark.parametrize("name", RECURRENT)
def test_dropped_state(name, monkeypatch):
    """What the decoder remembers is not read: each step is the first."""
    model = p.build(name)
    decoder = type(model.decoder)
    forward, begin = decoder.forward, model.decoder.start

    def wrong(self, batch, *, state=None, **asked):
        if state is not None:
            rows = torch.arange(batch.num_sequences)
            fresh = begin(3, 9, model.encode(p.pack(p.sequences(0, (7, 1, 12))))).own
            each = batch.num_sequences // 3
            state = State(p.select(fresh, rows // each), state.shared)
        return forward(self, batch, state=state, **asked)

    monkeypatch.setattr(decoder, "forward", wrong)
    noticed(p.steps, model, 0)


@pytest.mark.parametrize("name", ALIGNED)
def test_weights_are_of_the_step_before(name, monkeypatch):
    """What steps show must be what the whole target shows."""
    forward = AlignedDecoder.forward

    def wrong(self, batch, **asked):
        output = forward(self, batch, **asked)
        return output._replace(cross=tuple(weights.roll(1, 0) for weights in output.cross))

    monkeypatch.setattr(AlignedDecoder, "forward", wrong)
    noticed(p.steps, p.build(name), 0)


@pytest.mark.parametrize("bug", ["filler", "source", "hypotheses"])
def test_a_bytenet_that_reads_what_is_not_its_source(bug, monkeypatch):
    """What stands behind a source is not zero, or belongs to another one; or rows go round the sources in turn."""
    model = p.build("bytenet-mt")
    found, forward = bytenet.Decoder.found, bytenet.Decoder.forward

    def in_turn(self, batch, *, state=None, **asked):
        if state is not None:
            each = batch.num_sequences // state.shared[0].shape[0]
            state = State(state.own, (state.shared[0].repeat(each, 1, 1),))
        output = forward(self, batch, state=state, **asked)
        return output if state is None else output._replace(state=State(output.state.own, (state.shared[0][:3],)))

    if bug == "hypotheses":
        monkeypatch.setattr(bytenet.Decoder, "forward", in_turn)
        noticed(p.steps, model, 0)
        return
    noise = torch.arange(24.0, dtype=torch.float64).sin()
    other = {"filler": lambda x: x + noise * (x == 0).all(-1, keepdim=True), "source": lambda x: x.roll(1, 0)}[bug]
    monkeypatch.setattr(bytenet.Decoder, "found", lambda self, context: other(found(context)))
    noticed(p.packing, model, 0)


@pytest.mark.parametrize("bug", ["scale", "values", "target"])
def test_a_look_that_is_not_the_papers(bug, monkeypatch):
    """Steps and whole targets must take the same source, the same scale, the same target's words."""
    read, forward = multi_step.read, multi_step.MultiStepAttention.forward

    def wrong(self, x, batch, seen, maps):
        if isinstance(seen.source, multi_step.Memory) and bug == "target":
            seen = seen._replace(target=seen.target * 0)
        return forward(self, x, batch, seen, maps)

    def misread(context):
        memory = read(context)
        if bug == "scale":
            return memory._replace(sizes=memory.sizes + 1)
        return memory._replace(kept=memory.kept.flip(2)) if bug == "values" else memory

    monkeypatch.setattr(multi_step.MultiStepAttention, "forward", wrong)
    monkeypatch.setattr(convs2s, "read", misread)
    noticed(p.steps, p.build("convs2s"), 0)
    noticed(p.chunks, p.build("convs2s"), 0)


@pytest.mark.parametrize("name", [*RECURRENT, "transformer", "captioner", "bytenet-mt", "convs2s"])
def test_dead_parameter(name):
    model = p.build(name)
    list(model.parameters())[-1].requires_grad_(False)
    noticed(p.every_gradient, model, 0)


@pytest.mark.parametrize("name", ["transformer", "captioner"])
def test_asking_for_weights_changes_the_output(name, monkeypatch):
    reference = kernels.reference

    def wrong(q, k, v, *rest, **options):
        out, weights = reference(q, k, v, *rest, **options)
        return out * 1.001, weights

    monkeypatch.setattr(kernels, "reference", wrong)
    noticed(p.shown, p.build(name), 0)


@pytest.mark.parametrize("name", ALIGNED)
def test_an_empty_source_that_sees_nothing(name, monkeypatch):
    read = Alignment.read

    def wrong(self, context):
        memory = read(self, context)
        return memory._replace(behind=memory.behind | (alignment.lengths(context) == 0)[:, None, None])

    monkeypatch.setattr(Alignment, "read", wrong)
    noticed(p.empty_source, p.build(name), 0)


def test_unseeded_training(monkeypatch):
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    noticed(p.repeatable, "seq2seq")


def test_an_encoder_that_does_not_learn(monkeypatch):
    """The decoder alone may learn 16 targets by heart, but not which of them is asked for."""

    def cut(self, pair, **asked):
        context = self.encode(pair.source)
        return self.decoder(pair.target, context=context._replace(hidden=context.hidden * 0), **asked)

    monkeypatch.setattr(EncoderDecoder, "forward", cut)
    noticed(p.overfits, "transformer")
    assert Transformer.forward is cut
