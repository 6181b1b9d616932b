"""The text of pre-training: one prepared folder, or one for each language, cut into batches; and the evaluation on its
held-out part."""

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from seqloom.batches.languages import Mixed, WithLanguage, passes, shares
from seqloom.batches.passages import Passages
from seqloom.batches.plan import Batches
from seqloom.batches.store import Split, Store
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.errors import DataError, ModelError, SeqloomError, UsageError
from seqloom.evaluate.evaluators import HeldOutText, evaluator_of
from seqloom.models import model_class
from seqloom.objectives import objective_class
from seqloom.plugins import Plugin
from seqloom.progress import say
from seqloom.recipes.schema import Recipe
from seqloom.runs.beside import BesideRuns
from seqloom.runs.folder import read_config
from seqloom.text.survey import SPLITS
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.loop import Precompute
from seqloom.training.share import Share
from seqloom.training.state import Budget
from seqloom.weights import shapes_only


class Corpus:
    """Prepared folders with one tokenizer, by the names of their languages and in that order; a single one has no name."""

    scored: tuple[str, ...] = ()  # there are no scores but the loss
    source_tokenizer: Tokenizer | None = None  # it has no pairs
    beside: BesideRuns | None = None  # it has no examples that features of other runs could stand beside

    def __init__(
        self,
        recipe: Recipe,
        stores: dict[str, Store],
        plugin: Plugin | None = None,
        resumed: Path | None = None,
    ):
        """resumed: the folder of a run that is to be resumed."""
        self.recipe, self.stores = recipe, stores
        self.train: list[Split] = [store.split("train") for store in stores.values()]
        for store, train in zip(stores.values(), self.train, strict=True):
            if train.num_documents == 0:
                raise DataError(f"{store.folder}: its training split is empty: prepare it from more text")
        sizes = [train.num_tokens for train in self.train]
        self.shares, self.passes = (find(sizes, recipe.batches.smoothing) for find in (shares, passes))
        # of an epoch, as a budget counts them: passages have special tokens in place of the one that ends a document
        ends = 1 if recipe.batches.kind == "passages" else 0
        self.num_tokens = round(
            sum(
                often * (train.num_tokens - ends * train.num_documents)
                for often, train in zip(self.passes.tolist(), self.train, strict=True)
            )
        )
        self.names = list(stores) if len(stores) > 1 else []
        self.marks_languages = bool(self.names) and count_languages(recipe) > 0
        self.first = next(iter(stores.values()))  # for what all have in common
        if any(store.backward != self.first.backward for store in stores.values()):
            raise DataError(
                "--data: some of the folders were prepared with --backward, others not: one model reads one way"
            )
        if self.first.backward and not model_class(recipe.model["name"]).causal:
            raise DataError(
                f"{self.first.folder} was prepared with --backward, for models that read one way; {recipe.model['name']} reads "
                f"both: prepare it without"
            )
        if self.names:
            self.check()
        if resumed is not None:
            self.count_as(resumed / "config.json")
        with shapes_only():
            characters = recipe.learner(self.vocab_size, plugin).backbone.characters
        for store in stores.values():
            store.spell(characters)

    @classmethod
    def open(
        cls,
        recipe: Recipe,
        folders: str | Path | Sequence[str | Path],
        plugin: Plugin | None = None,
        resumed: Path | None = None,
    ) -> "Corpus":
        paths = [Path(folders)] if isinstance(folders, str | Path) else [Path(folder) for folder in folders]
        if not paths:
            raise UsageError("--data: name at least one prepared folder")
        if len(paths) == 1:
            return cls(recipe, {"": Store.open(paths[0])}, plugin, resumed)
        stores: dict[str, Store] = {}
        for path in sorted(paths, key=language_name):
            name = language_name(path)
            if name in stores:
                raise UsageError(
                    f"--data {stores[name].folder} and {path}: a language is called as its folder is, and both are {name!r}: "
                    f"rename one of them"
                )
            stores[name] = Store.open(path)
        return cls(recipe, stores, plugin, resumed)

    def __repr__(self) -> str:
        folders = ", ".join(str(store.folder) for store in self.stores.values())
        return f"<Corpus {folders} for {self.recipe.name}: {self.summary}>"

    def check_outside(self, folder: Path) -> None:
        """Raises UsageError where a run would be written into a folder that holds the data."""
        for store in self.stores.values():
            if folder.resolve() in (store.folder.resolve(), *store.folder.resolve().parents):
                raise UsageError(f"--out {folder} holds the data itself: choose another folder for the run")

    def check(self) -> None:
        """Raises where the folders cannot be used together in one run."""
        recipe, first = self.recipe, self.first
        if recipe.count_based or recipe.batches.kind == "cells":
            raise UsageError(
                f"--data: {recipe.name} learns by counting, from one folder: prepare all of the text as one"
            )
        if recipe.batches.kind == "streams":
            raise UsageError(
                '--data: batches.kind = "streams" carries a state from batch to batch, which must not go on in another '
                "language: add --set batches.kind=packed, or name one folder"
            )
        for other in self.stores.values():
            if other.manifest.tokenizer != first.manifest.tokenizer:
                raise DataError(
                    f"{first.folder} and {other.folder} have different tokenizers, and a model has one: learn it from the text "
                    f"of all languages, and prepare each with it (seqloom prepare TEXT... --from-tokenizer "
                    f"{first.folder / 'tokenizer.json'} --out DIR)"
                )
            if other.has_spelling != first.has_spelling:
                raise DataError(
                    f"{first.folder} and {other.folder}: only one has the spelling of its unknown words: prepare all of them "
                    f"with --keep-spelling, or none"
                )
        if self.marks_languages and len(self.names) > count_languages(recipe):
            raise UsageError(
                f"{len(self.names)} languages are more than the {count_languages(recipe)} that the model has embeddings for: "
                f"--set model.num_segments={len(self.names)}"
            )

    @property
    def tokenizer(self) -> Tokenizer:
        return self.first.tokenizer

    @property
    def vocab_size(self) -> int:
        return self.first.manifest.vocab_size

    @property
    def words(self) -> float:
        """The words that an epoch reads."""
        return sum(often * train.words for often, train in zip(self.passes.tolist(), self.train, strict=True))

    @property
    def fingerprint(self) -> str:
        if not self.names:
            return self.first.fingerprint
        lines = [f"{name}\n{store.fingerprint}\n" for name, store in self.stores.items()]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def count_as(self, path: Path) -> None:
        """Counts tokens as the run did when it started, by its config.json: older ones counted the ends of documents for every
        objective."""
        try:
            before = read_config(path)["data"]
            self.num_tokens = before.get("epoch_tokens", sum(train.num_tokens for train in self.train))
        except (SeqloomError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass  # there is none yet, or it is damaged: said when the run is resumed

    @property
    def vocabulary(self) -> PreparedVocabulary:
        return PreparedVocabulary(self.tokenizer, self.train)

    @property
    def validates(self) -> bool:
        return bool(self.held_out) and objective_class(self.recipe.learns).chosen_by_loss

    def batches(self, epochs: float, shapes: str = "free") -> Batches:
        """The training batches. epochs: how many the run will have."""
        recipe, found = self.recipe, []
        if recipe.batches.kind == "cells":
            settings, specials = recipe.objective_config, self.vocabulary.specials()
            return recipe.batches.build_cells(self.train[0], specials, settings.window, settings.passes, epochs)
        for number, ((name, store), train) in enumerate(zip(self.stores.items(), self.train, strict=True)):
            if recipe.batches.kind != "passages":
                found.append(recipe.batches.build(train))
                continue
            form, often = objective_class(recipe.learns).form, float(self.passes[number])
            try:
                cut: Any = recipe.batches.build_passages(train, self.tokenizer, form, epochs * often)
            except DataError as error:
                raise DataError(f"{store.folder}: {error}") from error
            if name in self.held_out:  # what cannot be evaluated is said before training
                try:
                    recipe.batches.build_passages(self.held_out[name], self.tokenizer, form, 1.0)
                except DataError as error:
                    raise DataError(f"{store.folder}, held-out text: {error}") from error
            found.append(WithLanguage(cut, number) if self.marks_languages else cut)
        return Mixed(found, self.passes) if self.names else found[0]

    @cached_property
    def held_out(self) -> dict[str, Split]:
        """The valid splits that are not empty, by language."""
        splits = {name: store.split("valid") for name, store in self.stores.items() if "valid" in store.splits}
        found = {name: split for name, split in splits.items() if split.num_documents}
        without = [name for name in self.names if name not in found]
        if without and found:
            say(f"warning: no held-out text of {', '.join(without)}: the validation loss is the mean of the others")
        return found

    @cached_property
    def prepared(self) -> dict[str, Any]:
        """By language, what all evaluations on its held-out text share; filled by the first one."""
        return {}

    def evaluate(self, learner: Any, device: torch.device, share: Share) -> dict[str, Any]:
        """Evaluates on the held-out text; for several languages the loss of each, and their mean."""
        evaluator, valid = evaluator_of(learner, device), self.recipe.valid
        limit = max(valid.limit // len(self.held_out), 1) if valid.limit else None
        found: dict[str, dict[str, Any]] = {}
        for name, split in self.held_out.items():
            if name not in self.prepared:
                language = self.names.index(name) if self.marks_languages else None
                self.prepared[name] = evaluator.prepare(held_out_text(self.recipe, split, self.tokenizer, language))
            found[name] = evaluator.measure(self.prepared[name], limit, share, f"validate {name}".rstrip())
        if not self.names:
            return found[""]
        losses = {name: result["loss"] for name, result in found.items()}
        return {"loss": sum(losses.values()) / len(losses), "languages": losses}

    def precompute(self, learner: Any, device: torch.device, budget: Budget) -> Precompute | None:
        """Everything is computed when it is read."""

    def calibrate(self, run: Any) -> None:
        """There are no probabilities of classes."""

    def score(self, run: Any, split: str, share: Share) -> dict[str, Any]:
        raise NotImplementedError  # nothing is `scored`

    def source(self) -> dict[str, Any]:
        """The entry of config.json about the data."""
        folders = [str(store.folder) for store in self.stores.values()]
        found = {"folder": ", ".join(folders), "fingerprint": self.fingerprint, "spelling": self.first.has_spelling}
        found |= {"epoch_tokens": self.num_tokens}
        found |= {"backward": True} if self.first.backward else {}
        return found | ({"languages": self.names} if self.names else {})

    @property
    def summary(self) -> str:
        parts = [f"{name} {share:.1%}" for name, share in zip(self.names, self.shares.tolist(), strict=False)]
        return f"{self.num_tokens:,} training tokens" + (f" ({', '.join(parts)})" if parts else "")

    def describe(self) -> dict[str, Any]:
        """The manifest of a single folder; for several the sums, and the tokens, share and passes of each language."""
        found = self.first.manifest.model_dump() | {"epoch": {"words": self.words, "tokens": self.num_tokens}}
        if not self.names:
            return found
        manifests = {name: store.manifest.model_dump() for name, store in self.stores.items()}
        kinds = ("documents", "words", "tokens", "bytes")
        there = {split: [m["splits"][split] for m in manifests.values() if split in m["splits"]] for split in SPLITS}
        found["splits"] = {
            split: {kind: sum(part[kind] for part in parts) for kind in kinds}
            for split, parts in there.items()
            if parts
        }
        found["sources"] = [source for manifest in manifests.values() for source in manifest["sources"]]
        found["fingerprint"] = self.fingerprint
        found["languages"] = [
            {"name": name, "tokens": train.num_tokens, "share": share, "passes": often}
            for name, train, share, often in zip(
                self.names, self.train, self.shares.tolist(), self.passes.tolist(), strict=True
            )
        ]
        return found


def language_name(folder: Path) -> str:
    """The last part of the path as it was given: links are not followed."""
    return Path(os.path.abspath(folder)).name


def count_languages(recipe: Recipe) -> int:
    """How many language embeddings a model has; 0: none."""
    return (
        recipe.model_config_of(1).num_segments if model_class(recipe.model["name"]).segment_kind == "languages" else 0
    )


def held_out_text(recipe: Recipe, split: Split, tokenizer: Tokenizer, language: int | None) -> HeldOutText:
    """A split as a recipe reads it. language: its number, for a model with language embeddings."""
    batches = recipe.batches.model_copy(update={"short": 0})

    def passages(form: str) -> Passages | WithLanguage:
        cut = batches.build_passages(split, tokenizer, form, 1.0)
        return cut if language is None else WithLanguage(cut, language)

    return HeldOutText(split, passages, recipe.batches.length, recipe.valid.stride, recipe.valid.warmup)


def languages_of(recipe: Recipe, data: Any) -> list[str]:
    """The languages of a model's embeddings, in the order of their numbers. data: the entry of its config.json."""
    names = data.get("languages") if isinstance(data, dict) else None
    if not names or not count_languages(recipe):
        return []
    if not isinstance(names, list) or len(names) > count_languages(recipe):
        raise ModelError(f"{recipe.name}: the languages in its config.json are damaged")
    return list(map(str, names))


def language_of(names: Sequence[str], folder: str | Path) -> int | None:
    """The number of a folder's language among those of a model's embeddings."""
    if not names:
        return None
    name = language_name(Path(folder))
    if name not in names:
        raise UsageError(
            f"{folder}: the model knows the languages {', '.join(names)}, by the names of their folders, and "
            f"{name!r} is none of them: rename the folder"
        )
    return names.index(name)
