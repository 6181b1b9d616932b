"""Runs as models of lm-evaluation-harness: what it asks is answered by our scores; the harness itself is met in a long test."""

import json
import lzma
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from seqloom.batch import pack
from seqloom.batches.prepare import prepare
from seqloom.convert.huggingface import export_folder
from seqloom.errors import ModelError, UsageError
from seqloom.evaluate import continuations
from seqloom.runs import lm_eval_harness as harness
from seqloom.runs.lm_eval_harness import Answers, harness_model, how
from seqloom.runs.training import pretrain
from tests.encoders import run_of, tokenizer_of

BPE, WORD, BYTE = tokenizer_of("bpe"), tokenizer_of("word"), tokenizer_of("byte")
BLIMP = Path(__file__).parents[3] / "shared" / "data" / "blimp" / "blimp.jsonl.xz"
MODELS = [("lstm", BPE), ("gpt2", WORD), ("rnn", BYTE)]


class Asked(NamedTuple):
    args: tuple[Any, ...]


def asked(*args):
    return [Asked(each) for each in args]


@pytest.mark.parametrize(("model", "tokenizer"), MODELS)
def test_loglikelihood(model, tokenizer):
    run = run_of(model, "next-token", tokenizer)
    found = Answers(run).loglikelihood(
        asked(("the cat", " sees"), ("the cat ", "sees"), ("", "the cat"), ("the cat \n", ""))
    )
    expected = run.continuations(["the cat", "the cat", "", "the cat"], [" sees", " sees", "the cat", " \n"])
    assert found == [(each.log_prob, each.greedy) for each in expected] and found[0] == found[1]
    whole, context = run.score(["the cat sees", "the cat"])
    assert found[0][0] == pytest.approx(sum(whole.log_probs) - sum(context.log_probs), abs=1e-9)
    assert Answers(run).loglikelihood([]) == []


@torch.no_grad()
def windows_by_hand(run, ids, length):
    """As the harness tells it: windows that do not overlap, the last of them filled from before."""
    whole, total = [run.tokenizer.end_id, *ids], 0.0
    for done in range(0, len(ids), length):
        end = min(done + length, len(ids))
        begin = max(0, end - length)
        log_probs = run.learner.softmax(run.learner.backbone(pack([whole[begin:end]])).hidden).log_softmax(1)
        total += sum(float(log_probs[i - begin, ids[i]]) for i in range(done, end))
    return total


def check_rolling(run):
    texts = ["the cat sees a small dog today . " * n for n in (1, 3, 4)] + ["the cat"]
    found = Answers(run).loglikelihood_rolling(asked(*((text,) for text in texts)))
    expected = [
        windows_by_hand(run, run.tokenizer.encode(text), run.learner.backbone.max_len or 10**6) for text in texts
    ]
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("model", "changes"), [("gpt2", {"max_len": 10}), ("gpt2", {"max_len": 40}), ("lstm", {})])
def test_rolling_windows(model, changes):
    check_rolling(run_of(model, "next-token", WORD, **changes))


@pytest.mark.parametrize(("model", "tokenizer"), MODELS)
def test_generate_until(model, tokenizer):
    run = run_of(model, "next-token", tokenizer)
    contexts = ["the cat", "no child remembers a", "the", ""]
    plain = [run.generate(context, max_new=12, temperature=0.0)[0].text[len(context) :] for context in contexts]
    short = {"max_gen_toks": 12, "until": []}
    found = Answers(run).generate_until(asked(*((context, short) for context in contexts)))
    assert found == plain and any(found)
    ends = [text[len(text) // 2 :][:2] for text in plain]
    options = [{"max_gen_toks": 12, "until": [end, "never that"]} if end else dict(short) for end in ends]
    found = Answers(run).generate_until(asked(*zip(contexts, options, strict=True)))
    assert found == [text.partition(end)[0] if end else text for text, end in zip(plain, ends, strict=True)]


def test_many_are_written_side_by_side(monkeypatch):
    run = run_of("lstm", "next-token", BYTE)
    contexts = [f"{'the ' * (i % 5)}cat" for i in range(9)]
    asks = asked(*((context, {"until": "e", "max_gen_toks": 10}) for context in contexts))
    whole = Answers(run).generate_until(asks)
    monkeypatch.setattr(harness, "ROWS", 2)
    assert Answers(run).generate_until(asks) == whole and not any("e" in text for text in whole)


def test_unknown_words_of_contexts_are_read_by_their_letters():
    run = run_of("big-lstm", "next-token", WORD, proj_dim=0, num_layers=2)
    run.characters = run.learner.backbone.characters
    contexts = ["the xyzzy sees the abracadabra", "the cat", "xyzzy"]
    plain = [run.generate(context, max_new=6, temperature=0.0)[0].text[len(context) :] for context in contexts]
    assert Answers(run).generate_until(asked(*((context, {"max_gen_toks": 6}) for context in contexts))) == plain


def test_how_texts_are_written():
    assert how({}) == ([], harness.SampleConfig(max_new=256, temperature=0.0))
    until, config = how({"until": "\n", "temperature": 0.7, "top_p": 0.9, "max_gen_toks": 5})
    assert until == ["\n"] and (config.temperature, config.top_p, config.max_new) == (0.0, None, 5)
    _, config = how({"until": ["a", ""], "do_sample": True, "temperature": 0.7, "top_p": 0.9})
    assert (config.temperature, config.top_p) == (0.7, 0.9)
    with pytest.raises(UsageError, match="num_beams"):
        how({"num_beams": 4})


def test_who_is_refused():
    for model, objective in (("bert", "masked"), ("electra", "replaced-token")):
        with pytest.raises(UsageError, match="no probability of the next word"):
            Answers(run_of(model, objective, WORD))


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ModelError, match=r'pip install "seqloom\[harness\]"'):
        harness_model(run_of("lstm", "next-token", WORD))


# ---- bugs that must be noticed


def test_the_end_of_a_text_counted_with_it(monkeypatch):
    right = continuations.windows
    monkeypatch.setattr(
        continuations, "windows", lambda offsets, counts, longest: right(offsets + (offsets > 0), counts, longest)
    )
    with pytest.raises(AssertionError):
        check_rolling(run_of("gpt2", "next-token", WORD, max_len=10))


# ---- with the harness

INSIDE = """
import json, sys
import lm_eval, torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from seqloom.runs.lm_eval_harness import harness_model
from seqloom.evaluate.continuations import count_after_context
from tests.encoders import run_of, tokenizer_of
import numpy as np
from seqloom.batch import pack
from tests.runs.test_lm_eval_harness import local_tasks, windows_by_hand
from tests.training.material import sentences

run = run_of("gpt2", "next-token", tokenizer_of("bpe"), max_len=12)
model = harness_model(run)
done = lm_eval.simple_evaluate(model=model, tasks=local_tasks(sys.argv[1]), bootstrap_iters=0, log_samples=True)

# where the harness parts context and continuation, and which windows it has
class Parted:
    backend, tok_encode = "causal", staticmethod(run.tokenizer.encode)
for sentence in sentences(50, 1):
    for at in range(1, len(sentence)):
        context, more = sentence[:at], sentence[at:]
        before, after = TemplateLM._encode_pair(Parted, context, more)
        whole = np.array(run.tokenizer.encode(sentence))
        count = int(count_after_context([np.array(run.tokenizer.encode(context.rstrip()))], [whole])[0])
        spans = whole[: len(before)].tolist() != before
        assert count > len(after) if spans else count == len(after), (context, more)
    ids = run.tokenizer.encode(sentence)
    total = 0.0
    for read, told in map(make_disjoint_window, get_rolling_token_windows(ids, run.tokenizer.end_id, 12, 1)):
        row = [*read, *told[:-1]]
        with torch.no_grad():
            p = run.learner.softmax(run.learner.backbone(pack([row])).hidden).log_softmax(1)
        total += sum(float(p[len(read) - 1 + i, token]) for i, token in enumerate(told))
    assert abs(total - windows_by_hand(run, ids, 12)) < 1e-9
    (ours,) = model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (sentence,), 0)])
    assert abs(total - ours) < 1e-9
print(json.dumps(done["results"], default=str))
"""


def local_tasks(folder):
    rows = Path(folder) / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"text": text, "choices": choices, "label": label}) + "\n"
            for text, choices, label in (
                ("the cat", [" sees", " river"], 0),
                ("no child", [" near", " remembers", " a dog"], 1),
                ("the dog", [" today", " wants"], 1),
            )
        )
    )
    local = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(rows)}},
        "test_split": "test",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{choices[0]}}",
    }
    kinds = {
        "multiple_choice": ({"doc_to_choice": "{{choices}}", "doc_to_target": "{{label}}"}, "acc"),
        "loglikelihood": ({}, "perplexity"),
        "loglikelihood_rolling": ({"doc_to_text": "", "doc_to_target": "{{text}}"}, "byte_perplexity"),
        "generate_until": ({"generation_kwargs": {"until": ["."], "max_gen_toks": 8}}, "exact_match"),
    }
    return [
        {"task": f"local_{kind}", "output_type": kind, **local, **more, "metric_list": [{"metric": metric}]}
        for kind, (more, metric) in kinds.items()
    ]


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """Runs a program where lm_eval is: with the thirty-five packages that it brings, in an environment over this one.
    Returns what the last line of its output says."""
    home = tmp_path_factory.mktemp("harness")
    venv.create(home / "environment", with_pip=True)
    python = home / "environment" / "bin" / "python"
    inner = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    (Path(inner.stdout.strip()) / "over.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "lm_eval[hf]>=0.4"]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    root = Path(__file__).parents[2]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(home / "hub")}
    environment = os.environ | offline | {"PYTHONPATH": str(root)}

    def run(program, *arguments):
        command = [python, "-c", program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.long
def test_local_tasks_in_the_harness_itself(inside, tmp_path):
    found = inside(INSIDE, tmp_path)
    run = run_of("gpt2", "next-token", BPE, max_len=12)
    texts = {
        "the cat": [" sees", " river"],
        "no child": [" near", " remembers", " a dog"],
        "the dog": [" today", " wants"],
    }
    scores = [
        [each.log_prob for each in run.continuations([context] * len(choices), choices)]
        for context, choices in texts.items()
    ]
    best = [row.index(max(row)) for row in scores]
    right = sum(a == b for a, b in zip(best, (0, 1, 1), strict=True)) / 3
    assert found["local_multiple_choice"]["acc,none"] == pytest.approx(right)
    mean = sum(row[0] for row in scores) / 3
    assert found["local_loglikelihood"]["perplexity,none"] == pytest.approx(float(torch.tensor(-mean).exp()), rel=1e-4)
    nats = sum(sum(each.log_probs) for each in run.score(list(texts)))
    size = sum(len(text.encode()) for text in texts)
    assert found["local_loglikelihood_rolling"]["byte_perplexity,none"] == pytest.approx(
        float(torch.tensor(-nats / size).exp()), rel=1e-4
    )
    assert 0 <= found["local_generate_until"]["exact_match,none"] <= 1


# ---- an exported folder, read by the harness's own model

EXPORTED = """
import json, sys
import lm_eval

folder, tasks = sys.argv[1], json.loads(sys.argv[2])
found = []
for more in ({}, {"add_bos_token": True}):
    model = {"pretrained": folder, "device": "cpu", "dtype": "float32"} | more
    done = lm_eval.simple_evaluate(
        model="hf", model_args=model, tasks=tasks, batch_size=8, bootstrap_iters=0, log_samples=True
    )
    found.append({name: [
        [[float(each[0][0]) for each in row["resps"]], row["acc"]]
        for row in sorted(rows, key=lambda row: row["doc_id"])
    ] for name, rows in done["samples"].items()})
print(json.dumps(found))
"""


@pytest.mark.long
def test_blimp_in_the_harness_of_an_exported_folder(inside, tmp_path):
    """Every sentence scores the same, its first token included, and every pair is decided the same: with an empty context, which
    the harness has begin with the tokenizer's BOS, and with one, before which the exported tokenizer puts it."""
    with lzma.open(BLIMP, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    sets = sorted({row["UID"] for row in rows})[::17]
    rows = [row for name in sets for row in [each for each in rows if each["UID"] == name][:10]]
    assert len(rows) == 40
    data, text = tmp_path / "blimp.jsonl", tmp_path / "text.txt"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text.write_text("\n".join(row["good"] for row in rows) + "\n")
    prepare([text], tmp_path / "prepared", tokenizer="bpe", vocab_size=400, valid=0.2, keep_leaks=True)
    settings = ["model.dim=32", "model.num_heads=4", "budget={steps=30}", "batches.budget=512"]
    run = pretrain("gpt2-tiny", tmp_path / "prepared", tmp_path / "run", settings=settings, device="cpu")
    export_folder(tmp_path / "run", tmp_path / "exported")
    task = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_target": 0,
        "target_delimiter": "",  # else a blank would stand before every sentence
        "metric_list": [{"metric": "acc"}],
    }
    tasks = [
        {"task": "blimp_local", "doc_to_text": "", "doc_to_choice": "{{[good, bad]}}", **task},
        {"task": "continued", "doc_to_text": "Who", "doc_to_choice": "{{[' ' + good, ' ' + bad]}}", **task},
    ]
    ours = run.evaluate_suite("blimp", data, items=True)
    whole = [[sum(each.log_probs) for each in run.score([row["good"], row["bad"]])] for row in rows]
    behind = [
        [each.log_prob for each in run.continuations(["Who"] * 2, [" " + row["good"], " " + row["bad"]])]
        for row in rows
    ]
    for found in inside(EXPORTED, tmp_path / "exported", json.dumps(tasks)):
        for name, expected in (("blimp_local", whole), ("continued", behind)):
            scores = [scores for scores, _ in found[name]]
            assert scores == [pytest.approx(row, abs=1e-3, rel=1e-5) for row in expected]
        assert [right for _, right in found["blimp_local"]] == ours["items"]
