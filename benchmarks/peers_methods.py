"""The libraries that `peers.py` compares with. None is a dependency: each is imported inside its function.

Each function takes a `Subject` and an empty folder, prepares what its library keeps (that is timed as preparing), and
gives a `Method`. Higher scores mean more support for the query's answer, in every method.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from knn import K
from peers_cnn import Subject, margins
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 500
PROJECTED = 2048  # width of TRAK's projection, the library's own


@dataclass(frozen=True, eq=False)
class Method:
    """A way to name training samples.

    Attributes:
        best: raw pictures (B, ...) -> (B, K) training samples, best first.
        scores: raw pictures (B, ...) -> (B, N).
        suspicion: () -> (N,) high where a training label is suspect; None where the method has no such score.
    """

    best: Callable[[Tensor], np.ndarray]
    scores: Callable[[Tensor], np.ndarray]
    suspicion: Callable[[], np.ndarray] | None = None


def of_scores(scores: Callable[[Tensor], np.ndarray], suspicion: Callable[[], np.ndarray] | None = None) -> Method:
    """A method that has scores for all samples alone: the best are looked for among them."""

    def best(images: Tensor) -> np.ndarray:
        return np.asarray(torch.from_numpy(scores(images)).topk(K, dim=1).indices.numpy())

    return Method(best, scores, suspicion)


def captum_tracin(subject: Subject, folder: Path) -> Method:
    """TracInCPFast: gradients of the last layer at the checkpoints of one training, weighted by the learning rate."""
    from captum.influence import TracInCPFast

    def load(net: nn.Module, checkpoint: tuple[dict[str, Tensor], float]) -> float:
        net.load_state_dict(checkpoint[0])
        return checkpoint[1]

    net = copy_of(subject)
    loss = nn.CrossEntropyLoss(reduction="sum")
    data = TensorDataset(subject.inputs, subject.labels)
    tracin = TracInCPFast(net, net.classes, data, subject.trained[0].checkpoints, load, loss, batch_size=BATCH)
    return of_scores(
        lambda images: np.asarray(tracin.influence(subject.queries(images)).detach().numpy()),
        lambda: np.asarray(tracin.self_influence().detach().numpy()),
    )


def trak(subject: Subject, folder: Path) -> Method:
    """TRAK over all networks of the subject; the score of a sample for itself is its suspicion.

    The ridge (`lambda_reg`) is the mean eigenvalue: in a trial it foretold far better than none, the library's default.
    The library draws a projection anew for each network whenever it is asked. Here they are kept, so that what is
    timed is not the drawing.
    """
    from trak import TRAKer
    from trak.projectors import AbstractProjector, BasicProjector, ProjectionType

    class Kept(AbstractProjector):  # type: ignore[misc]
        def __init__(self, grad_dim: int) -> None:
            settings = (grad_dim, PROJECTED, subject.seed, ProjectionType.normal, "cpu")
            super().__init__(*settings)
            one_block = {"block_size": PROJECTED}  # several would not be kept
            self.parts = [BasicProjector(*settings, **one_block, model_id=i) for i in range(len(subject.trained))]

        def project(self, grads: Any, model_id: int) -> Tensor:
            found: Tensor = self.parts[model_id].project(grads, model_id)
            return found

        def free_memory(self) -> None:
            """Kept."""

    net = copy_of(subject)
    size = sum(each.numel() for each in net.parameters())
    traker = TRAKer(
        net,
        "image_classification",
        train_set_size=len(subject.labels),
        save_dir=str(folder),
        device="cpu",
        projector=Kept(size),
        use_half_precision=False,
        logging_level=logging.ERROR,
    )
    states = [each.net.state_dict() for each in subject.trained]
    with quiet():
        for number, state in enumerate(states):
            traker.load_checkpoint(state, model_id=number)
            for batch in DataLoader(TensorDataset(subject.inputs, subject.labels), batch_size=BATCH):
                traker.featurize(batch=batch, num_samples=len(batch[0]))
            grads = torch.as_tensor(traker.saver.current_store["grads"])
            traker.score_computer.lambda_reg = float(grads.square().sum(0).mean())
            traker.finalize_features(model_ids=[number])
    names = count()

    def scores(inputs: Tensor, labels: Tensor) -> np.ndarray:
        name = f"asked-{next(names)}"
        with quiet():
            for number, state in enumerate(states):
                traker.start_scoring_checkpoint(name, state, model_id=number, num_targets=len(inputs))
                for part in DataLoader(TensorDataset(inputs, labels), batch_size=BATCH):
                    traker.score(batch=part, num_samples=len(part[0]))
            found = traker.finalize_scores(name)
        return np.asarray(found).T.copy()

    return of_scores(
        lambda images: scores(*subject.queries(images)), lambda: scores(subject.inputs, subject.labels).diagonal()
    )


def kronfluence(subject: Subject, folder: Path) -> Method:
    """Influence functions with EK-FAC on the margin of the predicted class; self-influence on the training loss.

    Damping is a tenth of the mean eigenvalue, which the library offers beside its fixed default: it foretells better.
    """
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments, ScoreArguments
    from kronfluence.task import Task

    class Classify(Task):  # type: ignore[misc]
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
            found = model(batch[0])
            drawn = torch.multinomial(torch.softmax(found.detach(), 1), 1).flatten() if sample else batch[1]
            return F.cross_entropy(found, drawn, reduction="sum")

        def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
            return -margins(model(batch[0]), batch[1]).sum()  # like a loss: what lowers it supports the answer

    task = Classify()
    net = prepare_model(copy_of(subject), task)
    data = TensorDataset(subject.inputs, subject.labels)
    analyzer = Analyzer("peers", net, task, cpu=True, disable_tqdm=True, log_level=40, output_dir=str(folder))
    torch.manual_seed(subject.seed)  # labels are drawn
    with quiet():
        analyzer.fit_all_factors("ekfac", data, per_device_batch_size=BATCH, factor_args=FactorArguments("ekfac"))
    settings: dict[str, Any] = {
        "factors_name": "ekfac",
        "train_dataset": data,
        "per_device_train_batch_size": BATCH,
        "score_args": ScoreArguments(damping_factor=None),
        "overwrite_output_dir": True,
    }

    def scores(images: Tensor) -> np.ndarray:
        asked = TensorDataset(*subject.queries(images))
        with quiet():
            analyzer.compute_pairwise_scores("asked", query_dataset=asked, per_device_query_batch_size=256, **settings)
        return np.asarray(analyzer.load_pairwise_scores("asked")["all_modules"].numpy())

    def own() -> np.ndarray:
        with quiet():
            analyzer.compute_self_scores("own", **settings)
        return np.asarray(analyzer.load_self_scores("own")["all_modules"].numpy())

    return of_scores(scores, own)


def dattri_representer(subject: Subject, folder: Path) -> Method:
    """Representer points: the last layer fitted again with weight decay, so that its answer is a sum over samples.

    dattri decomposes the network's own answers, not the labels. Yeh et al. (2018) look for wrong labels where the value
    of a sample for its own label is large, whatever its sign.
    """
    from dattri.algorithm import RPSAttributor
    from dattri.task import AttributionTask

    def loss(activation: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(activation, targets)

    net = copy_of(subject)
    task = AttributionTask(loss_func=loss, model=net, checkpoints=net.state_dict())
    train = DataLoader(TensorDataset(subject.inputs, subject.labels), batch_size=BATCH)
    attributor = RPSAttributor(task, "classes")
    attributor.cache(train)

    def scores(inputs: Tensor, labels: Tensor) -> np.ndarray:
        asked = DataLoader(TensorDataset(inputs, labels), batch_size=BATCH)
        return np.asarray(attributor.attribute(train, asked).detach().numpy().T)

    def own() -> np.ndarray:
        parts = torch.split(torch.arange(len(subject.labels)), BATCH)
        return np.abs(np.concatenate([scores(*_rows(subject, rows))[_diagonal(rows)] for rows in parts]))

    return of_scores(lambda images: scores(*subject.queries(images)), own)


def _rows(subject: Subject, rows: Tensor) -> tuple[Tensor, Tensor]:
    return subject.inputs[rows], subject.labels[rows]


def _diagonal(rows: Tensor) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(len(rows)), rows.numpy()


def copy_of(subject: Subject) -> Any:
    """The network, as libraries change what they are given."""
    return deepcopy(subject.net)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and warnings of a library that has no switch for them."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


# the name in tables -> the package on PyPI, the module it is imported as, how many networks, and the function
PEERS: dict[str, tuple[str, str, int, Callable[[Subject, Path], Method]]] = {
    "Captum TracInCPFast": ("captum", "captum", 1, captum_tracin),
    "TRAK, one network": ("traker", "trak", 1, trak),
    "TRAK, three networks": ("traker", "trak", 3, trak),
    "kronfluence EK-FAC": ("kronfluence", "kronfluence", 1, kronfluence),
    "dattri representer points": ("dattri", "dattri", 1, dattri_representer),
}
