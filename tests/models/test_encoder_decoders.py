"""Recurrent encoder–decoders equal plain implementations: one sentence, one step, one formula at a time."""

import pytest
import torch
from torch import nn

from seqloom.models import model_class
from seqloom.models.index import PARAMETERS
from tests.contract.pairs import build, encoder_decoders, joined, texts

SIZES = ((7, 1, 12, 2), (5, 9, 1, 3))


def lstm(cell, x, state):
    """One step of a cell of ours by its published formulas, written apart from the blocks."""
    k = cell.kernel
    i, f, g, o = (k.weight_ih_l0 @ x + k.bias_ih_l0 + k.weight_hh_l0 @ state[0] + k.bias_hh_l0).chunk(4)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru(cell, x, state):
    k = cell.kernel
    (xr, xz, xn) = (k.weight_ih_l0 @ x + k.bias_ih_l0).chunk(3)
    (hr, hz, hn) = (k.weight_hh_l0 @ state[0] + k.bias_hh_l0).chunk(3)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return ((1 - z) * torch.tanh(xn + r * hn) + z * state[0],)


def run(step, cell, xs, state):
    out = []
    for x in xs:
        state = step(cell, x, state)
        out.append(state[0])
    return torch.stack(out), state


def zeros(dim, parts):
    return tuple(torch.zeros(dim, dtype=torch.float64) for _ in range(parts))


def additive(score, query, hidden):
    weigh, q, k = score.weigh, score.query.weight, score.key.weight
    return torch.softmax(torch.stack([weigh @ torch.tanh(q @ query + k @ h) for h in hidden]), 0)


def maxout(layer, x):
    pieces = layer.pieces.weight @ x + layer.pieces.bias
    half = len(pieces) // 2
    return torch.stack([torch.maximum(pieces[i], pieces[half + i]) for i in range(half)])


@torch.no_grad()
def check(name, plain, **changes):
    """`plain(model, source vectors, target vectors)` → hidden and weights of one pair, against the packed batch."""
    model = build(name, **changes)
    pairs = texts(0, *SIZES)
    output = model(joined(pairs), maps=model.aligned)
    at = 0
    for source, target in pairs:
        read = model.encoder.embedding.token.weight[source]
        hidden, weights = plain(model, read, model.decoder.embedding.token.weight[target])
        here = slice(at, at + len(target))
        torch.testing.assert_close(output.hidden[here], hidden, rtol=0, atol=1e-12)
        if model.aligned:
            torch.testing.assert_close(output.cross[0][here, 0, : len(source)], weights, rtol=0, atol=1e-12)
        at += len(target)


@torch.no_grad()
@pytest.mark.parametrize(("name", "kind"), [("seq2seq", nn.LSTM), ("seq2seq-gru", nn.GRU)])
def test_seq2seq_equals_torch(name, kind):
    """Deep layers over the reversed source, whose last states begin the decoder's layers."""
    model = build(name)
    halves = []
    for half in (model.encoder, model.decoder):
        theirs = kind(24, 24, num_layers=2).double()
        for i, layer in enumerate(half.stack.layers):
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(theirs, f"{part}_l{i}").copy_(getattr(layer.cell.kernel, f"{part}_l0"))
        halves.append(theirs)
    pairs = texts(0, *SIZES)
    output, context = model(joined(pairs)).hidden, model.encode(joined(pairs).source)
    for i, (source, target) in enumerate(pairs):
        read, state = halves[0](model.encoder.embedding.token.weight[source[::-1]])
        expected, _ = halves[1](model.decoder.embedding.token.weight[target], state)
        here = joined(pairs).target.owner == i
        torch.testing.assert_close(output[here], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(context.hidden[context.owner == i], read.flip(0), rtol=0, atol=1e-12)


def test_cho():
    """The summary at every step, and a maxout layer over state, summary and token."""

    def plain(model, source, target):
        (reader,), (writer,) = model.encoder.stack.layers, model.decoder.stack.layers
        _, state = run(gru, reader.cell, source, zeros(24, 1))
        c, out = state[0], []
        for y in target:
            state = gru(writer.cell, torch.cat((y, c)), state)
            out.append(maxout(model.decoder.readout, torch.cat((state[0], c, y))))
        return torch.stack(out), None

    check("seq2seq-cho", plain)


@pytest.mark.parametrize(
    ("name", "step", "parts"), [("bahdanau", gru, 1), ("bahdanau-lstm", lstm, 2), ("bahdanau-wide", gru, 1)]
)
def test_bahdanau(name, step, parts):
    """What the state before sees enters the step."""

    def plain(model, source, target):
        (both,), decoder = model.encoder.stack.layers, model.decoder
        half = both.ahead.cell.kernel.hidden_size
        ahead, _ = run(step, both.ahead.cell, source, zeros(half, parts))
        back, last = run(step, both.back.cell, source.flip(0), zeros(half, parts))
        hidden = torch.cat((ahead, back.flip(0)), dim=1)
        state = (torch.tanh(decoder.first.weight @ last[0] + decoder.first.bias), *zeros(24, parts - 1))
        cell, out, weights = decoder.cell, [], []
        for y in target:
            shares = additive(cell.alignment.score, state[0], hidden)
            c = shares @ hidden
            state = fed_step(step, cell.cell, y, c, cell.feed.weight, state)
            out.append(maxout(decoder.readout, torch.cat((state[0], c, y))))
            weights.append(shares)
        return torch.stack(out), torch.stack(weights)

    check(name, plain)


def fed_step(step, cell, x, extra, matrix, state):
    """A step that reads [x ; extra]: the two halves of its input matrix are kept apart in ours."""

    class Whole:
        class kernel:  # noqa: N801
            weight_ih_l0 = torch.cat((cell.kernel.weight_ih_l0, matrix), dim=1)
            bias_ih_l0, weight_hh_l0, bias_hh_l0 = (
                cell.kernel.bias_ih_l0,
                cell.kernel.weight_hh_l0,
                cell.kernel.bias_hh_l0,
            )

    return step(Whole, torch.cat((x, extra)), state)


@pytest.mark.parametrize("feeding", [True, False], ids=["fed", "parallel"])
def test_luong(feeding):
    """The top state looks, h̃ = tanh(W [c ; h]) predicts, and with input feeding the next step reads it."""

    def plain(model, source, target):
        states, x = [], source.flip(0)
        for layer in model.encoder.stack.layers:
            x, last = run(lstm, layer.cell, x, zeros(24, 2))
            states.append(last)
        hidden, cell = x.flip(0), model.decoder.cell
        attentional, out, weights = zeros(24, 1)[0], [], []
        for y in target:
            for i, layer in enumerate(cell.stack.layers):
                if i == 0 and feeding:
                    states[i] = fed_step(lstm, layer.cell, y, attentional, cell.feed.weight, states[i])
                else:
                    states[i] = lstm(layer.cell, y if i == 0 else states[i - 1][0], states[i])
            h = states[-1][0]
            shares = torch.softmax(hidden @ cell.alignment.score.key.weight.T @ h, 0)
            attentional = torch.tanh(cell.combine.weight @ torch.cat((shares @ hidden, h)))
            out.append(attentional)
            weights.append(shares)
        return torch.stack(out), torch.stack(weights)

    check("luong", plain, input_feeding=feeding)


def test_gnmt():
    """Two directions at the bottom, residual from the third layer on, and all layers read what the bottom one sees."""

    def plain(model, source, target):
        both, *upper = model.encoder.stack.layers
        ahead, _ = run(lstm, both.ahead.cell, source, zeros(24, 2))
        back, _ = run(lstm, both.back.cell, source.flip(0), zeros(24, 2))
        x = torch.cat((ahead, back.flip(0)), dim=1)
        for i, layer in enumerate(upper):
            read, _ = run(lstm, layer.layer.cell if i else layer.cell, x, zeros(24, 2))
            x = x + read if i else read
        hidden, cell = x, model.decoder.cell
        states, out, weights = [zeros(24, 2) for _ in range(4)], [], []
        for y in target:
            shares = additive(cell.alignment.score, states[0][0], hidden)
            c = shares @ hidden
            states[0] = fed_step(lstm, cell.cell, y, c, cell.feed.weight, states[0])
            x = states[0][0]
            for i, layer in enumerate(model.decoder.upper.layers, start=1):
                states[i] = lstm(layer.layer.cell if i > 1 else layer.cell, torch.cat((x, c)), states[i])
                x = x + states[i][0] if i > 1 else states[i][0]
            out.append(x)
            weights.append(shares)
        return torch.stack(out), torch.stack(weights)

    check("gnmt", plain)


def test_planted_wrong_order_of_attention_is_noticed(monkeypatch):
    """Bahdanau's state looks before the step; after it would be Luong's."""
    from seqloom.blocks.alignment import AlignedCell

    def after(self, x, state, *memory):
        h, seen = state[0][:, : self.dim], state[0][:, self.dim :]
        (h, *rest), _ = self.cell.step(x + self.feed(seen), (h, *state[1:]))
        seen, weights = self.alignment(h, *memory)
        return (torch.cat((h, seen), dim=1), *rest), (weights,)

    monkeypatch.setattr(AlignedCell, "step", after)
    with pytest.raises(AssertionError):
        test_bahdanau("bahdanau", gru, 1)


@pytest.mark.parametrize("name", encoder_decoders())
def test_presets(name):
    cls = model_class(name)
    assert {"tiny", "small"} < set(cls.presets)
    sizes = {}
    for preset, values in cls.presets.items():
        with torch.device("meta"):
            model = cls(cls.Config(**({"vocab_size": 2000} | values)))
        sizes[preset] = sum(parameter.numel() for parameter in model.parameters())
        table = model.table
        assert table is not None and table.num_embeddings == model.vocab_size
        if preset in ("tiny", "small"):
            shares = cls.recipe(preset).get("task", {}).get("tie", True)
            assert table.embedding_dim == model.dim or not shares, "an output layer cannot share the embeddings"
    assert sizes.pop("tiny") <= 1_000_000 <= min(sizes.values())


def test_published_sizes():
    """384M in Sutskever et al.: 160,000 words of the source and 80,000 of the target, with an output layer of its own."""
    assert PARAMETERS["seq2seq"]["sutskever-2014"] == pytest.approx(384e6, rel=0.001)
    cls = model_class("seq2seq")
    with torch.device("meta"):
        model = cls(cls.Config(**cls.presets["sutskever-2014"]))
    layers = [p for name, p in model.named_parameters() if "stack" in name]
    assert sum(p.numel() for p in layers) == pytest.approx(64e6, rel=0.01), "the paper: 64M are recurrent connections"
