"""A run as a folder: safetensors, JSON and a manifest of SHA-256 sums; nothing executable.

model.safetensors    weights
config.json          network, data, training settings, support threshold, versions, evaluation
samples.safetensors  the sample table: who stands behind each index
history.safetensors  class loss of every sample in every epoch (optional)
snapshots.safetensors  weights of some epochs in bf16, and
influence.safetensors  what influence is computed from: see provnet.influence (both optional)
README.md            the model card
manifest.json        SHA-256 and size of each; see provnet.runs.fileset for how the set is replaced as one

Nothing is used before all hashes are checked. The architecture comes from the closed tables NETWORKS and BACKBONES.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import provnet
from provnet.base.batches import is_matrix
from provnet.base.errors import IntegrityError, NonFiniteError, ProvnetError, UnsafeFileError, UsageError
from provnet.base.files import as_path
from provnet.data.dataset import Dataset
from provnet.models.attached import Given
from provnet.models.network import ProvenanceNet, parameter_count
from provnet.runs import fileset
from provnet.runs.card import model_card
from provnet.runs.data import Place, own_data, own_test
from provnet.runs.files import RunConfig, check_state, check_table, read_samples_file, rebuild, samples_to_tensors
from provnet.runs.fileset import FORMAT_VERSION, FileSet
from provnet.runs.safe import (
    LIMIT,
    TENSORS,
    Layout,
    all_finite,
    layouts_of,
    open_checked,
    printable,
    read_json,
    read_layouts,
    read_tensors,
    refuse_foreign,
    write_json,
)
from provnet.samples.identity import SampleTable

__all__ = [
    "FORMAT_VERSION",
    "FileCheck",
    "Run",
    "RunConfig",
    "has_run",
    "is_run",
    "prepare_run_folder",
    "read_run",
    "read_samples",
    "verify_files",
    "write_run",
]


@dataclass(frozen=True, eq=False)
class Run:
    """A trained network with everything needed to explain with it.

    Attributes:
        network: on the CPU, in evaluation mode.
        config: what config.json holds.
        samples: the training samples, row i is index i.
        history: (epochs, N) float16, class loss of every sample in every epoch, or None.
        folder: where it was read from, or None.
        snapshots: by epoch, what the network answered by then, in bf16.
        influence: what `provnet.influence` computes from, or None.
    """

    network: ProvenanceNet
    config: RunConfig
    samples: SampleTable
    history: np.ndarray | None = None
    folder: Path | None = field(default=None)
    snapshots: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    influence: Mapping[str, Tensor] | None = None

    def __repr__(self) -> str:
        """One line: what it is, over what, where it came from."""
        net = self.config.network
        kind = f"{net.network}, backbone {net.backbone}, head {net.head}"
        return f"Run({kind}; {self.samples!r}{'' if self.folder is None else f', from {self.folder}'})"

    def data(
        self, source: Place | Dataset | None = None, data_dir: Place | None = None, *, progress: bool = False
    ) -> Dataset:
        """The training samples, opened again and matched by hash: in the run's order, under its ids and labels.

        Whatever became of names, order and places, a sample is found by its content. Edited and missing ones are left
        out with a DataWarning that counts them; where none is left, or nothing can be opened, a DataError says why.

        Args:
            source: where the data are now, as a name or a path, or data that are open already; default: as in training.
            data_dir: the folder that names resolve under; default: that of training, PROVNET_DATA or ./data.
            progress: show a progress bar on stderr where it takes long.

        >>> import provnet
        >>> from provnet.training.config import train_config
        >>> from provnet.training.fit import fit
        >>> run = fit(provnet.open_data("embedded", limit=20), config=train_config(epochs=1))
        >>> run.data().samples.fingerprint == run.samples.fingerprint
        True
        """
        return own_data(self.config, self.samples, source, data_dir, progress=progress)

    def test(
        self, source: Place | Dataset | None = None, data_dir: Place | None = None, *, progress: bool = False
    ) -> Dataset | None:
        """The run's test split, or None where it has none; its classes are numbered as the run does.

        Args:
            source: other data, as a name or a path (their test split, else all of them) or open already.
            data_dir: the folder that names resolve under; default: that of training, PROVNET_DATA or ./data.
            progress: show a progress bar on stderr where it takes long.
        """
        return own_test(self.config, self.samples, source, data_dir, progress=progress)

    def explain(self, inputs: Any, k: int = 5, *, weights: str = "plain") -> Any:
        """The training samples behind the answers to some inputs: `provnet.explain` of this run."""
        return provnet.explain(self, inputs, k=k, weights=weights)

    def scores(self, inputs: Any, weights: str = "plain") -> np.ndarray:
        """(Q, N) the weight of every training sample for each input; column j is the sample with index j."""
        return provnet.scores(self, inputs, weights)

    def save(self, folder: str | Path) -> Path:
        """Write the run into a folder; `provnet.load` reads it again."""
        return write_run(self, folder)

    def seen(self, data: Dataset) -> int:
        """How many of these samples have exactly the pixels of a training sample: they are not unseen."""
        trained = {row.tobytes() for row in self.samples.pixel_sha256}
        return sum(row.tobytes() in trained for row in data.samples.pixel_sha256)


class FileCheck(NamedTuple):
    """One file of a run: `why` is "ok", or what is wrong with it."""

    name: str
    why: str
    exit_code: int = 0


def has_run(folder: str | Path) -> bool:
    """Whether a run was written here to its end, even if its writer was killed before all files had their names."""
    return any((Path(folder) / place / fileset.NAME).is_file() for place in (fileset.NEXT, "."))  # as a file moves


def is_run(folder: Path) -> bool:
    """Whether the run in a folder is ours: by its manifest, or by its sample table, which --overwrite removes last."""
    with contextlib.suppress(ProvnetError):
        fileset.read_set(folder, FILES)
        return True
    with contextlib.suppress(ProvnetError), open_checked(folder / "samples.safetensors") as file:
        return read_layouts(file).keys() >= {"sha256", "pixel_sha256", "sample_ids.text"}
    return False


def prepare_run_folder(folder: str | Path) -> Path:
    """Make a folder for a run and see that it can be written; files of a run's names that are not ours are refused."""
    where = as_path("the run's folder", folder)
    fileset.prepare_folder(where)
    if is_run(where):
        foreign = [] if fileset.staged_is_ours(where, FILES) else [fileset.NEXT]
    else:
        foreign = [name for name in (fileset.NAME, fileset.NEXT, *FILES) if (where / name).exists()]
    if foreign:
        raise UsageError(f"{where} holds {' and '.join(foreign)} that provnet did not write; choose another folder")
    return where


def write_run(run: Run, folder: str | Path) -> Path:
    """Write a run, or replace the one that is there. If it is killed, the folder holds the old run or the new one."""
    if not isinstance(run, Run):
        raise UsageError(f"expected a run, got {type(run).__name__}; save a fitted classifier with its save(folder)")
    where = prepare_run_folder(folder)
    weights = _weights(run.network)
    check_state(run.config.network, run.samples, weights, run.network.backbone)
    check_table(run.config, run.samples, "the table given")
    files: dict[str, bytes | Callable[[Path], None]] = {
        "model.safetensors": _saver(weights),
        "config.json": write_json(run.config.to_json(), "config.json"),
        "samples.safetensors": _saver(samples_to_tensors(run.samples)),
        "README.md": _card(run).encode("utf-8", "backslashreplace"),
    }
    if len(files["config.json"]) > LIMIT:  # type: ignore[arg-type]
        raise UsageError(f"config.json may have {LIMIT:,} bytes; keep long lists out of the run's settings")
    needs = sum(t.nbytes for t in weights.values()) + len(run.samples) * 128
    if run.history is not None:
        history = np.asarray(run.history, dtype=np.float16)
        if not is_matrix(history) or history.shape[1] != len(run.samples) or not np.isfinite(history).all():
            raise NonFiniteError(f"history must be finite, of shape (epochs, {len(run.samples)}); got {history.shape}")
        files["history.safetensors"] = _saver({"class_loss": torch.tensor(history)})
        needs += history.nbytes
    kept = {f"{epoch}/{name}": one for epoch, state in run.snapshots.items() for name, one in state.items()}
    for place, tensors in ((SNAPSHOTS, kept), (INFLUENCE, dict(run.influence or {}))):
        if tensors:
            files[place] = _saver(tensors)
            needs += sum(one.nbytes for one in tensors.values())
    fileset.replace_set(where, files, known=FILES, needs=needs)
    return where


def read_run(folder: str | Path, backbone: nn.Module | Given | None = None) -> Run:
    """Read a run; every file is checked before any is used.

    A `custom` backbone must be given again, and is copied. The model of an attached run must be given again, and is
    used as it is.
    """
    where = as_path("the run's folder", folder)
    _refuse_other_things(where)
    with contextlib.ExitStack() as stack:
        files = _open_all(where, stack)
        config, samples = _config(files["config.json"]), read_samples_file(files["samples.safetensors"])
        network = rebuild(config.network, samples, files["model.safetensors"], backbone)
        check_table(config, samples, files["samples.safetensors"].name)
        history = _history(files["history.safetensors"], len(samples)) if "history.safetensors" in files else None
        snapshots = _snapshots(files[SNAPSHOTS], network) if SNAPSHOTS in files else {}
        influence = _influence(files[INFLUENCE], len(samples)) if INFLUENCE in files else None
    return Run(network, config, samples, history, where, snapshots, influence)


def read_samples(folder: str | Path) -> tuple[RunConfig, SampleTable]:
    """The settings and the sample table alone, checked like everything else; needs no network."""
    where = as_path("the run's folder", folder)
    _refuse_other_things(where)
    with contextlib.ExitStack() as stack:
        files = _open_all(where, stack)
        config, samples = _config(files["config.json"]), read_samples_file(files["samples.safetensors"])
        check_table(config, samples, files["samples.safetensors"].name)
    return config, samples


def read_config(folder: str | Path) -> RunConfig:
    """The settings alone, checked; of the other files nothing is read."""
    with _current(as_path("the run's folder", folder)).open("config.json") as file:
        return _config(file)


def verify_files(folder: str | Path) -> list[FileCheck]:
    """Check every file against the manifest: ("model.safetensors", "ok", 0) or what is wrong, for each."""
    where = as_path("the run's folder", folder)
    _refuse_other_things(where)
    try:
        current = _current(where)
    except ProvnetError as error:
        return [FileCheck(fileset.NAME, str(error), error.exit_code)]
    checks = [FileCheck(fileset.NAME, "ok")]
    for name in current.entries:
        try:
            current.open(name).close()
            checks.append(FileCheck(name, "ok"))
        except ProvnetError as error:
            checks.append(FileCheck(name, str(error), error.exit_code))
    return checks


def _current(folder: Path) -> FileSet:
    current = fileset.read_set(folder, FILES)
    missing = [name for name in FILES if name not in current.entries and name not in _OPTIONAL]
    if missing:
        raise IntegrityError(f"{folder / fileset.NAME} does not list {', '.join(missing)}; a run needs it")
    return current


def _open_all(folder: Path, stack: contextlib.ExitStack) -> dict[str, io.BufferedReader]:
    """Open every file with its hash checked; once more if another process replaced the set meanwhile."""
    current = _current(folder)
    while True:
        try:
            return {name: stack.enter_context(current.open(name)) for name in current.entries}
        except IntegrityError:
            stack.close()
            latest = _current(folder)
            if latest.raw == current.raw:
                raise
            current = latest


def _refuse_other_things(path: Path) -> None:
    """A run is a folder with a manifest; a file of weights from elsewhere gets advice."""
    try:
        _refuse(path)
    except PermissionError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _refuse(path: Path) -> None:
    if path.is_dir():
        if has_run(path):
            return
        found = sorted(p for p in path.iterdir() if p.suffix in _WEIGHTS and p.is_file())
        for other in found:
            with other.open("rb") as file:
                refuse_foreign(file, other)
        if any((path / name).exists() for name in ("model.safetensors", "samples.safetensors")):
            raise IntegrityError(f"{path / fileset.NAME} is missing; the files beside it cannot be trusted without it")
        kept = f"; the run that was there before is whole in {path / 'replaced'}" if has_run(path / "replaced") else ""
        if (path / "checkpoints").is_dir():
            raise UsageError(f"{path}: training has not finished; go on with the same train command and --resume{kept}")
        raise UsageError(f"{path} is not a provnet run: no {fileset.NAME}; give a folder that train wrote{kept}")
    if path.is_file():
        with path.open("rb") as file:
            refuse_foreign(file, path)
        raise UsageError(f"{path} is a file; a provnet run is a folder, give the folder that train wrote")
    raise UsageError(f"no run at {path}: there is no such folder")


def _config(file: io.BufferedReader) -> RunConfig:
    try:
        return RunConfig.from_json(read_json(file.read(), file.name))
    except UnsafeFileError:
        raise
    except (UsageError, IntegrityError) as error:
        raise IntegrityError(f"{file.name}: {error}".replace(f"{file.name}: {file.name}", file.name)) from None


def _history(file: io.BufferedReader, n: int) -> np.ndarray:
    shape = read_layouts(file).get("class_loss", Layout("F16", (0, n))).shape
    return read_tensors(file, {"class_loss": Layout("F16", (shape[0] if shape else 0, n))})["class_loss"].numpy()


def answering_state(network: ProvenanceNet) -> dict[str, Tensor]:
    """The weights and statistics that the class scores depend on; those of a foreign model among them."""
    state = nn.Module.state_dict(network)
    return {k: v for k, v in state.items() if k.startswith(("backbone.", "task_head.")) and v.is_floating_point()}


def _snapshots(file: io.BufferedReader, network: ProvenanceNet) -> dict[int, dict[str, Tensor]]:
    known = layouts_of({name: value.bfloat16() for name, value in answering_state(network).items()})
    found: dict[int, dict[str, Tensor]] = {}
    expected = {}
    for name in read_layouts(file):
        epoch, _, own = name.partition("/")
        if not (epoch.isascii() and epoch.isdigit()) or own not in known:
            raise IntegrityError(f"{file.name}: tensor {printable(name)} is not one of this network's")
        expected[name] = known[own]
        found.setdefault(int(epoch), {})[own] = torch.empty(0)
    for name, value in read_tensors(file, expected).items():
        epoch, _, own = name.partition("/")
        found[int(epoch)][own] = value
    return found


def _influence(file: io.BufferedReader, n: int) -> dict[str, Tensor]:
    layouts = read_layouts(file)
    keys = layouts.get("keys", Layout("BF16", (n, 0)))
    fixed = {"keys": Layout("BF16", (n, *keys.shape[1:])), "course": Layout("F32", (n,))}
    return read_tensors(file, {**layouts, **fixed})


def _weights(network: nn.Module) -> dict[str, Tensor]:
    """The state as plain tensors on the CPU; tensors that share memory are taken apart."""
    seen: set[int] = set()
    weights = {}
    for name, value in network.state_dict().items():
        tensor = value.detach().to("cpu").contiguous()
        if tensor.untyped_storage().data_ptr() in seen:
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        if not all_finite(tensor):
            raise NonFiniteError(f"the weights {name} hold NaN or infinity; such a network is not written")
        weights[name] = tensor
    if len(weights) > TENSORS:
        raise UsageError(f"a run may hold {TENSORS:,} tensors, this network has {len(weights):,}")
    return weights


def _saver(tensors: dict[str, Tensor]) -> Callable[[Path], None]:
    return lambda path: save_file(tensors, path)


def _card(run: Run) -> str:
    return model_card(run.config, parameter_count(run.network), run.samples)


SNAPSHOTS, INFLUENCE = "snapshots.safetensors", "influence.safetensors"
_OPTIONAL = ("history.safetensors", SNAPSHOTS, INFLUENCE)
FILES = ("model.safetensors", "config.json", "samples.safetensors", "README.md", *_OPTIONAL)
_WEIGHTS = {".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".joblib", ".safetensors", ".h5", ".keras"}
