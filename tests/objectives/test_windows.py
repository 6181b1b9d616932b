"""Skip-gram and CBOW: loss and gradient by hand, what is drawn, and bugs that must be noticed."""

import math

import pytest
import torch
import torch.nn.functional as F

from seqloom.batch import pack
from seqloom.blocks.huffman import huffman_paths
from seqloom.errors import DataError, ModelError
from seqloom.objectives import windows
from seqloom.objectives.windows import BLOCK, Draws, Windowed, cut_windows
from seqloom.training import optim
from seqloom.training.optim import OptimConfig, build_optimizer, step
from tests.contract import static
from tests.contract.properties import VOCAB, sequences
from tests.contract.test_planted import noticed

WINDOW = 3


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def pairs_by_hand(texts: list[list[int]], reach: list[int]) -> list[tuple[int, int]]:
    """(place of a word, place of one in its window), places counted over all texts."""
    found, first = [], 0
    for text in texts:
        for i in range(len(text)):
            width = reach[first + i]
            near = range(max(0, i - width), min(len(text), i + width + 1))
            found += [(first + i, first + j) for j in near if j != i]
        first += len(text)
    return found


def given(seed: int = 0, samples: int = 8) -> tuple[list[list[int]], list[int], Windowed]:
    """Texts, how far each window reaches, and what the objectives make of it."""
    texts = sequences(seed, (40, 7, 1, 33))
    ids = [i for text in texts for i in text]
    rng = torch.Generator().manual_seed(seed)
    reach = torch.randint(1, WINDOW + 1, (len(ids),), generator=rng)
    lengths = torch.tensor([len(text) for text in texts])
    batch, near, seen = cut_windows(torch.tensor(ids), lengths, reach, WINDOW)
    negatives = torch.randint(0, VOCAB, (near.shape[0], samples), generator=rng)
    return texts, reach.tolist(), Windowed(batch, near, seen, negatives, len(ids), int(seen.sum()))


def by_hand(objective: str, learner, texts, reach, example) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The loss, and its gradients of W and W′, pair by pair in plain numbers."""
    inside, outside = learner.backbone.table.weight.detach(), learner.context.weight.detach()
    ids = [i for text in texts for i in text]
    pairs = pairs_by_hand(texts, reach)
    total, of_inside, of_outside = 0.0, torch.zeros_like(inside), torch.zeros_like(outside)
    weight = learner.num_negatives / learner.samples

    def learn(v, targets):
        """Targets: words, whether each is right, and how much it counts. Returns the gradient of v."""
        nonlocal total
        of_v = torch.zeros_like(v)
        for word, right, share in targets:
            score = float(v @ outside[word])
            total += -share * math.log(sigmoid(score if right else -score))
            error = share * (sigmoid(score) - right)
            of_v += error * outside[word]
            of_outside[word] += error * v
        return of_v

    if objective == "skip-gram":
        for i, o in pairs:
            wrong = [(n, 0, weight) for n in example.negatives[i // BLOCK].tolist()]
            of_inside[ids[i]] += learn(inside[ids[i]], [(ids[o], 1, 1.0), *wrong])
        return total, of_inside, of_outside
    for i, word in enumerate(ids):
        near = [o for place, o in pairs if place == i]
        if near:
            wrong = [(n, 0, weight) for n in example.negatives[i // BLOCK].tolist()]
            gradient = learn(inside[[ids[o] for o in near]].mean(0), [(word, 1, 1.0), *wrong])
            for o in near:
                of_inside[ids[o]] += gradient / len(near)
    return total, of_inside, of_outside


def equals_by_hand(objective: str) -> None:
    texts, reach, example = given()
    learner = static.learner_of("word2vec", objective, window=WINDOW)
    with torch.no_grad():
        learner.backbone.table.weight.normal_()
    loss = learner(example)
    loss.total.backward()
    total, of_inside, of_outside = by_hand(objective, learner, texts, reach, example)
    pairs = pairs_by_hand(texts, reach)
    assert loss.count.item() == (len(pairs) if objective == "skip-gram" else len({i for i, _ in pairs}))
    assert abs(loss.total.item() - total) < 1e-9 * total
    for found, wanted in ((learner.backbone.table.weight.grad, of_inside), (learner.context.weight.grad, of_outside)):
        assert (found - wanted).abs().max() < 1e-10


@pytest.mark.parametrize("objective", ["skip-gram", "cbow"])
def test_loss_and_gradient_by_hand(objective):
    equals_by_hand(objective)


def test_order_of_documents_changes_no_gradient():
    learner = static.learner_of("word2vec", "skip-gram", window=WINDOW, negatives=1, samples=1)
    texts = sequences(0, (BLOCK, BLOCK))
    gradients = []
    for some in (texts, texts[::-1]):
        reach = torch.full((2 * BLOCK,), WINDOW)
        cut = cut_windows(torch.tensor([*some[0], *some[1]]), torch.tensor([BLOCK, BLOCK]), reach, WINDOW)
        learner(Windowed(*cut, torch.full((2, 1), 7), 2 * BLOCK, 0)).total.backward()
        gradients.append(learner.backbone.table.weight.grad.clone())
        learner.zero_grad()
    assert (gradients[0] - gradients[1]).abs().max() < 1e-12


def moves_rows_alone(objective: str) -> None:
    """Gradients of the rows that were read give what gradients of whole tables give."""
    weights = []
    for few in (False, True):
        learner = static.learner_of("word2vec", objective)
        optimizer = build_optimizer(OptimConfig(name="adagrad", lr=0.1), learner, few_rows=few)
        assert learner.context.sparse == few
        for i in range(5):
            loss = learner(static.example_of(learner, i))
            loss.total.backward()
            norm, _ = step(optimizer, loss.count, clip=0.01)
        weights.append([norm, *(p.detach() for p in learner.parameters())])
    for one, two in zip(*weights, strict=True):
        assert (one - two).abs().max() < 1e-12


@pytest.mark.parametrize("objective", ["skip-gram", "cbow"])
def test_rows_alone_are_moved_as_whole_tables_are(objective):
    moves_rows_alone(objective)


def test_planted_gradient_that_is_not_divided(monkeypatch):
    true = optim.values
    monkeypatch.setattr(optim, "values", lambda p: true(p).clone() if p.grad.is_sparse else true(p))
    noticed(moves_rows_alone, "skip-gram")


# ---- the tree


def sums_to_one() -> None:
    learner = static.learner_of("word2vec", "cbow-tree")
    with torch.no_grad():
        learner.tree.nodes.weight.normal_()
    found = learner.tree.log_probabilities(torch.randn(5, 24, dtype=torch.float64)).exp()
    assert found.shape == (5, VOCAB) and (found[:, 0] == 0).all() and (found[:, 1:] > 0).all()
    assert (found.sum(1) - 1).abs().max() < 1e-12


def tree_equals_by_hand(objective: str) -> None:
    """The loss of all pairs, or means, by the probabilities of all words; gradients by that sum."""
    texts, reach, example = given()
    learner = static.learner_of("word2vec", f"{objective}-tree", window=WINDOW)
    with torch.no_grad():
        learner.tree.nodes.weight.normal_()
        learner.backbone.table.weight.normal_()
    learner(example).total.backward()
    found = [learner(example).total, learner.backbone.table.weight.grad.clone(), learner.tree.nodes.weight.grad.clone()]
    learner.zero_grad()
    ids, total = [i for text in texts for i in text], 0.0
    inside = learner.backbone.table.weight
    pairs = [(i, o) for i, o in pairs_by_hand(texts, reach) if ids[i]]
    if objective == "skip-gram":
        for i, o in pairs:
            total = total - learner.tree.log_probabilities(inside[ids[o]][None])[0, ids[i]]
    else:
        for i in sorted({i for i, _ in pairs}):
            mean = inside[[ids[o] for place, o in pairs if place == i]].mean(0)
            total = total - learner.tree.log_probabilities(mean[None])[0, ids[i]]
    total.backward()
    wanted = [total, learner.backbone.table.weight.grad, learner.tree.nodes.weight.grad]
    for one, two in zip(found, wanted, strict=True):
        assert (one - two).abs().max() < 1e-9 * max(1.0, two.detach().abs().max().item())


def frequent_words_are_near_the_root() -> None:
    """The mean length of a way is that of a Huffman code: below the entropy plus one, and not below the entropy."""
    counts = [1000, 500, 250, 100, 50, 20, 10, 5, 1, 1]
    nodes, turns = huffman_paths(counts)
    assert len({(tuple(n), tuple(t)) for n, t in zip(nodes, turns, strict=True)}) == len(counts)
    share = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    length = float((share * torch.tensor([len(way) for way in nodes])).sum())
    entropy = float(-(share * share.log2()).sum())
    assert entropy <= length < entropy + 1 and len(nodes[0]) == 1


@pytest.mark.parametrize("holds", [sums_to_one, frequent_words_are_near_the_root], ids=lambda check: check.__name__)
def test_the_tree(holds):
    holds()


@pytest.mark.parametrize("objective", ["skip-gram", "cbow"])
def test_the_tree_by_hand(objective):
    tree_equals_by_hand(objective)


def test_planted_bugs_of_the_tree(monkeypatch):
    true = windows.HuffmanTree.build

    def one_way(self, *given):
        true(self, *given)
        self.turns.abs_()

    monkeypatch.setattr(windows.HuffmanTree, "build", one_way)
    noticed(sums_to_one)
    monkeypatch.undo()
    true_around = windows.Windows.around_each

    def shifted(self, example):
        near, seen = true_around(self, example)
        return near.roll(1, 1), seen

    monkeypatch.setattr(windows.Windows, "around_each", shifted)
    noticed(tree_equals_by_hand, "skip-gram")


# ---- what is drawn


def example_for(text: list[int], seed: int = 0, **config) -> Windowed:
    learner = static.learner_of("word2vec", "skip-gram", **({"subsample": 0.0} | config))
    return static.example_of(learner, seed, [text])


def windows_reach_evenly() -> None:
    """At distance d a word is seen with probability (w − d + 1) / w."""
    window, text = 5, [1 + i % 60 for i in range(20_000)]
    example = example_for(text, window=window)
    block, row, column = example.seen.nonzero(as_tuple=True)
    apart = (example.near[block, column] - (block * BLOCK + row)).abs()
    for distance in range(1, window + 1):
        share = (window - distance + 1) / window
        expected, found = 2 * len(text) * share, int((apart == distance).sum())
        # each window is seen on both sides: the variance of n draws is twice that of 2n
        assert abs(found - expected) < 5 * math.sqrt(4 * len(text) * max(share * (1 - share), 1e-3)) + 2 * window
    assert int(apart.max()) <= window and int(apart.min()) == 1


def windows_stay_in_their_document() -> None:
    learner = static.learner_of("word2vec", "skip-gram", subsample=0.0, window=WINDOW)
    texts = [[1] * n for n in (5, 1, 2, 40, 33, 31, 3)]
    example = static.example_of(learner, 0, texts)
    block, row, column = example.seen.nonzero(as_tuple=True)
    owner = example.batch.owner
    assert torch.equal(owner[example.near[block, column]], owner[block * BLOCK + row])
    assert int((block * BLOCK + row).max()) < sum(map(len, texts)), "filler has a window"


def negatives_follow_the_counts() -> None:
    """χ² against counts^0.75, of words without special tokens."""
    counts = static.Words().counts().double()
    counts[0] = 0
    expected = counts**0.75 / (counts**0.75).sum()
    draws = Draws(static.Words().counts(), torch.arange(VOCAB) == 0, 1e-3)
    drawn = draws.negatives((4000, 50), torch.Generator().manual_seed(0))
    found = torch.bincount(drawn.flatten(), minlength=VOCAB).double()
    assert found[0] == 0
    expected = expected * drawn.numel()
    chi2 = float((((found - expected) ** 2) / expected.clamp(min=1e-9))[1:].sum())
    assert chi2 < 110, f"χ² = {chi2:.0f} with 59 degrees of freedom"


def subsampling_keeps_as_published() -> None:
    """√(t/f) + t/f of the occurrences of each word, at most all; special tokens never."""
    t, counts = 5e-3, static.Words().counts().double()
    frequency = counts / counts[1:].sum()
    ids = torch.arange(VOCAB).repeat_interleave(4000)
    kept = ids[Draws(static.Words().counts(), torch.arange(VOCAB) == 0, t).kept(ids, torch.Generator().manual_seed(0))]
    found = torch.bincount(kept, minlength=VOCAB).double() / 4000
    wanted = ((t / frequency).sqrt() + t / frequency).clamp(max=1.0)
    assert found[0] == 0
    spread = (wanted * (1 - wanted) / 4000).sqrt()
    assert ((found - wanted).abs()[1:] <= 5 * spread[1:] + 1e-9).all()


def subsampling_comes_before_windows() -> None:
    """Rare words that stand far apart are in each other's window when what lies between is left out."""
    learner = static.learner_of("word2vec", "skip-gram", window=1, subsample=1e-7)
    learner.counts.fill_(0)
    learner.counts[1], learner.counts[2:] = 10_000_000, 1
    text = [word for i in range(60) for word in [*[1] * 20, 2 + i % 50]]
    example = static.example_of(learner, 0, [text])
    block, row, column = example.seen.nonzero(as_tuple=True)
    ids = example.batch.ids
    rare = (ids[block * BLOCK + row] > 1) & (ids[example.near[block, column]] > 1)
    assert int(rare.sum()) > 50, "no two rare words are in one window"


CHECKS = [
    windows_reach_evenly,
    windows_stay_in_their_document,
    negatives_follow_the_counts,
    subsampling_keeps_as_published,
    subsampling_comes_before_windows,
]


@pytest.mark.parametrize("holds", CHECKS, ids=lambda check: check.__name__)
def test_what_is_drawn(holds):
    holds()


def test_sizes_count_the_text_and_what_is_left_of_it():
    learner = static.learner_of("word2vec", "skip-gram", subsample=0.0)
    example = static.example_of(learner, 0, [[0, 1, 2, 0, 3], [0, 4]])
    sizes = example.sizes()
    assert (sizes.tokens, sizes.read, sizes.targets) == (7, 4, example.pairs)
    assert example.batch.ids[:4].tolist() == [1, 2, 3, 4] and example.batch.owner[:4].tolist() == [0, 0, 0, 1]


def test_without_counts_nothing_is_drawn():
    learner = static.learner_of("word2vec", "skip-gram")
    learner.counts.zero_()
    learner.draws = None
    with pytest.raises(ModelError, match="imported"):
        static.example_of(learner, 0)


def test_a_text_without_words_is_rejected():
    learner = static.learner_of("word2vec", "skip-gram")

    class Empty(static.Words):
        def counts(self):
            return torch.zeros(VOCAB, dtype=torch.long)

    with pytest.raises(DataError, match="no word"):
        learner.set_vocabulary(Empty())


def test_special_tokens_have_no_vector():
    learner = static.learner_of("word2vec", "skip-gram")
    assert not learner.backbone.table.weight[0].any() and learner.backbone.table.weight[1:].any(1).all()
    assert learner.backbone(pack([[0, 1]])).hidden.shape == (2, 24)


# ---- bugs


def test_planted_windows_over_borders(monkeypatch):
    true = windows.ragged
    monkeypatch.setattr(
        windows, "ragged", lambda *a, **k: (b := true(*a, **k))._replace(owner=torch.zeros_like(b.owner))
    )
    noticed(equals_by_hand, "skip-gram")


def test_planted_windows_of_one_size(monkeypatch):
    true = torch.randint
    monkeypatch.setattr(torch, "randint", lambda low, high, shape, **k: true(high - 1, high, shape, **k))
    noticed(windows_reach_evenly)


def test_planted_negatives_that_are_uniform(monkeypatch):
    monkeypatch.setattr(windows, "POWER", 0.0)
    noticed(negatives_follow_the_counts)


def test_planted_negatives_by_plain_counts(monkeypatch):
    monkeypatch.setattr(windows, "POWER", 1.0)
    noticed(negatives_follow_the_counts)


def test_planted_subsampling_without_the_second_term(monkeypatch):
    true = Draws.__init__

    def shorter(self, counts, specials, subsample):
        true(self, counts, specials, subsample)
        frequency = counts / counts[~specials].sum()
        self.keep = (subsample / frequency).sqrt().clamp(max=1.0).float()

    monkeypatch.setattr(Draws, "__init__", shorter)
    noticed(subsampling_keeps_as_published)


def test_planted_subsampling_after_windows(monkeypatch):
    """Places are kept, and what is left out leaves gaps."""
    true = windows.Windows.corrupt

    def late(self, cut, rng):
        kept = self.draws.kept if self.draws else Draws(self.counts, self.specials, self.subsample).kept
        self.draws = Draws(self.counts, self.specials, 0.0)
        example = true(self, cut, rng)
        stays = kept(example.batch.ids, rng)
        seen = example.seen & stays.view(-1, BLOCK)[:, :, None] & stays[example.near][:, None, :]
        return example._replace(seen=seen)

    monkeypatch.setattr(windows.Windows, "corrupt", late)
    noticed(subsampling_comes_before_windows)


@pytest.mark.parametrize("objective", ["skip-gram", "cbow"])
@pytest.mark.parametrize("bug", ["sign", "weight"])
def test_planted_bugs_of_the_loss(objective, bug, monkeypatch):
    if bug == "sign":
        monkeypatch.setattr(f"seqloom.objectives.{objective.replace('-', '_')}.against", lambda s, right: F.softplus(s))
    else:
        monkeypatch.setattr(
            windows.Windows, "against_negatives", lambda self, w, n: F.softplus(w @ self.context(n).mT).sum(2)
        )
    noticed(equals_by_hand, objective)
