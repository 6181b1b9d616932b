"""Pictures as sequences of regions: a small convolutional network, patches, and the frame of models that read pictures."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Backbone, Context, EncoderDecoder, HeadStyle, Images, Output, Ragged, State, without_state
from seqloom.batches.pictures import PictureSize
from seqloom.blocks.grid import FullGrid
from seqloom.blocks.pooling import pool
from seqloom.errors import DataError, UsageError
from seqloom.state import select

Channels = tuple[int, ...]
SIDE: Any = Field(
    64, ge=8, le=1024, multiple_of=8, description="Pixels of a side of the pictures, which are resized to it."
)
FEATURES: Any = Field(
    0, ge=0, description="Width of published features of regions that are read in place of pictures; 0: pictures."
)
CHANNELS: Any = Field(
    (16, 32, 64),
    min_length=1,
    max_length=6,
    description="Channels of each stage of the convolutional network; a stage halves the sides of the picture.",
)


def normalise(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    """(N, H, W, 3) uint8 → (N, 3, H, W) from −1 to 1."""
    return pixels.permute(0, 3, 1, 2).to(dtype) / 127.5 - 1


class Cnn(nn.Module):
    """Stages of a 3 × 3 convolution that halves the sides and one that keeps them, with a shortcut; a region for each place of
    the last stage. Norms are of groups of channels of one picture: what stands beside it in a batch changes nothing."""

    def __init__(self, side: int, channels: Channels):
        super().__init__()
        self.grid = side >> len(channels)
        if self.grid << len(channels) != side or not self.grid:
            raise UsageError(
                f"'model.side' = {side} cannot be halved {len(channels)} times: choose a multiple of {1 << len(channels)}"
            )
        wide = [3, *channels]
        self.halve = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in zip(wide[:-1], channels, strict=True))
        # only the last stages are small enough to afford a second one
        self.keep = nn.ModuleList(nn.Conv2d(b, b, 3, 1, 1) for b in channels[-1:])
        self.norms = nn.ModuleList(nn.GroupNorm(group(b), b) for b in channels)
        self.dim = channels[-1]

    def init_weights(self) -> None:
        for each in (*self.halve, *self.keep):
            nn.init.kaiming_normal_(each.weight, nonlinearity="relu")
            nn.init.zeros_(each.bias)

    @property
    def per_region(self) -> int:
        """Operations of a forward pass for each region."""
        places = [4 ** (len(self.halve) - 1 - i) for i in range(len(self.halve))]
        halved = sum(n * each.weight.numel() for n, each in zip(places, self.halve, strict=True))  # type: ignore[operator]
        return 2 * (halved + sum(each.weight.numel() for each in self.keep))  # type: ignore[operator, misc]

    def forward(self, pixels: Tensor) -> Tensor:
        """(N, side, side, 3) → (N · regions, D)"""
        x = normalise(pixels, self.halve[0].weight.dtype)  # type: ignore[arg-type]
        for halve, norm in zip(self.halve, self.norms, strict=True):
            x = torch.relu(norm(halve(x)))
        for keep in self.keep:
            x = x + torch.relu(keep(x))
        return x.permute(0, 2, 3, 1).reshape(-1, self.dim)


def group(channels: int) -> int:
    return next(n for n in (8, 4, 2, 1) if channels % n == 0)


class RegionEncoder(nn.Module):
    """The regions of pictures by a Cnn, with a learnt vector for each place unless there is none; features as they are."""

    over_source: tuple[str, ...] = ()

    def __init__(self, side: int, channels: Channels, features: int, positions: str):
        super().__init__()
        self.features = features
        self.cnn = None if features else Cnn(side, channels)
        self.dim = features or channels[-1]
        regions = 0 if self.cnn is None else self.cnn.grid**2
        self.places = nn.Parameter(torch.empty(regions, self.dim)) if regions and positions == "learned" else None
        self.init_weights()

    def init_weights(self) -> None:
        if self.places is not None:
            nn.init.normal_(self.places, std=0.1)

    def forward(self, images: Images) -> Context:
        check_kind(images, self.features)
        if self.cnn is None:
            hidden = images.values
        else:
            hidden = self.cnn(images.values)
            if self.places is not None:
                hidden = (hidden.view(-1, *self.places.shape) + self.places).flatten(0, 1)
        return Context(hidden, images.owner, images.offsets, images.max_len)


class PatchEmbedding(nn.Module):
    """Square patches of a picture through one matrix, with a learnt vector for each place; a class token before them, if wanted.
    Dosovitskiy et al., 2021 (arXiv 2010.11929). Features of regions go through the matrix as they are, without places."""

    def __init__(self, side: int, patch: int, features: int, dim: int, class_token: bool, dropout: float):
        super().__init__()
        if not features and side % patch:
            raise UsageError(f"'model.side' = {side} is no multiple of 'model.patch' = {patch}: change one of them")
        self.patch, self.features, self.grid = patch, features, 0 if features else side // patch
        self.project = nn.Linear(features or 3 * patch * patch, dim)
        self.first = nn.Parameter(torch.empty(1, dim)) if class_token and not features else None
        more = 0 if self.first is None else 1
        self.places = None if features else nn.Parameter(torch.empty(self.grid**2 + more, dim))
        self.dropout = nn.Dropout(dropout)
        self.init_weights()

    def init_weights(self) -> None:
        for each in (self.first, self.places):
            if each is not None:
                nn.init.normal_(each, std=0.02)

    def forward(self, images: Images) -> tuple[Tensor, Any]:
        """(S, D), and the borders of the regions."""
        check_kind(images, self.features)
        if self.features:
            return self.dropout(self.project(images.values)), images
        n, p = images.num_sequences, self.patch
        x = normalise(images.values, self.project.weight.dtype)
        x = x.unflatten(3, (self.grid, p)).unflatten(2, (self.grid, p))  # (N, 3, rows, p, columns, p)
        x = self.project(x.permute(0, 2, 4, 1, 3, 5).reshape(n, self.grid**2, -1))
        if self.first is not None:
            x = torch.cat((self.first.expand(n, 1, -1), x), 1)
        assert self.places is not None
        x = self.dropout(x + self.places)
        return x.flatten(0, 1), FullGrid.of(n, x.shape[1], x.device)


def check_kind(images: Images, features: int) -> None:
    if (images.values.dtype == torch.uint8) == bool(features):
        raise DataError("this model reads features of regions, and pictures were given, or the other way round")


class PictureModel(EncoderDecoder):
    """Reads pictures, then writes a text about each; or reads a text and says something about both (`view`)."""

    sources = "pictures"
    usual_view: Literal["encoder", "whole"] = "whole"
    grid_offset = 0  # how many places before the regions stand for none of them

    @classmethod
    def picture_size(cls, config: Any) -> PictureSize:
        """What a model of these settings reads of a picture; here: with a Cnn."""
        return PictureSize(config.side, (config.side >> len(config.channels)) ** 2, config.features)

    def view(self, part: str) -> Backbone:
        return PictureView(self, part)


class PictureView(Backbone):
    """whole: reads texts about pictures, one for each, as a decoder reads a caption; encoder: the regions alone, their
    mean and maximum, for labels of pictures; the text is not read."""

    causal = True
    unused: tuple[str, ...]

    def __init__(self, model: PictureModel, part: str):
        super().__init__()
        if part == "whole" and getattr(model.decoder, "draws", False):
            raise UsageError('\'model.attention\' = "hard" learns by the reward of words, in captions: use "soft"')
        self.model, self.part, self.max_len = model, part, model.max_len
        self.dim = model.dim if part == "whole" else 2 * model.encoder.dim  # type: ignore[assignment, operator]
        self.unused = () if part == "whole" else ("decoder",)  # which is not run for labels of pictures
        self.head_style = HeadStyle(pooling="last")
        self.recurrent = model.decoder.recurrent

    @property
    def decoder(self) -> Backbone:
        return self.model.decoder

    @property
    def table(self) -> nn.Embedding | None:
        return self.model.table

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        if batch.pictures is None:
            raise DataError('this model reads pictures: give each row an "image"')
        found = self.model.encode(batch.pictures)
        if batch.pictures.texts is not None:
            found = for_texts(found, batch.pictures.texts)
        if self.part == "whole":
            return without_state(self.model.decoder(batch, context=found, layers=layers, maps=maps))
        return Output(pooled(found)[batch.owner])

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        raise ValueError("a view of a captioner reads whole texts: it has no state and cannot write token by token")

    def init_weights(self) -> None:
        """The whole model does it."""


def for_texts(context: Context, texts: Tensor) -> Context:
    """The regions of the picture of each text, where all have as many. texts: (N,) the number of its picture."""
    final = None if context.final is None else select(context.final, texts)
    hidden = context.hidden.view(context.num_sequences, context.max_len, -1).index_select(0, texts).flatten(0, 1)
    offsets = torch.arange(len(texts) + 1, device=texts.device, dtype=context.offsets.dtype) * context.max_len
    owner = torch.arange(len(texts), device=texts.device).repeat_interleave(context.max_len)
    return Context(hidden, owner, offsets, context.max_len, final)


def pooled(context: Context) -> Tensor:
    """(N, 2 · D) the mean of the regions of each picture, and the largest value of each feature."""
    return torch.cat([pool(context.hidden, context, how) for how in ("mean", "max")], 1)
