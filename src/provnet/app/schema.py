"""The OpenAPI document: what the routes say, with what only this run knows (its classes, the shape of its input)."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

import provnet
from provnet.app.pixels import pixel_schema
from provnet.app.state import State

NAMES = 1_000  # classes that are listed by name


def add_schema(app: FastAPI, state: State) -> None:
    """Serve the document at /api/v1/openapi.json."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(_made(app, state))
        return made

    app.openapi = openapi  # type: ignore[method-assign]


def _made(app: FastAPI, state: State) -> dict[str, Any]:
    found = get_openapi(
        title="provnet app", version=provnet.__version__, description=ABOUT, routes=app.routes, tags=app.openapi_tags
    )
    parts = found["components"]
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for operations in found["paths"].values():
        for operation in operations.values():
            operation["security"] = [{"token": []}]
    names = state.served.run.samples.class_names
    schemas = parts["schemas"]
    if len(names) <= NAMES:
        schemas["Relabel"]["properties"]["new_label"] = {"type": "string", "enum": list(names)}
    schemas["ByPixels"]["properties"]["pixels"] = pixel_schema(state.served.run.config.network)
    return found


ABOUT = "What stands behind the answers of a run: the interface of the local page, on this machine alone."
