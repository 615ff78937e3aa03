"""Pictures over HTTP: one by its hash, or many thumbnails in one sheet."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from PIL import Image
from pydantic import Field
from starlette.responses import Response

from provnet_app.fields import DIGITS, WHOLE, Hash, Strict
from provnet_app.library import encoded
from provnet_app.limits import LARGE, SHEET, THUMB, TILE
from provnet_app.routes import BODY, gives, router
from provnet_app.security import ApiError
from provnet_app.state import State

ACROSS = 20  # thumbnails in a row of a sheet


class Size(Strict):
    """How large, and whether the whole picture or what the network receives of it."""

    size: Annotated[int | None, Field(ge=8, le=LARGE), DIGITS] = None
    view: Literal["picture", "network"] = "picture"


class Sheet(Strict):
    """Which thumbnails, and how large."""

    sha256: Annotated[list[Hash], Field(min_length=1, max_length=SHEET)]
    side: Annotated[int, Field(ge=16, le=TILE), WHOLE] = 32


def picture_routes(state: State) -> APIRouter:
    """GET /pictures/{sha256}, POST /sheet."""
    routes = router("pictures")

    kinds = gives(404, kind="image/png image/jpeg", words="the picture")

    @routes.get("/pictures/{sha256}", response_class=Response, responses=kinds)
    async def picture(sha256: Annotated[Hash, Path()], wanted: Annotated[Size, Query()]) -> Response:
        """The picture of a training sample, a test sample or an upload: PNG where it is small, else JPEG."""
        content, kind = await asyncio.to_thread(_picture, state, sha256, wanted)
        return Response(content, media_type=kind)

    @routes.post(
        "/sheet",
        response_class=Response,
        responses=gives(404, *BODY, kind="image/webp", words="thumbnails, row by row"),
    )
    async def sheet(wanted: Sheet) -> Response:
        """Many thumbnails in one picture; what is not available is left blank."""
        side = wanted.side if state.served.exposure == "full" else min(wanted.side, THUMB)
        content = await asyncio.to_thread(_sheet, state, wanted.sha256, side)
        headers = {"X-Sheet-Across": str(ACROSS), "X-Sheet-Side": str(side)}
        return Response(content, headers=headers, media_type="image/webp")

    return routes


def _picture(state: State, key: str, wanted: Size) -> tuple[bytes, str]:
    known = state.library.find(key)
    found = state.library.picture(known, wanted.size, wanted.view)
    if known.origin != "upload":
        state.shown.add([key])
    return found


def _sheet(state: State, hashes: list[str], side: int) -> bytes:
    if state.served.exposure == "ids":
        raise ApiError(403, "not_shown", "this run shows no pictures, only ids (exposure ids)")
    rows = -(-len(hashes) // ACROSS)
    across = min(ACROSS, len(hashes))
    paper = Image.new("RGBA", (across * side, rows * side))
    shown = []
    for number, key in enumerate(hashes):
        try:
            known = state.library.find(key)
        except ApiError:
            continue
        if state.library.pixels(known.image) is None:
            continue
        small = state.library.thumb(known, side)
        left, top = (side - small.width) // 2, (side - small.height) // 2
        paper.paste(small, (number % ACROSS * side + left, number // ACROSS * side + top))
        shown += [key] if known.origin != "upload" else []
    state.shown.add(shown)
    return encoded(paper, "WEBP")
