"""senses: how runs keep the senses of a word apart."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.analyse.probe import Item, Items
from seqloom.analyse.sense_items import Pairs, read_same, read_senses
from seqloom.analyse.senses import (
    choose_threshold,
    mean_cosine,
    mean_cosine_of_words,
    nearest_senses,
    principal,
    silhouette,
    tsne,
    unit,
)
from seqloom.analyse.senses_page import LayerSenses, RunSenses, Senses
from seqloom.blocks.pooling import check_layers
from seqloom.errors import DataError
from seqloom.progress import Progress
from seqloom.runs.probing import open_run, read_states, run_names
from seqloom.text.tagged import word_spans

MOST = 1000  # occurrences
RANDOM_WORDS = 500


def senses(
    runs: Any,
    text: str | Path,
    word: str | None = None,
    *,
    layer: int | None = None,
    same: Sequence[str | Path] = (),
    most: int = MOST,
    device: str = "auto",
) -> Senses:
    """The occurrences of a word in every layer of runs: nearest-neighbour sense accuracy, silhouette, self-similarity, and
    pictures by t-SNE and principal components.

    Args:
        runs: a run, loaded or its folder, or several.
        text: a file: jsonl with "word", "sense", "tokens" and "head", or any text, one per line, whose senses are not known.
        word: whose occurrences are looked at; of a file with senses all words unless given.
        layer: of the picture, 0 being the embedding; that with the best accuracy unless given.
        same: two tables of Word in Context: a threshold is chosen on the first, and measured on the second.
        most: occurrences that are read, evenly over the file.
        device: of runs that are folders.
    """
    several = [runs] if isinstance(runs, str | Path) or hasattr(runs, "reading") else list(runs)
    items = read_senses(Path(text), word, most)
    if len(items.items) < 3:
        raise DataError(f"{text}: {word!r} stands there {len(items.items)} times: three times at least are needed")
    names = sorted({item.label for item in items.items})
    numbers = np.array([names.index(item.label) for item in items.items])
    known = len(names) > 1
    pairs = tuple(read_same(Path(each)) for each in same)
    found = []
    for name, run in zip(run_names(several), several, strict=True):
        found.append(look(open_run(run, device), name, items, numbers if known else None, pairs, layer))
    majority = float(np.bincount(numbers).max() / len(numbers)) if known else math.nan
    shown = [Path(text).name] if word is None else [word]
    return Senses(
        shown[0],
        [item.label for item in items.items],
        [items.texts[item.text] for item in items.items],
        found,
        majority,
    )


def look(
    run: Any, name: str, items: Items, numbers: np.ndarray | None, pairs: tuple[Pairs, ...], layer: int | None
) -> RunSenses:
    states = read_states(run, name, items, "all")
    others = random_words(items)
    if layer is not None:
        check_layers(str(layer), states.shape[1] - 1, "--layer", allowed=())
    beside = read_states(run, name, others, "all")
    words = np.unique([item.form for item in others.items], return_inverse=True)[1]
    cosines = [pair_cosines(run, name, each) for each in pairs]
    found = []
    with Progress(f"senses in {name}", total=states.shape[1], unit="layers") as bar:
        for i in range(states.shape[1]):
            vectors = states[:, i]
            same = None
            if len(pairs) == 2:
                threshold = choose_threshold(cosines[0][:, i], np.array(pairs[0].same))
                same = threshold, ((cosines[1][:, i] > threshold.value) == np.array(pairs[1].same)).astype(float)
            found.append(
                LayerSenses(
                    None if numbers is None else nearest_senses(vectors, numbers),
                    math.nan if numbers is None else silhouette(vectors, numbers),
                    mean_cosine(vectors), mean_cosine_of_words(beside[:, i], words), same,
                )
            )  # fmt: skip
            bar.advance(1)
    result = RunSenses(name, found, 0, {})
    shown = result.best if layer is None else layer
    return result._replace(shown=shown, places=draw(states[:, shown]))


def draw(vectors: np.ndarray) -> dict[str, np.ndarray]:
    """Of many occurrences t-SNE is drawn from their principal components, of which fifty say nearly all."""
    centred = unit(vectors.astype(np.float64))
    centred = centred - centred.mean(0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    return {"t-SNE": tsne(left[:, :50] * values[:50]), "principal components": principal(centred)}


def random_words(items: Items) -> Items:
    """Words of the same texts at random, always the same ones."""
    random = np.random.default_rng(0)
    chosen = []
    for i in random.permutation(len(items.texts)).tolist():
        spans = [span for span in word_spans(items.texts[i]) if items.texts[i][span[0]].isalpha()]
        if spans:
            a, b = spans[int(random.integers(len(spans)))]
            chosen.append(Item(i, ((a, b),), "", items.texts[i][a:b].lower()))
        if len(chosen) >= RANDOM_WORDS:
            break
    return Items(items.texts, sorted(chosen, key=lambda item: item.text), items.places)


def pair_cosines(run: Any, name: str, pairs: Pairs) -> np.ndarray:
    """(pairs, layers)"""
    states = read_states(run, name, pairs.items, "all")
    one, other = unit(states[::2].astype(np.float64)), unit(states[1::2].astype(np.float64))
    return (one * other).sum(-1)
