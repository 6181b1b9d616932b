"""Weights of a Vision Transformer in transformers' layout (ViTModel, ViTForImageClassification), for `captioner`."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom.errors import ModelError, UsageError
from seqloom.files import read_json
from seqloom.recipes.schema import Recipe
from seqloom.weights import load_tensors

LAYER = re.compile(r"encoder\.layer\.(\d{1,4})\.(.+)")
PARTS = {
    "attention.output.dense": "mixer.out",
    "intermediate.dense": "ffn.up",
    "output.dense": "ffn.down",
    "layernorm_before": "mixer_norm",
    "layernorm_after": "ffn_norm",
}
QKV = tuple(f"attention.attention.{name}" for name in ("query", "key", "value"))
UNREAD = ("pooler.", "classifier.", "embeddings.mask_token")
# what is the same in every published model, and cannot be another in ours
FIXED = {"model_type": "vit", "hidden_act": "gelu", "layer_norm_eps": 1e-12, "num_channels": 3, "qkv_bias": True}
SIZES = {
    "dim": "hidden_size", "encoder_layers": "num_hidden_layers", "num_heads": "num_attention_heads",
    "ffn_dim": "intermediate_size", "side": "image_size", "patch": "patch_size",
}  # fmt: skip


def check_vit(vit: str | Path, recipe: Recipe, vectors: str | Path | None) -> None:
    """Raises UsageError where the encoder of a recipe cannot begin with a Vision Transformer. vectors: as in `train`."""
    if recipe.model["name"] != "captioner":
        raise UsageError(
            f"--vit {vit}: only the encoder of captioner is a Vision Transformer: use it, or leave --vit out"
        )
    if recipe.model.get("features"):
        raise UsageError(f"--vit {vit} reads pixels: leave 'model.features' out")
    if vectors is not None:
        raise UsageError("--vit and --vectors do not go together: leave one of them out")


def vit_sizes(folder: Path) -> dict[str, Any]:
    """The sizes of the model in a folder, as values of our Config."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{path} is missing: name a folder with a Vision Transformer as transformers saves it")
    config = read_json(path)
    if not isinstance(config, dict):
        raise ModelError(f"{path} is no object: download the folder again")
    for key, wanted in FIXED.items():
        if config.get(key, wanted) != wanted or "model_type" not in config:
            raise ModelError(f"{path}: {key!r} = {config.get(key)!r}: only {wanted!r} can be taken over")
    found = {ours: config.get(theirs) for ours, theirs in SIZES.items()}
    for ours, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1 << 20:
            raise ModelError(f"{path}: {SIZES[ours]!r} = {value!r} is no size: download the folder again")
    return found | {"class_token": True}


def vit_settings(folder: Path) -> list[str]:
    """The same as settings of a recipe of `captioner`."""
    return [f"model.{key}={str(value).lower()}" for key, value in vit_sizes(folder).items()]


def vit_colours(folder: Path) -> tuple[Tensor, Tensor]:
    """What the model reads of each colour is scale · x + shift, of our x from −1 to 1: ViT of Google 1 and 0, others the mean and
    deviation of ImageNet. The matrix of the patches takes both in."""
    path = folder / "preprocessor_config.json"
    config = read_json(path) if path.is_file() else {}
    if not isinstance(config, dict):
        raise ModelError(f"{path} is no object: download the folder again")
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    mean, std = ([0.0] * 3, [1.0] * 3)
    if config.get("do_normalize", True):
        mean, std = (config.get(name, [0.5] * 3) for name in ("image_mean", "image_std"))
    for name, values in (("rescale_factor", [factor]), ("image_mean", mean), ("image_std", std)):
        count = 1 if name == "rescale_factor" else 3
        fit = isinstance(values, list) and len(values) == count and all(type(each) in (int, float) for each in values)
        if not fit or not all(abs(each) < 1e6 and (each > 0 or name == "image_mean") for each in values):
            raise ModelError(
                f"{path}: {name!r} = {config.get(name)!r} is no such number for each colour: download it again"
            )
    half, centre, spread = 127.5 * factor, torch.tensor(mean), torch.tensor(std)
    return half / spread, (half - centre) / spread


def read_vit(folder: Path) -> dict[str, Tensor]:
    """Tensors of a PatchEncoder."""
    sizes, tensors = vit_sizes(folder), load_tensors(folder / "model.safetensors")
    theirs = {name.removeprefix("vit."): tensor.float() for name, tensor in tensors.items()}
    found: dict[str, Tensor] = {}

    def take(name: str, *shape: int) -> Tensor:
        tensor = theirs.pop(name, None)
        if tensor is None or tensor.shape != torch.Size(shape):
            what = "is missing" if tensor is None else f"has the shape {tuple(tensor.shape)}"
            raise ModelError(
                f"{folder / 'model.safetensors'}: {name!r} {what}, wanted {shape}: download the folder again"
            )
        return tensor

    dim, wide, patch = sizes["dim"], sizes["ffn_dim"], sizes["patch"]
    places = (sizes["side"] // patch) ** 2 + 1
    found["embedding.first"] = take("embeddings.cls_token", 1, 1, dim)[0]
    found["embedding.places"] = take("embeddings.position_embeddings", 1, places, dim)[0]
    project = "embeddings.patch_embeddings.projection"
    weight, bias = take(f"{project}.weight", dim, 3, patch, patch), take(f"{project}.bias", dim)
    scale, shift = vit_colours(folder)
    found["embedding.project.weight"] = (weight * scale[:, None, None]).flatten(1)
    found["embedding.project.bias"] = bias + (weight * shift[:, None, None]).sum((1, 2, 3))
    shapes = {"mixer.out": (dim, dim), "ffn.up": (wide, dim), "ffn.down": (dim, wide)}
    for i in range(sizes["encoder_layers"]):
        own, before = f"stack.layers.{i}", f"encoder.layer.{i}"
        for end, shape in (("weight", (dim, dim)), ("bias", (dim,))):
            found[f"{own}.mixer.qkv.{end}"] = torch.cat([take(f"{before}.{name}.{end}", *shape) for name in QKV])
        for their, our in PARTS.items():
            shape = shapes.get(our, (dim,))
            found[f"{own}.{our}.weight"] = take(f"{before}.{their}.weight", *shape)
            found[f"{own}.{our}.bias"] = take(f"{before}.{their}.bias", shape[0])
    for end in ("weight", "bias"):
        found[f"stack.top.{end}"] = take(f"layernorm.{end}", dim)
    strange = [name for name in theirs if not name.startswith(UNREAD)]
    if strange:
        more = "of a layer that config.json does not count" if LAYER.match(strange[0]) else "that is not known"
        raise ModelError(f"{folder / 'model.safetensors'}: a tensor {more}, {strange[0]!r}: download the folder again")
    return found
