"""Influence keys: the score is that of the formula, and a run keeps, resumes and explains with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import provnet
from provnet.base.errors import DiskError, NonFiniteError, ProvnetError, UsageError
from provnet.base.files import DataWarning
from provnet.base.options import InfluenceOptions, RunOptions
from provnet.data.dataset import Dataset
from provnet.influence.keys import Subject, influence_of
from provnet.influence.of_run import epochs_kept, influence, prepare_influence
from provnet.runs.bank import erase, withhold
from provnet.runs.run import Run, read_run
from provnet.training.config import train_config
from provnet.training.fit import fit
from tests.cases import cases
from tests.influence.test_gradients import by_autograd

N, EPOCHS = 60, 3


def small() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    return model, torch.randn(40, 6), torch.randint(0, 3, (40,))


def by_formula(model: nn.Module, x: Tensor, y: Tensor, queries: Tensor, course: Tensor) -> Tensor:
    """(Q, N) with the gradients of each sample written out, and a solve for every layer."""
    answers = model(queries).argmax(1)
    own, asked = by_autograd(model, x, y), by_autograd(model, queries, answers)
    scores = torch.zeros(len(queries), len(x))
    for layer in ("0", "2"):
        a, q = (torch.cat([one[f"{layer}.weight"].flatten(1), one[f"{layer}.bias"]], 1) for one in (own, asked))
        gram = (a.t() * course) @ a
        gram.diagonal().add_(gram.diagonal().sum() / len(x))
        scores += a.shape[1] ** 0.5 * q @ torch.linalg.solve(gram, a.t())
    return scores * course


@cases("n", [40, 12])
def test_scores_are_those_of_the_formula(n: int) -> None:
    """By either side of the solve: with more samples than weights, and with fewer."""
    model, x, y = small()
    x, y, course, queries = x[:n], y[:n], torch.rand(n) * 0.9 + 0.05, torch.randn(7, 6)
    state = {name: value + 0.1 for name, value in model.state_dict().items()}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = influence_of(
        Subject(model), x, y, snapshots=[state], course=course, options=InfluenceOptions(whole=True, width=400)
    )
    answers = found.classes(queries)
    expected = by_formula(model, x, y, queries, course)
    for whole in (True, False):
        last = found.by_part(queries, answers, whole=whole)[-1]
        assert float(torch.corrcoef(torch.stack([last.flatten(), expected.flatten()]))[0, 1]) > 0.999
        assert torch.allclose(last * found.parts[-1].spread, expected, atol=0.03 * float(expected.abs().max()))
    assert found.agreement > 0.99
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    first = found.by_part(queries, answers)[0]
    assert not torch.allclose(first, found.by_part(queries, answers)[1])
    assert torch.allclose(found.scores(queries), found.by_part(queries).mean(0), atol=1e-4)


def test_sketches_in_files_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = small()
    plain, filed = (influence_of(Subject(model), x, y, folder=folder) for folder in (None, tmp_path / "sketches"))
    monkeypatch.setattr("provnet.influence.keys.HELD", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    large = influence_of(Subject(model), x, y)
    assert torch.equal(plain.keys, filed.keys) and torch.equal(plain.keys, large.keys)
    assert [path.name for path in tmp_path.iterdir()] == ["sketches"]


def test_a_full_disk_while_sketching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    model, x, y = small()
    with pytest.raises(DiskError):
        influence_of(Subject(model), x, y, folder=tmp_path)


class Nothing(nn.Module):
    """A model whose answer has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.layer(x)


class Unknown(nn.Module):
    """A model without a layer of a known kind."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def broken() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 3))
    nn.init.constant_(model[0].weight, torch.nan)
    return model


@cases(
    ("make", "kind", "words"),
    [
        (Nothing, UsageError, "no_grad"),
        (Unknown, UsageError, "known kind"),
        (broken, NonFiniteError, "NaN"),
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, track_running_stats=False)), UsageError, "one batch"),
    ],
)
def test_models_without_usable_gradients_are_refused(make: type[nn.Module], kind: type[Exception], words: str) -> None:
    _, x, y = small()
    with pytest.raises(kind, match=words):
        influence_of(Subject(make()), x, y)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    where = RunOptions(out=tmp_path_factory.mktemp("runs") / "run", checkpoint_seconds=0.0)
    return fit(training(), train_config("fast", epochs=EPOCHS, head="exemplar"), where)


@pytest.fixture(scope="module")
def asked(run: Run) -> Run:
    return prepare_influence(run, training())


def training() -> Dataset:
    """Digits; the last is the fourth once more."""
    data = provnet.open_data("embedded", limit=N)
    rows = [*range(N), 3]
    return provnet.open_data(data.images[rows].numpy(), data.samples.labels[rows])


def queries(count: int = 4) -> Tensor:
    return provnet.open_data("embedded", split="test", limit=100).images[:count]


def test_a_run_keeps_snapshots_and_keys(run: Run, asked: Run, tmp_path: Path) -> None:
    assert tuple(run.snapshots) == epochs_kept(EPOCHS) == (1, 2)
    found = asked.scores(queries(), weights="influence")
    assert found.shape == (4, N + 1) and np.isfinite(found).all()
    again = read_run(asked.save(tmp_path / "kept"))
    assert np.array_equal(again.scores(queries(), weights="influence"), found)
    assert np.array_equal(found[:, 3], found[:, N]), "equal samples with equal labels have equal influence"
    alone = [asked.scores(one[None], weights="influence") for one in queries()]
    assert np.allclose(np.concatenate(alone), found, atol=1e-2 * np.abs(found).max())


def test_snapshots_are_those_of_each_epoch(run: Run) -> None:
    """What is kept after an epoch is what a shorter training of that schedule would have, not what came later."""
    first, second = (run.snapshots[epoch] for epoch in (1, 2))
    last = {name: value for name, value in run.network.state_dict().items() if name in first}
    assert first.keys() == second.keys() == last.keys() and "task_head.1.weight" in first
    away = [float((one["task_head.1.weight"].float() - last["task_head.1.weight"]).norm()) for one in (first, second)]
    assert away[0] > away[1] > 0


def test_both_columns_stand_side_by_side(asked: Run) -> None:
    plain = provnet.explain(asked, queries(), k=5)
    both = provnet.explain(asked, queries(), k=5, weights="influence")
    assert np.array_equal(both.recognised_index, plain.index) and np.array_equal(both.predicted, plain.predicted)
    scores = asked.scores(queries(), weights="influence")
    assert any(one.depends_on for one in both)
    for row, one in enumerate(both):
        assert one.recognised == plain.one(row).exemplars and plain.one(row).depends_on == ()
        assert one.depends_on == one.exemplars
        order = np.argsort(-scores[row], kind="stable")
        assert [x.index for x in one.depends_on] == order[: len(one.depends_on)].tolist()
        for x in one.depends_on:
            assert x.interval is not None and x.interval[0] <= x.weight <= x.interval[1]
            assert x.weight == pytest.approx(scores[row, x.index], abs=1e-3)
    assert "interval" in both.to_records()[0]["exemplars"][0] and "recognised" not in plain.to_records()[0]


def test_withheld_samples_are_never_named(asked: Run) -> None:
    before = provnet.explain(asked, queries(1), k=3, weights="influence").one(0)
    gone = before.depends_on[0].sample_id
    less = withhold(asked, [gone])
    after = provnet.explain(less, queries(1), k=3, weights="influence").one(0)
    assert gone not in {x.sample_id for x in (*after.depends_on, *after.recognised)}
    assert less.scores(queries(1), weights="influence")[0, before.depends_on[0].index] == 0
    erased = erase(asked, [gone])
    assert erased.influence is not None and len(erased.influence["keys"]) == N
    assert gone not in {
        x.sample_id for x in provnet.explain(erased, queries(1), k=3, weights="influence").one(0).depends_on
    }


def test_chance_names_nothing(asked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys whose columns are shuffled belong to nobody: hardly any answer depends on one of them."""
    known = influence(asked)
    shuffled = torch.stack([column[torch.randperm(N + 1)] for column in known.keys.t()], 1)
    monkeypatch.setattr(known, "keys", shuffled)
    monkeypatch.setattr(known, "_shuffled", None)
    asked_ = torch.randn(len(known.parts), 200, shuffled.shape[1])
    assert (known.scored(asked_).amax(1) > known.chance(asked_)).float().mean() < 0.2


def test_a_run_without_keys_or_snapshots(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="provnet influence"):
        provnet.explain(run, queries(), weights="influence")
    data = training()
    short = fit(data, train_config("fast", epochs=1), RunOptions(snapshots=False))
    assert not short.snapshots
    once = prepare_influence(short, data)
    assert len(influence(once).parts) == 1
    one = provnet.explain(once, queries(1), weights="influence").one(0)
    assert all(x.interval is None for x in one.depends_on)
    with pytest.warns(DataWarning), pytest.raises(UsageError, match="training samples are not there"):
        prepare_influence(short, data.select(np.arange(N - 1)))
    single = fit(data, train_config("fast", epochs=1, network="single"))
    with pytest.raises(UsageError, match="class branch"):
        prepare_influence(single, data)


def test_an_attached_model_keeps_snapshots_of_its_own_loop(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = training()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
    prov = provnet.attach(model, data, weight=0).keep_snapshots()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for epoch in range(3):
        if epoch == 2:  # killed and gone on with
            state = prov.state_dict()
            prov = provnet.attach(model, data, weight=0)
            prov.load_state_dict(state)
        for x, y, index in torch.utils.data.DataLoader(prov.dataset(), batch_size=20, shuffle=True):
            optimizer.zero_grad()
            (nn.functional.cross_entropy(model(x), y) + prov.loss(index)).backward()
            optimizer.step()
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    run = prepare_influence(prov.finish(), data)
    assert sorted(run.snapshots) == [1, 2]
    found = run.scores(queries(), weights="influence")
    assert all(torch.equal(one, weights[name]) for name, one in model.state_dict().items())
    again = read_run(run.save(tmp_path / "attached"), model)
    assert np.array_equal(again.scores(queries(), weights="influence"), found)
    assert provnet.explain(again, queries(1), weights="influence").one(0).predicted
    once = prepare_influence(provnet.index(model, data), data)
    assert len(influence(once).parts) == 1 and once.scores(queries(), weights="influence").shape == found.shape


def test_resumed_training_has_the_same_snapshots(run: Run, tmp_path: Path) -> None:
    def stop(row: Mapping[str, float]) -> None:
        if row["epoch"] == EPOCHS:
            raise KeyboardInterrupt

    config = train_config("fast", epochs=EPOCHS, head="exemplar")
    where = RunOptions(out=tmp_path / "run", checkpoint_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        fit(training(), config, where, on_epoch=stop)
    resumed = fit(training(), config, RunOptions(out=tmp_path / "run", resume=True))
    assert resumed.snapshots.keys() == run.snapshots.keys()
    for epoch, state in run.snapshots.items():
        assert all(torch.equal(one, resumed.snapshots[epoch][name]) for name, one in state.items())


def test_a_full_disk_leaves_the_old_run(asked: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = asked.save(tmp_path / "kept")
    before = {path.name: path.read_bytes() for path in kept.iterdir() if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("provnet.runs.run.save_file", full)
    with pytest.raises((ProvnetError, OSError)):
        asked.save(kept)
    assert {path.name: path.read_bytes() for path in kept.iterdir() if path.is_file()} == before
