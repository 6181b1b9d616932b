"""Training beside other busy processes: threads that spin shortly (the default) against others.

    python benchmarks/busy.py [--recipe transformer-tiny] [--tokens 60000] [--rounds 3] [--others 0 1 2] [--cores 0,1] [--json]

`seqloom train` on two cores (two threads) while 0, 1 and 2 other processes count as fast as they can on the same cores. Both
settings take turns; the figure is the median of the rounds' tokens a second, as the run's metrics.json has it. One thread is
measured too: what somebody would get who knows of the problem.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS = {
    "short spin, 2 threads": {"OMP_NUM_THREADS": "2"},
    "sleep, 2 threads": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"},
    "spin, 2 threads": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "active"},
    "default of OpenMP, 2 threads": {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "300000"},
    "1 thread": {"OMP_NUM_THREADS": "1"},
}


def write_pairs(folder: Path) -> list[str]:
    rng = random.Random(0)
    words = [f"w{i}" for i in range(2000)]
    files = []
    for split, count in (("train", 3000), ("valid", 50)):
        lines = [[rng.choice(words) for _ in range(rng.randint(5, 25))] for _ in range(count)]
        for side, turn in (("a", 1), ("b", -1)):
            path = folder / f"{split}.{side}"
            path.write_text("".join(" ".join(line[::turn]) + "\n" for line in lines))
            files.append(str(path))
    return files


def rate(recipe: str, files: list[str], tokens: int, settings: dict[str, str], out: Path, cores: set[int]) -> float:
    hidden = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | settings
    call = [sys.executable, "-m", "seqloom", "train", recipe, "--task", "translate", "--train", *files[:2]]
    call += ["--valid", *files[2:], "--out", str(out), "--tokens", str(tokens), "--overwrite", "--quiet"]
    subprocess.run(
        [*call, "--device", "cpu"],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return json.loads((out / "metrics.json").read_text())["tokens_per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="transformer-tiny")
    parser.add_argument("--tokens", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--others", type=int, nargs="+", default=[0, 1, 2], help="busy processes beside it")
    parser.add_argument("--cores", default=",".join(map(str, sorted(os.sched_getaffinity(0))[:2])))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cores = {int(core) for core in options.cores.split(",")}
    found: dict[str, dict[str, float]] = {name: {} for name in SETTINGS}
    with tempfile.TemporaryDirectory() as place:
        files = write_pairs(Path(place))
        for others in options.others:
            count = [sys.executable, "-c", "while True: pass"]
            busy = [subprocess.Popen(count, preexec_fn=lambda: os.sched_setaffinity(0, cores)) for _ in range(others)]
            try:
                rates: dict[str, list[float]] = {name: [] for name in SETTINGS}
                for _ in range(options.rounds):
                    for name, settings in SETTINGS.items():
                        out = Path(place) / "run"
                        rates[name].append(rate(options.recipe, files, options.tokens, settings, out, cores))
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
            for name, values in rates.items():
                found[name][f"{others} busy"] = round(statistics.median(values))
                if not options.json:
                    print(f"{others} busy  {name:30} {found[name][f'{others} busy']:8,} tokens/s", flush=True)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
