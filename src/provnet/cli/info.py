"""`provnet info`: what a run is."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provnet.base.errors import ProvnetError
from provnet.base.files import brief, read_file
from provnet.base.options import Info
from provnet.base.words import path_word
from provnet.cli.bank import bank_counts, count_words
from provnet.cli.evaluate import NAME, figures_table, generator_table
from provnet.cli.output import emit_json, facts, note, say, show
from provnet.cli.rundata import backbone_for, open_run, with_state
from provnet.data.apply import spec_name
from provnet.models.network import NetworkConfig, parameter_count
from provnet.runs.files import CUSTOM, check_figures
from provnet.runs.run import RunConfig, read_samples
from provnet.runs.safe import LIMIT, read_json
from provnet.samples.identity import SampleTable


def info(asked: Info) -> None:
    """Show what a run is: network, data, settings, versions, and its evaluation if there is one."""
    (config, samples), state = with_state(asked.run, read_samples)
    record = {
        "run": str(asked.run),
        "parameters": _parameters(asked.run, config),
        "model_sha256": state["model.safetensors"],
        **bank_counts(config, samples),
        "classes": list(samples.class_names),
        "fingerprint": samples.fingerprint,
        "content_fingerprint": samples.content_root,
        "index_ceiling": samples.index_ceiling,
        **config.to_json(),
        "evaluation": read_evaluation(asked.run, state) or config.evaluation,
    }
    if asked.json:
        emit_json(record)
        return
    show(facts(_rows(config, samples, record)))
    if record["evaluation"]:
        show(figures_table(record["evaluation"]))
        if isinstance(record["evaluation"].get("generation"), dict):
            show(generator_table(record["evaluation"]["generation"]))
    else:
        say(f"not evaluated yet: provnet evaluate {path_word(asked.run)}")


def read_evaluation(folder: Path, state: Mapping[str, str]) -> dict[str, Any] | None:
    """The figures kept beside a run, if they belong to this state of it."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        found = read_json(read_file(path, LIMIT), str(path))
        check_figures(found, "evaluation")
    except ProvnetError as error:
        note(f"the evaluation is left out: {error}", "warning")
        return None
    about = found.get("about")
    kept = [about.get(name) for name in ("model_sha256", "samples_sha256")] if isinstance(about, dict) else []
    if kept != [state["model.safetensors"], state["samples.safetensors"]]:
        note(f"{path} belongs to other weights or samples and is left out; evaluate again", "warning")
        return None
    return found


def _parameters(folder: Path, config: RunConfig) -> int | None:
    """Count them; a backbone that was given as an object is needed for that, and may not be here."""
    missing = config.network.backbone == CUSTOM and backbone_for(folder) is None
    return None if missing else parameter_count(open_run(folder).network)


def _backbone_words(network: NetworkConfig) -> str:
    """The backbone, or the model that the run is attached to."""
    about = network.attached
    return f"backbone {network.backbone}" if about is None else f"attached to {about.name} at {about.place}"


def _rows(config: RunConfig, samples: SampleTable, record: dict[str, Any]) -> list[tuple[str, str]]:
    network = config.network
    names = ", ".join(map(brief, samples.class_names[:12])) + (", ..." if len(samples.class_names) > 12 else "")
    count = record["parameters"]
    shape = " x ".join(str(side) for side in network.input_shape)
    rows = [
        ("run", record["run"]),
        ("network", f"{network.network}, {_backbone_words(network)}, input {shape}"),
        ("parameters", "unknown (the backbone was given as an object)" if count is None else f"{count:,}"),
        ("samples", count_words(bank_counts(config, samples))),
        ("classes", f"{len(samples.class_names):,}: {names}"),
        ("fingerprint", samples.fingerprint),
        ("model sha256", record["model_sha256"]),
        ("data", spec_name(config.data)),
        ("test", spec_name(config.test)),
    ]
    rows += [("added", spec_name(spec)) for spec in config.added]
    if samples.index_ceiling < 1:
        rows.append(("index ceiling", f"{samples.index_ceiling:.4f} (exact duplicates)"))
    if network.alpha:
        rows.append(("alpha", f"{network.alpha:g}"))
    settings = config.training.get("training", config.training)
    rows.append(("settings", _words(settings)))
    if config.training.get("subset"):
        rows.append(("subset", _words(config.training["subset"])))
    if config.training.get("machine"):
        rows.append(("machine", _words(config.training["machine"])))
    if config.support:
        rows.append(("support", _words(config.support)))
    rows.append(("versions", _words(config.versions)))
    about = (record["evaluation"] or {}).get("about")
    if isinstance(about, dict) and isinstance(about.get("test"), dict):
        rows.append(("evaluated on", str(about["test"].get("data"))))
    return rows


def _words(values: Any) -> str:
    if not hasattr(values, "items"):
        return str(values)
    plain = {name: value if isinstance(value, str) else json_module.dumps(value) for name, value in values.items()}
    return ", ".join(f"{name} {value}" for name, value in plain.items())
