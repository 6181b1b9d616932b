"""What every loaded run can show of its inside. Each of these gives a Finding: a page, its numbers, its pictures."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.batches.pairs import PairFrame
from seqloom.errors import DataError, UsageError

if TYPE_CHECKING:
    from seqloom.analyse.attention import HeadMaps
    from seqloom.analyse.attention_page import Attention
    from seqloom.analyse.experts_page import ExpertsFinding
    from seqloom.analyse.garbled import Garbled
    from seqloom.analyse.heads_page import Heads
    from seqloom.analyse.preference import Preference
    from seqloom.analyse.roll import Roll
    from seqloom.analyse.saliency import Question
    from seqloom.analyse.saliency_page import SaliencyFinding
    from seqloom.analyse.units_page import Cells
    from seqloom.evaluate.encode import Reading

ERASED_TEXTS = 50  # of a file that the erasure test reads


class LookInside:
    """The part of a loaded run that shows what happens inside its model."""

    folder: Path
    learner: Any
    tokenizer: Any
    device: Any

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

    def roll(
        self, song: str | Path, *, layer: int | None = None, head: int | None = None, token: str | None = None
    ) -> "Roll":
        """A song as a piano roll, with arcs to what the attention heads look at from one of its tokens.

        Args:
            song: a MIDI file, or a text of musical events.
            layer: whose heads are drawn, from 1; chosen as in `attention` unless given.
            head: the one that is drawn, from 1; all of the layer unless given.
            token: where the arcs begin: a word of the song, or its number from 1; the last one unless given.
        """
        from seqloom.runs.music import show_roll

        return show_roll(self, song, layer, head, token)

    def _attention_maps(self, text: str, target: str | None) -> "list[HeadMaps]":
        from seqloom.analyse.attention import pair_attention, read_alone
        from seqloom.analyse.read import read_text

        model = self.learner.backbone
        if not hasattr(model, "decoder"):
            self._refuse_target(target)
            return read_alone(self.reading, text)
        source, (start, ids, names, end) = read_text(self.reading, text), self._read_target(text, target)
        found = pair_attention(model, source, start, ids, names, end)
        if not found:
            raise UsageError(f"{self.folder} has no attention: there is nothing to show of it")
        return found

    def _refuse_target(self, target: str | None) -> None:
        if target is not None:
            raise UsageError(f"--target: {self.folder} writes no target for a text: leave it out")

    def _read_target(self, text: str, target: str | None) -> tuple[list[int], list[int], list[str], str]:
        """What an encoder–decoder writes for a text: what it begins with, its tokens, their names, and that of the end."""
        from seqloom.analyse.read import LONGEST, name_token, written

        model = self.learner.backbone
        frame = PairFrame.of(model, self.tokenizer, self.learner.start_id)
        ids = self._target_tokens(text) if target is None else list(self.tokenizer.encode(target))
        if target is not None:
            names = written(self.tokenizer, target, *self.tokenizer.encode_with_offsets(target))
        else:
            names = [name_token(self.tokenizer, i) for i in ids]
        start = [frame.start, *frame.before]
        room = LONGEST if model.max_len is None else min(LONGEST, model.max_len - len(start))
        if len(ids) > room:
            if target is not None:
                raise DataError(f"--target has {len(ids):,} tokens, and {room} can be drawn: give a shorter one")
            ids, names = ids[:room], names[:room]
        return start, ids, names, self.tokenizer.token(frame.end)

    def saliency(
        self,
        text: str,
        *,
        label: str | None = None,
        token: str | None = None,
        target: str | None = None,
        texts: Sequence[str] = (),
    ) -> "SaliencyFinding":
        """Which tokens of a text an answer hangs on: the probability of a class, a tag, the next token, a word in a gap, or a
        token of a translation.

        Args:
            text: what is read; with [MASK] for models that fill gaps.
            label: the class, the tag, or the word in the gap whose probability is explained; the likeliest unless given.
            token: the token that is predicted (of a translator, in the target), or the word whose tag is; itself or its number
                from 1; the last one unless given, of words the first.
            target: of an encoder–decoder, what is written; unless given what it writes itself.
            texts: further ones for the erasure test, which is about `text` alone without them.
        """
        from seqloom.analyse.saliency import erase, find_saliency
        from seqloom.analyse.saliency_page import SaliencyFinding
        from seqloom.progress import Progress

        found = find_saliency(self._question(text, label, token, target))
        erased = [erase(found)]
        others = [each for each in texts if each != text][: ERASED_TEXTS - 1]
        with Progress("erase", total=len(others), unit="texts") as bar:
            for each in others:
                with suppress(DataError):  # of many texts some are too long, or have no gap
                    erased.append(erase(find_saliency(self._question(each, None, None, None))))
                bar.advance(1)
        return SaliencyFinding(self.folder.name, text, found, erased)

    def _question(self, text: str, label: str | None, token: str | None, target: str | None) -> "Question":
        from seqloom.analyse.questions import about_gap, about_next_word, about_target
        from seqloom.evaluate.encode import Encoder

        if hasattr(self.learner.backbone, "decoder"):
            if label is not None:
                raise UsageError("--label is for classes, tags and gaps: name a token of the target with --token")
            start, ids, names, _end = self._read_target(text, target)
            return about_target(self.learner, self.reading, text, start, ids, names, token)
        self._refuse_target(target)
        ahead = self._left_to_right()
        if ahead is not None:
            if label is not None:
                raise UsageError("--label is for classes, tags and gaps: name a token of the text with --token")
            reading = self.reading
            if ahead is not self.learner:  # it reads texts as left-to-right models do, not as the whole does
                reads = Encoder(ahead.backbone, [self.tokenizer.end_id], [], self.device)
                reading = reading._replace(encoder=reads)
            return about_next_word(ahead, reading, text, token)
        if not self.learner.fills_gaps:
            raise UsageError(
                f"{self.folder} predicts neither labels nor words one by one: fine-tune it to a task first"
            )
        if token is not None:
            raise UsageError("--token is for next tokens, translations and tags: name the word in the gap with --label")
        encoder = self.reading.encoder
        return about_gap(self.learner, self.tokenizer, text, (list(encoder.before), list(encoder.after)), label)

    def _left_to_right(self) -> Any:
        """What predicts the next token: of a model with two directions that never meet the forward one; None if nothing does."""
        from seqloom.objectives.next_token import as_left_to_right

        learner = self.learner
        if learner.has_next_word:
            return as_left_to_right(learner)
        return learner.direction(False) if hasattr(learner, "direction") else None

    def heads(self, text: str = "", *, texts: Sequence[str] = (), file: str | Path | None = None) -> "Heads":
        """Which attention heads and layers the run needs: importance by gradient, true ablation, and what is left of it when
        heads are taken away.

        Args:
            text: one that the loss is measured on.
            texts: several, in its place.
            file: with labelled examples or pairs, for runs that have learnt a task.
        """
        from seqloom.analyse.heads import Parts, parts_of, study_heads
        from seqloom.analyse.heads_page import Heads
        from seqloom.runs.measured_examples import measured_examples

        modules = parts_of(self.learner)
        given = None if file is None else Path(file)
        examples, unit = measured_examples(self, texts or [text], given)
        source = f"{min(len(texts), 512):,} texts" if given is None else given.name
        return Heads(self.folder.name, source, study_heads(Parts(self.learner, modules, examples, self.device, unit)))

    def experts(self, text: str = "", *, texts: Sequence[str] = (), file: str | Path | None = None) -> "ExpertsFinding":
        """Which experts the words of each kind go through.

        Args:
            text: one whose words are told apart by what they look like.
            texts: several, in its place.
            file: with tagged words, for example by part of speech.
        """
        from seqloom.analyse.experts import expert_use, plain_sentences
        from seqloom.analyse.experts_page import ExpertsFinding
        from seqloom.text.tagged import read_tagged

        if file is not None:
            return ExpertsFinding(
                self.folder.name, Path(file).name, expert_use(self.reading, list(read_tagged([Path(file)])))
            )
        sentences = plain_sentences(texts or [text])
        return ExpertsFinding(self.folder.name, f"{len(sentences):,} texts", expert_use(self.reading, sentences))

    def cells(self, text: str, *, unit: str | None = None, texts: Sequence[str] = ()) -> "Cells":
        """What single units of a recurrent model follow in a text: quotes, the place in the line, digits …

        Args:
            text: read as one, line breaks and all; the first 40,000 characters.
            unit: one that is shown in any case, as layer0.cell.17: layer, state and number.
            texts: several, read one after the other in its place.
        """
        from seqloom.analyse.units import read_units
        from seqloom.analyse.units_page import Cells

        return Cells(self.folder.name, read_units(self.reading, "\n".join(texts) if texts else text), unit)

    def preference(self, file: str | Path) -> "Preference":
        """Which of two wordings the run prefers, row by row and by group: he or she beside an occupation, for example.

        Args:
            file: a table with the columns first and second, and, if there are such, text (the source for a translator, what
                stands before both for other models) and group.
        """
        from seqloom.runs.behaviour import preference

        return preference(self, Path(file))

    def garbled(self, text: str = "", *, texts: Sequence[str] = ()) -> "Garbled":
        """What the run writes for texts that are repeated, shuffled and misspelt.

        Args:
            text: one to garble.
            texts: several, in its place.
        """
        from seqloom.runs.behaviour import garbled

        return garbled(self, texts or [text], f"{len(texts) or 1:,} texts")
