"""Random changes to the data around a training that is attached: an error in words, or the very samples of then."""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import provnet
from provnet.attached import provenance
from provnet.attached.provenance import attach
from provnet.base.errors import DataError, UsageError
from provnet.base.files import DataWarning
from provnet.data.evidence import evidence
from provnet.runs.run import Run
from tests.counts import count, grows
from tests.data.changing import CHANGES, ChangingFolder

MOMENTS = ("opened", "attached", "fetched", "trained", "finished")
IN_MEMORY = ("write", "swap rows", "write back", "select", "reopen")


@pytest.fixture(autouse=True)
def empty_classes_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        yield


class ChangingTraining:
    """Somebody's training on a folder, with a record of its own; one change at a random moment of each."""

    def __init__(self, place: Path) -> None:
        self.folder = ChangingFolder(place)
        self.refused = self.named = 0
        self._open()

    def _open(self) -> None:
        self.data = provnet.open_data(self.folder.root)
        self._record()

    def _record(self) -> None:
        """What the samples are, from their files and not by the library's word."""
        self.kept = self.data.images.clone()
        paths = [self.folder.root / str(path) for path in self.data.samples.paths]
        if all(path.is_file() for path in paths):
            self.hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
        else:  # opened before the files went: the record of then
            known = {row.tobytes(): hexed for row, hexed in zip(self.before, self.known, strict=True)}
            self.hashes = [known[image.numpy().tobytes()] for image in self.kept]
        self.before, self.known = [image.numpy() for image in self.kept], list(self.hashes)

    def cycle(self, kind: str, moment: str, dice: random.Random) -> None:
        """A whole training with one change in it."""
        if kind in ("select", "reopen") and moment != "opened":
            moment = "opened"  # these are other data: the training of now goes on with its own
        self._change(kind, dice, at=moment == "opened")
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(self.kept[0].numel(), 16), nn.Linear(16, len(self.data.class_names))
        )
        try:
            prov = attach(model, self.data, weight=dice.choice([0, 0.1]))
            self._change(kind, dice, at=moment == "attached")
            samples = prov.dataset()
            order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(dice.randrange(99)))
            for number, rows in enumerate(order.split(4)):
                x, _, index = torch.utils.data.default_collate(samples.__getitems__(rows.tolist()))
                (model(x).square().mean() + prov.loss(index)).backward()
                if number == 0:
                    self._change(kind, dice, at=moment == "fetched")
            self._change(kind, dice, at=moment == "trained")
            run = prov.finish()
        except DataError as error:
            assert not torch.equal(self.data.images, self.kept), f"nothing has changed, yet: {error}"
            self.refused += 1
            self.data.images.copy_(self.kept)
            return
        assert torch.equal(self.data.images, self.kept), f"{kind} when {moment}: changed, and nobody noticed"
        self._change(kind, dice, at=moment == "finished")
        self._check(run)
        self.data.images.copy_(self.kept)
        self.named += 1

    def _check(self, run: Run) -> None:
        """Every name stands for the content that was trained on."""
        found = run.explain(self.kept, k=2)
        for row, one in enumerate(found):
            first = one.exemplars[0]
            assert first.sha256 in self._equal(row), f"{row} is named {first.sample_id}"
            for exemplar in one.exemplars:
                assert exemplar.sha256 == self.hashes[exemplar.index], f"{exemplar.sample_id} is not that sample"
        now = provnet.open_data(self.folder.root)
        on_disk = {hashlib.sha256(path.read_bytes()).hexdigest() for path in self.folder.files()}
        for i, shown in enumerate(evidence(run.samples, now, range(len(run.samples)))):
            if shown.picture is not None:
                assert self.hashes[i] in on_disk
                assert np.array_equal(shown.picture, self.kept[i, 0].numpy()), f"the picture of another for {i}"

    def _equal(self, row: int) -> set[str]:
        """Contents of all samples whose pixels are those of one."""
        return {self.hashes[i] for i in range(len(self.kept)) if torch.equal(self.kept[i], self.kept[row])}

    def _change(self, kind: str, dice: random.Random, *, at: bool) -> None:
        if not at:
            return
        if kind in CHANGES:
            self.folder.change(kind, dice)
        elif kind == "reopen":
            self._open()
        elif kind == "select":
            rows = dice.sample(range(len(self.data)), dice.randrange(2, len(self.data) + 1))
            self.data, self.kept = self.data.select(np.array(rows)), self.kept[rows]
            self.hashes = [self.hashes[row] for row in rows]
            if len(rows) < 4:
                self._open()
        elif kind == "swap rows":
            one, two = dice.sample(range(len(self.data)), 2)
            self.data.images[[one, two]] = self.data.images[[two, one]]
        else:
            row = dice.randrange(len(self.data))
            before = self.data.images[row].clone()
            self.data.images[row] ^= 1 << dice.randrange(8)
            if kind == "write back":
                self.data.images[row] = before


@grows
def test_no_change_leads_to_a_wrong_sample(tmp_path: Path) -> None:
    dice, done = random.Random(0), 0
    refused = named = 0
    while done < count(60, 2000):
        training = ChangingTraining(tmp_path / str(done))
        for _ in range(20):
            training.cycle(dice.choice(CHANGES + IN_MEMORY), dice.choice(MOMENTS), dice)
            done += 1
        refused, named = refused + training.refused, named + training.named
    assert refused > done / 100 and named > done / 2


@pytest.mark.parametrize("moment", ["attached", "trained"])
def test_without_the_guard_the_check_fails(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "refuse_others", lambda *_: None)
    monkeypatch.setattr("provnet.attached.samples.refuse_others", lambda *_: None)
    training = ChangingTraining(tmp_path)
    with pytest.raises(AssertionError, match="changed, and nobody noticed"):
        training.cycle("write", moment, random.Random(0))


def test_a_state_does_not_go_over_to_other_samples(tmp_path: Path) -> None:
    folder = ChangingFolder(tmp_path)
    dice = random.Random(1)
    data = provnet.open_data(folder.root)
    model = nn.Sequential(nn.Flatten(), nn.Linear(20, 4), nn.Linear(4, 2))
    state = attach(model, data).state_dict()
    for kind in ("edit", "swap", "delete", "add", "relabel"):
        changed = ChangingFolder(tmp_path / kind)
        changed.change(kind, dice)
        other = provnet.open_data(changed.root)
        if other.samples.fingerprint == data.samples.fingerprint:
            continue  # the two equal ones were swapped
        with pytest.raises((ValueError, UsageError), match="other training data"):
            attach(model, other).load_state_dict(state)
