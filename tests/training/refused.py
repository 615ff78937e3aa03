"""A refusal to go on, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provnet.base.errors import IntegrityError, UsageError
from tests.fitting import fit

from .made import names, pictures, recipe


def refusal(out: Path, data: Any = None, **wishes: Any) -> str:
    """What resuming says, and that it changed nothing."""
    before = {name: (out / name).read_bytes() for name in names(out) if (out / name).is_file()}
    with pytest.raises((IntegrityError, UsageError)) as error:
        fit(
            pictures() if data is None else data,
            **{"config": recipe(), "backbone": "small", **wishes},
            out=out,
            resume=True,
        )
    assert {name: (out / name).read_bytes() for name in names(out) if (out / name).is_file()} == before
    of_settings = "cannot resume" in str(error.value) and " data." not in str(error.value)
    assert error.value.exit_code == (2 if of_settings else 6)  # a wrong argument, or something that is not what it was
    assert "\n" not in str(error.value)
    return str(error.value)
