"""gradient_flow and effective_context: how far back left-to-right runs look."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqloom.analyse.context import choose_words, context_losses, contexts_up_to
from seqloom.analyse.context_page import EffectiveContext
from seqloom.analyse.flow import cut_windows
from seqloom.analyse.flow import gradient_flow as measure_flow
from seqloom.analyse.flow_page import GradientFlow
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.score import Texts
from seqloom.objectives.next_token import as_left_to_right
from seqloom.runs.language_model import Run
from seqloom.runs.probing import open_run, run_names
from seqloom.text.read import UNREADABLE, Reader


def gradient_flow(
    runs: Any, text: str | Path, *, back: int = 50, windows: int = 32, device: str = "auto"
) -> GradientFlow:
    """How much of the loss at one word reaches the states before it, with the eigenvalues of recurrent matrices.

    Args:
        runs: a run, loaded or its folder, or several; what layers of a Transformer hand on counts as its states.
        text: a file with one text per line.
        back: steps back from the last word.
        windows: to average over.
        device: of runs that are folders.
    """
    flows = []
    for name, run in language_models(runs, "gradient flow", device):
        tokens = (run.tokenizer.encode(each) for each in read_documents(Path(text), "line"))
        chosen = cut_windows(tokens, run.tokenizer.end_id, back + 2, windows).to(run.device)
        clip = run.config["recipe"]["train"]["optim"]["clip"]
        flows.append(measure_flow(name, run.learner, chosen, clip))  # type: ignore[arg-type]
    return GradientFlow(flows, Path(text).name)


def effective_context(
    runs: Any,
    text: str | Path,
    context: int,
    *,
    step: int | None = None,
    words: int = 1000,
    documents: str = "auto",
    device: str = "auto",
) -> EffectiveContext:
    """How many tokens before a word lower its loss.

    Args:
        runs: a run, loaded or its folder, or several that share a tokenizer.
        text: a file with documents.
        context: the most tokens before a word.
        step: tokens between two contexts; a sixteenth of the longest unless given.
        words: that are predicted, spread evenly over the documents.
        documents: how a .txt is split: "auto", "line", "blank" or "file".
        device: of runs that are folders.
    """
    if step is not None and step >= context:
        raise UsageError(f"--step {step} must be smaller than --context {context}: two contexts are compared")
    loaded = language_models(runs, "effective context", device)
    first = loaded[0][1]
    for _, run in loaded:
        if not run.learner.has_next_word:
            raise UsageError(f"--context: {run.folder} {run.no_next_word} to measure")
        if run.config["tokenizer"] != first.config["tokenizer"]:
            raise UsageError(
                f"--context: {first.folder} and {run.folder} have different tokenizers: only losses of the same tokens can be "
                f"compared; give them one by one"
            )
    texts = Texts(
        [first.tokenizer.encode(each) for each in read_documents(Path(text), documents)], first.tokenizer.end_id
    )
    contexts = contexts_up_to(context, step)
    chosen = choose_words(texts, contexts[-1], words)
    group = [
        context_losses(name, as_left_to_right(run.learner), texts, chosen, contexts, run.device) for name, run in loaded
    ]
    return EffectiveContext(group, Path(text).name)


def language_models(runs: Any, wanted: str, device: str) -> list[tuple[str, Run]]:
    """Each run by its name. Raises UsageError for one that has learnt a task."""
    several = [runs] if isinstance(runs, str | Path) or hasattr(runs, "reading") else list(runs)
    found = []
    for name, each in zip(run_names(several), several, strict=True):
        run = open_run(each, device)
        if not isinstance(run, Run):
            raise UsageError(
                f"{wanted}: {run.folder} is trained for {run.learns}, it is no language model: choose another"
            )
        found.append((name, run))
    return found


def read_documents(path: Path, documents: str) -> Iterator[str]:
    """Raises DataError where one is not UTF-8."""
    reader = Reader(path, documents)
    for each in reader:
        yield each.text
    places = reader.problems.places.get(UNREADABLE)
    if places:
        raise DataError(f"{places[0]}: not valid UTF-8: convert the file to UTF-8")
