"""Transformer-XL against its equations in plain loops, against the authors' code, and bugs that must be noticed."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqloom.batch import Excerpt, pack, ragged, select
from seqloom.blocks import relative
from seqloom.blocks.relative import RelativeAttention
from seqloom.cli import run
from seqloom.decode.step import Stepper
from seqloom.errors import UsageError
from seqloom.evaluate import perplexity as measuring
from seqloom.evaluate.perplexity import perplexity
from seqloom.models.transformer_xl import TransformerXl
from seqloom.recipes.library import find_recipe
from seqloom.runs.first_weights import vectors_from
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.tokens.tokenizer import Tokenizer
from tests.contract import properties as p
from tests.contract.test_planted import noticed
from tests.contract.test_traced import traced_equals_plain
from tests.corpus import random_corpus
from tests.training.material import prepared

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "transformer-xl"
MODES = ["train", "eval", "train-pre", "eval-pre"]


def sinusoid(distance, dim):
    angles = [distance / 10000 ** (2 * i / dim) for i in range(dim // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)


def plain_layer(layer, u, v, inputs, position, visible, clamp, pre):
    """One token of one layer. inputs: what the layer has read of every token up to this one."""
    mixer, dim = layer.mixer, inputs[0].shape[0]
    normed = [layer.mixer_norm(x) if pre else x for x in inputs]
    query, key, value = (
        lambda x, part=part: (mixer.qkv.weight.chunk(3)[part] @ x).view(mixer.num_heads, -1) for part in range(3)
    )
    q, mixed = query(normed[position]), []
    for h in range(mixer.num_heads):
        scores = []
        for j in visible:
            r = (mixer.distance.weight @ sinusoid(min(position - j, clamp), dim)).view(mixer.num_heads, -1)[h]
            scores.append(((q[h] + u[h]) @ key(normed[j])[h] + (q[h] + v[h]) @ r) / math.sqrt(q.shape[1]))
        weights = torch.stack(scores).softmax(0)
        mixed.append(sum(w * value(normed[j])[h] for w, j in zip(weights, visible, strict=True)))
    x = inputs[position] + mixer.out.weight @ torch.cat(mixed)
    if pre:
        return x + layer.ffn(layer.ffn_norm(x))
    x = layer.mixer_norm(x)
    return layer.ffn_norm(x + layer.ffn(x))


def plain(model, text, segments, clamp=10**9, pre=False):
    """The hidden states of a text that is read in segments, token by token, layer by layer, head by head, key by key."""
    positions = model.stack.positions
    xs = [model.embedding.token.weight[i] * math.sqrt(model.dim) for i in text]
    start_of = [sum(segments[:k]) for k, n in enumerate(segments) for _ in range(n)]
    for layer in model.stack.layers:
        mixer, after = layer.mixer, []
        for i in range(len(text)):
            first = start_of[i] - mixer.memory if model.training else i - mixer.window + 1
            visible = range(max(0, first), i + 1)
            after.append(plain_layer(layer, positions.content, positions.position, xs, i, visible, clamp, pre))
        xs = after
    return torch.stack(xs)


def read(model, texts, segments):
    """The same by the model: several texts of one batch, their state carried from segment to segment."""
    state, done, found = model.start(len(texts), 0), 0, []
    for length in segments:
        ids = torch.tensor([i for text in texts for i in text[done : done + length]])
        output = model(ragged(ids, torch.full((len(texts),), length)), state=state)
        found.append(output.hidden.view(len(texts), length, -1))
        state, done = output.state, done + length
    return torch.cat(found, 1)


def build(mode, **changes):
    sizes = {"mem_len": 5, "eval_len": 6, "num_layers": 2, "dim": 12}
    extra = {"norm": "pre", "clamp_len": 3} if mode.endswith("pre") else {}
    model = p.build("transformer-xl", 1, **sizes | extra | changes)
    return model.train(mode.startswith("train"))


def equals_the_loops(mode):
    model, segments, texts = build(mode), (4, 1, 7, 3), p.sequences(0, (15, 15))
    with torch.no_grad():
        found = read(model, texts, segments)
        for text, hidden in zip(texts, found, strict=True):
            options = {"clamp": 3, "pre": True} if mode.endswith("pre") else {}
            p.close(hidden, plain(model, text, segments, **options), 1e-10)


@pytest.mark.parametrize("mode", MODES)
def test_equals_the_loops(mode):
    equals_the_loops(mode)


@pytest.mark.parametrize("bug", ["shift", "distances", "memory not moved on", "memory one too short", "later token"])
def test_planted_bugs_are_noticed(bug, monkeypatch):
    if bug == "shift":
        monkeypatch.setattr(relative, "shift", lambda scores: scores)
    if bug == "distances":  # off by one everywhere, at the border of a segment too
        right = relative.sinusoids
        monkeypatch.setattr(relative, "sinusoids", lambda distance, dim: right(distance + 1, dim))
    if bug == "memory not moved on":
        right_remember = RelativeAttention.remember
        monkeypatch.setattr(
            RelativeAttention,
            "remember",
            lambda self, new, batch, state: right_remember(self, new.roll(1, 1), batch, state),
        )
    if bug == "memory one too short":
        right_one = RelativeAttention.remember

        def shorter(self, new, batch, state):
            after = right_one(self, new, batch, state)
            return after._replace(filled=(after.filled - 1).clamp(min=0))

        monkeypatch.setattr(RelativeAttention, "remember", shorter)
    if bug == "later token":
        attend = relative.kernels.attend

        def leaking(*given, visible, **options):
            return attend(*given, visible=lambda row, q, k: visible(row, q + 1, k), **options)

        monkeypatch.setattr(relative.kernels, "attend", leaking)
        noticed(p.causality, p.build("transformer-xl"), 0)
    noticed(equals_the_loops, "train")
    noticed(equals_the_loops, "eval")


def test_an_empty_memory_is_no_token(monkeypatch):
    """Zeros are not neutral: a model that looked at them would see something before the first token."""
    model, (text,) = build("train"), p.sequences(0, (4,))
    full = model(pack([text])).hidden
    p.close(model(pack([text]), state=model.start(1, 0)).hidden, full, 1e-12)
    start = RelativeAttention.start

    def filled(self, n, max_len):
        state = start(self, n, max_len)
        return state._replace(filled=state.filled + self.capacity)

    monkeypatch.setattr(RelativeAttention, "start", filled)
    noticed(p.close, model(pack([text]), state=model.start(1, 0)).hidden, full, 1e-3)


def test_without_memory_segments_do_not_see_each_other():
    model, texts = build("train", mem_len=0), p.sequences(0, (8, 8))
    halves = torch.stack([model(pack([text[:4], text[4:]])).hidden for text in texts])
    p.close(read(model, texts, (4, 4)), halves, 1e-12)


@torch.no_grad()
def test_long_texts_are_read_in_blocks(monkeypatch):
    """However many tokens look at their windows together, and however a text is cut."""
    model, texts = build("eval"), p.sequences(0, (40, 40))
    whole = read(model, texts, (40,))
    monkeypatch.setattr(relative, "BLOCK", 7)
    p.close(read(model, texts, (40,)), whole, 1e-12)
    p.close(read(model, texts, (3, 17, 1, 19)), whole, 1e-12)


def test_memory_reaches_back_by_layers():
    """What one layer remembers was computed from what it saw: two layers reach about twice as far."""
    model, (text,) = build("eval"), p.sequences(0, (30,))
    for t in range(30):
        changed = [*text[:t], (text[t] + 1) % p.VOCAB, *text[t + 1 :]]
        moved = (read(model, [changed], (10,) * 3) - read(model, [text], (10,) * 3)).abs().amax(-1)[0] > 0
        assert moved.nonzero().flatten().tolist() == list(range(t, min(30, t + 2 * 5 + 1)))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_no_gradient_into_the_memory_of_training(norm):
    p.segment_gradient(p.build("transformer-xl", norm=norm).train(), 0)


def test_a_planted_gradient_into_the_memory_is_noticed(monkeypatch):
    monkeypatch.setattr("seqloom.objectives.next_token.detach", lambda state: state)
    noticed(p.segment_gradient, p.build("transformer-xl").train(), 0)


def test_memory_learns_by_the_weights_of_now():
    """In training keys and values of the memory are made anew: the gradient of the weights is that of one longer segment."""
    model, (text,) = build("train", num_layers=1), p.sequences(0, (9,))
    learner, gradients = p.learner_of(model), []
    targets = torch.tensor([-100] * 5 + text[6:] + [0])
    learner(Excerpt(pack([text]), targets)).total.backward()
    gradients.append(model.stack.layers[0].mixer.qkv.weight.grad.clone())
    learner.zero_grad()
    carry = learner(Excerpt(pack([text[:5]]), targets[:5])).carry
    learner.zero_grad()
    learner(Excerpt(pack([text[5:]]), targets[5:]), carry).total.backward()
    p.close(model.stack.layers[0].mixer.qkv.weight.grad, gradients[0], 1e-10)


@torch.no_grad()
def test_ragged_segments_fill_their_own_memory():
    """Sequences that read unequal numbers of tokens remember each its own."""
    for mode in MODES:
        model, texts, state = build(mode), p.sequences(0, (11, 11, 11)), None
        state, done = model.start(3, 0), [0, 0, 0]
        for ends in ((2, 7, 4), (9, 7, 5), (11, 11, 11)):
            lengths = torch.tensor([end - begin for begin, end in zip(done, ends, strict=True)])
            ids = torch.tensor([i for t, b, e in zip(texts, done, ends, strict=True) for i in t[b:e]])
            output = model(ragged(ids, lengths), state=state)
            parts = output.hidden.split(lengths.tolist())
            for n in range(3):
                alone, own, at = [], model.start(1, 0), 0
                for end in [e[n] for e in ((2, 7, 4), (9, 7, 5), (11, 11, 11)) if e[n] <= ends[n]]:
                    if end > at:
                        found = model(pack([texts[n][at:end]]), state=own)
                        alone, own, at = found.hidden, found.state, end
                if lengths[n]:
                    p.close(parts[n], alone, 1e-12)
            state, done = output.state, list(ends)
        assert select(state, torch.tensor([2]))[0][0].filled.tolist() == [5]


@torch.no_grad()
def test_maps_with_a_state_are_by_distance():
    for mode in MODES:
        model, texts = build(mode), p.sequences(0, (9, 9))
        first = model(pack([text[:6] for text in texts]), state=model.start(2, 0))
        asked = model(pack([text[6:] for text in texts]), state=first.state, maps=True)
        assert asked.maps[0].shape == (6, 3, 5 + 3 if model.training else 6)
        p.close(asked.maps[0].sum(-1), torch.ones(6, 3).double(), 1e-12)
        whole = model(pack(texts), maps=True).maps[0]  # (2, H, 9, 9)
        if not model.training:
            p.close(asked.maps[0][1], whole[0, :, 7, 2:8], 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["post", "pre", "post-same-clamp"])
def test_equals_the_authors_code(mode):
    stored = np.load(FIXTURES / f"{mode}.npz")
    arrays = {name: torch.from_numpy(stored[name]) for name in stored.files}
    sizes = {"vocab_size": 23, "dim": 12, "num_layers": 2, "num_heads": 3, "ffn_dim": 20, "dropout": 0.0, "mem_len": 6}
    same = mode == "post-same-clamp"
    extra = {"eval_len": 6, "clamp_len": 5} if same else {"norm": mode}
    model = TransformerXl(TransformerXl.Config(**sizes, **extra)).double().train(not same)
    fill_from_authors(model, {name[2:]: value for name, value in arrays.items() if name.startswith("w|")})
    ids, state = arrays["ids"], model.start(2, 0)
    with torch.no_grad():
        for s in range(4):
            part = ids[4 * s : 4 * s + 4].T
            output = model(ragged(part.flatten(), torch.tensor([4, 4])), state=state)
            state = output.state
            hidden = output.hidden.view(2, 4, 12)
            p.close(hidden, arrays[f"segment{s}|hidden"].transpose(0, 1), 1e-6)
            scores = F.linear(hidden, model.table.weight, arrays["w|crit.out_layers.0.bias"])
            losses = F.cross_entropy(scores.flatten(0, 1), ids[4 * s + 1 : 4 * s + 5].T.flatten(), reduction="none")
            p.close(losses.view(2, 4), arrays[f"segment{s}|loss"].T, 1e-6)
            for layer in range(0 if same else 2):
                kept, filled = state.own[layer]
                expected = arrays[f"segment{s}|mem{layer}"].transpose(0, 1)
                assert filled.tolist() == [expected.shape[1]] * 2
                p.close(kept[:, 6 - expected.shape[1] :], expected, 1e-6)


def fill_from_authors(model, weights):
    model.table.weight.data.copy_(weights["word_emb.emb_layers.0.weight"])
    model.stack.positions.content.data.copy_(weights["r_w_bias"])
    model.stack.positions.position.data.copy_(weights["r_r_bias"])
    names = {
        "mixer.qkv.weight": "dec_attn.qkv_net.weight",
        "mixer.out.weight": "dec_attn.o_net.weight",
        "mixer.distance.weight": "dec_attn.r_net.weight",
        "mixer_norm.weight": "dec_attn.layer_norm.weight",
        "mixer_norm.bias": "dec_attn.layer_norm.bias",
        "ffn.up.weight": "pos_ff.CoreNet.0.weight",
        "ffn.up.bias": "pos_ff.CoreNet.0.bias",
        "ffn.down.weight": "pos_ff.CoreNet.3.weight",
        "ffn.down.bias": "pos_ff.CoreNet.3.bias",
        "ffn_norm.weight": "pos_ff.layer_norm.weight",
        "ffn_norm.bias": "pos_ff.layer_norm.bias",
    }
    for i, layer in enumerate(model.stack.layers):
        own = dict(layer.named_parameters())
        assert own.keys() == names.keys()
        for ours, theirs in names.items():
            own[ours].data.copy_(weights[f"layers.{i}.{theirs}"])


def test_a_model_without_memory_needs_a_length_for_evaluation():
    with pytest.raises(ValueError, match="eval_len must be given"):
        TransformerXl.Config(vocab_size=9, mem_len=0)


@pytest.mark.parametrize(("preset", "millions"), [("standard", 151), ("enwik8", 41)])
def test_published_sizes(preset, millions):
    """As the paper's tables have them, the output layer included."""
    vocabulary = TransformerXl.presets[preset]["vocab_size"]
    with torch.device("meta"):
        assert round(find_recipe(f"transformer-xl-{preset}").learner(vocabulary).size() / 1e6) == millions


def test_published_size_with_narrow_vectors():
    """Word by word of the authors' script: the tables, what widens them, what narrows for the head, biases and layers."""
    vocabulary, dim, cutoffs = 267_735, 1024, (20_000, 40_000, 200_000)
    recipe = find_recipe("transformer-xl-large", [f"model.cutoffs={list(cutoffs)}"])
    with torch.device("meta"):
        found = recipe.learner(vocabulary).size()
    widths, sizes = (1024, 256, 64, 16), (20_000, 20_000, 160_000, 67_735)
    words = sum(width * size for width, size in zip(widths, sizes, strict=True)) + dim * sum(widths)
    output = dim * dim + 3 * dim + vocabulary + 3
    layer = 5 * dim * dim + (2 * 4 * dim * dim + 5 * dim) + 4 * dim
    assert found == words + output + 18 * layer + 2 * dim


NARROW = {"narrow": 2, "cutoffs": (4, 9)}


@pytest.mark.parametrize(
    "holds",
    [p.every_gradient, p.initial_loss, p.all_ignored, p.accumulation, p.packing, p.causality],
    ids=lambda check: check.__name__,
)
def test_properties_with_narrow_vectors(holds, monkeypatch):
    learner_of = p.learner_of
    monkeypatch.setattr(p, "learner_of", lambda model: learner_of(model, tie=True, softmax="adaptive").train())
    holds(p.build("transformer-xl", 1, **NARROW), 1)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["objective.softmax=full"], "only an adaptive softmax can share"),
        (["objective.cutoffs=[7]"], r"'objective.cutoffs' = \[7\]: the embeddings have clusters at \[39, 98\]"),
        (
            ["model.cutoffs=[900]"],
            r"'model.cutoffs' = \[900\]: clusters begin at rising ranks above 0 and below .* 245",
        ),
    ],
)
def test_clusters_that_do_not_fit_are_refused(settings, problem):
    recipe = find_recipe("transformer-xl-tiny", ["model.narrow=4", "objective.softmax=adaptive", *settings])
    with pytest.raises(UsageError, match=problem):
        recipe.learner(245)


def test_narrow_vectors_are_shared_with_no_other_loss():
    recipe = find_recipe("transformer-xl-tiny", ["model.narrow=4", "task.lm=0.5"], task="classify")
    with pytest.raises(UsageError, match=r"set task\.lm_tie = false"):
        recipe.learner(245)


def test_narrow_vectors_are_not_read_from_a_file(tmp_path):
    (tmp_path / "vectors.txt").write_text("a 1 2\n")
    tokenizer = Tokenizer.train("word", ["a b a"])
    recipe = find_recipe("transformer-xl-tiny", ["model.narrow=4", "model.cutoffs=[1, 2]"], task="classify")
    with pytest.raises(UsageError, match=r"set model\.narrow=1"):
        vectors_from(tmp_path / "vectors.txt", tokenizer, recipe)


def written(learner, prompts, count):
    """What it finds most likely, token by token, with its memory; and what each token scored."""
    stepper = Stepper(learner.backbone, learner.softmax)
    found, scores, texts = stepper.start(prompts, 100), [], [list(prompt) for prompt in prompts]
    for _ in range(count):
        scores.append(found.scores)
        tokens = found.scores.argmax(1)
        positions = torch.tensor([len(text) for text in texts])
        texts = [[*text, int(token)] for text, token in zip(texts, tokens, strict=True)]
        found = stepper.step(tokens, positions, found.state)
    return texts, torch.stack(scores, 1)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_writing_with_a_memory_equals_reading_it_all(norm):
    """Beyond the window, too, where the memory has been filled and moved on several times."""
    learner = p.learner_of(p.build("transformer-xl", norm=norm, dtype=torch.float32)).eval()
    prompts = p.sequences(0, (3, 30, 1))
    texts, scores = written(learner, prompts, 40)
    for text, prompt, found in zip(texts, prompts, scores, strict=True):
        hidden = learner.backbone(pack([text[:-1]])).hidden[len(prompt) - 1 :]
        p.close(found, learner.softmax(hidden).float(), 1e-4)


@pytest.mark.parametrize("memory", [1, 6, 50])
def test_no_measurement_depends_on_how_a_text_is_cut(memory, monkeypatch):
    learner = p.learner_of(p.build("transformer-xl", eval_len=memory))
    split, found = random_corpus(2, 9, 90), []
    for chunk, tokens in ((256, 16384), (5, 12), (1, 3)):
        monkeypatch.setattr(measuring, "CHUNK", chunk)
        found.append(perplexity(learner, split, torch.device("cpu"), batch_tokens=tokens)["loss"])
    assert found == pytest.approx([found[0]] * 3, rel=1e-12)


def test_one_layer_measures_what_windows_do():
    """One layer sees its window and nothing behind it, as if it were read anew for every token, at a fraction of the work."""
    learner, split = p.learner_of(p.build("transformer-xl", num_layers=1, eval_len=7)), random_corpus(2, 5, 40)
    device = torch.device("cpu")
    recomputed = perplexity(learner, split, device, max_len=7, stride=1)["loss"]
    assert perplexity(learner, split, device)["loss"] == pytest.approx(recomputed, rel=1e-12)
    deeper = p.learner_of(p.build("transformer-xl", num_layers=2, eval_len=7))  # reaches further than its window
    recomputed = perplexity(deeper, split, device, max_len=7, stride=1)["loss"]
    assert perplexity(deeper, split, device)["loss"] != pytest.approx(recomputed, rel=1e-10)


@pytest.mark.long
def test_it_can_be_traced():
    learner = p.learner_of(p.build("transformer-xl"))
    texts = p.sequences(0, (9, 4))
    traced_equals_plain(learner, Excerpt(pack(texts), p.following(texts)))


def test_a_run(tmp_path, capsys):
    """Trained on streams, measured with its own and with other memories, and asked for what it cannot do."""
    data, small = prepared(tmp_path / "data", 300), ["model.dim=20", "batches.streams=4", "batches.length=16"]
    small += ["budget={steps=3}", "valid.limit=300"]
    pretrain("transformer-xl-tiny", data, tmp_path / "run", settings=[*small, "model.mem_len=8"], device="cpu")
    pretrain("lstm-tiny", data, tmp_path / "lstm", settings=small, device="cpu")
    losses = {memory: load(tmp_path / "run", "cpu", memory=memory).evaluate(data) for memory in (None, 16, 1)}
    assert losses[None]["loss"] == losses[16]["loss"] != losses[1]["loss"]
    assert [each["tokens_seen"] for each in losses.values()] == [16, 16, 1]
    capsys.readouterr()
    assert run(["evaluate", str(tmp_path / "run"), "--data", str(data), "--memory", "5"]) == 0
    assert "tokens_seen        5" in capsys.readouterr().out
    assert run(["evaluate", str(tmp_path / "lstm"), "--data", str(data), "--memory", "5"]) == 2
    assert "--memory 5 is for models with a memory" in capsys.readouterr().err
    assert run(["evaluate", str(tmp_path / "run"), "--data", str(data), "--memory", "0"]) == 2
    for wrong in ("model.mem_len=0", "model.mem_len=-1", "model.mem_len=9999999", "batches.length=0"):
        options = ["--data", str(data), "--out", str(tmp_path / "no"), "--set", wrong]
        assert run(["pretrain", "transformer-xl-tiny", *options]) == 2, wrong
    assert not (tmp_path / "no").exists()
