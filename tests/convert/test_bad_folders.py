"""Folders from strangers: whatever is wrong is one line, exit 4; nothing is allocated, executed or written."""

import json
import os
import pickle
import shutil
import tracemalloc
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from seqloom.cli import run
from seqloom.convert import hub, huggingface, unpickle
from seqloom.convert.huggingface import import_folder
from tests.cli.test_bad_input import one_line
from tests.convert.material import save


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    place = tmp_path_factory.mktemp("good")
    for name in ("bert", "gpt2", "roberta", "albert", "ernie", "marian", "electra"):
        save(name, place / name)
    import_folder(place / "gpt2", place / "gpt2-run")
    return place


@pytest.fixture
def refused(good, tmp_path, capsys):
    """Changes a folder, then imports it."""

    def check(name, change, *words, code=4):
        folder = tmp_path / "theirs"
        shutil.copytree(good / name, folder)
        change(folder)
        found = run(["import", str(folder), "--out", str(tmp_path / "run")])
        out, err = capsys.readouterr()
        line = one_line(err)
        assert (found, out) == (code, ""), line
        for word in words:
            assert word in line, line
        assert len(line) < 700
        assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs"], "something was written"

    return check


def configured(**changes):
    def change(folder):
        path = folder / "config.json"
        config = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))

    return change


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("bert", {"model_type": "mamba"}, ("model_type 'mamba'", "bert, roberta")),
        ("bert", {"model_type": ["bert"]}, ("model_type ['bert']",)),
        ("bert", {"model_type": "../bert"}, ("model_type '../bert'",)),
        ("bert", {"model_type": "absent"}, ("model_type None",)),
        ("bert", {"hidden_size": "absent"}, ("does not have hidden_size",)),
        ("bert", {"hidden_size": "32"}, ("hidden_size = '32'",)),
        ("bert", {"hidden_size": True}, ("hidden_size",)),
        ("bert", {"hidden_size": -4}, ("hidden_size = -4",)),
        ("bert", {"hidden_size": 1e300}, ("hidden_size",)),
        ("bert", {"hidden_size": 1 << 40}, ("hidden_size = 1099511627776",)),
        ("bert", {"hidden_size": 64}, ("bert.embeddings.word_embeddings.weight", "32]", "64]")),
        ("bert", {"vocab_size": 1 << 22}, ("bert.embeddings.word_embeddings.weight",)),
        ("bert", {"num_hidden_layers": 1 << 22}, ("4,194,304 layers",)),
        ("bert", {"num_hidden_layers": 3}, ("no tensor 'bert.encoder.layer.2.attention.self.query.weight'",)),
        ("bert", {"num_hidden_layers": 1}, ("unknown tensors", "bert.encoder.layer.1.attention")),
        ("bert", {"num_attention_heads": 5}, ("dim 32", "num_heads 5")),
        ("bert", {"hidden_dropout_prob": 1.5}, ("hidden_dropout_prob",)),
        ("bert", {"hidden_dropout_prob": float("nan")}, ("hidden_dropout_prob",)),
        ("bert", {"layer_norm_eps": -1}, ("layer_norm_eps",)),
        ("bert", {"layer_norm_eps": 0}, ("norm_eps",)),
        ("bert", {"hidden_act": "silu"}, ("hidden_act 'silu'", "gelu")),
        ("bert", {"hidden_act": {"a": 1}}, ("hidden_act",)),
        ("bert", {"position_embedding_type": "relative_key"}, ("position_embedding_type = 'relative_key'",)),
        ("bert", {"tie_word_embeddings": False}, ("tie_word_embeddings = False",)),
        ("bert", {"is_decoder": True}, ("is_decoder = True",)),
        ("bert", {"type_vocab_size": 5}, ("token_type_embeddings",)),
        ("bert", {"max_position_embeddings": 1 << 30}, ("position_embeddings",)),
        ("albert", {"num_hidden_groups": 2}, ("num_hidden_groups = 2",)),
        ("albert", {"num_hidden_layers": 1 << 20}, ("layers",)),
        ("ernie", {"use_task_id": True}, ("use_task_id = True",)),
        ("roberta", {"pad_token_id": 9}, ("pad_token_id = 9", "not a special token")),
        ("roberta", {"pad_token_id": None}, ("pad_token_id = None",)),
        ("roberta", {"max_position_embeddings": 2}, ("max_len",)),
        ("roberta", {"hidden_act": "relu"}, ("hidden_act 'relu'",)),
        ("electra", {"embedding_size": 32}, ("electra.embeddings.word_embeddings.weight",)),
        ("gpt2", {"n_inner": 99}, ("mlp.c_fc.weight",)),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, ("scale_attn_by_inverse_layer_idx",)),
        ("gpt2", {"layer_norm_epsilon": 1e-6}, ("layer_norm_epsilon",)),
        ("gpt2", {"activation_function": "relu"}, ("activation_function = 'relu'",)),
        ("gpt2", {"add_cross_attention": True}, ("add_cross_attention",)),
        ("marian", {"max_position_embeddings": 1 << 24}, ("max_position_embeddings",)),
        ("marian", {"decoder_layers": 3}, ("decoder_layers = 3",)),
        ("marian", {"decoder_start_token_id": 10**6}, ("decoder_start_token_id",)),
        ("marian", {"decoder_start_token_id": "absent"}, ("decoder_start_token_id",)),
        ("marian", {"eos_token_id": 7}, ("token 7", "tokenizer")),
        ("marian", {"static_position_embeddings": False}, ("static_position_embeddings",)),
    ],
)
def test_a_config_that_does_not_fit(name, changes, words, refused):
    refused(name, configured(**changes), *words)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"model_type": "bert"', "\xff\xfe"])
def test_a_config_that_is_none(text, refused):
    refused("bert", lambda folder: (folder / "config.json").write_bytes(text.encode("latin-1")), "config.json")


def test_keys_that_would_run_code_are_not_even_read(good, tmp_path):
    """auto_map names files to execute elsewhere; here it is one of many keys that mean nothing."""
    shutil.copytree(good / "bert", tmp_path / "theirs")
    (tmp_path / "theirs" / "evil.py").write_text("raise SystemExit('executed')")
    configured(auto_map={"AutoModel": "evil.Evil"}, _name_or_path="/etc/passwd")(tmp_path / "theirs")
    assert run(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "run")]) == 0
    assert run(["export", str(tmp_path / "run"), "--out", str(tmp_path / "back")]) == 0
    assert not {"auto_map", "_name_or_path"} & json.loads((tmp_path / "back" / "config.json").read_text()).keys()


# ---- weights


def without(*names):
    def change(folder):
        for name in names:
            (folder / name).unlink()

    return change


def tensors(change):
    def changed(folder):
        path = folder / "model.safetensors"
        found = load_file(path)
        change(found)
        save_file(found, path, {"format": "pt"})

    return changed


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file(file, refused):
    refused("bert", without(file), file)


def renamed(found):
    found["evil"] = found.pop("bert.pooler.dense.bias")


def mixed(found):
    name = "bert.encoder.layer.0.attention.self.key.weight"
    found[name] = found[name].half()


def whole_numbers(found):
    for name in list(found):
        found[name] = found[name].to(torch.int32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda found: found.pop("bert.encoder.layer.1.output.dense.bias"),
            ("bert.encoder.layer.1.output.dense.bias",),
        ),
        (lambda found: found.update(extra=torch.zeros(3)), ("1 unknown tensors, for example 'extra'",)),
        (lambda found: found.update({"bert.pooler.dense.bias": torch.zeros(31)}), ("[31]", "[32]")),
        (
            lambda found: found.update(
                {"cls.predictions.decoder.weight": torch.zeros(found["cls.predictions.bias"].shape[0], 32)}
            ),
            ("differs",),
        ),
        (lambda found: found.update({"embeddings.LayerNorm.gamma": torch.zeros(32)}), ("stored twice",)),
        (renamed, ("bert.pooler.dense.bias",)),
        (mixed, ("different types",)),
        (whole_numbers, ("int32",)),
        (lambda found: [found.pop(n) for n in list(found) if n.startswith("cls.")], ("no output layer",)),
        (lambda found: [found.pop(n) for n in list(found) if n != "cls.predictions.bias"], ("tensor",)),
    ],
)
def test_tensors_that_do_not_fit(change, words, refused):
    refused("bert", tensors(change), *words)


def test_positions_that_are_not_sines(refused):
    def learned(found):
        found["model.encoder.embed_positions.weight"] = torch.ones(64, 32)

    refused("marian", tensors(learned), "model.encoder.embed_positions.weight", "sines")


def shortened(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def header(change):
    def changed(folder):
        path = folder / "model.safetensors"
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        text = change(json.loads(data[8 : 8 + size]))
        raw = json.dumps(text).encode() if not isinstance(text, bytes) else text
        path.write_bytes(len(raw).to_bytes(8, "little") + raw + data[8 + size :])

    return changed


def larger(found):
    found["bert.pooler.dense.weight"]["shape"] = [1 << 30, 1 << 30]
    return found


def shifted(found):
    found["bert.pooler.dense.weight"]["data_offsets"] = [0, 4096]
    return found


@pytest.mark.parametrize(
    "change",
    [
        shortened,
        header(larger),
        header(shifted),
        header(lambda found: b"{" * 1000),
        header(lambda found: []),
        lambda folder: (folder / "model.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}"),
        lambda folder: (folder / "model.safetensors").write_bytes(b""),
        lambda folder: (folder / "model.safetensors").write_bytes(pickle.dumps({"a": 1}) * 100),
    ],
    ids=["shortened", "larger", "shifted", "brackets", "list", "huge header", "empty", "pickle"],
)
def test_a_damaged_file(change, refused):
    refused("bert", change, "model.safetensors", "damaged")


def indexed(weight_map):
    def change(folder):
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        names = load_file(folder / "part.safetensors")
        listed = weight_map(names) if callable(weight_map) else weight_map
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))

    return change


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        (lambda names: dict.fromkeys(names, "../bert/part.safetensors"), ("../bert/part.safetensors", "plain name")),
        (lambda names: dict.fromkeys(names, "/etc/passwd"), ("/etc/passwd", "plain name")),
        (lambda names: dict.fromkeys(names, "..safetensors"), ("plain name",)),
        (lambda names: dict.fromkeys(names, "a\0.safetensors"), ("plain name",)),
        (lambda names: dict.fromkeys(names, 5), ("plain name",)),
        (lambda names: dict.fromkeys(names, "other.safetensors"), ("other.safetensors is missing",)),
        (lambda names: dict.fromkeys([*names][1:], "part.safetensors"), ("does not list",)),
        (lambda names: dict.fromkeys([*names, "more"], "part.safetensors"), ("no tensor 'more'",)),
        (lambda names: {}, ("no weight_map",)),
        ([1, 2], ("no weight_map",)),
    ],
)
def test_an_index_that_lies(weight_map, words, refused):
    refused("bert", indexed(weight_map), "index.json", *words)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def planted(content):
    def change(folder):
        (folder / "model.safetensors").unlink()
        content(folder / "pytorch_model.bin", folder / "executed")

    return change


def raw_pickle(path, mark):
    path.write_bytes(pickle.dumps({"bert.pooler.dense.weight": Evil(mark)}))


def saved_pickle(path, mark):
    torch.save({"bert.pooler.dense.weight": Evil(mark)}, path)


@pytest.mark.parametrize("content", [raw_pickle, saved_pickle, lambda path, mark: path.write_bytes(b"noise")])
def test_a_planted_pickle(content, refused, tmp_path):
    refused("bert", planted(content), "pytorch_model.bin", "safetensors")
    assert not (tmp_path / "theirs" / "executed").exists()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"a": torch.zeros(1).expand(1 << 36)}, "far more than the file has"),
        ([torch.zeros(3)], "does not contain a table"),
        ({3: torch.zeros(3)}, "does not contain a table"),
        ({"a": "text"}, "'a' is not a plain tensor"),
    ],
)
def test_what_a_pickle_may_hold(found, words, tmp_path):
    """In the process that reads them; the one that asks for it is tested above."""
    torch.save(found, tmp_path / "in.bin")
    with pytest.raises(SystemExit, match=words):
        unpickle.main(str(tmp_path / "in.bin"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_planted_pickle_would_have_run(tmp_path):
    """Read as pickles usually are, it does what it came for: the test above can fail."""
    saved_pickle(tmp_path / "evil.bin", tmp_path / "executed")
    torch.load(tmp_path / "evil.bin", weights_only=False)
    assert (tmp_path / "executed").exists()


def test_sizes_are_not_allocated(good, tmp_path):
    """A header of three lines that claims a petabyte, and a config that agrees with it."""
    folder = tmp_path / "theirs"
    shutil.copytree(good / "gpt2", folder)
    configured(n_embd=1 << 22, n_head=1, n_inner=1 << 22)(folder)
    tracemalloc.start()
    assert run(["import", str(folder), "--out", str(tmp_path / "run")]) == 4
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 << 20 and not (tmp_path / "run").exists()


def test_a_check_left_out_is_noticed(good, tmp_path, monkeypatch):
    """Tests of the tests: with names of an index taken as they come, a file outside the folder would be read."""
    shutil.copytree(good / "bert", tmp_path / "theirs")
    (tmp_path / "outside").mkdir()
    shutil.move(tmp_path / "theirs" / "model.safetensors", tmp_path / "outside" / "part.safetensors")
    listed = dict.fromkeys(load_file(tmp_path / "outside" / "part.safetensors"), "../outside/part.safetensors")
    (tmp_path / "theirs" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    assert run(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "run")]) == 4
    monkeypatch.setattr(hub, "PLAIN_NAME", __import__("re").compile(".*"))
    assert run(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "run")]) == 0


# ---- tokenizers


def vocabulary(change):
    def changed(folder):
        path = folder / "tokenizer.json"
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    return changed


def unmarked(data):
    data["added_tokens"] = [entry for entry in data["added_tokens"] if entry["content"] != "[MASK]"]


def endless(data):
    data["added_tokens"] = [entry for entry in data["added_tokens"] if entry["content"] != "[SEP]"]


def more_words(data):
    data["model"]["vocab"] |= {f"more{i}": len(data["model"]["vocab"]) + i for i in range(5)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), ("tokenizer.json",)),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), ("tokenizer.json", "JSON")),
        (vocabulary(unmarked), ("mask token",)),
        (vocabulary(endless), ("end of a document",)),
        (vocabulary(more_words), ("entries", "do not belong together")),
        (vocabulary(lambda data: data["model"].update(type="Evil")), ("tokenizer.json",)),
        (
            lambda folder: (folder / "tokenizer.json").rename(folder / "spiece.model"),
            ("spiece.model", "AutoTokenizer", "needs sentencepiece"),
        ),
        (
            lambda folder: ((folder / "tokenizer.json").unlink(), (folder / "vocab.txt").write_text("a\na\n")),
            ("vocab.txt", "twice"),
        ),
        (
            lambda folder: ((folder / "tokenizer.json").unlink(), (folder / "vocab.txt").write_bytes(b"\xff\xfe")),
            ("vocab.txt", "UTF-8"),
        ),
    ],
)
def test_a_tokenizer_that_does_not_fit(change, words, refused):
    refused("bert", change, *words)


@pytest.mark.parametrize(
    ("vocab", "merges"),
    [('{"a": "b"}', ""), ('{"a": -1}', ""), ('{"a": 0}', "a b c\n"), ('{"a": 0}', "a x\n"), ("[]", "")],
)
def test_byte_pairs_that_do_not_fit(vocab, merges, refused):
    def change(folder):
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.json").write_text(vocab)
        (folder / "merges.txt").write_text(merges)

    refused("roberta", change, "vocab.json")


# ---- calls


def test_wrong_calls(good, tmp_path, capsys):
    for code, words, *arguments in (
        (2, "no such folder", "import", tmp_path / "nowhere", "--out", tmp_path / "run"),
        (3, "config.json", "import", good / "bert" / "config.json", "--out", tmp_path / "run"),  # no word vectors
        (4, "no config.json", "import", tmp_path, "--out", tmp_path / "run"),
        (2, "--out", "import", good / "bert"),
        (2, "is a file", "import", good / "bert", "--out", good / "gpt2" / "config.json"),
        (4, "is a folder of another project", "export", good / "bert", "--out", tmp_path / "out"),
        (4, "not a run folder", "export", tmp_path, "--out", tmp_path / "out"),
        (4, "model_type None", "import", good / "gpt2-run", "--out", tmp_path / "out"),
    ):
        assert run([str(argument) for argument in arguments]) == code
        assert words in one_line(capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_no_counterpart(tmp_path, capsys):
    from seqloom.runs.training import pretrain
    from tests.training.material import prepared

    data = prepared(tmp_path / "data", 300)
    small = ["model.dim=16", "budget={steps=2}", "valid.limit=100"]
    streams = ["batches.streams=4", "batches.length=16"]
    packed = ["batches.budget=256", "batches.length=32"]
    for recipe, settings, words in (
        ("lstm-tiny", streams, "the model lstm cannot be exported"),
        ("gpt2-tiny", [*packed, "model.num_heads=4", "objective.tie=false"], "have no tensor for 'softmax.weight'"),
        ("gpt2-tiny", [*packed, "model.num_heads=4", "objective.bias=true"], "have no tensor for 'softmax.bias'"),
        ("gpt-tiny", [*packed, "model.num_heads=4", "model.ffn_dim=20"], "model.ffn_dim = 20"),
        (
            "gpt2-tiny",
            [*packed, "model.num_heads=4", "model.window=8"],
            "model.window = 8 cannot be expressed in a gpt2",
        ),
        (
            "gpt2-tiny",
            [*packed, "model.num_heads=4", "model.head_dim=8"],
            "model.head_dim = 8 cannot be expressed in a gpt2",
        ),
        (
            "gpt2-tiny",
            [*packed, "model.num_heads=4", "model.experts=2"],
            "model.experts = 2 cannot be expressed in a gpt2",
        ),
    ):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        pretrain(recipe, data, tmp_path / "run", settings=[*small, *settings], device="cpu")
        capsys.readouterr()
        assert run(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 4
        assert words in one_line(capsys.readouterr().err)
        assert not (tmp_path / "out").exists()


def test_settings_that_change_nothing_are_exported(tmp_path):
    """A window as long as the model reads, heads as wide as they are unless given."""
    from seqloom.convert.values import FAMILIES, write_values
    from seqloom.models.gpt2 import Gpt2

    values = Gpt2.Config(dim=32, num_heads=4, max_len=64).model_dump()
    plain = write_values(FAMILIES["gpt2"], "gpt2", values, set(), "run")
    assert write_values(FAMILIES["gpt2"], "gpt2", values | {"head_dim": 8, "window": 64}, set(), "run") == plain


def test_a_run_whose_kept_rows_were_changed(good, tmp_path, capsys):
    import_folder(good / "roberta", tmp_path / "run")
    path = tmp_path / "run" / huggingface.UNUSED
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert run(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 4
    assert "SHA-256" in one_line(capsys.readouterr().err)


def test_a_full_disk_leaves_no_half_run(good, tmp_path, monkeypatch, capsys):
    """Whatever stops it, what is there does not load as a run."""

    def full(path: Path, *rest):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(huggingface, "write_json", full)
    assert run(["import", str(good / "gpt2"), "--out", str(tmp_path / "run")]) == 5
    assert not (tmp_path / "run" / "weights.json").exists()
    one_line(capsys.readouterr().err)
