"""Writes seqloom/models/index.py anew: all models and presets with their parameter counts, and what is known of each model.

python tools/make_index.py
"""

import re
import subprocess
import sys
from pathlib import Path

INDEX = Path(__file__).resolve().parents[1] / "seqloom" / "models" / "index.py"


def counted() -> dict[str, dict[str, int]]:
    from seqloom.models import MODELS, model_class
    from seqloom.recipes.library import built_in
    from seqloom.recipes.schema import build_recipe
    from seqloom.weights import shapes_only

    found: dict[str, dict[str, int]] = {}
    for model in MODELS:
        cls = model_class(model)
        found[model] = {}
        for preset, values in cls.presets.items():
            vocabulary = values.get("vocab_size", 8192)
            sections = built_in(f"{model}-{preset}")
            if "source_vocab_size" in values:
                sections["model"]["source_vocab_size"] = values["source_vocab_size"]
            recipe = build_recipe(sections, model)
            with shapes_only():  # counting 1.5 billion parameters takes no memory
                # what stands above a model that learns from labels alone depends on how many there are
                alone = recipe.task is not None and recipe.learns not in ("translate", "caption")
                built = cls(recipe.model_config_of(vocabulary)) if alone else recipe.learner(vocabulary)
            found[model][preset] = sum(parameter.numel() for parameter in built.parameters())
    return found


def main() -> None:
    from seqloom.models import MODELS, model_class
    from seqloom.recipes.library import describe_model

    source = INDEX.read_text()
    table = re.compile(r"^PARAMETERS: dict\[str, dict\[str, int\]\] = \{.*?\}\n\n", re.M | re.S)
    facts = re.compile(r"^LINEAGE: dict\[str, dict\[str, Any\]\] = \{.*?\}\n\n", re.M | re.S)
    described = f"LINEAGE: dict[str, dict[str, Any]] = { ({model: describe_model(model) for model in MODELS})!r}\n\n"

    def write(counts: dict[str, dict[str, int]]) -> None:
        counted_table = f"PARAMETERS: dict[str, dict[str, int]] = {counts!r}\n\n"
        INDEX.write_text(facts.sub(lambda _: described, table.sub(counted_table, source)))
        subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(INDEX)], check=True)

    write(
        {model: dict.fromkeys(model_class(model).presets, 0) for model in MODELS}
    )  # names first: recipes are found by them
    import seqloom.models.index as index

    index.PARAMETERS = {model: dict.fromkeys(model_class(model).presets, 0) for model in MODELS}
    write(counted())


if __name__ == "__main__":
    main()
