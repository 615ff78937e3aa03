"""Names under which a run keeps what was chosen for it."""

from __future__ import annotations

SUBSET = "subset"  # among a run's settings: which samples are indexed
DECISIONS = "decisions"  # among the options of a DataSpec: what was decided about samples
