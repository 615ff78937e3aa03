"""A short log of decisions."""

from __future__ import annotations

import pytest

from provnet.runs.log import append_decision


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "decisions.jsonl"
    for number in range(5):
        append_decision(
            path,
            {"input": f"{number}.png", "predicted": "Größe", "confidence": 0.5 + number / 16, "top": [1, None, True]},
        )
    return path
