"""Pseudo-random numbers that are the same on every machine: seeds made of seeds, and a number for each place of a text.

Both use the finalizer of splitmix64 (Steele, Lea and Flood, 2014).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
WORD = 0xFFFFFFFFFFFFFFFF


def derive_seed(*numbers: int) -> int:
    """One well-spread 63-bit seed from several numbers."""
    value = GOLDEN
    for number in numbers:
        value = finalize(value ^ (number & WORD))
    return value >> 1


def finalize(value: Any) -> Any:
    """The bits of a 64-bit number spread over all of it. value: an int, or an array of uint64, whose products wrap around."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & WORD
    return value ^ (value >> 31)


def uniform_at(places: "np.ndarray", salt: int) -> "np.ndarray":
    """A number in [0, 1) for each place of a text, always the same one for the same salt."""
    import numpy as np

    with np.errstate(over="ignore"):
        spread = finalize(places.astype(np.uint64) + np.uint64(GOLDEN * (salt + 1) & WORD))
    return (spread >> 11).astype(np.float64) / 2**53


def permute(places: "np.ndarray", size: int, seed: int) -> "np.ndarray":
    """Where places of 0 … size − 1 go in a permutation that belongs to the seed; none of it is stored.

    A Feistel network of four rounds permutes the numbers of the next even power of two; one that lands outside goes on until
    it lands within.
    """
    import numpy as np

    half = max((size - 1).bit_length() + 1, 2) // 2
    low = np.uint64((1 << half) - 1)
    found = places.astype(np.uint64)
    left_over = np.arange(len(found))
    with np.errstate(over="ignore"):
        while len(left_over):
            left, right = found[left_over] >> np.uint64(half), found[left_over] & low
            for number in range(4):
                left, right = right, left ^ (finalize(right + np.uint64(derive_seed(seed, number))) & low)
            found[left_over] = left << np.uint64(half) | right
            left_over = left_over[found[left_over] >= size]
    return found.astype(np.int64)
