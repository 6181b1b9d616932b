"""Sequences that are joined to others go on as they would have alone: what a server does when somebody comes in."""

import pytest
import torch
from torch.utils import _pytree as pytree

from seqloom import batch as contract
from seqloom.batch import join, pack, ragged
from tests.contract import properties


def goes_on(name):
    model = properties.build(name)
    early, late = properties.sequences(0, (7, 5)), properties.sequences(1, (3,))
    states = []
    for texts, room in ((early, 12), (late, 9)):
        states.append(model(pack(texts), state=model.start(len(texts), room)).state)
    alone = []
    for texts, state in zip((early, late), states, strict=True):
        own = pytree.tree_map_only(torch.Tensor, torch.clone, state)  # a state is used up by a call
        start = torch.tensor([len(text) for text in texts])
        step = ragged(torch.arange(len(texts)) + 5, torch.ones(len(texts), dtype=torch.long), start=start)
        alone.append(model(step, state=own).hidden)
    whole = join(*states)
    start = torch.tensor([len(text) for text in (*early, *late)])
    ids = torch.tensor([5, 6, 5])
    together = model(ragged(ids, torch.ones(3, dtype=torch.long), start=start), state=whole).hidden
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "name", ["ngram", "nnlm", "jordan", "lstm", "gru", "awd-lstm", "gpt", "gpt2", "gpt2-window", "bytenet", "reformer"]
)
def test_joined_sequences_go_on_as_alone(name):
    goes_on(name)


def test_planted_rows_in_the_wrong_order_are_noticed(monkeypatch):
    right = contract.join
    monkeypatch.setitem(globals(), "join", lambda first, second: right(second, first))
    with pytest.raises(AssertionError):
        goes_on("gpt2")
