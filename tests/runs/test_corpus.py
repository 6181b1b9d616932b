"""Runs that learn from several prepared folders, a language each."""

import json
from pathlib import Path

import pytest
import torch

from seqloom.batch import pack
from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.cli import repeat_option_names
from seqloom.cli import run as command
from seqloom.errors import DataError, Interrupted, ModelError, UsageError
from seqloom.models.index import recipe_names as names
from seqloom.recipes.library import find_recipe
from seqloom.runs.corpus import Corpus
from seqloom.runs.load import load, load_predictor
from seqloom.runs.training import find_lr, finetune, pretrain
from seqloom.training.interrupt import Interruption
from seqloom.training.loop import Fit
from seqloom.training.share import ALONE, Share
from tests.training.material import pairs
from tests.training.test_resume import fingerprint

SMALL = ["model.dim=20", "model.num_layers=1", "batches.budget=256", "batches.length=32", "train.schedule.warmup=5"]
ENCODER = [*SMALL, "model.num_heads=2", "model.dropout=0.1"]
STEPS = ["budget={steps=24}", "train.eval_every=10", "train.save_every=7", "train.log_every=4", "valid.limit=600"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """en, large, and xx, small, of one tokenizer; other, of another one; few, without held-out text."""
    folder = tmp_path_factory.mktemp("languages")
    texts = {
        "en": [a for a, _ in pairs(1200)],
        "xx": [b for _, b in pairs(150, 1)],
        "few": [a for a, _ in pairs(40, 2)],
    }
    for name, lines in {**texts, "all": [*texts["en"], *texts["xx"]]}.items():
        documents = [" ".join(lines[i : i + 5]) for i in range(0, len(lines), 5)]
        (folder / f"{name}.txt").write_text("\n".join(documents) + "\n", encoding="utf-8")
    options = {"keep_leaks": True, "keep_duplicates": True}
    prepare([folder / "all.txt"], folder / "all", tokenizer="wordpiece", vocab_size=150, min_count=1, **options)
    for name in texts:
        valid = {} if name == "few" else {"valid": 0.1}
        prepare(
            [folder / f"{name}.txt"], folder / name, from_tokenizer=folder / "all/tokenizer.json", **valid, **options
        )
    prepare([folder / "xx.txt"], folder / "other", tokenizer="word", min_count=1, **options)
    return folder


def run(recipe, folders, out, *more, **options):
    settings = [*(SMALL if recipe.startswith("gpt") else ENCODER), *STEPS, *more]
    return pretrain(recipe, folders, out, settings=settings, device="cpu", **options)


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory) -> Path:
    """One run over both languages."""
    return run("xlm-tiny", [folder / "en", folder / "xx"], tmp_path_factory.mktemp("runs") / "xlm").folder


def test_what_a_run_tells_of_its_languages(folder, made):
    sizes = {name: Store.open(folder / name).split("train").num_tokens for name in ("en", "xx")}
    total = sum(size**0.5 for size in sizes.values())
    card = (made / "card.md").read_text()
    metrics = json.loads((made / "metrics.json").read_text())
    for name, size in sizes.items():
        assert f"| {name} | {size:,} | {size**0.5 / total:.2%} |" in card
        assert f"| {metrics['valid']['languages'][name]:.4f} |" in card
    losses = metrics["valid"]["languages"]
    assert list(losses) == ["en", "xx"] and metrics["valid"]["loss"] == pytest.approx(sum(losses.values()) / 2)
    lines = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    assert [list(line["languages"]) for line in lines if "valid" in line] == [["en", "xx"]] * 3
    config = json.loads((made / "config.json").read_text())
    assert config["data"]["languages"] == ["en", "xx"]
    assert "smoothing = 0.5" in card


def test_words_are_counted_as_they_are_read(folder):
    text = Corpus.open(find_recipe("xlm-r-tiny"), [folder / "en", folder / "xx"])
    once = [train.words for train in text.train]
    assert text.words == pytest.approx(sum(often * words for often, words in zip(text.passes, once, strict=True)))
    plain = Corpus.open(find_recipe("bert-tiny"), [folder / "en", folder / "xx"])
    # passages have special tokens in the place of the ends of documents
    assert plain.words == sum(once)
    assert plain.num_tokens == sum(train.num_tokens - train.num_documents for train in plain.train)


@pytest.mark.parametrize("recipe", ["xlm-tiny", "xlm-r-tiny", "bert-tiny", "gpt2-tiny"])
def test_stopped_within_an_epoch_and_resumed_in_another_order(recipe, folder, tmp_path, monkeypatch):
    smooth = "batches.smoothing=0.3"
    both = [folder / "xx", folder / "en"]
    run(recipe, both, tmp_path / "whole", smooth)
    one_step = Fit.one_step

    def fragile(fit, items):
        if fit.state.step == 17:
            raise ConnectionAbortedError("power cut")
        one_step(fit, items)

    with monkeypatch.context() as patch:
        patch.setattr(Fit, "one_step", fragile)
        with pytest.raises(ConnectionAbortedError):
            run(recipe, both, tmp_path / "broken", smooth)
    run(recipe, both[::-1], tmp_path / "broken", smooth, "train.workers=3", resume=True)
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "broken")


def test_names_decide_the_order(folder, tmp_path):
    recipe = find_recipe("xlm-tiny")
    assert Corpus.open(recipe, [folder / "xx", folder / "en" / "."]).names == ["en", "xx"]
    (tmp_path / "aa").symlink_to(folder / "xx")
    assert Corpus.open(recipe, [folder / "en", tmp_path / "aa"]).names == ["aa", "en"], "a link has its own name"
    one = Corpus.open(recipe, [folder / "xx", folder / "en"]).fingerprint
    assert one == Corpus.open(recipe, [folder / "en", folder / "xx"]).fingerprint
    assert one != Corpus.open(recipe, [folder / "en", folder / "few"]).fingerprint


def test_one_folder_in_a_list_is_one_folder(folder):
    recipe = find_recipe("xlm-tiny")
    alone, listed = (Corpus.open(recipe, each) for each in (folder / "en", [folder / "en"]))
    assert alone.fingerprint == listed.fingerprint == Store.open(folder / "en").fingerprint
    epoch = {"epoch": {"words": alone.words, "tokens": alone.num_tokens}}
    assert alone.describe() == listed.describe() == Store.open(folder / "en").manifest.model_dump() | epoch
    assert listed.names == [] and "languages" not in listed.source()


def test_the_language_reaches_the_model(folder, made, tmp_path):
    """The vectors of the two languages are learnt, those of others are not; told another one, the model answers otherwise."""
    loaded = load(made, "cpu")
    first = run(
        "xlm-tiny", [folder / "en", folder / "xx"], tmp_path / "first", "budget={steps=1}", "train.optim.lr=1e-9"
    )
    (now,), (before,) = (
        [value for name, value in each.learner.named_parameters() if "segments" in name] for each in (loaded, first)
    )
    decayed = before[2:] / before[2:].norm(dim=1, keepdim=True)
    assert torch.allclose(now[2:] / now[2:].norm(dim=1, keepdim=True), decayed, atol=1e-5)
    for i in (0, 1):
        assert not torch.allclose(now[i] / now[i].norm(), before[i] / before[i].norm(), atol=1e-3)
    right = loaded.evaluate(folder / "xx", "valid")["loss"]
    (tmp_path / "en").symlink_to(folder / "xx")
    assert loaded.evaluate(tmp_path / "en", "valid")["loss"] != right
    with pytest.raises(UsageError, match="'few' is none of them"):
        loaded.evaluate(folder / "few", "train")


def test_texts_are_read_in_the_language_that_they_are_in(made, tmp_path, capsys):
    """Scores, gaps and vectors; by the model itself, told every token's language."""
    loaded = load(made, "cpu")
    text = "the cat sees a dog ."
    for ask in (lambda: loaded.score([text]), lambda: loaded.fill("the [MASK] sees"), lambda: loaded.encode([text])):
        with pytest.raises(UsageError, match="name the language of the texts, one of en, xx, as --language en"):
            ask()
    ids = [loaded.tokenizer.first_id, *loaded.tokenizer.encode(text), loaded.tokenizer.separator_id]
    found = {}
    for number, language in enumerate(("en", "xx")):
        spoken = load(made, "cpu").set_language(language)
        batch = pack([ids])
        told = spoken.learner.backbone.eval()(batch._replace(segments=torch.full_like(batch.ids, number))).hidden
        (vectors,) = spoken.encode([text], pool="none")
        assert torch.allclose(torch.from_numpy(vectors), told[1:-1], atol=1e-5)
        found[language] = spoken.score([text])[0].log_probs, spoken.fill("the [MASK] sees")[0][0].probability
    assert found["en"][0] != found["xx"][0] and found["en"][1] != found["xx"][1]
    (tmp_path / "lines.txt").write_text(text + "\n")
    assert command(["score", str(made), str(tmp_path / "lines.txt"), "--language", "xx"]) == 0
    assert float(capsys.readouterr().out) == pytest.approx(sum(found["xx"][0]), abs=1e-3)
    assert command(["embed", str(made), str(tmp_path / "lines.txt"), "--out", str(tmp_path / "a.npz")]) == 2
    assert "--language en" in capsys.readouterr().err
    assert command(["fill", str(made), "the [MASK]", "--language", "de"]) == 2
    assert "knows en, xx" in capsys.readouterr().err


def test_a_task_is_learnt_and_told_about_in_a_language(made, tmp_path, capsys):
    """What was learnt from one language answers in it, and in another when told so: by the model itself, told every token's."""
    rows = [{"text": f"the {a} sees a {b} .", "label": a} for a in ("cat", "dog") for b in ("cat", "dog", "bird")]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = ["finetune", str(made), "--task", "classify", "--train", str(file), "--valid", str(file)]
    call += ["--set", "budget={steps=3}", "--out"]
    assert command([*call, str(tmp_path / "none")]) == 2
    assert (
        "name the language of the texts, one of en, xx" in capsys.readouterr().err and not (tmp_path / "none").exists()
    )
    assert command([*call, str(tmp_path / "none"), "--language", "de"]) == 2
    assert "knows en, xx" in capsys.readouterr().err
    assert command([*call, str(tmp_path / "run"), "--language", "xx"]) == 0
    capsys.readouterr()
    learnt = load_predictor(tmp_path / "run", "cpu")
    assert learnt.language == "xx"
    (vector,) = learnt.encode([rows[0]["text"]])
    ids = [learnt.tokenizer.first_id, *learnt.tokenizer.encode(rows[0]["text"]), learnt.tokenizer.separator_id]
    batch = pack([ids])
    told = learnt.learner.backbone.eval()(batch._replace(segments=torch.ones_like(batch.ids))).hidden
    assert torch.allclose(torch.from_numpy(vector), told[1:-1].mean(0), atol=1e-5)
    (own,), (other,) = learnt.predict(rows[:1]), load_predictor(tmp_path / "run", "cpu", "en").predict(rows[:1])
    assert own["probabilities"] != other["probabilities"]
    for language, expected in ((), own), (("--language", "en"), other):
        assert command(["predict", str(tmp_path / "run"), str(file), *language]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[0])["probabilities"] == expected["probabilities"]
    assert command(["evaluate", str(tmp_path / "run"), "--test", str(file), "--language", "en", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == len(rows)
    again = finetune(tmp_path / "run", "classify", file, file, tmp_path / "more", settings=["budget={steps=1}"])
    assert again.language == "xx"
    config = json.loads((tmp_path / "run/config.json").read_text())
    config["data"]["language"] = "de"
    (tmp_path / "run/config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="damaged"):
        load(tmp_path / "run", "cpu")


def test_measured_alone_and_in_training_alike(folder, made):
    loaded = load(made, "cpu")
    text = Corpus.open(find_recipe("xlm-tiny", [*ENCODER, "valid.limit=0"]), [folder / "en", folder / "xx"])
    together = text.evaluate(loaded.learner, torch.device("cpu"), ALONE)
    for name in ("en", "xx"):
        assert loaded.evaluate(folder / name, "valid")["loss"] == together["languages"][name]
    asked = Interruption()
    asked.asked = True
    with pytest.raises(Interrupted):
        text.evaluate(loaded.learner, torch.device("cpu"), Share(asked.check))


def test_a_language_without_held_out_text(folder, tmp_path, capsys):
    found = run("xlm-r-tiny", [folder / "en", folder / "few"], tmp_path / "run")
    assert list(json.loads((found.folder / "metrics.json").read_text())["valid"]["languages"]) == ["en"]
    assert "no held-out text of few" in capsys.readouterr().err
    assert "| few |" in (found.folder / "card.md").read_text()


def test_what_cannot_be_one_run_is_refused(folder, tmp_path):
    def refused(kind, words, recipe, *folders, settings=()):
        with pytest.raises(kind, match=words):
            pretrain(recipe, [folder / name for name in folders], tmp_path / "run", settings=list(settings))
        assert not (tmp_path / "run").exists()

    refused(DataError, "(?s)en and .*other have different tokenizers.*--from-tokenizer", "xlm-tiny", "en", "other")
    refused(UsageError, "both are 'en'", "xlm-tiny", "en", "en")
    refused(UsageError, "streams.*--set batches.kind=packed", "lstm-tiny", "en", "xx")
    refused(UsageError, "counting, from one folder", "ngram-tiny", "en", "xx")
    refused(UsageError, "--set model.num_segments=2", "xlm-tiny", "en", "xx", settings=["model.num_segments=1"])
    refused(UsageError, "at least one", "xlm-tiny")
    refused(UsageError, "smoothing.*streams", "lstm-tiny", "en", settings=["batches.smoothing=0.5"])
    refused(UsageError, "smoothing", "xlm-tiny", "en", settings=["batches.smoothing=1.5"])
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(sentence.rstrip(" .") for sentence, _ in pairs(20)) + "\n", encoding="utf-8")
    prepare([lines], tmp_path / "lines", from_tokenizer=folder / "all/tokenizer.json", keep_duplicates=True)
    refused(DataError, "lines: no document has two sentences", "albert-tiny", "en", tmp_path / "lines")


def test_recurrent_models_read_languages_in_packed_batches(folder, tmp_path):
    packed = ["batches.kind=packed", "batches.budget=128", "batches.length=16", "model.dim=16", *STEPS]
    pretrain("lstm-tiny", [folder / "en", folder / "xx"], tmp_path / "run", settings=packed, device="cpu")


def test_a_rate_is_found_for_several(folder):
    assert 0 < find_lr("xlm-tiny", [folder / "en", folder / "xx"], settings=ENCODER, device="cpu").suggestion < 1


def test_published_smoothing():
    found = {name: find_recipe(name).batches.smoothing for name in names() if not name.startswith(("seq2seq", "gnmt"))}
    assert found["bert-multilingual"] == 0.7
    assert {value for name, value in found.items() if name.startswith("xlm-r-")} == {0.3}
    assert {found[f"xlm-{preset}"] for preset in ("tiny", "small", "base", "en")} == {0.5}
    assert {value for name, value in found.items() if not name.startswith("xlm")} == {1.0, 0.7}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("pretrain x --data a b c --out r --set k=1", "pretrain x --data a --data b --data c --out r --set k=1"),
        ("pretrain x --out r --data a", "pretrain x --out r --data a"),
        ("pretrain --data a x --out r", "pretrain --data a x --out r"),  # where the recipe stands behind, as before
        ("evaluate r --data a b", "evaluate r --data a b"),
        ("train x --train a b c", "train x --train a --train b c"),
    ],
)
def test_several_folders_on_the_command_line(given, meant):
    assert repeat_option_names(given.split()) == meant.split()


def test_held_out_text_that_cannot_be_evaluated_is_said_before_training(tmp_path):
    sentence = "the king sees the cat. the queen likes the dog. the bird finds a friend."
    (tmp_path / "train.txt").write_text("\n\n".join(f"{sentence} it is day {i}." for i in range(20)))
    (tmp_path / "valid.txt").write_text(sentence)
    settings = {"tokenizer": "bpe", "vocab_size": 300, "valid": tmp_path / "valid.txt", "documents": "blank"}
    prepare([tmp_path / "train.txt"], tmp_path / "data", **settings, keep_leaks=True, keep_duplicates=True)
    with pytest.raises(DataError, match=r"data, held-out text: next sentence .* only one document: hold out more"):
        pretrain("bert-tiny", tmp_path / "data", tmp_path / "run", settings=["budget={steps=1}"], device="cpu")
    assert not (tmp_path / "run").exists()
