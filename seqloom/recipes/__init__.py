"""Recipes: everything that decides a run except the data and the seed."""

from seqloom.recipes.library import built_in, find_recipe
from seqloom.recipes.schema import Recipe, build_recipe

__all__ = ["Recipe", "build_recipe", "built_in", "find_recipe"]
