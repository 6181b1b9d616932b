"""Words by their characters: spelling, and the network that reads them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqloom.batch import pack
from seqloom.blocks.characters import CharacterCnn, CharacterEmbedding, HighwayLayer
from seqloom.tokens.spelling import BEGIN, CHARACTERS, END, FIRST_BYTE, PAD, SPECIAL, spell, spelling_table
from seqloom.tokens.tokenizer import Tokenizer

WORDS = [b"a", b"", b"cat", "größer".encode(), b"antidisestablishmentarianism"]


def network(filters=((1, 4), (2, 5), (6, 7)), highways=2, longest=40):
    torch.manual_seed(0)
    cnn = CharacterCnn(6, filters, highways, 9, longest)
    cnn.init_weights()
    with torch.no_grad():  # of zeros and ones nothing would be seen
        for parameter in cnn.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.rand_like(parameter))
    return cnn.double()


def rows(longest=40):
    return torch.from_numpy(spell(WORDS, longest)).long()


def test_spelling():
    a, empty, cat, _, long = spell(WORDS, 12).tolist()
    assert a == [BEGIN, ord("a") + FIRST_BYTE, END] + [PAD] * 9
    assert empty == [BEGIN, END] + [PAD] * 10
    assert bytes(c - FIRST_BYTE for c in cat[1:4]) == b"cat"
    assert long[0] == BEGIN and long[-1] == END and bytes(c - FIRST_BYTE for c in long[1:-1]) == b"antidisest"
    assert spell([bytes(range(256))], 300).max() < CHARACTERS and spell([], 5).shape == (0, 5)


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe", "wordpiece", "unigram"])
def test_every_entry_is_spelt_as_it_stands_in_a_text(kind):
    text = "the größer cat sat on the mat, the cat sat " * 30
    size = {"bpe": 270, "unigram": 258, "wordpiece": 40}.get(kind)
    tokenizer = Tokenizer.train(kind, [text], vocab_size=size, min_count=1)
    table = spelling_table(tokenizer, 30)
    assert table.shape == (tokenizer.vocab_size, 30) and table.dtype == np.int16
    special = {tokenizer.unk_id, *tokenizer.special_ids.values()} - {None}
    assert set(np.flatnonzero(table[:, 0] == SPECIAL)) == special
    assert len(np.unique(table, axis=0)) == len(table), "two entries are spelt alike"
    if kind in ("byte", "bpe", "unigram"):
        spelt = b"".join(bytes(c - FIRST_BYTE for c in table[i] if 0 < c <= 256) for i in tokenizer.encode(text))
        assert spelt.decode() == text


def by_hand(cnn, word):
    """One word through the formulas, character by character."""
    x = cnn.character(torch.tensor([BEGIN, *(b + FIRST_BYTE for b in word), END]))
    found = []
    for convolution in cnn.convolutions:
        width = convolution.kernel_size[0]
        padded = torch.cat((x, x.new_zeros(width - 1, x.shape[1])))
        values = [(convolution.weight * padded[i : i + width].T).sum((1, 2)) for i in range(len(x))]
        found.append(torch.relu(torch.stack(values).amax(0) + convolution.bias))
    y = torch.cat(found)
    for layer in cnn.highways:
        value, gate = layer.both(y[None])[0].chunk(2)
        gate = torch.sigmoid(gate)
        y = gate * torch.relu(value) + (1 - gate) * y
    y = cnn.projection(y)
    return (y - y.mean()) / (y.var(unbiased=False) + 1e-5).sqrt() * cnn.norm.weight + cnn.norm.bias


def equals_the_formulas():
    cnn = network()
    torch.testing.assert_close(cnn(rows()), torch.stack([by_hand(cnn, word) for word in WORDS]))


def test_it_is_what_the_formulas_say():
    equals_the_formulas()


def width_changes_nothing():
    cnn = network()
    short, wide = (torch.from_numpy(spell([b"a", b"b", b"c"], longest)).long() for longest in (3, 40))
    torch.testing.assert_close(cnn(wide), cnn(short), rtol=1e-12, atol=1e-12)


def test_how_far_rows_are_padded_changes_nothing():
    width_changes_nothing()


def test_planted_padding_that_is_read_is_noticed(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "masked_fill", lambda x, mask, value: x)
    for check in (equals_the_formulas, width_changes_nothing):
        with pytest.raises(AssertionError):
            check()


def test_gradcheck():
    cnn = network(((1, 2), (3, 3)), 1)
    names = [name for name, _ in cnn.named_parameters()]

    def forward(*values):
        return torch.func.functional_call(cnn, dict(zip(names, values, strict=True)), (rows(31),))

    # the vector of the padding is not learnt: everything else is what finite differences say
    moved = [p for name, p in cnn.named_parameters() if name != "character.weight"]

    def without_characters(*values):
        return forward(cnn.character.weight.detach(), *values)

    assert names[0] == "character.weight"
    assert torch.autograd.gradcheck(without_characters, moved)


def test_highways_start_nearly_open():
    layer = HighwayLayer(8)
    layer.init_weights()
    x = torch.randn(100, 8)
    assert F.cosine_similarity(layer(x), x).mean() > 0.9


def test_characters_of_a_batch_come_before_the_table():
    embedding = CharacterEmbedding(len(WORDS), network())
    embedding.set_vocabulary(
        type("Words", (), {"spellings": lambda self, longest: torch.from_numpy(spell(WORDS, longest))})()
    )
    batch = pack([[2, 0, 2]])
    plain = embedding(batch)
    assert torch.equal(plain[0], plain[2])
    given = embedding(batch._replace(chars=torch.from_numpy(spell([b"cat", b"a", b"dog"], 20))))
    torch.testing.assert_close(given[:2], plain[:2])
    assert not torch.allclose(given[2], plain[2])


def test_wrong_characters_are_refused():
    embedding = CharacterEmbedding(3, network())
    embedding.validate_loaded()
    embedding.spelling[1, 2] = CHARACTERS
    with pytest.raises(ValueError, match="none of the 260"):
        embedding.validate_loaded()
