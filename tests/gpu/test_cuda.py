"""What only a GPU can show: the fast kernels equal the reference, compiled equals eager, resume is exact."""

import copy
import json

import pytest
import torch
import torch.nn.functional as F

from seqloom.batch import Excerpt, pack, to_device
from seqloom.batches.plan import Streams
from seqloom.blocks import kernels
from seqloom.blocks.cells import ElmanCell, GruCell, LstmCell
from seqloom.blocks.recurrent import fused, scan
from seqloom.training.gradient import Gradient, worth_compiling
from tests.contract import properties as p
from tests.corpus import random_corpus

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


@pytest.mark.parametrize("window", [None, 1, 5, 64])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [(64, 64), (31, 32, 33, 63, 64, 65, 1, 2), (1,), (300, 7)])
def test_varlen_equals_reference(lengths, causal, window):
    torch.manual_seed(0)
    batch = to_device(pack([[0] * n for n in lengths]), CUDA)
    batch = batch._replace(offsets=torch.cat((batch.offsets, batch.offsets[-1:])))  # and an empty one
    q, k, v = (
        torch.randn(sum(lengths), 4, 64, device=CUDA, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    out = kernels.varlen(q, k, v, batch, causal=causal, window=window)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected, _ = kernels.reference(*wide, batch, causal=causal, window=window)
    error = (out.double() - expected).norm() / expected.norm()
    assert error < 1e-2
    weight = torch.randn_like(expected)
    out.backward(weight.bfloat16())
    expected.backward(weight)
    for narrow, exact in zip((q, k, v), wide, strict=True):
        assert torch.isfinite(narrow.grad).all()
        assert (narrow.grad.double() - exact.grad).norm() <= 2e-2 * max(exact.grad.norm(), 1.0)


def test_varlen_is_what_training_takes():
    q = torch.randn(8, 4, 64, device=CUDA, dtype=torch.bfloat16)
    batch = to_device(pack([[0] * 5, [0] * 3]), CUDA)
    assert kernels.HAS_VARLEN
    assert torch.equal(kernels.attend(q, q, q, batch, causal=True)[0], kernels.varlen(q, q, q, batch, causal=True))
    windowed = kernels.attend(q, q, q, batch, causal=True, window=2)[0]
    assert kernels.HAS_WINDOWS and torch.equal(windowed, kernels.varlen(q, q, q, batch, causal=True, window=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
def test_biases_and_visibility_equal_the_reference(causal, dtype):
    """And the gradient of a bias, which is one for all sequences; a token that sees nothing is among them."""
    torch.manual_seed(0)
    batch = to_device(pack([[0] * n for n in (33, 7, 64)]), CUDA)
    q, k, v = (torch.randn(104, 4, 16, device=CUDA, dtype=dtype) for _ in range(3))
    bias = torch.randn(1, 4, 64, 64, device=CUDA, dtype=dtype)

    def given(kind):
        leaves = [x.detach().to(kind).requires_grad_() for x in (q, k, v, bias)]
        options = {"causal": causal, "window": 9, "visible": lambda n, i, j: ((i + j + n) % 3 > 0) & (i > 0)}
        return leaves, options | {"bias": leaves[3]}

    leaves, options = given(dtype)
    out, _ = kernels.attend(*leaves[:3], batch, **options)
    exact, options = given(torch.float64)
    expected, _ = kernels.reference(*exact[:3], batch, **options)
    bound = 1e-5 if dtype == torch.float32 else 3e-2
    assert (out.double() - expected).norm() <= bound * expected.norm()
    weight = torch.randn_like(expected)
    out.backward(weight.to(dtype))
    expected.backward(weight)
    for narrow, right in zip(leaves, exact, strict=True):
        assert torch.isfinite(narrow.grad).all()
        assert (narrow.grad.double() - right.grad).norm() <= bound * right.grad.norm()


@pytest.mark.parametrize(
    "cell", [LstmCell(32, 48), GruCell(32, 48), LstmCell(32, 64, 48)], ids=["lstm", "gru", "projected"]
)
def test_fused_recurrence_equals_the_loop(cell):
    cell = cell.double().to(CUDA)
    for lengths in ((9, 9, 9), (5, 1, 12)):
        batch = to_device(pack([[0] * n for n in lengths]), CUDA)
        x = torch.randn(sum(lengths), 32, device=CUDA, dtype=torch.float64)
        hidden, (state,) = fused([cell], x, batch, [None])
        looped, final, _ = scan(cell, x, batch)
        torch.testing.assert_close(hidden, looped, rtol=0, atol=1e-10)
        for a, b in zip(state, final, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("cell", [LstmCell, GruCell, ElmanCell])
@pytest.mark.parametrize("full", [True, False])
def test_recurrences_compute_in_the_format_that_was_asked_for(cell, full):
    """fp16 ends at 65,504: a gradient beyond it would become infinite."""
    made = cell(16, 24).to(CUDA)
    batch = to_device(pack([[1] * (9 if full or i else 5) for i in range(4)]), CUDA)
    x = torch.randn(batch.owner.shape[0], 16, device=CUDA, requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        out, _ = fused([made], x, batch, [None])
    assert out.dtype == torch.bfloat16
    (out.float() * 1e7).sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all() and x.grad.abs().max() > 65_504
    plain, _ = fused([made], x, batch, [None])
    torch.testing.assert_close(out.float(), plain, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("name", [name for name in p.SMALL if name in p.NEURAL])
def test_compiled_equals_eager(name):
    learner = p.learner_of(p.build(name, dtype=torch.float32)).to(CUDA).train()  # cuDNN needs it; dropout is 0
    texts = p.sequences(0)
    example = to_device(Excerpt(pack(texts), p.following(texts)), CUDA)
    compiled = torch.compile(learner)
    eager = learner(example)
    eager.total.backward()
    expected = [x.grad.clone() for x in learner.parameters()]
    learner.zero_grad()
    fast = compiled(example)
    fast.total.backward()
    torch.testing.assert_close(eager.total, fast.total, rtol=1e-4, atol=1e-3)
    for parameter, gradient in zip(learner.parameters(), expected, strict=True):
        assert gradient.norm() > 0
        assert (parameter.grad - gradient).norm() <= 1e-3 * gradient.norm(), "compiled gradients differ"
    learner.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        half = compiled(example)
    half.total.backward()
    torch.testing.assert_close(eager.total, half.total.float(), rtol=2e-2, atol=1.0)
    assert all(torch.isfinite(x.grad).all() and x.grad.norm() > 0 for x in learner.parameters())


@pytest.mark.parametrize("recipe", ["lstm-tiny", "awd-lstm-tiny", "big-lstm-tiny", "gpt2-tiny"])
def test_resume_is_exact_in_deterministic_mode(recipe, tmp_path, monkeypatch):
    from seqloom.errors import Interrupted
    from seqloom.runs.training import pretrain
    from seqloom.training.loop import Fit
    from tests.training.material import prepared

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    data = prepared(tmp_path / "data")
    settings = ["budget={steps=40}", "train.save_every=10", "train.eval_every=15", "train.compile=false"]
    whole = pretrain(recipe, data, tmp_path / "whole", settings=settings, deterministic=True)
    save = Fit.save

    def stops(fit):
        save(fit)
        if fit.state.step == 20:
            raise Interrupted("here")

    monkeypatch.setattr(Fit, "save", stops)
    with pytest.raises(Interrupted):
        pretrain(recipe, data, tmp_path / "broken", settings=settings, deterministic=True)
    monkeypatch.setattr(Fit, "save", save)
    again = pretrain(recipe, data, tmp_path / "broken", settings=settings, deterministic=True, resume=True)
    assert p.digest(whole.learner.cpu()) == p.digest(again.learner.cpu())
    one, two = (json.loads((run.folder / "metrics.json").read_text()) for run in (whole, again))
    assert one["valid_loss"] == two["valid_loss"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [16, 24, 64])
def test_one_token_kernel_equals_the_reference(dtype, width):
    """Attention of one new token over a static cache, sequences of different lengths, q, k and v parts of one matrix."""
    torch.manual_seed(0)
    n, heads, capacity = 5, 3, 200
    positions = torch.tensor([0, 1, 63, 64, 199], device=CUDA)
    past = torch.randn(n, capacity, 2, heads, width, device=CUDA, dtype=dtype)
    qkv = torch.randn(n, 3, heads, width, device=CUDA, dtype=dtype)
    held = past.clone()
    out = kernels.one_token_kernel()(qkv, held, positions)
    for i, last in enumerate(positions.tolist()):
        q, keys, values = qkv[i, 0].double(), *torch.cat((past[i, :last], qkv[i : i + 1, 1:])).double().unbind(1)
        weights = (torch.einsum("he,lhe->hl", q, keys) / width**0.5).softmax(1)
        expected = torch.einsum("hl,lhe->he", weights, values)
        limit = 1e-5 if dtype == torch.float32 else 2e-2
        assert (out[i].double() - expected).abs().max() < limit
        assert torch.equal(held[i, last], qkv[i, 1:])
        assert torch.equal(held[i, last + 1 :], past[i, last + 1 :]) and torch.equal(held[i, :last], past[i, :last])
    same = (
        torch.full((1,), 63, device=CUDA)[:, None].expand(-1, n).flatten()
    )  # one number in memory, as in a beam of one source
    assert torch.equal(
        kernels.one_token_kernel()(qkv, past.clone(), same),
        kernels.one_token_kernel()(qkv, past.clone(), same.contiguous()),
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(64, 768, 2304), (64, 3072, 768), (3, 100, 77), (130, 1000, 16), (1, 64, 40), (20, 64, 9000)]
)
def test_few_rows_kernel_is_as_exact_as_fp32(shape, bias):
    torch.manual_seed(0)
    n, reads, gives = shape
    x, weight = torch.randn(n, reads, device=CUDA), torch.randn(gives, reads, device=CUDA)
    shift = torch.randn(gives, device=CUDA) if bias else None
    exact = torch.nn.functional.linear(x.double(), weight.double(), None if shift is None else shift.double())
    ours = kernels.few_rows_kernel()(x, weight, shift)
    assert ((ours - exact).abs() <= 1e-6 * (x.abs() @ weight.abs().T + 1)).all()
    rough = torch.nn.functional.linear(x.bfloat16(), weight.bfloat16()).double() + (0 if shift is None else shift)
    assert not ((rough - exact).abs() <= 1e-6 * (x.abs() @ weight.abs().T + 1)).all(), "the bound is too wide"


@pytest.mark.parametrize("name", [*(name for name in p.SMALL if name in p.NEURAL), "gpt2-window"])
def test_graphed_steps_equal_full_forwards(name):
    """Greedy and drawn texts on the GPU are those of the CPU, samples that end early included."""
    from seqloom.decode.rules import SampleConfig
    from seqloom.decode.sample import sample
    from seqloom.decode.step import Stepper

    # recurrences of such weights are chaotic: only in fp64 two devices say the same for so long
    dtype = torch.float32 if name.startswith("gpt") else torch.float64
    learner = p.learner_of(p.build(name, dtype=dtype), tie=False)
    with torch.no_grad():
        for parameter in learner.backbone.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
        learner.softmax.weight.mul_(50)
    prompts = p.sequences(3, (7, 3, 12, 5, 1, 2))
    stepper = Stepper(learner.backbone, learner.softmax)
    endless = sample(stepper, prompts, SampleConfig(max_new=30, temperature=0), 4, -1, [])
    end = next(d.token for d in endless if d.sample == 1 and d.token not in prompts[1])  # so that some sample ends
    for options in ({"temperature": 0.0}, {"temperature": 1.0, "no_repeat": 2, "repetition_penalty": 1.2}):
        made = []
        for device in ("cpu", "cuda"):
            here = learner.to(device)
            stepper = Stepper(here.backbone, here.softmax)
            config = SampleConfig(max_new=60, **options)
            made.append([(d.sample, d.token, d.last) for d in sample(stepper, prompts, config, 4, end, [])])
        assert made[0] == made[1]
        assert len(made[0]) < 6 * 60, "no sample ended early: the test says less than it should"


@pytest.mark.parametrize("name", ["gpt2", "gpt2-window", "lstm", "translation", "ensemble"])
def test_recorded_beams_equal_those_of_the_cpu(name):
    """Model, choice and bookkeeping in one graph; sources that leave, caches that grow, a second call with other shapes."""
    from seqloom.decode.rules import BeamConfig
    from seqloom.decode.search import Search
    from seqloom.decode.step import Ensemble, Stepper
    from tests.decode.test_search import sharpened, translator

    config = BeamConfig(beam=4, n_best=3, max_new=80, no_repeat=3, min_new=2, length_penalty=0.6, groups=2)
    results = []
    for device in ("cpu", "cuda"):
        if name in ("gpt2", "gpt2-window", "lstm"):
            learner = sharpened(name).double().to(device)
            stepper, encode = Stepper(learner.backbone, learner.softmax), lambda texts: None
        else:
            models = [translator(seed) for seed in (range(2) if name == "ensemble" else range(1))]
            models = [(model.double().to(device), softmax.double().to(device)) for model, softmax in models]
            steppers = [Stepper(model.decoder, softmax, align=True) for model, softmax in models]
            stepper = steppers[0] if name == "translation" else Ensemble(steppers)

            def encode(texts, models=models, device=device):
                with torch.inference_mode():
                    contexts = [model.encode(to_device(pack(texts), torch.device(device))) for model, _ in models]
                return contexts[0] if len(contexts) == 1 else contexts

        search, found = Search(stepper, config, 0, [1]), []
        for lengths in ((5, 12, 3, 3, 9, 1), (4, 2), (5, 12, 3, 3, 9, 1)):
            texts = p.sequences(sum(lengths), lengths)
            context = encode(texts)
            found += search.run(texts if context is None else [[1]] * len(texts), context, None)
        results.append(found)
    for ours, theirs in zip(*results, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a.score == pytest.approx(b.score, rel=1e-4)
            if a.alignment is not None:
                torch.testing.assert_close(a.alignment, b.alignment, rtol=1e-3, atol=1e-4)
    # a window of seven tokens makes this model say less
    assert len({len(h.tokens) for hypotheses in results[0] for h in hypotheses}) > (1 if name == "gpt2-window" else 2)


@pytest.mark.parametrize("name", ["gpt2", "translation"])
def test_beams_of_one_source_equal_those_of_the_cpu(name):
    """In fp32, where a kernel of our own attends: one source alone, and beside another."""
    from seqloom.decode.rules import BeamConfig
    from seqloom.decode.search import beam_search
    from seqloom.decode.step import Stepper
    from tests.decode.test_search import sharpened, translator

    config, found = BeamConfig(beam=4, n_best=1, max_new=20), []
    for device, together in (("cpu", False), ("cuda", False), ("cuda", True)):
        texts = p.sequences(17, (5, 12))
        for part in [texts] if together else [[text] for text in texts]:
            if name == "gpt2":
                learner = sharpened(name).to(device)
                stepper, context, prompts = Stepper(learner.backbone, learner.softmax), None, part
            else:
                model, softmax = (each.to(device) for each in translator(0))
                with torch.inference_mode():
                    context = model.encode(to_device(pack(part), torch.device(device)))
                stepper, prompts = Stepper(model.decoder, softmax), [[1]] * len(part)
            found += [best[0].tokens for best in beam_search(stepper, prompts, config, 0, [1], context)]
    assert found[:2] == found[2:4] == found[4:]


def test_counts_on_the_gpu_equal_those_on_the_cpu(tmp_path):
    from seqloom.runs.load import load
    from seqloom.runs.training import pretrain
    from tests.training.material import prepared

    data = prepared(tmp_path / "data")
    fast = pretrain("ngram-small", data, tmp_path / "run", device="cuda")
    plain = load(tmp_path / "run", "cpu")
    assert fast.evaluate(data)["loss"] == pytest.approx(plain.evaluate(data)["loss"], rel=1e-12)
    one, two = (run.generate("the cat", n=5, max_new=20, seed=3) for run in (fast, plain))
    assert [sample.text for sample in one] == [sample.text for sample in two]


@pytest.mark.parametrize("name", [*p.NEURAL, "big-lstm, sampled"])
def test_recorded_steps_equal_plain_ones(name):
    """Losses, gradients and carried states over several batches, dropout included, the states of the batch before read."""
    name, _, layer = name.partition(", ")
    base = p.VARIANTS.get(name, (name,))[0]
    extra = {"dropout": 0.3} if base != "ngram" else {}
    model = p.build(name, dtype=torch.float32, **extra)
    learner = p.learner_of(model, tie=False, softmax=layer or "full", samples=20).to(CUDA).train()
    with torch.no_grad():  # the gradients of a sum that forgets nothing overflowed in the recurrent kernel otherwise
        learner.softmax.weight.mul_(0.1)
    # a shape is recorded when it comes again; where lengths alternate, what one graph hands on is read by another
    sizes = [32] * 5 if worth_compiling(learner, CUDA) else [32, 20, 32, 20, 32, 27, 20, 27, 32]
    results = []
    for recorded in (False, True):
        learner = copy.deepcopy(learner)  # gradients remember the stream on which a parameter was first used
        differentiate = Gradient(learner, "bf16", CUDA, worth_compiling(learner, CUDA), recorded)
        carry, seen = learner.start(3), []
        for i, size in enumerate(sizes):
            texts = p.sequences(i, (size,) * 3)
            example = to_device(Excerpt(pack(texts), p.following(texts)), CUDA)
            torch.manual_seed(i)
            learner.zero_grad()
            loss = differentiate(example, carry)
            carry = (
                None
                if carry is None
                else torch.utils._pytree.tree_map(
                    lambda t: t.clone().float() if t.is_floating_point() else t.clone(), loss.carry
                )
            )
            seen.append((float(loss.total), [x.grad.clone() for x in learner.parameters()]))
        results.append(seen)
    for (plain, plain_gradients), (fast, fast_gradients) in zip(*results, strict=True):
        assert fast == pytest.approx(plain, rel=1e-3)
        for a, b in zip(plain_gradients, fast_gradients, strict=True):
            assert (a - b).norm() <= 2e-2 * a.norm() + 1e-4


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "irnn", "nnlm", "jordan", "awd-lstm"])
def test_recorded_streams_with_reset_equal_those_of_the_cpu(name, monkeypatch):
    """Documents of many lengths: shapes come again and are replayed with other borders and other states."""
    monkeypatch.setattr(
        torch.backends.cudnn, "allow_tf32", False
    )  # its 10 bits are too few to compare an IRNN's gradients by
    learner = p.learner_of(p.build(name, dtype=torch.float32), tie=False).train()
    plan = Streams(random_corpus(3, 300, 25), 4, 16, reset=True).plan(0, 0)
    results = []
    for device in (torch.device("cpu"), CUDA):
        ours = copy.deepcopy(learner).to(device)
        differentiate = Gradient(ours, "fp32", device, False, device.type == "cuda")
        carry, seen = ours.start(4), []
        for i in range(40):
            ours.zero_grad()
            loss = differentiate(to_device(plan.batch(i), device), carry)
            carry = torch.utils._pytree.tree_map(lambda t: t.clone(), loss.carry)
            seen.append((float(loss.total), [x.grad.cpu().clone() for x in ours.parameters()]))
        results.append(seen)
        assert device.type == "cpu" or len(differentiate.graphs) > 2
    for (plain, plain_gradients), (fast, fast_gradients) in zip(*results, strict=True):
        assert fast == pytest.approx(plain, rel=1e-4)
        for a, b in zip(plain_gradients, fast_gradients, strict=True):
            assert (a - b).norm() <= 1e-2 * a.norm() + 1e-4


@pytest.mark.parametrize("make", [LstmCell, GruCell])
def test_gates_on_the_gpu_equal_the_loop_on_the_cpu(make):
    from seqloom.blocks.recurrent import gated

    torch.manual_seed(0)
    cell = make(32, 48)
    batch, x = pack([[0] * 9] * 5), torch.randn(45, 32)
    plain, _, plain_gates = scan(cell, x, batch, gates=True)
    (plain.square().sum() + plain_gates.sum()).backward()
    expected = [parameter.grad.clone() for parameter in cell.parameters()]
    cell.zero_grad()
    cell = cell.to(CUDA)
    hidden, _, gates = gated(cell, x.to(CUDA), to_device(batch, CUDA), None)
    (hidden.square().sum() + gates.sum()).backward()
    torch.testing.assert_close(hidden.cpu(), plain, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gates.cpu(), plain_gates, rtol=1e-4, atol=1e-4)
    for parameter, gradient in zip(cell.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), gradient, rtol=1e-3, atol=1e-3)


def test_adaptive_softmax_on_the_gpu_equals_the_one_on_the_cpu():
    from seqloom.blocks.adaptive import AdaptiveSoftmax

    torch.manual_seed(0)
    layer = AdaptiveSoftmax(32, p.VOCAB, (10, 30), bias=True).double()
    layer.init_weights(std=0.5)
    layer.set_vocabulary(p.Words())
    hidden, targets = torch.randn(200, 32).double(), torch.randint(0, p.VOCAB, (200,))
    targets[::7] = -100
    found = []
    for device in ("cpu", "cuda"):
        here, states = copy.deepcopy(layer).to(device), hidden.clone().to(device).requires_grad_()
        total = here(states, targets.to(device))
        total.backward()
        gradients = [states.grad, *(parameter.grad for parameter in here.parameters())]
        assert all(gradient.norm() > 0 for gradient in gradients)
        with torch.no_grad():
            others = [here(states), here(states, targets.to(device), each=True)]
        assert others[0].exp().sum(1).sub(1).abs().max() < 1e-12
        found.append([x.detach().cpu() for x in (total, *others, *gradients)])
    for plain, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("vocab", [1003, 1024])
def test_bf16_loss_of_any_vocabulary_is_that_of_fp64(vocab):
    """Odd vocabularies are computed with spare rows of the weight, which count for nothing."""
    from seqloom.blocks.softmax import Softmax

    torch.manual_seed(0)
    layer = Softmax(64, vocab, bias=True).cuda()
    layer.init_weights(0.1)
    hidden = torch.randn(500, 64, device="cuda", requires_grad=True)
    targets = torch.randint(vocab, (500,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        total = layer(hidden, targets, smoothing=0.1)
    ours = torch.autograd.grad(total, (hidden, layer.weight, layer.bias))
    wide = [x.detach().double().requires_grad_() for x in (hidden, layer.weight, layer.bias)]
    expected = F.cross_entropy(F.linear(*wide), targets, reduction="sum", label_smoothing=0.1)
    assert abs(total.item() / expected.item() - 1) < 1e-3
    for a, b in zip(ours, torch.autograd.grad(expected, wide), strict=True):
        assert (a - b).norm() < 0.01 * b.norm()


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("awd-lstm-tiny", ["train.optim.name=adamw", "train.optim.lr=4e-3"]),  # a rate of 30 is for thousands of words
        ("big-lstm-tiny", []),
        ("big-lstm-tiny", ["objective.softmax=adaptive"]),
        ("big-lstm-tiny", ["objective.softmax=sampled", "objective.samples=20"]),
    ],
)
def test_large_vocabulary_and_dropped_models_learn_on_the_gpu(recipe, settings, tmp_path):
    """And what was learnt there says the same on the CPU, whole and step by step."""
    from seqloom.runs.load import load
    from seqloom.runs.training import pretrain
    from tests.training.material import prepared

    data = prepared(tmp_path / "data")
    settings = ["budget={steps=300}", "train.eval_every=100", "train.schedule.warmup=5", *settings]
    fast = pretrain(recipe, data, tmp_path / "run", settings=settings, device="cuda")
    metrics = json.loads((fast.folder / "metrics.json").read_text())
    assert metrics["valid_loss"] < 0.7 * fast.learner.initial_loss() and not metrics["skipped"]
    plain = load(tmp_path / "run", "cpu")
    assert fast.evaluate(data)["loss"] == pytest.approx(plain.evaluate(data)["loss"], rel=1e-3)
    one, two = (run.generate("the cat", n=3, max_new=12, temperature=0) for run in (fast, plain))
    assert [sample.text for sample in one] == [sample.text for sample in two]
