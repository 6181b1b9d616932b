"""Captioners: attention over regions, hard attention by enumeration, the Vision Transformer, convolutions, and their cost."""

import itertools
import json

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqloom.batch import Images, Pair, pack
from seqloom.batches.pictures import lay_images
from seqloom.blocks import glimpse
from seqloom.blocks import pictures as picture_blocks
from seqloom.blocks.glimpse import doubly_stochastic, draw, entropy, log_choice
from seqloom.blocks.pictures import for_texts, pooled
from seqloom.cost import total
from seqloom.decode.rules import BeamConfig
from seqloom.decode.search import Search
from seqloom.decode.step import Stepper
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.models import model_class
from seqloom.runs.vit import read_vit, vit_settings, vit_sizes
from seqloom.tasks.caption import Caption
from seqloom.text.scenes import captions_of, make_scene
from tests.test_cost import plain_products

SMALL = {
    "show-tell": {"dim": 12, "embedding_dim": 10, "side": 16, "channels": (4, 8)},
    "show-attend-tell": {"dim": 12, "embedding_dim": 10, "side": 16, "channels": (4, 8)},
    "captioner": {"dim": 12, "encoder_layers": 1, "num_layers": 1, "num_heads": 2, "side": 16, "patch": 4, "max_len": 32},
}  # fmt: skip
VOCAB = 7


def build(name, dtype=torch.float64, **changes):
    cls = model_class(name)
    torch.manual_seed(0)
    return cls(cls.Config(**{"vocab_size": VOCAB} | SMALL[name] | changes)).to(dtype).eval()


def learner_of(model, **settings):
    torch.manual_seed(1)
    return Caption(model, Caption.Config(**{"tie": False, "label_smoothing": 0.0} | settings)).to(torch.float64)


def pictures(n, side=16, regions=16, seed=0):
    rng = np.random.default_rng(seed)
    return lay_images(rng.integers(0, 256, (n, side, side, 3), np.uint8), np.full(n, regions))


def features(sizes, width, seed=0):
    values = np.random.default_rng(seed).normal(size=(sum(sizes), width))
    return lay_images(values, np.array(sizes))


def pair_of(source, texts):
    target = pack([[1, *text] for text in texts])
    following = torch.tensor([token for text in texts for token in [*text, 0]])
    return Pair(source, target, following)


# ---- attention


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_permuted_regions_permute_the_weights_and_not_the_words(attention):
    model = build("show-attend-tell", features=5, attention=attention)
    source, order = features((6, 6), 5), torch.tensor([3, 0, 5, 1, 4, 2])
    swapped = source._replace(values=torch.cat((source.values[:6][order], source.values[6:])))
    texts = [[2, 3, 4], [5, 6]]
    with torch.no_grad():
        one, two = (model(pair_of(each, texts), maps=True) for each in (source, swapped))
    assert torch.allclose(one.hidden, two.hidden, atol=1e-12)
    ((first,), (second,)) = one.cross, two.cross
    assert torch.allclose(first[:4, 0][:, order], second[:4, 0], atol=1e-12)
    assert torch.allclose(first.sum(-1), torch.ones(7, 1, dtype=first.dtype), atol=1e-12)
    assert not torch.allclose(first[:4], second[:4])


def test_a_place_that_is_added_is_noticed():
    """Planted: with learnt places, regions are no set any more."""
    model = build("show-attend-tell")
    source = pictures(1)
    turned = source._replace(values=source.values.flip(1))
    with torch.no_grad():
        hidden = [model(pair_of(each, [[2, 3]])).hidden for each in (source, turned)]
    assert not torch.allclose(*hidden, atol=1e-6)


def test_the_gate_closes():
    """β = 0: nothing of the picture enters after the start."""
    model = build("show-attend-tell", features=5)
    cell = model.decoder.cell
    with torch.no_grad():
        cell.gate.weight.zero_()
        cell.gate.bias.fill_(-1e4)
        model.decoder.first.weight.zero_()
        one, two = (model(pair_of(features((4,), 5, seed), [[2, 3]])).hidden for seed in (0, 1))
        cell.gate.bias.zero_()
        three, four = (model(pair_of(features((4,), 5, seed), [[2, 3]])).hidden for seed in (0, 1))
    assert torch.equal(one, two) and not torch.allclose(three, four)


def test_the_loss_wants_every_region_looked_at_once():
    batch = pack([[1, 2, 3], [4]])
    weights = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75], [0.2, 0.8]], dtype=torch.float64)
    # regions of the first: 1.75 and 1.25; of the second: 0.2 and 0.8
    assert doubly_stochastic(weights, batch, None).item() == pytest.approx(0.75**2 + 0.25**2 + 0.8**2 + 0.2**2)
    real = torch.tensor([True, True, False, False])
    assert doubly_stochastic(weights, batch, real).item() == pytest.approx(0.5**2 + 0.5**2)


def test_its_gradient():
    batch = pack([[1, 2, 3], [4]])
    scores = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: doubly_stochastic(x.softmax(-1), batch, None), (scores,))
    model = build("show-attend-tell", features=4, doubly_stochastic=0.7)
    learner, pair = learner_of(model).train(), pair_of(features((3, 3), 4), [[2, 3], [4]])
    loss = learner(pair)
    weights = model.train()(pair, maps=True).cross[0][:, 0]
    assert loss.logs["penalty"].item() == pytest.approx(0.7 * doubly_stochastic(weights, pair.target, None).item())
    plain = learner_of(build("show-attend-tell", features=4)).train()
    plain.load_state_dict(learner.state_dict())
    assert loss.total.item() == pytest.approx(plain(pair).total.item() + loss.logs["penalty"].item())


# ---- hard attention


def test_draws_follow_the_weights():
    torch.manual_seed(0)
    weights = torch.tensor([[0.1, 0.0, 0.6, 0.3]]).expand(20000, 4)
    counts = torch.bincount(draw(weights), minlength=4) / 20000
    assert torch.allclose(counts, weights[0], atol=0.015) and counts[1] == 0


def test_the_log_probability_and_entropy_of_draws():
    weights = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    chosen = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    assert torch.allclose(log_choice(weights, chosen), torch.tensor([0.75, 1.0]).log())
    assert entropy(weights)[1].item() == pytest.approx(np.log(2))


def enumerated(learner, pair, draws, monkeypatch):
    """For one sequence of draws: its probability, the log-probability of the words, and the gradient that training would take."""
    left = iter(draws)
    monkeypatch.setattr(glimpse, "draw", lambda weights: torch.tensor([next(left)]))
    learner.baseline.fill_(-1.3)
    loss = learner(pair)
    learner.zero_grad()
    loss.total.backward()
    gradient = {name: p.grad.clone() for name, p in learner.named_parameters() if p.grad is not None}
    left = iter(draws)
    output = learner.backbone(pair)
    reward = -learner.softmax(output.hidden, pair.targets)
    return output.log_choice.sum().exp(), reward, gradient


def reinforce_equals_enumeration(monkeypatch):
    """2 regions × 2 steps: the mean of the gradients over what can be drawn is the gradient of the expected reward."""
    model = build("show-attend-tell", features=3, attention="hard", mean_share=0.0, entropy=0.0)
    learner, pair = learner_of(model).train(), pair_of(features((2,), 3), [[4]])
    expected, mean, chances = 0.0, {}, []
    for draws in itertools.product((0, 1), repeat=2):
        chance, reward, gradient = enumerated(learner, pair, draws, monkeypatch)
        chances.append(chance.item())
        expected = expected - chance * reward
        for name, value in gradient.items():
            mean[name] = mean.get(name, 0.0) + chance.item() * value
    assert sum(chances) == pytest.approx(1) and min(chances) > 0.01
    learner.zero_grad()
    expected.backward()
    looked = [name for name, p in learner.named_parameters() if p.grad is not None and "alignment" in name]
    assert looked
    for name, parameter in learner.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(mean[name], parameter.grad, atol=1e-12), name
    assert any(mean[name].abs().max() > 1e-6 for name in looked)


def test_reinforce_equals_enumeration(monkeypatch):
    reinforce_equals_enumeration(monkeypatch)


@pytest.mark.parametrize("bug", ["sign", "only this word", "baseline of all words"])
def test_planted_reinforce(bug, monkeypatch):
    right = Caption.reinforce

    def wrong(self, scores, log_choice, example):
        if bug == "sign":
            return -right(self, scores, log_choice, example)
        rewards = scores.log_softmax(1).gather(1, example.targets[:, None])[:, 0]
        if bug == "only this word":  # a draw changes later words, too
            return -((rewards - self.baseline) * log_choice).sum()
        left = rewards.flip(0).cumsum(0).flip(0)  # right only with a baseline of what is drawn itself
        return -((left - log_choice.detach()) * log_choice).sum()

    monkeypatch.setattr(Caption, "reinforce", wrong)
    with pytest.raises(AssertionError):
        reinforce_equals_enumeration(monkeypatch)


def test_the_baseline_moves_and_is_kept():
    model = build("show-attend-tell", features=3, attention="hard")
    learner, pair = learner_of(model).train(), pair_of(features((2, 3), 3), [[4, 2], [5]])
    learner(pair)
    assert learner.baseline.item() < -0.05
    assert "baseline" in learner.state_dict()
    assert "baseline" not in learner_of(build("show-attend-tell", features=3)).state_dict()


# ---- search, pictures


def test_beam_search_equals_brute_force():
    model = build("show-attend-tell", features=4)
    learner = learner_of(model)
    with torch.no_grad():
        learner.softmax.weight.mul_(8)  # far from equal chances
    source, longest = features((3, 5), 4), 3
    found = Search(Stepper(model.decoder, learner.softmax), BeamConfig(beam=40, max_new=longest, length_penalty=0.0), 0, [1]).run(
        [[1]] * 2, model.encode(source), [longest] * 2
    )  # fmt: skip
    for i in range(2):
        own = lay_images(source.values[slice(0, 3) if i == 0 else slice(3, 8)].numpy(), np.array([3 if i == 0 else 5]))
        best = (-np.inf, None)
        for size in range(longest):
            for text in itertools.product(range(2, VOCAB), repeat=size):
                with torch.no_grad():
                    value = -learner.losses(pair_of(own, [list(text)])).sum().item()
                best = max(best, (value, list(text)))
        finished = [each for each in found[i] if each.finished]
        assert finished[0].tokens == best[1] and finished[0].log_prob == pytest.approx(best[0], abs=1e-6)


@pytest.mark.parametrize("name", SMALL)
def test_another_picture_another_caption(name):
    """Four pictures of one colour each are learnt by heart; swapped pictures swap the captions."""
    model = build(name, torch.float32).train()
    learner = learner_of(model).float().train()
    colours = np.array([[250, 20, 20], [20, 250, 20], [20, 20, 250], [250, 250, 250]], np.uint8)
    noise = np.random.default_rng(0).integers(0, 20, (4, 16, 16, 3), np.uint8)
    pixels = np.minimum(colours[:, None, None] - 20 + noise, 255).astype(np.uint8)
    source, texts = lay_images(pixels, np.full(4, 16)), [[2, 3], [3, 4], [5, 2], [6]]
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-2)
    for _ in range(60):
        loss = learner(pair_of(source, texts)).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    learner.eval()
    search = Search(Stepper(model.decoder, learner.softmax), BeamConfig(beam=2, max_new=4), 0, [1])
    with torch.inference_mode():
        found = search.run([[1]] * 4, model.encode(source), [4] * 4)
        swapped = lay_images(pixels[[1, 0, 3, 2]], np.full(4, 16))
        others = search.run([[1]] * 4, model.encode(swapped), [4] * 4)
    assert [each[0].tokens for each in found] == texts
    assert [each[0].tokens for each in others] == [texts[i] for i in (1, 0, 3, 2)]


def learnt_by_heart(norm=None):
    """The share of 16 scenes whose caption show-tell knows after training on them. norm: of its vector, in place of its own."""
    tokens, rows, pixels = {"<end>": 0, "<start>": 1}, [], []
    for number in range(16):
        scene = make_scene(0, number)
        words = captions_of(scene.things)[0].text.split()
        rows.append([tokens.setdefault(word, len(tokens)) for word in words])
        pixels.append(scene.pixels)
    model = build(
        "show-tell", torch.float32, dim=64, embedding_dim=32, side=64, channels=(8, 16, 16), vocab_size=30
    ).train()
    if norm is not None:
        model.encoder.norm = norm
    learner, source = learner_of(model).float().train(), lay_images(np.stack(pixels), np.full(16, 64))
    optimizer = torch.optim.Adam(learner.parameters(), lr=5e-3)
    for _ in range(120):
        loss = learner(pair_of(source, rows))
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
    learner.eval()
    search = Search(Stepper(model.decoder, learner.softmax), BeamConfig(beam=1, max_new=12), 0, [1])
    with torch.inference_mode():
        found = search.run([[1]] * 16, model.encode(source), [12] * 16)
    return np.mean([best[0].tokens == row for best, row in zip(found, rows, strict=True)])


@pytest.mark.long
def test_one_look_learns_scenes():
    """Planted: without the norm, what scenes have in common grows in their vectors, which become alike."""
    assert learnt_by_heart() > 0.9
    assert learnt_by_heart(torch.nn.Identity()) < 0.7


# ---- questions


def every_question_looks_at_its_own_picture(name):
    """Three texts about two pictures give what each gives alone; attention sums to 1 at every word and moves."""
    model, source, texts, about = build(name), pictures(2), [[1, 2, 3], [4, 5], [2, 6, 3, 1]], [1, 0, 1]
    view = model.view("whole")

    def seen(some, images, numbers):
        batch = pack(some)._replace(pictures=images._replace(texts=torch.tensor(numbers)))
        with torch.no_grad():
            return view(batch, maps=model.aligned)

    together, begin = seen(texts, source, about), 0
    for text, number in zip(texts, about, strict=True):
        alone = seen([text], lay_images(source.values[number : number + 1].numpy(), np.array([16])), [0])
        part = slice(begin, begin + len(text))
        assert torch.allclose(together.hidden[part], alone.hidden, atol=1e-12)
        for weights, expected in zip(together.cross, alone.cross, strict=True):
            assert torch.allclose(weights[part], expected, atol=1e-12)
            assert torch.allclose(expected.sum(-1), torch.ones_like(expected.sum(-1)), atol=1e-12)
            assert all(not torch.allclose(a, b, atol=1e-9) for a, b in itertools.pairwise(expected[:, 0]))
        begin += len(text)
    assert bool(together.cross) == model.aligned


@pytest.mark.parametrize("name", SMALL)
def test_every_question_looks_at_its_own_picture(name):
    every_question_looks_at_its_own_picture(name)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("bug", ["the next picture", "in turn"])
def test_planted_questions_about_other_pictures(name, bug, monkeypatch):
    def wrong(context, texts):
        other = texts + 1 if bug == "the next picture" else torch.arange(len(texts))
        return for_texts(context, other % context.num_sequences)

    monkeypatch.setattr(picture_blocks, "for_texts", wrong)
    with pytest.raises(AssertionError):
        every_question_looks_at_its_own_picture(name)


def test_planted_questions_that_look_once(monkeypatch):
    """The state that the LSTM begins with decides where every word looks."""
    look = glimpse.GatedCell.look
    monkeypatch.setattr(glimpse.GatedCell, "look", lambda self, h, *memory: look(self, h * 0, *memory))
    with pytest.raises(AssertionError):
        every_question_looks_at_its_own_picture("show-attend-tell")


# ---- cost


@pytest.mark.parametrize("name", SMALL)
def test_the_cost_of_pixels(name, monkeypatch):
    plain_products(monkeypatch)
    learner = learner_of(build(name)).train()
    pair = pair_of(pictures(3), [[2] * 9] * 3)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        learner(pair)
    assert total(learner).forward(pair.sizes()) / counter.get_total_flops() == pytest.approx(1, abs=0.03)


def a_picture_alone_gives_what_it_gives_in_company(model):
    source = pictures(3)
    with torch.no_grad():
        whole = model.encode(source).hidden.view(3, 16, -1)
        alone = model.encode(lay_images(source.values[1:2].numpy(), np.array([16]))).hidden
    assert torch.allclose(whole[1], alone, atol=1e-12)


@pytest.mark.parametrize("name", SMALL)
def test_a_picture_alone_gives_what_it_gives_in_company(name):
    a_picture_alone_gives_what_it_gives_in_company(build(name))


@pytest.mark.parametrize("name", ["show-tell", "show-attend-tell"])
def test_planted_norms_over_pictures_are_noticed(name):
    model = build(name)
    norms = [torch.nn.BatchNorm2d(each.num_channels, dtype=torch.float64) for each in model.encoder.cnn.norms]
    model.encoder.cnn.norms = torch.nn.ModuleList(norms)
    with pytest.raises(AssertionError):
        a_picture_alone_gives_what_it_gives_in_company(model)


def test_means_and_maxima_of_regions():
    model = build("captioner", features=5)
    context = model.encode(features((2, 4), 5))
    found = pooled(context)
    assert torch.allclose(found[1], torch.cat((context.hidden[2:].mean(0), context.hidden[2:].amax(0))))


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="no multiple of"):
        build("captioner", patch=5)
    with pytest.raises(UsageError, match="cannot be halved 4 times"):
        build("show-attend-tell", side=24, channels=(4, 4, 4, 4))
    with pytest.raises(DataError, match="features of regions"):
        build("captioner")(pair_of(features((3,), 4), [[2]]))
    with pytest.raises(UsageError, match="hard"):
        build("show-attend-tell", attention="hard").view("whole")


# ---- Vision Transformers


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, image_size=16, patch_size=4,
    )  # fmt: skip
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # zeros and ones would hide a missing bias or norm
            parameter.add_(0.1 * torch.randn_like(parameter))
    folder = tmp_path_factory.mktemp("vit")
    model.save_pretrained(folder)
    return folder, model


def test_the_patch_encoder_equals_transformers(vit):
    folder, theirs = vit
    sizes = vit_sizes(folder)
    ours = build("captioner", torch.float32, **sizes)
    ours.encoder.load_state_dict(read_vit(folder))
    source = pictures(3, 16, 17)
    values = source.values.permute(0, 3, 1, 2).float() / 127.5 - 1
    with torch.no_grad():
        found = ours.encode(source).hidden.view(3, 17, -1)
        wanted = theirs.vit(values).last_hidden_state
    assert torch.allclose(found, wanted, atol=1e-5)
    assert "model.class_token=true" in vit_settings(folder)


IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}


def copied(vit, to, colours):
    for name in ("config.json", "model.safetensors"):
        (to / name).write_bytes((vit[0] / name).read_bytes())
    (to / "preprocessor_config.json").write_text(json.dumps(colours))
    return to


def equals_transformers(folder, theirs, mean, std, factor=1 / 255):
    ours = build("captioner", torch.float32, **vit_sizes(folder))
    ours.encoder.load_state_dict(read_vit(folder))
    source = pictures(2, 16, 17)
    values = (source.values.float() * factor - torch.tensor(mean)) / torch.tensor(std)
    with torch.no_grad():
        wanted = theirs.vit(values.permute(0, 3, 1, 2)).last_hidden_state
        assert torch.allclose(ours.encode(source).hidden.view(2, 17, -1), wanted, atol=1e-5)


def test_colours_are_read_as_the_model_was_trained(vit, tmp_path):
    folder = copied(vit, tmp_path, IMAGENET)
    equals_transformers(folder, vit[1], *IMAGENET.values())
    with pytest.raises(AssertionError):  # planted: as if the file were not there
        equals_transformers(vit[0], vit[1], *IMAGENET.values())
    equals_transformers(vit[0], vit[1], [0.5] * 3, [0.5] * 3)
    equals_transformers(copied(vit, tmp_path, {"do_normalize": False} | IMAGENET), vit[1], [0.0] * 3, [1.0] * 3)
    folder = copied(vit, tmp_path, {"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]})
    equals_transformers(folder, vit[1], [1.0] * 3, [1.0] * 3, 1 / 127.5)


@pytest.mark.parametrize(
    "colours",
    [
        [],
        {"image_mean": 0.5},
        {"image_std": [0, 1, 1]},
        {"image_std": [1, 1]},
        {"rescale_factor": "x"},
        {"image_mean": [None] * 3},
    ],
)
def test_colours_that_are_damaged(colours, vit, tmp_path):
    with pytest.raises(ModelError, match=r"preprocessor_config\.json"):
        read_vit(copied(vit, tmp_path, colours))


@pytest.mark.parametrize("bug", ["norms", "places"])
def test_planted_misreadings_of_weights(bug, vit, monkeypatch):
    folder, theirs = vit
    tensors = read_vit(folder)
    if bug == "norms":
        for i in range(2):
            one, two = f"stack.layers.{i}.mixer_norm.weight", f"stack.layers.{i}.ffn_norm.weight"
            tensors[one], tensors[two] = tensors[two], tensors[one]
    else:
        tensors["embedding.places"] = tensors["embedding.places"].roll(1, 0)
    ours = build("captioner", torch.float32, **vit_sizes(folder))
    ours.encoder.load_state_dict(tensors)
    source = pictures(2, 16, 17)
    with torch.no_grad():
        wanted = theirs.vit(source.values.permute(0, 3, 1, 2).float() / 127.5 - 1).last_hidden_state
        assert not torch.allclose(ours.encode(source).hidden.view(2, 17, -1), wanted, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "relu"}, "only 'gelu'"),
        ({"model_type": "deit"}, "only 'vit'"),
        ({"hidden_size": "many"}, "is no size"),
        ({"num_hidden_layers": 3}, "is missing"),
        ({"num_hidden_layers": 1}, "of a layer that config.json does not count"),
        ({"intermediate_size": 41}, "has the shape"),
    ],
)
def test_folders_that_are_no_vision_transformer(change, message, vit, tmp_path):
    folder, _ = vit
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((tmp_path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=message):
        read_vit(tmp_path)


def test_images_have_borders():
    source = features((2, 3), 4)
    assert isinstance(source, Images) and source.num_sequences == 2 and not source.is_full
