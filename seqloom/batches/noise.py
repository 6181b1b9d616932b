"""Noise for texts, and what is needed to restore them. Texts are laid end to end: ids (T,), and the owner (T,) of each token.

Sentences are permuted, then words are hidden, then texts are rotated (Lewis et al., 2019, arXiv 1910.13461, and the order of
their code). All that is hidden is drawn at once. A text of W words is a row of items in random order: words that stay, words
that become masks, words that are deleted, spans of several words, and spans of none, which are insertions. The lengths of the
items of a text sum to W, so nothing is hidden twice and shares are exact: of W words the share p is W·p, rounded up or down by
chance so that it is W·p on average.

Everything is a pure function of the texts and the generator, without a loop over tokens or texts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

KEPT, MASKED, DELETED, SPAN = range(4)  # kinds of items


class Items(NamedTuple):
    """What becomes of the words of texts, in their order."""

    owner: np.ndarray  # (I,) the text of each
    kind: np.ndarray  # (I,)
    length: np.ndarray  # (I,) words; 0: an insertion


class Hidden(NamedTuple):
    """Texts some of whose tokens are hidden."""

    ids: np.ndarray  # (S,)
    owner: np.ndarray  # (S,)
    is_mask: np.ndarray  # (S,) which of them stand for what was hidden, or are inserted
    gone: np.ndarray  # (T,) which tokens of the texts are not there any more
    span: np.ndarray  # (T,) the number of the span that a token was in, counted in its own text; −1: none


def first_places(sizes: np.ndarray) -> np.ndarray:
    """Where each of several runs begins, which lie end to end."""
    return np.cumsum(sizes) - sizes


def place_within(owner: np.ndarray) -> np.ndarray:
    """(T,) the place of each among those of its owner. owner: ascending."""
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    return np.arange(len(owner)) - np.repeat(begins, np.diff(np.append(begins, len(owner))))


def random_ranks(owner: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(T,) a random order within each owner: the rank of each. owner: ascending."""
    order = np.lexsort((rng.random(len(owner)), owner))
    ranks = np.empty(len(owner), np.int64)
    ranks[order] = place_within(owner)
    return ranks


def permuted(owner: np.ndarray, ends: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """(T,) which token stands where after so many sentences of each text have changed their places with each other.
    ends: (T,) which tokens end a sentence."""
    begins = np.diff(owner, prepend=-1) != 0
    begins[1:] |= ends[:-1]
    sizes = np.diff(np.append(np.flatnonzero(begins), len(owner)))
    text = owner[begins]
    counts = np.bincount(text, minlength=1)
    chosen = np.flatnonzero(random_ranks(text, rng) < np.ceil(share * counts[text]))
    order = np.arange(len(text))
    order[chosen] = chosen[np.lexsort((rng.random(len(chosen)), text[chosen]))]
    lengths = sizes[order]
    return np.arange(len(owner)) + np.repeat(first_places(sizes)[order] - first_places(lengths), lengths)


def rotated(owner: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """(T,) which token stands where after so many of the texts begin at one of their tokens, and end with what was before."""
    sizes = np.bincount(owner, minlength=1)
    shift = np.floor(rng.random(len(sizes)) * sizes).astype(np.int64) * (rng.random(len(sizes)) < share)
    return first_places(sizes)[owner] + (place_within(owner) + shift[owner]) % sizes[owner]


def budgets(words: np.ndarray, rates: Sequence[float], rng: np.random.Generator) -> list[np.ndarray]:
    """How many words of each text each rate takes: together never more than there are. With one u for all rates the ends
    ⌊W·(p₁ + … + pᵢ) + u⌋ are as far apart as each rate has words on average, in the shortest texts, too."""
    draws = rng.random((len(rates), len(words)))
    u = draws[np.argmax(np.asarray(rates) > 0)]  # the one that a single rate has always had
    shares = np.concatenate(([0.0], np.cumsum(rates)))[:, None]
    ends = np.minimum(np.floor(words * shares + u).astype(np.int64), words)
    return list(np.diff(ends, axis=0))


def poisson_spans(hidden: np.ndarray, mean: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of spans, and the text of each: drawn until they reach the number of words to be hidden; the last one is cut."""
    owners, lengths, left = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], hidden.copy()
    while left.any():
        owner = np.repeat(np.arange(len(left)), np.where(left > 0, np.ceil(left / mean).astype(np.int64) + 4, 0))
        drawn = rng.poisson(mean, len(owner))
        total = np.cumsum(drawn) - drawn
        before = total - np.repeat(total[place_within(owner) == 0], np.bincount(owner)[np.unique(owner)])
        taken = before < left[owner]
        drawn = np.minimum(drawn, left[owner] - before)
        owners.append(owner[taken])
        lengths.append(drawn[taken])
        left = left - np.bincount(owner[taken], drawn[taken], len(left)).astype(np.int64)
    return np.concatenate(owners), np.concatenate(lengths)


def cut_spans(hidden: np.ndarray, mean: float, most: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The same, with so many words cut at random places into parts of so many on average, none empty; at most `most` a text."""
    parts = np.minimum(np.maximum(np.round(hidden / mean).astype(np.int64), 1), most)
    owner = np.repeat(np.arange(len(hidden)), hidden)
    place = place_within(owner)
    # the first begins with the first word, the others with any later ones
    rest = place > 0
    begins = ~rest
    begins[rest] = random_ranks(owner[rest], rng) < parts[owner[rest]] - 1
    starts = np.flatnonzero(begins)
    return owner[starts], np.diff(np.append(starts, len(owner)))


def shuffled(parts: Sequence[tuple[int, np.ndarray, np.ndarray]], rng: np.random.Generator) -> Items:
    """Items in random order. parts: of a kind each, the text and the length of every item."""
    owner = np.concatenate([owner for _, owner, _ in parts])
    kind = np.concatenate([np.full(len(owner), kind) for kind, owner, _ in parts])
    length = np.concatenate([length for _, _, length in parts])
    order = np.lexsort((rng.random(len(owner)), owner))
    return Items(owner[order], kind[order], length[order])


def singles(kind: int, counts: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    """So many items of one word in each text."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return kind, owner, np.ones(len(owner), np.int64)


def item_of(items: Items, begins: np.ndarray) -> np.ndarray:
    """(T,) the item that each token is in. begins: (T,) which tokens begin a word."""
    return np.repeat(np.arange(len(items.owner)), items.length)[np.cumsum(begins) - 1]


def tokens_of(items: Items, begins: np.ndarray) -> np.ndarray:
    """(I,) how many tokens the words of each item have."""
    return np.bincount(item_of(items, begins), minlength=len(items.owner))


def hide(
    ids: np.ndarray, owner: np.ndarray, begins: np.ndarray, items: Items, mask: int, room: int, each: bool = False
) -> Hidden:
    """The texts with what the items say: a masked word has a mask for every token, a span one for all of it.

    begins: (T,) which tokens begin a word; room: the most tokens of a text, beyond which nothing is inserted; each: of a span,
    too, every token has its mask."""
    item, tokens = item_of(items, begins), tokens_of(items, begins)
    single = (items.kind == SPAN) & ~(each & (items.length > 0))
    written = np.where(single, 1, np.where(items.kind == DELETED, 0, tokens))
    inserted = (items.length == 0) & (items.kind == SPAN)
    size = np.bincount(items.owner, written * ~inserted, minlength=1)
    written[inserted] = place_within(items.owner[inserted]) < room - size[items.owner[inserted]]
    kind = items.kind[item]
    there = np.full(int(written.sum()), mask, np.int64)
    kept = kind == KEPT
    # where a token that stays comes to stand: behind the first of its item as far as before
    first = np.zeros(len(tokens), np.int64)
    first[tokens > 0] = np.flatnonzero(np.diff(item, prepend=-1))
    target = (first_places(written)[item] + np.arange(len(ids)) - first[item])[kept]
    there[target] = ids[kept]
    is_mask = np.ones(len(there), bool)
    is_mask[target] = False
    spans = np.cumsum(items.kind == SPAN) - 1
    begin = np.concatenate(([0], np.cumsum(np.bincount(items.owner, items.kind == SPAN)))).astype(np.int64)
    span = np.where(kind == SPAN, spans[item] - begin[items.owner[item]], -1)
    return Hidden(there, np.repeat(items.owner, written), is_mask, ~kept, span)
