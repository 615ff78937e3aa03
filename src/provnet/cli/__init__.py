"""The command line: one module a command. Nothing here imports torch or numpy before a command does its work."""

from __future__ import annotations

from provnet.cli.app import main

__all__ = ["main"]
