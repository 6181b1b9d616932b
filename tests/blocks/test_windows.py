"""Attention over a window, with a bias, with any visibility; what is kept of a text for the next token, and its weights."""

import math
from types import SimpleNamespace

import pytest
import torch

from seqloom.batch import Ring, pack, ragged, widen
from seqloom.blocks import kernels
from seqloom.blocks.attention import SelfAttention
from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import sample
from seqloom.decode.step import Stepper
from tests.contract import encoders as e
from tests.contract import pairs
from tests.contract import properties as p
from tests.decode.test_sample import END, greedy_by_hand
from tests.decode.test_search import sharpened
from tests.decode.test_search import test_log_probs_equal_an_independent_scoring as beams_equal_an_independent_scoring

H, E = 2, 4
LENGTHS = (7, 1, 12, 4)


def inputs(lengths=LENGTHS, seed=0):
    rng = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(sum(lengths), H, E, dtype=torch.float64, generator=rng) for _ in range(3))
    return (q, k, v), pack([[0] * n for n in lengths])


def by_hand(q, k, v, lengths, sees, bias=None):
    """One query at a time in plain Python; sees(sequence, query, key)."""
    out, begin = torch.zeros_like(v), 0
    for n, length in enumerate(lengths):
        for i in range(length):
            for h in range(H):
                keys = [j for j in range(length) if sees(n, i, j)]
                scores = [float(q[begin + i, h] @ k[begin + j, h]) / math.sqrt(E) for j in keys]
                if bias is not None:
                    scores = [s + float(bias[n, h, i, j]) for s, j in zip(scores, keys, strict=True)]
                parts = [math.exp(s) for s in scores]
                for part, j in zip(parts, keys, strict=True):
                    out[begin + i, h] += part / sum(parts) * v[begin + j, h]
        begin += length
    return out


def both(q, k, v, batch, **options):
    """From both paths, which must agree."""
    one, other = kernels.padded(q, k, v, batch, **options), kernels.reference(q, k, v, batch, **options)[0]
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    return one


def check_window(window, causal):
    (q, k, v), batch = inputs()
    expected = by_hand(q, k, v, LENGTHS, lambda _, i, j: abs(i - j) < window and (j <= i or not causal))
    torch.testing.assert_close(both(q, k, v, batch, causal=causal, window=window), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(kernels.attend(q, k, v, batch, causal=causal, window=window)[0], expected)
    alone = []
    for part in zip(*(x.split(LENGTHS) for x in (q, k, v)), strict=True):
        alone.append(kernels.attend(*part, pack([[0] * len(part[0])]), causal=causal, window=window)[0])
    torch.testing.assert_close(torch.cat(alone), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 3, 7, 11])
def test_a_window_is_a_band(window, causal):
    check_window(window, causal)


@pytest.mark.parametrize("causal", [True, False])
def test_a_window_that_hides_nothing_changes_no_bit(causal):
    (q, k, v), batch = inputs()
    full, weights = (
        kernels.attend(q, k, v, batch, causal=causal),
        kernels.attend(q, k, v, batch, causal=causal, maps=True),
    )
    for window in (12, 13, 500):
        assert torch.equal(kernels.attend(q, k, v, batch, causal=causal, window=window)[0], full[0])
        assert torch.equal(kernels.attend(q, k, v, batch, causal=causal, window=window, maps=True)[1], weights[1])
    torch.testing.assert_close(both(q, k, v, batch, causal=causal, window=12), full[0], rtol=0, atol=1e-12)


def test_planted_window_off_by_one(monkeypatch):
    right = kernels.visibility
    for shift in (-1, 1):
        with monkeypatch.context() as patched:
            patched.setattr(kernels, "visibility", lambda *rest, shift=shift: right(*rest[:4], rest[4] + shift))
            with pytest.raises(AssertionError):
                check_window(3, True)
            with pytest.raises(AssertionError):
                check_against_mistral(3)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", [(4, H), (1, H), (4, 1), (1, 1)])
def test_a_bias_and_its_gradient(shape, causal):
    (q, k, v), batch = inputs()
    torch.manual_seed(1)
    bias = torch.randn(*shape, 12, 12, dtype=torch.float64)
    sees = lambda _, i, j: abs(i - j) < 5 and (j <= i or not causal)  # noqa: E731
    expected = by_hand(q, k, v, LENGTHS, sees, bias.expand(4, H, 12, 12))
    torch.testing.assert_close(both(q, k, v, batch, causal=causal, bias=bias, window=5), expected, rtol=0, atol=1e-12)
    wanted, gradients = torch.randn_like(v), []
    for kernel in (kernels.padded, lambda *given, **options: kernels.reference(*given, **options)[0]):
        leaves = [x.detach().clone().requires_grad_() for x in (q, k, v, bias)]
        kernel(*leaves[:3], batch, causal=causal, bias=leaves[3]).backward(wanted)
        gradients.append([x.grad for x in leaves])
    for mine, right in zip(*gradients, strict=True):
        assert right.abs().sum() > 0
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-12)


def test_a_prefix_that_is_seen_from_both_sides():
    (q, k, v), batch = inputs()
    prefix = torch.tensor([3, 1, 5, 0])
    found = both(
        q, k, v, batch, causal=False, visible=lambda n, i, j: (j <= i) | (j < prefix.to(n.device)[n])
    )  # fmt: skip
    expected = by_hand(q, k, v, LENGTHS, lambda n, i, j: j <= i or j < prefix[n])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_any_order_and_a_query_that_sees_nothing():
    """Each sees what comes before it in an order of its own: the first of them nothing. Nothing becomes NaN, forth or back."""
    (q, k, v), batch = inputs()
    rng = torch.Generator().manual_seed(0)
    rank = torch.stack([torch.randperm(12, generator=rng) for _ in LENGTHS])
    leaves = [x.requires_grad_() for x in (q, k, v)]
    found = both(*leaves, batch, causal=False, visible=lambda n, i, j: rank[n, j] < rank[n, i])
    with torch.no_grad():
        expected = by_hand(q, k, v, LENGTHS, lambda n, i, j: rank[n, j] < rank[n, i])
    assert (expected.flatten(1).abs().sum(1) == 0).sum() == 4
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weights = kernels.reference(*leaves, batch, causal=False, visible=lambda n, i, j: rank[n, j] < rank[n, i])[1]
    (found.sum() + weights.sum()).backward()
    assert all(torch.isfinite(x.grad).all() for x in leaves)


@pytest.mark.parametrize("causal", [True, False])
def test_empty_sequences_and_rows_behind_the_end_stay_finite(causal):
    (q, k, v), batch = inputs((3, 2))
    batch = batch._replace(offsets=torch.tensor([0, 3, 5, 5, 5], dtype=torch.int32), max_len=9)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    for options in ({"window": 2}, {"visible": lambda n, i, j: j == i - 1}, {"bias": torch.zeros(1, 1, 9, 9).double()}):
        out = both(*leaves, batch, causal=causal, **options)
        out.sum().backward()
        assert torch.isfinite(out).all() and all(torch.isfinite(x.grad).all() for x in leaves)


# ---- another implementation


def check_against_mistral(window):
    from transformers import MistralConfig
    from transformers.masking_utils import create_sliding_window_causal_mask
    from transformers.models.mistral.modeling_mistral import MistralAttention

    config = MistralConfig(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=3, head_dim=10, sliding_window=window,
        attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    theirs, ours = (
        MistralAttention(config, 0).double(),
        SelfAttention(24, 3, causal=True, head_dim=10, window=window).double(),
    )
    with torch.no_grad():
        ours.qkv.weight.copy_(torch.cat((theirs.q_proj.weight, theirs.k_proj.weight, theirs.v_proj.weight)))
        ours.out.weight.copy_(theirs.o_proj.weight)
        ours.qkv.bias.zero_(), ours.out.bias.zero_()
    x = torch.randn(sum(LENGTHS), 24, dtype=torch.float64)
    batch = pack([[0] * n for n in LENGTHS])
    mixed, _, maps = ours(x, batch, maps=True)
    fast, _, _ = ours(x, batch)
    for n, (part, found, quick) in enumerate(
        zip(x.split(LENGTHS), mixed.split(LENGTHS), fast.split(LENGTHS), strict=True)
    ):
        length = len(part)
        mask = create_sliding_window_causal_mask(config, part[None], attention_mask=None, past_key_values=None)
        turn = torch.ones(1, length, 10, dtype=torch.float64), torch.zeros(1, length, 10, dtype=torch.float64)
        expected, weights = theirs(part[None], turn, None if mask is None else mask.double())
        torch.testing.assert_close(found, expected[0], rtol=0, atol=1e-6)  # their softmax is in fp32
        torch.testing.assert_close(quick, expected[0], rtol=0, atol=1e-6)
        torch.testing.assert_close(maps[n, :, :length, :length], weights[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("window", [1, 3, 7, 12])
def test_equals_mistral(window):
    check_against_mistral(window)


# ---- whole models


@pytest.mark.parametrize("holds", [e.packing, e.batch_order, e.accumulation], ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ["bert", "albert", "electra"])
def test_encoders_with_a_window(name, holds):
    holds(e.build(name, window=4, head_dim=7), 0)


def test_as_far_as_its_layers_reach():
    """Of two layers with a window of 4 a token sees 6 to either side, and no more."""
    model, texts = e.build("bert", window=4), p.sequences(0, (30,))
    before = model(e.laid(model, texts)).hidden
    texts[0][15] = (texts[0][15] + 2) % p.VOCAB  # of the same segment
    moved = (model(e.laid(model, texts)).hidden - before).abs().sum(1) > 0
    assert moved.nonzero().flatten().tolist() == list(range(9, 22))


@pytest.mark.parametrize("name", ["gpt", "gpt2"])
@pytest.mark.parametrize("window", [1, 2, 5, 49, 50, 60])
def test_states_of_any_window(name, window):
    model = p.build(name, window=window)
    p.steps(model, 0)
    p.chunks(model, 0)
    state = model.start(3, 50)
    assert all(type(kept) is Ring and kept.kept.shape[1] == window for kept in state.own)
    assert all(a.kept is b.kept for a, b in zip(state.own, widen(state, 500).own, strict=True))


def test_written_texts_with_a_window():
    """Several times as long as the window, sampled and searched for."""
    learner, prompts = sharpened("gpt2-window"), p.sequences(3, (1, 30, 12))
    learner.softmax.bias.data[END] = -20.0
    made = [[] for _ in prompts]
    config = SampleConfig(temperature=0, max_new=40)
    for one in sample(Stepper(learner.backbone, learner.softmax), prompts, config, 0, END, []):
        made[one.sample].append(one.token)
    assert made == [greedy_by_hand(learner, prompt, 40) for prompt in prompts] and len(made[0]) == 40
    beams_equal_an_independent_scoring("gpt2-window")


def unmasked(query, read, seen, maps):
    return over_kept(query, read, None, maps)


def before_it_is_read(qkv, batch, past, window, maps):
    """New tokens are put into the ring one chunk too early."""
    past[batch.owner, batch.positions % window] = qkv[:, 1:]
    return ringed(qkv, batch, past, window, maps)


over_kept, ringed = kernels.over_kept, kernels.ringed


def test_planted_rings(monkeypatch):
    model = p.build("gpt2", window=5)
    for place, wrong, checks in (
        ("over_kept", unmasked, (p.steps, p.chunks)),
        ("ringed", before_it_is_read, (p.chunks,)),
        (
            "ringed",
            lambda qkv, batch, past, window, maps: ringed(qkv, batch, past.zero_(), window, maps),
            (p.steps, p.chunks),
        ),
        ("ringed", lambda *given: ringed(*given[:3], given[3] - 1, given[4]), (p.steps, p.chunks)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(kernels, place, wrong)
            for check in checks:
                with pytest.raises((AssertionError, IndexError, RuntimeError)):
                    check(model, 0)


# ---- weights of new tokens


def by_position(weights, position, capacity):
    """(H, K) of a token at this position, as a row of the whole map."""
    if weights.shape[1] == capacity:
        return weights
    whole, window = torch.zeros(weights.shape[0], capacity, dtype=weights.dtype), weights.shape[1]
    for column in range(window):
        place = position - (window - 1 - column)
        if place < 0:
            assert (weights[:, column] == 0).all()
        else:
            whole[:, place] = weights[:, column]
    return whole


@torch.no_grad()
def check_maps(window):
    model, texts, room = p.build("gpt2", window=window), p.sequences(2, (20, 9, 14)), 24
    full = model(pack(texts), maps=True)
    state, read = model.start(3, room), [0, 0, 0]
    for ends in ((6, 9, 1), (7, 9, 2), (20, 9, 14)):
        chunk = [text[done:end] for text, done, end in zip(texts, read, ends, strict=True)]
        lengths = torch.tensor([len(part) for part in chunk])
        ids = torch.tensor([i for part in chunk for i in part])
        batch = ragged(ids, lengths, start=torch.tensor(read))
        plain = model(batch, state=copied(state)).hidden
        output = model(batch, state=state, maps=True)
        torch.testing.assert_close(output.hidden, plain, rtol=0, atol=1e-12)
        for whole, weights in zip(full.maps, output.maps, strict=True):
            assert weights.shape == (len(ids), 3, window or room)
            for t, (n, position) in enumerate(zip(batch.owner.tolist(), batch.positions.tolist(), strict=True)):
                row = by_position(weights[t], position, room)
                torch.testing.assert_close(row[:, :20], whole[n, :, position], rtol=0, atol=1e-12)
                assert not row[:, 20:].any()
        state, read = output.state, list(ends)


def copied(state):
    return torch.utils._pytree.tree_map(torch.clone, state)


@pytest.mark.parametrize("window", [None, 1, 5, 30])
def test_weights_of_new_tokens_are_rows_of_the_map(window):
    check_maps(window)


def test_planted_weights_of_another_token(monkeypatch):
    def wrong(*given):
        out, weights = over_kept(*given)
        return out, None if weights is None else weights.roll(1, -1)

    monkeypatch.setattr(kernels, "over_kept", wrong)
    for window in (None, 5):
        with pytest.raises(AssertionError):
            check_maps(window)


def test_a_gpu_takes_the_kernel_that_knows_windows(monkeypatch):
    """What is asked of it; what it computes is tested on a GPU."""
    asked = []
    monkeypatch.setattr(kernels, "HAS_VARLEN", True)
    monkeypatch.setattr(kernels, "varlen_attn", lambda *given, **options: asked.append(options), raising=False)
    (q, k, v), batch = inputs()
    half = SimpleNamespace(dtype=torch.bfloat16, is_cuda=True, shape=(24, H, 8))
    for windows, window, taken in ((True, 4, True), (False, 4, False), (False, None, True), (True, None, True)):
        monkeypatch.setattr(kernels, "HAS_WINDOWS", windows)
        assert kernels.varlen_takes(half, window) is taken
    monkeypatch.setattr(kernels, "HAS_WINDOWS", True)
    for causal, window in ((True, 4), (False, 4), (True, None), (False, None)):
        kernels.varlen(q, k, v, batch, causal=causal, window=window)
    assert [each["window_size"] for each in asked] == [(3, 0), (3, 3), (-1, 0), (-1, -1)]
    monkeypatch.setattr(kernels, "HAS_WINDOWS", False)
    kernels.varlen(q, k, v, batch, causal=True)
    assert asked[-1] == {"is_causal": True}


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_heads_of_a_width_of_their_own(norm):
    """Rows (B) of the Transformer's table: eight heads of 16 or 32 numbers beside dim = 512."""
    for width in (16, 32):
        model = pairs.build("transformer", dim=64, num_heads=8, head_dim=width, norm=norm)
        layer = model.decoder.stack.layers[0]
        assert layer.mixer.qkv.weight.shape == (3 * 8 * width, 64) and layer.cross.kv.weight.shape == (
            2 * 8 * width,
            64,
        )
        parts = [*layer.mixer.qkv.weight.chunk(3), *layer.cross.kv.weight.chunk(2), layer.cross.query.weight]
        for part in parts:  # each for itself, as Glorot & Bengio have them
            assert part.abs().max().item() == pytest.approx(math.sqrt(6 / (8 * width + 64)), rel=0.01)
        pairs.packing(model, 0)


# ---- by blocks


def check_blocks(window, causal, lengths=(7, 1, 12, 4, 23)):
    (q, k, v), batch = inputs(lengths)
    batch = batch._replace(offsets=torch.cat((batch.offsets, batch.offsets[-1:])), max_len=26)  # filled up
    gradients = []
    for kernel in (kernels.banded, kernels.padded):
        leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        out = kernel(*leaves, batch, causal=causal, window=window)
        (out * torch.arange(E)).sum().backward()
        gradients.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for mine, right in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 3, 5, 8, 13])
def test_blocks_equal_the_band(window, causal):
    check_blocks(window, causal)


def test_planted_block_mask_is_noticed(monkeypatch):
    right = kernels.band_mask

    def wrong(batch, window, blocks, causal):
        seen, blind = right(batch, window, blocks, causal)
        return seen | torch.ones_like(seen).tril(window).bool(), blind  # the whole block before, not only what is near

    monkeypatch.setattr(kernels, "band_mask", wrong)
    with pytest.raises(AssertionError):
        check_blocks(3, True)


@pytest.mark.parametrize("causal", [True, False])
def test_work_grows_with_length_times_window(causal, monkeypatch):
    """Twice the length is twice as many pairs of a query and a key that the kernel is given."""
    found, right = [], kernels.F.scaled_dot_product_attention

    def noted(q, k, *rest, **options):
        found.append(q.shape[0] * q.shape[2] * k.shape[2])
        return right(q, k, *rest, **options)

    monkeypatch.setattr(kernels.F, "scaled_dot_product_attention", noted)
    for length in (256, 512):
        (q, k, v), batch = inputs((length,))
        kernels.attend(q, k, v, batch, causal=causal, window=16)
    assert found[1] == 2 * found[0] == 2 * 256 * (2 if causal else 3) * 16


# ---- windows and all tokens in turn


def neo_pair(window):
    """GPT-Neo and our GPT-2 with its weights: it does not divide scores by √E, and has no biases before them."""
    from transformers import GPTNeoConfig, GPTNeoModel

    from seqloom.models.gpt2 import Gpt2

    config = GPTNeoConfig(
        vocab_size=61, max_position_embeddings=40, hidden_size=24, num_layers=4, num_heads=3, window_size=window,
        attention_types=[[["global", "local"], 2]], resid_dropout=0.0, embed_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = GPTNeoModel(config).double().eval()
    sizes = {"dim": 24, "num_layers": 4, "num_heads": 3, "max_len": 40, "dropout": 0.0}
    ours = Gpt2(Gpt2.Config(vocab_size=61, **sizes, window=window, global_every=2)).double().eval()
    with torch.no_grad():
        ours.embedding.token.weight.copy_(theirs.wte.weight)
        ours.embedding.positions.weight.copy_(theirs.wpe.weight)
        ours.stack.top.load_state_dict(theirs.ln_f.state_dict())
        for mine, block in zip(ours.stack.layers, theirs.h, strict=True):
            attention = block.attn.attention
            q = attention.q_proj.weight * 8**0.5
            mine.mixer.qkv.weight.copy_(torch.cat((q, attention.k_proj.weight, attention.v_proj.weight)))
            mine.mixer.qkv.bias.zero_()
            for part, other in (
                (mine.mixer.out, attention.out_proj), (mine.mixer_norm, block.ln_1), (mine.ffn_norm, block.ln_2),
                (mine.ffn.up, block.mlp.c_fc), (mine.ffn.down, block.mlp.c_proj),
            ):  # fmt: skip
                part.load_state_dict(other.state_dict())
    return theirs, ours


def check_against_neo(window):
    theirs, ours = neo_pair(window)
    for text in p.sequences(0, (33, 5)):
        expected = theirs(torch.tensor([text])).last_hidden_state[0]
        torch.testing.assert_close(ours(pack([text])).hidden, expected, rtol=0, atol=1e-5)  # their scores are in fp32


@pytest.mark.parametrize("window", [1, 4, 16, 40])
@torch.no_grad()
def test_equals_gpt_neo(window):
    check_against_neo(window)


@torch.no_grad()
def test_planted_turn_is_noticed(monkeypatch):
    """Windows where GPT-Neo sees all, and the other way round."""
    monkeypatch.setattr("seqloom.models.gpt.window_of", lambda config, i: config.window if i % 2 == 0 else None)
    with pytest.raises(AssertionError):
        check_against_neo(4)


@pytest.mark.parametrize("name", ["gpt2-turns", "transformer-turns", "bert"])
def test_turns_are_in_every_attention_model(name):
    sizes = {"window": 7, "global_every": 2, "num_layers": 4}
    built = {
        "gpt2-turns": lambda: p.build("gpt2", **sizes).stack,
        "transformer-turns": lambda: pairs.build("transformer", **sizes).decoder.stack,
        "bert": lambda: e.build("bert", **sizes).stack,
    }[name]()
    assert [layer.mixer.window for layer in built.layers] == [None, 7, None, 7]


def test_turns_without_a_window_are_refused():
    with pytest.raises(ValueError, match="global_every 2 is for layers with a window"):
        p.build("gpt2", global_every=2)
    with pytest.raises(ValueError, match="one set of weights"):
        e.build("albert", global_every=2, window=4)
