"""A pruned run leaves with the removed heads as zeros: transformers computes what it computes."""

import pytest
import torch
import transformers

from seqloom.batch import pack
from seqloom.cli import run
from seqloom.convert import silent_heads
from seqloom.convert.huggingface import export_folder
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.training.material import prepared, sentences

SMALL = ["model.dim=24", "model.num_heads=3", "model.num_layers=2", "budget={steps=3}", "valid.limit=100"]
CLASSES = {"gpt2": transformers.AutoModelForCausalLM, "bert": transformers.AutoModel}


@pytest.fixture(scope="module", params=CLASSES)
def pruned(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pruned")
    pretrain(f"{request.param}-tiny", prepared(folder / "data", 200), folder / "run", settings=SMALL)
    (folder / "texts.txt").write_text("\n".join(sentences(8)), encoding="utf-8")
    call = [
        "prune",
        str(folder / "run"),
        "--keep",
        "2",
        "--text",
        str(folder / "texts.txt"),
        "--out",
        str(folder / "fewer"),
    ]
    assert run(call) == 0
    return request.param, load(folder / "fewer"), folder


@torch.no_grad()
def largest_difference(name, ours, theirs):
    ids = [ours.tokenizer.encode(text) for text in sentences(3, seed=5)]
    found = 0.0
    for each in ids:
        hidden = ours.learner.backbone(pack([list(each)])).hidden
        output = theirs(torch.tensor([list(map(int, each))]), output_hidden_states=True)
        found = max(found, float((hidden - output.hidden_states[-1][0]).abs().max()))
    return found


def test_it_computes_the_same_there(pruned):
    name, ours, folder = pruned
    export_folder(folder / "fewer", folder / "hub")
    theirs = CLASSES[name].from_pretrained(folder / "hub").eval()
    assert theirs.config.num_attention_heads == 3
    assert largest_difference(name, ours, theirs) < 1e-5


def test_zeros_in_the_wrong_place_are_noticed(pruned, monkeypatch):
    """The planted bug: the rows of all heads behind one another, as if there were one matrix."""
    name, ours, folder = pruned
    plain = silent_heads.widen

    def shifted(place, tensor, heads, lacking):
        if silent_heads.QKV in place:
            return torch.cat((tensor, tensor.new_zeros(len(tensor) // heads * lacking, *tensor.shape[1:])))
        return plain(place, tensor, heads, lacking)

    monkeypatch.setattr(silent_heads, "widen", shifted)
    export_folder(folder / "fewer", folder / "wrong", overwrite=True)
    theirs = CLASSES[name].from_pretrained(folder / "wrong").eval()
    assert largest_difference(name, ours, theirs) > 1e-3
