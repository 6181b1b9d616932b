"""Hierarchical softmax over a Huffman tree: Morin & Bengio, 2005; Mikolov et al., 2013 (arXiv 1310.4546).

A word is a leaf, and frequent words are near the root. Its probability is the product, over the nodes on the way to it, of
σ(±v_node · h): + where the way turns left, − where it turns right. Over all words they sum to 1.
"""

import heapq

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.blocks.block_product import BlockProduct


def huffman_paths(counts: list[int]) -> tuple[list[list[int]], list[list[int]]]:
    """For each word the inner nodes from the root down to it, and the turns: 1 left, −1 right."""
    size = len(counts)
    heap = [(count, number) for number, count in enumerate(counts)]
    heapq.heapify(heap)
    parent, turn = [0] * (2 * size), [0] * (2 * size)
    for node in range(size, 2 * size - 1):
        for side in (1, -1):
            count, child = heapq.heappop(heap)
            parent[child], turn[child] = node, side
            if side == 1:
                first = count
        heapq.heappush(heap, (first + count, node))
    root, nodes, turns = 2 * size - 2, [], []
    for word in range(size):
        way: list[int] = []
        sides: list[int] = []
        place = word
        while place != root:
            sides.append(turn[place])
            place = parent[place]
            way.append(place - size)
        nodes.append(way[::-1])
        turns.append(sides[::-1])
    return nodes, turns


class HuffmanTree(nn.Module):
    """The vectors of inner nodes. The tree itself follows from the counts of the words, and is built from them on loading."""

    path: Tensor  # (V, L) the inner nodes on the way to each word
    turns: Tensor  # (V, L) 1 or −1; 0 behind the end of a way, and for what is no word

    def __init__(self, vocab_size: int, dim: int):
        super().__init__()
        self.dim = dim
        self.nodes = nn.Embedding(max(vocab_size - 1, 1), dim)
        nn.init.zeros_(self.nodes.weight)
        self.register_buffer("path", torch.zeros(vocab_size, 1, dtype=torch.long), persistent=False)
        self.register_buffer("turns", torch.zeros(vocab_size, 1), persistent=False)
        self.scores = BlockProduct(dim, 1)

    def build(self, counts: Tensor, is_word: Tensor, columns: int) -> None:
        """columns: how many hidden states each word is predicted from, which the cost follows from."""
        words = is_word.cpu().nonzero().flatten().tolist()
        nodes, turns = huffman_paths(counts.cpu()[words].tolist())
        longest = max(map(len, nodes), default=0) or 1
        path = torch.zeros(len(counts), longest, dtype=torch.long)
        signs = torch.zeros(len(counts), longest)
        for word, way, sides in zip(words, nodes, turns, strict=True):
            path[word, : len(way)] = torch.tensor(way, dtype=torch.long)
            signs[word, : len(sides)] = torch.tensor(sides, dtype=torch.float32)
        device = self.nodes.weight.device
        self.register_buffer("path", path.to(device), persistent=False)
        self.register_buffer("turns", signs.to(device), persistent=False)
        self.scores.per_token = 2 * self.dim * longest * columns

    def losses(self, words: Tensor, hidden: Tensor) -> Tensor:
        """(T, C): −log p of word t from each of its C hidden states, which are (T, C, D)."""
        scores = self.scores(self.nodes(self.path[words]), hidden.transpose(1, 2))  # (T, L, C)
        turns = self.turns[words][:, :, None].to(scores.dtype)
        return (F.softplus(-turns * scores) * turns.abs()).sum(1)

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """(N, V); what is no word has probability 0."""
        scores = hidden @ self.nodes.weight.T
        turns = self.turns.to(hidden.dtype)
        found = -(F.softplus(-turns * scores[:, self.path]) * turns.abs()).sum(2)
        return found.masked_fill((self.turns == 0).all(1), -torch.inf)
