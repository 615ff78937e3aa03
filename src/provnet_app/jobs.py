"""Costly work in the background, one job at a time, with progress; results are kept and come back after a restart."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel
from torch import Tensor

from provnet.answers.attributor import Attributor
from provnet.base.batches import keyed_generator
from provnet.base.errors import ProvnetError
from provnet.base.progress import listening, progress_bar
from provnet.data.dataset import ImageData
from provnet.runs.inputs import inputs_of
from provnet.runs.run import Run
from provnet.tools.debug.compute import DROP, debug
from provnet.tools.debug.compute import KINDS as WORDS_OF_KINDS
from provnet.tools.map.compute import Cluster, index_features, sample_map
from provnet.tools.membership.compute import audit
from provnet.tools.membership.member import Heldout
from provnet_app.routes import gives, router
from provnet_app.served import WEIGHTS, Keeping, Served

Stored = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]
KINDS = ("conflict", "wrong", "bad", "foreign", "ambiguous", "duplicate")  # in the order of the tool's own words
LEVELS = (0.8, 0.9, 0.95, 0.99)  # certainties that suggestions can be asked for
LIKENESS = 2  # changes with the features that `index_features` gives: what was kept of others is made anew
AUDITED = 2_000  # pictures of each side
MAPPED = 20_000  # points where only the slow engine is there
NEAREST = 4


@dataclass(frozen=True, eq=False)
class Scores:
    """Findings about all samples of a run, one row a sample; rows that were not looked at have mislabel -1.

    Attributes:
        mislabel, anomaly, typicality: (N,) float32 in 0..1.
        kind: (N,) int8, what is wrong: 0 for nothing, else the place in `KINDS`, counted from 1.
        sure: (N,) float32, the highest of `LEVELS` at which the suggestion would be applied; 0 where there is none.
        suggested: (N,) int64 class; the given one where nothing speaks against it, `DROP` where no label that its
            picture has is known to be right.
        group: (N,) int64 duplicate group, -1 for none.
        exact, conflict: (N,) bool.
        certain, most: the least number of labels that are wrong, and about the largest.
        cannot_tell: why it cannot be told how many labels are wrong; else empty.
    """

    mislabel: np.ndarray
    anomaly: np.ndarray
    typicality: np.ndarray
    kind: np.ndarray
    sure: np.ndarray
    suggested: np.ndarray
    group: np.ndarray
    exact: np.ndarray
    conflict: np.ndarray
    certain: int
    most: int
    cannot_tell: str

    @property
    def known(self) -> np.ndarray:
        """(N,) bool: samples that were looked at."""
        return np.asarray(self.mislabel >= 0)

    @property
    def issue(self) -> np.ndarray:
        """(N,) how probable it is that anything is wrong: the label, or the picture."""
        return np.asarray(np.minimum(self.mislabel + self.anomaly, 1))


@dataclass(frozen=True, eq=False)
class Map:
    """Samples on a plane; places lie in 0..1.

    Attributes:
        index: (n,) int64 training samples; xy: (n, 2) float32; cluster: (n,) int64.
        groups: (c, 3 + NEAREST) int64: class, number, size, nearest samples (-1 where there are fewer).
        test: (m,) int64 positions of misattributed test samples; test_xy: (m, 2); test_class: (m,) predicted.
        test_data: fingerprint of the test samples, in whose order the positions are; empty where there were none.
    """

    index: np.ndarray
    xy: np.ndarray
    cluster: np.ndarray
    groups: np.ndarray
    test: np.ndarray
    test_xy: np.ndarray
    test_class: np.ndarray
    engine: str
    left_out: int
    test_data: str


@dataclass(frozen=True, eq=False)
class Audited:
    """What an audit found: figures as plain values, and the scores that verdicts are compared with."""

    values: Mapping[str, Any]
    heldout: Heldout


@dataclass(frozen=True, eq=False)
class Answers:
    """What the run says of its test samples, and what the run beside it says of the same.

    Attributes:
        predicted, first: (m,) int64 class, and the first exemplar; confidence: (m,) float32; supported: (m,) bool.
        beside: (m,) int64 class by the run beside it, -1 where that has no such test sample.
        test_data: fingerprint of the test samples, in whose order these are; beside_run: of the weights beside it.
    """

    predicted: np.ndarray
    first: np.ndarray
    confidence: np.ndarray
    supported: np.ndarray
    beside: np.ndarray
    test_data: str
    beside_run: str


StartName = Literal["answers", "features", "scores", "map", "membership"]
JobName = StartName | Literal["again"]


@dataclass(frozen=True)
class Work:
    """How one thing is done; `why_not` says why it cannot be, else nothing."""

    do: Callable[[Served], Any]
    store: Callable[[Any], Stored]
    restore: Callable[[Served, dict[str, np.ndarray], dict[str, Any]], Any]
    why_not: Callable[[Served], str]


_COLUMNS = ("mislabel", "anomaly", "typicality", "kind", "sure", "suggested", "group", "exact", "conflict")


def _needs_training(served: Served) -> str:
    return "" if served.training is not None else "the training pictures are not there: " + "; ".join(served.facts)


def _needs_both(served: Served) -> str:
    return _needs_training(served) or (
        "" if served.test is not None else f"no pictures to compare with: {served.test_why}"
    )


def _score(served: Served) -> Scores:
    assert served.training is not None
    found = debug(served.run, served.training, index=served.index, progress=False)
    n = len(served.run.samples)

    def spread(values: np.ndarray, empty: float, kind: type) -> np.ndarray:
        out: np.ndarray = np.full(n, empty, dtype=kind)
        out[found.index] = values
        return out

    suggested = served.run.samples.labels.copy()
    suggested[found.index] = np.where(found.advised() == DROP, DROP, found.mislabels.suggested)
    sure = np.zeros(len(found), dtype=np.float32)
    for level in LEVELS:  # what is applied at one level is applied at those below it
        sure[found.advised(certainty=level) != found.samples.labels] = level
    number = {"": 0, **{words: place for place, words in enumerate(WORDS_OF_KINDS, 1)}}
    kind = np.array([number[words] for words in found.kinds()], dtype=np.int8)
    return Scores(
        mislabel=spread(found.mislabels.score, -1, np.float32),
        anomaly=spread(found.anomalies.score, 0, np.float32),
        typicality=spread(found.anomalies.typicality, 0, np.float32),
        kind=spread(kind, 0, np.int8),
        sure=spread(sure, 0, np.float32),
        suggested=suggested,
        group=spread(found.duplicates.group, -1, np.int64),
        exact=spread(found.duplicates.exact, 0, np.bool_),
        conflict=spread(found.duplicates.conflict, 0, np.bool_),
        certain=found.certainly_wrong,
        most=found.most_wrong,
        cannot_tell=found.mislabels.cannot_tell,
    )


def _scores_back(served: Served, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Scores:
    n = len(served.run.samples)
    found = Scores(
        **{name: arrays[name] for name in _COLUMNS},
        certain=int(about["certain"]),
        most=int(about["most"]),
        cannot_tell=str(about["cannot_tell"]),
    )
    _want(all(getattr(found, name).shape == (n,) for name in _COLUMNS))
    _want(bool(np.isfinite([found.mislabel, found.anomaly, found.typicality]).all()))
    _want(found.kind.min() >= 0 and found.kind.max() <= len(KINDS) and bool(np.isfinite(found.sure).all()))
    _want(found.suggested.min() >= DROP and found.suggested.max() < len(served.run.samples.class_names))
    return found


def _map(served: Served) -> Map:
    assert served.training is not None
    from provnet.tools.map.compute import engine_for

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    engine = engine_for("auto")
    found = sample_map(
        served.run,
        served.training,
        served.test,
        index=served.index,
        limit=MAPPED if engine == "scikit-learn" and len(served.training) > MAPPED else None,
        engine=engine,
        threads=threads,
    )
    everything = np.concatenate([found.xy, found.test_xy])
    low = everything.min(0)
    span = max(float((everything.max(0) - low).max()), 1e-9)  # one scale for both: the aspect is kept
    predicted = np.zeros(0, np.int64) if found.misattributed is None else found.misattributed.predicted
    return Map(
        index=found.index,
        xy=((found.xy - low) / span).astype(np.float32),
        cluster=found.cluster,
        groups=_groups(found.clusters),
        test=found.test_rows,
        test_xy=((found.test_xy - low) / span).astype(np.float32),
        test_class=predicted,
        engine=found.embedding.engine,
        left_out=found.left_out,
        test_data=_fingerprint(served),
    )


def _fingerprint(served: Served) -> str:
    return "" if served.test is None else served.test.samples.fingerprint


def _groups(clusters: tuple[Cluster, ...]) -> np.ndarray:
    out = np.full((len(clusters), 3 + NEAREST), -1, dtype=np.int64)
    for row, one in enumerate(clusters):
        near = one.nearest[:NEAREST]
        out[row, :3] = one.label, one.number, len(one.members)
        out[row, 3 : 3 + len(near)] = near
    return out


_ARRAYS = ("index", "xy", "cluster", "groups", "test", "test_xy", "test_class")


def _map_back(served: Served, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Map:
    _want(about.get("laid_out_by") == LIKENESS)
    found = Map(
        **{name: arrays[name] for name in _ARRAYS},
        engine=str(about["engine"]),
        left_out=int(about["left_out"]),
        test_data=str(about["test_data"]),
    )
    if found.test_data != _fingerprint(served):
        raise ValueError("the test data are others than when it was made")
    n, tests = len(served.run.samples), 0 if served.test is None else len(served.test)
    _want(found.xy.shape == (len(found.index), 2) and found.cluster.shape == found.index.shape)
    _want(bool(np.isfinite(found.xy).all() and np.isfinite(found.test_xy).all()))
    _want(not len(found.index) or (found.index.min() >= 0 and found.index.max() < n))
    _want(not served.run.samples.withheld[found.index].any())
    _want(not len(found.test) or (found.test.min() >= 0 and found.test.max() < tests))
    return found


def _audit(served: Served) -> Audited:
    assert served.training is not None and served.test is not None
    found = audit(served.run, _some(served.training), _some(served.test))
    about = f"{found.nonmembers:,} samples of the test split"
    values = {**found.to_json(), "decides": found.decides}
    return Audited(values, Heldout(found.decides, found.heldout, found.copies, about))


def _audit_back(_: Served, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Audited:
    values = about["values"]
    _want(isinstance(values, dict) and all(np.isfinite(part).all() for part in arrays.values()))
    return Audited(values, Heldout(str(values["decides"]), arrays["others"], arrays["copies"], str(about["made_from"])))


def _some(data: ImageData) -> ImageData:
    import torch

    if len(data) <= AUDITED:
        return data
    return data.select(torch.randperm(len(data), generator=keyed_generator(0, 42))[:AUDITED].sort().values)


def _want(fits: bool | np.bool_) -> None:
    if not fits:
        raise ValueError("its arrays do not fit the run")


_ANSWERED = ("predicted", "first", "confidence", "supported", "beside")


def _needs_test(served: Served) -> str:
    return "" if served.test is not None else f"there are no test samples: {served.test_why}"


def _answers(served: Served) -> Answers:
    assert served.test is not None
    found = _asked(served.run, served.test)
    other = np.full(len(served.test), -1, dtype=np.int64)
    beside = served.beside
    if beside is not None and beside.test is not None:
        own = served.run.samples.class_names  # classes of both are told by their names
        number = np.array([own.index(name) if name in own else -1 for name in beside.run.samples.class_names])
        places = {row.tobytes(): i for i, row in enumerate(beside.test.samples.sha256)}
        where = np.array([places.get(row.tobytes(), -1) for row in served.test.samples.sha256], dtype=np.int64)
        other[where >= 0] = number[_asked(beside.run, beside.test)["predicted"].numpy()][where[where >= 0]]
    return Answers(
        predicted=found["predicted"].numpy(),
        first=found["index"][:, 0].numpy(),
        confidence=found["confidence"].numpy().astype(np.float32),
        supported=found["support"].numpy() >= served.run.config.threshold,
        beside=other,
        test_data=_fingerprint(served),
        beside_run=_weights_beside(served),
    )


def _asked(run: Run, test: ImageData) -> dict[str, Tensor]:
    with progress_bar("test samples", len(test), False) as update:
        return Attributor(run).each(
            inputs_of(run.config, test),
            lambda answered: {name: part.cpu() for name, part in vars(answered.best(1)).items()},
            update=lambda done: update(done, ""),
        )


def _weights_beside(served: Served) -> str:
    return "" if served.beside is None else served.beside.opened.get(WEIGHTS, "")


def _answers_back(served: Served, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Answers:
    found = Answers(
        **{name: arrays[name] for name in _ANSWERED},
        test_data=str(about["test_data"]),
        beside_run=str(about["beside_run"]),
    )
    if found.test_data != _fingerprint(served) or found.beside_run != _weights_beside(served):
        raise ValueError("the test data or the run beside it are others than when it was made")
    m, n = 0 if served.test is None else len(served.test), len(served.run.samples)
    _want(all(getattr(found, name).shape == (m,) for name in _ANSWERED))
    _want(not m or (found.first.min() >= 0 and found.first.max() < n))
    _want(not served.run.samples.withheld[found.first].any())
    _want(not m or max(found.predicted.max(), found.beside.max()) < len(served.run.samples.class_names))
    return found


def _features(served: Served) -> np.ndarray:
    assert served.training is not None
    with progress_bar("features", len(served.training), False) as update:
        found = index_features(served.run, served.training.images, report=update)
    return unit(found).astype(np.float16)


def unit(features: np.ndarray) -> np.ndarray:
    """Rows of length one, so that their products are cosines.

    >>> unit(np.array([[3.0, 4.0]])).tolist()
    [[0.6, 0.8]]
    """
    return np.asarray(features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12))


def _features_back(served: Served, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> np.ndarray:
    _want(about.get("laid_out_by") == LIKENESS)
    rows = 0 if served.training is None else len(served.training)
    _want(arrays["features"].shape[:1] == (rows,) and bool(np.isfinite(arrays["features"]).all()))
    return arrays["features"]


WORK: dict[StartName, Work] = {
    "answers": Work(
        _answers,
        lambda found: (
            {name: getattr(found, name) for name in _ANSWERED},
            {name: getattr(found, name) for name in ("test_data", "beside_run")},
        ),
        _answers_back,
        _needs_test,
    ),
    "features": Work(
        _features, lambda found: ({"features": found}, {"laid_out_by": LIKENESS}), _features_back, _needs_training
    ),
    "scores": Work(
        _score,
        lambda found: (
            {name: getattr(found, name) for name in _COLUMNS},
            {name: getattr(found, name) for name in ("certain", "most", "cannot_tell")},
        ),
        _scores_back,
        _needs_training,
    ),
    "map": Work(
        _map,
        lambda found: (
            {name: getattr(found, name) for name in _ARRAYS},
            {name: getattr(found, name) for name in ("engine", "left_out", "test_data")} | {"laid_out_by": LIKENESS},
        ),
        _map_back,
        _needs_training,
    ),
    "membership": Work(
        _audit,
        lambda found: (
            {"others": found.heldout.others, "copies": found.heldout.copies},
            {"values": found.values, "made_from": found.heldout.about},
        ),
        _audit_back,
        _needs_both,
    ),
}


LOG = logging.getLogger("provnet_app")
JobState = Literal["none", "running", "ready", "failed"]


class StoppedError(Exception):
    """The server is stopping: the work ends at its next step."""


@dataclass(frozen=True)
class Progress:
    """How far a job is, with the seconds that its present step will still take; `can` is false where `why` says why."""

    name: JobName
    state: JobState = "none"
    done: int = 0
    total: int = 0
    words: str = ""
    seconds: float = 0.0
    left: float | None = None
    error: str | None = None
    can: bool = True
    why: str = ""


@dataclass(eq=False)
class Jobs:
    """All jobs of a served run."""

    served: Served
    keeping: Keeping
    progress: dict[JobName, Progress] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: bool = False

    def __post_init__(self) -> None:
        for name, work in WORK.items():
            why = work.why_not(self.served)
            self.progress[name] = Progress(name, can=not why, why=why)
            kept = self.keeping.read_arrays(name)
            if kept is None:
                continue
            try:
                self.results[name] = work.restore(self.served, *kept)
            except (ProvnetError, KeyError, TypeError, ValueError, IndexError) as error:
                LOG.warning("%s was kept and is not used: %s", name, error)
                continue
            self.progress[name] = replace(self.progress[name], state="ready", can=True)
        why = "" if self.served.folder is not None else "the run lies in no folder: a new one has no place beside it"
        self.progress["again"] = Progress("again", can=not why, why=why)

    def result(self, name: str) -> Any | None:
        """What a job found, or None."""
        return self.results.get(name)

    def start(self, name: StartName) -> Progress:
        """Start a job unless it runs, is ready or cannot be done."""
        work = WORK[name]

        def do() -> Any:
            found = work.do(self.served)
            self.keeping.write_arrays(name, *work.store(found))
            return found

        return self.launch(name, do)

    def launch(self, name: JobName, do: Callable[[], Any]) -> Progress:
        """Do something in the background, unless it runs, is ready or cannot be done."""
        with self._lock:
            now = self.progress[name]
            if now.state in ("running", "ready") or not now.can:
                return now
            self.progress[name] = Progress(name, "running", words="waiting", can=now.can, why=now.why)
            threading.Thread(target=self._run, args=(name, do), name=f"provnet-{name}", daemon=True).start()
            return self.progress[name]

    def have(self, name: JobName, result: Any) -> None:
        """Take over what a job would find."""
        self.results[name] = result
        self._set(name, state="ready")

    def forget(self, name: JobName) -> None:
        """As if a job had never been done; one that runs goes on."""
        if self.progress[name].state != "running":
            self.results.pop(name, None)
            self._set(name, state="none", error=None)

    def stop(self) -> None:
        """Let work end at its next step."""
        self._stopping = True

    def _run(self, name: JobName, do: Callable[[], Any]) -> None:
        with self._turn:
            begin = time.monotonic()
            steps: dict[str, float] = {}  # when each began

            def tell(title: str, total: int, done: int, _: str) -> None:
                if self._stopping:
                    raise StoppedError
                now = time.monotonic()
                spent = now - steps.setdefault(title, now)
                left = round(spent / done * max(total - done, 0), 1) if done and spent else None
                self._set(
                    name, words=title, done=min(done, total), total=total, seconds=round(now - begin, 1), left=left
                )

            try:
                self._set(name, words="starting")
                with listening(tell):
                    found = do()
            except StoppedError:
                self._set(name, state="none", words="stopped")
            except ProvnetError as error:
                self._set(name, state="failed", error=str(error))
            except Exception as error:
                LOG.error("the job %s failed", name, exc_info=error)
                self._set(name, state="failed", error="the server failed at this; its log says why")
            else:
                self.results[name] = found
                self._set(name, state="ready", words="", seconds=round(time.monotonic() - begin, 1))

    def _set(self, name: JobName, **changes: Any) -> None:
        with self._lock:
            self.progress[name] = replace(self.progress[name], **changes)


class JobList(BaseModel):
    """All jobs."""

    jobs: list[Progress]


def job_routes(jobs: Jobs) -> APIRouter:
    """GET /jobs, POST /jobs/{name}."""
    routes = router("jobs")

    @routes.get("/jobs", responses=gives())
    async def every() -> JobList:
        """How far everything is."""
        return JobList(jobs=list(jobs.progress.values()))

    @routes.post("/jobs/{name}", status_code=202, responses=gives(404))
    async def start(name: StartName) -> Progress:
        """Start a job, unless it runs or is done."""
        return jobs.start(name)

    return routes
