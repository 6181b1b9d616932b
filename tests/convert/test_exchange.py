"""Folders of `transformers` become runs and folders again: the same bits, the same ids, the same numbers."""

import json
import shutil

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from seqloom.batch import IGNORE, Excerpt, Pair, pack
from seqloom.cli import run
from seqloom.convert.huggingface import export_folder, import_folder
from seqloom.objectives.masked import Masked
from seqloom.runs.load import load, load_translator
from seqloom.runs.training import pretrain, train
from tests.convert.material import KINDS, TEXTS, build, save
from tests.training.material import prepared, write_pairs


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Each kind once: their folder, our run, and the folder that is made of it."""
    made = {}

    def get(name):
        if name not in made:
            place = tmp_path_factory.mktemp(name)
            model = save(name, place / "theirs")
            import_folder(place / "theirs", place / "run")
            export_folder(place / "run", place / "back")
            made[name] = (place, model)
        return made[name]

    return get


def loaded_by_auto(name, folder):
    auto = KINDS[name][4] or KINDS[name][1]
    model, info = auto.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    assert not any(info.values()), info
    return model.eval()


def same_bits(one, two):
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].dtype == two[name].dtype and torch.equal(one[name], two[name]), name


@pytest.mark.parametrize("name", KINDS)
def test_there_and_back_is_bit_equal(name, folders):
    place, model = folders(name)
    again = loaded_by_auto(name, place / "back")
    assert type(again) is type(model)
    same_bits(again.state_dict(), model.state_dict())
    their_file, ours = (load_file(place / where / "model.safetensors") for where in ("theirs", "back"))
    same_bits(
        {key: tensor for key, tensor in their_file.items() if name == "bart" or "embed_positions" not in key},
        ours,
    )
    body, info = hf.AutoModel.from_pretrained(place / "back", output_loading_info=True)
    _, before = hf.AutoModel.from_pretrained(place / "theirs", output_loading_info=True)
    assert info["missing_keys"] == before["missing_keys"] and info["mismatched_keys"] == before["mismatched_keys"]
    ids = torch.tensor([[5, 6, 7, 8]])
    if name != "marian":
        assert torch.isfinite(body(input_ids=ids).last_hidden_state).all()


@pytest.mark.parametrize("name", KINDS)
def test_tokenizers_are_taken_over(name, folders):
    place, _ = folders(name)
    theirs, back = (hf.AutoTokenizer.from_pretrained(place / where) for where in ("theirs", "back"))
    ours = load(place / "run").tokenizer
    for text in TEXTS:
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text) == ids == back(text, add_special_tokens=False)["input_ids"]
        if name not in (
            "xlm-r",
            "xlnet",
            "gpt",
            "gpt2",
            "marian",
        ):  # whose post-processor here is not what such models read
            assert theirs(text)["input_ids"] == back(text)["input_ids"]
    assert back.mask_token_id == theirs.mask_token_id and back.pad_token_id == theirs.pad_token_id
    longest = load(place / "run").learner.backbone.max_len
    assert back.model_max_length == longest or (longest is None and back.model_max_length > 10**9)


def passage(kind, size, labels=True):
    """Texts of unequal length with hidden words, as theirs and ours want them."""
    rng = torch.Generator().manual_seed(3)
    rows = [torch.randint(5, size, (n,), generator=rng).tolist() for n in (21, 9, 14)]
    ids = torch.tensor([[*row, *[1] * (21 - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (21 - len(row)) for row in rows])
    segments = torch.zeros_like(ids) if "roberta" in kind or kind == "xlm-r" else (torch.arange(21) > 5).long() * mask
    batch = pack(rows)._replace(segments=segments[mask.bool()])
    where = torch.tensor([0, 3, 20, 22, 30, 43])
    targets = torch.randint(5, size, (6,), generator=rng)
    flat = torch.full((int(mask.sum()),), IGNORE)
    flat[where] = targets
    hidden = torch.full_like(ids, IGNORE)
    hidden[mask.bool()] = flat
    told = torch.tensor([1, 0, 1])
    real = torch.ones(len(batch.ids), dtype=torch.bool)
    given = {"input_ids": ids, "attention_mask": mask}
    if kind not in ("roberta", "xlm-r"):
        given["token_type_ids"] = segments
    return Masked(batch, where, targets, told, real, real), given, hidden, told


ENCODERS = [name for name in KINDS if name not in ("gpt", "gpt2", "xlnet", "marian", "bart", "electra")]


@pytest.mark.parametrize("name", ENCODERS)
def test_heads_are_equal(name, folders):
    """Scores of words and of relations, and the losses of both."""
    place, _ = folders(name)
    theirs, learner = loaded_by_auto(name, place / "theirs"), load(place / "run", "cpu").learner
    example, given, hidden, told = passage(name, learner.backbone.vocab_size)
    relation = learner.form != "single"
    names = {"albert": "sentence_order_label"}.get(name, "next_sentence_label")
    expected = theirs(**given, labels=hidden, **({names: told} if relation else {}))
    with torch.no_grad():
        states = learner.backbone(example.batch).hidden
        scores = expected.prediction_logits if relation else expected.logits
        kept = given["attention_mask"].bool()
        torch.testing.assert_close(learner.scores(states), scores[kept], rtol=0, atol=2e-5)
        loss = learner(example)
    assert (loss.total / loss.count).item() == pytest.approx(expected.loss.item(), abs=1e-5)
    if relation:
        odds = expected.sop_logits if name == "albert" else expected.seq_relationship_logits
        torch.testing.assert_close(learner.relation_logits(states, example), odds, rtol=0, atol=1e-5)


def test_a_discriminator_judges_as_theirs(folders):
    place, _ = folders("electra")
    theirs, learner = loaded_by_auto("electra", place / "theirs"), load(place / "run", "cpu").learner
    example, given, _, _ = passage("electra", learner.backbone.vocab_size)
    kept = given["attention_mask"].bool()
    replaced = torch.randint(0, 2, kept.shape)
    expected = theirs(**given, labels=replaced)
    with torch.no_grad():
        odds = learner.discriminate(learner.backbone(example.batch).hidden)
    torch.testing.assert_close(odds, expected.logits[kept], rtol=0, atol=1e-5)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(odds, replaced[kept].float())
    assert loss.item() == pytest.approx(expected.loss.item(), abs=1e-5)


def test_permuted_models_are_equal(folders):
    """The query stream of a word, given both sides of it; and what each text begins and ends with."""
    place, model = folders("xlnet")
    loaded = load(place / "run", "cpu")
    words, back = loaded.tokenizer, hf.AutoTokenizer.from_pretrained(place / "back")
    pair = back(TEXTS[0], TEXTS[2])
    one, two = words.encode(TEXTS[0]), words.encode(TEXTS[2])
    assert pair["input_ids"] == [*one, words.separator_id, *two, words.separator_id, words.first_id]
    assert pair["token_type_ids"] == [0] * (len(one) + 1) + [1] * (len(two) + 1) + [2] and back.padding_side == "left"
    (found,) = loaded.fill("The keys to the [MASK] are on the table.", top=5)
    head, tail = words.encode("The keys to the"), words.encode("are on the table.")
    ids = torch.tensor([[*head, words.mask_id, *tail, words.separator_id, words.first_id]])
    gap = torch.zeros(1, 1, ids.shape[1])
    gap[0, 0, len(head)] = 1
    types = torch.tensor([[0] * (ids.shape[1] - 1) + [2]])
    chances = model(ids, token_type_ids=types, perm_mask=gap.expand(-1, ids.shape[1], -1), target_mapping=gap).logits
    for each in found:
        assert chances[0, 0].softmax(-1)[each.tokens[0]].item() == pytest.approx(each.probability, rel=1e-4)


@pytest.mark.parametrize("name", ["gpt", "gpt2"])
def test_language_models_are_equal(name, folders):
    place, model = folders(name)
    learner = load(place / "run", "cpu").learner
    ids = torch.randint(5, 300, (2, 20))
    expected = model(input_ids=ids, labels=ids)
    following = torch.cat((ids[:, 1:], torch.full((2, 1), IGNORE)), 1).flatten()
    loss = learner(Excerpt(pack(ids.tolist()), following))
    assert (loss.total / loss.count).item() == pytest.approx(expected.loss.item(), abs=1e-5)


def test_translators_are_equal(folders):
    place, model = folders("marian")
    translator = load(place / "run", "cpu")
    words = translator.tokenizer
    source, target = words.encode(TEXTS[0]), words.encode(TEXTS[2])
    labels = torch.tensor([[*target, words.end_id]])
    expected = model(input_ids=torch.tensor([[*source, words.end_id]]), labels=labels)
    pair = Pair(pack([[*source, words.end_id]]), pack([[translator.start_id, *target]]), labels[0])
    loss = translator.learner.eval()(pair)
    assert (loss.total / loss.count).item() == pytest.approx(expected.loss.item(), abs=1e-5)
    texts = [text for text in TEXTS if text]
    found = [best[0] for best in translator.translate(texts, beam=3, max_new=8, show=False)]
    for text, best in zip(texts, found, strict=True):
        ids = model.generate(
            torch.tensor([[*words.encode(text), words.end_id]]),
            num_beams=3,
            max_new_tokens=8,
            early_stopping="never",
            bad_words_ids=[[i] for i in sorted({*words.special_ids.values(), words.unk_id} - {words.end_id})],
            forced_eos_token_id=None,
        )
        assert best.tokens == [i for i in ids[0].tolist()[1:] if i != words.end_id]
    translator.learner.start_id = None  # as if they began with the end
    began_wrong = [best[0] for best in translator.translate(texts, beam=3, max_new=8, show=False)]
    assert max(abs(one.score - other.score) for one, other in zip(found, began_wrong, strict=True)) > 0.01


def test_bart_is_equal(folders):
    """Each layer of both halves, scores, loss, greedy and beam search, step by step and at once."""
    place, _ = folders("bart")
    model, run = loaded_by_auto("bart", place / "theirs"), load(place / "run", "cpu")
    learner, words = run.learner, run.tokenizer
    first, end = words.first_id, words.separator_id
    assert (first, end, model.config.decoder_start_token_id) == (0, 2, 2)
    source, target = ([first, *words.encode(TEXTS[i]), end] for i in (0, 7))
    expected = model(input_ids=torch.tensor([source]), labels=torch.tensor([target]), output_hidden_states=True)
    pair = Pair(pack([source]), pack([[end, *target[:-1]]]), torch.tensor(target))
    with torch.no_grad():
        read = learner.backbone.encoder(pair.source, layers=True)
        context = learner.backbone.encode(pair.source)
        written = learner.backbone.decoder(pair.target, context=context, layers=True)
        for ours, theirs in ((read, expected.encoder_hidden_states), (written, expected.decoder_hidden_states)):
            assert len(ours.layers) == len(theirs) == 3
            for one, other in zip(ours.layers, theirs, strict=True):
                torch.testing.assert_close(one, other[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(learner.softmax(written.hidden), expected.logits[0], rtol=0, atol=3e-5)
        loss = learner.eval()(pair)
        assert (loss.total / loss.count).item() == pytest.approx(expected.loss.item(), abs=1e-5)
        # one token after the other, from what is kept
        state = learner.backbone.decoder.start(1, 64, context)
        for place_of, token in enumerate(pair.target.ids.tolist()):
            step = pack([[token]])._replace(positions=torch.tensor([place_of]))
            output = learner.backbone.decoder(step, state=state)
            state = output.state
            torch.testing.assert_close(output.hidden[0], written.hidden[place_of], rtol=0, atol=1e-5)
    translator = load_translator(place / "run", "cpu")
    texts = [text for text in TEXTS if text]
    found = [best[0] for best in translator.translate(texts, beam=3, max_new=8, show=False)]
    assert len({tuple(best.tokens) for best in found}) > 3
    never = sorted({*words.special_ids.values()} - {end, first})
    for text, best in zip(texts, found, strict=True):
        ids = model.generate(
            torch.tensor([[first, *words.encode(text), end]]), num_beams=3, max_new_tokens=9, early_stopping="never",
            bad_words_ids=[[i] for i in never], forced_bos_token_id=first, forced_eos_token_id=None,
        )  # fmt: skip
        theirs = [i for i in ids[0].tolist()[1:] if i not in (first, end)]
        assert best.tokens == theirs and first not in ids[0].tolist()[2:]


def test_bart_without_its_positions_offset_is_noticed(folders, monkeypatch):
    """Planted: the two rows before the first position are read as the first two."""
    place, model = folders("bart")
    learner = load(place / "run", "cpu").learner
    table = model.model.encoder.embed_positions.weight
    assert torch.equal(learner.backbone.encoder.embedding.positions.weight, table[2:])
    with torch.no_grad():
        learner.backbone.encoder.embedding.positions.weight.copy_(table[:-2])
        hidden = learner.backbone.encode(pack([[0, 5, 6, 2]])).hidden
        expected = model.model.encoder(torch.tensor([[0, 5, 6, 2]])).last_hidden_state[0]
    assert (hidden - expected).abs().max() > 1e-2


# ---- forms of folders


@pytest.mark.parametrize("name", ["bert", "gpt2", "roberta"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays(name, dtype, tmp_path):
    model = save(name, tmp_path / "theirs").to(dtype)
    model.save_pretrained(tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    export_folder(tmp_path / "run", tmp_path / "back")
    same_bits(*(load_file(tmp_path / where / "model.safetensors") for where in ("theirs", "back")))
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["dtype"] == str(dtype).removeprefix("torch.")
    again = KINDS[name][4].from_pretrained(tmp_path / "back", dtype="auto")
    assert again.dtype == dtype
    assert next(load(tmp_path / "run", "cpu").learner.parameters()).dtype == torch.float32


@pytest.mark.parametrize("name", ["bert", "gpt2", "marian"])
def test_several_files(name, tmp_path):
    model = save(name, tmp_path / "theirs")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("model-*.safetensors"))) > 2
    import_folder(tmp_path / "theirs", tmp_path / "run")
    export_folder(tmp_path / "run", tmp_path / "back")
    same_bits(loaded_by_auto(name, tmp_path / "back").state_dict(), model.state_dict())


def test_older_files(tmp_path):
    """Norms called gamma and beta, positions and masks stored, a shared table stored twice, a body without its prefix."""
    for name in ("bert", "gpt2"):
        folder = tmp_path / name
        model = save(name, folder)
        tensors = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        if name == "bert":
            tensors = {
                key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
                for key, tensor in tensors.items()
            }
            tensors["bert.embeddings.position_ids"] = torch.arange(64)[None]
        else:
            del tensors["lm_head.weight"]
            tensors = {key.removeprefix("transformer."): tensor for key, tensor in tensors.items()}
            tensors["h.0.attn.bias"] = torch.ones(1, 1, 64, 64).tril().bool()
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        import_folder(folder, tmp_path / f"{name}-run")
        export_folder(tmp_path / f"{name}-run", tmp_path / f"{name}-back")
        same_bits(loaded_by_auto(name, tmp_path / f"{name}-back").state_dict(), model.state_dict())


def test_a_pickle_of_plain_tensors(tmp_path):
    model = save("gpt2", tmp_path / "theirs")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "theirs" / "pytorch_model.bin")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    export_folder(tmp_path / "run", tmp_path / "back")
    same_bits(loaded_by_auto("gpt2", tmp_path / "back").state_dict(), model.state_dict())


def test_rows_without_a_word(tmp_path):
    """A table may be larger than its vocabulary; no text and no sample ever meets those rows."""
    _, words = build("gpt2")
    model = save("gpt2", tmp_path / "theirs", vocab_size=words.get_vocab_size() + 13)
    import_folder(tmp_path / "theirs", tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert loaded.learner.backbone.vocab_size == words.get_vocab_size() + 13
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert all(loaded.tokenizer.encode(t) == theirs(t, add_special_tokens=False)["input_ids"] for t in TEXTS)
    drawn = loaded.generate("The", max_new=30, n=8)
    assert max(max(one.tokens) for one in drawn) < words.get_vocab_size()
    export_folder(tmp_path / "run", tmp_path / "back")
    same_bits(loaded_by_auto("gpt2", tmp_path / "back").state_dict(), model.state_dict())


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_vocabulary_of_word_pieces(lowercase, tmp_path):
    model = save("bert", tmp_path / "theirs")
    vocabulary = json.loads((tmp_path / "theirs" / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    lines = sorted(vocabulary, key=vocabulary.__getitem__)
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "theirs" / "special_tokens_map.json").unlink(missing_ok=True)
    import_folder(tmp_path / "theirs", tmp_path / "run")
    theirs, ours = hf.BertTokenizer.from_pretrained(tmp_path / "theirs"), load(tmp_path / "run").tokenizer
    for text in TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
    export_folder(tmp_path / "run", tmp_path / "back")
    back = hf.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert [back(t, add_special_tokens=False)["input_ids"] for t in TEXTS] == [ours.encode(t) for t in TEXTS]
    assert loaded_by_auto("bert", tmp_path / "back").config.vocab_size == model.config.vocab_size


@pytest.mark.parametrize("name", ["roberta"])
def test_a_vocabulary_of_byte_pairs(name, tmp_path):
    save(name, tmp_path / "theirs")
    data = json.loads((tmp_path / "theirs" / "tokenizer.json").read_text())["model"]
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    (tmp_path / "theirs" / "vocab.json").write_text(json.dumps(data["vocab"]))
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in data["merges"]]
    (tmp_path / "theirs" / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))
    (tmp_path / "theirs" / "special_tokens_map.json").unlink(missing_ok=True)
    import_folder(tmp_path / "theirs", tmp_path / "run")
    theirs, ours = hf.RobertaTokenizer.from_pretrained(tmp_path / "theirs"), load(tmp_path / "run").tokenizer
    for text in TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text


# ---- what can be done with them


def call(capsys, *arguments):
    code = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out, err


def test_the_command_line(tmp_path, capsys):
    save("gpt2", tmp_path / "theirs")
    _, err = call(capsys, "import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert "imported" in err
    card = (tmp_path / "run" / "card.md").read_text()
    assert "not trained here" in card and str(tmp_path / "theirs") in card
    out, _ = call(capsys, "generate", tmp_path / "run", "--prompt", "The keys", "--max-new", "5", "--quiet")
    assert out.startswith("The keys")
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS[:3]), encoding="utf-8")
    out, _ = call(capsys, "score", tmp_path / "run", tmp_path / "lines.txt")
    assert len(out.split()) == 3
    words = tmp_path / "run" / "tokenizer.json"
    call(capsys, "prepare", tmp_path / "lines.txt", "--out", tmp_path / "data", "--from-tokenizer", words)
    out, _ = call(capsys, "evaluate", tmp_path / "run", "--data", tmp_path / "data", "--json")
    assert json.loads(out)["tokens"] > 0
    call(capsys, "export", tmp_path / "run", "--out", tmp_path / "back")
    assert {path.name for path in (tmp_path / "back").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "seqloom.json",
        "generation_config.json",
        "README.md",
    }


def test_a_translator_on_the_command_line(folders, tmp_path, capsys):
    place, _ = folders("marian")
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS[:2]), encoding="utf-8")
    out, _ = call(capsys, "translate", place / "run", tmp_path / "lines.txt", "--quiet")
    assert out.count("\n") == 2


def test_an_encoder_is_measured(folders, tmp_path, capsys):
    place, _ = folders("bert-masked")
    (tmp_path / "lines.txt").write_text("\n\n".join(TEXTS[:8] * 5), encoding="utf-8")
    words = place / "run" / "tokenizer.json"
    call(capsys, "prepare", tmp_path / "lines.txt", "--out", tmp_path / "data", "--from-tokenizer", words)
    out, _ = call(capsys, "evaluate", place / "run", "--data", tmp_path / "data", "--json")
    assert json.loads(out)["loss"] > 0


def test_a_discriminator_scores_but_fills_no_gaps(folders, tmp_path, capsys):
    place, _ = folders("electra")
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS[:8] * 5), encoding="utf-8")
    out, _ = call(capsys, "score", place / "run", tmp_path / "lines.txt")
    assert len(out.split()) == 40 and all(float(line) < 0 for line in out.split())
    words = place / "run" / "tokenizer.json"
    call(capsys, "prepare", tmp_path / "lines.txt", "--out", tmp_path / "data", "--from-tokenizer", words)
    for arguments in (("fill", place / "run", "The [MASK]"), ("evaluate", place / "run", "--data", tmp_path / "data")):
        assert run([str(argument) for argument in arguments]) == 2
        assert "without its generator" in capsys.readouterr().err


def test_an_encoder_fills_gaps_as_theirs(folders):
    place, model = folders("bert-masked")
    loaded = load(place / "run", "cpu")
    words = loaded.tokenizer
    (found,) = loaded.fill("The keys to the [MASK] are on the table.", top=5)
    head, tail = words.encode("The keys to the"), words.encode("are on the table.")
    ids = torch.tensor([[words.first_id, *head, words.mask_id, *tail, words.separator_id]])
    chances = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, 1 + len(head)].softmax(-1)
    for one in found:
        assert chances[one.tokens[0]].item() == pytest.approx(one.probability, rel=1e-4)


# ---- what was trained here


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("exchange") / "data", 300)


SHORT = ["model.dim=20", "batches.length=32", "batches.budget=256", "budget={steps=3}", "valid.limit=100"]


@pytest.mark.parametrize(
    ("recipe", "settings", "kind"),
    [
        ("gpt-tiny", [], hf.AutoModelForCausalLM),
        ("gpt2-tiny", [], hf.AutoModelForCausalLM),
        ("bert-tiny", ["objective.name=masked"], hf.AutoModelForMaskedLM),
        ("roberta-tiny", [], hf.AutoModelForMaskedLM),
        ("xlm-r-tiny", [], hf.AutoModelForMaskedLM),
        ("ernie-tiny", [], hf.AutoModelForMaskedLM),
        ("albert-tiny", ["objective.name=masked", "model.num_heads=4"], hf.AutoModelForMaskedLM),
        ("electra-tiny", [], hf.AutoModelForPreTraining),
    ],
)
def test_runs_of_ours(recipe, settings, kind, data, tmp_path):
    ours = pretrain(recipe, data, tmp_path / "run", settings=[*SHORT, *settings], device="cpu")
    export_folder(tmp_path / "run", tmp_path / "out")
    model, info = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values()), info
    words = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = words("of the king", add_special_tokens=False)["input_ids"]
    assert ids == ours.tokenizer.encode("of the king")
    ids = [*range(20)]  # 1, too, which a RoBERTa elsewhere would take for padding
    expected = model.eval()(input_ids=torch.tensor([ids])).logits[0]
    with torch.no_grad():
        hidden = ours.learner.eval().backbone(pack([ids])).hidden
        score = getattr(
            ours.learner, "discriminate", getattr(ours.learner, "scores", getattr(ours.learner, "softmax", None))
        )
        torch.testing.assert_close(score(hidden), expected, rtol=0, atol=2e-5)
    if recipe != "electra-tiny":  # what is learnt by has a generator, too
        import_folder(tmp_path / "out", tmp_path / "again")
        again = load(tmp_path / "again", "cpu").learner.state_dict()
        for name, tensor in ours.learner.state_dict().items():
            if not name.startswith("backbone.pooler."):
                assert torch.equal(again[name], tensor.cpu()), name


def test_a_translator_of_ours(tmp_path):
    write_pairs(tmp_path, 200)
    files = [tmp_path / f"train.{side}" for side in ("en", "xx")]
    ours = train(
        "transformer-tiny",
        "translate",
        files,
        tmp_path / "run",
        tokenizer="word",
        settings=["budget={steps=40}", "batches.budget=512", "model.dim=32"],
    )
    export_folder(tmp_path / "run", tmp_path / "out")
    model, info = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values()), info
    words = ours.tokenizer
    source = words.encode(files[0].read_text().splitlines()[0])
    ((best,),) = ours.translate([words.decode(source)], beam=2, max_new=6, show=False)
    never = sorted({*words.special_ids.values(), words.unk_id} - {words.end_id, None})
    ids = model.generate(
        torch.tensor([[*source, words.end_id]]),
        num_beams=2,
        max_new_tokens=6,
        early_stopping="never",
        bad_words_ids=[[i] for i in never] or None,
        forced_eos_token_id=None,
    )[0].tolist()[1:]
    assert best.tokens == [i for i in ids if i != words.end_id]


def test_nothing_is_overwritten_unasked(folders, tmp_path, capsys):
    place, _ = folders("gpt2")
    shutil.copytree(place / "run", tmp_path / "run")
    for command, source in (("import", place / "theirs"), ("export", place / "run")):
        assert run([command, str(source), "--out", str(tmp_path / "run")]) == 2
        assert "not empty" in capsys.readouterr().err
    assert run(["import", str(place / "theirs"), "--out", str(tmp_path / "run"), "--overwrite"]) == 0
    assert run(["export", str(place / "run"), "--out", str(place / "run" / "inside")]) == 2
    assert run(["import", str(place / "theirs"), "--out", str(place / "theirs")]) == 2
