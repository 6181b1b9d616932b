"""Every page of a look inside, in a real browser: nothing on the console, no request, nothing overflows, hostile text is text."""

import csv
import importlib
import json
import pkgutil

import numpy as np
import pytest

import seqloom.analyse
from seqloom.analyse.attention import Chosen as Place
from seqloom.analyse.attention import HeadMaps, HeadStatistics, choose
from seqloom.analyse.attention_page import Attention, Shown
from seqloom.analyse.beam_tree import BeamTree
from seqloom.analyse.caption_maps import CaptionMaps, PictureMaps
from seqloom.analyse.complexity import Measured, Shape, layers_of
from seqloom.analyse.complexity_page import Complexity
from seqloom.analyse.context import ContextLosses
from seqloom.analyse.context_page import EffectiveContext
from seqloom.analyse.experts import ExpertUse
from seqloom.analyse.experts_page import ExpertsFinding
from seqloom.analyse.finding import Finding
from seqloom.analyse.flow import Flow
from seqloom.analyse.flow_page import GradientFlow
from seqloom.analyse.garbled import Garbled, answer_all
from seqloom.analyse.heads import HeadReport
from seqloom.analyse.heads_page import Heads
from seqloom.analyse.preference import Choice, Chosen, Preference
from seqloom.analyse.probe import LayerScores
from seqloom.analyse.probe_page import ProbedRun, Probing
from seqloom.analyse.roll import Arcs, Roll
from seqloom.analyse.saliency import METHODS, Erasure, Question, Saliency
from seqloom.analyse.saliency_page import SaliencyFinding
from seqloom.analyse.senses_page import LayerSenses, RunSenses, Senses
from seqloom.analyse.units import Follows, Units
from seqloom.analyse.units_page import Cells
from seqloom.decode.search import Hypothesis
from seqloom.decode.trace import Considered
from tests.chromium import Browser

EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
WORDS = ["The", EVIL, "animal", "didn't", "cross", "it", "."]


def attention():
    random = np.random.default_rng(0)
    weights = [random.dirichlet(np.ones(7) * 0.3, (4, 7)) for _ in range(3)]
    square = HeadMaps("attention", WORDS, WORDS, weights, [np.ones((7, 4))] * 3)
    across = HeadMaps("cross", WORDS[:4], WORDS, [layer[:, :4] for layer in weights], [])
    statistics = HeadStatistics([random.random((4, 9)) for _ in range(3)], 10, 1, 80)
    shown = [Shown(maps, choose(maps, None, None, None)) for maps in (square, across)]
    return Attention(EVIL, EVIL, shown, statistics)


def probing():
    random = np.random.default_rng(0)
    layers = [
        LayerScores(
            (random.random((1, 90)) < 0.5).astype(float), (random.random((1, 90)) < 0.4).astype(float), 90.0, 150.0
        )
    ] * 4
    return Probing(
        [ProbedRun(run, EVIL, layers, np.arange(90) // 6, 0.3, np.full(4, 0.25), 90, 4) for run in (EVIL, "LSTM")],
        "linear",
    )


def saliency():
    values = np.random.default_rng(0).normal(size=len(WORDS))
    question = Question(WORDS, np.ones(len(WORDS), bool), None, None, EVIL)
    found = Saliency(question, -1.0, -2.0, dict.fromkeys(METHODS, values), 32)
    erased = [Erasure(2, dict.fromkeys(METHODS, 0.3 * i), np.full(20, 0.1)) for i in range(3)]
    return SaliencyFinding(EVIL, EVIL, found, erased)


def heads():
    random = np.random.default_rng(0)
    values = {("model", i): random.normal(size=4) for i in range(3)}
    curve = [(1 - i / 10, 3 + 0.1 * i) for i in range(11)]
    return Heads(
        EVIL,
        EVIL,
        HeadReport(
            "bits",
            3.0,
            values,
            values,
            {("model", 0): 0.1, ("model", 1): 0.2},
            curve,
            [curve] * 3,
            [(1.0, 3.0), (0.5, 3.1), (0.0, 4.0)],
            {("model", 0): 0.5, ("model", 1): 0.4},
        ),
    )


def senses():
    random = np.random.default_rng(0)
    layers = [LayerSenses((random.random(30) < 0.7).astype(float), 0.1, 0.6, 0.3, None) for _ in range(4)]
    places = {"t-SNE": random.normal(size=(30, 2))}
    runs = [RunSenses(name, layers, 2, places) for name in (EVIL, "ELMo")]
    return Senses(EVIL, [EVIL if i % 2 else "money" for i in range(30)], [EVIL] * 30, runs, 0.5)


def cells():
    random = np.random.default_rng(0)
    values = {"layer0.c": np.tanh(random.normal(size=(len(WORDS), 5)))}
    gates = {f"layer0.{name}": random.random((len(WORDS), 5)) for name in "ifo"}
    found = [Follows(EVIL, "layer0.c.1", 0.9, 0.8)]
    return Cells(
        EVIL, Units([f"{word}\n" for word in WORDS], values, gates, found, [("layer0.c.2", 0.1)]), "layer0.c.3"
    )


class Named:
    def decode(self, ids, specials=False):
        return " ".join(f"{EVIL}{i}" for i in ids)

    def token(self, number):
        return f"{number}"


def beam_tree():
    first, second = Considered((), 0.0, ((1, -0.1), (2, -2.0))), Considered((1,), -0.1, ((3, -0.2),))
    found = [Hypothesis([1, 3], -0.3, -0.15, True), Hypothesis([2], -2.0, -2.0, False)]
    return BeamTree(EVIL, EVIL, 2, [first, second, Considered((2,), -2.0, ())], found, Named())


def preference():
    chosen = [Chosen(Choice("", EVIL, "he", "she", EVIL if i % 2 else "nurse"), 0.1 * i, EVIL, 1) for i in range(6)]
    return Preference(EVIL, EVIL, "log p", chosen)


def garbled():
    return Garbled(EVIL, EVIL, answer_all([EVIL, "a b"], lambda texts: [(text * 2, True) for text in texts]))


def experts():
    random = np.random.default_rng(0)
    use = [random.random((3, 32)) * 10 for _ in range(2)]
    return ExpertsFinding(EVIL, EVIL, ExpertUse([EVIL, "NN", "VB"], np.array([90, 40, 3]), use, ["layer 1", "layer 2"]))


def flow():
    falling = [0.9**i for i in range(12)]
    gates = {"layer0.input": np.array([0.5 + 0.5j, 0.5 - 0.5j])}
    flows = [Flow(EVIL, {"layer0.h": falling, "layer0.c": falling}, 2.0, 1.0, 4, gates)]
    return GradientFlow(
        [*flows, Flow("gpt", {"embedding.h": falling, "layer0.h": [1.0, *[0.0] * 11]}, 2, 0, 4, {})], EVIL
    )


def context():
    losses = np.random.default_rng(0).random((3, 40)) + np.array([[2.0], [1.5], [1.0]])
    return EffectiveContext([ContextLosses(name, (4, 8, 12), losses) for name in (EVIL, "LSTM")], EVIL)


def complexity():
    found = [Measured(layer.name, n, n * n, n, n, 0.1 * n) for layer in layers_of(Shape(8, 2)) for n in (16, 32)]
    return Complexity(Shape(8, 2), found, EVIL)


def roll():
    weights = np.random.default_rng(0).random((2, 5))
    return Roll(EVIL, EVIL, "events", "vel3 on60 shift50 off60 shift100", Arcs(Place(0, 0, 4), weights, [0, 1]))


def captions():
    weights = np.full((2, 4), 0.25)
    return CaptionMaps(EVIL, [PictureMaps(EVIL, np.zeros((8, 8, 3), np.uint8), f"a {EVIL}", ["a", EVIL], weights)])


FINDINGS = {
    "flow": flow,
    "context": context,
    "complexity": complexity,
    "roll": roll,
    "captions": captions,
    "preference": preference,
    "garbled": garbled,
    "experts": experts,
    "attention": attention,
    "probes": probing,
    "saliency": saliency,
    "heads": heads,
    "senses": senses,
    "cells": cells,
    "tree": beam_tree,
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("name", FINDINGS)
def test_a_page_in_a_browser(name, browser, tmp_path):
    found = FINDINGS[name]()
    found.save(tmp_path / "page.html")
    for width, dark in ((1280, False), (360, True)):
        browser.open(tmp_path / "page.html", width=width, dark=dark)
        assert not browser.complaints()
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert browser.ask("window.hacked === undefined && document.body.textContent.includes('onerror')")
        assert browser.ask("[...document.images].every((each) => each.complete)")
    if found.pictures():
        found.save(tmp_path / "page.svg")
        browser.open(tmp_path / "page.svg")
        assert not browser.complaints()
    (tmp_path / "frame.html").write_text(f"<!doctype html><meta charset=utf-8>{found._repr_html_()}", encoding="utf-8")
    browser.open(tmp_path / "frame.html")
    assert not browser.complaints()


def test_no_kind_of_page_is_left_out():
    for module in pkgutil.iter_modules(seqloom.analyse.__path__):
        importlib.import_module(f"seqloom.analyse.{module.name}")
    assert {type(make()) for make in FINDINGS.values()} == set(Finding.__subclasses__())


@pytest.mark.parametrize("name", FINDINGS)
def test_every_form_of_a_finding(name, tmp_path):
    """JSON that other programs read, and a table."""
    found = FINDINGS[name]()
    for ending in ("json", "csv"):
        found.save(tmp_path / f"found.{ending}")
    json.loads((tmp_path / "found.json").read_text(), parse_constant=pytest.fail)
    header, *body = csv.reader((tmp_path / "found.csv").read_text().splitlines())
    assert body and all(len(row) == len(header) for row in body)
    assert found.lines() and "<iframe" in found._repr_html_()


@pytest.mark.long
def test_a_page_that_asks_is_noticed(browser, tmp_path):
    """The planted bug: a picture from elsewhere."""
    (tmp_path / "bad.html").write_text("<!doctype html><img src='http://127.0.0.1:9/x.png'>", encoding="utf-8")
    browser.open(tmp_path / "bad.html")
    assert browser.complaints()
