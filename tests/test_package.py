"""What a package index shows of seqloom, as setuptools builds it from pyproject.toml."""

import os
import re
import subprocess
import sys
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import seqloom

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Message:
    """Built from a copy, so that nothing is left in the source."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in ("pyproject.toml", "LICENSE", "docs/package.md", "seqloom/__init__.py", "seqloom/py.typed"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    script = f"from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel({str(out)!r}))"
    # the version is read from the copy: seqloom itself is not on the path
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", script], cwd=copy, env=environment, check=True, capture_output=True)
    return Parser().parsestr(next(out.glob("*.dist-info/METADATA")).read_text("utf-8"))


def test_there_is_one_version(metadata: Message) -> None:
    assert metadata["Version"] == seqloom.__version__
    assert seqloom.__version__ not in (ROOT / "pyproject.toml").read_text()


def test_the_metadata_is_complete(metadata: Message) -> None:
    for name in ("Name", "Summary", "Author", "License-Expression", "Keywords", "Requires-Python", "License-File"):
        assert metadata[name], name
    assert metadata["Description-Content-Type"] == "text/markdown"
    versions = [line for line in metadata.get_all("Classifier", []) if re.search(r":: 3\.\d+$", line)]
    assert [line.rpartition(".")[2] for line in versions] == ["11", "12", "13", "14"]


def test_the_long_description_has_no_links_that_break(metadata: Message) -> None:
    page = metadata.get_payload()
    assert isinstance(page, str) and page.lstrip().startswith("# seqloom")
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert all(link.startswith(("https://", "#")) for link in links), links


def test_extras_that_messages_name_exist(metadata: Message) -> None:
    extras = set(metadata.get_all("Provides-Extra", []))
    named = {
        name
        for path in (ROOT / "seqloom").rglob("*.py")
        for found in re.findall(r"seqloom\[([a-z,]+)\]", path.read_text("utf-8"))
        for name in found.split(",")
    }
    assert {"data", "translate", "baselines", "harness"} <= named <= extras
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" in line]
    of_all = next(line for line in needed if re.search(r"extra == ['\"]all['\"]", line))
    assert named <= set(re.findall(r"[a-z]+", of_all.partition("[")[2].partition("]")[0]))
