"""The vocabularies of a task: one that is given or learnt, or one for each side of pairs."""

from collections.abc import Iterator
from typing import Any

from seqloom.batch import EncoderDecoder
from seqloom.errors import DataError, UsageError
from seqloom.models import model_class
from seqloom.progress import say
from seqloom.recipes.schema import Recipe
from seqloom.tasks import task_class
from seqloom.tokens.learn import TokenizerOptions, check_options
from seqloom.tokens.tokenizer import Tokenizer

SAMPLE = 32_000_000  # characters of the training text that a tokenizer is trained on


def learn_tokenizer(
    texts: Iterator[str], options: TokenizerOptions, parted_by: str = "punctuation", side: str = ""
) -> Tokenizer:
    """The given tokenizer, or one that is learnt from the texts. side: "source-", where they are
    sources alone, as options call it."""
    kind, vocab_size, lowercase = options.tokenizer, options.vocab_size, options.lowercase
    if options.from_tokenizer is not None:
        if vocab_size is not None or lowercase:
            raise UsageError(
                f"--from-{side}tokenizer has its own vocabulary: leave out --{side}vocab-size and --lowercase"
            )
        return Tokenizer.load(options.from_tokenizer)
    check_options(kind, vocab_size, None)
    sample, size = [], 0
    for text in texts:
        sample.append(text)
        size += len(text)
        if size > SAMPLE:
            break
    if not sample:
        raise DataError("--train: no example to learn from: the files are empty")
    say(f"learning a {kind} vocabulary from the {'sources of the ' if side else ''}training text")
    return Tokenizer.train(kind, sample, vocab_size=vocab_size, lowercase=lowercase, words=parted_by)


def check_two_vocabularies(recipe: Recipe, task: str) -> None:
    """Raises UsageError where a task has no sources with a vocabulary of their own."""
    if task_class(task).reads != "pairs" or not issubclass(model_class(recipe.model["name"]), EncoderDecoder):
        raise UsageError(
            f"--source-tokenizer, --source-vocab-size and --from-source-tokenizer are for --task translate, not for {task}: "
            f"leave them out"
        )


def model_of_encoder(theirs: Recipe) -> dict[str, Any]:
    """The model of a recipe for texts instead of pairs: of two vocabularies that of the sources, which its encoder reads."""
    model = theirs.model_dump()["model"]
    return model if model.get("source_vocab_size") is None else model | {"source_vocab_size": None}


def check_view(theirs: Recipe, recipe: Recipe, source: str) -> None:
    """Raises UsageError where a decoder would read texts in another vocabulary than its own. source: for the message."""
    if theirs.model.get("source_vocab_size") is not None and (recipe.task or {}).get("view") == "whole":
        raise UsageError(
            f"{source}: 'task.view' = \"whole\" has its decoder read the text, too, and that has a vocabulary of its own: use "
            f'"encoder"'
        )
