"""Decisions on samples: read, applied by id and hash, remembered, and open again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.base.errors import DataError, IntegrityError, UsageError
from provnet.base.options import DECISIONS
from provnet.data import apply as applying
from provnet.data.apply import apply_decisions, apply_recorded, decision_words
from provnet.data.dataset import DataSpec, ImageData
from provnet.data.select import holdout
from provnet.samples.decisions import Decision, decisions_csv, read_decisions
from tests.cases import cases


def data() -> ImageData:
    return provnet.open_data("embedded", limit=60)


def decided(of: ImageData, row: int, kind: str, label: str = "") -> Decision:
    return Decision(of.samples.sample_ids[row], of.samples.hex(row), kind, label, row + 2)


def again(changed: ImageData) -> ImageData:
    """Opened from what a run keeps."""
    return provnet.open_data(DataSpec.from_json(json.loads(json.dumps(changed.spec.to_json()))))


def test_keep_relabel_and_drop() -> None:
    old = data()
    new = apply_decisions(old, [decided(old, 3, "relabel", "7"), decided(old, 5, "drop"), decided(old, 8, "keep")])
    assert len(new) == 59
    assert old.samples.sample_ids[5] not in new.samples.sample_ids
    assert new.samples.labels[3] == 7
    others = [i for i in range(60) if i not in (3, 5)]
    places = [new.samples.id_places[old.samples.sample_ids[i]] for i in others]
    assert (new.samples.labels[places] == old.samples.labels[others]).all()
    assert (new.images[places] == old.images[others]).all()
    assert decision_words(new.spec.options[DECISIONS]) == "1 relabelled, 1 dropped by decision"


def test_changed_data_open_again_as_they_were() -> None:
    old = data()
    new = apply_decisions(old, [decided(old, 3, "relabel", "7"), decided(old, 5, "drop")])
    assert again(new).samples.fingerprint == new.samples.fingerprint != old.samples.fingerprint
    for side in holdout(new, 0.25):
        assert again(side).samples.fingerprint == side.samples.fingerprint


def test_decisions_change_no_samples_side() -> None:
    old = data()
    before, unseen = (set(side.samples.sample_ids) for side in holdout(old, 0.25))
    rows = [old.samples.id_places[name] for name in sorted(before)[:12]]
    wrong = [str((int(old.samples.labels[row]) + 1) % 10) for row in rows]
    changes = [decided(old, row, "relabel", label) for row, label in zip(rows[1:], wrong[1:], strict=True)]
    new = apply_decisions(old, [decided(old, rows[0], "drop"), *changes])
    assert set(holdout(new, 0.25)[1].samples.sample_ids) != unseen  # split after the decisions it would be another
    train, test = holdout(new, 0.25, given=old)
    assert set(test.samples.sample_ids) == unseen
    assert set(train.samples.sample_ids) == before - {old.samples.sample_ids[rows[0]]}
    for side in (train, test):
        assert again(side).samples.fingerprint == side.samples.fingerprint


def test_no_change_leaves_no_trace() -> None:
    old = data()
    assert apply_decisions(old, [decided(old, 3, "keep")]) is old
    assert apply_recorded(old) is old
    assert "holdout_first" not in holdout(old, 0.25, given=old)[0].spec.options


def test_a_row_for_other_content_is_refused_by_name() -> None:
    old = data()
    other = replace_hash(decided(old, 3, "drop"), "ab" * 32)
    with pytest.raises(DataError, match=f"row 5: {old.samples.sample_ids[3]} has other content"):
        apply_decisions(old, [other])


def replace_hash(one: Decision, digest: str) -> Decision:
    return one._replace(sha256=digest)


def test_unknown_samples_and_classes_are_refused() -> None:
    old = data()
    with pytest.raises(DataError, match='row 9: the data have no sample "nobody"'):
        apply_decisions(old, [Decision("nobody", "ab" * 32, "keep", row=9)])
    with pytest.raises(DataError, match=r'no class "seven"; the data have 0, 1, .*, 7, \.\.\. \(10 in all\)'):
        apply_decisions(old, [decided(old, 1, "relabel", "seven")])
    with pytest.raises(UsageError, match="drop every sample"):
        apply_decisions(old, [decided(old, row, "drop") for row in range(60)])


def test_decisions_come_before_a_holdout_and_once() -> None:
    old = data()
    train, _ = holdout(old, 0.25)
    with pytest.raises(UsageError, match="before holding out samples"):
        apply_decisions(train, [])
    new = apply_decisions(old, [decided(old, 5, "drop")])
    with pytest.raises(UsageError, match="once"):
        apply_decisions(new, [])


def test_too_many_changes_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    old = data()
    monkeypatch.setattr(applying, "MOST", 2)
    with pytest.raises(UsageError, match="at most 2"):
        apply_decisions(old, [decided(old, row, "drop") for row in range(3)])


def test_what_a_run_remembers_is_short() -> None:
    entries = ["0123456789abcdef"] * applying.MOST
    text = json.dumps(applying._pieces(entries))
    assert len(text) < 700_000
    assert max(map(len, json.loads(text))) <= 65_536
    assert len(applying._entries({"drop": applying._pieces(entries), "relabel": {}})) == applying.MOST
    old = data()
    many = [(row % 60, "7" if row % 3 else None) for row in range(applying.MOST)]
    record = applying._short_form(old.samples, many)
    assert len(json.dumps(record)) < 700_000
    assert sorted({entry for entry, _, _ in applying._entries(record)}) == sorted(
        applying._entry(old.samples, row) for row in range(60)
    )


def equal_pictures(folder: Path) -> ImageData:
    np.savez(folder / "a.npz", images=np.zeros((1500, 1, 4, 4), np.uint8), labels=np.arange(1500) % 2)
    return provnet.open_data(folder / "a.npz")


def alike(of: ImageData) -> tuple[int, int]:
    """Two samples of equal content whose ids begin with the same four digits."""
    seen: dict[str, int] = {}
    for row in range(len(of)):
        digits = applying._entry(of.samples, row)[:16]
        if digits in seen:
            return seen[digits], row
        seen[digits] = row
    raise AssertionError("none are alike")


def test_of_equal_pictures_the_same_one_is_dropped_again(tmp_path: Path) -> None:
    old = equal_pictures(tmp_path)
    for row in alike(old):
        new = apply_decisions(old, [decided(old, row, "drop")])
        assert again(new).samples.sample_ids == new.samples.sample_ids
        assert set(old.samples.sample_ids) - set(new.samples.sample_ids) == {old.samples.sample_ids[row]}


def test_short_records_are_read_but_never_guessed(tmp_path: Path) -> None:
    old = equal_pictures(tmp_path)
    first, second = alike(old)
    single = next(row for row in range(1500) if row not in (first, second))

    def remembering(row: int) -> ImageData:
        record = {"drop": [], "relabel": {"1": [applying._entry(old.samples, row)[:16]]}}
        return replace(old, spec=replace(old.spec, options={DECISIONS: record}))

    changed = apply_recorded(remembering(single)).samples.labels
    assert changed[single] == 1
    with pytest.raises(IntegrityError, match=f"cannot tell.*{old.samples.sample_ids[first]}.*from"):
        apply_recorded(remembering(second))


def test_a_copy_does_not_stand_in_for_a_dropped_file_that_is_gone(tmp_path: Path) -> None:
    for name, value in (("x/3", 10), ("x/copy", 10), ("y/1", 90)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((4, 4), value, np.uint8)).save(tmp_path / f"{name}.png")
    old = provnet.open_data(tmp_path)
    new = apply_decisions(old, [decided(old, old.samples.id_places["x/copy.png"], "drop")])
    (tmp_path / "x/copy.png").unlink()
    assert again(new).samples.sample_ids == ("x/3.png", "y/1.png")


def test_a_record_of_a_later_form_is_refused() -> None:
    old = data()
    with pytest.raises(IntegrityError, match="newer provnet"):
        apply_recorded(replace(old, spec=replace(old.spec, options={DECISIONS: {"form": 3}})))


@cases(
    "record",
    [
        None,
        3,
        [],
        {"drop": []},
        {"drop": 3, "relabel": {}},
        {"drop": [], "relabel": [1]},
        {"drop": ["0123"], "relabel": {}},
        {"form": 2},
        {"form": 2, "single": {"drop": ["-" * 16], "relabel": {}}},
        {"form": 2, "single": {"drop": ["A" * 14 + "=="], "relabel": {}}, "equal": {"drop": [], "relabel": {}}},
    ],
)
def test_a_damaged_record_is_refused(record: object) -> None:
    old = data()
    spec = replace(old.spec, options={**old.spec.options, DECISIONS: record})
    if record is None:
        return
    with pytest.raises(IntegrityError, match="damaged"):
        apply_recorded(replace(old, spec=spec))


def test_renamed_files_keep_their_corrected_labels(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)
    for i, pixels in enumerate(pictures):
        path = tmp_path / "old" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    old = provnet.open_data(tmp_path / "old")
    row = old.samples.sample_ids.index("a/2.png")
    new = apply_decisions(old, [decided(old, row, "relabel", "b")])
    (tmp_path / "old" / "a" / "2.png").rename(tmp_path / "old" / "a" / "renamed.png")
    moved = again(new)
    assert moved.class_names[moved.samples.labels[moved.samples.id_places["a/renamed.png"]]] == "b"
    (tmp_path / "old" / "a" / "renamed.png").unlink()
    assert len(again(new)) == 5  # gone: nothing to relabel, and comparing says that it is missing


def test_a_file_of_decisions_comes_back() -> None:
    rows = [
        Decision("a,b", "ab" * 32, "relabel", 'the "x"'),
        Decision("ü", "cd" * 32, "drop"),
        Decision("c", "ef" * 32, "keep"),
    ]
    content = decisions_csv(rows, {"mislabel": [0.5, 0.25, 1]})
    assert content.splitlines()[0] == b"sample_id,sha256,decision,new_label,mislabel"


def test_reading_what_was_written(tmp_path: Path) -> None:
    rows = [Decision("a,b", "ab" * 32, "relabel", 'the "x"', 2), Decision("ü", "cd" * 32, "drop", row=3)]
    (tmp_path / "d.csv").write_bytes(b"\xef\xbb\xbf" + decisions_csv(rows, {"note": ["x", "y"]}))
    assert read_decisions(tmp_path / "d.csv") == rows


HEAD, GOOD = "sample_id,sha256,decision,new_label\n", "ab" * 32


@cases(
    ("text", "words"),
    [
        ("", "row 1: the header must name"),
        ("sample_id,decision\n", "row 1: the header must name"),
        (HEAD.replace(",", ";"), "save the file with commas between the cells"),
        (HEAD + f"a,{GOOD},maybe,\n", 'row 2: unknown decision "maybe"'),
        (HEAD + f"a,{GOOD},kep,\n", 'Did you mean "keep"'),
        (HEAD + f"a,{GOOD},relabel,\n", "row 2: relabel needs a new_label"),
        (HEAD + f"a,{GOOD},drop,7\n", 'row 2: drop takes no new_label, got "7"'),
        (HEAD + "a,12,drop,\n", "row 2: sha256 must have 64"),
        (HEAD + f"a,{GOOD},drop\n", "row 2: 3 cells, the header has 4"),
        (HEAD + f"a,{GOOD},drop,\n\na,{GOOD},keep,\n", "row 4: a stands in row 2 already"),
        ('sample_id,"sha', "cannot be parsed"),
    ],
)
def test_bad_files_are_refused_by_row(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(DataError, match=r"d\.csv") as caught:
        read_decisions(tmp_path / "d.csv")
    assert words in str(caught.value)


def test_not_utf_8_and_missing(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        read_decisions(tmp_path / "d.csv")
    with pytest.raises(DataError, match="cannot be read"):
        read_decisions(tmp_path / "none.csv")


def test_a_manifest_with_its_pictures_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "lists").mkdir()
    for i in range(4):
        Image.fromarray(np.full((4, 4), i * 20, np.uint8)).save(tmp_path / "pictures" / f"{i}.png")
    (tmp_path / "lists" / "m.csv").write_text("path,label\n" + "".join(f"{i}.png,{i % 2}\n" for i in range(4)))
    found = provnet.open_data(tmp_path / "lists" / "m.csv", root=tmp_path / "pictures")
    assert len(again(found)) == len(found) == 4
    with pytest.raises(DataError, match="is not a file in"):
        provnet.open_data(tmp_path / "lists" / "m.csv")
    (tmp_path / "lists" / "m.csv").write_text("path,label\n../lists/m.csv,1\n")
    with pytest.raises(DataError, match="leads out"):
        provnet.open_data(tmp_path / "lists" / "m.csv", root=tmp_path / "pictures")
