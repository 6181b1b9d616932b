"""Every command and every line of Python in the README is run, in its order, as a reader would."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

from seqloom.cli import run
from seqloom.comparison.plan import PlanConfig, check
from seqloom.config import build
from tests.tasks.labelled import examples, write
from tests.training.material import sentences, write_pairs, write_text

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)


def small_plan() -> str:
    """The README's plan with numbers for a test."""
    (plan,) = blocks("toml")
    check(build(PlanConfig, tomllib.loads(plan)), "README")
    settings = 'settings = ["batches.length=32", "model.max_len=32"]'
    for given, less in {"seeds = 3": "seeds = 1", "parameters = 1e6": "parameters = 6e4\ntolerance = 0.1",
                        "pairs = 200": "pairs = 5", "vocab_size = 4096": "vocab_size = 300", "words = 2e6": "words = 4000",
                        'recipe = "gpt2-tiny"': f'recipe = "gpt2-tiny"\n{settings}',
                        'recipe = "bert-tiny"': f'recipe = "bert-tiny"\n{settings}'}.items():  # fmt: skip
        assert given in plan
        plan = plan.replace(given, less)
    return plan


def call(command: str, capsys) -> int:
    """In this process: another one for each would take half of the time to start. Its exit code; what it says is in capsys."""
    words = shlex.split(command, comments=True)
    assert words[0] == "seqloom", command
    target = None
    if ">" in words:
        words, (target,) = words[: words.index(">")], words[words.index(">") + 1 :]
    capsys.readouterr()
    code = run(words[1:])
    if target is not None:
        Path(target).write_text(capsys.readouterr().out, encoding="utf-8")
    return code


def test_commands_and_python(tmp_path, monkeypatch, capsys):
    write_text(tmp_path / "corpus.txt", 6000)
    (tmp_path / "sentences.txt").write_text("\n".join(sentences(20)) + "\n", encoding="utf-8")
    pair = {"sentence_good": "the cat sees the dog .", "sentence_bad": "the cat the dog sees .", "UID": "order"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n", encoding="utf-8")
    for name, right in (("a.csv", 12), ("b.csv", 15)):
        lines = [f"{i},{seed},{int(i < right + seed)}" for seed in range(2) for i in range(20)]
        (tmp_path / name).write_text("\n".join(["id,seed,score", *lines]) + "\n", encoding="utf-8")
    for name, count, seed in (("train", 1000, 0), ("val", 10, 1)):
        for path in write_pairs(tmp_path, count, seed, name):
            path.rename(path.with_suffix({".en": ".en", ".xx": ".de"}[path.suffix]))
    for seed, (name, count) in enumerate({"train": 32, "valid": 16, "test": 16}.items()):
        write(tmp_path / f"{name}.jsonl", "classify", examples("classify", count, seed))
    (tmp_path / "plan.toml").write_text(small_plan(), encoding="utf-8")
    bin_ = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]
    assert len(commands) > 10
    # the test's text is too small for the default, and its time too short for a whole curve
    small = {
        "--out data ": "--out data --vocab-size 300 ",
        "--task translate": "--task translate --vocab-size 300",
        "--task classify --train": "--task classify --set budget.epochs=1 --train",
        "--task classify --how": "--task classify --set budget.epochs=1 --how",
        "baseline --task classify --set budget.epochs=1": "baseline --task classify",
        "--seeds 3": "--seeds 2",
        "--tokens 2e5": "--tokens 3e4",
        "--tokens 1e5": "--tokens 1e4",
        "--tokens 5e4": "--tokens 5e3",
        "--tokens 2e4": "--tokens 5e3",
        "--curve 10,30,100": "--curve 4,8 --seeds 1",
    }
    monkeypatch.chdir(tmp_path)
    for number, command in enumerate(commands):
        for plain, changed in small.items():
            command = command.replace(plain, changed)
        if number:
            assert call(command, capsys) == 0, f"{command}\n{capsys.readouterr().err}"
        else:  # the program itself is there, too
            done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
    for source in blocks("python"):
        done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert float(done.stdout) < 8
