"""Pictures decoded once into memory-mapped shards, captions as token ids, and the batches of an epoch.

A batch has captions of one length, as in Xu et al., 2015, with at most `budget` tokens: its grid is full. Which captions are in
which batch is a function of (captions, seed, epoch) and nothing else. Pixels stay bytes until a model reads them.
"""

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from seqloom.batch import IGNORE, Images, Pair
from seqloom.batches.pairs import PairFrame, Side, take_rows, to_ragged, with_end
from seqloom.batches.plan import Plan, generator
from seqloom.errors import DataError, UsageError
from seqloom.files import explained
from seqloom.progress import Progress, say
from seqloom.text.images import FEATURES, Captioned, read_image, read_regions
from seqloom.tokens.learn import storage_type
from seqloom.tokens.tokenizer import Tokenizer

SHARD = 256 << 20  # bytes after which another file begins


class PictureSize(NamedTuple):
    """What a model reads of a picture: so many pixels a side, of which it makes so many regions; or features of this width."""

    side: int
    regions: int
    features: int = 0


class Pictures:
    """Pictures of one size, or features of regions, in files that are mapped into memory and vanish with it."""

    def __init__(self, size: PictureSize):
        self.size = size
        self.type: Any = np.float32 if size.features else np.uint8
        self.shape = (-1, size.features) if size.features else (-1, size.side, 3)
        self.files: list[IO[bytes]] = []
        self.mapped: list[np.ndarray] = []  # of each file as much as it had when it was last read
        self.places: list[tuple[int, int, int]] = []  # of each picture: its file, and its numbers there

    def __len__(self) -> int:
        return len(self.places)

    def read(self, path: Path, place: str = "") -> np.ndarray:
        """A picture as the model reads it."""
        is_features = path.suffix.lower() == FEATURES
        where = f"{place}: {path}" if place else str(path)
        if is_features and not self.size.features:
            raise DataError(
                f"{where}: features of regions, and this model reads pixels: set model.features to their width"
            )
        if self.size.features and not is_features:
            raise DataError(f"{where}: a picture, and this model reads features of regions: give .npz files")
        return read_regions(path, self.size.features, place) if is_features else read_image(path, self.size.side, place)

    def add(self, found: np.ndarray) -> int:
        """Keeps a picture; returns its number."""
        with explained(Path(tempfile.gettempdir())):
            if not self.files or self.end * self.mapped[-1].itemsize >= SHARD:
                self.files.append(tempfile.TemporaryFile())  # noqa: SIM115
                self.mapped.append(np.empty(0, self.type))
            begin = self.end
            self.files[-1].write(np.ascontiguousarray(found, self.type).data)
        self.places.append((len(self.files) - 1, begin, begin + found.size))
        return len(self) - 1

    @property
    def end(self) -> int:
        """How many numbers the last file has."""
        return self.places[-1][2] if self.places and self.places[-1][0] == len(self.files) - 1 else 0

    def one(self, number: int) -> np.ndarray:
        """A picture as it was added."""
        file, begin, end = self.places[number]
        if end > len(self.mapped[file]):
            with explained(Path(tempfile.gettempdir())):
                self.files[file].flush()
                self.mapped[file] = np.memmap(self.files[file], self.type, "r")
        return self.mapped[file][begin:end].reshape(self.shape)

    def take(self, index: np.ndarray) -> Images:
        """Pictures by their numbers, as a source."""
        return take_pictures([(self, int(i)) for i in index])

    @property
    def fingerprint(self) -> bytes:
        found = hashlib.sha256()
        for number in range(len(self)):
            found.update(np.ascontiguousarray(self.one(number)).data)
        return found.digest()


def take_pictures(chosen: Sequence[tuple[Pictures, int]]) -> Images:
    """Pictures of one kind, by where they are and their numbers."""
    size, found = chosen[0][0].size, [store.one(number) for store, number in chosen]
    if size.features:
        return lay_images(np.concatenate(found), np.array([len(each) for each in found]))
    return lay_images(np.stack(found), np.full(len(found), size.regions))


def blank(size: PictureSize) -> Pictures:
    """One picture without anything on it."""
    found = Pictures(size)
    found.add(
        np.zeros((1, size.features), np.float32) if size.features else np.zeros((size.side, size.side, 3), np.uint8)
    )
    return found


def lay_images(values: np.ndarray, lengths: np.ndarray) -> Images:
    """lengths: the regions of each picture."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return Images(
        torch.from_numpy(np.ascontiguousarray(values)),
        torch.from_numpy(owner),
        torch.from_numpy(offsets.astype(np.int32)),
        int(lengths.max()),
    )


def attach_pictures(rows: Sequence[Sequence[Any]], examples: Sequence[Any], size: PictureSize | None, name: str) -> Any:
    """The rows of examples with the pictures that they are about, each decoded once. size: what the model reads of one; None
    where it reads texts alone."""
    if size is None:
        for example in examples:
            if getattr(example, "image", None) is not None and not any(example.texts):
                raise DataError(
                    f'{example.place}: no "text", only an "image": a model of texts needs one, or use one that reads pictures'
                )
        return rows
    store, numbers = decode([(image_of(example), example.place) for example in examples], size, name)
    # of a picture without a text, the special tokens are what is counted and read
    return [
        [row._replace(picture=(store, number), own=row.own if row.own.any() else ~row.own) for row in each]
        for each, number in zip(rows, numbers, strict=True)
    ]


def image_of(example: Any) -> Path:
    """The picture that an example of a task is about."""
    if example.image is None:
        raise DataError(f'{example.place}: no "image": this model reads pictures')
    return example.image


def decode(paths: Sequence[tuple[Path, str]], size: PictureSize, name: str) -> tuple[Pictures, list[int]]:
    """Pictures by their paths and places, each decoded once; and the number of each."""
    pictures, known, numbers = Pictures(size), {}, []
    with Progress(f"decode {name}", total=len(paths), unit="pictures") as bar:
        for path, place in paths:
            if path not in known:
                known[path] = pictures.add(pictures.read(path, place))
            numbers.append(known[path])
            bar.advance(1)
    return pictures, numbers


class EncodedCaptions:
    """Pictures and the token ids of their captions: a pair for every caption."""

    def __init__(self, pictures: Pictures, owner: np.ndarray, target: Side, words: int, size: int, frame: PairFrame):
        self.pictures, self.owner, self.target, self.frame = pictures, owner, target, frame
        self.words, self.bytes = words, size

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def added(self) -> int:
        """The special tokens of a caption."""
        return len(self.frame.before) + 1

    @property
    def widths(self) -> np.ndarray:
        """(N,) the tokens of each caption, special ones included."""
        return self.target.lengths + self.added

    def by_length(self) -> np.ndarray:
        return np.argsort(self.target.lengths, kind="stable")

    @property
    def num_tokens(self) -> int:
        """That are predicted in an epoch."""
        return len(self.target.ids) + self.added * len(self)

    @property
    def fingerprint(self) -> str:
        found = hashlib.sha256(self.pictures.fingerprint)
        for array in (self.owner, *self.target):
            found.update(np.ascontiguousarray(array.astype(np.int64)).tobytes())
        return found.hexdigest()

    def batch(self, index: np.ndarray, rows: int = 0) -> Pair:
        """Pairs of a picture and a caption. rows: at least so many, the last of them filler."""
        more = max(rows - len(index), 0)
        whole = np.concatenate((index, np.repeat(index[-1:], more)))
        target, lengths = take_rows(self.target, whole)
        for token in reversed(self.frame.before):
            target = with_end(target, lengths, token, before=True)
            lengths = lengths + 1
        read = with_end(target, lengths, self.frame.start, before=True)
        following = with_end(target, lengths, self.frame.end, before=False)
        lengths = lengths + 1
        if more:
            following[-int(lengths[len(index) :].sum()) :] = IGNORE
        longest = int(lengths.max())
        return Pair(
            self.pictures.take(self.owner[whole]), to_ragged(read, lengths, longest), torch.from_numpy(following)
        )


def encode_captions(
    rows: Sequence[Captioned], tokenizer: Tokenizer, longest: int | None, name: str, frame: PairFrame, size: PictureSize
) -> EncodedCaptions:
    """Decode pictures and tokenize captions. Captions without a token, or longer than `longest`, are left out and reported."""
    pictures, numbers = decode([(row.image, row.place) for row in rows], size, name)
    parts, owner, left_out, words, bytes_ = [], [], [], 0, 0
    texts = [(number, text, row.place) for number, row in zip(numbers, rows, strict=True) for text in row.captions]
    for (number, text, place), ids in zip(texts, tokenizer.encode_batch([text for _, text, _ in texts]), strict=True):
        if not len(ids) or (longest is not None and len(ids) + len(frame.before) >= longest):
            left_out.append(place)
            continue
        parts.append(ids.astype(storage_type(tokenizer.vocab_size)))
        owner.append(number)
        words, bytes_ = words + len(text.split()), bytes_ + len(text.encode())
    if left_out:
        first = ", ".join(left_out[:3])
        say(
            f"{name}: {len(left_out):,} captions that are empty or have {longest} tokens or more left out (first: {first})"
        )
    if not parts:
        raise DataError(f"{name}: no captions are left: check the files, or raise batches.length")
    target = Side(np.concatenate(parts), np.concatenate(([0], np.cumsum([len(part) for part in parts]))))
    return EncodedCaptions(pictures, np.array(owner), target, words, bytes_, frame)


class CaptionPlan:
    """Batches in random order. fixed: the rows of each are filled up to those of a whole one."""

    def __init__(
        self, captions: EncodedCaptions, batches: list[tuple[np.ndarray, int]], rng: np.random.Generator, fixed: bool
    ):
        self.captions, self.batches, self.fixed = captions, batches, fixed
        self.order = rng.permutation(len(batches))

    def __len__(self) -> int:
        return len(self.order)

    def batch(self, i: int) -> Pair:
        index, rows = self.batches[self.order[i]]
        return self.captions.batch(index, rows if self.fixed else 0)


class CaptionBatches:
    rows = usual = 0

    def __init__(self, captions: EncodedCaptions, budget: int, max_len: int, shapes: str):
        if budget < max_len:
            raise UsageError(
                f"batches.budget {budget} is smaller than one caption of batches.length {max_len}: raise it"
            )
        self.captions, self.budget, self.fixed = captions, budget, shapes != "free"

    def plan(self, seed: int, epoch: int) -> Plan:
        rng = generator(seed, epoch)
        order = rng.permutation(len(self.captions))
        widths = self.captions.widths[order]
        found: list[tuple[np.ndarray, int]] = []
        for width in np.unique(widths):
            members, rows = order[widths == width], max(self.budget // int(width), 1)
            found += [(members[i : i + rows], rows) for i in range(0, len(members), rows)]
        return CaptionPlan(self.captions, found, rng, self.fixed)
