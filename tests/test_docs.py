"""The documentation: tutorials and guides are followed, reference pages are complete, links, commands and keys exist."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from pydantic import Field

import seqloom
import seqloom.cli
from seqloom.config import Config
from seqloom.models import MODELS
from tests.chromium import Browser
from tests.documents import DOCS, ROOT, blocks, follow
from tests.forked import forked_jobs
from tests.tasks.labelled import examples, write
from tests.training.material import sentences, write_pairs, write_text
from tools import docs

TUTORIALS = sorted(path.stem for path in (DOCS / "tutorials").glob("*.md"))
# pages that are followed one after the other in one folder, because a page uses what those before it have made
GUIDES = {
    "models": "own-text resume recipes encoders denoising orders multilingual suites exchange python transfer several-tasks "
    "../plugins",
    "inside": "own-text encoders inspect probe",
    "translate": "translate",
    "bodies": "bodies",
    "music": "music",
    "pictures": "pictures",
    "tables": "tables",
    "words": "word-vectors",
    "compare": "compare ladder-and-search pack-and-verify significance",
}
# a test's text is too small for some defaults, and its time too short for some budgets
SMALL = {
    "--out data ": "--out data --vocab-size 300 ",
    "--task translate --train": "--task translate --vocab-size 300 --train",
    "--task classify --train": "--task classify --set budget.epochs=1 --train",
    "--tasks tasks.toml --out": "--tasks tasks.toml --set budget.epochs=1 --out",
    "--task classify --how": "--task classify --set budget.epochs=1 --how",
    "baseline --task classify --set budget.epochs=1": "baseline --task classify",
    "--out data --vocab-size 300 --tokenizer": "--out data --tokenizer",
    "--seeds 3": "--seeds 2",
    "--tokens 2e5": "--tokens 3e4",
    "--tokens 1e5": "--tokens 1e4",
    "--tokens 5e4": "--tokens 5e3",
    "--tokens 2e4": "--tokens 5e3",
    "{tokens=1e5}": "{tokens=1e4}",
    "--curve 10,30,100": "--curve 4,8 --seeds 1",
    "seeds = 3": "seeds = 1",
    "parameters = 1e6": 'parameters = 6e4\ntolerance = 0.1\nsettings = ["batches.length=32"]',
    "pairs = 200": "pairs = 5",
    "vocab_size = 4096": "vocab_size = 300",
    'files = ["corpus.txt"]\n\n': 'files = ["corpus.txt"]\nvocab_size = 300\n\n',
    "words = 2e6": "words = 4000",
    'recipe = "gpt2-tiny"': 'recipe = "gpt2-tiny"\nsettings = ["model.max_len=32"]',
    'recipe = "bert-tiny"': 'recipe = "bert-tiny"\nsettings = ["model.max_len=32"]',
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With the files that a reader is said to have."""
    write_text(tmp_path / "corpus.txt", 6000)
    (tmp_path / "input.txt").write_text(" ".join(sentences(2000)) + "\n", encoding="utf-8")
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
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    forked_jobs(monkeypatch)
    return tmp_path


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial(name, tmp_path, monkeypatch, capsys):
    """As it stands: tutorials bring their own text and take seconds."""
    monkeypatch.chdir(tmp_path)
    forked_jobs(monkeypatch)
    assert list(follow(DOCS / f"tutorials/{name}.md", capsys))


@pytest.mark.parametrize(
    "chain", [pytest.param(name, marks=pytest.mark.long) if name in ("inside", "models") else name for name in GUIDES]
)
def test_guides(chain, folder, capsys, monkeypatch):
    for name in GUIDES[chain].split():
        assert list(follow(DOCS / f"howto/{name}.md", capsys, SMALL)) or blocks(DOCS / f"howto/{name}.md", "python")
    if chain == "tables":
        check_raw_sentence(folder, capsys, monkeypatch)


def check_raw_sentence(folder, capsys, monkeypatch):
    """A raw sentence through the tagger of the page: from a file, from standard input and from Python, with offsets."""
    text = "Obama visited Paris yesterday ."
    (found,) = [json.loads(line) for line in (folder / "names.jsonl").read_text(encoding="utf-8").splitlines()]
    assert found["tags"] == ["B-PER", "O", "B-LOC", "O", "O"]
    assert [text[begin:end] for begin, end in found["offsets"]] == found["words"] == text.split()
    assert [(each["kind"], text[each["begin"] : each["end"]]) for each in found["entities"]] == [
        ("PER", "Obama"),
        ("LOC", "Paris"),
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{text}\n"))
    capsys.readouterr()
    assert seqloom.cli.run(["predict", "runs/names"]) == 0 and json.loads(capsys.readouterr().out) == found
    assert seqloom.load("runs/names", "cpu").predict(text)[0] == found


def test_every_guide_is_followed():
    """But for those about trackers and clusters: tests/runs/test_track.py, tests/training/test_ranks.py and
    tests/comparison/test_engines.py have them."""
    followed = set(" ".join(GUIDES.values()).split())
    assert {path.stem for path in (DOCS / "howto").glob("*.md")} == followed - {"../plugins"} | {
        "track",
        "scale",
        "serve",
    }


@pytest.mark.parametrize(
    "page", ["start.md", *(f"coming-from/{name}.md" for name in ("transformers", "fairseq", "nanogpt"))]
)
def test_page(page, folder, capsys):
    assert list(follow(DOCS / page, capsys, SMALL))


# ---- what is generated is complete ----


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    docs.assemble(target)
    return target


def test_every_key_has_a_sentence():
    keys = docs.all_keys()
    assert len(keys) > 400 and docs.without_sentence(keys) == []
    assert all(key.range and key.default for key in keys)


def test_a_key_without_a_sentence_is_found():
    class Planted(Config):
        described: int = Field(1, description="A sentence.")
        bare: int = 1
        half: int = Field(1, description="of the model")

    assert docs.without_sentence(list(docs.keys_of(Planted))) == ["bare", "half"]


def test_every_option_is_in_the_reference(site):
    text = (site / "reference/commands.md").read_text(encoding="utf-8")
    for name, command in docs.commands().items():
        part = text.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert part, name
        assert all(option.help for option in docs.options_of(command.callback)), name
        for option in docs.options_of(command.callback):
            assert all(f"`{spelled}`" in part for spelled in option.names), (name, option)


def test_names_of_options_are_those_that_the_program_takes():
    """The reference reads signatures; the parser has the last word."""
    import typer.main

    parsers = typer.main.get_command(docs.app).commands
    for name, command in docs.commands().items():
        taken = {spelled for parameter in parsers[name].params for spelled in parameter.opts if spelled[:1] == "-"}
        shown = {spelled for option in docs.options_of(command.callback) for spelled in option.names}
        assert shown == taken - {"--help", "-h"}, name


def test_every_public_name_is_in_the_reference(site):
    text = (site / "reference/python.md").read_text(encoding="utf-8")
    assert [name for name in seqloom.__all__ if f"seqloom.{name}\n" not in text] == []


def test_every_model_has_a_page(site):
    for name in MODELS:
        text = (site / f"models/{name}.md").read_text(encoding="utf-8")
        about = docs.describe(name)
        assert about["paper"] in text and str(about["year"]) in text
        assert all(f"`{name}-{preset}`" in text for preset in about["presets"])
        assert (docs.model_class(name).lineage.parent != "") == ("```diff" in text)


def test_parents_are_models_and_no_circle():
    for name in MODELS:
        seen = [name]
        while parent := docs.model_class(seen[-1]).lineage.parent:
            assert parent in MODELS and parent not in seen, (name, parent)
            seen.append(parent)


# ---- what is written is true ----


def test_links(site):
    assert docs.broken_links(site) == []
    (site / "planted.md").write_text("[gone](nowhere.md) [here](start.md) [part](start.md#nothing)", encoding="utf-8")
    assert docs.broken_links(site) == ["planted.md: nowhere.md", "planted.md: start.md#nothing (no such heading)"]
    (site / "planted.md").unlink()


def test_links_hold_in_the_repository():
    """Also without the site; pages that are generated need it."""
    generated = {(DOCS / page).resolve() for page in docs.generated()}
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]:
        for _, link in docs.LINK.findall(page.read_text(encoding="utf-8")):
            goal = (page.parent / link.partition("#")[0]).resolve()
            assert re.match(r"[a-z]+:", link) or goal.exists() or goal in generated, f"{page}: {link}"


def test_the_page_of_the_package_needs_no_other_page():
    """It is shown by a package index, which has neither the repository nor the site."""
    text = (DOCS / "package.md").read_text(encoding="utf-8")
    assert docs.LINK.findall(text) == [] and "](" not in text


def test_every_page_is_in_the_contents(site):
    found = re.findall(r"^/([\w./-]+)$", "\n".join(docs.contents(site).values()), re.M)
    assert len(found) == len(set(found))
    assert {str(path.relative_to(site).with_suffix("")) for path in site.rglob("*.md")} - set(found) == {"index"}
    assert [page for page in found if not (site / f"{page}.md").is_file()] == []


def test_slides_are_of_models(site):
    assert set(docs.lecture_slides()) <= set(MODELS)
    assert "## In lectures" in (site / "models/bert.md").read_text(encoding="utf-8")


def hand_written() -> list[Path]:
    """Pages that say how things are now; results and changes say how they were."""
    pages = [path for path in DOCS.rglob("*.md") if "results" not in path.parts]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages]


def wrong_commands(text: str) -> list[str]:
    """Calls of seqloom in code with a command or an option that does not exist."""
    known = {
        name: {spelled for option in docs.options_of(command.callback) for spelled in option.names}
        for name, command in docs.commands().items()
    }
    found = []
    inline = [f"seqloom {span}" for span in re.findall(r"`([a-z]+ --[^`]+)`", text) if span.split()[0] in known]
    for span in [
        *inline,
        *re.findall(r"^ *(seqloom [^\n]+)", text.replace("\\\n", " "), re.M),
        *re.findall(r"`(seqloom [^`]+)`", text),
    ]:
        words = span.split("#")[0].split("`")[0].split()[1:]
        if not words or not re.fullmatch(r"[a-z]+", words[0]):
            continue
        options = {word.partition("=")[0].rstrip(",.;:") for word in words if word.startswith("--")}
        unknown = options - known.get(words[0], set()) - {"--help", "--quiet", "--debug", "--version"}
        if words[0] not in known or unknown:
            found.append(span)
    return found


def test_commands_exist():
    wrong = {str(page.relative_to(ROOT)): wrong_commands(page.read_text(encoding="utf-8")) for page in hand_written()}
    assert {page: found for page, found in wrong.items() if found} == {}
    assert wrong_commands("    seqloom pretain x\nand `seqloom fill --no` but `seqloom fill`") == [
        "seqloom pretain x",
        "seqloom fill --no",
    ]


def test_targets_of_make_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for page in hand_written():
        named = re.findall(r"(?:^    |`)make ([a-z][\w-]*)", page.read_text(encoding="utf-8"), re.M)
        assert set(named) <= targets, page


def unknown_keys(text: str) -> set[str]:
    known = {key.path for key in docs.all_keys()} | {"objective.name", "task.name"}
    sections = "model|train|batches|budget|valid|objective|task"
    named = re.findall(rf"(?<![\w./-])((?:{sections})\.[a-z_0-9.]+)(?=[`=\s])", text)
    return {key.rstrip(".") for key in named} - known - {"model.generate"}


def test_keys_exist():
    for page in [
        *(DOCS / "howto").glob("*.md"),
        *(DOCS / "coming-from").glob("*.md"),
        *(DOCS / "tutorials").glob("*.md"),
    ]:
        text = re.sub(r"\w+\.(en|de|csv|jsonl|py|tsv|bio)\b|trainer\.\w+", "", page.read_text(encoding="utf-8"))
        assert unknown_keys(text) == set(), page
    assert unknown_keys("`train.optim.learning_rate` and `train.optim.lr`") == {"train.optim.learning_rate"}


def test_pages_are_plain_markdown():
    """But for notebooks, whose cells are directives."""
    for page in set(DOCS.rglob("*.md")) - set(DOCS.glob("notebooks/*.md")):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"^```\{|^:::|^\{\w+\}`", text, re.M), page


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    target = tmp_path_factory.mktemp("built") / "docs"
    assert docs.build(target) == 0, "a warning"
    return target / "html"


@pytest.mark.long
def test_the_site_is_built_without_a_warning(html):
    assert (html / "reference/python.html").is_file() and (html / "models/gpt2.html").is_file()


@pytest.mark.long
def test_a_dead_link_fails_the_build(tmp_path, monkeypatch, capfd):
    def plant(target):
        shutil.copy(DOCS / "conf.py", target)
        shutil.copytree(DOCS / "_static", target / "_static")
        (target / "index.md").write_text("# A page\n\n[gone](nowhere.md)\n", encoding="utf-8")

    monkeypatch.setattr(docs, "assemble", plant)
    assert docs.build(tmp_path / "docs") != 0 and "nowhere.md" in capfd.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 400])
def test_pages_fit_the_screen_and_ask_for_nothing(html, width, tmp_path):
    with Browser(tmp_path) as browser:
        for page in sorted(html.rglob("*.html")):
            browser.open(page, width=width)
            assert browser.ask("document.documentElement.scrollWidth <= innerWidth"), page
            assert browser.complaints() == [], page
