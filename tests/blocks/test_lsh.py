"""Hashed attention against plain sums over what each token may see; hashes that put alike vectors together."""

import pytest
import torch
from pydantic import ValidationError

from seqloom.batch import pack
from seqloom.blocks import lsh
from seqloom.blocks.lsh import SELF, Chunks, LshAttention, unit
from seqloom.models.reformer import Reformer
from tests.contract import properties as p

SIZES = {"dim": 12, "num_heads": 2, "head_dim": 6, "number": 0, "rounds": 3}
LENGTHS = (1, 7, 8, 9, 30)


def attention(order="causal", causal=True, **changes):
    torch.manual_seed(0)
    sizes = SIZES | {"buckets": (4,), "chunk": 3} | changes
    return LshAttention(order=order, causal=causal, **sizes).double().eval()


def inputs(lengths=LENGTHS, seed=0):
    texts = p.sequences(seed, lengths)
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(sum(lengths), SIZES["dim"], generator=rng, dtype=torch.float64), pack(texts)


def by_hand(mixer, x, seen_of):
    """One sequence, token by token. seen_of(buckets of a head and round, token): whom it sees beside itself."""
    q, v = mixer.queries(x), mixer.values(x)
    k, buckets = unit(q), mixer.hash(q)
    out = torch.zeros_like(q)
    for t in range(len(x)):
        for h in range(q.shape[1]):
            found, sums = [], []
            for r in range(buckets.shape[2]):
                seen = [j for j in seen_of(buckets[:, h, r].tolist(), t) if j != t]
                scores = torch.cat((q[t, h] @ k[seen, h].T, q.new_tensor([SELF])))
                sums.append(scores.logsumexp(0))
                found.append(scores.softmax(0) @ v[[*seen, t], h])
            shares = torch.stack(sums).softmax(0)
            out[t, h] = (shares[:, None] * torch.stack(found)).sum(0)
    return mixer.out(out.flatten(1))


def last_of_bucket(chunk):
    return lambda buckets, t: [j for j in range(t) if buckets[j] == buckets[t]][-chunk:]


def check_causal(mixer, lengths=LENGTHS):
    x, batch = inputs(lengths)
    expected = torch.cat([by_hand(mixer, each, last_of_bucket(mixer.chunk)) for each in x.split(lengths)])
    p.close(mixer(x, batch)[0], expected, 1e-12)


@pytest.mark.parametrize("changes", [{}, {"buckets": (2, 2), "chunk": 1}, {"buckets": (1,), "rounds": 1, "chunk": 5}])
@torch.no_grad()
def test_the_last_tokens_of_the_own_bucket(changes):
    check_causal(attention(**changes))


def full_shared(mixer, x, causal):
    q, v = mixer.queries(x).transpose(0, 1), mixer.values(x).transpose(0, 1)
    scores = q @ unit(q).transpose(1, 2)
    scores = scores.masked_fill(torch.eye(len(x), dtype=torch.bool), SELF)
    if causal:
        scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), float("-inf"))
    return mixer.out((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))


@pytest.mark.parametrize(("order", "causal"), [("causal", True), ("published", True), ("published", False)])
@pytest.mark.parametrize("rounds", [1, 2])
@torch.no_grad()
def test_one_bucket_is_full_attention(order, causal, rounds):
    mixer = attention(order, causal, buckets=(1,), chunk=30, rounds=rounds)
    x, batch = inputs()
    expected = torch.cat([full_shared(mixer, each, causal) for each in x.split(LENGTHS)])
    p.close(mixer(x, batch)[0], expected, 1e-12)


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_the_published_order_cuts_each_sequence_for_itself(causal):
    mixer = attention("published", causal)
    x, batch = inputs()
    alone = [mixer(each, pack([[0] * n]))[0] for each, n in zip(x.split(LENGTHS), LENGTHS, strict=True)]
    p.close(mixer(x, batch)[0], torch.cat(alone), 1e-12)
    p.close(mixer(x, p.widened(batch, 41, 2))[0], torch.cat(alone), 1e-12)


@torch.no_grad()
def test_in_the_published_order_a_later_token_moves_earlier_ones():
    mixer, (x, batch) = attention("published"), inputs((30,))
    other = torch.cat((x[:-1], -x[-1:]))
    assert (mixer(x, batch)[0] - mixer(other, batch)[0])[:-1].abs().max() > 1e-3
    causal = attention()
    p.close(causal(x, batch)[0][:-1], causal(other, batch)[0][:-1], 1e-13)


@pytest.mark.parametrize("order", ["causal", "published"])
def test_gradients(order):
    mixer, (x, batch) = attention(order), inputs((2, 5))
    buckets = mixer.hash(mixer.queries(x))
    torch.autograd.gradcheck(lambda x: mixer.look(x, batch, buckets)[0], x.requires_grad_())


@torch.no_grad()
def test_vectors_that_point_the_same_way_share_buckets():
    mixer = attention(buckets=(8,), rounds=40, head_dim=16)
    rng = torch.Generator().manual_seed(1)
    first, noise = torch.randn(2, 400, 2, 16, generator=rng, dtype=torch.float64)
    shares = []
    for cosine in (0.95, 0.7, 0.0, -0.9):
        across = noise - (noise * first).sum(-1, keepdim=True) / first.square().sum(-1, keepdim=True) * first
        second = cosine * unit(first) + (1 - cosine**2) ** 0.5 * unit(across)
        shares.append(float((mixer.hash(first) == mixer.hash(second)).double().mean()))
    assert shares == sorted(shares, reverse=True) and shares[0] > 0.5
    assert shares[2] == pytest.approx(1 / 8, abs=0.02) and shares[3] < 0.01


def test_rotations_follow_the_step_in_training_and_nothing_in_evaluation():
    mixer, like = attention(), torch.zeros(1)
    assert torch.equal(mixer.rotations(like), attention().rotations(like))
    torch.manual_seed(5)
    mixer.train()
    first = mixer.rotations(like)
    torch.rand(3)
    assert torch.equal(first, mixer.rotations(like)), "drawn from what the step has left of its random numbers"
    torch.manual_seed(6)
    assert not torch.equal(first, mixer.rotations(like))
    torch.manual_seed(5)
    assert torch.equal(first, mixer.rotations(like))
    assert torch.equal(mixer.draw(2, 9), mixer.draw(5, 9)[:, :, :2]), "a round depends on how many there are"
    assert not torch.equal(mixer.draw(1, 9), attention(number=1).draw(1, 9)), "layers share their rotations"


def wrong_inverse(monkeypatch):
    init = Chunks.__init__

    def changed(self, *given):
        init(self, *given)
        self.inverse = self.inverse.roll(1, -1)

    monkeypatch.setattr(Chunks, "__init__", changed)


def one_too_many(monkeypatch):
    monkeypatch.setattr(lsh, "SELF", 0.0)


def any_bucket(monkeypatch):
    init = Chunks.__init__

    def changed(self, buckets, *given):
        init(self, torch.zeros_like(buckets), *given)

    monkeypatch.setattr(Chunks, "__init__", changed)


@pytest.mark.parametrize("bug", [wrong_inverse, one_too_many, any_bucket])
@torch.no_grad()
def test_planted_bugs_are_noticed(bug, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        check_causal(attention())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"buckets": (7,)}, "buckets [7]: 7 does not divide into directions and their opposites"),
        ({"buckets": (4, 1)}, "buckets [4, 1]"),
        ({"buckets": (512, 512)}, "their product is more than"),
        ({"chunk": 0}, "chunk"),
        ({"rounds": 0}, "rounds"),
        ({"axial": (64, 32)}, "64 rows of 32 places are 2048, not max_len 4096"),
        ({"axial": (-64, -64)}, "axial"),
        ({"axial_dims": (100, 100)}, "256, which is dim, together"),
        ({"both_directions": True}, 'for order = "published"'),
    ],
)
def test_wrong_sizes_are_refused(values, words):
    with pytest.raises(ValidationError) as wrong:
        Reformer.Config(vocab_size=10, **values)
    assert words in str(wrong.value)
