"""Exported folders are read elsewhere as here: framed, paired, cut, segmented and padded as the model was trained. The judges are
AutoTokenizer and the Auto classes of `transformers` on the exported folder; nothing of ours encodes a text for them."""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer as Rust

from seqloom.batches.labelled import Frame
from seqloom.batches.prepare import prepare
from seqloom.convert.frame import frame_of, tokenizer_settings, with_frame, without_frame
from seqloom.convert.huggingface import export_folder, import_folder
from seqloom.errors import ModelError
from seqloom.files import sha256
from seqloom.objectives.next_token import LeftToRight
from seqloom.objectives.replaced import ReplacedToken
from seqloom.runs.load import load
from seqloom.runs.training import finetune, pretrain, train
from seqloom.text.pairs import TextPair
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.weights import load_tensors, save_tensors
from tests.convert import elsewhere, material
from tests.convert.material import KINDS, save
from tests.tasks.labelled import examples, write
from tests.training.material import sentences, write_pairs

ENCODERS = ["bert", "roberta", "xlm-r", "albert", "electra", "ernie"]
DECODERS = ["gpt", "gpt2"]
TOKENIZERS = ["word", "char", "byte", "bpe", "wordpiece", "unigram"]
TASKS = ["classify", "pair", "regress", "choose", "tag", "span"]
ASKED = ["read", *TASKS]  # read: score and fill, by what was pre-trained
SMALL = ["model.dim=16", "model.num_layers=2", "model.num_heads=2", "model.dropout=0", "valid.limit=50"]
LENGTH = 64
TREC = Path(__file__).parents[3] / "shared" / "data" / "trec"
TEXTS = ["the cat sees the dog today .", "walking", "The Queen forgets, a small river without a word .", "a  ☃ b"]
WITH_GAPS = ["the {} sees the dog .", "{} hears a bird in the {} today .", "The queen {}"]


def stirred(folder):
    """With weights so large that every token and every position shows."""
    torch.manual_seed(5)
    for name in ("backbone.safetensors", "head.safetensors"):
        tensors = load_tensors(folder / name)
        noise = {key: t + 0.2 * torch.randn_like(t) if t.is_floating_point() else t for key, t in tensors.items()}
        save_tensors(folder / name, noise)
    hashes = {name: sha256(folder / name) for name in json.loads((folder / "weights.json").read_text())}
    (folder / "weights.json").write_text(json.dumps(hashes))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def made(place):
    """Runs, each made once: by family and tokenizer, and by task."""
    known = {}

    def data(kind):
        if ("data", kind) not in known:
            text = place / "text.txt"
            more = " ".join(example.texts[0] for example in examples("classify", 50))
            text.write_text("\n".join([*sentences(100), more]) + "\n")
            size = {"bpe": 300, "unigram": 290, "wordpiece": 90}.get(kind)
            lower = kind in ("wordpiece", "word")
            known["data", kind] = place / f"data-{kind}"
            prepare(
                [text], place / f"data-{kind}", tokenizer=kind, vocab_size=size, lowercase=lower, min_count=1, valid=0.2,
                keep_leaks=True, keep_duplicates=True, workers=1,
            )  # fmt: skip
        return known["data", kind]

    def get(family, kind, task="read"):
        if (family, kind, task) in known:
            return known[family, kind, task]
        out = place / f"{family}-{kind}-{task}"
        if task == "read":
            more = ["model.embedding_dim=16"] if family in ("electra", "albert") else []
            more += ["objective.name=masked"] if family in ("bert", "albert", "ernie") else []
            sizes = [f"model.max_len={LENGTH}", f"batches.length={LENGTH}", "batches.budget=512"]
            pretrain(
                f"{family}-tiny", data(kind), out, settings=[*SMALL, *sizes, *more, "budget={steps=1}"], device="cpu"
            )
        else:
            file = place / f"{task}.{'conll' if task == 'tag' else 'json' if task == 'span' else 'jsonl'}"
            write(file, task, examples(task, 12, 0))
            finetune(
                get(family, kind)[0],
                task,
                file,
                file,
                out,
                settings=["budget={steps=1}", "task.dropout=0"],
                device="cpu",
            )
        export_folder(stirred(out), place / f"{out.name}-theirs")
        known[family, kind, task] = out, place / f"{out.name}-theirs"
        return known[family, kind, task]

    return get


def near(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, abs=1e-4, rel=1e-4)


def check_reading(run, folder):
    """score and fill."""
    if isinstance(run.learner, LeftToRight):
        near([[*each.log_probs, each.end] for each in run.score(TEXTS)], elsewhere.next_token(folder, TEXTS))
    elif isinstance(run.learner, ReplacedToken):
        near([each.log_probs for each in run.score(TEXTS)], elsewhere.replaced(folder, TEXTS))
    else:
        near([each.log_probs for each in run.score(TEXTS, "plain")], elsewhere.hidden_token(folder, TEXTS))
        for text, found in zip(WITH_GAPS, elsewhere.gaps(folder, WITH_GAPS), strict=True):
            ours = run.fill(text.replace("{}", "[MASK]"), top=1000)
            assert len(ours) == len(found) == text.count("{}")
            for some, likely in zip(ours, found, strict=True):
                near([[each.probability for each in some]], [[float(likely[each.tokens[0]]) for each in some]])


def rows_of(task):
    """As `predict` takes them, texts that are longer than the model reads among them."""
    if task == "span":
        asked = [{"question": each.question, "context": each.context} for each in examples(task, 6, 1)]
        return [*asked, {"question": "who is good", "context": " ".join(each["context"] for each in asked)}]
    if task == "tag":
        return [{"words": list(each.words)[:12]} for each in examples(task, 6, 1)]
    rows = []
    for each in examples(task, 6, 1):
        row = {"text": each.texts[0]}
        row |= {"text2": each.texts[1]} if task == "pair" else {}
        row |= {"choices": list(each.texts[1:])} if task == "choose" else {}
        rows.append(row)
    long = " ".join(row["text"] for row in rows * 12)
    if task == "pair":  # both are cut, of an even and an odd room
        return [
            *rows,
            {"text": long, "text2": long},
            {"text": long + " a", "text2": long},
            {"text": "a", "text2": long},
        ]
    return [*rows, rows[0] | {"text": long}]


def check(run, folder, task):
    if task == "read":
        return check_reading(run, folder)
    rows = rows_of(task)
    told = run.predict(rows)
    assert not any("error" in each for each in told), told
    if task in ("classify", "pair"):
        expected = torch.tensor(elsewhere.classes(folder, rows), dtype=torch.float64).softmax(-1).tolist()
        near([list(each["probabilities"].values()) for each in told], expected)
    elif task == "regress":
        near([[each["label"]] for each in told], elsewhere.classes(folder, rows))
    elif task == "choose":
        near([each["probabilities"] for each in told], elsewhere.choices(folder, rows))
    elif task == "tag":
        words = [row["words"] for row in rows]
        for ours, found in zip(told, elsewhere.tags(folder, words), strict=True):
            assert ours["tags"] == [tag for tag, _ in found]
            near([ours["probabilities"]], [[share for _, share in found]])
    else:
        found = elsewhere.answers(folder, rows, run.learner.stride, run.learner.longest)
        for ours, (answer, score, nothing) in zip(told, found, strict=True):
            best = ours["n_best"][0]
            assert best["answer"] == answer
            if run.learner.unanswered:
                ratio = math.exp(nothing - score)  # of two probabilities, each of which is given with six digits
                rounding = 6e-7 * (1 + ratio)
                assert ours["no_answer"] == pytest.approx(best["probability"] * ratio, abs=rounding, rel=1e-4)


# every two of family, tokenizer and question meet; the whole product is long
PAIRS = list(itertools.product(range(6), range(6)))
QUICK = {(ENCODERS[i], TOKENIZERS[j], ASKED[(i + j) % 7]) for i, j in PAIRS}
QUICK |= {(ENCODERS[i], TOKENIZERS[i], ASKED[(i + 6) % 7]) for i in range(6)}
ALL = list(itertools.product(ENCODERS, TOKENIZERS, ASKED))


def test_every_two_meet():
    for a, b in itertools.combinations(range(3), 2):
        assert {(each[a], each[b]) for each in QUICK} == {(each[a], each[b]) for each in ALL}


@pytest.mark.parametrize(
    ("family", "kind", "task"),
    [pytest.param(*each, marks=[] if each in QUICK else pytest.mark.long) for each in ALL],
)
def test_encoders(made, family, kind, task):
    out, folder = made(family, kind, task)
    check(load(out, "cpu"), folder, task)


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_decoders(made, family, kind):
    out, folder = made(family, kind)
    run = load(out, "cpu")
    check_reading(run, folder)
    prompts = TEXTS[:1] if family == "gpt" else TEXTS[:3]  # a GPT elsewhere counts padding on the left as text
    ours = [run.generate(prompt, max_new=8, temperature=0.0)[0].tokens for prompt in prompts]
    end = run.tokenizer.end_id
    assert [[i for i in row if i != end] for row in ours] == elsewhere.written(folder, prompts, 8)


@pytest.mark.parametrize(
    ("model", "kind"), [*(("transformer", kind) for kind in TOKENIZERS), ("bart", "bpe"), ("bart", "wordpiece")]
)
def test_translators(place, model, kind):
    files = write_pairs(place, 60)
    out = place / f"{model}-{kind}"
    size = {"bpe": 300, "unigram": 290, "wordpiece": 100}.get(kind)
    train(
        f"{model}-tiny", "translate", files, out, tokenizer=kind, vocab_size=size,
        settings=["budget={steps=1}", "batches.budget=512", "model.dim=16", "model.max_len=200"], device="cpu",
    )  # fmt: skip
    stirred(out)
    export_folder(out, place / f"{out.name}-theirs")
    run = load(out, "cpu")
    sources, targets = (file.read_text().splitlines()[:3] for file in files)
    ours = [best[0].tokens for best in run.translate(sources, max_new=10, show=False)]
    assert ours == elsewhere.translated(place / f"{out.name}-theirs", sources, 10)
    losses = elsewhere.translation_losses(place / f"{out.name}-theirs", sources, targets)
    pairs = [TextPair(*both, "file:1") for both in zip(sources, targets, strict=True)]
    found = run.loss(pairs)
    assert found["loss"] * found["tokens"] == pytest.approx(sum(losses), rel=1e-4)


# ---- pipelines


def check_classes(run, folder, texts):
    """`pipeline("text-classification")` against `predict`, item by item, and in batches."""
    judge = hf.pipeline("text-classification", str(folder), top_k=None)
    for size in (1, 4):
        found = judge(texts, batch_size=size, truncation=True)
        for ours, theirs in zip(run.predict(texts), found, strict=True):
            assert ours["label"] == max(theirs, key=lambda each: each["score"])["label"]
            shares = {each["label"]: each["score"] for each in theirs}
            assert ours["probabilities"] == pytest.approx(shares, abs=1e-4)


@pytest.mark.parametrize(("family", "kind"), [("bert", "wordpiece"), ("roberta", "bpe"), ("electra", "word")])
def test_the_pipeline_for_classes(made, family, kind):
    out, folder = made(family, kind, "classify")
    check_classes(load(out, "cpu"), folder, [row["text"] for row in rows_of("classify")])


@pytest.mark.parametrize(("family", "kind"), [("bert", "wordpiece"), ("roberta", "bpe"), ("xlm-r", "unigram")])
def test_the_pipeline_for_gaps(made, family, kind):
    out, folder = made(family, kind)
    run, judge = load(out, "cpu"), hf.pipeline("fill-mask", str(folder), top_k=5)
    for text in WITH_GAPS[::2]:
        (ours,) = run.fill(text.format("[MASK]"), top=5)
        theirs = judge(text.format(judge.tokenizer.mask_token))
        assert [each.tokens[0] for each in ours] == [each["token"] for each in theirs]
        near([[each.probability for each in ours]], [[each["score"] for each in theirs]])


@pytest.mark.parametrize(("family", "kind"), [("bert", "wordpiece"), ("roberta", "bpe"), ("albert", "char")])
def test_the_pipeline_for_tags(made, family, kind):
    out, folder = made(family, kind, "tag")
    run, judge = load(out, "cpu"), hf.pipeline("token-classification", str(folder), ignore_labels=[])
    for row in rows_of("tag"):
        text, (ours,) = " ".join(row["words"]), run.predict([row])
        found, begin = judge(text), 0
        assert text[found[0]["start"] : found[0]["end"]] == text[: found[0]["end"]]
        for word, tag, share in zip(row["words"], ours["tags"], ours["probabilities"], strict=True):
            theirs = next(each for each in found if each["end"] > begin)
            assert theirs["entity"] == tag and theirs["score"] == pytest.approx(share, abs=1e-4)
            begin += len(word) + 1


def test_the_pipeline_that_writes(made):
    out, folder = made("gpt2", "bpe")
    run, judge = load(out, "cpu"), hf.pipeline("text-generation", str(folder))
    for size in (1, 3):
        found = judge(TEXTS[:3], max_new_tokens=8, do_sample=False, batch_size=size)
        assert [each[0]["generated_text"] for each in found] == [
            run.generate(text, max_new=8, temperature=0.0)[0].text for text in TEXTS[:3]
        ]


@pytest.mark.long
def test_questions_of_trec(tmp_path):
    """An encoder tuned on TREC: what the pipeline says of all 500 test questions is what `predict` says."""
    rows = {}
    for name in ("train", "test"):
        lines = [line.split("\t") for line in (TREC / f"{name}.tsv").read_text(encoding="utf-8").splitlines()]
        rows[name] = [{"text": question, "label": label} for label, _, question in lines]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
    text = tmp_path / "text.txt"
    text.write_text("\n".join(row["text"] for row in rows["train"]) + "\n")
    prepare(
        [text], tmp_path / "data", tokenizer="wordpiece", vocab_size=2000, lowercase=True, valid=0.05, keep_leaks=True
    )
    sizes = ["model.dim=64", "model.num_heads=4", "objective.name=masked", "budget={steps=60}", "batches.length=64"]
    pretrain("bert-tiny", tmp_path / "data", tmp_path / "bert", settings=[*sizes, "batches.budget=2048"], device="cpu")
    train_file, test_file = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    run = finetune(
        tmp_path / "bert", "classify", train_file, test_file, tmp_path / "run",
        settings=["budget={epochs=2}", "train.optim.lr=1e-3"], device="cpu",
    )  # fmt: skip
    export_folder(tmp_path / "run", tmp_path / "theirs")
    texts = [row["text"] for row in rows["test"]]
    right = [answer["label"] == row["label"] for answer, row in zip(run.predict(texts), rows["test"], strict=True)]
    assert sum(right) / len(right) > 0.6  # it has learnt something that a wrong frame would spoil
    check_classes(run, tmp_path / "theirs", texts)


# ---- there and back


@pytest.mark.parametrize(
    ("family", "kind", "task"),
    [("bert", "wordpiece", "pair"), ("roberta", "bpe", "pair"), ("roberta", "wordpiece", "read"), ("gpt2", "unigram", "read"),
     ("xlm-r", "char", "classify")],
)  # fmt: skip
def test_an_exported_folder_comes_back_the_same(made, tmp_path, family, kind, task):
    out, folder = made(family, kind, task)
    before = load(out, "cpu")
    import_folder(folder, tmp_path / "back", task=None if task == "read" else task)
    after = load(tmp_path / "back", "cpu")
    assert after.tokenizer.hash == before.tokenizer.hash
    export_folder(tmp_path / "back", tmp_path / "again")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    for run in (before, after):
        check(run, tmp_path / "again", task)


@pytest.mark.parametrize(
    "name", [name for name in KINDS if name not in ("marian", "bart", "xlnet", "electra-generator")]
)
def test_imported_folders(name, tmp_path):
    """Whatever post-processor they had."""
    save(name, tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    export_folder(tmp_path / "run", tmp_path / "back")
    check_reading(load(tmp_path / "run", "cpu"), tmp_path / "back")
    if name in ("bert", "roberta"):  # they had the right one, and keep it
        one, other = (json.loads((tmp_path / at / "tokenizer.json").read_text()) for at in ("theirs", "back"))
        assert one["post_processor"] == other["post_processor"]


@pytest.mark.parametrize("name", ["roberta", "xlm-r"])
@pytest.mark.parametrize("padding", [0, 3, 4])
def test_positions_begin_behind_any_padding(name, padding, tmp_path, monkeypatch):
    specials = ["<s>", "</s>", "<unk>", "<mask>"]
    specials.insert(padding, "<pad>")
    monkeypatch.setitem(material.SPECIALS, KINDS[name][3], specials)
    model = save(name, tmp_path / "theirs", pad_token_id=padding)
    assert model.config.pad_token_id == padding
    import_folder(tmp_path / "theirs", tmp_path / "run")
    run = load(tmp_path / "run", "cpu")
    assert run.learner.backbone.max_len == 64 - padding - 1
    export_folder(tmp_path / "run", tmp_path / "back")
    check_reading(run, tmp_path / "back")
    one, other = (load_tensors(tmp_path / at / "model.safetensors") for at in ("theirs", "back"))
    assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
    assert json.loads((tmp_path / "back" / "config.json").read_text())["pad_token_id"] == padding


@pytest.mark.parametrize(("padding", "words"), [(7, "not a special token"), (-1, "must be the id"), (None, "must be")])
def test_padding_that_is_a_word_is_refused(padding, words, tmp_path):
    save("roberta", tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(config | {"pad_token_id": padding}))
    with pytest.raises(ModelError, match=words):
        import_folder(tmp_path / "theirs", tmp_path / "run")


def test_a_model_that_reads_from_the_end_is_not_exported(place, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentences(50)) + "\n")
    prepare([text], tmp_path / "data", tokenizer="word", min_count=1, valid=0.2, keep_leaks=True, backward=True)
    pretrain("gpt2-tiny", tmp_path / "data", tmp_path / "run", settings=[*SMALL, "budget={steps=1}"], device="cpu")
    with pytest.raises(ModelError, match="from right to left"):
        export_folder(tmp_path / "run", tmp_path / "theirs")


def test_a_vocabulary_that_lacks_what_it_is_asked_about():
    """Without a token for unknown words: whether its post-processor is the right one cannot be tried, and ours is written."""
    names = ["x", "[CLS]", "[SEP]"]
    special = [{"id": i, "content": names[i], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i in (1, 2)]  # fmt: skip
    words = Tokenizer(
        {
            "version": "1.0",
            "added_tokens": special,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
            "model": {"type": "WordLevel", "vocab": {name: i for i, name in enumerate(names)}, "unk_token": "?"},
        }
    )
    made = with_frame(words, Frame((1,), (2,), (2,), True, 8))
    assert Rust.from_str(json.dumps(made)).encode("x", "x").ids == [1, 0, 2, 0, 2]
    assert without_frame(made)["post_processor"] is None


# ---- bugs that must be noticed


def unframed(tokenizer, frame):
    return json.loads(tokenizer.to_json())


def one_segment(learner, tokenizer):
    return frame_of(learner, tokenizer)._replace(segments=False)


def no_segment_ids(*given):
    return tokenizer_settings(*given) | {"model_input_names": ["input_ids", "attention_mask"]}


def segment_ids(*given):
    return tokenizer_settings(*given) | {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}


def blanks_before_gaps(tokenizer, frame, roles):
    settings = tokenizer_settings(tokenizer, frame, roles) | {"mask_token": roles["mask_token"]}
    return {key: value for key, value in settings.items() if key != "added_tokens_decoder"}


PLANTED = [
    ("with_frame", unframed, "bert", "wordpiece", "classify"),
    ("with_frame", unframed, "gpt2", "byte", "read"),
    ("frame_of", one_segment, "bert", "wordpiece", "pair"),
    ("tokenizer_settings", no_segment_ids, "bert", "wordpiece", "pair"),
    ("tokenizer_settings", segment_ids, "gpt2", "byte", "read"),
    ("tokenizer_settings", blanks_before_gaps, "roberta", "bpe", "read"),
    ("with_padding", lambda family, padding: family, "roberta", "wordpiece", "read"),
]


@pytest.mark.parametrize(("name", "bug", "family", "kind", "task"), PLANTED)
def test_planted_bugs_are_noticed(made, tmp_path, monkeypatch, name, bug, family, kind, task):
    out, _ = made(family, kind, task)
    monkeypatch.setattr(f"seqloom.convert.huggingface.{name}", bug)
    export_folder(out, tmp_path / "theirs")
    with pytest.raises(AssertionError):
        check(load(out, "cpu"), tmp_path / "theirs", task)
