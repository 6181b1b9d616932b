"""Which installer gets which arguments, with an interpreter that only records what it is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "install_torch.py"

FAKE = """#!/bin/sh
echo "$*" >> "$FAKE_LOG"
case "$*" in
  *"version('torch')"*) [ -n "$FAKE_TORCH" ] && echo "$FAKE_TORCH" || exit 1 ;;
  "-m pip config list") printf '%s' "$FAKE_CONFIG" ;;
  "-m pip install"*" uv") exit "${FAKE_GET_UV:-0}" ;;
  "-m uv"*) exit "${FAKE_UV:-0}" ;;
  "-m pip install"*) exit "${FAKE_PIP:-0}" ;;
esac
"""


@pytest.fixture
def install(tmp_path):
    fake = tmp_path / "python"
    fake.write_text(FAKE)
    fake.chmod(0o755)

    def call(**answers):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        # of the user's own settings nothing may decide the test
        environment = {"PATH": os.environ["PATH"], "FAKE_LOG": str(log)} | answers
        command = [sys.executable, str(TOOL), "2.13.0", "--constraints", "pins.txt", "--python", str(fake)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        asked = [line for line in log.read_text().splitlines() if "install" in line]
        return done.returncode, asked, done.stdout

    return call


PIP = "-m pip install --quiet --disable-pip-version-check"


def test_the_build_is_chosen_by_uv(install, tmp_path):
    code, asked, _ = install()
    uv = f"-m uv pip install --python {tmp_path / 'python'} --torch-backend=auto torch==2.13.0 -c pins.txt"
    assert (code, asked) == (0, [f"{PIP} uv", uv])


def test_an_installed_torch_stays(install):
    assert install(FAKE_TORCH="2.13.0")[:2] == (0, [])
    assert len(install(FAKE_TORCH="2.12.1")[1]) == 2


@pytest.mark.parametrize("setting", ["global.index-url='x'", ":env:.find-links='wheels'", "user.no-index='1'"])
def test_own_sources_of_pip_are_used(install, setting):
    other = "global.timeout='60'\n"
    assert install(FAKE_CONFIG=other + setting)[:2] == (0, [f"{PIP} torch==2.13.0 -c pins.txt"])
    assert "torch-backend" in install(FAKE_CONFIG=other)[1][-1]


@pytest.mark.parametrize("failure", [{"FAKE_GET_UV": "1"}, {"FAKE_UV": "2"}])
def test_pip_is_the_fallback_and_says_what_it_takes(install, failure):
    code, asked, said = install(**failure)
    assert code == 0
    assert asked[-1] == f"{PIP} torch==2.13.0 -c pins.txt"
    assert "CUDA" in said


def test_a_failure_of_pip_is_a_failure(install):
    assert install(FAKE_UV="1", FAKE_PIP="3")[0] == 3


def test_the_build_can_be_named(install):
    assert install(SEQLOOM_TORCH="pip")[1] == [f"{PIP} torch==2.13.0 -c pins.txt"]
    named = install(SEQLOOM_TORCH="cpu", FAKE_CONFIG="global.index-url='x'")[1]
    assert "--torch-backend=cpu" in named[-1]
