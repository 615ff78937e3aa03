"""Every command, and every question from Python, on a run whose model somebody else trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import provnet
from provnet.answers.evaluation import evaluate
from provnet.attached.provenance import attach, index
from provnet.base.errors import IntegrityError, UsageError
from provnet.cli import main
from provnet.runs.run import Run, read_samples
from provnet.training.config import train_config
from tests.attached.made import cnn, mlp, train, training, vectors
from tests.cli.conftest import write_digits
from tests.fitting import fit

ASKED: dict[str, Callable[[Path, Path], list[object]]] = {
    "info": lambda run, root: [],
    "verify": lambda run, root: [],
    "explain": lambda run, root: ["test:0", "--html", root / "report.html"],
    "evaluate": lambda run, root: [],
    "debug": lambda run, root: ["--out", root],
    "audit": lambda run, root: ["--out", root, "--null", run.parent / "null"],
    "member": lambda run, root: [run.parent / "data/test/digit-0/0.png"],
    "robustness": lambda run, root: ["--out", root, "--conditions", "blur-1"],
    "map": lambda run, root: ["--out", root],
    "credit": lambda run, root: [run.parent / "data/test", "--by", sources(run), "--out", root],
    "attribute": lambda run, root: [run.parent / "data/test/digit-0", "--out", root],
    "check": lambda run, root: ["--out", root],
    "add": lambda run, root: [run.parent / "data/test"],
    "withhold": lambda run, root: ["--id", "train/digit-0/0.png"],
}


def sources(run: Path) -> Path:
    """Who gave which sample, as a file beside the run."""
    ids = read_samples(run)[1].sample_ids
    path = run.parent / "sources.csv"
    path.write_text("".join(["sample_id,contributor\n", *(f"{name},{name.split('/')[1]}\n" for name in ids)]))
    return path


def centred(one: Tensor) -> Tensor:
    return (one.float() / 255 - 0.13) / 0.31


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module]:
    root = tmp_path_factory.mktemp("attached")
    write_digits(root / "data")
    data = provnet.open_data(root / "data")
    model = cnn(len(data.class_names))
    prov = attach(model, data, transform=centred)
    train(model, prov, epochs=3)
    prov.finish().save(root / "run")
    others = provnet.open_data("embedded")
    fit(others.select(others.labels > 4).select(range(40)), config=train_config(epochs=1), out=root / "null")
    return root, model


@pytest.fixture
def own(made: tuple[Path, nn.Module], tmp_path: Path) -> tuple[Path, nn.Module]:
    """A run of one's own, that commands may change."""
    return Path(shutil.copytree(made[0], tmp_path / "place")) / "run", made[1]


@pytest.mark.parametrize("command", ASKED)
def test_a_command_takes_the_model_from_python(own: tuple[Path, nn.Module], command: str, tmp_path: Path) -> None:
    run, model = own
    arguments = [command, str(run), *map(str, ASKED[command](run, tmp_path))]
    assert main(arguments, backbone=model, transform=centred) == 0
    if "--out" in arguments or "--html" in arguments:
        assert "<html" in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.parametrize("command", [name for name in ASKED if name not in ("info", "verify")])
def test_without_it_the_error_names_that_way(
    own: tuple[Path, nn.Module], command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = own
    assert main([command, str(run), *map(str, ASKED[command](run, tmp_path))]) == 2
    assert 'provnet.cli.main(["explain", ...], backbone=model)' in " ".join(capsys.readouterr().err.split())


def test_a_run_comes_back_whole(own: tuple[Path, nn.Module]) -> None:
    folder, model = own
    run = provnet.load(folder, model=model, transform=centred)
    assert isinstance(run, Run)
    again = run.data()
    assert again.samples.fingerprint == run.samples.fingerprint
    found = run.explain(again, k=3)
    assert found.index[:, 0].tolist() == [again.samples.equal(i)[0] for i in range(len(again))]
    weights = run.scores(again.images[:4])
    assert weights.shape == (4, len(again))
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(weights, found.index[:4], 1), found.weight[:4], atol=2e-5)
    assert run.history is not None
    figures = evaluate(run, test=run.test(), train=again)
    assert figures.index_accuracy.value == 1.0


def test_nothing_of_the_users_model_is_written(own: tuple[Path, nn.Module]) -> None:
    folder, _ = own
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "np") as file:
        assert not [name for name in file.keys() if name.startswith("backbone")]  # noqa: SIM118
    about = json.loads((folder / "config.json").read_text())["network"]["attached"]
    assert about["name"] == "Sequential" and len(about["sha256"]) == 64 and about["transform"] == "centred"
    card = (folder / "README.md").read_text()
    assert "the input of 7" in card and about["sha256"] in card
    assert "model=" in card


def test_another_model_is_refused(own: tuple[Path, nn.Module]) -> None:
    folder, model = own
    with pytest.raises(IntegrityError, match="is not the one that this run was attached to: a Sequential"):
        provnet.load(folder, model=cnn(7), transform=centred)
    with pytest.raises(UsageError, match=r"was made with transform= \(centred\); give it again"):
        provnet.load(folder, model=model)
    with pytest.raises(UsageError, match="has no at=; leave it out"):
        provnet.load(folder, model=model, transform=centred, at=lambda out: out)
    with pytest.raises(UsageError, match="give the model again"):
        provnet.load(folder)
    with pytest.raises(UsageError, match="not both"):
        provnet.load(folder, nn.Flatten(), model=model)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "given",
    [
        {"at": lambda out: out.relu() + 1},
        {"at": "1"},
        {"groups": "class"},
        {"at": "0", "pool": lambda x: x[:, :5]},
    ],
)
def test_every_place_is_found_again(given: dict[str, Any], tmp_path: Path) -> None:
    data, model = vectors(), mlp()
    run = index(model, data, **given)
    run.save(tmp_path / "run")
    again_with = {name: value for name, value in given.items() if callable(value)}
    again = provnet.load(tmp_path / "run", model=model, **again_with)
    one, two = run.explain(data, k=4), again.explain(data, k=4)
    assert np.array_equal(one.index, two.index) and np.array_equal(one.weight, two.weight)
    assert run.config == again.config


def test_runs_as_they_were_have_nothing_more_in_their_files(tmp_path: Path) -> None:
    fit(training(), config=train_config(epochs=1), out=tmp_path / "run")
    assert "attached" not in json.loads((tmp_path / "run/config.json").read_text())["network"]


def test_a_forged_attachment_is_refused(own: tuple[Path, nn.Module]) -> None:
    from provnet.runs.run import RunConfig

    folder, _ = own
    plain = json.loads((folder / "config.json").read_text())
    for name, value in (("side", "left"), ("features", -1), ("stored", "object"), ("pool", "max"), ("name", 3)):
        bad = json.loads(json.dumps(plain))
        bad["network"]["attached"][name] = value
        with pytest.raises((IntegrityError, UsageError)):
            RunConfig.from_json(bad)


def test_attacks_follow_a_transform_that_has_a_gradient(own: tuple[Path, nn.Module]) -> None:
    folder, model = own
    net = provnet.load(folder, model=model, transform=centred).network
    moved = net.graded_scores(torch.full((2, 1, 28, 28), 100.0, requires_grad=True))
    assert moved is not None and moved.requires_grad
    small = provnet.open_data(folder.parent / "data")
    blind = index(model, small, transform=lambda x: centred(x.to(torch.uint8)))
    with pytest.raises(UsageError, match=r"leave attacks out \(--attacks none\)"):
        blind.network.graded_scores(torch.full((2, 1, 28, 28), 100.0, requires_grad=True))
