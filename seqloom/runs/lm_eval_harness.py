"""Any run with a left-to-right distribution as a model of EleutherAI's lm-evaluation-harness (Gao et al., 2021).

    import lm_eval
    from seqloom.runs.lm_eval_harness import harness_model

    lm_eval.simple_evaluate(model=harness_model("runs/gpt"), tasks=["my_task"], task_manager=…)

A text is read as in training, the end token before it: also a context that is not empty, where others begin with its first
token. Blanks at the end of a context go to its continuation, as the harness has it; how the two are parted, and the windows
over what is longer than a model's context, are in evaluate/continuations. In `generate_until` a context that is too long
is cut to the last half of what the model reads.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from seqloom.config import build
from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import sample
from seqloom.decode.stream import TextStream
from seqloom.errors import ModelError, UsageError
from seqloom.runs.language_model import Run
from seqloom.runs.load import load_language_model

ROWS = 64  # texts that are written side by side
MAX_NEW = 256  # tokens, where a task does not say


class Request(Protocol):
    @property
    def args(self) -> tuple[Any, ...]: ...


class Answers:
    """What the harness asks, answered by a run."""

    def __init__(self, run: Run, batch_tokens: int = 16384):
        if run.no_next_word is not None:
            raise UsageError(f"{run.folder} {run.no_next_word}: the harness asks for nothing else")
        self.run, self.batch_tokens = run, batch_tokens

    def loglikelihood(self, requests: Sequence[Request]) -> list[tuple[float, bool]]:
        contexts, continuations = [], []
        for context, continuation in (request.args for request in requests):
            contexts.append(context.rstrip())
            continuations.append(context[len(contexts[-1]) :] + continuation)
        found = self.run.continuations(contexts, continuations, self.batch_tokens)
        return [(each.log_prob, each.greedy) for each in found]

    def loglikelihood_rolling(self, requests: Sequence[Request]) -> list[float]:
        texts = [request.args[0] for request in requests]
        return [each.log_prob for each in self.run.continuations([""] * len(texts), texts, self.batch_tokens)]

    def generate_until(self, requests: Sequence[Request]) -> list[str]:
        found = [""] * len(requests)
        alike: dict[str, list[int]] = {}  # by how they are to be written
        for i, request in enumerate(requests):
            alike.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(i)
        for options, some in alike.items():
            until, config = how(json.loads(options))
            some.sort(key=lambda i: len(requests[i].args[0]))
            for at in range(0, len(some), ROWS):
                part = some[at : at + ROWS]
                contexts = [requests[i].args[0] for i in part]
                for i, text in zip(part, write_until(self.run, contexts, until, config, seed=at), strict=True):
                    found[i] = text
        return found


def how(options: dict[str, Any]) -> tuple[list[str], SampleConfig]:
    """Where a text ends, and how its tokens are chosen: the most likely ones, unless "do_sample" is asked for."""
    until = options.pop("until", None) or []
    config = {"max_new": options.pop("max_gen_toks", MAX_NEW), "temperature": 0.0}
    if options.pop("do_sample", False):
        config["temperature"] = options.pop("temperature", 1.0)
    else:
        options = {name: value for name, value in options.items() if name not in ("temperature", "top_p", "top_k")}
    ends = [until] if isinstance(until, str) else until
    return [end for end in ends if end], build(SampleConfig, config | options, source="generate_until")


def write_until(run: Run, contexts: Sequence[str], until: Sequence[str], config: SampleConfig, seed: int) -> list[str]:
    """How each context goes on, up to the first of the strings that end it, which is left out."""
    stepper, _, banned = run.begin("", 1)
    read = [run.read(context) for context in contexts]
    rows = [run.spell(ids, unknown) for ids, unknown in read]
    spelt = [row for row in rows if row is not None]
    stepper.characters = torch.from_numpy(np.concatenate(spelt)).to(run.device) if spelt else None
    texts = [""] * len(contexts)
    streams = [TextStream(run.tokenizer, ids, context) for context, (ids, _) in zip(contexts, read, strict=True)]
    going = set(range(len(contexts)))
    for i, token, _, last in sample(stepper, [ids for ids, _ in read], config, seed, run.tokenizer.end_id, banned):
        if i not in going:
            continue
        texts[i] += "" if token == run.tokenizer.end_id else streams[i].push(token)
        texts[i] += streams[i].close() if last else ""
        ends = [place for end in until if (place := texts[i].find(end)) >= 0]
        if ends:
            texts[i] = texts[i][: min(ends)]
        if ends or last:
            going.discard(i)
            if not going:
                break
    return texts


def harness_model(run: Run | str | Path, device: str = "auto", batch_tokens: int = 16384) -> Any:
    """An `lm_eval.api.model.LM` that answers by a run.

    Args:
        run: the run, or its folder.
        device: "auto", "cpu" or "cuda", where a folder is given.
        batch_tokens: computed at once; changes no figure.
    """
    try:
        from lm_eval.api.model import LM
    except ImportError as error:
        raise ModelError(f"this needs 'lm_eval' ({error}): pip install \"seqloom[harness]\"") from None

    class SeqloomLM(Answers, LM):
        def __init__(self, run: Run) -> None:
            LM.__init__(self)
            Answers.__init__(self, run, batch_tokens)

        @property
        def tokenizer_name(self) -> str:
            return self.run.tokenizer.hash

    return SeqloomLM(run if isinstance(run, Run) else load_language_model(run, device))
