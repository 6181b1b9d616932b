"""The page: a few files and nothing else without a key; and in a real browser every tab, typed into and looked at."""

import json
import os
import re
import shutil
from importlib.resources import files
from urllib.parse import urlencode

import numpy as np
import pytest
from starlette.testclient import TestClient

from seqloom.charts.palette import PAPER, TEXT_CONTRAST
from seqloom.cli import run
from seqloom.serve import runs as runs_of_page
from seqloom.serve.app import Limits, Server
from seqloom.serve.page import FILES
from seqloom.serve.runs import POINTS, Curves
from seqloom.serve.save import Call, save_page
from tests.charts.test_browser import as_hex, lowest_contrast
from tests.chromium import Browser
from tests.serve.test_process import call, start

EVIL = "<script>window.hacked</script><b>name"
TEXT = "the old <b>king</b> sees <img src=x onerror=window.hacked=1> a bird 🎉 ."
PHONE = 360


# ---- over HTTP


@pytest.mark.parametrize("path", FILES)
def test_the_page_may_ask_nobody_else(client, path):
    response = client.get(path)
    assert response.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-type"].startswith(FILES[path][1])


def test_the_page_has_nothing_of_others_and_no_html_from_data():
    for name, _ in FILES.values():
        text = files("seqloom.serve.page").joinpath(name).read_text(encoding="utf-8")
        text = text.replace("http://www.w3.org/2000/svg", "")  # a name, which nothing is fetched from
        assert not re.search(r"\w+://|[\"'(]//", text), f"{name} names an address"
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


@pytest.mark.parametrize(
    "path", ["/page.py", "/__init__.py", "/page/../app.py", "/%2e%2e/app.py", "/page.js/", "/../page.js%00"]
)
def test_no_other_file_is_served(client, path):
    assert client.get(path, follow_redirects=False).status_code in (307, 404)


def test_only_the_page_comes_without_a_key(server):
    made = Server({"ngram": server.runs["ngram"]}, Limits(), key="k" * 16)
    with TestClient(made.app, base_url="http://127.0.0.1:8000") as client:
        assert [client.get(path).status_code for path in FILES] == [200] * len(FILES)
        assert client.get("/v1/models").status_code == 401
    made.engines["ngram"].close()


def test_what_the_page_needs_is_answered(client, runs):
    found = client.post("/api/neighbours", json={"model": "bert", "words": "cat", "top": 3}).json()["neighbours"]
    wanted = runs["bert"].neighbours("cat", top=3)
    assert [each["word"] for each in found] == [each.word for each in wanted]
    refused = client.post("/api/neighbours", json={"model": "bert", "words": "caat"})
    assert refused.status_code == 400 and "did you mean 'cat'" in refused.json()["error"]["message"]
    assert client.post("/api/neighbours", json={"model": "ngram", "words": "cat"}).status_code == 400
    (score,) = client.post("/api/score", json={"model": "lstm", "texts": "the 🎉 cat"}).json()["scores"]
    assert len(score["offsets"]) == len(score["log_probs"]) and score["offsets"][-1] == [6, 9], (
        "of characters, not bytes"
    )
    body = {"texts": "the cat sees a bird .", "align": True}
    ((best,),) = client.post("/api/translate", json=body).json()["translations"]
    assert len(best["alignment"]) == len(best["tokens"])
    assert {len(row) for row in best["alignment"]} == {len(best["source_tokens"])}
    records = {each["id"]: each for each in client.get("/v1/models").json()["data"]}
    assert records["tag"]["task"] == "tag" and "text" in records["tag"]["fields"] and "task" not in records["lstm"]


def test_a_stream_has_the_probabilities_of_the_whole(client):
    body = {"model": "lstm", "prompt": "the", "max_tokens": 20, "seed": 4, "logprobs": 2}
    whole = client.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    lines = client.post("/v1/completions", json=body | {"stream": True}).text.split("\n\n")
    parts = [json.loads(line.removeprefix("data: "))["choices"][0]["logprobs"] for line in lines[:-2]]
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert [each for part in parts for each in part[name]] == whole[name]


def test_attention_is_what_inspect_computes(client, runs):
    text = "the old king sees a bird ."
    for name in ("gpt2", "bert", "classify", "translator"):
        shown = runs[name].attention(text).shown
        found = client.post("/api/attention", json={"model": name, "text": text, "layer": 1}).json()["parts"]
        assert [part["part"] for part in found] == [each.maps.part for each in shown]
        for part, (maps, _) in zip(found, shown, strict=True):
            assert (part["queries"], part["keys"]) == (maps.queries, maps.keys)
            np.testing.assert_allclose(part["maps"], maps.weights[0], atol=1e-4)
    rolled = client.post("/api/attention", json={"model": "gpt2", "text": text, "kind": "rollout"}).json()["parts"][0]
    np.testing.assert_allclose(rolled["maps"][0], runs["gpt2"].attention(text).shown[0].maps.rollout(), atol=1e-4)


def test_cells_are_what_inspect_computes(client, runs):
    text = "the old king sees a bird . " * 8
    wanted = runs["lstm"].cells(text, unit="layer0.cell.3").units
    found = client.post("/api/cells", json={"model": "lstm", "text": text, "unit": "layer0.cell.3"}).json()
    assert found["tokens"] == wanted.pieces and found["states"] == {"layer0.cell": 32, "layer1.cell": 32}
    np.testing.assert_allclose(found["units"]["layer0.cell.3"], wanted.values["layer0.cell"][:, 3], atol=1e-4)
    assert [each["unit"] for each in found["follows"]] == [each.unit for each in wanted.found]
    assert set(found["gates"]) == set(wanted.gates)


def test_a_beam_tree_is_that_of_the_run(client, runs):
    for name in ("lstm", "translator"):
        options = {} if name == "lstm" else {"n_best": 2}
        wanted = (
            runs[name].beam_tree("the cat", beam=2, max_new=5, **({"n": 2} if name == "lstm" else options)).record()
        )
        body = {"model": name, "text": "the cat", "beam": 2, "max_tokens": 5}
        found = client.post("/api/beam", json=body).json()
        assert [each["text"] for each in found["considered"]] == [each["text"] for each in wanted["considered"]]
        assert [each["score"] for each in found["found"]] == pytest.approx([each["score"] for each in wanted["found"]])


LOOKS = [
    ("/api/attention", {"model": "lstm", "text": "the cat"}, "the model lstm cannot show attention"),
    ("/api/attention", {"model": "ngram", "text": "the cat"}, "cannot show attention"),
    ("/api/attention", {"model": "gpt2", "text": "the cat", "layer": 9}, "layer = 9: there is 1 layer with attention"),
    ("/api/attention", {"model": "gpt2", "text": "the cat", "target": "a"}, "gpt2 writes no target"),
    ("/api/attention", {"model": "gpt2", "text": ""}, "empty"),
    ("/api/attention", {"model": "bert", "text": "the cat " * 200}, "tokens"),
    ("/api/attention", {"model": "gpt2", "text": "a", "kind": "other"}, "kind"),
    ("/api/cells", {"model": "gpt2", "text": "the cat"}, "cannot show the cells"),
    ("/api/cells", {"model": "ngram", "text": "the cat"}, "cannot show the cells"),
    ("/api/cells", {"model": "lstm", "text": "the cat"}, "twenty"),
    ("/api/cells", {"model": "lstm", "text": "the cat " * 30, "unit": "layer0.cell.999"}, "0 to 31"),
    ("/api/cells", {"model": "lstm", "text": "the cat " * 30, "unit": "nothing"}, "unknown unit 'nothing'"),
    ("/api/beam", {"model": "bert", "text": "the cat"}, "cannot search with a beam"),
    ("/api/beam", {"model": "translator", "text": ""}, "empty"),
    ("/api/beam", {"model": "lstm", "beam": 11}, "beam"),
]


@pytest.mark.parametrize(("path", "body", "words"), LOOKS)
def test_what_cannot_be_shown_is_said(client, folders, path, body, words):
    response = client.post(path, json=body)
    assert response.status_code == 400 and words in response.json()["error"]["message"], response.text
    assert str(folders["lstm"].parent) not in response.text, "callers know no folders"


# ---- saved as a file


def test_a_saved_page_has_the_answers_and_nothing_else(folders, runs, tmp_path):
    out = tmp_path / "page.html"
    named = {EVIL: runs["ngram"], "gpt2": runs["gpt2"]}
    assert save_page(named, [TEXT], out) == 8
    text = out.read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == 2, "hostile names and texts are data"
    kept = json.loads(re.search(r'id="saved">(.*?)</script>', text, re.S)[1])
    score = kept["answers"][Call("/api/score", {"model": "gpt2", "texts": [TEXT]}).key]["scores"][0]
    assert score["log_prob"] == pytest.approx(sum(runs["gpt2"].score([TEXT])[0].log_probs), abs=1e-3)
    assert not re.search(r"(src|href)=\"(?!data:)", text) and "import {" not in text
    assert str(folders["gpt2"].parent) not in text


def test_what_cannot_be_saved(folders, tmp_path, capsys):
    lstm, out = folders["lstm"], tmp_path / "page.html"
    (tmp_path / "there.html").touch()
    (tmp_path / "damaged").mkdir()
    for arguments, code, words in (
        ([lstm, "--text", "the", "--out", tmp_path / "there.html"], 2, "exists already"),
        ([lstm, "--text", "the", "--out", tmp_path / "page.txt"], 2, "ends in .html"),
        ([lstm, "--text", "the", "--out", tmp_path / "no" / "page.html"], 5, "there is no folder"),
        ([lstm, "--out", out], 2, "--text"),
        (["--out", out], 2, "nothing to save"),
        ([lstm, lstm, "--text", "the", "--out", out], 2, "two runs are called"),
        (["--runs", tmp_path / "none", "--out", out], 5, "no such folder"),
        ([tmp_path / "damaged", "--text", "the", "--out", out], 4, "damaged"),
        ([lstm, "--text", "the [MASK]", "--out", out], 3, "no run can answer"),
        ([lstm, "--text", "none.txt", "--out", out], 2, "no such file"),
        ([lstm, "--text", "", "--out", out], 2, "it is empty"),
    ):
        found = run(["page", *map(str, arguments)]), capsys.readouterr().err
        assert (found[0], words in found[1]) == (code, True), (arguments, found)
        assert not out.exists()


def write_log(folder, losses, first=1):
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"step": i, "tokens": 10 * i, "loss": loss}) for i, loss in enumerate(losses, first)]
    (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))


def test_curves_follow_runs_that_train(tmp_path):
    curves = Curves(tmp_path)
    assert curves.look() == []
    write_log(tmp_path / "a", [3.0, 2.0])
    (found,) = curves.look()
    assert found["state"] == "training" and found["curve"] == [(1, 10, 3.0), (2, 20, 2.0)]
    with open(tmp_path / "a" / "metrics.jsonl", "a") as log:
        log.write('{"step": 3, "tokens": 30, "loss": 1.5}\n{"step": 3, "tokens": 30, "valid": 9.0}\n{"step": 4, "tok')
    assert [point.loss for point in curves.look()[0]["curve"]] == [3.0, 2.0, 1.5], "of whole lines that have one"
    write_log(tmp_path / "a", [3.0, 2.5, 2.25, 2.125])
    assert [point.loss for point in curves.look()[0]["curve"]] == [3.0, 2.5, 2.25, 2.125], "cut back and resumed"
    (tmp_path / "a" / "card.md").touch()
    write_log(tmp_path / "b", [])
    (tmp_path / "b" / "metrics.jsonl").write_text("no JSON\n")
    done, damaged = curves.look()
    assert done["state"] == "finished" and damaged["problem"].startswith("b/metrics.jsonl is damaged")
    assert damaged["curve"] == [] and str(tmp_path) not in str(damaged), "callers know no folders"
    write_log(tmp_path / "a", [float(i) for i in range(1, 1002)])
    long = curves.look()[0]["curve"]
    assert len(long) <= POINTS + 1 and (long[0].step, long[-1].step) == (1, 1001)


def test_runs_are_listed_where_a_folder_is_watched(client, folders):
    assert client.get("/api/runs").json() == {"folder": None, "runs": [], "comparisons": []}
    made = Server({}, Limits(), watched=folders["lstm"].parent)
    with TestClient(made.app, base_url="http://127.0.0.1:8000") as watching:
        found = watching.get("/api/runs").json()["runs"]
    assert {each["name"].rpartition("/")[2]: each["state"] for each in found}["lstm"] == "finished"


def test_scripts_share_one_scope_in_a_saved_page():
    here = files("seqloom.serve.page")
    scripts = [here.joinpath(name).read_text() for name, _ in FILES.values() if name.endswith(".js")]
    pattern = re.compile(r"(?m)^(?:export )?(?:const|let|(?:async )?function) (\w+)")
    names = [name for script in scripts for name in pattern.findall(script)]
    assert len(names) > 50 and len(set(names)) == len(names)


def test_more_than_losses_is_read_from_logs(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    line = {"step": 1, "tokens": 10, "loss": 3.0, "lr": 0.001, "joules": 5.5, "tokens_per_second": 80.0}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + '\n{"step": 1, "tokens": 10, "valid": 2.5}\n')
    (folder / "metrics.json").write_text('{"peak_memory_mb": 41.5}')
    (found,) = Curves(tmp_path).look()
    more = {
        "rate": [(1, 10, 0.001)],
        "joules": [(1, 10, 5.5)],
        "tokens_per_second": [(1, 10, 80.0)],
        "valid": [(1, 10, 2.5)],
    }
    assert found["more"] == more and found["memory_mb"] == 41.5


def test_files_are_read_again_only_where_they_were_written_anew(tmp_path, monkeypatch):
    read, calls = runs_of_page.read_json, []
    monkeypatch.setattr(runs_of_page, "read_json", lambda path: calls.append(path.name) or read(path))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"step": 1, "tokens": 10, "loss": 3.0}\n')
    curves = Curves(tmp_path)

    def memory():
        return [each["memory_mb"] for each in curves.look()]

    assert memory() == [None] and calls == []
    (folder / "metrics.json").write_text('{"peak_memory_mb": 41.5}')
    assert memory() == memory() == [41.5] and calls == ["metrics.json"]
    facts = (folder / "metrics.json").stat()
    (folder / "metrics.json").write_text('{"peak_memory_mb": 141.5}')
    os.utime(folder / "metrics.json", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert memory() == [141.5], "of another size"
    (folder / "metrics.json").write_text('{"peak_memory_mb": 142.5}')
    os.utime(folder / "metrics.json", ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert memory() == memory() == [142.5] and len(calls) == 3
    (folder / "metrics.json").unlink()
    assert memory() == [None]


def compared(name="a plan"):
    rows = {
        "LSTM": {"value": 1.5, "low": 1.4, "high": 1.6, "values": [1.5]},
        "BERT": {"value": 2.0, "low": None, "high": None},
    }
    record = {
        "name": name,
        "costs": {"LSTM": {"energy_kwh": 0.1}, "BERT": {}},
        "caveats": [EVIL],
        "samples": {"LSTM": EVIL},
    }
    return record | {"figures": [{"name": "bits per byte", "rows": rows}]}


def test_comparisons_are_listed(tmp_path):
    curves = Curves(tmp_path)
    for name, text in (("one", json.dumps(compared())), ("damaged", "{"), ("other", '{"name": 1}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "comparison.json").write_text(text)
    (found,) = curves.compare()
    assert found["folder"] == "one" and found["rows"] == ["LSTM", "BERT"] and found["caveats"] == [EVIL]
    assert found["figures"]["bits per byte"]["LSTM"] == {"value": 1.5, "low": 1.4, "high": 1.6}
    (tmp_path / "one" / "comparison.json").write_text(json.dumps(compared("anew")))
    os.utime(tmp_path / "one" / "comparison.json", (1, 1))
    assert curves.compare()[0]["name"] == "anew", "what was written again is read again"


# ---- in a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def address(folders):
    names = ("lstm", "gpt2", "bert", "classify", "tag", "translator")
    watched = folders["lstm"].parent
    process, port = start(*(folders[name] for name in names), f"{EVIL}={folders['ngram']}", "--runs", watched)
    yield f"http://127.0.0.1:{port}/"
    process.kill()


def open_tab(browser, address, tab, width=1000, dark=False, **given):
    browser.open("about:blank")  # else only the hash would change
    browser.open(f"{address}#{tab}?{urlencode(given)}", width=width, dark=dark)
    browser.wait_until(f"document.querySelector('#panel-{tab}:not([hidden])')")


def answered(browser, tab) -> str:
    """What is seen once the answer is there."""
    place = f"document.querySelector('#panel-{tab} .answer')"
    browser.wait_until(f"{place}.children.length && !{place}.hasAttribute('aria-busy')")
    return browser.ask(f"{place}.innerText")


def submit(browser, tab) -> str:
    browser.ask(f"document.querySelector('#panel-{tab} form')?.requestSubmit()")
    return answered(browser, tab)


SAVED = {
    "write": "bits per token", "compare": "Where they differ most", "fill": "The gap", "predict": "Every class",
    "translate": "The tree of the search", "vectors": "similarity", "attention": "looks at most", "cells": "Gates of layer0",
    "runs": "loss in training",
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(runs, folders, tmp_path_factory):
    out = tmp_path_factory.mktemp("saved") / "page.html"
    texts = [TEXT, "the [MASK] sees a bird .", "cat", "the old king sees a bird . " * 6]
    names = ("lstm", "gpt2", "bert", "classify", "translator")
    save_page({EVIL: runs["ngram"]} | {name: runs[name] for name in names}, texts, out, folders["lstm"].parent)
    return f"file://{out}"


@pytest.mark.long
@pytest.mark.parametrize("tab", SAVED)
def test_every_tab_of_a_saved_page_answers(browser, saved, tab):
    open_tab(browser, saved, tab, width=PHONE)
    assert SAVED[tab] in answered(browser, tab)
    assert browser.ask("document.querySelector('.error') === null")
    assert browser.ask("document.documentElement.scrollWidth") <= PHONE
    assert browser.ask("typeof window.hacked") == "undefined"
    assert "seqloom serve" in browser.ask("document.getElementById('served').textContent")
    assert not browser.complaints(), "and it asks nobody"


@pytest.mark.long
def test_every_saved_question_has_its_answer(browser, saved):
    open_tab(browser, saved, "write")
    for tab in SAVED:
        count = browser.ask(f"document.querySelectorAll('#{tab}-saved option').length")
        for i in range(count):
            element = f"document.getElementById('{tab}-saved')"
            browser.ask(f"(e => {{ e.selectedIndex = {i}; e.dispatchEvent(new Event('change')); }})({element})")
            answered(browser, tab)
            assert "not one of them" not in browser.ask(
                f"document.querySelector('#panel-{tab} .answer').textContent"
            ), (tab, i)


@pytest.mark.long
def test_a_saved_page_says_what_it_has_not(browser, saved):
    open_tab(browser, saved, "write")
    answered(browser, "write")
    browser.ask("document.querySelector('#panel-write textarea').value = 'another text'")
    assert "not one of them" in submit(browser, "write") and "seqloom serve" in answered(browser, "write")
    open_tab(browser, saved, "attention")
    answered(browser, "attention")
    browser.ask(
        "(e => { e.value = '1'; e.dispatchEvent(new Event('change')); })(document.querySelector('[id^=attention-layer]'))"
    )
    browser.wait_until("document.querySelectorAll('#panel-attention canvas').length > 1")
    assert browser.ask("document.querySelector('.error') === null"), "every layer is there"


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpt2", "bert", "classify", "translator"])
def test_attention_of_every_kind_of_run(browser, address, name):
    open_tab(browser, address, "attention", model=name, text="the cat sees a bird .")
    assert "looks at most" in submit(browser, "attention")
    browser.ask("document.querySelector('#panel-attention .pick').focus()")
    browser.press("Enter")
    first = browser.ask("document.querySelector('#panel-attention .pick').textContent")
    assert f"What {first} looks at most" in browser.ask("document.querySelector('#panel-attention').textContent")
    heads = browser.ask("document.querySelectorAll('#panel-attention .head').length")
    assert heads >= 2 and browser.ask("document.querySelectorAll('#panel-attention [aria-pressed=true]').length") >= 2
    assert not browser.complaints()


@pytest.mark.long
def test_beam_trees_have_their_numbers(browser, address):
    open_tab(browser, address, "write", model="lstm", text="the cat", how="beam", beam=3, max_tokens=5)
    seen = submit(browser, "write")
    assert "The tree of the search" in seen and "What could follow each beginning" in seen
    assert browser.ask("document.querySelectorAll('#panel-write .tree text').length") > 8
    open_tab(browser, address, "translate", model="translator", text="the cat sees a bird .", tree="true")
    assert "The tree of the search" in submit(browser, "translate")
    assert not browser.complaints()


@pytest.mark.long
def test_every_token_shows_its_own_text(browser, address):
    """Also where several of them come at once, as they do from a model that writes faster than the server sends."""
    body = {"model": "lstm", "prompt": "the cat", "max_tokens": 60, "seed": 1, "temperature": 0.8, "logprobs": 1}
    _, answer = call(int(address.strip("/").rpartition(":")[2]), "POST", "/v1/completions", body)
    (whole,) = json.loads(answer)["choices"]
    begins = whole["logprobs"]["text_offset"]
    parts = [whole["text"][begin:end] for begin, end in zip(begins, [*begins[1:], None], strict=True)]
    open_tab(browser, address, "write", model="lstm", text="the cat")
    for cuts in ([60], [1, 17, 60]):
        events = [whole | cut(whole, parts, *ends) for ends in zip([0, *cuts], cuts, strict=False)]
        text = "".join(f"data: {json.dumps({'choices': [each]})}\n\n" for each in events) + "data: [DONE]\n\n"
        browser.ask(f"void (window.fetch = async () => new Response({json.dumps(text)}))")
        assert f"{len(parts)} tokens" in submit(browser, "write")
        assert browser.ask("[...document.querySelectorAll('#panel-write .token')].map(e => e.textContent)") == parts


def cut(choice, parts, begin, end):
    """The part of an answer that an event of a stream has."""
    log_probs = {name: values[begin:end] for name, values in choice["logprobs"].items()}
    finish = choice["finish_reason"] if end >= len(parts) else None
    return {"text": "".join(parts[begin:end]), "logprobs": log_probs, "finish_reason": finish}


@pytest.mark.long
@pytest.mark.parametrize("width", [PHONE, 1200])
def test_numbers_of_runs_and_captions_can_be_read(browser, address, folders, width):
    runs = [folders["lstm"].parent / f"alike-{i}" for i in range(6)]
    for each in runs:
        write_log(each, [3.0, 2.0])
    open_tab(browser, address, "runs", width)
    browser.wait_until("document.querySelector('#panel-runs .answer').innerText.includes('alike-5')")
    boxes = browser.ask(
        "[...document.querySelectorAll('#panel-runs svg text')].map(e => e.getBoundingClientRect().toJSON())"
    )
    for i, one in enumerate(boxes):
        assert one["right"] <= width and one["left"] >= 0
        for other in boxes[:i]:
            apart = one["left"] >= other["right"] or other["left"] >= one["right"]
            assert apart or abs(one["top"] - other["top"]) > 0.5 * one["height"]
    heads = browser.ask("[...document.querySelectorAll('#panel-runs tbody th')].map(e => e.clientHeight)")
    assert max(heads) < 60, "names are not broken into syllables"
    for each in runs:
        shutil.rmtree(each)
    open_tab(browser, address, "compare", width, **CASES["compare"][0])
    submit(browser, "compare")
    assert browser.ask("Math.max(...[...document.querySelectorAll('caption span')].map(e => e.clientWidth))") <= width


@pytest.mark.long
def test_a_unit_can_be_asked_for(browser, address):
    text = "the old king sees a bird . " * 6
    open_tab(browser, address, "cells", model="lstm", text=text, unit="layer0.cell.5")
    submit(browser, "cells")
    assert browser.ask("document.querySelector('#cells-shown').selectedOptions[0].value") == "layer0.cell.5"
    assert browser.ask("document.querySelector('#panel-cells .text').textContent").strip() == text.strip()


CASES = {
    "write": ({"model": "lstm", "text": "the cat", "max_tokens": 12}, "bits per token"),
    "compare": ({"model": EVIL, "other": "gpt2", "text": TEXT}, "Where they differ most"),
    "fill": ({"model": "bert", "text": "the [MASK] sees a [MASK] ."}, "Gap 2"),
    "predict": ({"model": "tag", "text": "the film is good"}, "Every word"),
    "translate": ({"model": "translator", "text": "the cat sees a bird ."}, "Alignment"),
    "vectors": ({"model": "bert", "text": "cat"}, "similarity"),
    "attention": ({"model": "gpt2", "text": "the old <b>king</b> sees a bird ."}, "looks at most"),
    "cells": ({"model": "lstm", "text": "the old <b>king</b> sees a bird . " * 8}, "Gates of layer0"),
    "runs": ({}, "validation loss"),
}


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("tab", CASES)
def test_every_tab_answers_and_can_be_read(browser, address, tab, dark):
    given, words = CASES[tab]
    open_tab(browser, address, tab, PHONE if dark else 1000, dark, **given)
    seen = submit(browser, tab)
    assert words in seen
    assert browser.ask("document.querySelector('.error') === null")
    assert browser.ask("document.documentElement.scrollWidth") <= (PHONE if dark else 1000)
    assert as_hex(browser.ask("getComputedStyle(document.body).backgroundColor")) == (
        PAPER.dark if dark else PAPER.light
    )
    labelled = "[...document.querySelectorAll('input, select, textarea')].every(e => e.labels.length === 1)"
    assert browser.ask(labelled)
    assert browser.ask("typeof window.hacked") == "undefined"
    assert not browser.complaints()


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
def test_all_text_can_be_read(browser, address, dark):
    open_tab(browser, address, "fill", dark=dark, **CASES["fill"][0])
    submit(browser, "fill")
    assert lowest_contrast(browser) >= TEXT_CONTRAST


@pytest.mark.long
def test_writing_by_keyboard_alone(browser, address):
    open_tab(browser, address, "write")
    browser.ask("document.getElementById('tab-write').focus()")
    browser.press("Tab")
    browser.write("the cat")
    assert "text=the+cat" in browser.ask("location.hash"), "the address keeps what was typed"
    for _ in range(7):
        browser.press("Tab")
    assert browser.ask("document.activeElement.textContent") == "Write"
    browser.press("Enter")
    assert "bits per token" in answered(browser, "write")
    browser.press("Tab")
    assert browser.ask("document.activeElement.className") == "token"
    first = browser.ask("document.querySelector('#panel-write .detail').innerText")
    assert "has probability" in first and "The likeliest tokens in this place" in first
    browser.press("ArrowRight")
    assert browser.ask("document.querySelectorAll('#panel-write .token')[1] === document.activeElement")
    browser.ask("document.getElementById('tab-write').focus()")
    browser.press("ArrowRight")
    assert browser.ask("document.activeElement.id") == "tab-compare"
    assert browser.ask(
        "!document.getElementById('panel-compare').hidden && document.getElementById('panel-write').hidden"
    )
    assert not browser.complaints()


@pytest.mark.long
def test_the_text_is_shown_as_it_was_given(browser, address):
    open_tab(browser, address, "compare", **CASES["compare"][0])
    submit(browser, "compare")
    shown = browser.ask("[...document.querySelectorAll('#panel-compare .text')].map(e => e.textContent)")
    assert shown == [TEXT] * 3, "under each model, and where they differ"
    assert EVIL in browser.ask("document.querySelector('#panel-compare table').textContent")
    assert browser.ask("document.querySelectorAll('main b, main img, main script').length") == 0


@pytest.mark.long
def test_runs_that_begin_appear(browser, address, folders):
    run = folders["lstm"].parent / "<b>new"
    open_tab(browser, address, "runs")
    assert "<b>new" not in answered(browser, "runs")
    write_log(run, [3.0, 2.0])
    seen = "document.querySelector('#panel-runs .answer').innerText"
    browser.wait_until(f"{seen}.includes('<b>new') && {seen}.includes('training')")
    shutil.rmtree(run)
    assert not browser.complaints()


@pytest.mark.long
def test_comparisons_stand_beside_runs(browser, address, folders):
    place = folders["lstm"].parent / "compared"
    place.mkdir()
    (place / "comparison.json").write_text(json.dumps(compared(EVIL)))
    open_tab(browser, address, "runs", PHONE)
    seen = "document.querySelector('#panel-runs .answer').textContent"
    browser.wait_until(f"{seen}.includes('1.500 [1.400, 1.600]')")
    assert EVIL in browser.ask(seen) and "Before you believe a difference" in browser.ask(seen)
    browser.ask("document.querySelector('#panel-runs select').value = 'rate'")
    browser.ask("document.querySelector('#panel-runs select').dispatchEvent(new Event('change'))")
    assert "rate" in browser.ask("document.querySelector('#panel-runs svg').getAttribute('aria-label')")
    assert browser.ask("document.querySelectorAll('main b, main script').length") == 0
    assert browser.ask("document.documentElement.scrollWidth") <= PHONE
    assert not browser.complaints()
    shutil.rmtree(place)


@pytest.mark.long
def test_a_refusal_is_one_sentence(browser, address):
    open_tab(browser, address, "vectors", model="bert", text="caat")
    assert "did you mean 'cat'" in submit(browser, "vectors")
    assert browser.ask("document.querySelector('.error').getAttribute('role')") == "alert"


@pytest.mark.long
def test_planted_scripts_and_foreign_requests_are_stopped(browser, address):
    open_tab(browser, address, "write")
    browser.ask(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 1'}))"
    )
    browser.ask("void fetch('http://localhost:1/').catch(() => 0)")
    assert browser.ask("typeof window.hacked") == "undefined"
    browser.wait_until("true")
    assert sum("Content Security Policy" in json.dumps(each) for each in browser.complaints()) >= 2


@pytest.mark.long
def test_the_page_asks_for_the_key(browser, folders, tmp_path):
    (tmp_path / "key").write_text("k" * 20)
    process, port = start(folders["ngram"], "--key-file", tmp_path / "key")
    try:
        browser.open("about:blank")
        browser.open(f"http://127.0.0.1:{port}/")
        browser.wait_until("!document.getElementById('key').hidden")
        for key in ("wrong", "k" * 20):
            browser.wait_until("!document.getElementById('key').hidden && document.activeElement.id === 'key-text'")
            browser.write(key)
            browser.press("Enter")
        browser.wait_until("document.getElementById('tab-write')")
        assert browser.ask("localStorage.length + sessionStorage.length + document.cookie.length") == 0
    finally:
        process.kill()
