"""A fitted classifier stands wherever a run does: every public function of a run takes it, and refuses what is none."""

from __future__ import annotations

import importlib
import inspect
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet import ImageData, ProvenanceClassifier
from provnet.answers.attributor import Attributor, scores
from provnet.answers.evaluation import trained_rows
from provnet.answers.queries import Query, read_queries
from provnet.api.hub import ProvenanceModel
from provnet.base.errors import UsageError
from provnet.influence.of_run import about_influence, prepare_influence, with_unit
from provnet.runs import bank
from provnet.runs.run import Run, write_run
from provnet.samples.decisions import Decision
from provnet.tools.copies.compute import attribute_generated
from provnet.tools.credit.compute import credit
from provnet.tools.debug.compute import debug
from provnet.tools.debug.fix import fix
from provnet.tools.generate.compute import (
    explain_latents,
    fit_generator,
    generate,
    index_hits,
    interpolate,
    is_generator,
    latent_index_accuracy,
    latent_means,
    measure_generator,
    rebuild_pictures,
    rebuilding_error,
    rebuilt_queries,
    sources,
)
from provnet.tools.map.compute import index_features, others_named, sample_map
from provnet.tools.membership.compute import audit, member_scores
from provnet.tools.membership.member import compared, memberships
from provnet.tools.membership.shadows import scores_of_runs
from provnet.tools.robustness.compute import is_isolated, measure
from provnet.tools.subsets import index_subset, view_of
from provnet.tools.trust.compute import (
    LeftOut,
    abstention,
    check,
    class_calibration,
    dependence,
    index_calibration,
    support_of,
)
from provnet.tools.without import group_of, train_without, without
from tests.cases import cases
from tests.estimator.made import small

FACES = {"cli", "__main__"}  # read their runs themselves
DRAWN = {"page", "files", "demo"}  # of a tool: what a command writes of the run that it has read
INNER = {  # called by those below alone, with the run itself
    "runs.inputs.checked_inputs",
    "runs.inputs.content_hashes",
    "runs.inputs.pixel_hashes",
    "tools.membership.compute.untrained_with_keys",
    "tools.debug.signals.sample_signals",
    "answers.evaluation.evaluate_on",
    "tools.subsets.subset_record",
    "answers.evaluation.own_classes",
    "tools.generate.compute.class_of",
    "runs.inputs.to_input",
    "api.estimator.classes_of",
    "api.estimator.feature_names_of",
    "api.estimator.recipe_of",
    "runs.bank.newcomers",
    "training.session.tidy",
    "influence.of_run.influence",
    "influence.of_run.subject_of",
    "influence.of_run.shared_keys",
    "tools.without.recipe_of",
}


ADAPTERS = ("huggingface", "lightning")  # of libraries that these tests do without


def functions_of_a_run() -> dict[str, Callable[..., Any]]:
    """All public functions with a parameter whose type names Run, by module and name."""
    found = {}
    root = Path(provnet.__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] in FACES or parts[-1] == "__init__" or (parts[0] == "tools" and parts[-1] in DRAWN):
            continue
        if parts[0] == "attached" and parts[-1] in ADAPTERS:
            continue
        module = importlib.import_module(".".join(("provnet", *parts)))
        for name, value in vars(module).items():
            made_here = inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_"
            if made_here and any(re.search(r"\bRun\b", str(p)) for p in inspect.signature(value).parameters.values()):
                found[".".join((*parts, name))] = value
    return found


def asked_for(model: Any, data: ImageData) -> list[str]:
    """The inputs that a file of arrays holds, by name and hash."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "some.npy")
        np.save(place, data.images[:3].numpy())
        return [query.sha256 for query in read_queries(model, [str(place)], None, strict=True)]


def mirrored(data: ImageData) -> np.ndarray:
    """Pictures that were made of those of training."""
    return np.ascontiguousarray(data.images[:3].flip(3).numpy())


def keys_of(run: Run) -> list[list[float]]:
    """The influence keys of a run."""
    assert run.influence is not None
    return run.influence["keys"].float().tolist()


OF_A_RUN = {name: call for name, call in functions_of_a_run().items() if name not in INNER}
BOTH: dict[str, Callable[[Any, ImageData], Any]] = {
    "tools.trust.compute.abstention": lambda m, d: abstention(m, d.images, {"dark": d.images // 9}).to_json(),
    "answers.attributor.scores": lambda m, d: scores(m, d.images[:3]).tolist(),
    "tools.trust.compute.support_of": lambda m, d: support_of(m, d.images).tolist(),
    "tools.membership.compute.audit": lambda m, d: audit(m, d, provnet.open_data(d.images // 2, d.labels)).to_json(),
    "tools.trust.compute.class_calibration": lambda m, d: class_calibration(m, d.images, d.samples.labels).to_json(),
    "tools.trust.compute.index_calibration": lambda m, d: index_calibration(m, d.images, np.arange(len(d))).to_json(),
    "tools.credit.compute.credit": lambda m, d: credit(m, d.images, ["ann", "bob"] * 20).to_json(),
    "tools.debug.compute.debug": lambda m, d: debug(m, d).mislabels.score.tolist(),
    "tools.trust.compute.dependence": lambda m, d: dependence(m, d.images[:4], d.images, np.arange(len(d))).to_json(),
    "tools.map.compute.index_features": lambda m, d: index_features(m, d.images).tolist(),
    "tools.copies.compute.attribute_generated": lambda m, d: attribute_generated(d.images, m, data=d).ratio.tolist(),
    "tools.map.compute.sample_map": lambda m, d: sample_map(m, d, groups=2, engine="scikit-learn").xy.tolist(),
    "tools.map.compute.others_named": lambda m, d: others_named(m, d, np.arange(len(d))).tolist(),
    "tools.membership.member.memberships": lambda m, d: [one.to_json() for one in memberships(m, d.images)],
    "tools.membership.member.compared": lambda m, d: [
        one.to_json()
        for one in compared(m, [d], mirrored(d), [*mirrored(d)[:, 0]], memberships(m, torch.from_numpy(mirrored(d))))
    ],
    "tools.debug.fix.fix": lambda m, d: fix(m, decisions=[Decision("train/3", d.samples.hex(3), "drop")]).to_json(),
    "tools.membership.compute.member_scores": lambda m, d: member_scores(m, d.images).match.tolist(),
    "tools.robustness.compute.measure": lambda m, d: measure(m, d, conditions=["blur-1"]).to_json(),
    "tools.robustness.compute.is_isolated": lambda m, d: is_isolated(m),
    "tools.subsets.index_subset": lambda m, d: index_subset(d, "50%", "boundary", run=m).rows.tolist(),
    "tools.subsets.view_of": lambda m, d: view_of(m, d).margins.tolist(),
    "tools.trust.compute.check": lambda m, d: check(m, d, d, left_out=LeftOut(m, d.images, d.images // 9)).to_json(),
    "runs.bank.withhold": lambda m, d: bank.withhold(m, ["train/3"]).samples.withheld.tolist(),
    "runs.bank.restore": lambda m, d: bank.restore(bank.withhold(m, ["train/3"]), ["train/3"]).samples.fingerprint,
    "runs.bank.erase": lambda m, d: bank.erase(m, ["train/3"]).samples.sample_ids,
    "runs.bank.add": lambda m, d: (
        bank.add(m, provnet.open_data(d.images // 2, np.array(d.class_names)[d.labels])).samples.sample_ids
    ),
    "influence.of_run.prepare_influence": lambda m, d: keys_of(prepare_influence(m, d)),
    "influence.of_run.about_influence": lambda m, d: about_influence(m),
    "influence.of_run.with_unit": lambda m, d: about_influence(with_unit(m, (1.0, 0.5, 2.0), "a test")),
    "tools.without.group_of": lambda m, d: group_of(m, ["train/3"], []).tolist(),
    "tools.without.without": lambda m, d: without(m, d.images[:3], np.arange(2)).to_json(),
    "tools.without.train_without": lambda m, d: train_without(
        m, d, d.images[:3], without(m, d.images[:3], np.arange(2)), np.arange(2), 2
    ).to_json(),
    "tools.membership.shadows.scores_of_runs": lambda m, d: scores_of_runs(m, [m], d).target.tolist(),
    "answers.evaluation.evaluate": lambda m, d: provnet.evaluate(m, d).to_json(),
    "answers.queries.read_queries": asked_for,
    "answers.evaluation.trained_rows": lambda m, d: trained_rows(m, d).tolist(),
    "answers.attributor.Attributor": lambda m, d: Attributor(m)(d.images, k=2).to_records(),
    "answers.attributor.explain": lambda m, d: provnet.explain(m, d).to_records(),
    "api.hub.ProvenanceModel.from_run": lambda m, d: ProvenanceModel.from_run(m).samples.fingerprint,
}
MADE: dict[str, Callable[[Any, ImageData], Any]] = {
    "tools.generate.compute.interpolate": lambda m, d: interpolate(m, d.images[0], d.images[1]).images.tolist(),
    "tools.generate.compute.measure_generator": lambda m, d: measure_generator(m, d, made=20),
    "tools.generate.compute.rebuilding_error": rebuilding_error,
    "tools.generate.compute.latent_index_accuracy": lambda m, d: latent_index_accuracy(m, d, np.arange(len(d))),
    "tools.generate.compute.index_hits": lambda m, d: index_hits(m, d, np.arange(len(d)))["index_at_mean"].tolist(),
    "tools.generate.compute.latent_means": lambda m, d: latent_means(m, d.images.numpy()).tolist(),
    "tools.generate.compute.generate": lambda m, d: generate(m, 2).images.tolist(),
    "tools.generate.compute.is_generator": lambda m, d: is_generator(m),
    "tools.generate.compute.rebuilt_queries": lambda m, d: [
        one.error for one in rebuilt_queries(m, [Query("a", d.images[0].numpy(), "")])
    ],
    "tools.generate.compute.rebuild_pictures": lambda m, d: rebuild_pictures(m, d.images).tolist(),
    "tools.generate.compute.sources": lambda m, d: sources(m, generate(m, 2)).index.tolist(),
    "tools.generate.compute.explain_latents": lambda m, d: explain_latents(
        m, generate(m, 2).latents, None
    ).index.tolist(),
}


@pytest.fixture(scope="module")
def data() -> ImageData:
    return provnet.open_data("embedded", limit=40)


@pytest.fixture(scope="module")
def model(data: ImageData) -> ProvenanceClassifier:
    found = small(head="exemplar", epochs=2).fit(data)
    found.run_ = prepare_influence(found, data)
    return found


@pytest.fixture(scope="module")
def painter(data: ImageData, tmp_path_factory: pytest.TempPathFactory) -> ProvenanceClassifier:
    folder = tmp_path_factory.mktemp("painter") / "run"
    return provnet.load(write_run(fit_generator(data, "modern", changes={"epochs": 1}), folder))


def test_every_function_of_a_run_is_listed() -> None:
    known = {*BOTH, *MADE} - {"api.hub.ProvenanceModel.from_run", "answers.attributor.Attributor"}
    assert set(OF_A_RUN) == known | {"runs.inputs.run_of", "runs.run.write_run"}


@cases("call", BOTH.values(), ids=BOTH)
def test_a_classifier_is_as_good_as_its_run(
    call: Callable[[Any, ImageData], Any], data: ImageData, model: ProvenanceClassifier
) -> None:
    assert call(model, data) == call(model.run_, data)


@cases("call", MADE.values(), ids=MADE)
def test_a_loaded_generator_is_as_good_as_its_run(
    call: Callable[[Any, ImageData], Any], data: ImageData, painter: ProvenanceClassifier
) -> None:
    assert call(painter, data) == call(painter.run_, data)


@cases("given", ["runs/digits", Path("runs/digits"), 3, ProvenanceClassifier()])
@cases("name", [name for name in OF_A_RUN if name not in ("runs.inputs.run_of", "runs.run.write_run")])
def test_what_is_no_run_is_refused_as_such(name: str, given: Any) -> None:
    parameters = inspect.signature(OF_A_RUN[name]).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    words = r"expected a run or a fitted classifier, got \w+; (fit it first|provnet\.load\(folder\) reads one)"
    with pytest.raises(UsageError, match=words):
        OF_A_RUN[name](**{**dict.fromkeys(required), "run": given})


def test_a_classifier_is_written_by_itself(model: ProvenanceClassifier, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected a run, got ProvenanceClassifier; .* its save\(folder\)"):
        write_run(model, tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_an_audit_takes_a_classifier_that_saw_neither(data: ImageData, model: ProvenanceClassifier) -> None:
    others = provnet.open_data(data.images // 2, data.labels)
    found = [audit(model, data, others, null=null, distort=False).to_json() for null in (model, model.run_)]
    assert found[0] == found[1]
