"""One thread that explains: requests that wait while a batch is worked on become the next batch.

Nothing waits for company: an idle server answers a single request at once, a busy one takes up to MOST together. Every
new size of a batch costs the first one that has it some planning, so a batch is filled up to one of few sizes, and all
are tried once at start. The network is read by this thread and by background jobs, and changed by nobody.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch

from provnet.answers.attribution import WEIGHTS, attribute, equal_slots, weights_of
from provnet.answers.explanation import active_network
from provnet.base.errors import ProvnetError
from provnet.data.modalities.image import BYTES
from provnet.models.network import ProvenanceOutput
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

    image: np.ndarray
    k: int
    weights: str
    left_out: tuple[int, ...]
    future: asyncio.Future[Answer]
    loop: asyncio.AbstractEventLoop


class Engine:
    """The queue and its thread."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.network, self.kept = active_network(run)
        self.network.eval()
        self.device = next(self.network.parameters()).device
        self.equal = {weights: equal_slots(self.network, run.samples, weights) for weights in WEIGHTS}
        self.batches = 0
        self._waiting: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="provnet-engine", daemon=True)
        self._thread.start()

    async def explain(
        self, image: np.ndarray, k: int, weights: str = "plain", left_out: tuple[int, ...] = ()
    ) -> Answer:
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
            for weights in WEIGHTS:
                self._answer([ticket for ticket in batch if ticket.weights == weights])
            if last:
                return

    def _warm(self) -> None:
        network = self.run.config.network
        kind = torch.uint8 if network.scale == BYTES else torch.float32
        with torch.inference_mode(), suppress(Exception):  # whatever is wrong, the first query says it better
            for size in SIZES:
                images = torch.zeros((size, *network.input_shape), dtype=kind, device=self.device)
                attribute(self.network, self.network(images), 1)

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
        images = torch.from_numpy(np.stack(filled)).to(self.device)
        with torch.inference_mode():
            output, weights = self.network(images), batch[0].weights
            found = attribute(self.network, output, max(ticket.k for ticket in batch), weights, self.equal[weights])
            left_out = self._left_out(output, batch)
            shares = torch.softmax(output.logits.float(), 1).topk(min(BEST, output.logits.shape[1]), dim=1)
        columns = [getattr(found, name).cpu().numpy() for name in ("predicted", "confidence", "support")]
        index, weight = found.index.cpu().numpy(), found.weight.cpu().numpy()
        if self.kept is not None:
            index = np.where(index >= 0, self.kept[index], -1)
        best, share = shares.indices.cpu().tolist(), shares.values.cpu().tolist()
        answers = []
        for row, ticket in enumerate(batch):
            real = index[row, : ticket.k] >= 0
            predicted, confidence, support = (column[row] for column in columns)
            answers.append(
                Answer(
                    int(predicted),
                    float(confidence),
                    tuple(zip(best[row], share[row], strict=True)),
                    index[row, : ticket.k][real],
                    weight[row, : ticket.k][real],
                    float(support),
                    left_out[row],
                )
            )
        return answers

    def _left_out(self, output: ProvenanceOutput, batch: list[Ticket]) -> list[float]:
        """The weight of what each query leaves out, also where it is too small to be among the best."""
        most = max(len(ticket.left_out) for ticket in batch)
        if most == 0:
            return [0.0] * len(batch)
        index = np.zeros((len(output.logits), most), dtype=np.int64)
        there = np.zeros(index.shape, dtype=np.bool_)
        for row, ticket in enumerate(batch):
            index[row, : len(ticket.left_out)] = ticket.left_out
            there[row, : len(ticket.left_out)] = True
        if self.kept is not None:
            index = np.searchsorted(self.kept, index)
        place, weights = torch.from_numpy(index).to(self.device), batch[0].weights
        found = weights_of(self.network, output, place, weights, self.equal[weights])
        whole: list[float] = (found.double().cpu().numpy() * there).sum(1).tolist()
        return whole


def _deliver(pairs: list[tuple[asyncio.Future[Answer], Answer | Exception]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
