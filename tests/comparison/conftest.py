"""Comparisons fork their jobs; tests that are about processes (`real_jobs`) start them as the program does."""

import pytest

from seqloom.comparison.engines import here
from tests import forked


@pytest.fixture(autouse=True, scope="session")
def forked_jobs():
    with pytest.MonkeyPatch.context() as patch:
        forked.forked_jobs(patch)
        yield


@pytest.fixture
def real_jobs(monkeypatch, forked_jobs):
    monkeypatch.setattr(here, "launch", forked.LAUNCH)
