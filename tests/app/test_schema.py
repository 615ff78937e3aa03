"""schemathesis on the OpenAPI document: what fits the schema is answered as it says, what does not is refused."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st

from provnet_app.served import Served

from ..counts import count, grows
from .made import Live, digit, serving

PICTURES = st.integers(0, 59).map(digit)
TABLES = st.lists(st.integers(0, 81), min_size=1, max_size=9, unique=True).map(
    lambda rows: "\n".join(["sample_id,contributor", *(f"train/{row:03d},P{row % 3}" for row in rows)]).encode()
)
OPERATIONS = (
    "POST session",
    "GET run",
    "GET run/card",
    "GET run/curves",
    "GET run/evaluation",
    "GET run/checks",
    "GET run/files",
    "GET run/state",
    "POST explain",
    "POST explain/known",
    "POST queries",
    "POST queries/item",
    "GET pictures/{sha256}",
    "POST sheet",
    "GET jobs",
    "POST jobs/{name}",
    "GET samples",
    "GET samples/{sha256}",
    "GET groups",
    "GET summary",
    "GET test",
    "GET confusion",
    "GET answers",
    "GET compare",
    "POST similar",
    "GET tags",
    "POST tags",
    "GET decisions",
    "POST decisions",
    "POST decisions/undo",
    "POST decisions/redo",
    "GET decisions.csv",
    "GET again",
    "POST again",
    "DELETE again",
    "GET map",
    "GET map/hashes",
    "POST map/place",
    "POST selections",
    "GET selections/{selection}.csv",
    "POST membership",
    "GET membership/roc",
    "GET credit/contributors",
    "POST credit/sources",
    "DELETE credit/sources",
    "POST credit",
)
MAKING = ("GET generate", "POST generate")  # of a run that makes pictures


@pytest.fixture(scope="module")
def own(served: Served, live: Live) -> Any:
    """A server with all results whose decisions and contributors may be changed."""
    with serving(served) as found:
        yield found


def schema_of(live: Live) -> Any:
    """The document of a server."""
    for kind in ("png", "jpeg", "webp", "bmp", "tiff"):
        schemathesis.openapi.media_type(f"image/{kind}", PICTURES)
    schemathesis.openapi.media_type("text/csv", TABLES)
    address = f"{live.base}/api/v1/openapi.json"
    return schemathesis.openapi.from_url(address, headers={"Authorization": f"Bearer {live.token}"})


@pytest.fixture(scope="module")
def schema(own: Live) -> Any:
    return schema_of(own)


def test_the_documents_have_these_operations(schema: Any, maker: Live) -> None:
    for document, more in ((schema, ()), (schema_of(maker), MAKING)):
        every = [one.ok() for one in document.get_all_operations()]
        found = {f"{one.method.upper()} {one.path.removeprefix('/api/v1/')}" for one in every}
        assert found == {*OPERATIONS, *more}


@grows
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_keeps_its_word(schema: Any, own: Live, name: str) -> None:
    keeps_its_word(schema, own, name)


@grows
@pytest.mark.parametrize("name", MAKING)
def test_making_keeps_its_word(maker: Live, name: str) -> None:
    keeps_its_word(schema_of(maker), maker, name)


def keeps_its_word(schema: Any, live: Live, name: str) -> None:
    """Many requests, good and bad; every answer fits the document."""
    method, path = name.split(" ")
    operation = schema[f"/api/v1/{path}"][method]
    modes = schemathesis.GenerationMode
    good = operation.as_strategy(generation_mode=modes.POSITIVE)
    has_input = bool(operation.body) or any(operation.iter_parameters())
    cases = good | operation.as_strategy(generation_mode=modes.NEGATIVE) if has_input else good

    @hypothesis.given(case=cases)
    @hypothesis.settings(
        max_examples=count(30, 200),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
    )
    def keeps_it(case: Any) -> None:
        # an extra parameter without a value is not sent at all, and what is left may be a good request
        hypothesis.assume(not any(value is None or value in ([], {}) for value in (case.query or {}).values()))
        live.state.keys.wrong.clear()  # the checks send wrong tokens of their own
        case.call_and_validate(headers={"Authorization": f"Bearer {live.token}"})

    keeps_it()
