"""BLEU and chrF by sacrebleu, with the signatures that make two scores comparable. Papineni et al., 2002; Popović, 2015;
Post, 2018."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from seqloom.errors import DataError, ModelError, UsageError

TOKENIZERS = ("13a", "char", "intl", "zh", "none")  # those of sacrebleu that need nothing else installed


def check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses):,} translations for {len(references):,} references: give one line for each line"
        )
    if not references:
        raise DataError("no line to score: the files are empty")


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False
) -> dict[str, Any]:
    """bleu and chrf of a whole test set, and how each was computed."""
    check_lengths(hypotheses, references)
    sacrebleu = _sacrebleu()
    if tokenize not in TOKENIZERS:
        raise UsageError(f"--tokenize {tokenize}: choose {', '.join(TOKENIZERS)}")
    bleu = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase)
    chrf = sacrebleu.CHRF(lowercase=lowercase)
    first, second = (metric.corpus_score(list(hypotheses), [list(references)]) for metric in (bleu, chrf))
    return {
        "bleu": first.score,
        "chrf": second.score,
        "brevity_penalty": first.bp,
        "length_ratio": first.sys_len / max(first.ref_len, 1),
        "lines": len(references),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }


class Bucket(NamedTuple):
    """The lines whose source has `shortest` to `longest` words."""

    shortest: int
    longest: int
    lines: int
    bleu: float


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    borders: Sequence[int] = (8, 11, 14, 17, 21),
) -> list[Bucket]:
    """BLEU of the lines whose sources have up to 8 words, up to 11, …: it drops with length for a model that has to remember a
    whole sentence in one vector."""
    check_lengths(hypotheses, references)
    bleu = _sacrebleu().BLEU(tokenize=tokenize)
    words = [len(source.split()) for source in sources]
    found, low = [], 0
    for high in (*borders, max((*words, borders[-1] + 1))):
        index = [i for i, count in enumerate(words) if low < count <= high]
        if index:
            score = bleu.corpus_score([hypotheses[i] for i in index], [[references[i] for i in index]]).score
            found.append(Bucket(low + 1, high, len(index), score))
        low = high
    return found


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError:
        raise ModelError("this needs 'sacrebleu': pip install \"seqloom[translate]\"") from None
    return sacrebleu.metrics
