"""README.md of exported folders, read as huggingface_hub reads it, and milestones as folders."""

import json

import pytest
import transformers as hf
from huggingface_hub import ModelCard, ModelCardData, metadata_load
from huggingface_hub.repocard_data import eval_results_to_model_index

from seqloom.cli import run
from seqloom.convert.huggingface import export_folder
from seqloom.convert.model_card import CardOptions, yaml_lines
from seqloom.errors import UsageError
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.training.material import prepared

SMALL = ["model.dim=16", "batches.length=32", "batches.budget=128", "valid.limit=200", "model.max_len=32"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("card")
    data = prepared(place / "data", 200)
    for name in ("gpt2", "bert"):
        settings = [
            *SMALL,
            "model.num_heads=2",
            "budget={tokens=700}",
            f"train.milestones={str(name == 'gpt2').lower()}",
        ]
        pretrain(f"{name}-tiny", data, place / name, settings=settings)
    return place


@pytest.mark.parametrize(("name", "pipeline"), [("gpt2", "text-generation"), ("bert", "fill-mask")])
def test_the_card_is_valid(name, pipeline, made, tmp_path):
    assert (
        run(["export", str(made / name), "--out", str(tmp_path / "out"), "--license", "mit", "--language", "en"]) == 0
    )
    card = ModelCard.load(tmp_path / "out" / "README.md", ignore_metadata_errors=False)
    metrics = json.loads((made / name / "metrics.json").read_text())
    assert (card.data.license, card.data.language, card.data.pipeline_tag) == ("mit", ["en"], pipeline)
    assert card.data.library_name == "transformers"
    (loss,) = [result for result in card.data.eval_results if result.metric_type == "loss"]
    assert (loss.metric_value, loss.task_type, loss.dataset_split) == (metrics["valid_loss"], pipeline, "valid")
    assert card.data["co2_eq_emissions"]["emissions"] == pytest.approx(metrics["co2_kg"] * 1000, abs=1e-6)
    for part in (
        "## Data",
        "energy",
        f"{metrics['parameters']:,}",
        "Rule for counting words: whitespace",
        "from transformers import",
    ):
        assert part in card.text, part
    # writing it again changes nothing: it holds what the library knows
    assert ModelCard(str(card)).data.to_dict() == card.data.to_dict()


def test_the_header_is_what_the_hub_would_write(made, tmp_path):
    """All of huggingface_hub's checks that need no network: its classes take every key, and give the same header again. Its
    online check (`ModelCard.validate`) asks a server, which no test does."""
    export_folder(made / "gpt2", tmp_path / "out", card_options=CardOptions("mit", ("en",)))
    header = metadata_load(tmp_path / "out" / "README.md")
    card = ModelCard.load(tmp_path / "out" / "README.md", ignore_metadata_errors=False)
    again = ModelCardData(**{**card.data.to_dict(), "model_name": card.data.model_name}, ignore_metadata_errors=False)
    assert again.to_dict() == card.data.to_dict() == header
    assert eval_results_to_model_index(card.data.model_name, card.data.eval_results) == header["model-index"]
    assert not set(header) - {*vars(ModelCardData()), "co2_eq_emissions", "model-index"}, (
        "a key that the hub does not know"
    )
    broken = (tmp_path / "out" / "README.md").read_text().replace('"results"', '"outcomes"')
    with pytest.raises(ValueError, match="Invalid `model_index`"):
        ModelCard(broken, ignore_metadata_errors=False)


def test_padding_and_special_tokens_are_those_of_the_training(made, tmp_path):
    for name in ("gpt2", "bert"):
        export_folder(made / name, tmp_path / name)
        tokenizer, config = (
            hf.AutoTokenizer.from_pretrained(tmp_path / name),
            hf.AutoConfig.from_pretrained(tmp_path / name),
        )
        ours = load(made / name, "cpu").tokenizer
        assert config.pad_token_id == tokenizer.pad_token_id and tokenizer.padding_side == "right"
        if name == "gpt2":
            assert tokenizer.eos_token_id == config.eos_token_id == ours.end_id
        else:
            assert (tokenizer.cls_token_id, tokenizer.sep_token_id) == (ours.first_id, ours.separator_id)


def test_nothing_is_claimed_that_is_not_known(made, tmp_path):
    export_folder(made / "gpt2", tmp_path / "out")
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.license == "unknown" and card.data.language is None
    with pytest.raises(UsageError, match="--language English language"):
        export_folder(made / "gpt2", tmp_path / "more", card_options=CardOptions(languages=("English language",)))
    assert not (tmp_path / "more").exists()


def test_all_milestones_are_folders(made, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(["export", str(made / "gpt2"), "--out", str(out), "--milestones"]) == 0
    marks = sorted(int(path.name) for path in (made / "gpt2" / "milestones").iterdir())
    assert len(marks) > 1
    assert sorted(path.name for path in out.iterdir()) == sorted(["final", *(f"words-{mark}" for mark in marks)])
    last = hf.AutoModelForCausalLM.from_pretrained(out / f"words-{marks[0]}")
    assert last.config.model_type == "gpt2"
    card = ModelCard.load(out / f"words-{marks[0]}" / "README.md")
    assert f"after {marks[0]:,} words" in card.text and not card.data.eval_results
    # again: nothing is overwritten without being asked for
    assert run(["export", str(made / "gpt2"), "--out", str(out), "--milestones"]) == 2
    assert run(["export", str(made / "gpt2"), "--out", str(out), "--milestones", "--overwrite"]) == 0
    capsys.readouterr()
    assert run(["export", str(made / "bert"), "--out", str(tmp_path / "none"), "--milestones"]) == 2
    assert "train it with --milestones" in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_any_text_is_a_value():
    import yaml

    values = {
        "a": 'quote " and: colon # hash',
        "b": ["- dash", "{brace}", "…\x07\x1b[0m 字 😀", "---"],
        "c": {"d": [1, 2.5, None, True]},
    }
    lines = yaml_lines(values)
    assert lines[0] == lines[-1] == "---"
    found = yaml.safe_load("\n".join(lines[1:-1]))
    assert found["a"] == values["a"] and found["c"] == values["c"] and found["b"][:2] == ["- dash", "{brace}"]
    assert "字 😀" in found["b"][2] and "\x1b" not in found["b"][2]
