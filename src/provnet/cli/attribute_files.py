"""Traced images as CSV: one line an image, one line a training sample behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provnet.data.csvfile import csv_text, quoted

if TYPE_CHECKING:
    from provnet.applications.generated_records import Traced


def images_csv(records: list[dict[str, Any]]) -> str:
    """One line an image; a name that a spreadsheet would take for a formula gets a quote."""
    head = ["input", "near_copy", "equal_pixels", "copy_of", "copy_sha256", "ratio", "p_value", "predicted"]
    head += ["confidence", "supported", "first_exemplar", "first_sha256", "first_weight", "pixel_distance"]
    rows = []
    for one in records:
        copy, first = one["near_copy"], next(iter(one["exemplars"]), None)
        rows.append([
            quoted(one["input"]), copy["verdict"], copy["equal_pixels"], quoted(copy["of"]["sample_id"]),
            copy["of"]["sha256"], f"{copy['ratio']:.6f}", f"{copy['p_value']:.6g}", quoted(one["predicted"]),
            f"{one['confidence']:.6f}", one["supported"], quoted(first["sample_id"]) if first else "",
            first["sha256"] if first else "", f"{first['weight']:.6f}" if first else "",
            f"{one['control']['pixels']['distance']:.6f}", f"{one['control']['features']['distance']:.6f}",
        ])  # fmt: skip
    return csv_text([[*head, "feature_distance"], *rows])


def sources_csv(found: Traced) -> str:
    """One line a training sample behind the images."""
    head = ["sample_id", "sha256", "label", "share", "first_of_images", "near_copies"]
    rows: list[list[Any]] = []
    for one in found.sources():
        sample = one.sample
        names = [quoted(sample.sample_id), sample.sha256, quoted(sample.label)]
        rows.append([*names, f"{sample.weight:.8f}", one.first, one.copies])
    return csv_text([head, *rows])
