"""How long checkpoints hold a training up: a GPT-2 of 133M parameters on the CPU.

    python benchmarks/saving.py OUT [--steps 12] [--every 4]

A step is small (256 tokens), so that a run takes seconds, and saves far more often than real ones do. Printed are the seconds in
which `Fit.save` held the loop up, those of the whole loop, and the size of a checkpoint.
"""

import argparse
import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

from seqloom.batches.prepare import prepare
from seqloom.runs.training import pretrain
from seqloom.training.loop import Fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--every", type=int, default=4, help="steps between two checkpoints")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    lines = (" ".join(f"w{rng.randrange(500)}" for _ in range(100)) for _ in range(300))
    (given.out / "text.txt").write_text("\n".join(lines) + "\n")
    options: dict[str, Any] = {"tokenizer": "word", "min_count": 1, "valid": 0.1, "overwrite": True}
    prepare([given.out / "text.txt"], given.out / "data", documents="line", **options)

    held: list[float] = []
    loop: list[float] = []
    save, steps = Fit.save, Fit.steps

    def timed_save(fit: Fit) -> None:
        began = time.monotonic()
        save(fit)
        held.append(round(time.monotonic() - began, 3))

    def timed_steps(fit: Fit, *arguments: Any) -> None:
        began = time.monotonic()
        steps(fit, *arguments)
        loop.append(round(time.monotonic() - began, 3))

    Fit.save, Fit.steps = timed_save, timed_steps  # type: ignore[method-assign]
    settings = ["model.dim=960", "model.num_heads=12", "model.num_layers=12", "batches.budget=256", "batches.length=64"]
    settings += [f"budget={{steps={given.steps}}}", f"train.save_every={given.every}", "train.eval_every=1000"]
    settings += ["valid.limit=64"]
    run = pretrain("gpt2-tiny", given.out / "data", given.out / "run", settings=settings, device="cpu", overwrite=True)
    saved = given.out / "run" / "checkpoints" / f"step-{given.steps}"
    size = sum(path.stat().st_size for path in saved.iterdir())
    found = {"parameters": run.learner.size(), "checkpoint_gb": round(size / 1e9, 2)}
    print(json.dumps(found | {"save_held_up_seconds": held, "loop_seconds": loop[0]}))
    shutil.rmtree(given.out / "run")


if __name__ == "__main__":
    main()
