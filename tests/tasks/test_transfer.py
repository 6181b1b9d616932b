"""Every task that tells something about texts, over models of every kind: what must hold whatever the task is."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Rust
from tokenizers import models, pre_tokenizers

from seqloom.batch import IGNORE
from seqloom.batches.labelled import Examples, Frame, LabelledBatches, Row, add_special_tokens, batch_of, truncate
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.labelled import predict_examples
from seqloom.tasks.span import best_spans
from seqloom.training.optim import OptimConfig, build_optimizer, depths, step
from tests.tasks.labelled import MODELS, VALUES, WORDS, examples, frame, learner

CPU = torch.device("cpu")
CASES = [(task, model) for task in VALUES for model in MODELS]
FEW = [(task, model) for task in VALUES for model in ("bert", "gpt", "lstm")]


def encoded(made, task, count=8, seed=0):
    asked = examples(task, count, seed)
    rows, _ = made.encode(asked, WORDS, frame(made))
    return asked, rows


def total(made, rows, max_len=None):
    loss = made(batch_of(rows, max_len))
    return loss.total.item(), int(loss.count)


# ---- sequences


def test_how_texts_are_put_into_a_sequence():
    a, b = np.array([7, 8]), np.array([9])
    both = Frame((1,), (2,), (3,), True, 10)
    ids, segments, source, starts = add_special_tokens((a, b), both)
    assert ids.tolist() == [1, 7, 8, 2, 9, 3] and starts == [1, 4]
    assert segments.tolist() == [0, 0, 0, 0, 1, 1] and source.tolist() == [-1, 0, 0, -1, 1, -1]
    alone = add_special_tokens((a,), both._replace(segments=False))
    assert alone[0].tolist() == [1, 7, 8, 3] and alone[1] is None


@pytest.mark.parametrize(("model", "between", "after"), [
    ("bert", 1, "separator_id"), ("roberta", 2, "separator_id"), ("gpt", 1, "mask_id"), ("lstm", 1, "end_id"),
])  # fmt: skip
def test_each_kind_of_model_has_its_frame(model, between, after):
    found = frame(learner("classify", model))
    assert len(found.between) == between and found.after == (getattr(WORDS, after),)
    assert found.segments == (model == "bert")


def test_the_token_of_a_whole_text_is_the_last_and_of_no_segment():
    found = frame(learner("pair", "xlnet"))
    assert (found.before, found.between) == ((), (WORDS.separator_id,))
    assert found.after == (WORDS.separator_id, WORDS.first_id) and found.segments and found.apart
    one, two = np.array([5, 6]), np.array([7])
    assert add_special_tokens([one], found)[1].tolist() == [0, 0, 0, 2]
    assert add_special_tokens([one, two], found)[1].tolist() == [0, 0, 0, 1, 1, 2]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(0, 60))
def test_the_longest_text_gives_way(sizes, room):
    texts = [np.arange(size) for size in sizes]
    cut = [len(text) for text in truncate(texts, room)]
    assert sum(cut) == min(sum(sizes), room)
    assert all(new <= size for new, size in zip(cut, sizes, strict=True))
    longest = max(cut)
    assert all(new == size or new >= longest - 1 for new, size in zip(cut, sizes, strict=True))


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 24))
def test_two_texts_are_cut_as_elsewhere(first, second, room):
    rust = Rust(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rust.enable_truncation(room)
    expected = rust.encode("a " * first, "b " * second).ids
    cut = truncate([np.zeros(first, int), np.ones(second, int)], room)
    assert np.concatenate(cut).tolist() == expected


def test_a_text_that_is_too_long_is_named():
    made = learner("classify", "bert")
    long = examples("classify", 1)[0]._replace(texts=("the " * 100,))
    rows, cut = made.encode([long], WORDS, frame(made))
    assert cut == [long.place] and len(rows[0][0].ids) == 48


# ---- properties of every task


@pytest.mark.parametrize(("task", "model"), CASES)
def test_a_batch_is_its_examples_one_by_one(task, model):
    made = learner(task, model).double().eval()
    _, rows = encoded(made, task)
    parts = [total(made, [each]) for each in rows]
    assert total(made, rows) == (
        pytest.approx(sum(part[0] for part in parts), rel=1e-10),
        sum(part[1] for part in parts),
    )


@pytest.mark.parametrize(("task", "model"), CASES)
def test_filler_changes_nothing(task, model):
    made = learner(task, model).double().eval()
    _, rows = encoded(made, task)
    longest = max(len(row.ids) for example in rows for row in example)
    assert total(made, rows, -(-longest // 8) * 8) == pytest.approx(total(made, rows), rel=1e-10)


def test_filler_that_is_counted_is_noticed(monkeypatch):
    made = learner("classify", "bert").double().eval()
    _, rows = encoded(made, "classify")
    from seqloom.batches import labelled

    monkeypatch.setattr(labelled, "IGNORE", 0)  # filler is of the first class
    with pytest.raises(AssertionError):
        assert total(made, rows, 48) == pytest.approx(total(made, rows), rel=1e-10)


@pytest.mark.parametrize(("task", "model"), CASES)
def test_every_parameter_learns(task, model):
    made = learner(task, model)
    _, rows = encoded(made, task, 16)
    made(batch_of(rows)).total.backward()
    idle = [name for name, p in made.named_parameters() if p.grad is None or not p.grad.any()]
    pairs = ("backbone.embedding.segments.weight",)  # a single text has one segment
    unread = ("backbone.pooler.weight", "backbone.pooler.bias") if task in ("span", "tag") else ()
    unread += ("backbone.stack.query",)  # of the second stream, which predicts words
    shift = ("head.bias",) if task in ("choose", "span") else ()  # a softmax does not see it
    assert set(idle) <= {*pairs, *unread, *shift}


@pytest.mark.parametrize(("task", "model"), FEW)
def test_an_untrained_model_guesses(task, model):
    made = learner(task, model).eval()
    asked, rows = encoded(made, task, 40)
    loss, count = total(made, rows)
    guess = {"classify": math.log(2), "pair": math.log(2), "regress": 1.0, "tag": math.log(5)}.get(task)
    if task == "choose":
        guess = np.mean([math.log(len(each.texts) - 1) for each in asked])
    if task == "span":
        # a first and a last token each among the paragraph's, and the place of no answer
        guess = np.mean([math.log(row.own.sum() + 1) for each in rows for row in each])
    assert loss / count == pytest.approx(guess, rel=0.6 if task == "regress" else 0.06)


@pytest.mark.parametrize(
    ("task", "model"), [pytest.param(*each, marks=[] if each[1] == "gpt" else pytest.mark.long) for each in FEW]
)
def test_it_learns_a_few_examples_by_heart(task, model):
    made = learner(task, model)
    asked, rows = encoded(made, task, 12)
    config = OptimConfig(lr=(2e-2 if task == "tag" else 1e-2) if model == "lstm" else 3e-3)
    optimizer = build_optimizer(config, made)
    batch = batch_of(rows)
    for _ in range(150):
        loss = made(batch)
        loss.total.backward()
        step(optimizer, loss.count, 1.0)
    made.eval()
    found = predict_examples(made, Examples(rows, 0, 0), asked, CPU)
    assert found[1] < 0.1
    assert made.scores(asked, found[0])[made.main_metric] > 0.9


@pytest.mark.parametrize(("task", "model"), FEW)
def test_answers_do_not_depend_on_what_else_is_asked(task, model):
    made = learner(task, model).double().eval()
    asked, rows = encoded(made, task, 10)
    together, _ = predict_examples(made, Examples(rows, 0, 0), asked, CPU)
    for each, row, answer in zip(asked, rows, together, strict=True):
        (alone,), _ = predict_examples(made, Examples([row], 0, 0), [each], CPU)
        assert alone.keys() == answer.keys()
        if task == "regress":
            assert alone["label"] == pytest.approx(answer["label"])
        else:
            key = {"span": "answer", "tag": "tags"}.get(task, "label")
            assert alone[key] == answer[key]


def test_all_ignored_is_nothing():
    made = learner("classify", "bert")
    batch = batch_of(encoded(made, "classify")[1])
    loss = made(batch._replace(labels=torch.full_like(batch.labels, IGNORE)))
    assert loss.total.item() == 0 and loss.count.item() == 0


# ---- ways to transfer


@pytest.mark.parametrize("layers", ["last", "mix", "sum4", "concat4", "0", "second-to-last"])
def test_frozen_features_leave_the_backbone_alone(layers):
    torch.manual_seed(0)
    config = MODELS["bert"] | {"num_layers": 4}
    from seqloom.models.bert import Bert
    from seqloom.tasks.classify import Classify

    backbone = Bert(Bert.Config(vocab_size=WORDS.vocab_size, **config))
    made = Classify(
        backbone, Classify.Config(labels=("bad", "good"), frozen=True, layers=layers, reader="lstm", pool="mean")
    )
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    optimizer = build_optimizer(OptimConfig(lr=1e-2, weight_decay=0.1), made)
    batch = batch_of(encoded(made, "classify", 16)[1])
    losses = []
    for _ in range(30):
        loss = made.train()(batch)
        loss.total.backward()
        step(optimizer, loss.count, 1.0)
        losses.append(loss.total.item())
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("at", ["input", "output", "both"])
def test_where_a_mix_enters(at):
    """By hand: the mix of ELMo's three layers before the reader, beside its output, or both."""
    made = learner("classify", "elmo", layers="mix", reader="lstm", reader_dim=8, at=at, pool="mean").eval()
    mixes = [mix for mix in (made.mix, made.mix_above) if mix is not None]
    for number, mix in enumerate(mixes):
        mix.weights.data = torch.tensor([0.3, -1.0, 2.0 + number])
        mix.gamma.data.fill_(1.5 + number)
    batch = batch_of(encoded(made, "classify", 4)[1]).batch
    states = made.backbone(batch, layers=True).layers
    by_hand = [
        mix.gamma * sum(share * state for share, state in zip(mix.weights.softmax(0), states, strict=True))
        for mix in mixes
    ]
    read, _, _ = made.reader(states[0] if at == "output" else by_hand[0], batch)
    wanted = read if at == "input" else torch.cat((read, by_hand[-1]), 1)
    found, _ = made.features(batch)
    assert len(states) == 3 and len(mixes) == (2 if at == "both" else 1) and made.width == found.shape[1]
    assert torch.allclose(found, wanted, atol=1e-6)


def test_dropout_and_l2_of_a_mix():
    plain, other = (learner("classify", "elmo", layers="mix", pool="mean", **more) for more in ({}, {"mix_l2": 0.1}))
    other.load_state_dict(plain.state_dict())
    batch = batch_of(encoded(plain, "classify", 6)[1])
    for made in (plain, other):
        made.mix.weights.data = torch.tensor([1.0, -2.0, 0.5])
    one, two = plain(batch), other(batch)
    assert (two.total - one.total).item() == pytest.approx(0.1 * 5.25 * int(one.count), rel=1e-4)
    assert two.logs["penalty"].item() == pytest.approx(0.1 * 5.25 * int(one.count), rel=1e-4), "it is not reported"
    two.total.backward()
    dropped = learner("classify", "elmo", layers="mix", pool="mean", mix_dropout=0.5)
    dropped.load_state_dict(plain.state_dict())
    torch.manual_seed(0)
    share = (dropped.train().features(batch.batch)[0] == 0).float().mean().item()
    assert 0.4 < share < 0.6 and torch.equal(
        dropped.eval().features(batch.batch)[0], plain.eval().features(batch.batch)[0]
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"mix_dropout": 0.5, "mix_l2": 0.1}, "'task.mix_dropout' = 0.5 .*; 'task.mix_l2' = 0.1 is for"),
        ({"at": "both"}, "'task.at' = 'both' is for task.layers"),
        ({"at": "output", "layers": "mix"}, "is for task.reader"),
    ],
)
def test_settings_of_a_mix_that_is_not_there_are_refused(values, said):
    with pytest.raises(UsageError, match=said):
        learner("classify", "elmo", **values)


def test_a_models_own_summary_is_of_its_own_states():
    """What a pooler has learnt to read is neither a BiLSTM's output, be it as wide, nor another layer."""
    dim = MODELS["bert"]["dim"]
    assert learner("classify", "bert").summary.pooled is not None
    for config in ({"reader": "lstm", "reader_dim": dim}, {"layers": "mix"}):
        made = learner("classify", "bert", **config)
        assert made.summary.pooled is None and made.summary.dense is None and made.width == dim


@pytest.mark.parametrize(
    ("layers", "said"), [("all", "all"), ("nonsense", "nonsense"), ("7", "layers 1 to"), ("sum4", "needs 4 layers")]
)
def test_layers_that_are_not_there_are_refused_before_anything_is_read(layers, said):
    with pytest.raises(UsageError, match=rf"'task.layers'.*{said}"):
        learner("classify", "bert", layers=layers)


@pytest.mark.parametrize("layers", ["1", "second-to-last"])
def test_layers_of_another_width_are_refused(monkeypatch, layers):
    monkeypatch.setitem(MODELS, "awd-lstm", {"embedding_dim": 8, "dim": 12, "num_layers": 3})
    made = learner("classify", "awd-lstm", layers=layers)
    _, rows = encoded(made, "classify")
    with pytest.raises(UsageError, match=rf"'task.layers' = {layers}: the layers are \[8, 12, 12, 8\] wide"):
        made(batch_of(rows))


def test_language_modelling_beside():
    plain, beside = learner("classify", "gpt"), learner("classify", "gpt", lm=0.5)
    beside.load_state_dict(plain.state_dict(), strict=False)
    _, rows = encoded(plain, "classify")
    batch = batch_of(rows)
    both, alone = beside(batch), plain(batch)
    assert (both.total - both.logs["penalty"]).item() == pytest.approx(alone.total.item(), rel=1e-5)
    # nearly ln V a token, as the mean over tokens, weighed for each text
    expected = 0.5 * math.log(WORDS.vocab_size) * int(alone.count)
    assert both.logs["penalty"].item() == pytest.approx(expected, rel=0.1)
    with pytest.raises(UsageError, match="left to right"):
        learner("classify", "bert", lm=0.5)


def test_rates_fall_with_depth():
    made = learner("classify", "bert")
    found = depths(made)
    assert found["backbone.embedding.token.weight"] == 0 and found["head.weight"] == 3
    assert {found[name] for name in found if ".layers.1." in name} == {2}
    optimizer = build_optimizer(OptimConfig(layer_decay=0.5), made)
    shares = {group["depth"]: group["share"] for group in optimizer.param_groups}
    assert shares == {0: 0.125, 1: 0.25, 2: 0.5, 3: 1.0}


# ---- batches


def test_an_epoch_reads_every_example_once_in_an_order_of_its_own():
    made = learner("classify", "bert")
    rows = Examples(encoded(made, "classify", 50)[1], 0, 0)
    batches = LabelledBatches(rows, 8, fixed=False)
    orders = [np.concatenate(batches.plan(3, epoch).parts).tolist() for epoch in (0, 1, 0)]
    assert sorted(orders[0]) == list(range(50)) and orders[0] == orders[2] != orders[1]


def test_shapes_come_again():
    made = learner("pair", "bert")
    rows = Examples(encoded(made, "pair", 64)[1], 0, 0)
    plan = LabelledBatches(rows, 8, fixed=True).plan(0, 0)
    shapes = {(plan.batch(i).batch.ids.shape, plan.batch(i).batch.offsets.shape) for i in range(len(plan))}
    assert len(shapes) <= 3


# ---- answers


def test_the_best_stretch_is_found_as_by_trying_all():
    rng = np.random.default_rng(0)
    for _ in range(50):
        size, longest = int(rng.integers(1, 12)), int(rng.integers(1, 6))
        scores, spots = rng.normal(size=(size, 2)), np.stack((np.arange(size), np.arange(size) + 1), 1)
        every = [(scores[i, 0] + scores[j, 1], i, j + 1) for i in range(size) for j in range(i, min(i + longest, size))]
        found = best_spans(scores, spots, 4, longest)
        assert found == [pytest.approx(each) for each in sorted(every, reverse=True)[:4]]


@settings(max_examples=30)
@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=80), st.integers(9, 48))
def test_answers_point_at_their_text(context, limit):
    made = learner("span", "bert").eval()
    question = examples("span", 1)[0]._replace(context=f"a {context} b", answers=[], impossible=True)
    rows, _ = made.encode([question], WORDS, frame(made, limit))
    (answer,), _ = predict_examples(made, Examples(rows, 0, 0), [question], CPU)
    for each in answer["n_best"]:
        assert (
            question.context[each["begin"] : each["end"]] == each["answer"] and each["answer"].strip() == each["answer"]
        )


@given(st.integers(1, 200), st.integers(8, 48), st.integers(1, 60))
def test_windows_cover_a_paragraph(size, limit, stride):
    made = learner("span", "bert", stride=stride)
    parts = made.windows(size, 3, frame(made, limit))
    assert parts[0].start == 0 and parts[-1].stop == size
    assert all(a.stop >= b.start for a, b in itertools.pairwise(parts))
    assert sorted({i for part in parts for i in range(part.start, part.stop)}) == list(range(size))


def test_the_label_of_a_window_is_its_answer():
    made = learner("span", "bert")
    asked, rows = encoded(made, "span", 40)
    held = 0
    for each, windows in zip(asked, rows, strict=True):
        for row in windows:
            first, last = row.label
            if first == 0:
                continue
            held += 1
            assert row.own[first] and row.own[last]
            assert each.context[row.spots[first, 0] : row.spots[last, 1]].strip() == each.answers[0][0]
        assert not each.answers or any(row.label[0] for row in windows)
    assert held >= 30


# ---- bad input


def test_one_class_is_refused():
    from seqloom.tasks.classify import Classify

    same = [example._replace(label="good") for example in examples("classify", 4)]
    with pytest.raises(DataError, match="file:1: all 4 examples are of the class 'good'"):
        Classify.survey(same)
    with pytest.raises(DataError, match=r"file:2: the label 'awful' is not in the training files \(bad, good\)"):
        learner("classify", "bert").check([same[0], same[1]._replace(label="awful")])


def test_rows_of_words_stand_where_they_are_said_to():
    rows = [
        Row(np.arange(4), None, np.ones(4, bool), np.array([1, 2]), places=np.array([[1, 2], [2, 4]])) for _ in range(2)
    ]
    found = batch_of([[row] for row in rows], 8)
    assert found.places[:4].tolist() == [[1, 2], [2, 4], [5, 6], [6, 8]]
    assert found.labels[:4].tolist() == [1, 2, 1, 2] and set(found.labels[4:].tolist()) == {IGNORE}
    assert found.words.offsets[:3].tolist() == [0, 2, 4] and found.words.owner[:4].tolist() == [0, 0, 1, 1]
