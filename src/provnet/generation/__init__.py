"""Pictures made by a run, and the training samples behind each."""

from provnet.generation.interpolation import Path, interpolate
from provnet.generation.recipes import GENERATOR_NAMES, fit_generator, generator_wishes, recipe
from provnet.generation.sampling import Generated, generate, is_generator, rebuild_pictures
from provnet.generation.sources import sources

__all__ = [
    "GENERATOR_NAMES",
    "Generated",
    "Path",
    "fit_generator",
    "generate",
    "generator_wishes",
    "interpolate",
    "is_generator",
    "rebuild_pictures",
    "recipe",
    "sources",
]
