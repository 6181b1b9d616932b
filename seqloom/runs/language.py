"""Models that are told the language of a text (XLM): which they know, and which one texts are in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from seqloom.errors import UsageError


class LanguageSupport:
    """A part of every trained model."""

    folder: Path
    learner: Any
    languages: Sequence[str] = ()  # that it was told in training, in the order of their numbers
    language: str | None = None  # that texts are in

    def set_language(self, language: str) -> Self:
        """Texts are in this language from now on: for a model that was told languages in training."""
        if language not in self.languages:
            told = f"the languages {', '.join(self.languages)}" if self.languages else "no languages"
            raise UsageError(f"--language {language}: {self.folder} was told {told} in training")
        self.language = language
        set_default_language(self.learner, self.language_record)
        return self

    def check_language(self) -> None:
        if len(self.languages) > 1 and self.language is None:
            raise UsageError(
                f"{self.folder} was told the languages {', '.join(self.languages)} in training: say which of them the texts "
                f"are in, with --language {self.languages[0]}"
            )

    @property
    def language_record(self) -> dict[str, Any]:
        """What a run that begins with this one writes down about its text; nothing of a model that is told no language."""
        return {"languages": list(self.languages), "language": self.language} if self.languages else {}


Trained = TypeVar("Trained", bound=LanguageSupport)


def in_language(found: Trained, language: str | None) -> Trained:
    """language: that texts are in; None: as it was."""
    return found if language is None else found.set_language(language)


def set_default_language(learner: Any, speech: dict[str, Any]) -> None:
    """Texts that do not say it themselves are in the language that was told; with no choice, in the first."""
    if speech.get("language") is not None:
        learner.backbone.embedding.default_segment = speech["languages"].index(speech["language"])
