"""Run as a program of its own, in a process that ends with it: a .bin of tensors → a safetensors file.

`weights_only` lets a pickle build tensors and nothing else; where that does not do, there is no other way. Imports nothing
of this project: `python -I unpickle.py IN OUT`.
"""

import os
import sys

import safetensors.torch
import torch


def main(source: str, target: str) -> None:
    found = torch.load(source, map_location="cpu", weights_only=True)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise SystemExit("it does not contain a table of named tensors")
    wrong = [name for name, tensor in found.items() if not isinstance(tensor, torch.Tensor) or tensor.is_sparse]
    if wrong:
        raise SystemExit(f"{wrong[0][:60]!r} is not a plain tensor")
    # a view may claim far more numbers than are stored; shared tensors are few
    claimed = sum(tensor.numel() * tensor.element_size() for tensor in found.values())
    if claimed > 4 * os.path.getsize(source):
        raise SystemExit(f"its tensors claim {claimed:,} bytes, far more than the file has")
    plain = {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}
    safetensors.torch.save_file(plain, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
