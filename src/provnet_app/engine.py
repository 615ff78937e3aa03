"""One thread that explains: requests that wait while a batch is worked on become the next batch.

Nothing waits for company: an idle server answers a single request at once, a busy one takes up to MOST together. Every
new size of a batch costs the first one that has it some planning, so a batch is filled up to one of few sizes, and all
are tried once at start. The network is read by this thread and by background jobs, and changed by nobody.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import SHARES, Answered, Attributor
from provnet.base.batches import Fields, join
from provnet.base.errors import ProvnetError
from provnet.data.modalities.decode import BYTES
from provnet.runs.run import Run

SIZES = (1, 2, 4, 8, 16, 32)  # queries of a batch
MOST = SIZES[-1]
BEST = 5  # classes that are listed


@dataclass(frozen=True, eq=False)
class Answer:
    """What the network says of one query.

    Attributes:
        predicted, confidence: class and its probability.
        classes: the most probable classes with their probabilities.
        index, weight: (K,) training samples, best first, and their shares; fewer where a class is small.
        support: compared with the run's threshold.
        left_out: weight of the samples that the caller will not name.
    """

    predicted: int
    confidence: float
    classes: tuple[tuple[int, float], ...]
    index: np.ndarray
    weight: np.ndarray
    support: float
    left_out: float


@dataclass(frozen=True, eq=False)
class Ticket:
    """One query that waits."""

    image: Any
    k: int
    weights: str
    left_out: tuple[int, ...]
    future: asyncio.Future[Answer]
    loop: asyncio.AbstractEventLoop


class Engine:
    """The queue and its thread."""

    def __init__(self, run: Run) -> None:
        self.run = run
        plain = Attributor(run)
        self.ask = {weights: plain.weighing(weights) for weights in SHARES}
        self.batches = 0
        self._waiting: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="provnet-engine", daemon=True)
        self._thread.start()

    async def explain(self, image: Any, k: int, weights: str = "plain", left_out: tuple[int, ...] = ()) -> Answer:
        """Explain one raw sample by k others, and tell the weight of some; a cancelled caller is passed over."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.put(Ticket(image, min(k, len(self.run.samples)), weights, left_out, future, loop))
        return await future

    def close(self) -> None:
        """End the thread after what is waiting."""
        self._waiting.put(None)
        self._thread.join(timeout=5)

    def _work(self) -> None:
        self._warm()
        while True:
            first = self._waiting.get()
            if first is None:
                return
            batch, last = self._batch(first)
            self.batches += 1
            for weights in SHARES:
                self._answer([ticket for ticket in batch if ticket.weights == weights])
            if last:
                return

    def _warm(self) -> None:
        network = self.run.config.network
        kind = torch.uint8 if network.scale == BYTES else torch.float32
        with suppress(Exception):  # whatever is wrong, the first query says it better
            for size in SIZES:
                images = torch.zeros((size, *network.input_shape), dtype=kind)
                self.ask["plain"].over([(images, None)], lambda answered: vars(answered.best(1)))

    def _batch(self, first: Ticket) -> tuple[list[Ticket], bool]:
        batch = [first]
        while len(batch) < MOST:
            try:
                ticket = self._waiting.get_nowait()
            except queue.Empty:
                break
            if ticket is None:
                return [one for one in batch if not one.future.cancelled()], True
            batch.append(ticket)
        return [one for one in batch if not one.future.cancelled()], False

    def _answer(self, batch: list[Ticket]) -> None:
        if not batch:
            return
        try:
            found: list[Answer | Exception] = list(self._explained(batch))
        except ProvnetError as error:  # one bad query must not fail its neighbours
            found = [error] if len(batch) == 1 else [self._alone(ticket) for ticket in batch]
        except Exception as error:
            found = [error] * len(batch)
        for loop in {ticket.loop for ticket in batch}:
            pairs = [(t.future, answer) for t, answer in zip(batch, found, strict=True) if t.loop is loop]
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver, pairs)

    def _alone(self, ticket: Ticket) -> Answer | Exception:
        try:
            return self._explained([ticket])[0]
        except Exception as error:
            return error

    def _explained(self, batch: list[Ticket]) -> list[Answer]:
        size = next(size for size in SIZES if size >= len(batch))
        filled = [ticket.image for ticket in batch] + [batch[0].image] * (size - len(batch))
        most, left_out = max(ticket.k for ticket in batch), _left_out(batch, size)

        def read(answered: Answered) -> dict[str, Tensor]:
            shares = torch.softmax(answered.logits, 1).topk(min(BEST, answered.logits.shape[1]), dim=1)
            found = {**vars(answered.best(most)), "best": shares.indices, "share": shares.values}
            if left_out is not None:
                found["left_out"] = answered.weight(torch.from_numpy(left_out[0]).to(answered.logits.device)).double()
            return found

        columns = self.ask[batch[0].weights].over([(stacked(filled), None)], read)
        found = {name: column.cpu().numpy() for name, column in columns.items()}
        index, weight = found["index"], found["weight"]
        best, share = found["best"].tolist(), found["share"].tolist()
        unnamed = np.zeros(size) if left_out is None else (found["left_out"] * left_out[1]).sum(1)
        answers = []
        for row, ticket in enumerate(batch):
            real = index[row, : ticket.k] >= 0
            predicted, confidence, support = (found[name][row] for name in ("predicted", "confidence", "support"))
            answers.append(
                Answer(
                    int(predicted),
                    float(confidence),
                    tuple(zip(best[row], share[row], strict=True)),
                    index[row, : ticket.k][real],
                    weight[row, : ticket.k][real],
                    float(support),
                    float(unnamed[row]),
                )
            )
        return answers


def stacked(rows: Sequence[Any]) -> Any:
    """Samples as a network receives them, one after the other: arrays, or `Fields` of one row each.

    >>> stacked([np.zeros(3, np.uint8)] * 2).shape
    torch.Size([2, 3])
    """
    return join(rows) if isinstance(rows[0], Fields) else torch.from_numpy(np.stack(rows))


def _left_out(batch: list[Ticket], rows: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(rows, L) the samples that each query leaves out, 0 where there are fewer, and whether one is there."""
    most = max(len(ticket.left_out) for ticket in batch)
    if most == 0:
        return None
    index = np.zeros((rows, most), dtype=np.int64)
    there = np.zeros(index.shape, dtype=np.bool_)
    for row, ticket in enumerate(batch):
        index[row, : len(ticket.left_out)] = ticket.left_out
        there[row, : len(ticket.left_out)] = True
    return index, there


def _deliver(pairs: list[tuple[asyncio.Future[Answer], Answer | Exception]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
