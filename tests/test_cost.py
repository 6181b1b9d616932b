"""Our counts against torch's own counter, run on the reference path of plain matrix products."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from seqloom import cost
from seqloom.batch import IGNORE, Excerpt, Sizes, pack
from seqloom.blocks import kernels, recurrent
from seqloom.blocks.adaptive import Cluster
from seqloom.blocks.softmax import Softmax
from seqloom.cost import Flops, co2_kg, pairs_within, peak_of, total
from tests.contract.properties import NEURAL, VOCAB, Words, build, following, learner_of, sequences


def plain_loss(self, hidden, targets, rows, smoothing=0.0, weights=None):
    return F.cross_entropy(F.linear(hidden, self.weight, self.bias), targets, ignore_index=IGNORE, reduction="sum")


def within(q, k, v, batch, window):
    """Each token over those that a window reaches on both sides, and no others: causal attention is counted as if it were not."""
    out = []
    for t, owner in enumerate(batch.owner.tolist()):
        begin, end = batch.offsets[owner : owner + 2].tolist()
        near = slice(max(begin, t - window + 1), min(end, t + window))
        weights = (q[t, :, None] @ k[near].permute(1, 2, 0)).softmax(-1)  # (H, 1, ·)
        out.append(weights @ v[near].transpose(0, 1))
    return torch.stack(out).squeeze(2)


def plain_products(monkeypatch):
    """The same arithmetic without fused kernels, which torch's counter cannot see into."""

    def attend(q, k, v, batch, *, causal, keys=None, window=None, bias=None, **_):
        if window is not None:
            return within(q, k, v, batch, window), None
        return kernels.reference(q, k, v, batch, causal=causal, keys=keys, bias=bias)

    monkeypatch.setattr(kernels, "attend", attend)
    monkeypatch.setattr(Softmax, "summed", plain_loss)
    monkeypatch.setattr(recurrent, "has_kernel", lambda cell: False)


class Told(Words):
    """The frequencies are those of the very targets: what is expected of them is what happens."""

    def __init__(self, example):
        self.targets = example.targets[example.targets != IGNORE]

    def counts(self):
        return torch.bincount(self.targets, minlength=VOCAB)


def ratio(name: str, monkeypatch, training: bool, model=None, **config) -> float:
    plain_products(monkeypatch)
    learner = learner_of(build(name, dtype=torch.float32, **model or {}), **config).train()
    texts = sequences(0, (32, 32, 32))  # equal lengths: the counter would count the empty cells of a grid
    example = Excerpt(pack(texts), following(texts))
    learner.set_vocabulary(Told(example))
    with FlopCounterMode(display=False) as counter:
        carry = learner.start(3)
        if training:
            learner(example, carry).total.backward()
        else:
            with torch.no_grad():
                learner(example, carry)
    part = total(learner)
    ours = (part.training if training else part.forward)(Sizes(96, 3 * 32 * 32, 96, 96, lengths=(32,) * 3))
    return ours / counter.get_total_flops()


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("name", NEURAL)
def test_within_one_percent_of_torch(name, training, monkeypatch):
    # of a memory the forward pass is counted a little low, so that training, which budgets are made of, is right
    limit = 0.06 if name.startswith("transformer-xl") and not training else 0.01
    assert ratio(name, monkeypatch, training) == pytest.approx(1, abs=limit)


def test_narrow_word_vectors_within_one_percent_of_torch(monkeypatch):
    """Every cluster is widened for every token, whichever it is of."""
    narrow = {"narrow": 2, "cutoffs": (4, 9)}
    found = ratio("transformer-xl", monkeypatch, True, narrow, softmax="adaptive", tie=True)
    assert found == pytest.approx(1, abs=0.01)


def test_a_planted_memory_that_is_not_counted_is_noticed(monkeypatch):
    each = lambda m: Flops(pair=6 * m.num_heads * m.head_dim)  # noqa: E731
    monkeypatch.setitem(cost.PARTS, cost.RelativeAttention, ("attention", each))
    assert ratio("transformer-xl", monkeypatch, True) != pytest.approx(1, abs=0.01)


def test_planted_layers_that_are_not_computed_anew_are_noticed(monkeypatch):
    monkeypatch.setattr(Flops, "computed_anew", lambda part: part)
    assert ratio("reformer", monkeypatch, True) != pytest.approx(1, abs=0.01)


def test_planted_hashes_with_a_gradient_are_noticed(monkeypatch):
    name, measure = cost.PARTS[cost.LshAttention]
    parts = lambda m: measure(m)._replace(once=0, token=measure(m).once)  # noqa: E731
    monkeypatch.setitem(cost.PARTS, cost.LshAttention, (name, parts))
    assert ratio("reformer", monkeypatch, True, {"buckets": (16,)}) != pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("window", [1, 2, 8, 31, 32, 33, 500])
def test_windows_within_one_percent_of_torch(window, monkeypatch):
    assert ratio("gpt2", monkeypatch, False, {"window": window, "head_dim": 64}) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("window", [1, 2, 5, 6, 7, 100])
def test_pairs_of_a_window(window):
    lengths = (1, 5, 6, 7, 40)
    near = [abs(i - j) < window for length in lengths for i in range(length) for j in range(length)]
    assert pairs_within(window, lengths) == sum(near)
    sums = sum(2 * min(i, window) - 1 for length in lengths for i in range(1, length + 1))
    assert sums == sum(near)


def test_a_window_that_hides_nothing_costs_what_none_costs():
    texts = sequences(0, (31, 32, 5))
    sizes = Excerpt(pack(texts), torch.cat([torch.tensor(text) for text in texts])).sizes()
    full, wide, narrow = (total(build("gpt2", window=window)).training(sizes) for window in (None, 32, 31))
    assert full == wide > narrow


def test_planted_window_that_is_not_counted_is_noticed(monkeypatch):
    each = lambda m: Flops(pair=4 * m.num_heads * m.head_dim)  # noqa: E731
    monkeypatch.setitem(cost.PARTS, cost.SelfAttention, ("attention", each))
    assert ratio("gpt2", monkeypatch, False, {"window": 8}) != pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_an_untied_output_layer_costs_the_same(name, monkeypatch):
    assert ratio(name, monkeypatch, True, tie=False) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize(
    "config",
    [{"softmax": "adaptive"}, {"softmax": "adaptive", "cutoffs": (3, 9, 40)}, {"softmax": "sampled", "samples": 20}],
)
@pytest.mark.parametrize("name", ["lstm", "big-lstm"])
def test_large_vocabularies_within_one_percent(name, config, training, monkeypatch):
    assert ratio(name, monkeypatch, training, tie=False, **config) == pytest.approx(1, abs=0.01)


def test_planted_clusters_that_everyone_pays_for_are_noticed(monkeypatch):
    monkeypatch.setattr(Cluster, "multiplied", property(lambda m: m.weight.numel() + m.down.numel()))
    assert ratio("lstm", monkeypatch, True, tie=False, softmax="adaptive") != pytest.approx(1, abs=0.01)


def test_planted_double_count_is_noticed(monkeypatch):
    name, measure = cost.PARTS[cost.SelfAttention]
    monkeypatch.setitem(cost.PARTS, cost.SelfAttention, (name, lambda m: Flops(*(2 * x for x in measure(m)))))
    assert ratio("gpt2", monkeypatch, True) != pytest.approx(1, abs=0.01)


def test_by_hand():
    """GPT-2 small: 2 · 12 · 12 · 768² a token in its layers, the well-known count."""
    from seqloom.models.gpt2 import Gpt2
    from seqloom.objectives.next_token import NextToken

    with torch.device("meta"):
        learner = NextToken(Gpt2(Gpt2.Config(**Gpt2.presets["small"])), NextToken.Config())
    assert total(learner) == Flops(token=2 * 12 * 12 * 768**2, pair=4 * 768 * 12, target=2 * 768 * 50257)


def test_counting_has_no_products():
    from seqloom.recipes.library import find_recipe

    assert total(find_recipe("ngram-tiny").learner(100)) == Flops()


def test_energy_and_co2():
    meter = cost.EnergyMeter(cuda=False)
    assert meter.joules(3600) == meter.WATTS_PER_CORE * meter.cores * 3600
    assert meter.method.startswith("estimate")
    assert co2_kg(1, "FR") < co2_kg(1, "world") == co2_kg(1, "nowhere")
    assert peak_of("NVIDIA H200") == 989e12 and peak_of("unknown") is None


class FakeDevice:
    """A clock, and a device that uses 100 W while any job has it."""

    def __init__(self, monkeypatch, path):
        self.now, self.used = 0.0, 0.0
        monkeypatch.setattr(cost.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(cost.EnergyMeter, "_counter", staticmethod(lambda: (lambda: self.used, "a counter")))
        monkeypatch.setattr(cost, "SHARED", cost.DeviceLog(path))
        self.meters = {}

    def pass_time(self, seconds):
        self.now, self.used = self.now + seconds, self.used + 100 * seconds

    def begin(self, job):
        cost.SHARED.note(job, "begin", self.used)
        self.meters[job] = cost.EnergyMeter(cuda=True), self.now

    def end(self, job, killed=False):
        meter, since = self.meters[job]
        found = meter.joules(self.now - since), meter.device_seconds(self.now - since)
        cost.SHARED.note(job, "end", None if killed else self.used)
        return found


def check_shares(monkeypatch, path):
    """Ten seconds alone, twenty together, five alone: what is charged adds up to what the device has used."""
    device = FakeDevice(monkeypatch, path)
    device.begin(1)
    device.pass_time(10)
    device.begin(2)
    device.pass_time(20)
    first = device.end(1)
    device.pass_time(5)
    second = device.end(2)
    assert first == pytest.approx((2000, 20)) and second == pytest.approx((1500, 15))
    assert first[0] + second[0] == pytest.approx(device.used) and first[1] + second[1] == pytest.approx(device.now)


def test_jobs_at_the_same_time_share_the_device(monkeypatch, tmp_path):
    check_shares(monkeypatch, tmp_path / "device.log")
    assert "divided equally" in cost.EnergyMeter(cuda=True).method


def test_planted_device_charged_whole_to_every_job_is_noticed(monkeypatch, tmp_path):
    monkeypatch.setattr(
        cost.DeviceLog, "share", lambda self, since, until, joules=(0, 0): (until - since, joules[1] - joules[0])
    )
    with pytest.raises(AssertionError):
        check_shares(monkeypatch, tmp_path / "device.log")


def test_a_job_that_was_killed_leaves_the_device(monkeypatch, tmp_path):
    device = FakeDevice(monkeypatch, tmp_path / "device.log")
    device.begin(1)
    device.begin(2)
    device.pass_time(10)
    device.end(2, killed=True)
    device.pass_time(10)
    assert device.end(1) == pytest.approx((1500, 15))


def test_one_job_has_all_of_it(monkeypatch, tmp_path):
    """Also where the log is gone, or damaged."""
    for text in (None, "{", "[]\n"):
        device = FakeDevice(monkeypatch, tmp_path / "device.log")
        device.begin(1)
        device.pass_time(10)
        if text is None:
            (tmp_path / "device.log").unlink()
        else:
            (tmp_path / "device.log").write_text(text)
        assert device.end(1) == pytest.approx((1000, 10))
        (tmp_path / "device.log").unlink()
