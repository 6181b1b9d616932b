"""Recurrent layers equal torch.nn.RNN, GRU and LSTM with the same weights; the loop equals the kernel; gates add up."""

import sys
from functools import partial

import pytest
import torch
from torch import nn

from seqloom.batch import State, pack
from seqloom.blocks import recurrent
from seqloom.blocks.cells import ElmanCell, GruCell, LstmCell, ResetFirstGruCell
from seqloom.blocks.record_gates import STEPS, steps_of
from seqloom.blocks.recurrent import Bidirectional, RecurrentLayer, RecurrentStack, fused, gated, mirrored, scan

IN, D, LAYERS = 12, 16, 3
KINDS = {
    "tanh": (lambda i: ElmanCell(i, D), lambda i: nn.RNN(i, D, LAYERS, batch_first=True)),
    "relu": (lambda i: ElmanCell(i, D, "relu"), lambda i: nn.RNN(i, D, LAYERS, nonlinearity="relu", batch_first=True)),
    "gru": (lambda i: GruCell(i, D), lambda i: nn.GRU(i, D, LAYERS, batch_first=True)),
    "lstm": (lambda i: LstmCell(i, D), lambda i: nn.LSTM(i, D, LAYERS, batch_first=True)),
    "projected": (lambda i: LstmCell(i, 2 * D, D), lambda i: nn.LSTM(i, 2 * D, LAYERS, proj_size=D, batch_first=True)),
}


def pair(kind, width):
    """Our stack and torch's module, with the same weights, in float64. Only layers of one shape run in one call."""
    torch.manual_seed(0)
    make, reference = KINDS[kind]
    theirs = reference(width).double()
    ours = RecurrentStack([RecurrentLayer(make(width if i == 0 else D)) for i in range(LAYERS)]).double()
    assert ours.is_plain() == (width == D)
    for i, layer in enumerate(ours.layers):
        for name, parameter in layer.cell.kernel.named_parameters():
            parameter.data.copy_(getattr(theirs, name.replace("_l0", f"_l{i}")))
    return ours, theirs


@pytest.mark.parametrize("maps", [False, True], ids=["kernel", "loop"])
@pytest.mark.parametrize("width", [IN, D], ids=["layer by layer", "one call"])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_torch(kind, width, maps):
    ours, theirs = pair(kind, width)
    x = torch.randn(4, 9, width, dtype=torch.float64)
    batch = pack([[0] * 9] * 4)
    expected, final = theirs(x)
    output = ours(x.flatten(0, 1), batch, maps=maps)
    torch.testing.assert_close(output.hidden.view(4, 9, -1), expected, rtol=0, atol=1e-12)
    finals = final if isinstance(final, tuple) else (final,)
    for i, own in enumerate(output.state.own):
        for mine, their in zip(own, finals, strict=True):
            torch.testing.assert_close(mine, their[i], rtol=0, atol=1e-12)
    # and the gradients
    output.hidden.square().sum().backward()
    expected.square().sum().backward()
    for i, layer in enumerate(ours.layers):
        for name, parameter in layer.cell.kernel.named_parameters():
            their = getattr(theirs, name.replace("_l0", f"_l{i}"))
            torch.testing.assert_close(parameter.grad, their.grad, rtol=1e-9, atol=1e-9)


KERNELS = {
    "lstm": lambda: LstmCell(IN, D),
    "gru": lambda: GruCell(IN, D),
    "elman": lambda: ElmanCell(IN, D),
    "projected": lambda: LstmCell(IN, 2 * D, D),
}


@pytest.mark.parametrize("lengths", [(6, 6, 6, 6), (5, 1, 8), (3, 6, 0, 1)])
@pytest.mark.parametrize("kind", KERNELS)
def test_loop_and_kernel(kind, lengths):
    """Outputs, last states and every gradient, those that come through the states included."""
    torch.manual_seed(0)
    cell = KERNELS[kind]().double()
    batch = pack([[0] * n for n in lengths])
    x = torch.randn(sum(lengths), IN, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn(len(lengths), w, dtype=torch.float64, requires_grad=True) for w in cell.widths())
    learnt = [x, *state, *cell.parameters()]
    hidden, (after,) = fused([cell], x, batch, [state])
    looped, final, _ = scan(cell, x, batch, state)
    by_kernel, by_loop = (hidden, *after), (looped, *final)
    told = [torch.randn_like(part) for part in by_loop]
    torch.testing.assert_close(by_kernel, by_loop, rtol=0, atol=1e-12)
    grads = (torch.autograd.grad(parts, learnt, told) for parts in (by_kernel, by_loop))
    torch.testing.assert_close(*grads, rtol=0, atol=1e-10)


def test_planted_cell_that_goes_on_behind_the_end_is_noticed(monkeypatch):
    monkeypatch.setattr(recurrent, "SHUT", 0.0)
    with pytest.raises(AssertionError):
        test_loop_and_kernel("lstm", (5, 1, 8))


@pytest.mark.parametrize("lengths", [(4, 4, 4, 4), (5, 1, 8, 0)])
def test_one_call_equals_layer_by_layer_with_states(lengths):
    ours, _ = pair("lstm", D)
    batch = pack([[0] * n for n in lengths])
    x = torch.randn(sum(lengths), D, dtype=torch.float64)
    state = State(tuple(tuple(torch.randn(4, D, dtype=torch.float64) for _ in range(2)) for _ in range(LAYERS)))
    at_once, one_by_one = ours(x, batch, state), ours(x, batch, state, layers=True)
    torch.testing.assert_close(at_once.hidden, one_by_one.hidden, rtol=0, atol=1e-12)
    torch.testing.assert_close(at_once.state, one_by_one.state, rtol=0, atol=1e-12)


def test_every_gate_at_every_step():
    """The gates of an LSTM explain its cell and its output at each step."""
    cell = LstmCell(IN, D).double()
    batch = pack([[0] * 7, [0] * 4])
    hidden, _, gates = scan(cell, torch.randn(11, IN, dtype=torch.float64), batch, gates=True)
    values = dict(zip(cell.gates, gates.unbind(1), strict=True))
    assert set(values) == {"input", "forget", "candidate", "output", "cell"}
    for start, end in ((0, 7), (7, 11)):
        before = torch.zeros(D, dtype=torch.float64)
        for t in range(start, end):
            expected = values["forget"][t] * before + values["input"][t] * values["candidate"][t]
            torch.testing.assert_close(values["cell"][t], expected)
            torch.testing.assert_close(hidden[t], values["output"][t] * expected.tanh())
            before = expected


def test_sigmoid_elman_by_hand():
    cell = ElmanCell(2, 1, "sigmoid").double()
    for name, value in (
        ("weight_ih_l0", [[1.0, -1.0]]),
        ("weight_hh_l0", [[0.5]]),
        ("bias_ih_l0", [0.1]),
        ("bias_hh_l0", [0.0]),
    ):
        getattr(cell.kernel, name).data.copy_(torch.tensor(value))
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    hidden, _, _ = scan(cell, x, pack([[0, 0]]))
    first = torch.sigmoid(torch.tensor(1.1, dtype=torch.float64))
    second = torch.sigmoid(-1 + 0.1 + 0.5 * first)
    torch.testing.assert_close(hidden.flatten(), torch.stack((first, second)))


def test_gradcheck_of_the_loop():
    for cell in (ElmanCell(3, 2, "sigmoid"), GruCell(3, 2), LstmCell(3, 3, 2)):
        cell = cell.double()
        batch = pack([[0, 0, 0], [0]])
        x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x, cell=cell, batch=batch: scan(cell, x, batch)[0], (x,))


def both_ways() -> tuple[Bidirectional, nn.LSTM]:
    torch.manual_seed(0)
    theirs = nn.LSTM(IN, D, bidirectional=True, batch_first=True).double()
    ours = Bidirectional(LstmCell(IN, D), LstmCell(IN, D)).double()
    for layer, ending in ((ours.ahead, ""), (ours.back, "_reverse")):
        for name, parameter in layer.cell.kernel.named_parameters():
            parameter.data.copy_(getattr(theirs, name + ending))
    return ours, theirs


@pytest.mark.parametrize("maps", [False, True], ids=["kernel", "loop"])
def test_bidirectional_equals_torch(maps):
    ours, theirs = both_ways()
    sizes = (5, 1, 8, 0, 3)
    batch = pack([[0] * n for n in sizes])
    x = torch.randn(sum(sizes), IN, dtype=torch.float64)
    hidden, (after, before), shown = ours(x, batch, maps=maps)
    for n, (begin, end) in enumerate(zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True)):
        if begin == end:
            assert not after[0][n].any() and not before[0][n].any()
            continue
        expected, (h, c) = theirs(x[None, begin:end])
        torch.testing.assert_close(hidden[begin:end], expected[0], rtol=0, atol=1e-12)
        for mine, their in zip((*after, *before), (h[0], c[0], h[1], c[1]), strict=True):
            torch.testing.assert_close(mine[n], their[0], rtol=0, atol=1e-12)
    if maps:
        values = dict(zip(ours.gates, shown.unbind(1), strict=True))
        torch.testing.assert_close(values["backward.output"] * values["backward.cell"].tanh(), hidden[:, D:])


def company(ours: Bidirectional) -> None:
    """A sequence gives the same beside others, some of them empty, and alone."""
    sizes = (4, 0, 7, 1, 0)
    batch = pack([[0] * n for n in sizes])
    x = torch.randn(sum(sizes), IN, dtype=torch.float64)
    alone = [ours(part, pack([[0] * len(part)]))[0] for part in x.split(sizes) if len(part)]
    torch.testing.assert_close(ours(x, batch)[0], torch.cat(alone), rtol=0, atol=1e-12)


def test_bidirectional_packing():
    company(both_ways()[0])
    assert mirrored(pack([[0] * 3, [], [0] * 2])).tolist() == [2, 1, 0, 4, 3]


def test_planted_reversal_across_borders_is_noticed(monkeypatch):
    monkeypatch.setattr(recurrent, "mirrored", lambda batch: torch.arange(batch.ids.shape[0]).flip(0))
    with pytest.raises(AssertionError):
        company(both_ways()[0])


def test_bidirectional_carries_nothing():
    ours, _ = both_ways()
    batch = pack([[0] * 3])
    _, state, _ = ours(torch.randn(3, IN, dtype=torch.float64), batch)
    with pytest.raises(ValueError, match="carried state"):
        ours(torch.randn(3, IN, dtype=torch.float64), batch, state)
    with pytest.raises(ValueError, match="whole sequences"):
        ours.start(1, 5)


@pytest.mark.parametrize("lengths", [(6, 6, 6, 6), (3, 6, 0, 1)])
@pytest.mark.parametrize("make", [LstmCell, GruCell])
def test_gates_by_hand_equal_the_loop(make, lengths):
    """Outputs, gates, last states and every gradient, those that come through the gates and the states included."""
    torch.manual_seed(0)
    cell = make(IN, D).double()
    batch = pack([[0] * n for n in lengths])
    results = []
    for way in (
        lambda x, state: gated(cell, x, batch, state),
        lambda x, state: scan(cell, x, batch, state, gates=True),
    ):
        generator = torch.Generator().manual_seed(1)

        def draw(*shape, generator=generator):
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        x = draw(sum(lengths), IN).requires_grad_()
        state = tuple(draw(len(lengths), D).requires_grad_() for _ in cell.widths())
        hidden, after, gates = way(x, state)
        given = [hidden, gates, *after]
        torch.autograd.backward(given, [draw(*part.shape) for part in given])
        grads = [x.grad, *(s.grad for s in state), *(p.grad.clone() for p in cell.parameters())]
        cell.zero_grad()
        results.append([part.detach() for part in given] + grads)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", [LstmCell, GruCell])
def test_gradcheck_of_the_gates(make):
    cell = make(3, 2).double()
    batch = pack([[0, 0, 0], [0, 0, 0]])
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: gated(cell, x, batch, None)[0::2], (x,))


def test_planted_forgotten_reset_gate_is_noticed(monkeypatch):
    right = STEPS["gru"][1]

    def wrong(*arguments):
        d_x, _, d_cell, direct = right(*arguments)
        return d_x, d_x, d_cell, direct

    monkeypatch.setitem(STEPS, "gru", (STEPS["gru"][0], wrong))
    steps_of.cache_clear()
    with pytest.raises(AssertionError):
        test_gates_by_hand_equal_the_loop(GruCell, (6, 6))
    steps_of.cache_clear()


def test_planted_lost_state_of_an_empty_sequence_is_noticed(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "gated", partial(forgetful_gated, gated))
    with pytest.raises(AssertionError):
        test_gates_by_hand_equal_the_loop(LstmCell, (3, 6, 0, 1))


def forgetful_gated(true, cell, x, batch, state):
    hidden, after, gates = true(cell, x, batch, state)
    return hidden, tuple(part * (batch.offsets.diff() > 0)[:, None] for part in after), gates


def reset_first(x, h, kernel):
    """The equation of Cho et al., 2014, in numpy: z, r = σ(W x + U h), h̃ = tanh(W x + U (r ∘ h)), h′ = z h + (1 − z) h̃."""
    import numpy as np

    w, u, b, c = (
        getattr(kernel, f"{name}_l0").detach().numpy() for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    (wr, wz, wc), (ur, uz, uc) = (np.split(matrix, 3) for matrix in (w, u))
    (br, bz, bc), (cr, cz, cc) = (np.split(bias, 3) for bias in (b, c))
    sigmoid = lambda value: 1 / (1 + np.exp(-value))  # noqa: E731
    r, z = sigmoid(x @ wr.T + br + h @ ur.T + cr), sigmoid(x @ wz.T + bz + h @ uz.T + cz)
    return z * h + (1 - z) * np.tanh(x @ wc.T + bc + (r * h) @ uc.T + cc)


def check_reset_first(make):
    torch.manual_seed(0)
    cell = make().double()
    x, h = torch.randn(5, IN, dtype=torch.float64), torch.randn(5, D, dtype=torch.float64)
    (found,), _ = cell.step(cell.inputs(x), (h,))
    expected = torch.from_numpy(reset_first(x.numpy(), h.numpy(), cell.kernel))
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-12)


def test_a_reset_gate_before_the_matrix_is_the_equation():
    check_reset_first(lambda: ResetFirstGruCell(IN, D))


def test_planted_reset_gate_after_the_matrix_is_noticed():
    with pytest.raises(AssertionError):
        check_reset_first(lambda: GruCell(IN, D))
