"""Every page of a look inside, in a real browser: nothing on the console, no request, nothing overflows, hostile text is text."""

import numpy as np
import pytest

from seqloom.analyse.attention import HeadMaps, HeadStatistics, choose
from seqloom.analyse.attention_page import Attention, Shown
from seqloom.analyse.beam_tree import BeamTree
from seqloom.analyse.experts import ExpertUse
from seqloom.analyse.experts_page import ExpertsFinding
from seqloom.analyse.garbled import Garbled, answer_all
from seqloom.analyse.heads import HeadReport
from seqloom.analyse.heads_page import Heads
from seqloom.analyse.preference import Choice, Chosen, Preference
from seqloom.analyse.probe import LayerScores
from seqloom.analyse.probe_page import ProbedRun, Probing
from seqloom.analyse.saliency import METHODS, Erasure, Question, Saliency
from seqloom.analyse.saliency_page import SaliencyFinding
from seqloom.analyse.senses_page import LayerSenses, RunSenses, Senses
from seqloom.analyse.units import Follows, Units
from seqloom.analyse.units_page import Cells
from seqloom.decode.search import Hypothesis
from seqloom.decode.trace import Considered
from tests.chromium import Browser

pytestmark = pytest.mark.long

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
    return Heads(EVIL, EVIL, HeadReport("bits", 3.0, values, values, {("model", 0): 0.1}, curve, [curve] * 3))


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


FINDINGS = {
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


@pytest.mark.parametrize("name", FINDINGS)
def test_a_page_in_a_browser(name, browser, tmp_path):
    found = FINDINGS[name]()
    for out in ("page.html", "page.svg"):
        found.save(tmp_path / out)
    for width, dark in ((1280, False), (360, True)):
        browser.open(tmp_path / "page.html", width=width, dark=dark)
        assert not browser.complaints()
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert browser.ask("window.hacked === undefined && document.body.textContent.includes('onerror')")
        assert browser.ask("[...document.images].every((each) => each.complete)")
    browser.open(tmp_path / "page.svg")
    assert not browser.complaints()
    (tmp_path / "frame.html").write_text(f"<!doctype html><meta charset=utf-8>{found._repr_html_()}", encoding="utf-8")
    browser.open(tmp_path / "frame.html")
    assert not browser.complaints()


def test_a_page_that_asks_is_noticed(browser, tmp_path):
    """The planted bug: a picture from elsewhere."""
    (tmp_path / "bad.html").write_text("<!doctype html><img src='http://127.0.0.1:9/x.png'>", encoding="utf-8")
    browser.open(tmp_path / "bad.html")
    assert browser.complaints()
