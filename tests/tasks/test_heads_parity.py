"""What tells classes, choices, tags and answers equals the heads of `transformers` with the same weights, for four families."""

import numpy as np
import pytest
import torch
import transformers as hf

from seqloom.batches.labelled import Row, batch_of
from seqloom.tasks.choose import Choose
from seqloom.tasks.classify import Classify
from seqloom.tasks.span import PickSpan
from seqloom.tasks.tag import TagWords
from tests.models.test_encoder_parity import THEIRS, ours, texts

FAMILIES = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra", "albert": "Albert"}
CLASSES = 3


def reference(family, head, labels=CLASSES):
    config, _, sizes = THEIRS[family]
    torch.manual_seed(0)
    cls = getattr(hf, f"{FAMILIES[family]}For{head}")
    model = cls(config(**sizes, num_labels=labels, attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model, ours(model.base_model)


def copied(linear, theirs):
    linear.load_state_dict(theirs.state_dict())


def copy_head(learner, model):
    """By the names that the families have for the layer below the labels, and for the labels'."""
    parts = dict(model.named_modules())
    below = next((parts[n] for n in ("classifier.dense", "sequence_summary.summary") if n in parts), None)
    assert (learner.summary.dense is None) == (below is None), "a layer that is on one side only"
    if below is not None:
        copied(learner.summary.dense, below)
    copied(learner.head, parts.get("classifier.out_proj", parts["classifier"]))


def laid(family, places=None):
    """The same texts for both: a batch of examples of one sequence each, and what `transformers` is given."""
    rows, ids, mask, segments = texts(family)
    told = {} if family == "roberta" else {"token_type_ids": segments}
    made = []
    for i, row in enumerate(rows):
        kinds = segments[i, : len(row)].numpy() if told else None
        own = np.ones(len(row), bool)
        label = np.int64(0) if places is None else np.zeros(len(places[i]), np.int64)
        made.append(Row(np.array(row), kinds, own, label, None if places is None else np.array(places[i])))
    return made, {"input_ids": ids, "attention_mask": mask, **told}


@torch.no_grad()
def classes_are_equal(family):
    model, body = reference(family, "SequenceClassification")
    learner = Classify(body, Classify.Config(labels=tuple("abc"))).eval()
    copy_head(learner, model)
    rows, given = laid(family)
    example = batch_of([[row] for row in rows])
    found = learner.logits(learner.features(example.batch)[0], example)
    torch.testing.assert_close(found, model(**given).logits, rtol=0, atol=1e-4)


@torch.no_grad()
def choices_are_equal(family):
    model, body = reference(family, "MultipleChoice")
    learner = Choose(body, Choose.Config()).eval()
    copy_head(learner, model)
    rows, given = laid(family)
    example = batch_of([rows[:2], rows[2:]])  # two questions of two choices
    found = learner.logits(learner.features(example.batch)[0], example).view(2, 2)
    logits = model(**{name: part.view(2, 2, -1) for name, part in given.items()}).logits
    torch.testing.assert_close(found, logits.log_softmax(1), rtol=0, atol=1e-4)


@torch.no_grad()
def tags_are_equal(family):
    model, body = reference(family, "TokenClassification")
    learner = TagWords(body, TagWords.Config(labels=tuple("abc"))).eval()
    copied(learner.head, model.classifier)
    rows, _, _, _ = texts(family)
    places = [[(i, min(i + 2, len(row))) for i in range(0, len(row), 2)] for row in rows]  # words of two tokens
    made, given = laid(family, places)
    example = batch_of([[row] for row in made])
    found = learner.logits(learner.features(example.batch)[0], example)
    logits = model(**given).logits
    first = [logits[i, a] for i, words in enumerate(places) for a, _ in words]
    torch.testing.assert_close(found, torch.stack(first), rtol=0, atol=1e-4)


@torch.no_grad()
def answers_are_equal(family):
    model, body = reference(family, "QuestionAnswering", 2)
    learner = PickSpan(body, PickSpan.Config()).eval()
    copied(learner.head, model.qa_outputs)
    rows, given = laid(family)
    example = batch_of([[row._replace(label=np.zeros(2, np.int64))] for row in rows])
    found = learner.logits(learner.features(example.batch)[0], example)
    output = model(**given)
    both = torch.stack((output.start_logits, output.end_logits), 2)
    expected = torch.cat([both[i, : len(row.ids)].log_softmax(0) for i, row in enumerate(rows)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "equal",
    [classes_are_equal, choices_are_equal, tags_are_equal, answers_are_equal],
    ids=["classify", "choose", "tag", "span"],
)
def test_equal(family, equal):
    equal(family)


@pytest.mark.parametrize("family", FAMILIES)
def test_planted_summary_of_another_token_is_noticed(family, monkeypatch):
    from seqloom.tasks import transfer

    pool = transfer.pool
    monkeypatch.setattr(transfer, "pool", lambda states, batch, how, own: pool(states, batch, "last", own))
    for equal in (classes_are_equal, choices_are_equal):
        with pytest.raises(AssertionError):
            equal(family)


@pytest.mark.parametrize("family", FAMILIES)
def test_planted_word_that_is_read_at_another_token_is_noticed(family, monkeypatch):
    from seqloom.tasks import tag

    monkeypatch.setattr(tag, "pool_words", lambda states, places, how: states[places[:, 1] - 1])
    with pytest.raises(AssertionError):
        tags_are_equal(family)
