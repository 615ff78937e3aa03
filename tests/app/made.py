"""What the tests of the server are made with: a run on 8 x 8 digits, a server in a thread, pictures to send."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

import provnet
from provnet.data.dataset import ImageData
from provnet.runs.run import Run, write_run
from provnet.training.config import train_config
from provnet_app.limits import IN_FLIGHT
from provnet_app.security import Keys
from provnet_app.served import Served
from provnet_app.server import Server, make_app, open_socket
from provnet_app.state import State, make_state
from tests.fitting import fit

API = "/api/v1"
SIDE = 8
NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)//",
    "Größe äöü ß",
    "🦊 emoji",
    "x" * 200,
    "=cmd|' /C calc'!A0",
    "'; DROP TABLE samples; --",
    "\u202eright to left",
    "{{7*7}} ${7*7}",
)


@dataclass(eq=False)
class Live:
    """A running server."""

    state: State
    port: int

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return self.state.keys.token

    def client(self, **more: Any) -> httpx.Client:
        """One with the token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.base + API, headers=headers, timeout=90, trust_env=False, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        with self.client() as client:
            return client.get(path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(path, **more)

    def send(self, path: str, png: bytes, kind: str = "image/png", **more: Any) -> httpx.Response:
        return self.post(path, content=png, headers={"Content-Type": kind}, **more)

    def wait(self, job: str) -> dict[str, Any]:
        """Start a job and wait for its end."""
        self.post(f"/jobs/{job}")
        for _ in range(2400):
            found: dict[str, Any] = next(one for one in self.get("/jobs").json()["jobs"] if one["name"] == job)
            if found["state"] != "running":
                assert found["state"] == "ready", found
                return found
            time.sleep(0.05)
        raise AssertionError(f"{job} does not end")


@cache
def digits(split: str, count: int) -> ImageData:
    """Digits of 8 x 8 pixels under awkward names; in the training split one is there twice, one as two things."""
    every = provnet.open_data("embedded", split=split)
    rows = [int(i) for c in range(10) for i in (every.labels == c).nonzero().flatten()[: count // 10]]
    small = F.interpolate(every.images[rows].float(), (SIDE, SIDE), mode="area").round().to(torch.uint8)
    labels = every.labels[rows].clone()
    if split == "train":
        small = torch.cat([small, small[:2]])
        labels = torch.cat([labels, labels[:1], (labels[1:2] + 1) % 10])
    data = provnet.open_data(small.numpy(), labels.numpy())
    ids = tuple(f"{split}/{i:03d}" for i in range(len(data)))
    samples = replace(data.samples, class_names=NAMES, sample_ids=ids)
    return replace(data, samples=samples)


@cache
def trained(network: str = "class-conditional", head: str = "plain") -> Run:
    config = train_config("fast", epochs=2, batch_size=32)
    return fit(digits("train", 80), network=network, head=head, config=config)


def made_run(folder: Path) -> Served:
    """A run folder as training leaves it, and what is served of it."""
    run, data = trained(), digits("train", 80)
    write_run(run, folder / "run")
    (folder / "run" / "log.jsonl").write_text('{"epoch": 1, "loss": 2.5}\nnot json\n{"epoch": 2, "loss": 1.5}\n')
    return Served(
        run=replace(run, folder=folder / "run"),
        name="a <b>run</b>",
        folder=folder / "run",
        training=data,
        index=np.arange(len(data)),
        test=digits("test", 60),
        keep=folder / "run" / "app",
    )


@contextmanager
def serving(served: Served, most: int = IN_FLIGHT) -> Iterator[Live]:
    """A server in a thread of its own."""
    listening = open_socket(0)
    port = listening.getsockname()[1]
    state = make_state(served, Keys(port))
    state.gate.most = most
    ready = threading.Event()
    server = Server(make_app(state), state, ready.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    try:
        assert ready.wait(60)
        yield Live(state, port)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def until(fits: Callable[[], bool]) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + 60
    while not fits():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)


def settled(live: Live) -> None:
    """Wait until nothing is inside: an answer arrives a moment before its request has left."""
    until(lambda: live.state.gate.inside == 0)


def png(image: Any, kind: str = "PNG") -> bytes:
    """A picture file of pixels (1, H, W) or (H, W)."""
    pixels = np.asarray(image)
    buffer = io.BytesIO()
    Image.fromarray(pixels[0] if pixels.ndim == 3 else pixels).save(buffer, kind)
    return buffer.getvalue()


def digit(row: int = 3) -> bytes:
    """A test digit as PNG."""
    return png(digits("test", 60).images[row].numpy())
