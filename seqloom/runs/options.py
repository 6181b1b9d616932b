"""How and where a run is made: nothing here changes what is learnt, but for the seed."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from seqloom import cost
from seqloom.config import unknown_name
from seqloom.errors import UsageError
from seqloom.training.log import OnLog


@dataclass(frozen=True)
class RunOptions:
    seed: int = 0  # of the first weights, the order of the data and dropout
    resume: bool = False  # go on with the run that is in the folder
    overwrite: bool = False  # start anew where the folder holds a run
    device: str = "auto"
    deterministic: bool = False  # slower kernels that give the same bits every time
    country: str = "world"  # whose electricity is counted as CO₂
    shared: Path | None = None  # where runs that differ only in their budget share their start, see `runs.shared_start`
    on_log: OnLog | None = None  # called with each line of metrics.jsonl as it is written; what it raises stops nothing

    def __post_init__(self) -> None:
        if self.country not in cost.GRAMS_PER_KWH:
            raise UsageError(unknown_name("country", self.country, self.country, list(cost.GRAMS_PER_KWH)))


class RunKeywords(TypedDict, total=False):
    """The fields of RunOptions as keyword arguments of the functions that people call."""

    seed: int
    resume: bool
    overwrite: bool
    device: str
    deterministic: bool
    country: str
    shared: Path | None
    on_log: OnLog | None


class TrainKeywords(RunKeywords, total=False):
    """The same, and the fields of TokenizerOptions."""

    tokenizer: str
    vocab_size: int | None
    lowercase: bool
    from_tokenizer: str | Path | None
    source_tokenizer: str | None
    source_vocab_size: int | None
    from_source_tokenizer: str | Path | None
