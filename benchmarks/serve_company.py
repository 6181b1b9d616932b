"""The same answer alone and among 63 others: 10,000 requests of mixed kinds and lengths.

    python benchmarks/serve_company.py RUN [RUN…] [--count 10000] [--seed 0]

RUNs are left-to-right models or translators; the requests are shared among them. An engine as the server has it writes up to 64
texts at a time while vectors, scores and translations are asked for, too; everything comes at random moments. Then each request
is answered alone. Two answers may differ in their last digits, since other numbers of rows take other kernels; where that
turned a choice, it is looked at how near the choice was: the distance between the two best candidates in log-probability, or of
a random number from the border between two tokens in the cumulative distribution. Below 1e-4 it is counted as near, otherwise
as wrong.
"""

import argparse
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom import load, progress
from seqloom.batch import exact
from seqloom.decode import sample as sampling
from seqloom.decode.rules import NEVER, SampleConfig, keep_top_k, keep_top_p
from seqloom.decode.sample import Row, Rows, Rules
from seqloom.serve.engine import Call, Engine, Full, StopStrings, Writing

NEAR = 1e-4
WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "king",
    "queen",
    "bird",
    "sees",
    "likes",
    "finds",
    "old",
    "small",
    "my",
    "friend",
    "river",
    "and",
    "of",
    "to",
    "in",
    "at",
    "night",
    "again",
    ".",
    ",",
    "Citizen",
    "First",
]
margins: list[float] = []  # how near each choice of a text alone was
usual_choose = sampling.choose


def choose_with_margin(scores: Tensor, rules: Rules, points: Tensor | None) -> Tensor:
    """Of one row."""
    chosen = usual_choose(scores, rules, points)
    if points is None:
        best = scores[0].topk(2).values
        margins.append(float(best[0] - best[1]))
        return chosen
    shaped = scores / rules.temperature
    edges = []
    if rules.top_k is not None:
        ordered = shaped[0].sort(descending=True).values
        k = int(rules.top_k)
        edges.append(float(ordered[k - 1] - ordered[k]) if k < len(ordered) else 1.0)
        shaped = keep_top_k(shaped, rules.top_k)
    if rules.top_p is not None:
        share = exact(shaped[0].sort(descending=True).values).softmax(0).cumsum(0)
        edges.append(float((share - float(rules.top_p)).abs().min()))
        shaped = keep_top_p(shaped, rules.top_p)
    reached = exact(shaped).softmax(1).cumsum(1)[0]
    point = float(points[0]) * float(reached[-1])
    possible = reached[shaped[0] > NEVER]
    margins.append(min([float((possible - point).abs().min()), *edges]))
    return chosen


@torch.inference_mode()
def write_alone(run: Any, row: Row) -> tuple[list[int], list[float]]:
    """The tokens, and how near each choice was."""
    stepper, _, banned = run.begin("", 1)
    stepper.characters = None
    rows = Rows(stepper, run.tokenizer.end_id, banned)
    margins.clear()
    sampling.choose = choose_with_margin  # type: ignore[assignment]
    try:
        rows.admit([row])
        tokens = []
        while rows.running:
            tokens += [one.token for one in rows.draw()]
            rows.advance()
    finally:
        sampling.choose = usual_choose  # type: ignore[assignment]
    return tokens, list(margins)


def text_of(rng: random.Random, longest: int = 12) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, longest)))


def config_of(rng: random.Random) -> SampleConfig:
    rules: dict[str, Any] = {"temperature": rng.choice([0.0, 0.7, 1.0])}
    if rules["temperature"]:
        rules |= rng.choice([{}, {"top_k": 5}, {"top_p": 0.8}])
    return SampleConfig(max_new=rng.choice([1, 3, 5, 8, 12, 20, 30, 150 if rng.random() < 0.3 else 8]), **rules)


class Asked:
    """Requests of one run in company: what each was, and its answer."""

    def __init__(self, run: Any, seed: int, count: int):
        self.run, self.rng, self.left = run, random.Random(seed), threading.Semaphore(0)
        self.engine = Engine(run, rows=64, waiting=200)
        self.engine.start()
        self.asked: list[tuple[str, Any, list[Any]]] = []
        kinds = ["translate"] if hasattr(run, "translate") else ["write"] * 8 + ["score", "embed"]
        if hasattr(run, "translate"):
            kinds += ["embed"]
        for _ in range(count):
            self.submit(self.make(self.rng.choice(kinds)))
        for _ in range(count):
            assert self.left.acquire(timeout=300)
        self.engine.close()
        self.engine.join()

    def make(self, kind: str) -> Writing | Call:
        got: list[Any] = []
        if kind == "write":
            ids, _ = self.run.read(text_of(self.rng) if self.rng.random() < 0.9 else "")
            row = Row(list(ids), config_of(self.rng), self.rng.randrange(10**6))
            self.asked.append((kind, Row(list(ids), row.config, row.seed), got))

            def emit(piece: Any) -> None:
                assert not piece.error, piece.error
                got.append(piece.token)
                if piece.end:
                    self.left.release()

            return Writing(row, emit, StopStrings(()))
        text = text_of(self.rng)
        self.asked.append((kind, text, got))

        def done(found: Any) -> None:
            assert not isinstance(found, Exception), found
            got.append(found[0])
            self.left.release()

        work = {
            "translate": lambda texts: self.run.translate(texts, beam=4, n_best=1, show=False),
            "embed": self.run.encode,
        }
        return Call((kind,), [text], work.get(kind) or self.run.score, done, tokens=len(text.split()) + 2)

    def submit(self, work: Writing | Call) -> None:
        while True:
            try:
                self.engine.submit(work)
                return
            except Full:
                time.sleep(0.005)


def judge(run: Any, kind: str, asked: Any, got: list[Any]) -> tuple[str, Any]:
    """same, near or wrong; and of those that are not the same how near."""
    if kind == "write":
        tokens, near = write_alone(run, asked)
        if tokens == got:
            return "same", None
        first = next(i for i, (a, b) in enumerate(zip([*tokens, None], [*got, None], strict=False)) if a != b)
        return ("near" if near[first] < NEAR else "wrong"), (first, near[first])
    if kind == "translate":
        best, *others = run.translate([asked], beam=4, n_best=4, show=False)[0]
        if best.text == got[0][0].text:
            return "same", None
        gap = min((best.score - each.score for each in others if each.text == got[0][0].text), default=float("inf"))
        return ("near" if gap < NEAR else "wrong"), gap
    if kind == "score":
        alone, company = run.score([asked])[0].log_probs, got[0].log_probs
    else:
        alone, company = run.encode([asked])[0], got[0]
    gap = float(np.abs(np.asarray(alone) - np.asarray(company)).max())
    return ("same" if gap < NEAR else "wrong"), gap


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("runs", nargs="+", type=Path)
    given.add_argument("--count", type=int, default=10_000)
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--device", default="cpu")
    options = given.parse_args()
    progress.QUIET = True
    every = Counter[str]()
    for number, folder in enumerate(options.runs):
        company = Asked(load(folder, options.device), 1000 * options.seed + number, options.count // len(options.runs))
        run: Any = load(folder, options.device)
        counts, seen = Counter[str](), []
        for kind, asked, got in company.asked:
            verdict, detail = judge(run, kind, asked, got)
            counts[f"{kind} {verdict}"] += 1
            every[verdict] += 1
            if verdict != "same":
                seen.append({"kind": kind, "verdict": verdict, "detail": detail})
        print(json.dumps({"run": folder.name, "counts": counts, "not the same": seen[:20]}), flush=True)
    print(json.dumps({"requests": sum(every.values()), **every}))


if __name__ == "__main__":
    main()
