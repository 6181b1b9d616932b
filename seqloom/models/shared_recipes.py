"""Recipes that several models share: what they are trained by, apart from their sizes. Plain values, to be printed and edited.

tiny     at most a million parameters with the default vocabulary; learns something in a minute on two cores
small    a few million words on one GPU, or overnight on a CPU
others   the published sizes, with rates in the range that their papers and later practice give
"""

from typing import Any

WARMUP = 256  # tokens before each part of a long document, in the measurements during training


def recurrent_recipe(preset: str, model: dict[str, Any]) -> dict[str, Any]:
    """Streams with a carried state: truncated back-propagation through time. The state begins anew with every document, as it
    does in evaluation; not in LSTMs with projections, for which a GPU has no kernel where lengths differ. The output layer has
    a bias, as these papers have it: a state that starts near zero would need long to learn how frequent words are."""
    reset = not model.get("proj_dim")
    objective: dict[str, Any] = {"name": "next-token", "bias": True}
    if "embedding_dim" in model or "filters" in model:  # a table of another width than the hidden states, or none
        objective["tie"] = False
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


def decoder_recipe(preset: str, model: dict[str, Any]) -> dict[str, Any]:
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


def encoder_recipe(
    preset: str, model: dict[str, Any], objective: dict[str, Any], smoothing: float | None = None
) -> dict[str, Any]:
    """Pieces of documents with their special tokens. Published sizes: 256 passages a step (BERT: 1,000,000 steps, 10,000 of
    warm-up to 1e-4, a linear fall, weight decay 0.01, 128 tokens for the first 90%). smoothing: of the shares of languages."""
    length = model["max_len"]
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


def recurrent_pairs_recipe(preset: str) -> dict[str, Any]:
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


def caption_recipe(preset: str, rate: float = 2e-3, tie: bool = False) -> dict[str, Any]:
    """Adam with a warm-up and a rate that falls to nothing. A budget is counted in tokens of captions; tiny: what learns the
    scenes of `seqloom scenes` in two minutes on two cores."""
    small = preset == "tiny"
    return {
        "task": {"name": "caption", "label_smoothing": 0.0 if small else 0.1, "tie": tie, "bias": True},
        "batches": {"kind": "pictures", "budget": 640 if small else 2048, "length": 64},
        "train": {
            "optim": {"lr": rate if small else rate / 4, "clip": 1.0, "weight_decay": 0.01},
            "schedule": {"name": "cosine", "warmup": 100 if small else 1000},
            "eval_every": 300 if small else 500,
        },
        "budget": {"epochs": 6 if small else 30},
    }
