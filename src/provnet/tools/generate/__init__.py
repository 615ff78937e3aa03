"""Pictures made by a run, and the training samples behind each."""

from provnet.tools.generate.compute import (
    Generated,
    Path,
    generate,
    interpolate,
    is_generator,
    rebuild_pictures,
    sources,
)
from provnet.tools.generate.recipes import GENERATOR_NAMES, fit_generator, recipe

__all__ = [
    "GENERATOR_NAMES",
    "Generated",
    "Path",
    "fit_generator",
    "generate",
    "interpolate",
    "is_generator",
    "rebuild_pictures",
    "recipe",
    "sources",
]
