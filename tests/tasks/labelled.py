"""Small tasks and texts for tests: every task that tells something about texts, over models of every kind."""

import json
import random

import torch

from seqloom.batches.labelled import Frame
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.models import model_class
from seqloom.tasks import task_class
from seqloom.text.labelled import Example
from seqloom.text.spans import Question
from seqloom.text.tagged import Sentence
from seqloom.tokens.tokenizer import Tokenizer

GOOD, BAD = ["good", "great", "fine"], ["bad", "poor", "dull"]
FILL = [
    "the",
    "film",
    "is",
    "a",
    "story",
    "of",
    "people",
    "who",
    "walk",
    "in",
    "town",
    "and",
    "talk",
    "about",
    "a",
    "house",
]
WORDS = Tokenizer.train("word", [" ".join(GOOD + BAD + FILL) + " ."], min_count=1)
MODELS = {
    "bert": {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 48, "dropout": 0.0},
    "roberta": {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 48, "dropout": 0.0},
    "electra": {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 48, "dropout": 0.0},
    "albert": {"dim": 24, "embedding_dim": 12, "num_layers": 2, "num_heads": 3, "max_len": 48, "dropout": 0.0},
    "gpt": {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 48, "dropout": 0.0},
    "xlnet": {"dim": 24, "num_layers": 2, "num_heads": 3, "mem_len": 9, "dropout": 0.0},
    "lstm": {"dim": 24, "num_layers": 2},
    "elmo": {"dim": 16, "proj_dim": 12, "dropout": 0.0, "max_chars": 6, "filters": [[1, 8], [2, 8]], "num_highways": 1},
    "nnlm": {"order": 4, "embedding_dim": 12, "dim": 24},
}
VALUES = {
    "classify": {"labels": ["bad", "good"]},
    "pair": {"labels": ["other", "same"]},
    "regress": {"mean": 1.0, "spread": 0.7},
    "choose": {},
    "span": {"unanswered": True, "stride": 8},
    "tag": {"labels": ["B-bad", "B-good", "O"], "scheme": "iob2"},
}


def sentence(rng: random.Random, good: bool, longest: int = 9) -> str:
    words = [rng.choice(FILL) for _ in range(rng.randint(1, longest))]
    words.insert(rng.randrange(len(words) + 1), rng.choice(GOOD if good else BAD))
    return " ".join(words)


def examples(task: str, count: int, seed: int = 0) -> list:
    rng, found = random.Random(seed), []
    for i in range(count):
        good, other, place = rng.random() < 0.5, rng.random() < 0.5, f"file:{i + 1}"
        if task == "classify":
            found.append(Example((sentence(rng, good),), "good" if good else "bad", None, place))
        elif task == "pair":
            texts = (sentence(rng, good), sentence(rng, other))
            found.append(Example(texts, "same" if good == other else "other", None, place))
        elif task == "regress":
            number = rng.randint(0, 4)
            found.append(Example((" ".join(["the", *[GOOD[0]] * number, "film"]),), number / 2, None, place))
        elif task == "choose":
            right, many = rng.randrange(2), rng.randint(2, 4)
            choices = [sentence(rng, k == right) for k in range(many)]
            found.append(Example(("the", *choices), right, None, place))
        elif task == "tag":
            words = sentence(rng, good, 60 if i % 5 == 0 else 12).split()
            tags = ["B-good" if word in GOOD else "B-bad" if word in BAD else "O" for word in words]
            found.append(Sentence(words, tags, place))
        else:
            context = sentence(rng, good, 60 if i % 5 == 0 else 12)
            word = next(word for word in context.split() if word in GOOD + BAD)
            answers = [] if i % 4 == 0 else [(word, f" {context} ".index(f" {word} "))]
            found.append(Question(str(i), "is it good", context, answers, not answers, place))
    return found


def learner(task: str, model: str, seed: int = 0, **values):
    cls, kind = model_class(model), task_class(task)
    torch.manual_seed(seed)
    backbone = cls(cls.Config(vocab_size=WORDS.vocab_size, **MODELS[model]))
    backbone.set_vocabulary(PreparedVocabulary(WORDS))
    return kind(backbone, kind.Config(**(VALUES[task] | {"dropout": 0.0} | values)))


def frame(made, length: int = 48) -> Frame:
    return Frame.of(made.backbone, WORDS, length)


def write(path, task: str, rows: list) -> None:
    """As the task's files have them."""
    if task == "span":
        data = [
            {"title": row.id, "paragraphs": [{"context": row.context, "qas": [{
                "id": row.id, "question": row.question, "is_impossible": row.impossible,
                "answers": [{"text": text, "answer_start": start} for text, start in row.answers],
            }]}]}
            for row in rows
        ]  # fmt: skip
        path.write_text(json.dumps({"version": "v2.0", "data": data}))
        return
    if task == "tag":
        columns = ("".join(f"{word} {tag}\n" for word, tag in zip(row.words, row.tags, strict=True)) for row in rows)
        path.write_text("\n".join(columns))
        return
    lines = []
    for row in rows:
        fields = {"text": row.texts[0], "label": row.label}
        fields |= {"text2": row.texts[1]} if task == "pair" else {}
        fields |= {"choices": row.texts[1:]} if task == "choose" else {}
        lines.append(json.dumps(fields) + "\n")
    path.write_text("".join(lines))
