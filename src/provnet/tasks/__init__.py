"""TASKS: what a network may be trained to say, by name."""

from provnet.tasks.classify import Classify
from provnet.tasks.generate import Generate
from provnet.tasks.task import Task

TASKS: dict[str, Task] = {"classify": Classify(), "generate": Generate()}
