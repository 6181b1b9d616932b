"""Two language models in one: what each half predicts, how both are measured, and bugs that must be noticed."""

import json
import math

import numpy as np
import pytest
import torch

import seqloom
from seqloom.batch import IGNORE, Excerpt, pack
from seqloom.batches.plan import Pieces, excerpt
from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.cli import run as command
from seqloom.errors import ModelError
from seqloom.evaluate import both_directions
from seqloom.evaluate.both_directions import Mirrored
from seqloom.objectives.bidirectional import Bidirectional, surround
from tests.contract.encoders import build
from tests.contract.properties import VOCAB, digest, sequences, widened
from tests.contract.test_planted import noticed
from tests.training.material import prepared, sentences

TINY = [
    "model.dim=24", "model.proj_dim=12", "model.max_chars=8", "model.filters=[[1,8],[2,8]]", "model.num_highways=1",
    "batches.budget=256", "batches.length=16",
]  # fmt: skip


def excerpt_of(texts: list[list[int]]) -> Excerpt:
    """Texts as a loader cuts them: the last token of each is predicted, and not read."""
    batch = pack([text[:-1] for text in texts])
    return Excerpt(batch, torch.tensor([i for text in texts for i in text[1:]]))


def learner_of(model, **config):
    torch.manual_seed(0)
    return Bidirectional(model, Bidirectional.Config(bias=True, **config)).double()


@torch.no_grad()
def both_losses(learner: Bidirectional, seed: int) -> None:
    """The loss is that of each half on its own: of the forward one on the texts, of the backward one on mirrored ones."""
    texts = sequences(seed, (9, 2, 17, 3))
    loss = learner(surround(excerpt_of(texts)))
    by_hand = torch.zeros((), dtype=torch.double)
    for backward in (False, True):
        half = learner.direction(backward)
        for text in texts:
            row = text[::-1] if backward else text
            scores = half.softmax(half.backbone(pack([row[:-1]])).hidden).log_softmax(1)
            by_hand -= scores[torch.arange(len(row) - 1), torch.tensor(row[1:])].sum()
    assert loss.total.item() == pytest.approx(by_hand.item(), rel=1e-9)
    assert loss.count.item() == 2 * sum(len(text) - 1 for text in texts)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["elmo", "elmo-original"])
def test_the_loss_is_that_of_both_halves(name, seed):
    both_losses(learner_of(build(name, seed)), seed)


def test_planted_targets_one_place_off_are_noticed(monkeypatch):
    learner = learner_of(build("elmo"))
    forward = Bidirectional.forward

    def shifted(self, example, carry=None):
        return forward(self, example._replace(preceding=example.following.roll(1)), carry)

    monkeypatch.setattr(Bidirectional, "forward", shifted)
    noticed(both_losses, learner, 0)


def test_what_is_read_and_predicted():
    found = surround(excerpt_of([[5, 6, 7], [8, 9]]))
    assert found.batch.ids.tolist() == [5, 6, 7, 8, 9] and found.batch.offsets.tolist() == [0, 3, 5]
    assert found.following.tolist() == [6, 7, IGNORE, 9, IGNORE]
    assert found.preceding.tolist() == [IGNORE, 5, 6, IGNORE, 8]
    assert found.batch.positions.tolist() == [0, 1, 2, 0, 1] and found.batch.max_len == 3
    sizes = found.sizes()
    assert (sizes.tokens, sizes.read, sizes.targets, sizes.lengths) == (3, 5, 6, (3, 2))


def test_filler_and_empty_sequences_are_never_predicted():
    """And shapes follow from shapes: every sequence, empty ones too, gets one token more."""
    plain = excerpt_of([[5, 6, 7], [8, 9]])
    batch = widened(plain.batch, 5, 3)
    found = surround(plain._replace(batch=batch))
    assert found.batch.ids.shape == (3 + 5,) and found.batch.max_len == 6
    assert (found.following != IGNORE).sum() == (found.preceding != IGNORE).sum() == 3
    learner = learner_of(build("elmo"))
    assert learner(found).total.item() == pytest.approx(learner(surround(plain)).total.item(), rel=1e-12)
    nothing = learner(surround(plain._replace(targets=torch.full_like(plain.targets, IGNORE))))
    assert nothing.total.item() == 0 and nothing.count.item() == 0


def test_a_full_batch_stays_full():
    assert surround(excerpt_of([[1, 2, 3, 4], [5, 6, 7, 8]])).batch.is_full


def test_the_first_loss_and_every_gradient():
    torch.manual_seed(0)
    model = build("elmo")
    model.init_weights()
    learner = learner_of(model)
    loss = learner(surround(excerpt_of(sequences(0, (31, 32, 65)))))
    assert loss.total.item() / loss.count.item() == pytest.approx(math.log(VOCAB), rel=0.05)
    assert learner.initial_loss() == math.log(VOCAB)
    loss.total.backward()
    assert not [name for name, p in learner.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]


@pytest.mark.parametrize("layer", [{"softmax": "adaptive"}, {"softmax": "sampled", "samples": VOCAB}])
def test_other_output_layers(layer):
    model = build("elmo")
    learner = learner_of(model, **layer)
    words = type("Words", (), {"counts": lambda self: torch.arange(VOCAB, 0, -1)})()
    learner.softmax.set_vocabulary(words)
    both_losses(learner, 1) if layer["softmax"] == "sampled" else learner(surround(excerpt_of(sequences(0))))


def test_measuring_a_direction_changes_no_weight_and_no_mode():
    learner = learner_of(build("elmo")).train()
    before = digest(learner)
    assert learner.direction(True).training and learner.direction(True).backbone.training
    learner.eval()
    assert not learner.direction(False).training and digest(learner) == before


# ---- on prepared text


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elmo")
    data = prepared(folder / "data", 120)
    run = seqloom.pretrain(
        "elmo-tiny",
        data,
        folder / "run",
        settings=[*TINY, "budget={steps=60}", "train.schedule.warmup=5", "train.optim.lr=0.02"],
    )
    return run, data


@torch.no_grad()
def measured(run, data) -> None:
    """`evaluate` is the mean loss of whole documents, which the objective itself gives; so with a limit."""
    found = run.evaluate(data, "valid", warmup=None)
    split = Store.open(data).split("valid")
    pieces = Pieces(split.offsets[:-1], np.diff(split.offsets), np.zeros(split.num_documents, np.int64))
    loss = run.learner.eval()(surround(excerpt(split, pieces, int(pieces.lengths.max()))))
    assert found["loss"] == pytest.approx(loss.total.item() / loss.count.item(), abs=1e-5)
    both = (found["perplexity_forward"], found["perplexity_backward"])
    assert math.log(both[0] * both[1]) / 2 == pytest.approx(found["loss"], abs=1e-9)
    assert both[0] != both[1] and found["tokens"] == split.num_tokens and "bits_per_byte" not in found
    cut = Pieces(np.array([0]), np.array([7]), np.zeros(1, np.int64))
    part = run.learner(surround(excerpt(split, cut, 7)))
    limited = run.evaluate(data, "valid", limit=7)
    assert limited["loss"] == pytest.approx(part.total.item() / 14, abs=1e-5) and limited["tokens"] == 7


def test_evaluation_equals_the_loss(trained):
    measured(*trained)


def test_planted_text_that_is_not_mirrored_is_noticed(trained, monkeypatch):
    monkeypatch.setattr(both_directions, "Mirrored", lambda split, limit: split)
    noticed(measured, *trained)


def test_mirrored_text(trained):
    split = Store.open(trained[1]).split("valid")
    turned = Mirrored(split)
    whole = turned.read_many(np.array([-1]), np.array([split.num_tokens + 1]))
    assert whole.tolist() == split.read(-1, split.num_tokens)[::-1].tolist()
    assert np.diff(turned.offsets).tolist() == np.diff(split.offsets)[::-1].tolist()
    parts = turned.read_many(np.array([3, 0]), np.array([4, 2]))
    assert parts.tolist() == [*whole[4:8], *whole[1:3]]


def test_it_learns_and_says_both_perplexities(trained, capsys):
    run, data = trained
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.7 * losses[0]
    assert command(["evaluate", str(run.folder), "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"perplexity_forward", "perplexity_backward", "bits_per_byte_forward"} <= set(found)


def test_a_score_is_the_mean_of_both_directions(trained):
    run, _ = trained
    texts = ["the cat sees the dog today .", "a bird", "the king"]
    ids = [run.tokenizer.encode(text) for text in texts]
    end = run.tokenizer.end_id
    for found, row in zip(run.score(texts), ids, strict=True):
        each = np.zeros(len(row))
        for backward in (False, True):
            half = run.learner.direction(backward).eval()
            text = [end, *(row[::-1] if backward else row), end]
            with torch.no_grad():
                logs = half.softmax(half.backbone(pack([text[:-1]])).hidden).log_softmax(1)
            logs = logs[torch.arange(len(row) + 1), torch.tensor(text[1:])].numpy()
            each += (logs[:-1][::-1] if backward else logs[:-1]) / 2
        assert found.log_probs == pytest.approx(each.tolist(), abs=1e-5)
    assert "the text after it" in run.definition()
    assert run.score(texts[0])[0].log_probs != pytest.approx(run.score(texts[0][::-1])[0].log_probs[:1])


def test_it_goes_on_from_no_text(trained, capsys):
    run, _ = trained
    assert command(["generate", str(run.folder), "--prompt", "the"]) == 2
    said = capsys.readouterr().err
    assert "cannot continue a text" in said and "fill" not in said, "it fills no gaps either"
    assert run.lacks("lambada") is not None and run.lacks("blimp") is None


def test_unknown_words_are_read_by_their_letters_in_both_directions(tmp_path):
    """The last word of a piece, too, which only the backward half reads."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"{line} zzz{i}" for i, line in enumerate(sentences(60))) + "\n")
    data = tmp_path / "data"
    prepare([text], data, tokenizer="word", min_count=2, valid=0.1, keep_spelling=True, keep_duplicates=True)
    run = seqloom.pretrain("elmo-tiny", data, tmp_path / "run", settings=[*TINY, "budget={steps=3}"])
    store = Store.open(data)
    store.spell(8)
    split = store.split("train")
    unk = store.tokenizer.unk_id
    place = int(np.flatnonzero(split.read(0, split.num_tokens) == unk)[0])
    cut = excerpt(split, Pieces(np.array([place - 2]), np.array([3]), np.zeros(1, np.int64)), 3)
    assert cut.targets[-1] == unk
    found = surround(cut)
    assert bytes(found.batch.chars[-1][1:5].numpy().astype(np.uint8) - 1)[:3] == b"zzz"
    scores = [sum(run.score(f"the cat {word} the dog")[0].log_probs) for word in ("zzz1", "qqq")]
    assert scores[0] != scores[1]
    assert run.evaluate(data, "valid")["tokens"] == store.split("valid").num_tokens


def test_a_model_without_an_output_layer_says_so(tmp_path):
    learner = learner_of(build("elmo"), output=False)
    assert learner.softmax is None
    with pytest.raises(ModelError, match="has no output layer"):
        learner(surround(excerpt_of([[1, 2, 3]])))
