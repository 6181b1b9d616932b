"""Senses of a word: the vectors of all its occurrences, layer by layer, and how well they keep its senses apart.

nearest        the sense of an occurrence is that of most of its nearest neighbours, itself left out (cosine)
silhouette     how much nearer occurrences are to their own sense than to the nearest other one (Rousseeuw, 1987), by cosine
similarity     the mean cosine of occurrences of the word, less that of other words at random: near 1 the context changes
               nothing (Ethayarajh, 2019, arXiv 1909.00512)
same or not    two occurrences have one sense where their cosine is above a threshold that is chosen on other pairs (WiC; Pilehvar
               & Camacho-Collados, 2019, arXiv 1808.09121)

The picture is by t-SNE (van der Maaten & Hinton, 2008), exact, or by the first two principal components.
"""

import math
from typing import NamedTuple

import numpy as np

NEIGHBOURS = 5
ALIKE = 1e-6  # cosines that differ by less are equal
PERPLEXITY = 30.0
STEPS = 500  # of t-SNE
EARLY = 100  # of them with exaggerated similarities


def unit(vectors: np.ndarray) -> np.ndarray:
    """With length 1; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def nearest_senses(vectors: np.ndarray, senses: np.ndarray, neighbours: int = NEIGHBOURS) -> np.ndarray:
    """(n,) whether the nearest other occurrences have the sense of each: most of them, the nearest where votes tie. All that
    are as near as the last of them vote, too: of static vectors, which are all alike, every other occurrence."""
    near = unit(vectors.astype(np.float64))
    cosine = near @ near.T
    np.fill_diagonal(cosine, -np.inf)
    kept = min(neighbours, len(vectors) - 1)
    last = np.partition(cosine, -kept, axis=1)[:, -kept]
    votes = cosine >= last[:, None] - ALIKE
    senses_of = np.eye(int(senses.max()) + 1)[senses]
    closeness = np.where(votes, np.where(np.isfinite(cosine), cosine, 0.0) + 1, 0.0) @ senses_of
    counts = votes @ senses_of
    return ((counts + 1e-3 * closeness / (2 * len(vectors))).argmax(1) == senses).astype(float)


def silhouette(vectors: np.ndarray, senses: np.ndarray) -> float:
    """The mean over all occurrences of (b − a) / max(a, b): a, b the mean distances to the own and to the nearest other sense."""
    near = unit(vectors.astype(np.float64))
    distance = 1 - near @ near.T
    count = int(senses.max()) + 1
    sums = np.stack([distance[:, senses == sense].sum(1) for sense in range(count)], 1)
    sizes = np.bincount(senses, minlength=count)
    own = sums[np.arange(len(senses)), senses] / np.maximum(sizes[senses] - 1, 1)
    means = sums / np.maximum(sizes, 1)
    means[np.arange(len(senses)), senses] = np.inf
    means[:, sizes == 0] = np.inf
    other = means.min(1)
    found = np.where(sizes[senses] > 1, (other - own) / np.maximum(np.maximum(own, other), 1e-12), 0.0)
    return float(found.mean())


def mean_cosine(vectors: np.ndarray) -> float:
    """Of all pairs of different occurrences."""
    near = unit(vectors.astype(np.float64))
    n = len(near)
    return float((np.square(near.sum(0)).sum() - np.square(np.linalg.norm(near, axis=1)).sum()) / (n * (n - 1)))


def mean_cosine_of_words(vectors: np.ndarray, words: np.ndarray) -> float:
    """Of pairs of different words at random: what any two vectors of the layer have in common."""
    near = unit(vectors.astype(np.float64))
    cosine, other = near @ near.T, words[:, None] != words
    return float(cosine[other].mean()) if other.any() else math.nan


class Threshold(NamedTuple):
    value: float
    accuracy: float  # on what it was chosen on


def choose_threshold(cosines: np.ndarray, same: np.ndarray) -> Threshold:
    """Above which most pairs are right when they are said to have one sense."""
    order = np.argsort(cosines, kind="stable")
    sorted_same = same[order].astype(float)
    # of a cut before place i: those below are said to differ, those from it on to be the same
    right = np.concatenate(([0.0], np.cumsum(1 - sorted_same))) + np.concatenate(
        (np.cumsum(sorted_same[::-1])[::-1], [0.0])
    )
    best = int(right.argmax())
    ends = np.concatenate(
        ([cosines[order[0]] - 1], (cosines[order][1:] + cosines[order][:-1]) / 2, [cosines[order[-1]] + 1])
    )
    return Threshold(float(ends[best]), float(right[best] / len(same)))


# ---- pictures in two dimensions


def principal(vectors: np.ndarray) -> np.ndarray:
    """(n, 2) the first two principal components, with the largest entry of each positive."""
    centred = vectors.astype(np.float64) - vectors.mean(0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    found = left[:, :2] * values[:2]
    found = np.pad(found, ((0, 0), (0, 2 - found.shape[1])))
    signs = np.sign(found[np.abs(found).argmax(0), np.arange(2)])
    return found * np.where(signs == 0, 1.0, signs)


def neighbour_probabilities(distances: np.ndarray, perplexity: float) -> np.ndarray:
    """(n, n) of squared distances: each row a Gaussian whose entropy is the logarithm of the perplexity, by bisection."""
    n = len(distances)
    wanted = math.log(perplexity)
    low, high, beta = np.full(n, -np.inf), np.full(n, np.inf), np.ones(n)
    others = ~np.eye(n, dtype=bool)
    for _ in range(100):
        found = np.exp(-distances * beta[:, None]) * others
        sums = np.maximum(found.sum(1), 1e-300)
        entropy = np.log(sums) + beta * (distances * found).sum(1) / sums
        off = entropy - wanted
        if np.abs(off).max() <= 1e-5:
            break
        low, high = np.where(off > 0, beta, low), np.where(off > 0, high, beta)
        up = np.where(np.isinf(high), beta * 2, (beta + high) / 2)
        down = np.where(np.isinf(low), beta / 2, (beta + low) / 2)
        beta = np.where(off > 0, up, down)
    return found / sums[:, None]


def tsne(vectors: np.ndarray, perplexity: float = PERPLEXITY, steps: int = STEPS) -> np.ndarray:
    """(n, 2) from the principal components on, so that there is nothing to draw at random."""
    n = len(vectors)
    squares = np.square(vectors.astype(np.float64)).sum(1)
    distances = np.maximum(
        squares[:, None] + squares - 2 * vectors.astype(np.float64) @ vectors.T.astype(np.float64), 0.0
    )
    near = neighbour_probabilities(distances, min(perplexity, max((n - 1) / 3, 2.0)))
    shared = np.maximum((near + near.T) / (2 * n), 1e-12)
    place = principal(vectors)
    place = place / max(float(place[:, 0].std()), 1e-12) * 1e-4
    speed, gain = np.zeros_like(place), np.ones_like(place)
    rate = max(n / 12.0 / 4, 50.0)
    for step in range(steps):
        moved = np.square(place).sum(1)
        student = 1 / (1 + np.maximum(moved[:, None] + moved - 2 * place @ place.T, 0.0))
        np.fill_diagonal(student, 0.0)
        weights = (shared * (12.0 if step < EARLY else 1.0) - np.maximum(student / student.sum(), 1e-12)) * student
        gradient = 4 * (weights.sum(1)[:, None] * place - weights @ place)
        same = np.sign(gradient) == np.sign(speed)
        gain = np.maximum(np.where(same, gain * 0.8, gain + 0.2), 0.01)
        speed = (0.5 if step < EARLY else 0.8) * speed - rate * gain * gradient
        place = place + speed
    return place - place.mean(0)
