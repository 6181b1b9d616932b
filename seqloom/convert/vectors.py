"""Files of word vectors ⇄ runs: word2vec's text and .bin, GloVe's text, fastText's .vec."""

from pathlib import Path

import numpy as np
import torch

from seqloom.batch import STATIC
from seqloom.convert.huggingface import check_out, write_run
from seqloom.errors import UsageError
from seqloom.files import new_file, sole_owner
from seqloom.models.word2vec import Word2vec
from seqloom.recipes.schema import build_recipe
from seqloom.runs.folder import RUN, clear
from seqloom.runs.load import load_language_model
from seqloom.text.vectors import SUFFIXES, WordVectors, read_all_vectors, write_vectors_file
from seqloom.tokens.learn import tokenizer_of_words
from seqloom.weights import unique


def import_vectors(path: str | Path, out: str | Path, overwrite: bool = False) -> Path:
    """A file of word vectors → a run of the model word2vec. How often words occur is not in it, and the second table neither."""
    path, out = Path(path), Path(out)
    check_out(out, overwrite, path, RUN)
    found = read_all_vectors(path)
    tokenizer = tokenizer_of_words(found.words)
    sections = Word2vec.recipe("small")
    name, dim = f"word2vec-{path.name.partition('.')[0]}", found.vectors.shape[1]
    recipe = build_recipe({"name": name, "model": {"name": "word2vec", "dim": dim}, **sections}, str(path))
    learner = recipe.learner(tokenizer.vocab_size)
    with torch.no_grad():
        learner.backbone.table.weight.zero_()  # of special tokens, which the file does not have
        learner.backbone.table.weight[: len(found.words)] = torch.from_numpy(found.vectors)
    own = unique(learner.backbone)
    head = {name: tensor for name, tensor in unique(learner).items() if not name.startswith("backbone.")}
    with sole_owner(out):
        clear(out, overwrite=True)  # by now it is empty, or was to be overwritten
        write_run(out, path, {"model_type": path.suffix or "text"}, recipe, tokenizer, (own, head), {})
    return out


def export_vectors(run: str | Path, out: str | Path, vectors: str = "in", overwrite: bool = False) -> WordVectors:
    """The vectors of a run's words → a file in the format of its ending: .bin, .vec (text with a header), .txt (without)."""
    out = Path(out)
    if overwrite and out.is_file():
        if out.suffix not in SUFFIXES:
            raise UsageError(f"--out {out}: name a file that ends in {' or '.join(SUFFIXES)}")
    else:
        new_file(out, "--out", *SUFFIXES)
    loaded = load_language_model(run, "cpu")
    tokenizer = loaded.tokenizer
    if tokenizer.kind != "word":
        raise UsageError(
            f"--out {out}: files of vectors are of words, and the vocabulary of {run} is of {tokenizer.kind}: name a folder"
        )
    table = loaded.table(vectors)
    special = {tokenizer.unk_id, *tokenizer.special_ids.values()}
    # a special token may be a word of an imported file: then it has a vector
    there = [i for i in range(len(table)) if tokenizer.entry(i) and (i not in special or table[i].any())]
    if loaded.learner.backbone.learns_from not in STATIC:  # where special tokens are read like others
        there = [i for i in there if i not in special]
    found = WordVectors([tokenizer.token(i) for i in there], np.ascontiguousarray(table[there]))
    write_vectors_file(out, found)
    return found
