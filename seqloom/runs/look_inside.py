"""What every loaded run can show of its inside. Each of these gives a Finding: a page, its numbers, its pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.batches.pairs import PairFrame
from seqloom.errors import DataError, UsageError

if TYPE_CHECKING:
    from seqloom.analyse.attention import HeadMaps
    from seqloom.analyse.attention_page import Attention
    from seqloom.evaluate.encode import Reading


class LookInside:
    """The part of a loaded run that shows what happens inside its model."""

    folder: Path
    learner: Any
    tokenizer: Any

    @property
    def reading(self) -> "Reading":
        raise NotImplementedError

    @property
    def has_attention(self) -> bool:
        """Whether there is attention to show: on a text itself, or on a source."""
        from seqloom.blocks.stack import count_heads

        model = self.learner.backbone
        if hasattr(model, "decoder"):
            return model.aligned or any(count_heads(model.decoder)) or any(count_heads(model.view("encoder")))
        return any(count_heads(model))

    def _target_tokens(self, text: str) -> list[int]:
        """What an encoder–decoder is shown to write for a text: itself, which it has learnt to restore."""
        return list(self.tokenizer.encode(text))

    def attention(
        self,
        text: str,
        *,
        layer: int | None = None,
        head: int | None = None,
        token: str | None = None,
        target: str | None = None,
        texts: Sequence[str] = (),
    ) -> "Attention":
        """What the attention heads look at.

        Args:
            text: what is read; of a translator the source.
            layer: whose heads are shown large, from 1; unless given, that of the head that looks most at single distant tokens.
            head: the one that is shown, from 1.
            token: the token whose row is shown in all heads: itself, or its number from 1.
            target: of an encoder–decoder, what is written; unless given what it writes itself.
            texts: over which the statistics of heads are taken.
        """
        from seqloom.analyse.attention import choose, head_statistics
        from seqloom.analyse.attention_page import Attention, Shown

        maps = self._attention_maps(text, target)
        # what is asked for is about the attention to the source, where there is such
        asked = next((each for each in maps if not each.is_square), maps[0])
        shown = [
            Shown(each, choose(each, layer, head, token) if each is asked else choose(each, None, None, None))
            for each in maps
        ]
        return Attention(self.folder.name, text, shown, head_statistics(self.reading, texts) if texts else None)

    def _attention_maps(self, text: str, target: str | None) -> "list[HeadMaps]":
        from seqloom.analyse.attention import pair_attention, read_alone
        from seqloom.analyse.read import LONGEST, read_text, written

        model = self.learner.backbone
        if not hasattr(model, "decoder"):
            if target is not None:
                raise UsageError(f"--target: {self.folder} writes no target for a text: leave it out")
            return read_alone(self.reading, text)
        source, frame = read_text(self.reading, text), PairFrame.of(model, self.tokenizer, self.learner.start_id)
        ids = self._target_tokens(text) if target is None else list(self.tokenizer.encode(target))
        if target is not None:
            names = written(self.tokenizer, target, *self.tokenizer.encode_with_offsets(target))
        else:
            names = [self.tokenizer.decode([i]).strip() or self.tokenizer.token(i) for i in ids]
        start = [frame.start, *frame.before]
        room = LONGEST if model.max_len is None else min(LONGEST, model.max_len - len(start))
        if len(ids) > room:
            if target is not None:
                raise DataError(f"--target has {len(ids):,} tokens, and {room} can be drawn: give a shorter one")
            ids, names = ids[:room], names[:room]
        found = pair_attention(model, source, start, ids, names, self.tokenizer.token(frame.end))
        if not found:
            raise UsageError(f"{self.folder} has no attention: there is nothing to show of it")
        return found
