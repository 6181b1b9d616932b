"""Built-in recipes: for every model and preset `NAME-PRESET`. Plain values, so that a person can print, edit and override them.

tiny     at most a million parameters with the default vocabulary; learns something in a minute on two cores
small    a few million words on one GPU, or overnight on a CPU
others   the published sizes, with rates in the range that their papers and later practice give
"""

from functools import partial
from pathlib import Path
from typing import Any

from seqloom.batch import Backbone, EncoderDecoder
from seqloom.config import override, read_toml, unknown_name
from seqloom.errors import UsageError
from seqloom.models import MODELS, model_class
from seqloom.plugins import Plugin
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.tasks import task_class


def names() -> list[str]:
    return [f"{model}-{preset}" for model in MODELS for preset in model_class(model).presets]


def built_in(name: str, task: str | None = None) -> dict[str, Any]:
    """task: what a model is to learn that learns from labelled examples alone; words are tagged unless given."""
    model = max((m for m in MODELS if name.startswith(f"{m}-")), key=len)
    preset = name.removeprefix(f"{model}-")
    cls: Any = model_class(model)
    values = {key: value for key, value in cls.presets[preset].items() if key != "vocab_size"}
    training = counted if cls.learns_from == "counts" else recurrent if cls.recurrent else transformer
    training = averaged if model == "awd-lstm" else training
    if not cls.causal:
        training = partial(passages, model)
    if issubclass(cls, Backbone) and cls.learns_from == "labels":
        training = partial(scratch, model, task or {"text-cnn": "classify"}.get(model, "tag"))
    if issubclass(cls, EncoderDecoder):
        training = attentive_pairs if model == "transformer" else recurrent_pairs
    return {
        "name": name,
        "model": {"name": model, **values},
        **training(preset, values),
    }


WARMUP = 256  # tokens before each part of a long document, in the measurements during training


def counted(preset: str, model: dict[str, Any]) -> dict[str, Any]:
    """All of the training text, once: nothing else decides what is counted."""
    return {"objective": {"name": "counts"}, "budget": {"epochs": 1}}


def recurrent(preset: str, model: dict[str, Any]) -> dict[str, Any]:
    """Streams with a carried state: truncated back-propagation through time. The state begins anew with every document, as it
    does in evaluation; not in LSTMs with projections, for which a GPU has no kernel where lengths differ. The output layer has
    a bias, as these papers have it: a state that starts near zero would need long to learn how frequent words are."""
    reset = not model.get("proj_dim")
    objective: dict[str, Any] = {"name": "next-token", "bias": True}
    if "embedding_dim" in model or "filters" in model:  # a table of another width than the hidden states, or none
        objective["tie"] = False
    if preset == "jozefowicz-2016":
        objective |= {"softmax": "sampled", "samples": 8192}
    if preset == "tiny":
        return {
            "objective": objective,
            "batches": {"kind": "streams", "streams": 32, "length": 64, "reset": reset},
            "valid": {"warmup": WARMUP},
            "train": {"optim": {"lr": 4e-3}, "schedule": {"warmup": 50}, "eval_every": 200},
            "budget": {"tokens": 2e6},
        }
    return {
        "objective": objective,
        "batches": {"kind": "streams", "streams": 64, "length": 128, "reset": reset},
        "valid": {"warmup": WARMUP},
        "train": {"optim": {"lr": 2e-3, "weight_decay": 0.01}, "schedule": {"warmup": 200}},
        "budget": {"epochs": 10},
    }


def averaged(preset: str, model: dict[str, Any]) -> dict[str, Any]:
    """Merity et al., 2017 (arXiv 1708.02182): section 5 has rate 30, clipping at 0.25, α = 2, β = 1, lengths around 70, an
    evaluation an epoch, nonmono 5, 750 epochs and 80 streams for WT2 (40 for PTB). The 20 streams and 500 epochs for PTB
    and the weight decay are from the commands that its authors later gave. Then, as they go on:

        seqloom pretrain awd-lstm-ptb --data DATA --out RUN2 --from RUN --set train.optim.average=start --set train.patience=5

    The published sizes carry their state from document to document, as the paper does.
    """
    objective = {"name": "regularized", "bias": True, "alpha": 2.0, "beta": 1.0}
    optim = {"name": "sgd", "lr": 30.0, "clip": 0.25, "weight_decay": 1.2e-6, "average": "nonmono", "nonmono": 5}
    schedule = {"name": "constant", "warmup": 0}
    if preset == "tiny":
        return {
            "objective": objective,
            "batches": {"kind": "streams", "streams": 16, "length": 35, "vary": True, "reset": True},
            "valid": {"warmup": WARMUP},
            "train": {"optim": optim, "schedule": schedule, "eval_every": 200},
            "budget": {"tokens": 2e6},
        }
    streams, every, epochs = {"ptb": (20, 680, 500), "wt2": (80, 380, 750)}.get(preset, (40, 1000, 20))
    return {
        "objective": objective,
        "batches": {
            "kind": "streams",
            "streams": streams,
            "length": 70,
            "vary": True,
            "reset": preset not in ("ptb", "wt2"),
        },
        "train": {"optim": optim, "schedule": schedule, "eval_every": every, "save_every": every},
        "budget": {"epochs": epochs},
        "valid": {"limit": 0} | ({} if preset in ("ptb", "wt2") else {"warmup": WARMUP}),
    }


def transformer(preset: str, model: dict[str, Any]) -> dict[str, Any]:
    """Whole documents, packed into a fixed number of tokens."""
    length = model["max_len"]
    objective = {"name": "next-token"}
    if preset == "tiny":
        return {
            "objective": objective,
            "batches": {"budget": 16 * length, "length": length},
            "train": {"optim": {"lr": 4e-3, "weight_decay": 0.01}, "schedule": {"warmup": 50}, "eval_every": 200},
            "budget": {"tokens": 2e6},
        }
    wide = model["dim"] >= 768
    return {
        "objective": objective,
        "batches": {"budget": (32 if wide else 64) * length, "length": length},
        "train": {
            "optim": {"lr": 6e-4 if wide else 1e-3, "weight_decay": 0.1, "beta2": 0.95 if wide else 0.99},
            "schedule": {"warmup": 1000 if wide else 200},
        },
        "budget": {"epochs": 10},
    }


OBJECTIVES_OF = {
    "bert": {"name": "next-sentence"},
    "albert": {"name": "sentence-order"},
    "electra": {"name": "replaced-token"},
    "ernie": {"name": "masked", "unit": "word"},
}


SMOOTHING = {"multilingual": 0.7, "xlm": 0.5, "xlm-r": 0.3}  # of the shares of languages, by preset (mBERT) or model


def passages(model_name: str, preset: str, model: dict[str, Any]) -> dict[str, Any]:
    """Pieces of documents with their special tokens. Published sizes: 256 passages a step (BERT: 1,000,000 steps, 10,000 of
    warm-up to 1e-4, a linear fall, weight decay 0.01, 128 tokens for the first 90%)."""
    objective, length = dict(OBJECTIVES_OF.get(model_name, {"name": "masked"})), model["max_len"]
    smoothing = SMOOTHING.get(model_name, SMOOTHING.get(preset))
    mixed = {} if smoothing is None else {"smoothing": smoothing}
    if preset == "tiny":
        return {
            "objective": objective,
            "batches": {"kind": "passages", "budget": 16 * length, "length": length, **mixed},
            "train": {"optim": {"lr": 2e-3, "weight_decay": 0.01}, "schedule": {"warmup": 100}, "eval_every": 200},
            "budget": {"tokens": 2e6},
        }
    wide = model["dim"] >= 768
    return {
        "objective": objective,
        "batches": {
            "kind": "passages",
            "budget": (256 if wide else 64) * length,
            "length": length,
            "short": length // 4,
            # the few steps of a small run are too few for the later places of long passages if most are short ones
            **({} if wide else {"short_share": 0.5}),
            **mixed,
        },
        "train": {
            "optim": {"lr": 1e-4 if wide else 1e-3, "weight_decay": 0.01, "beta2": 0.999 if wide else 0.98},
            "schedule": {"name": "linear", "warmup": 10_000 if wide else 500, "floor": 0.0},
        },
        "budget": {"epochs": 40 if wide else 10},
    }


def attentive_pairs(preset: str, model: dict[str, Any]) -> dict[str, Any]:
    """Vaswani et al., 2017: 4,000 steps of warm-up to a rate of (dim · 4000)^−½, β₂ 0.98, ε 1e-9, batches of 25,000 tokens a
    side on 8 GPUs, the mean of the last 5 (base) or 20 (big) checkpoints. Small text wants more dropout, a shorter
    warm-up and a higher rate that falls to nothing: on Multi30k 5 BLEU more than the paper's (docs/results)."""
    task = {"name": "translate", "label_smoothing": 0.1}
    optim: dict[str, Any] = {"lr": 3e-3, "beta2": 0.98, "eps": 1e-9, "clip": 1.0}
    schedule: dict[str, Any] = {"name": "inverse_sqrt", "warmup": 2000}
    if preset == "tiny":
        return {
            "task": task,
            "batches": {"kind": "pairs", "budget": 2048, "length": 128},
            "train": {"optim": optim, "schedule": schedule | {"warmup": 200}, "eval_every": 200},
            "budget": {"tokens": 1e6},
        }
    if preset == "small":
        return {
            "task": task,
            "batches": {"kind": "pairs", "budget": 4096, "length": 128},
            "train": {
                "optim": optim | {"lr": 2e-3},
                "schedule": {"name": "cosine", "warmup": 1000},
                "average_last": 10,
                "save_every": 100,
                "eval_every": 200,
            },
            "budget": {"epochs": 60},
        }
    peak = (model.get("dim", 512) * 4000) ** -0.5
    return {
        "task": task,
        "batches": {"kind": "pairs", "budget": 25000, "length": 256},
        "train": {
            "optim": optim | {"lr": float(f"{peak:.3g}"), "clip": 0.0},
            "schedule": schedule | {"warmup": 4000},
            "average_last": 20 if preset == "big" else 5,
            "save_every": 1000,
            "eval_every": 1000,
        },
        "budget": {"steps": 300_000 if preset == "big" else 100_000},
    }


def recurrent_pairs(preset: str, model: dict[str, Any]) -> dict[str, Any]:
    """Adam at a constant rate that is halved when the validation loss has stopped to fall, as most later work has it; the
    papers' SGD rates belong to their sizes and weeks."""
    train: dict[str, Any] = {
        "optim": {"lr": 1e-3, "clip": 1.0},
        "schedule": {"name": "plateau", "warmup": 100, "floor": 0.01},
        "eval_every": 200,
        "patience": 8,
    }
    sizes = (2048, 128, {"tokens": 1e6}) if preset == "tiny" else (4096, 128, {"epochs": 30})
    return {
        # small text has not enough of a word to learn it twice
        "task": {"name": "translate", "label_smoothing": 0.1, "tie": preset in ("tiny", "small"), "bias": True},
        "batches": {"kind": "pairs", "budget": sizes[0], "length": sizes[1]},
        "train": train | ({"optim": {"lr": 3e-3, "clip": 1.0}} if preset == "tiny" else {}),
        "budget": sizes[2],
    }


def scratch(model_name: str, task: str, preset: str, model: dict[str, Any]) -> dict[str, Any]:
    """A model that learns from labelled examples alone. The rate was chosen on wikigold's validation part (one seed, small: F1
    0.40 with 1e-3, 0.53 with 4e-3, 0.55 with 1e-2)."""
    values = labelled(task, {"name": model_name, **model}, "scratch")
    values["train"]["optim"]["lr"] = 4e-3
    return values


def for_task(values: dict[str, Any], task: str) -> dict[str, Any]:
    """A recipe that learns from plain text as one that learns a task: the same model and training, other examples."""
    if "task" in values:
        return values
    if task_class(task).reads == "labelled":
        model = values["model"]
        return {"name": values["name"], "model": model, **labelled(task, model, "scratch")}
    kept = {key: value for key, value in values.get("batches", {}).items() if key in ("budget", "length")}
    changed = {key: value for key, value in values.items() if key != "objective"}
    return changed | {
        "task": {"name": task},
        "batches": {"kind": "pairs" if task_class(task).reads == "pairs" else "passages", **kept},
    }


def labelled(task: str, model: dict[str, Any], how: str) -> dict[str, Any]:
    """A task that tells something about texts. how: "scratch"; "finetune", all of a backbone's weights; "features", it stays as
    it is; "gradual", from the top layer down at rates that fall with depth (ULMFiT, Howard & Ruder, 2018).

    Narrow models want higher rates: 5e-5, which BERT's authors recommend, at 768 numbers."""
    cls: Any = model_class(model["name"])
    field = cls.Config.model_fields.get("dim")
    dim = model.get("dim") or (256 if field is None else field.default)
    tuned = min(float(f"{0.04 / dim:.1g}"), 1e-3) * (4 if cls.recurrent else 1)
    attentive = "num_heads" in cls.Config.model_fields
    rate = {"scratch": 5e-4 if attentive else 1e-3, "finetune": tuned, "features": 2e-3, "gradual": 2 * tuned}[how]
    optim: dict[str, Any] = {"lr": rate, "weight_decay": 0.01, "beta2": 0.999}
    train: dict[str, Any] = {
        "optim": optim,
        "schedule": {"name": "slanted", "warmup": 0, "floor": 0.0},
        "eval_every": 0,
        "save_every": 1000,
        "watch": "auto",
    }
    section: dict[str, Any] = {"name": task}
    if how == "features":
        # words as wide as nothing else, and nothing that leads from them to the layers: there is no mix of them
        uneven = "embedding_dim" in cls.Config.model_fields and not attentive
        section |= {"frozen": True, "layers": "last" if uneven else "mix"}
        if task in ("classify", "pair", "regress", "choose"):
            section["pool"] = "mean"
    if how == "gradual":
        train |= {"unfreeze": 1.0, "schedule": train["schedule"] | {"floor": 1 / 32}}
        optim |= {"layer_decay": 1 / 2.6}
    if cls.recurrent and how != "features" and task in ("classify", "pair", "regress", "choose"):
        section["pool"] = "concat"
    epochs = {"scratch": 15, "finetune": 5, "features": 15, "gradual": 10}[how]
    limit = model.get("max_len") or 256
    return {
        "task": section,
        "batches": {"kind": "labelled", "examples": 32, "length": min(limit, 512)},
        "train": train,
        "budget": {"epochs": epochs},
    }


def find_recipe(
    name: str, settings: list[str] | None = None, plugin: Plugin | None = None, task: str | None = None
) -> Recipe:
    """A function of the plugin, a built-in name or a TOML file, with dotted overrides. task: what is to be learnt with it."""
    own = None if plugin is None else plugin.recipe(name)
    if own is not None:
        values = own
    elif name.endswith(".toml") and not Path(name).exists():
        raise UsageError(f"{name}: no such recipe file: 'seqloom recipes gpt2-tiny --toml > {name}' makes one to edit")
    elif name.endswith(".toml") or Path(name).is_file():
        values = read_toml(Path(name))
        values.setdefault("name", Path(name).stem)
    elif name in names():
        values = built_in(name, task)
    else:
        raise UsageError(unknown_name("recipe", name, name, names()) + "; a TOML file is taken too")
    if task is not None:
        values = for_task(values, task)
    for assignment in settings or []:
        override(values, assignment)
    return build_recipe(values, name)
