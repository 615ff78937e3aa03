"""A real Chromium for the tests of the page: used as a person would; what the browser complains of fails a test."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Error, Page, Playwright, expect, sync_playwright

if TYPE_CHECKING:  # a browser is looked for without it too, and it loads all of torch
    from .made import Live

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
expect.set_options(timeout=20_000)  # a busy machine is slow, not broken
NONE = "no browser: `make browser` gets one (Debian's chromium or Playwright's own), or name one in PROVNET_BROWSER"


def started(playwright: Playwright) -> Browser | None:
    """The browser that is named, else one that is installed, else Playwright's own; None where none starts."""
    named = os.environ.get("PROVNET_BROWSER")
    programs = [named] if named else [*map(shutil.which, PROGRAMS), playwright.chromium.executable_path]
    for program in programs:
        if program is None or not Path(program).exists():
            continue
        try:
            return playwright.chromium.launch(executable_path=program, args=FLAGS, timeout=60_000)
        except Error:
            continue
    return None


# for a module, not a session: while Playwright runs, its event loop is the thread's, and other tests start their own
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser process with an empty profile."""
    with sync_playwright() as playwright:
        found = started(playwright)
        if found is None:
            pytest.skip(NONE)
        yield found
        found.close()


@pytest.fixture
def allowed() -> list[str]:
    """Patterns of console errors that a test provokes on purpose; a test adds to it."""
    return []


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    """Servers that a test starts: they end after its page, which may go on asking for pictures until it is closed."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def page(browser: Browser, allowed: list[str], servers: ExitStack) -> Iterator[Page]:
    """A tab of its own at 1280 px; the test fails on console errors and on requests that leave the machine."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(30_000)
    tab = context.new_page()
    wrong: list[str] = []
    tab.on("console", lambda said: wrong.append(f"console: {said.text}") if said.type == "error" else None)
    tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    tab.on("dialog", lambda box: (wrong.append(f"dialog: {box.message}"), box.dismiss()))
    tab.on("request", lambda asked: wrong.append(f"left loopback: {asked.url}") if is_outside(asked.url) else None)
    yield tab
    context.close()
    left = [one for one in wrong if not any(re.search(pattern, one) for pattern in allowed)]
    assert not left, left


def is_outside(address: str) -> bool:
    """Whether an address is on another machine."""
    parts = urlsplit(address)
    return parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1"


def open_view(tab: Page, live: Live, view: str = "#/explain") -> None:
    """Open the link of a server at a view, and wait until the view is there."""
    tab.goto(f"{live.base}/{view}{'&' if '?' in view else '?'}t={live.token}")
    tab.wait_for_selector(f"main .view-{re.findall('[a-z]+', view)[0]}")


def no_sideways(tab: Page) -> bool:
    """Whether nothing is wider than the window."""
    return bool(tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))
