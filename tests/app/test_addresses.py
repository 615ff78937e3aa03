"""Numbers in addresses: digits alone, whatever else Python would take for a number."""

from __future__ import annotations

from tests.cases import cases

from .made import Live
from .test_bad_requests import error


@cases("given", ["-1", "9223372036854775808", "1e3", "7%20", "7%00", "x", "0x7", "٣"])
def test_numbers_in_an_address_are_numbers(live: Live, given: str) -> None:
    found = live.get(f"/samples?offset={given}")
    assert found.status_code == 422
    assert live.get(f"/samples?selection={given}").status_code == 422
    assert live.get(f"/pictures/{given}").status_code in (404, 422)


@cases("given", ["7_0", "%2B7", "7.0", "%207", "7%20", "٣", "", "0x7", "1e1", "-1", "1" * 17])
@cases(
    "place",
    ["/samples?offset=", "/samples?limit=", "/samples?class=", "/samples?group=", "/test?offset=", "/test?limit=",
     "/test?class=", "/groups?limit="],
)  # fmt: skip
def test_whole_numbers_in_an_address_are_digits_alone(live: Live, place: str, given: str) -> None:
    found = live.get(place + given)
    assert found.status_code == 422
    error(found)
