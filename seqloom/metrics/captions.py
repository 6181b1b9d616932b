"""How good captions are: BLEU-1 to 4 against several references, CIDEr-D, and the share that equals one of its references.

CIDEr-D (Vedantam et al., 2015, arXiv 1411.5726): for each n from 1 to 4 the cosine of the n-grams of a caption and a reference,
each n-gram counted and weighted by how rare it is among the pictures, log(pictures / those whose references have it); counts
beyond the reference's do not help, and a Gaussian (σ = 6) of the difference in length punishes; the mean over references and n,
times 10. Words are compared in lower case, without punctuation.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from seqloom.errors import DataError, ModelError
from seqloom.metrics.translation import _sacrebleu
from seqloom.text.tables import say_once

LONGEST = 4
SIGMA = 6.0
Vector = dict[tuple[str, ...], float]


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def n_grams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def cider(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """CIDEr-D of each caption; the mean is that of the set. Rare and frequent n-grams are known from these references alone."""
    candidates = [words_of(text) for text in hypotheses]
    known = [[words_of(text) for text in each] for each in references]
    sums = [0.0] * len(candidates)
    for n in range(1, LONGEST + 1):
        counts = [[n_grams(words, n) for words in each] for each in known]
        pictures: Counter[tuple[str, ...]] = Counter()
        for each in counts:
            pictures.update({gram for one in each for gram in one})

        def weigh(found: Counter[tuple[str, ...]], pictures: Counter[tuple[str, ...]] = pictures) -> Vector:
            return {gram: many * math.log(len(candidates) / max(pictures[gram], 1)) for gram, many in found.items()}

        for i, words in enumerate(candidates):
            mine = weigh(n_grams(words, n))
            for one, reference in zip(counts[i], known[i], strict=True):
                length_penalty = math.exp(-((len(words) - len(reference)) ** 2) / (2 * SIGMA**2))
                sums[i] += 10 * similarity(mine, weigh(one)) * length_penalty / (LONGEST * len(known[i]))
    return sums


def similarity(mine: Vector, theirs: Vector) -> float:
    """The cosine of two vectors, where a number larger than the reference's counts as that."""
    lengths = [math.sqrt(sum(value * value for value in each.values())) for each in (mine, theirs)]
    if not all(lengths):
        return 0.0
    product = sum(min(value, theirs[gram]) * theirs[gram] for gram, value in mine.items() if gram in theirs)
    return product / (lengths[0] * lengths[1])


def caption_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Scores of the captions of a set of pictures, one each. references: those of each picture."""
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses):,} captions for {len(references):,} pictures: give one for each")
    if not references or not all(references):
        raise DataError("a picture without a reference: give at least one caption for each")
    exact = [
        words_of(text) in [words_of(each) for each in known] for text, known in zip(hypotheses, references, strict=True)
    ]
    each = cider(hypotheses, references)
    return {
        "cider": sum(each) / len(each),
        **bleus(hypotheses, references),
        "exact_match": sum(exact) / len(exact),
        "pictures": len(references),
    }


def bleus(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """BLEU-1 to 4 by sacrebleu; where it is not installed they are left out, and that is said."""
    try:
        bleu = _sacrebleu().BLEU(lowercase=True)
    except ModelError as error:
        say_once(f"BLEU of captions is left out: {error}")
        return {}
    most = max(map(len, references))
    streams = [[each[i] if i < len(each) else None for each in references] for i in range(most)]
    found = bleu.corpus_score(list(hypotheses), streams)
    shorter = {f"bleu_{n}": score_of(found, n) for n in range(1, LONGEST)}
    return {"bleu": found.score, **shorter, "bleu_signature": str(bleu.get_signature())}


def score_of(found: Any, n: int) -> float:
    """BLEU-n, from the precisions of BLEU-4."""
    precisions = found.precisions[:n]
    if not all(precisions):
        return 0.0
    return found.bp * math.exp(sum(math.log(each) for each in precisions) / n)
