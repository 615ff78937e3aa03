"""Pages with a script: one of ours, inline; the page's policy names its hash, so that no other can run."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from provnet.errors import UsageError

POLICY = "default-src 'none';"


def with_script(page: str, *names: str) -> str:
    """Put the scripts of these names (files beside the templates), as one, at the end of a rendered page.

    >>> page = with_script(f"<meta content=\\"{POLICY}\\"><body></body>", "map.js")
    >>> page.count("<script>"), "script-src 'sha256-" in page
    (1, True)
    """
    script = "".join((Path(__file__).parent / "templates" / name).read_text("utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    if page.count(POLICY) != 1 or page.count("</body>") != 1 or "</script" in script:
        raise UsageError("a page with a script needs one policy and one end of its body, the script no end tag")
    page = page.replace(POLICY, f"{POLICY} script-src 'sha256-{digest}';")
    return page.replace("</body>", f"<script>{script}</script>\n</body>")


def json_block(value: Any) -> Markup:
    """JSON that can stand inside a script element: no character of it can end the element.

    >>> "<" in json_block("</script>"), json.loads(json_block("</script>"))
    (False, '</script>')
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def packed(values: np.ndarray, kind: str) -> str:
    """Numbers as base64, little-endian, of a type such as `<u2`; those that it cannot hold are refused.

    >>> packed(np.array([1, 2]), "<u2")
    'AQACAA=='
    """
    made = np.ascontiguousarray(values).astype(kind)
    if not np.array_equal(made, values):
        raise UsageError(f"a page holds numbers as {kind}, {values.min()}..{values.max()} do not fit; show fewer")
    return base64.b64encode(made.tobytes()).decode("ascii")
