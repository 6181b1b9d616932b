"""ELMo: its directions stay apart, each equals a model of one direction, and the sizes of the paper."""

import copy

import pytest
import torch
from torch import nn

from seqloom.batch import pack
from seqloom.blocks import cells
from seqloom.blocks.cells import ClippedLstmCell, LstmCell
from seqloom.blocks.recurrent import Apart, Bidirectional
from seqloom.errors import UsageError
from seqloom.models.big_lstm import BigLstm
from seqloom.models.elmo import Elmo
from seqloom.recipes.schema import build_recipe
from seqloom.tokens.spelling import BEGIN, END, PAD, SENTENCE_BEGIN, SENTENCE_END, SPECIAL, mark_sentences, spell
from tests.contract.encoders import SMALL, build
from tests.contract.properties import VOCAB, Words, close, sequences
from tests.contract.test_planted import noticed

NAMES = ["elmo", "elmo-original", "elmo-plain"]


@torch.no_grad()
def directions_apart(model: Elmo, seed: int) -> None:
    """A token is replaced: of no layer the forward half moves before it, or the backward half after it; the rest does."""
    text, other = sequences(seed, (33, 20))
    before, half = model(pack([text, other]), layers=True).layers, model.dim // 2
    for t in (0, 1, 16, 31, 32):
        changed = [*text[:t], (text[t] + 1) % VOCAB, *text[t + 1 :]]
        for depth, (old, new) in enumerate(zip(before, model(pack([changed, other]), layers=True).layers, strict=True)):
            ahead, back = ((old - new)[:33, part].abs().amax(1) > 0 for part in (slice(half), slice(half, None)))
            place = torch.arange(33)
            seen = (place >= t, place <= t) if depth else (place == t, place == t)
            assert torch.equal(ahead, seen[0]), f"layer {depth}: the forward half leaks token {t}, or does not see it"
            assert torch.equal(back, seen[1]), f"layer {depth}: the backward half leaks token {t}, or does not see it"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_directions_stay_apart(name, seed):
    directions_apart(build(name, seed), seed)


class Leaking(nn.Module):
    """What a stack of bidirectional layers is: each reads both halves of the one below."""

    def __init__(self, layer: Apart):
        super().__init__()
        torch.manual_seed(0)
        self.both = Bidirectional(LstmCell(24, 16, 12), LstmCell(24, 16, 12)).double()
        self.gates = layer.gates

    def forward(self, *given):
        return self.both(*given)


def test_planted_bidirectional_layers_are_noticed():
    model = build("elmo")
    model.stack.layers[1] = Leaking(model.stack.layers[1])
    noticed(directions_apart, model, 0)


@pytest.mark.parametrize("bug", ["turned", "halves"])
def test_planted_directions_that_are_mixed_up_are_noticed(bug, monkeypatch):
    model = build("elmo")
    read = Apart.read
    if bug == "turned":  # the backward half reads from the start, too
        monkeypatch.setattr("seqloom.blocks.recurrent.mirrored", lambda batch: torch.arange(len(batch.ids)))
    else:  # each layer reads the other's half
        monkeypatch.setattr(Apart, "read", lambda self, left, right, *rest: read(self, right, left, *rest))
    noticed(directions_apart, model, 0)


def test_the_forward_half_is_a_big_lstm():
    """With no residual connections, which that one has not."""
    model = build("elmo-plain")
    sizes = {key: value for key, value in SMALL["elmo"].items() if key != "dropout"}
    other = BigLstm(BigLstm.Config(**sizes, vocab_size=VOCAB, num_highways=0)).double().eval()
    other.set_vocabulary(Words())
    for number, layer in enumerate(model.stack.layers):
        other.stack.layers[number].load_state_dict(layer.ahead.state_dict())
    other.embedding.load_state_dict(model.embedding.single.state_dict())
    batch = pack(sequences(1))
    close(model(batch).hidden[:, :12], other(batch).hidden, 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_backward_half_is_the_forward_one_of_mirrored_text(name):
    model = build(name, 2)
    turned = copy.deepcopy(model)
    for layer, source in zip(turned.stack.layers, model.stack.layers, strict=True):
        layer.ahead.load_state_dict(source.back.state_dict())
    texts = sequences(2)
    backward = model(pack(texts)).hidden[:, 12:].split([len(text) for text in texts])
    mirrored = turned(pack([text[::-1] for text in texts])).hidden[:, :12].split([len(text) for text in texts])
    for one, other in zip(backward, mirrored, strict=True):
        close(one, other.flip(0), 1e-12)


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_each_direction_alone_is_its_half(name):
    """`direction`: the same weights, and a state to go on from."""
    model, texts = build(name, 3), sequences(3, (20, 20, 20))
    whole = model(pack(texts)).hidden
    ahead, back = model.direction(False), model.direction(True)
    close(ahead(pack(texts)).hidden, whole[:, :12], 1e-12)
    mirrored = back(pack([text[::-1] for text in texts])).hidden.view(3, 20, 12).flip(1).reshape(60, 12)
    close(mirrored, whole[:, 12:], 1e-12)
    first = ahead(pack([text[:7] for text in texts]))
    rest = ahead(pack([text[7:] for text in texts]), state=first.state).hidden.view(3, 13, 12)
    close(rest.reshape(39, 12), whole[:, :12].view(3, 20, 12)[:, 7:].reshape(39, 12), 1e-12)


def test_the_token_layer_is_doubled_and_all_layers_are_equally_wide():
    model = build("elmo")
    token, *rest = model(pack(sequences(0)), layers=True).layers
    assert torch.equal(token[:, :12], token[:, 12:]) and model.dim == 24
    assert len(rest) == 2 and {layer.shape for layer in rest} == {token.shape}


@torch.no_grad()
def test_the_residual_goes_from_the_first_layer_to_the_second_alone():
    model, batch = build("elmo"), pack(sequences(0))
    _, first, second = model(batch, layers=True).layers
    for layer in model.stack.layers:
        for part in (layer.ahead, layer.back):
            getattr(part, "layer", part).cell.kernel.weight_hr_l0.zero_()
    token, nothing, sum_ = model(batch, layers=True).layers
    assert token.abs().sum() > 0 and not nothing.any() and not sum_.any(), "the token layer passes the first layer"
    assert not torch.equal(first, second)


@torch.no_grad()
def clipped(make) -> None:
    """A step by hand, with clips that cut and with clips that do not."""
    torch.manual_seed(0)
    for cell_clip, proj_clip in ((0.2, 0.05), (0.0, 0.05), (0.2, 0.0), (1e9, 1e9)):
        cell = make(6, 8, 4, cell_clip, proj_clip).double()
        x, h, c = torch.randn(3, 6).double() * 3, torch.randn(3, 4).double(), torch.randn(3, 8).double()
        k = cell.kernel
        total = x @ k.weight_ih_l0.T + k.bias_ih_l0 + h @ k.weight_hh_l0.T + k.bias_hh_l0
        i, f, g, o = (total[:, 8 * n : 8 * n + 8] for n in range(4))
        kept = f.sigmoid() * c + i.sigmoid() * g.tanh()
        kept = kept.clamp(-cell_clip, cell_clip) if cell_clip else kept
        out = (o.sigmoid() * kept.tanh()) @ k.weight_hr_l0.T
        out = out.clamp(-proj_clip, proj_clip) if proj_clip else out
        (got, state), _ = cell.step(cell.inputs(x), (h, c))
        close(got, out, 1e-12)
        close(state, kept, 1e-12)


def test_clips_cut_the_cell_before_the_output_and_the_output_after_the_projection():
    clipped(ClippedLstmCell)


def test_planted_clips_that_come_too_late_are_noticed():
    class Late(ClippedLstmCell):
        def step(self, x, state):
            (h, c), gates = cells.LstmCell.step(self, x, state)
            return (h, c.clamp(-self.cell_clip, self.cell_clip)), gates

        def bounded(self, cell):
            return cell

    noticed(clipped, Late)


def test_characters_of_special_tokens_are_one_mark():
    names = ["<s>", "</s>", "[CLS]", "<|endoftext|>"]
    table = spell([name.encode() for name in names], 9, SPECIAL)
    marked = mark_sentences(spell([b"s"], 9).repeat(2, 0).copy())
    assert marked.tolist() == [[BEGIN, 1 + ord("s"), END, *[PAD] * 6]] * 2, "a word stays as it is"
    marks = [SENTENCE_BEGIN, SENTENCE_END, SENTENCE_BEGIN, SENTENCE_END]
    assert mark_sentences(table).tolist() == [[BEGIN, mark, END, *[PAD] * 6] for mark in marks]


def test_special_tokens_are_known_by_their_mark_whether_the_batch_is_spelt_or_not():
    class Named(Words):
        def spellings(self, longest):
            table = super().spellings(longest)
            table[0], table[1] = (torch.from_numpy(spell([name], longest, SPECIAL)[0]) for name in (b"<s>", b"</s>"))
            return table

    model = build("elmo-original", max_chars=9)
    model.set_vocabulary(Named())
    batch = pack([[0, 5, 6, 1]])
    spelt = batch._replace(chars=Named().spellings(9)[batch.ids])
    hidden = model(batch).hidden
    assert torch.equal(hidden, model(spelt).hidden)
    # the two marks differ
    assert not torch.equal(model.embedding(batch)[0], model.embedding(batch)[3])


def test_published_size():
    """93.6 million parameters below the output layer, as the authors say; here every gate has a second bias."""
    with torch.device("meta"):
        model = Elmo(Elmo.Config(**Elmo.presets["original"]))
    second = sum(p.numel() for name, p in model.named_parameters() if name.endswith("bias_hh_l0"))
    assert model.dim == 1024 and round((sum(p.numel() for p in model.parameters()) - second) / 1e6, 1) == 93.6


def test_a_filter_that_is_wider_than_a_word_is_refused():
    values = {"name": "elmo", "characters": "elmo", "max_chars": 3, "filters": [[4, 2]]}
    with pytest.raises(UsageError, match="does not fit into max_chars = 3"):
        build_recipe(
            {"name": "x", "model": values, "objective": {"name": "bidirectional"}, "budget": {"steps": 1}}, "x"
        )
