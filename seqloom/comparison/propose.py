"""`seqloom new`: a recipe and a plan for a text and a machine, with the estimates that led to them.

The text is measured by its beginning, the machine by a second or two of training steps; sizes follow from how much can be
computed in the time that is given. All of it is a start that is better than none, stated as estimates, in files that are meant
to be edited.
"""

import itertools
import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from seqloom.batch import Excerpt, ragged, to_device
from seqloom.errors import DataError, UsageError
from seqloom.files import make_folder, write_bytes
from seqloom.progress import Progress, human
from seqloom.recipes.library import find_recipe
from seqloom.text.read import Reader
from seqloom.text.words import count_words
from seqloom.training.gradient import Gradient
from seqloom.training.optim import build_optimizer, step
from seqloom.training.precision import choose_device, choose_precision

SAMPLE = 4_000_000  # characters of each file that are read
TOKENS_PER_WORD = 1.35  # of byte-pair encoding with some thousand entries, on English text
SIZES = ((64, 2, 4), (96, 3, 4), (128, 4, 4), (192, 5, 6), (256, 6, 8), (384, 8, 6), (512, 8, 8), (768, 12, 12))
TOKENS_PER_PARAMETER = 20  # Hoffmann et al., 2022, arXiv 2203.15556
MOST_EPOCHS = (
    16  # Muennighoff et al., 2023, arXiv 2305.16264: what is read more often than that teaches next to nothing
)
MEASURED = 1.5  # seconds of training steps by which a machine is measured
DOCUMENTS = 1000  # whose lengths are those of the sequences by which a machine is measured
FEWEST_STEPS = 2  # that are timed, however long they take
VALID = 0.05  # of the text is held out
EVALUATIONS = 20  # on held-out text, spread over a run
EVALUATING = 0.1  # of the time of training
SEEDS = 3
ROWS = 2  # of the plan that are trained by steps
MOST_GROWN = 20_000_000  # parameters up to which rows of all kinds are brought to one size


class TextSize(NamedTuple):
    files: tuple[Path, ...]
    words: int
    sampled: bool  # only the beginning was counted
    documents: tuple[int, ...] = ()  # words of the first ones

    @property
    def tokens(self) -> float:
        return self.words * TOKENS_PER_WORD


class Machine(NamedTuple):
    device: str
    precision: str
    flops: float  # a second, in training: 6 · parameters · tokens
    steps: int = 0  # that were timed
    size: tuple[int, int, int] = SIZES[0]  # width, layers and heads of the model that made them


class Proposal(NamedTuple):
    """A GPT-2 of some size, and how it is trained."""

    text: TextSize
    machine: Machine
    minutes: float
    dim: int
    layers: int
    heads: int
    vocab_size: int
    length: int
    batch: int  # sequences
    tokens: float  # to read

    @property
    def size(self) -> tuple[int, int, int]:
        return self.dim, self.layers, self.heads

    @property
    def parameters(self) -> int:
        return count_parameters(self.dim, self.layers, self.vocab_size)

    @property
    def steps(self) -> int:
        return max(math.ceil(self.tokens / (self.batch * self.length)), 1)

    @property
    def epochs(self) -> float:
        return self.tokens / self.text.tokens

    @property
    def eval_every(self) -> int:
        return max(math.ceil(self.steps / EVALUATIONS), 10)

    @property
    def valid_limit(self) -> int:
        """Tokens of held-out text: as many as can be evaluated in their share of the time, three times as fast as in training."""
        return max(int(3 * EVALUATING * self.tokens / (EVALUATIONS + 1)), self.batch * self.length)

    @property
    def hours(self) -> float:
        held_out = min(self.valid_limit, VALID * self.text.tokens)
        evaluated = (self.steps // self.eval_every + 1) * held_out
        return 6 * self.parameters * (self.tokens + evaluated / 3) / self.machine.flops / 3600

    @property
    def memory_mb(self) -> float:
        """Weights, gradients and two moments of Adam in fp32; about 34 numbers a token, layer and width kept for the backward
        pass; the scores of all words."""
        kept = self.batch * self.length * (34 * self.layers * self.dim + 3 * self.vocab_size)
        return (16 * self.parameters + 4 * kept) / 2**20

    @property
    def rate(self) -> float:
        return min(4e-3, float(f"{0.256 / self.dim:.1g}"))


def count_parameters(dim: int, layers: int, vocab_size: int) -> int:
    return 12 * layers * dim * dim + vocab_size * dim


def measure_text(files: Sequence[Path]) -> TextSize:
    """Words, by the beginning of every file."""
    words, sampled, documents = 0.0, False, list[int]()
    for path in files:
        reader, counted, characters, position = Reader(path), 0, 0, 0
        for document in reader:
            found = count_words(document.text)
            documents += [found] if len(documents) < DOCUMENTS else []
            counted, characters = counted + found, characters + len(document.text)
            position = reader.position()
            if characters >= SAMPLE:
                break
        more = characters >= SAMPLE and 0 < position < reader.size
        sampled |= more
        words += counted * (reader.size / position if more else 1.0)
    if words < 100:
        raise DataError(f"{', '.join(map(str, files))}: {words:.0f} words are too few to learn from: give more text")
    return TextSize(tuple(files), round(words), sampled, tuple(documents))


def step_size(device: str) -> tuple[int, int]:
    """Length and number of the sequences of a step."""
    return (128, 16) if device == "cpu" else (256, 64)


def sequence_lengths(documents: Sequence[int], length: int, tokens: int) -> list[int]:
    """The sequences of a batch of so many tokens, of documents of so many words, again and again. length: of the longest."""
    found: list[int] = []
    for words in itertools.cycle(documents or (length,)):
        rest = max(round(words * TOKENS_PER_WORD), 1)
        while rest and tokens:
            found.append(min(rest, length, tokens))
            rest, tokens = rest - found[-1], tokens - found[-1]
        if not tokens:
            break
    return found


def measure_machine(
    device: str = "auto",
    documents: Sequence[int] = (),
    size: tuple[int, int, int] = SIZES[0],
    vocab_size: int = 2048,
    seconds: float = MEASURED,
) -> Machine:
    """The speed of training, by steps of a model on random tokens: forward, backward and optimizer, in the number format that
    training has. documents: their words, because many short sequences take longer than a few of full length; size: width,
    layers and heads of the model."""
    chosen = choose_device(device)
    precision = choose_precision("auto", chosen)
    (dim, layers, heads), (length, batch) = size, step_size(chosen.type)
    settings = [f"model.dim={dim}", f"model.num_layers={layers}", f"model.num_heads={heads}", f"model.max_len={length}"]
    recipe = find_recipe("gpt2-tiny", [*settings, f"batches.length={length}", f"batches.budget={batch * length}"])
    with torch.random.fork_rng([chosen] if chosen.type == "cuda" else []):
        learner = recipe.learner(vocab_size).to(chosen).train()
        tokens = torch.randint(vocab_size, (2, batch * length))
        rows = ragged(tokens[0], torch.tensor(sequence_lengths(documents, length, batch * length)), length)
        example = to_device(Excerpt(rows, tokens[1]), chosen)
        optimizer = build_optimizer(recipe.train.optim, learner)
        differentiate = Gradient(learner, precision, chosen, compiled=False, recorded=False)

        def train() -> None:
            loss = differentiate(example, None)
            step(optimizer, loss.count, recipe.train.optim.clip, differentiate.scaler)
            float(loss.total)  # waits for the device

        train()  # libraries set themselves up in the first step
        started, steps = time.perf_counter(), 0
        with Progress("measure", None, "steps") as bar:
            while steps < FEWEST_STEPS or time.perf_counter() - started < seconds:
                train()
                steps += 1
                bar.advance(1)
        elapsed = time.perf_counter() - started
    work = 6 * count_parameters(dim, layers, vocab_size) * batch * length * steps
    return Machine(chosen.type, precision, work / max(elapsed, 1e-9), steps, size)


def propose_for(text: TextSize, device: str, minutes: float) -> Proposal:
    """A proposal for this machine. Its speed is measured with a small model, and then with steps of the proposal itself, because
    small models use less of a machine."""
    found = propose(text, measure_machine(device, text.documents), minutes)
    return propose(text, measure_machine(device, text.documents, found.size, found.vocab_size), minutes)


def propose(text: TextSize, machine: Machine, minutes: float) -> Proposal:
    """The largest model that can read TOKENS_PER_PARAMETER tokens for each of its parameters in the time, from this text; or the
    smallest one. A vocabulary is as large as prepare makes it, about."""
    vocab_size = 8192 if text.words > 1e6 else 4096 if text.words > 2e5 else 2048 if text.words > 2e4 else 512
    length, batch = step_size(machine.device)
    fitting: list[Proposal] = []
    for dim, layers, heads in SIZES:
        size = count_parameters(dim, layers, vocab_size)
        seconds = 60 * minutes / (1 + EVALUATING)
        tokens = min(machine.flops * seconds / (6 * size), MOST_EPOCHS * text.tokens)
        found = Proposal(
            text, machine, minutes, dim, layers, heads, vocab_size, length, batch, max(tokens, batch * length)
        )
        if not fitting or tokens >= TOKENS_PER_PARAMETER * size:
            fitting.append(found)
    return fitting[-1]


def chosen_by(found: Proposal) -> str:
    enough = found.tokens >= TOKENS_PER_PARAMETER * found.parameters
    return f"largest of {len(SIZES)} that can read" if enough else f"smallest of {len(SIZES)}, as none can read"


def prepare_command(found: Proposal, folder: Path) -> str:
    files = " ".join(map(shell, found.text.files))
    return f"seqloom prepare {files} --out {shell(folder / 'data')} --valid {VALID} --vocab-size {found.vocab_size}"


def recipe_text(found: Proposal, folder: Path) -> str:
    text, machine = found.text, found.machine
    counted = "estimated from the beginning of the files" if text.sampled else "counted"
    return f"""# A GPT-2 for this text and this machine, written by 'seqloom new'. Change what you like:
# 'seqloom recipes gpt2-tiny --toml' shows every key there is. All figures here are estimates, with how they were made.
#
# text      {human(text.words)} words ({counted}), about {human(text.tokens)} tokens at {TOKENS_PER_WORD} a word
# machine   {machine.device}, {machine.precision}: {human(machine.flops)}FLOP/s in training, by {machine.steps} steps that
#           'seqloom new' made with a model of width {machine.size[0]} and {machine.size[1]} layers; slower if others use it
# size      {human(found.parameters)} parameters (12 · layers · dim² + vocabulary · dim, with up to {found.vocab_size:,} entries):
#           the {chosen_by(found)} {TOKENS_PER_PARAMETER} tokens for each parameter
#           in {found.minutes:g} minutes, with at most {MOST_EPOCHS} passes over the text
# duration  about {found.hours * 60:.1f} minutes = 6 · parameters · tokens / speed, and a tenth of it for evaluating;
#           {found.steps:,} steps, {found.epochs:.1f} passes over the text; without saving
# memory    about {found.memory_mb:,.0f} MB beside torch itself: 16 bytes a parameter, and what the backward pass
#           needs of {found.batch} · {found.length} tokens
#
#   {prepare_command(found, folder)}
#   seqloom pretrain {shell(folder / "recipe.toml")} --data {shell(folder / "data")} --out {shell(folder / "run")}
#   seqloom generate {shell(folder / "run")} --prompt "The "

name = "own-gpt2"

[model]
name = "gpt2"
dim = {found.dim}            # width: parameters and time grow with its square
num_layers = {found.layers}
num_heads = {found.heads}       # must divide dim
max_len = {found.length}       # context in tokens
dropout = {0.1 if found.epochs > 4 else 0.0}       # 0.1 where the text is read more than four times

[batches]
length = {found.length}
budget = {found.batch * found.length}      # tokens of a batch: {found.batch} sequences; halve it if memory is short

[train]
eval_every = {found.eval_every}     # steps between two evaluations on held-out text
save_every = {max(found.steps // 10, 50)}     # steps between two checkpoints

[train.optim]
lr = {found.rate:g}          # 'seqloom pretrain … --find-lr' suggests another one
weight_decay = 0.01

[valid]
limit = {found.valid_limit}       # tokens of held-out text to evaluate on

[train.schedule]
warmup = {max(min(found.steps // 20, 500), 1)}        # steps in which the rate rises

[budget]
tokens = {round(found.tokens)}    # where training ends
"""


def plan_text(found: Proposal, folder: Path) -> str:
    # no fewer than two batches of any row
    words = max(round(found.tokens / TOKENS_PER_WORD / (ROWS * SEEDS)), 2 * max(found.batch * found.length, 2048))
    files = ", ".join(json.dumps(os.path.relpath(path, folder), ensure_ascii=False) for path in found.text.files)
    sizes = "# every row has the size of its recipe"
    if found.parameters <= MOST_GROWN:
        sizes = (
            f"parameters = {found.parameters}  # of every row that is trained: widths are changed to have as many\n"
            "tolerance = 0.1      # how far a row may be off that"
        )
    return f"""# Is a Transformer worth it on this text? Three models at an equal budget, written by 'seqloom new'.
# {ROWS} rows that are trained with {SEEDS} seeds each share the {found.minutes:g} minutes: about {found.hours * 60:.1f} minutes
# in all, an estimate that was made as in recipe.toml.
#
#   seqloom compare {shell(folder / "plan.toml")} --out {shell(folder / "compared")} --jobs 2

name = "Which model for this text?"
seeds = {SEEDS}            # fewer than three say little about chance
{sizes}

[text]
files = [{files}]
valid = {VALID}         # shares of the text that are held out
test = {VALID}
vocab_size = {found.vocab_size}

[budget]
words = {words}        # that every run reads

[[rows]]
name = "n-gram"      # counts, in seconds: what the others have to beat
recipe = "ngram-tiny"

[[rows]]
name = "LSTM"
recipe = "lstm-tiny"

[[rows]]
name = "GPT-2"
recipe = "recipe.toml"

[[questions]]
name = "Recurrence or attention?"
rows = ["LSTM", "GPT-2"]
"""


def shell(path: Path) -> str:
    """A path as a command line takes it."""
    text = str(path)
    return text if all(sign.isalnum() or sign in "/._-~" for sign in text) else json.dumps(text, ensure_ascii=False)


def write_proposal(found: Proposal, folder: Path) -> list[Path]:
    """The recipe and the plan; nothing is overwritten."""
    texts = {folder / "recipe.toml": recipe_text(found, folder), folder / "plan.toml": plan_text(found, folder)}
    for path in texts:
        if path.exists():
            raise UsageError(f"{path} exists already: choose another --out")
    make_folder(folder)
    for path, text in texts.items():
        write_bytes(path, text.encode())
    return list(texts)
