"""The tree of a beam search: it finds what the search finds, and its numbers add up."""

import pytest

from seqloom.analyse.beam_tree import BeamTree
from seqloom.cli import run
from seqloom.decode.rules import BeamConfig
from seqloom.decode.search import beam_search
from seqloom.decode.step import Stepper
from seqloom.decode.trace import TracedSearch
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.contract import properties as p
from tests.training.material import prepared


@pytest.fixture(scope="module", params=["gpt2", "lstm"])
def searched(request):
    learner = p.learner_of(p.build(request.param)).eval()
    config = BeamConfig(beam=3, max_new=5, n_best=3, length_penalty=0.0)
    stepper = Stepper(learner.backbone, learner.softmax)
    search = TracedSearch(stepper, config, 0, [])
    (found,) = search.run([[0, 5, 7]])
    return found, search.considered, beam_search(stepper, [[0, 5, 7]], config, 0, [])[0]


def test_it_finds_what_the_search_finds(searched):
    found, _, plain = searched
    assert [each[:4] for each in found] == [each[:4] for each in plain]


def test_every_step_to_a_result_is_there_and_numbers_add_up(searched):
    """The planted bug would be numbers of another hypothesis: each is that of its beginning plus the step."""
    found, considered, _ = searched
    assert () in considered and considered[()].log_prob == 0
    for each in found:
        for i in range(len(each.tokens)):
            assert tuple(each.tokens[:i]) in considered
    steps = 0
    for tokens, each in considered.items():
        if tokens:
            before = considered[tokens[:-1]]
            known = dict(before.alternatives)
            if tokens[-1] in known:
                steps += 1
                assert each.log_prob == pytest.approx(before.log_prob + known[tokens[-1]], abs=1e-5)
        assert len([other for other in considered if len(other) == len(tokens)]) <= 3
    assert steps > 3


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = prepared(tmp_path / "data", 200)
    pretrain(
        "lstm-tiny",
        data,
        tmp_path / "lstm",
        settings=["model.dim=12", "budget={steps=1}", "valid.limit=100", "batches.streams=4"],
    )
    call = ["generate", "lstm", "--prompt", "the", "--max-new", "4"]
    assert run([*call, "--beam", "2", "--tree", "t.html"]) == 0
    assert "Alternatives at every step" in (tmp_path / "t.html").read_text()
    assert isinstance(load("lstm").beam_tree("the", beam=2, max_new=3), BeamTree)
    for options, words in (
        (["--tree", "u.html"], "add --beam"),
        (["--beam", "2", "--tree", "t.html"], "exists already"),
    ):
        assert run([*call, *options]) == 2
        assert words in capsys.readouterr().err and not (tmp_path / "u.html").exists()
