#!/bin/sh
# A browser for the tests of the page: one that is there, else Debian's package (as root), else Playwright's own.
# Never fails: where none can be had, the tests of the page are skipped and say so.
python=${1:-.venv/bin/python}

works() {
  "$python" - <<'PY' >/dev/null 2>&1
import sys

from playwright.sync_api import sync_playwright

from tests.app.browser import started

with sync_playwright() as playwright:
    sys.exit(started(playwright) is None)
PY
}

works && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "getting a browser for the tests of the page: Debian's package chromium"
  export DEBIAN_FRONTEND=noninteractive
  { timeout 300 apt-get install -qq -y --no-install-recommends chromium || { timeout 120 apt-get update -qq && timeout 300 apt-get install -qq -y --no-install-recommends chromium; }; } >/dev/null 2>&1
  works && exit 0
fi
echo "getting a browser for the tests of the page: Playwright's own"
timeout 300 "$python" -m playwright install chromium >/dev/null 2>&1
works && exit 0
echo "no browser can be had here: the tests of the page will be skipped (name one in PROVNET_BROWSER)" >&2
