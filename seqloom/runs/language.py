"""Models with language embeddings (XLM): the languages that they know, and the one that texts are in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from seqloom.errors import UsageError


class LanguageSupport:
    """The language of a trained model's texts; every trained model has it."""

    folder: Path
    learner: Any
    languages: Sequence[str] = ()  # of training, in the order of their numbers
    language: str | None = None  # of the texts

    def set_language(self, language: str) -> Self:
        """Sets the language of the texts from now on, for a model with language embeddings. language: one of its `languages`."""
        if language not in self.languages:
            hint = (
                f"knows {', '.join(self.languages)}" if self.languages else "has no language embeddings: leave it out"
            )
            raise UsageError(f"--language {language}: {self.folder} {hint}")
        self.language = language
        set_default_language(self.learner, self.language_record)
        return self

    def check_language(self) -> None:
        """Raises UsageError where a model with language embeddings has not been told the language of the texts."""
        if len(self.languages) > 1 and self.language is None:
            raise UsageError(
                f"{self.folder} was trained with language embeddings: name the language of the texts, one of "
                f"{', '.join(self.languages)}, as --language {self.languages[0]}"
            )

    @property
    def language_record(self) -> dict[str, Any]:
        """What the config.json of a run that starts from this one says of languages; empty without language embeddings."""
        return {"languages": list(self.languages), "language": self.language} if self.languages else {}


Trained = TypeVar("Trained", bound=LanguageSupport)


def in_language(found: Trained, language: str | None) -> Trained:
    """Sets the language of a model's texts. None: leaves it as it is."""
    return found if language is None else found.set_language(language)


def set_default_language(learner: Any, record: dict[str, Any]) -> None:
    """Sets the language of texts that come without one, where a record names it; else it is the first."""
    if record.get("language") is not None:
        learner.backbone.embedding.default_segment = record["languages"].index(record["language"])
