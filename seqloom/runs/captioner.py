"""A trained captioner: pictures in, texts out, in their order, by the beam search of translators."""

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.analyse.caption_maps import CaptionMaps, PictureMaps
from seqloom.analyse.read import name_token
from seqloom.batch import to_device
from seqloom.batches.pictures import Pictures, PictureSize, encode_captions, lay_images
from seqloom.config import build
from seqloom.decode.rules import BeamConfig
from seqloom.decode.search import Hypothesis
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.pointing import masks_of, point
from seqloom.evaluate.translation import pair_loss
from seqloom.metrics.captions import caption_scores
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.predictor import picture_size
from seqloom.runs.results import Report, Results
from seqloom.runs.writer import Translation, Writer
from seqloom.text.images import Captioned
from seqloom.training.share import ALONE, Share

MOST_TOKENS = 50  # of a caption, unless another limit is given

Picture = str | Path | np.ndarray


def captioner_size(recipe: Recipe) -> PictureSize:
    """What the model of a captioner's recipe reads of a picture."""
    size = picture_size(recipe)
    assert size is not None, "captions are of pictures"
    return size


class Captioner(Writer):
    """A trained captioner with its tokenizer, on a device."""

    @cached_property
    def picture_size(self) -> PictureSize:
        return captioner_size(build_recipe(self.config["recipe"], str(self.folder)))

    @cached_property
    def reader(self) -> Pictures:
        return Pictures(self.picture_size)

    @property
    def reading(self) -> Any:
        raise UsageError(
            f"{self.folder} is a captioner, which reads no texts: 'seqloom caption {self.folder} IMAGE --maps maps.html' shows "
            f"what it looks at"
        )

    def __call__(self, images: Picture | Sequence[Picture], **options: Any) -> Results:
        """Captions pictures: the best "caption" of each, its "log_prob", and whether it is "finished" or was cut.

        Args:
            images: a path, or an array (side, side, 3) of bytes, or several.
            options: those of `caption`.
        """
        several = [images] if isinstance(images, str | Path | np.ndarray) else list(images)
        best = [each[0] for each in self.caption(several, **options)]
        rows = [{"caption": each.text, "log_prob": each.log_prob, "finished": each.finished} for each in best]
        return Results(rows, [{"image": str(each)} if isinstance(each, str | Path) else {} for each in several])

    def read(self, image: Picture) -> np.ndarray:
        """A picture as the model reads it. image: a path, or an array of bytes of the right size."""
        if isinstance(image, str | Path):
            return self.reader.read(Path(image))
        shape = (self.picture_size.side, self.picture_size.side, 3)
        if self.picture_size.features or image.shape != shape or image.dtype != np.uint8:
            raise DataError(f"an array {image.shape} of {image.dtype}: this model reads {shape} of uint8, or files")
        return image

    def caption(
        self,
        images: Sequence[Picture],
        *,
        align: bool = False,
        max_new: int | None = None,
        show: bool = True,
        share: Share = ALONE,
        **options: Any,
    ) -> list[list[Translation]]:
        """The n best captions of each picture, in order.

        Args:
            images: paths, or arrays.
            align: give the attention to the regions for each token, too.
            max_new: the most tokens of a caption.
            show: whether progress is shown.
            share: of the batches that are computed here, where several processes share them.
            options: those of BeamConfig: beam, length_penalty, n_best, …
        """
        limit = self.learner.backbone.max_len
        room = MOST_TOKENS if limit is None else min(MOST_TOKENS, limit - len(self.frame.before) - 1)
        room = room if max_new is None else max_new
        config = build(BeamConfig, options | {"max_new": room}, source="caption")
        if align and not self.learner.backbone.aligned:
            raise UsageError(
                f"--maps: {self.config['recipe']['model']['name']} looks at a picture once, and has no attention to show: "
                f"leave it out"
            )
        search = self.search([self], config, align, False)
        sources = [self.read(image) for image in images]
        sizes = [len(each) if self.picture_size.features else self.picture_size.regions for each in sources]

        def finish(hypothesis: Hypothesis, i: int) -> Translation:
            weights = None
            if hypothesis.alignment is not None:
                found = hypothesis.alignment[: len(hypothesis.tokens)].float().cpu().numpy()
                weights = found[:, self.learner.backbone.grid_offset : sizes[i]]
            tokens = hypothesis.tokens
            text = self.tokenizer.decode(tokens)
            return Translation(text, tokens, hypothesis.log_prob, hypothesis.score, hypothesis.finished, weights)

        nothing: list[list[int]] = [[] for _ in sources]
        rooms = [room] * len(sources)
        return self._write([self], search, sources, sizes, rooms, nothing, finish, "caption", "pictures", show, share)

    @torch.inference_mode()
    def contexts(self, models: list[Any], sources: list[np.ndarray]) -> Any:
        if self.picture_size.features:
            values, lengths = np.concatenate(sources), np.array([len(each) for each in sources])
        else:
            values, lengths = np.stack(sources), np.full(len(sources), self.picture_size.regions)
        images = to_device(lay_images(values, lengths), self.device)
        return self.learner.backbone.encode(images)

    def check_maps(self) -> None:
        """Raises UsageError where it reads nothing that a map could be drawn on."""
        if self.picture_size.features:
            raise UsageError("--maps: features of regions are no picture that a map could be drawn on: leave it out")

    def maps(self, images: Sequence[Picture], **options: Any) -> CaptionMaps:
        """What the captioner looks at for each word of its caption.

        Args:
            images: paths, or arrays.
            options: those of `caption`.
        """
        self.check_maps()
        return self.draw_maps(images, self.caption(images, align=True, **options))

    def draw_maps(self, images: Sequence[Picture], captions: Sequence[Sequence[Translation]]) -> CaptionMaps:
        """The same for captions that are written already, with their attention.

        Args:
            images: paths, or arrays.
            captions: of each, the best first, as `caption` gives them with `align`.
        """
        self.check_maps()
        found = []
        for image, best in zip(images, captions, strict=True):
            first = best[0]
            assert first.alignment is not None
            words = [name_token(self.tokenizer, token) for token in first.tokens]
            name = str(image) if isinstance(image, str | Path) else "a picture"
            found.append(PictureMaps(name, self.read(image), first.text, words, first.alignment))
        return CaptionMaps(self.folder.name, found)

    def evaluate(self, rows: Sequence[Captioned], share: Share = ALONE, **options: Any) -> dict[str, Any]:
        """BLEU, CIDEr-D and exact match of the best captions; where the pictures have masks of what is on them, how much of the
        attention lies on what each word names.

        Args:
            rows: pictures with their captions, as `text.images.read_captions` reads them.
            share: as in `caption`.
            options: those of `caption`.
        """
        started = time.monotonic()
        found = [best[0].text for best in self.caption([row.image for row in rows], show=False, share=share, **options)]
        result = caption_scores(found, [row.captions for row in rows])
        masks = masks_of(rows)
        if masks is not None and self.learner.backbone.aligned and not self.picture_size.features:
            result |= point(self.learner, self.tokenizer, self.frame, self.picture_size, rows, masks, self.device)
        seconds = round(time.monotonic() - started, 3)
        return Report(result, parameters=self.learner.size(), seconds=seconds)

    def encode(self, texts: Sequence[str], *options: Any) -> Any:
        """Raises: it has no vectors of texts. texts, options: as in `Run.encode`."""
        return self.reading

    def loss(self, rows: Sequence[Captioned]) -> dict[str, float]:
        """The loss of the references. rows: as in `evaluate`."""
        limit = self.learner.backbone.max_len
        captions = encode_captions(rows, self.tokenizer, limit, "test", self.frame, self.picture_size)
        return pair_loss(self.learner, captions, self.device)
