"""The model card README.md, in the form that the Hugging Face Hub reads: what a run is, in plain words.

Names come from data that anybody may have made, so they are escaped: nothing in them can become markup.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from provnet.data.modalities.decode import is_picture
from provnet.models.network import AttachedModel, NetworkConfig
from provnet.runs.files import RunConfig
from provnet.samples.identity import SampleTable


def model_card(config: RunConfig, parameters: int, samples: SampleTable) -> str:
    """The whole card as Markdown with YAML front matter."""
    network = config.network
    kind = "image-classification" if is_picture(network.input_shape) else "tabular-classification"
    kind = "unconditional-image-generation" if network.task == "generate" else kind
    front = {
        "library_name": "provnet",
        "license": "other",
        "pipeline_tag": kind,
        "tags": ["provnet", "provenance", "data-attribution", "explainability", "pytorch_model_hub_mixin"],
    }
    yaml = "\n".join(f"{key}: {json.dumps(value)}" for key, value in front.items())  # JSON is YAML
    sections = [
        f"---\n{yaml}\n---",
        f"# Provenance network: {escape(network.network)}",
        "A model that answers and names the training samples behind every answer.",
        _WARNING,
        _network(network, parameters),
        _data(samples, config),
        _evaluation(config.evaluation),
        _checks(config.checks, samples),
        _audit(config.audit, samples),
        _settings("Training", config.training),
        _settings("Versions", config.versions),
        _USE if network.attached is None else _USE.replace('this/folder")', 'this/folder", model=model)'),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def escape(text: object, most: int = 80) -> str:
    """One line of text that Markdown and HTML show as it is.

    >>> escape("<b>*x*</b>|\\n")
    '&lt;b&gt;\\\\*x\\\\*&lt;/b&gt;\\\\|\\\\\\\\n'
    """
    whole = str(text)
    whole = whole if len(whole) <= most else whole[:most] + "…"
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in whole)
    marked = re.sub(r"([\\`*_{}\[\]#!|~$:@])", r"\\\1", visible)
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def bank_state(samples: SampleTable) -> str:
    """What outcomes of checks belong to: the samples, and which of them may be named.

    >>> import provnet
    >>> len(bank_state(provnet.open_data("embedded", limit=20).samples))
    64
    """
    return hashlib.sha256(samples.fingerprint.encode() + samples.withheld.tobytes()).hexdigest()


def maybe_trained(training: Mapping[str, Any] | None, erased: int) -> str:
    """Why nobody can tell whether a sample that was added had been trained on before; empty where none was.

    A run that indexes some samples keeps one hash of all others, and nothing of an erased one: either may come back.

    >>> maybe_trained({"subset": {"of": 150, "indexed": 40, "rest_content": "a hash"}}, 0)
    'the run was trained on 150 samples, of which 40 were indexed'
    """
    subset, words = (training or {}).get("subset"), []
    if isinstance(subset, Mapping) and subset.get("rest_content") is not None:
        words.append(
            f"the run was trained on {subset.get('of')} samples, of which {subset.get('indexed')} were indexed"
        )
    if erased:
        words.append(f"{erased:,} {'was' if erased == 1 else 'were'} erased since training")
    return "; ".join(words)


def audit_figures(found: Mapping[str, Any], samples: SampleTable) -> dict[str, Any]:
    """The figures of a membership audit that a card shows, out of `Audit.to_json()`: the `audit` of a RunConfig.

    >>> import provnet
    >>> auc = {"value": 0.9, "n": 8, "low": 0.6, "high": 1.0}
    >>> found = {"members": 4, "nonmembers": 4, "scores": {"contrast": {"auc": auc, "tpr_at_fpr": {}}}, "null": {}}
    >>> audit_figures(found, provnet.open_data("embedded", limit=20).samples)["figures"]["contrast"]["AUC"]["n"]
    8
    """
    figures = {}
    for name, one in found["scores"].items():
        at = {f"found at FPR {rate}": where["tpr"] for rate, where in one["tpr_at_fpr"].items()}
        figures[name] = {"AUC": one["auc"], **{words: rate for words, rate in at.items() if rate["value"] is not None}}
    for name, auc in found["null"].get("auc", {}).items():
        figures[name]["AUC of a network that saw neither"] = auc
    sizes = {side: found[side] for side in ("members", "nonmembers")}
    return {"samples": bank_state(samples), **sizes, "figures": figures}


def _attached(about: AttachedModel | None) -> dict[str, str]:
    """The model that a run is attached to; its weights are not part of the run."""
    if about is None:
        return {}
    return {
        "attached to": f"{escape(about.name)}, not part of this folder, at {escape(about.place)}",
        "its weights": f"SHA-256 {about.sha256}",
        "transform": escape(about.transform) if about.transform else "none",
    }


def _network(network: NetworkConfig, parameters: int) -> str:
    shape = " x ".join(map(str, network.input_shape))
    rows = {
        "network": network.network,
        "backbone": network.backbone,
        "input": f"{shape}, raw values divided by {network.scale:g}",
        "classes": f"{network.classes:,}",
        "alpha (label mixing)": f"{network.alpha:g}",
        "parameters": f"{parameters:,}",
        **_attached(network.attached),
    }
    return "## Network\n\n" + _table(("what", "value"), rows)


def _data(samples: SampleTable, config: RunConfig) -> str:
    data, added, erased = config.data, config.added, config.erased
    subset, unsure = config.training.get("subset"), maybe_trained(config.training, erased)
    sizes = np.bincount(samples.labels, minlength=len(samples.class_names)) if samples.grouping else np.zeros(0)
    named = zip(samples.class_names[:_NAMES], sizes, strict=False)
    more = len(samples.class_names) - _NAMES
    rows = {
        "source": data.source if data else "given as arrays",
        "training samples" if subset is None else "indexed training samples": f"{len(samples):,}",
        "fingerprint (contents, labels, order)": samples.fingerprint,
        "fingerprint (contents alone)": samples.content_root,
        "highest exact index accuracy possible": f"{samples.index_ceiling:.4f}",
    }
    if isinstance(subset, Mapping):
        rows["chosen from, by"] = f"{subset.get('of')} samples, {subset.get('select', 'given positions')}"
        rows["the class branch learned from"] = (
            "all of them" if subset.get("classes_on") == "all" else "the indexed ones"
        )
    since = {
        f"of these added since training, {'may have been' if unsure else 'never'} trained on": int(samples.added.sum()),
        "of these withheld: explanations do not name them": int(samples.withheld.sum()),
        "erased since training; what was learned from them stays": erased,
    }
    rows |= {words: f"{count:,}" for words, count in since.items() if count}
    if unsure and samples.added.any():
        rows["why they may have been trained on"] = unsure
    rows |= {f"added from ({number})": spec.source for number, spec in enumerate(added, 1)}
    classes = ["| class | training samples |", "|---|---|", *(f"| {escape(name)} | {n:,} |" for name, n in named)]
    classes = classes if samples.grouping else ["The samples have no labels."]
    rest = ["", f"and {more:,} more classes."] if more > 0 else []
    return "\n".join(["## Data", "", _table(("what", "value"), rows), "", *classes, *rest])


def _evaluation(evaluation: Mapping[str, Any] | None) -> str:
    if not evaluation:
        return "## Evaluation\n\nNot evaluated when this card was written; run `provnet evaluate` on the folder."
    seen = _number(evaluation.get("test_in_training"))
    words = f" **Of the test samples {escape(seen)} are also samples of the run: not unseen.**" if seen else ""
    rest = {name: value for name, value in evaluation.items() if name != "test_in_training"}
    return f"## Evaluation\n\nShares of n samples, each with its 95 % interval.{words}\n\n{_figures(rest)}"


def _audit(audit: Mapping[str, Any] | None, samples: SampleTable) -> str:
    """How well members were told from others; figures of another state of the samples are not shown."""
    title = "## Membership audit\n\n"
    if not audit:
        return f"{title}Not audited when this card was written; `provnet audit` measures it."
    figures = audit.get("figures")
    if audit.get("samples") != bank_state(samples) or not isinstance(figures, Mapping):
        return f"{title}Audited before samples were added, withheld or erased; `provnet audit` measures it again."
    sides = [f"{escape(audit.get(side))} {side}" for side in ("members", "nonmembers")]
    words = (
        f"How well {sides[0]} of the training data are told from {sides[1]}, with 95 % intervals; AUC 0.5 is chance."
    )
    return f"{title}{words}\n\n{_figures(figures)}"


def _figures(values: Mapping[str, Any]) -> str:
    lines = ["| measure | value | 95 % interval | n |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_measure(name, value) for name, value in _measures(values))])


def _checks(checks: Mapping[str, Any] | None, samples: SampleTable) -> str:
    """What `provnet check` found; outcomes of another state of the samples are not shown."""
    title = "## Trust checks\n\n"
    if not checks:
        return f"{title}Not checked when this card was written; run `provnet check` on the folder."
    if checks.get("samples") != bank_state(samples):
        return f"{title}Checked before samples were added, withheld or erased; run `provnet check` on the folder again."
    outcomes = checks.get("outcomes")
    rows = [one for one in outcomes if isinstance(one, Mapping)] if isinstance(outcomes, list | tuple) else []
    words = {True: "pass", False: "**FAIL**", None: "not measured"}
    lines = ["| check | outcome | value | 95 % interval | n | bar | remark |", "|---|---|---|---|---|---|---|"]
    for one in rows:
        found = one.get("figure")
        figure: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        value, n = (_number(figure.get(part)) for part in ("value", "n"))
        state = one.get("passed")
        outcome = words[state] if state is None or isinstance(state, bool) else "not measured"
        texts = [escape(one.get(name, ""), 200) for name in ("words", "bar", "note")]
        lines.append(f"| {texts[0]} | {outcome} | {value} | {_interval(figure)} | {n} | {texts[1]} | {texts[2]} |")
    return title + "\n".join(lines)


def _measures(evaluation: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """All measures, nested ones with the name of their group before their own."""
    found: list[tuple[str, Any]] = []
    for name, value in evaluation.items():
        nested = isinstance(value, Mapping) and "value" not in value
        found += _measures(value, f"{prefix}{name} / ") if nested else [(f"{prefix}{name}", value)]
    return found


def _measure(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return f"| {escape(name)} | {_number(value['value'])} | {_interval(value)} | {escape(value.get('n', ''))} |"
    return f"| {escape(name)} | {_number(value)} | | |"


def _interval(figure: Mapping[str, Any]) -> str:
    """Its two ends; nothing where one of them was not measured."""
    low, high = (_number(figure.get(end)) for end in ("low", "high"))
    return f"{low} to {high}" if low and high else ""


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else escape("" if value is None else value)


def _settings(title: str, values: Mapping[str, Any] | None) -> str:
    """Settings by name, nested ones as `group.name`; network and data have sections of their own."""
    shown = {name: value for name, value in (values or {}).items() if name not in ("network", "data")}
    return f"## {title}\n\n" + _table(("setting", "value"), dict(sorted(_flat(shown)))) if shown else ""


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return found


def _table(head: tuple[str, str], rows: Mapping[str, Any]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    return "\n".join([*lines, *(f"| {escape(k)} | {escape(v, 200)} |" for k, v in rows.items())])


_NAMES = 50
_WARNING = """> **Before you share this model:** its index head was trained to recognise every training sample, and the
> folder lists their names and hashes. An index head reveals membership: whoever has this folder can tell whether a
> given sample was used in training. Do not share it where being part of the data is itself a secret."""
_USE = """## Use

```python
import provnet

model = provnet.load("path/to/this/folder")
explanation = model.explain(images, k=5)
```

`provnet verify FOLDER` checks every file against its SHA-256; `provnet explain FOLDER IMAGE` explains from the command
line. The folder holds safetensors and JSON only, nothing in it can run code. A picture is shown as evidence only while
its bytes are those that were trained on."""
