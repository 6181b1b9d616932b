"""Filters against explicit neighbours, how far stacks of them see, and the scales of ConvS2S."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqloom.analyse.saliency import Question, value_at
from seqloom.batch import Output, Sizes, pack
from seqloom.blocks import convolution, multi_step
from seqloom.blocks.convolution import Convolution
from seqloom.cost import total
from seqloom.models.bytenet import lengthen
from tests.contract import pairs
from tests.contract import properties as p

LENGTHS = (7, 1, 12, 4)


def by_hand(layer, x, lengths):
    """One token at a time, over its neighbours."""
    weight, out, begin = layer.filters.weight.view(-1, layer.width, layer.dim), [], 0
    for length in lengths:
        for t in range(length):
            y = layer.filters.bias.clone()
            for i in range(layer.width):
                s = t - layer.before + i * layer.dilation
                if 0 <= s < length:
                    y = y + weight[:, i] @ x[begin + s]
            out.append(y)
        begin += length
    return torch.stack(out)


def built(width, dilation, causal):
    torch.manual_seed(0)
    return Convolution(5, 6, width, dilation, causal).double()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("width", "dilation"), [(1, 1), (2, 1), (3, 1), (3, 2), (4, 3), (5, 8)])
def test_equals_explicit_neighbours(width, dilation, causal):
    layer = built(width, dilation, causal)
    x = torch.randn(sum(LENGTHS), 5, dtype=torch.float64, requires_grad=True)
    batch = pack([[0] * n for n in LENGTHS])
    mine, theirs = layer(x, batch)[0], by_hand(layer, x, LENGTHS)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    weights = torch.randn_like(mine)
    of = (x, *layer.parameters())
    for a, b in zip(
        torch.autograd.grad((mine * weights).sum(), of), torch.autograd.grad((theirs * weights).sum(), of), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def sees_exactly(model, reach):
    """A token that stands reach − 1 before the last one moves it, and one before that does not."""
    text = p.sequences(0, (reach + 3,))[0]
    last = model(pack([text])).hidden[-1]

    def moved(back):
        other = list(text)
        other[-1 - back] = (other[-1 - back] + 1) % p.VOCAB
        return (model(pack([other])).hidden[-1] - last).abs().max().item()

    assert moved(reach - 1) > 0, "it does not see as far as it should"
    assert moved(reach) == 0, "it sees farther than it should"


@pytest.mark.parametrize("name", ["bytenet", "bytenet-wide", "bytenet-words"])
@torch.no_grad()
def test_receptive_field_is_exact_at_both_ends(name):
    model = p.build(name)
    expected = {"bytenet": 1 + 2 * (1 + 2 + 4 + 1), "bytenet-wide": 1 + 4 * (1 + 3), "bytenet-words": 1}[name]
    assert model.receptive_field == expected
    sees_exactly(model, expected)


@torch.no_grad()
def test_planted_reach_is_noticed(monkeypatch):
    model = p.build("bytenet")
    for wrong in (model.receptive_field - 1, model.receptive_field + 1):
        with pytest.raises(AssertionError):
            sees_exactly(model, wrong)


@torch.no_grad()
def test_an_encoder_sees_as_far_on_both_sides():
    """Half the span of its filters, which is 1 + 2 + 4 + 8 tokens of width 3."""
    model = pairs.build("bytenet-mt")
    text = p.sequences(0, (40,))[0]
    before = model.encode(pack([text])).hidden
    for s in (3, 20):
        other = [(token + 1) % p.VOCAB if i == s else token for i, token in enumerate(text)]
        moved = (model.encode(pack([other])).hidden - before).abs().amax(1).nonzero().flatten().tolist()
        assert moved == list(range(max(0, s - 15), min(48, s + 16)))


@torch.no_grad()
def test_a_source_goes_on_behind_its_end():
    texts = p.sequences(0, (5, 1, 10, 0, 4))
    batch, token, inside = lengthen(pack(texts), 1200)
    sizes = batch.offsets.diff().tolist()
    assert sizes[:5] == [6, 1, 12, 0, 4] and sum(sizes) == len(batch.ids) == 24 and max(sizes) <= batch.max_len
    assert batch.ids[inside].tolist() == [i for text in texts for i in text]
    assert token[inside].tolist() == list(range(20))
    assert inside.tolist() == [*[True] * 5, False, True, *[True] * 10, False, False, *[True] * 4, False]
    same, _, all_inside = lengthen(pack(texts), 1000)
    assert torch.equal(same.ids, pack(texts).ids) and bool(all_inside.all())


@torch.no_grad()
def test_what_a_source_hangs_on_can_be_asked():
    """Its tokens are embedded once, without what stands behind them: saliency gates each of them there."""
    model = pairs.build("bytenet-mt")
    source, target = [5, 6, 7, 8, 9, 5], [3, 4]
    pair = pairs.joined([(source, target)])
    answer = lambda: model(pair).hidden[-1].sum()  # noqa: E731
    question = Question([*map(str, source)], np.ones(6, bool), model.encoder.embedding, answer, "planted")
    assert value_at(question, np.ones(6)) == float(answer())
    gates = np.array([1, 0, 1, 1, 1, 1.0])
    model.encoder.embedding.token.weight[6] = 0
    without = float(answer())
    model.encoder.embedding.token.weight[6] = 1
    assert value_at(question, gates) == without != float(answer())


@torch.no_grad()
def test_the_decoder_reads_behind_the_source_then_zeros():
    """A source of 5 tokens can be read at 6 places; at the seventh the source's length is all that is left of it."""
    model = pairs.build("bytenet-mt")
    context = model.encode(pack([[5, 6, 7, 8, 9]]))
    assert context.hidden.shape[0] == 6 and bool((context.hidden.abs().sum(1) > 0).all())
    pair = pairs.joined([([5, 6, 7, 8, 9], list(range(12)))])
    model.decoder.stack.forward = lambda x, *_: Output(x)
    plain = model.decoder.embedding(pair.target)
    seen = (model(pair).hidden - plain).abs().sum(1) > 0
    assert seen.tolist() == [True] * 6 + [False] * 6


def test_weights_begin_in_scale():
    """Rows of a matrix have the length that its init gives, with the direction apart; a GLU's input has twice the deviation."""
    torch.manual_seed(0)
    model = pairs.build("convs2s", dim=64, encoder_layers=((128, 3),), decoder_layers=((128, 3),), dropout=0.0)
    model.init_weights()
    filters = model.encoder.stack.layers[0].convolution.filters
    assert filters.weight.std().item() == pytest.approx((4 / (3 * 128)) ** 0.5, rel=0.05)
    assert model.encoder.enter.weight.std().item() == pytest.approx((1 / 64) ** 0.5, rel=0.05)
    length, direction = filters.parametrizations.weight.original0, filters.parametrizations.weight.original1
    torch.testing.assert_close(filters.weight, length * direction / direction.norm(dim=1, keepdim=True))


def test_variances_stay_in_scale():
    """√½ for every sum: what layers give is about as large as what they read, however many there are."""
    torch.manual_seed(0)
    sizes = {"encoder_layers": ((128, 3),) * 12, "decoder_layers": ((128, 3),) * 12}
    model = pairs.build("convs2s", dim=128, **sizes)
    model.init_weights()
    output = model(pairs.joined(pairs.texts(0, (20,) * 4, (20,) * 4)), layers=True)
    first, last = output.layers[1].std().item(), output.layers[-1].std().item()
    assert 0.3 < last / first < 3


def test_gradients_of_the_encoder_are_divided_by_the_looks():
    model = pairs.build("convs2s").train()
    pair = pairs.joined(pairs.texts(0, (5, 3), (4, 6)))

    def gradients(looks):
        model.zero_grad()
        model.encoder.looks = looks
        model(pair).hidden.sum().backward()
        return [model.encoder.leave.bias.grad.clone(), model.decoder.leave.bias.grad.clone()]

    (one, same), (half, again) = gradients(1), gradients(2)
    torch.testing.assert_close(half, one / 2)
    torch.testing.assert_close(same, again)


def test_a_look_by_hand():
    """One target token, one layer: softmax((W h + b + g) √½ · z) over (z + e) √½, by √m and W′."""
    model = pairs.build("convs2s")
    source, x = p.sequences(0, (6,))[0], torch.randn(1, 20, dtype=torch.float64)
    look, context = model.decoder.stack.layers[0].attention, model.encode(pack([source]))
    target = torch.randn(1, 24, dtype=torch.float64)
    seen, weights = look(x, pack([[0]]), multi_step.Seen(target, context), True)
    z, value = context.hidden.chunk(2, 1)
    query = (look.query(x) + target) * 0.5**0.5
    shares = (query @ z.T).softmax(1)
    torch.testing.assert_close(seen, look.out(shares @ value * 6**0.5))
    torch.testing.assert_close(weights[0], shares)


def test_receptive_field_by_formula():
    assert convolution.receptive_field([Convolution(1, 1, 3, d) for d in (1, 2, 4, 8, 16)] * 6) == 373


def test_cost_of_a_step_is_that_of_its_filters():
    """With a state as without: one product for each token."""
    model = p.build("bytenet")
    texts = p.sequences(0, (1, 1, 1))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(pack(texts), state=model.start(3, 9))
    assert total(model).forward(Sizes(3, 3, 3, 3, lengths=(1,) * 3)) == counter.get_total_flops()
