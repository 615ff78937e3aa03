"""The page's own files: read once at start into a fixed table, so that no request can name a path."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from provnet.app.errors import ApiError, reply

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "json": "application/json",
    "webmanifest": "application/manifest+json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webp": "image/webp",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
}
INDEX = "index.html"


@dataclass(frozen=True)
class Asset:
    """A file of the page."""

    content: bytes
    kind: str
    tag: str


def read_assets() -> dict[str, Asset]:
    """Everything below provnet/app/static, by its name from there.

    >>> "index.html" in read_assets()
    True
    """
    folder = Path(__file__).parent / "static"
    found: dict[str, Asset] = {}
    for path in sorted(folder.rglob("*")):
        kind = TYPES.get(path.suffix.removeprefix("."))
        if kind is not None and path.is_file():
            content = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            found[name] = Asset(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


def static_routes(assets: Mapping[str, Asset]) -> list[Route]:
    """`/` is the page, `/static/NAME` its files."""

    async def page(request: Request) -> Response:
        return _answer(request, assets.get(INDEX))

    async def file(request: Request) -> Response:
        return _answer(request, assets.get(request.path_params["name"]))

    return [Route("/", page), Route("/static/{name:path}", file)]


def _answer(request: Request, asset: Asset | None) -> Response:
    if asset is None:
        return reply(ApiError(404, "not_found", "there is nothing at this address"))
    headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers={**headers, "Content-Type": asset.kind})
