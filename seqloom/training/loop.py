"""The training loop, for every learner. It knows examples, sums and counts; models, data and precision come from outside.

Everything random in step s is drawn from a generator seeded with (seed, s), everything that moves is in the checkpoint:
a run that was killed and resumed ends with the same bits as one that was not.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.utils import _pytree as pytree

from seqloom import cost
from seqloom.batch import Learner, State, exact, to_device
from seqloom.batches.loader import Cursor, Item, Loader
from seqloom.config import Config
from seqloom.errors import Interrupted, ModelError, NumbersError, OutOfMemory, is_out_of_memory
from seqloom.progress import Progress, human, say
from seqloom.randomness import derive_seed
from seqloom.training import checkpoint as checkpoints
from seqloom.training.average import Averages, is_time
from seqloom.training.checkpoint import Checkpoint
from seqloom.training.gradient import Gradient, worth_compiling, worth_recording
from seqloom.training.interrupt import Interruption
from seqloom.training.log import MetricsLog, NoLog, OnLog
from seqloom.training.optim import OptimConfig, build_optimizer, load_named_state, named_state, state_like, step
from seqloom.training.precision import choose_precision
from seqloom.training.ranks import Ranks, Several, Sums, check_parts, is_of_network, other_rank_left
from seqloom.training.schedule import ScheduleConfig, rate_factor
from seqloom.training.shard import Sharded, Weights, check_shards
from seqloom.training.share import Share, share_of
from seqloom.training.state import Budget, Milestone, StateDict, TrainState, train_state_of
from seqloom.weights import fill, unique

MAX_SKIPS = 10  # steps in a row without a finite gradient before the run is given up
DIVERGED = 2.0  # nats above the first loss

SMALLER = (
    "out of memory: take smaller batches and more of them a step (--set batches.budget=… or batches.streams=…, "
    "--set train.accumulate=…), a shorter context, or a smaller model"
)


class TrainConfig(Config):
    optim: OptimConfig = Field(OptimConfig(), description="Settings of the optimizer.")
    schedule: ScheduleConfig = Field(ScheduleConfig(), description="Settings of the learning-rate schedule.")
    accumulate: int = Field(1, ge=1, description="Batches whose gradients are added up for one step.")
    shard: bool = Field(
        False,
        description="Give each of several processes a share of the weights, gradients and optimizer (FSDP2), for models that do "
        "not fit one device.",
    )
    parts: int = Field(
        1,
        ge=1,
        description="Blocks into which the rows of a batch of streams are divided, for several processes to share.",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="Number format of the matrix products; auto: bf16 on GPUs that have it, fp16 with a scaled loss on GPUs "
        "whose tensor cores have no bf16, else fp32.",
    )
    compile: bool | Literal["auto"] = Field(
        "auto",
        description="Compile the model with torch.compile; auto: on CUDA, where it helps and the run is long enough.",
    )
    record: bool = Field(True, description="Replay training steps as CUDA graphs where that is possible.")
    log_every: int = Field(10, ge=1, description="Steps between two lines in metrics.jsonl.")
    eval_every: int = Field(
        250,
        ge=0,
        description="Steps between two evaluations on the validation split; 0, with labelled examples: after every epoch.",
    )
    save_every: int = Field(250, ge=1, description="Steps between two checkpoints.")
    keep: int = Field(2, ge=1, description="Checkpoints to keep.")
    patience: int = Field(0, ge=0, description="Evaluations without gain after which training stops; 0: never.")
    watch: Literal["auto", "loss", "bleu", "score"] = Field(
        "loss",
        description="What decides which weights are best: the validation loss, BLEU, or the task's main score; "
        "auto: the score if there are labelled validation examples.",
    )
    unfreeze: float = Field(
        0.0,
        ge=0,
        description="Epochs after which the next lower layer is unfrozen; 0: all layers learn from the start.",
    )
    average_last: int = Field(
        0, ge=0, description="Number of last checkpoints whose mean is evaluated at the end, too; 0: none."
    )
    workers: int = Field(1, ge=0, le=64, description="Processes that prepare batches.")
    milestones: bool = Field(
        False,
        description="Keep the weights after 1, 2, … 10, 20, … million words; in smaller steps in runs below ten million.",
    )


Validate = Callable[[Learner, Share], dict[str, Any]]  # of a learner, by all who share the work
# what is computed before the first step: returns its operations; what it is given raises where the run is to stop
Precompute = Callable[[Callable[[], None]], int]


class Callbacks(NamedTuple):
    """What the loop calls; None: nothing."""

    validate: Validate | None = None
    keep_best: Callable[[StateDict], None] | None = None  # stores the weights of the best evaluation
    keep_milestone: Callable[[StateDict, Milestone, TrainState], None] | None = None
    # with the step when the rate of a trapezoid is about to fall, and all is saved
    keep_start: Callable[[int], None] | None = None
    on_log: OnLog | None = None
    precompute: Precompute | None = None  # its time, energy and operations are those of training


class Fit:
    """One run of the loop in a folder. With `train.shard` and several ranks the learner must be on the CPU: they move it to their
    devices."""

    def __init__(
        self,
        learner: Learner,
        loader: Loader,
        config: TrainConfig,
        budget: Budget,
        folder: Path,
        device: torch.device,
        seed: int,
        callbacks: Callbacks = Callbacks(),
        milestones: Sequence[Milestone] = (),
        ranks: Ranks | None = None,
    ):
        self.learner, self.loader, self.config, self.budget = learner, loader, config, budget
        self.folder, self.device, self.seed = folder, device, seed
        self.validate, self.keep_best, self.keep_milestone, self.keep_start, self.on_log, self.precompute = callbacks
        self.milestones, self.ranks = milestones, ranks or Ranks()
        parts = len(loader.own)
        check_parts(self.ranks, parts, bool(loader.batches.rows))
        loader.own = self.ranks.own(parts)
        self.weights = Weights(learner, self.ranks)
        if is_sharded(config, self.ranks):
            check_shards(learner, self.ranks, parts, config.compile is True)
            self.weights = Sharded(learner, self.ranks, device)
        self.parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
        self.precision = choose_precision(config.precision, device)
        helps = worth_compiling(learner, device) and budget.pays_for_compiling(learner.size())
        compiled = config.compile is True or (config.compile == "auto" and helps and not self.weights.is_sharded)
        # replayed gradients replace each other: several parts a step would have to be added up; shards come and go
        single = (
            len(loader.own) * (config.accumulate if loader.batches.rows else 1) == 1 and not self.weights.is_sharded
        )
        recorded = config.record and single and self.precision != "fp16" and worth_recording(learner, device)
        self.differentiate = Gradient(learner, self.precision, device, compiled, recorded)
        alone = self.ranks.world == 1 and not self.ranks.ordered  # sums over several are of whole tables
        rows = learner.few_rows and alone
        self.optimizer = build_optimizer(config.optim, learner, by_depth=config.unfreeze > 0, few_rows=rows)
        self.top = max(group["depth"] for group in self.optimizer.param_groups)
        self.cost = cost.of_training(learner)
        self.state = TrainState(average_from=0 if config.optim.average == "start" else None)
        self.averages: Averages | None = None  # made when they begin: they are as large as the weights
        self.carry: dict[int, State | None] = {}  # of each part that is computed here
        self.writer = checkpoints.Writer()
        self.is_stopping = False  # a rank was asked to stop, and all know it
        self.window: list[tuple[Tensor, ...]] = []  # on the device, until it is logged or saved

    def run(self, resume: bool = False) -> TrainState:
        if resume:
            self.restore()
        meter = cost.EnergyMeter(cuda=self.device.type == "cuda")
        if self.state.finished:
            self.state.energy_method = self.state.energy_method or meter.method  # older checkpoints do not say
            say(f"{self.folder} is trained already: to train longer, start a new run with a larger budget")
            return self.state
        path = self.folder / "metrics.jsonl"
        self.log = MetricsLog(path, self.state.log_bytes, self.on_log) if self.ranks.first else NoLog()
        before, joules, alone = self.state.seconds, self.state.joules, self.state.device_seconds
        self.state.energy_method = meter.method
        self.costs = lambda: self.add_costs(joules, alone, meter, self.state.seconds - before)
        self.clock = time.monotonic() - before
        first = self.state.spent(self.budget)
        with (
            Interruption() as self.asked,
            self.writer,
            Progress("train", total=1.0, done=first) as self.bar,
            closing(self.log),
            closing(self.loader.items(Cursor(self.state.epoch, self.state.batch))) as items,
            torch.random.fork_rng([self.device] if self.device.type == "cuda" else []),
        ):
            try:
                self.compute_first()
                self.learner.train()
                self.rate_from = (self.state.tokens, time.monotonic() - self.clock)
                self.steps(items, self.asked)
            except Interrupted as error:
                self.save()
                self.wait_for_save()
                message = f"stopped at step {self.state.step}, state saved in {self.folder}: continue it with --resume"
                raise Interrupted(message) from error
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise OutOfMemory(SMALLER) from error
                if self.weights.is_sharded and is_of_network(error):
                    raise other_rank_left(error) from error
                raise
        return self.state

    def compute_first(self) -> None:
        if self.precompute is None:
            return
        alone = self.ranks.world == 1  # several stop together, at a step
        operations = self.precompute(self.asked.check if alone else lambda: None)
        self.state.flops = self.state.flops or operations * self.ranks.world  # a run that goes on has counted them

    def steps(self, items: Iterator[Item], asked: Interruption) -> None:
        state, config = self.state, self.config
        while True:
            if state.eval_due:
                self.evaluate(asked)
            over = state.spent(self.budget) >= 1 or (config.patience and state.stale >= config.patience)
            if over and state.step > 0:
                break
            if self.is_stopping or (self.ranks.world == 1 and asked.asked):
                raise Interrupted("stopped")
            before, spent = state.tokens, state.spent(self.budget)
            self.one_step(items)
            self.pass_milestones(before)
            if state.step % config.log_every == 0:
                self.write_log()
            state.eval_due = self.validate is not None and state.step % config.eval_every == 0
            falls = spent < 1 - config.schedule.fall <= state.spent(self.budget)
            if falls and self.keep_start is not None:
                self.save_start(self.keep_start)
            elif state.step % config.save_every == 0:
                self.save()
        self.finish(asked)

    def save_start(self, keep_start: Callable[[int], None]) -> None:
        """With what runs of larger budgets begin."""
        self.save()
        self.wait_for_save()
        if self.ranks.first:
            keep_start(self.state.step)

    def finish(self, asked: Interruption) -> None:
        """After the last step."""
        state, config = self.state, self.config
        if self.validate is not None and state.step % config.eval_every:
            state.eval_due = True
            self.evaluate(asked)
        self.write_log()
        self.show()
        if self.validate is not None and config.average_last > 1:
            self.save()  # the last weights are among those that are averaged
            self.wait_for_save()
            self.average_checkpoints(asked)
        if self.validate is None and self.keep_best is not None:
            with self.with_averages():
                self.keep_best_on_first()
        state.finished = True
        self.save()
        self.wait_for_save()

    def one_step(self, items: Iterator[Item]) -> None:
        state, rows = self.state, self.loader.batches.rows
        spent = state.spent(self.budget)
        self.learner.advance(spent)
        factor = rate_factor(self.config.schedule, state.step, spent, state.drops)
        last_good: dict[int, State | None] = {}
        found = Sums(self.parameters, self.ranks.ordered and self.config.accumulate * self.loader.parts > 1)
        lengths, tokens, flops = 0.0, 0, 0
        for i in range(self.config.accumulate):
            item = next(items)
            if item.fresh and rows:
                self.carry = {part: self.weights.start(len(self.loader.rows(part))) for part in self.loader.own}
            last_good = dict(self.carry) if i == 0 else last_good
            for part, example in item.parts.items():
                # a part has random numbers of its own, whoever computes it, and after which other one
                number = i * self.loader.parts + part if rows else part
                torch.manual_seed(derive_seed(self.seed, state.step, *((number,) if number else ())))
                loss = self.differentiate(to_device(example, self.device), self.carry.get(part))
                if rows:
                    self.carry[part] = loss.carry
                found.add(part, loss.total - loss.logs.get("penalty", 0.0), loss.count)
            lengths += item.length
            tokens += sum(sizes.tokens for sizes in item.sizes)
            flops += sum(self.cost(sizes) for sizes in item.sizes)
            epoch = state.epoch
            state.epoch, state.batch = item.next
        total, count = found.result()
        seconds = time.monotonic() - self.clock
        total, count = self.share(total, count, tokens, flops, seconds)
        self.set_rates(factor, lengths / self.config.accumulate, epoch)
        optim = self.config.optim
        norm, broken = step(
            self.optimizer, count, optim.clip, self.differentiate.scaler, optim.gradient == "mean", optim.row_clip
        )
        for part, carried in self.carry.items():  # a state with a NaN in it would spoil every later step
            if carried is not None:
                self.carry[part] = restore_carry(carried, last_good[part], broken)
        self.window.append((exact(total), exact(count), exact(norm), exact(broken)))
        state.step += 1
        if self.ranks.world == 1:
            state.seconds = time.monotonic() - self.clock
        if state.average_from is not None:
            self.averages = self.averages or Averages(self.learner)
            self.averages.add(state.step - state.average_from)

    def set_rates(self, factor: float, length: float, epoch: int) -> None:
        """factor: of the schedule. length: a mean over fewer steps of time is a noisier one, it moves less. What is still frozen
        is neither moved nor remembered, nor clipped for."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.optim.lr * factor * length * group["share"]
            if not self.is_unfrozen(group["depth"], epoch):
                for parameter in group["params"]:
                    parameter.grad = None

    def share(self, total: Tensor, count: Tensor, tokens: int, flops: int, seconds: float) -> tuple[Tensor, Tensor]:
        """Adds up over all ranks what they found in a step: gradients, the loss, and everything that is counted. The clock is the
        first one's."""
        state, ranks = self.state, self.ranks
        if ranks.world == 1:
            state.tokens, state.flops = state.tokens + tokens, state.flops + flops
            return total, count
        summed = self.weights.is_sharded  # gradients are
        used = [] if summed else [float(parameter.grad is not None) for parameter in self.parameters]
        clock = seconds if ranks.first else 0.0
        tokens_of_all, flops_of_all, stopping, state.seconds, *used = ranks.sum_numbers(
            tokens, flops, float(self.asked.asked), clock, *used
        )
        state.tokens, state.flops = state.tokens + int(tokens_of_all), state.flops + int(flops_of_all)
        self.is_stopping = stopping > 0
        there = [parameter for parameter, many in zip(self.parameters, used, strict=not summed) if many]
        for parameter in there:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        ranks.sum_tensors([parameter.grad for parameter in there])  # type: ignore[misc]
        figures = torch.stack((exact(total), exact(count)))
        ranks.sum_tensors([figures])
        return figures[0], figures[1]

    def pass_milestones(self, before: int) -> None:
        """before: tokens at the last step."""
        for mark in self.milestones:
            if before < mark.tokens <= self.state.tokens and self.keep_milestone is not None:
                with self.with_averages():
                    weights = self.weights.gather(unique(self.learner))
                    if self.ranks.first:
                        self.keep_milestone(weights, mark, self.state)

    def is_unfrozen(self, depth: int, epoch: int) -> bool:
        """Whether a layer is trained yet: with `unfreeze` from the top down, one after the other (Howard & Ruder, 2018)."""
        return not self.config.unfreeze or depth >= self.top - int(epoch / self.config.unfreeze)

    def with_averages(self) -> AbstractContextManager[None]:
        """Within it the learner has the averaged weights, if there are any yet."""
        return nullcontext() if self.averages is None else self.averages.in_place()

    def flush(self) -> None:
        """Brings the numbers of the last steps to the host; only now anything waits for the device."""
        if self.window:
            rows = torch.stack([torch.stack(row) for row in self.window]).tolist()
            # a skipped step is kept only as such: its numbers are not finite, and a checkpoint holds no such numbers
            self.state.window += [[0.0, 0.0, 0.0, 1.0] if row[-1] else row for row in rows]
            self.window = []

    def write_log(self) -> None:
        self.flush()
        state = self.state
        total = count = norm = 0.0
        for step_total, step_count, step_norm, skipped in state.window:
            state.skips = state.skips + 1 if skipped else 0
            if skipped:
                state.skipped += 1
                continue
            total, count, norm = total + step_total, count + step_count, max(norm, step_norm)
        state.window = []
        if state.skips >= MAX_SKIPS:
            raise NumbersError(self.where(f"no finite gradient in the last {state.skips} steps"))
        if not count:
            return
        loss = total / count
        state.first = loss if state.first is None else state.first
        state.smooth = loss if state.smooth is None else 0.8 * state.smooth + 0.2 * loss
        self.log_line(
            {
                "step": state.step,
                "epoch": state.epoch,
                "tokens": state.tokens,
                "flops": state.flops,
                "loss": loss,
                "gradient_norm": norm,
                "lr": self.optimizer.param_groups[-1]["lr"],
                "skipped": state.skipped,
                "seconds": state.seconds,
                "joules": self.costs()[0],
                "tokens_per_second": self.rate(),
            }
        )
        self.show()
        if state.smooth > state.first + DIVERGED:
            raise NumbersError(self.where(f"the loss has risen from {state.first:.2f} to {state.smooth:.2f}"))

    def log_line(self, record: dict[str, Any]) -> None:
        before = self.log.seconds_outside
        self.log.write(record)
        self.clock += self.log.seconds_outside - before  # a run's seconds are those of its training

    def rate(self) -> float:
        """Tokens per second since this process started or resumed the run."""
        return (self.state.tokens - self.rate_from[0]) / max(self.state.seconds - self.rate_from[1], 1e-9)

    def show(self) -> None:
        state = self.state
        self.bar.done = state.spent(self.budget)
        loss = f"  loss {state.smooth:.4f}" if state.smooth is not None else ""
        valid = f"  valid {state.evaluation['loss']:.4f}" if state.evaluation else ""
        valid += f"  BLEU {state.evaluation['bleu']:.1f}" if "bleu" in state.evaluation else ""
        valid += f"  score {state.evaluation['score']:.4f}" if "score" in state.evaluation else ""
        self.bar.advance(note=f"step {state.step}{loss}{valid}  {human(self.rate())} tokens/s")

    def where(self, what: str) -> str:
        state = self.state
        lower = self.config.optim.lr / 3
        return (
            f"{what}, at step {state.step} (epoch {state.epoch}, batch {state.batch - 1}): lower the rate "
            f"(--set train.optim.lr={lower:.1g}), lengthen the warm-up (--set train.schedule.warmup=…) or clip harder "
            f"(--set train.optim.clip=0.5); the last checkpoint is kept"
        )

    def evaluate(self, asked: Interruption) -> None:
        """Evaluates on held-out data, with the averaged weights if there are any."""
        with self.with_averages():
            self.measure(asked)

    def measure(self, asked: Interruption) -> None:
        assert self.validate is not None
        state, optim = self.state, self.config.optim
        started = time.monotonic()
        result = self.run_validation(asked)
        self.clock += time.monotonic() - started  # a run's seconds are those of its training
        if not math.isfinite(result["loss"]):  # no later step would find it: broken gradients are skipped
            raise NumbersError(self.where(f"the validation loss is {result['loss']}"))
        state.eval_due, state.evaluation = False, result
        line = {"step": state.step, "tokens": state.tokens, "valid": result["loss"], "seconds": state.seconds}
        self.log_line(line | {name: result[name] for name in ("bleu", "score", "languages", "tasks") if name in result})
        if self.take_if_better(result):
            state.best_step, state.stale, state.since_drop = state.step, 0, 0
        else:
            state.stale, state.since_drop = state.stale + 1, state.since_drop + 1
            if self.config.schedule.name == "plateau" and state.since_drop > self.config.schedule.patience:
                state.drops, state.since_drop = state.drops + 1, 0
        if optim.average == "nonmono" and state.average_from is None:
            state.losses.append(result["loss"])
            if is_time(state.losses, optim.nonmono):
                state.average_from = state.step
                say(f"step {state.step:,}: the validation loss has stopped falling; averaging the weights from here on")

    def run_validation(self, asked: Interruption) -> dict[str, Any]:
        """The evaluation of the current weights, by all ranks."""
        assert self.validate is not None
        with self.weights.measured() as learner, torch.no_grad():
            learner.eval()
            try:
                found = self.validate(learner, share_of(self.ranks, asked.check))
            finally:
                learner.train()
        return self.ranks.from_first(found)  # what they decide by must not differ in any bit, whatever their machines

    def take_if_better(self, result: dict[str, float]) -> bool:
        state, watch = self.state, self.config.watch
        better = state.best is None or (result[watch] < state.best if watch == "loss" else result[watch] > state.best)
        if not better:
            return False
        state.best, state.best_loss = result[watch], result["loss"]
        self.keep_best_on_first()
        return True

    def keep_best_on_first(self) -> None:
        if self.keep_best is not None:
            weights = self.weights.gather(unique(self.learner))
            if self.ranks.first:
                self.keep_best(weights)

    def average_checkpoints(self, asked: Interruption) -> None:
        """Evaluates the mean of the last checkpoints, and keeps it if it is better."""
        assert self.validate is not None
        folder, averages = self.folder / "checkpoints", Averages(self.learner)
        last = checkpoints.steps(folder)[-self.config.average_last :]
        for count, number in enumerate(last, 1):
            loaded = self.weights.cut(checkpoints.load(folder / f"step-{number}").tensors["model"], averages.means)
            for name, mean in averages.means.items():
                mean.lerp_(loaded[name].to(mean), 1 / count)
        with averages.in_place():
            result = self.run_validation(asked)
            self.take_if_better(result)
        self.state.averaged = result
        say(f"the mean of the checkpoints {', '.join(map(str, last))}: valid loss {result['loss']:.4f}")

    def save(self) -> None:
        """Copies everything that changes; it is written while the training goes on."""
        self.flush()
        self.state.log_bytes = self.log.sync()
        self.state.joules, self.state.device_seconds = self.costs()
        parts = {
            "model": unique(self.learner),
            "optimizer": named_state(self.optimizer, self.learner),
            "carry": {str(i): leaf for i, leaf in enumerate(self.whole_carry())},
        }
        if self.averages is not None:
            parts["average"] = self.averages.means
        if self.differentiate.scaler is not None:
            parts["scaler"] = self.differentiate.scaler.state()
        self.wait_for_save()  # there is never more than one copy
        tensors = {name: self.weights.copy(part) for name, part in parts.items()}
        checkpoint = Checkpoint(self.state.step, asdict(self.state), tensors)
        self.ranks.on_first(lambda: self.writer.save(self.folder / "checkpoints", checkpoint, self.kept))

    def wait_for_save(self) -> None:
        """Until the last checkpoint is complete. If it could not be written, all ranks fail."""
        self.ranks.on_first(self.writer.wait)

    @property
    def kept(self) -> int:
        """How many checkpoints stay."""
        return max(self.config.keep, self.config.average_last)

    def restore(self) -> None:
        found = self.load_latest()
        if found is None:
            say(f"{self.folder} has no checkpoint yet: starting from the beginning")
            return
        try:
            self.state = train_state_of(found)
            cut, remembered = self.weights.cut, found.tensors["optimizer"]
            fill(self.learner, cut(found.tensors["model"], unique(self.learner)), self.folder / "checkpoints")
            own = cut(remembered, state_like(self.learner, remembered))
            load_named_state(self.optimizer, self.learner, own)
            self.carry = self.rebuild_carry(found.tensors["carry"])
            if "average" in found.tensors:
                self.averages = Averages(self.learner)
                self.averages.load(cut(found.tensors["average"], self.averages.means))
            if self.differentiate.scaler is not None and "scaler" in found.tensors:
                self.differentiate.scaler.load(found.tensors["scaler"])
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            raise ModelError(
                f"{self.folder / 'checkpoints' / f'step-{found.step}'} is damaged, or of another version "
                f"({' '.join(str(error).split())[:200] or type(error).__name__}): remove it to go on from the "
                f"checkpoint before it, or start anew with --overwrite"
            ) from error
        if (
            self.state.finished and self.ranks.first
        ):  # it may have been killed before it could, and nothing else will be saved
            checkpoints.collect(self.folder / "checkpoints", self.kept)
        say(f"resuming at step {self.state.step:,}, {self.state.tokens:,} tokens")

    def load_latest(self) -> Checkpoint | None:
        """The checkpoint that the first rank chooses, which mends what a killed save has left; the others read the same one."""
        folder = self.folder / "checkpoints"
        found = self.ranks.on_first(lambda: checkpoints.load_latest(folder))
        step = self.ranks.from_first(None if found is None else found.step)
        return found if self.ranks.first or step is None else checkpoints.load(folder / f"step-{step}")

    def whole_carry(self) -> list[Tensor]:
        """The state of all streams in their order, whoever computes which: any number of ranks can go on with it."""
        parts = [pytree.tree_leaves(self.carry[part]) for part in sorted(self.carry) if self.carry[part] is not None]
        return [self.ranks.gather_rows(torch.cat(leaves)) for leaves in zip(*parts, strict=True)]

    def rebuild_carry(self, leaves: dict[str, Tensor]) -> dict[int, State | None]:
        if not leaves:
            return {}
        shape = pytree.tree_structure(self.weights.start(1))
        found: dict[int, State | None] = {}
        for part in self.loader.own:
            rows = self.loader.rows(part)
            some = [leaves[str(i)][rows.start : rows.stop].clone().to(self.device) for i in range(len(leaves))]
            found[part] = pytree.tree_unflatten(some, shape)
        return found

    def add_costs(
        self, joules: float, device_seconds: float, meter: cost.EnergyMeter, seconds: float
    ) -> tuple[float, float]:
        """Joules and seconds of devices of all ranks. joules, device_seconds: of the run before this process was started."""
        here = self.ranks.sum_numbers(meter.joules(seconds), meter.device_seconds(seconds))
        return joules + here[0], device_seconds + here[1]


def is_sharded(config: TrainConfig, ranks: Ranks) -> bool:
    """Whether ranks share out the weights: a process alone has nobody to share with."""
    return config.shard and isinstance(ranks, Several)


def restore_carry(after: State, before: State | None, broken: Tensor) -> State:
    return pytree.tree_map(lambda a, b: torch.where(broken.bool(), b, a.to(b.dtype)), after, before)
