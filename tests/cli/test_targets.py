"""Where commands write: never over their inputs, the run, or what somebody else wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from provnet.base.errors import UsageError
from provnet.cli.targets import PAGE, SHEET, check_outputs
from tests.cases import cases

from .conftest import Call


@pytest.fixture
def own(run: Path, tmp_path: Path) -> Path:
    """A copy of the run that the command may destroy."""
    return Path(shutil.copytree(run, tmp_path / "own"))


def held(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("option", ["--png", "--html"])
def test_an_input_is_not_overwritten(option: str, run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    mine = Path(shutil.copy(data / "test" / "digit-0" / "0.png", tmp_path / "mine.png"))
    (tmp_path / "link.png").symlink_to(mine)
    before = mine.read_bytes()
    for target in (mine, tmp_path / "link.png"):
        found = call("explain", run, mine, option, target)
        assert found.code == 2
        assert "is an input of this command" in found.last_line
    assert mine.read_bytes() == before


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "samples.safetensors", "history.safetensors", "manifest.json"]
)
@pytest.mark.parametrize("option", ["--png", "--html"])
def test_the_run_is_not_overwritten(option: str, name: str, own: Path, call: Call) -> None:
    before = held(own)
    found = call("explain", own, "test:0", option, own / name)
    assert found.code == 2
    assert "is a file of the run" in found.last_line
    assert held(own) == before


def test_a_name_of_the_run_is_not_taken_where_it_is_free(own: Path, call: Call) -> None:
    (own / "README.md").unlink()
    with pytest.raises(UsageError, match="a file of the run"):
        check_outputs({own / "README.md": PAGE}, [own])


def test_a_training_picture_is_not_overwritten(run: Path, data: Path, call: Call) -> None:
    picture = data / "train" / "digit-1" / "2.png"
    before = picture.read_bytes()
    found = call("explain", run, "test:0", "--png", picture)
    assert found.code == 2
    assert "not written by this command" in found.last_line
    assert picture.read_bytes() == before


def test_files_of_others_are_not_overwritten(run: Path, tmp_path: Path, call: Call) -> None:
    for name, option in (("notes.txt", "--html"), ("page.html", "--html"), ("sheet.png", "--png")):
        place = tmp_path / name
        place.write_text("<!doctype html>\nmine\n")
        found = call("explain", run, "test:0", option, place)
        assert found.code == 2, name
        assert "not written by this command; choose another --html or --png" in found.last_line
        assert place.read_text() == "<!doctype html>\nmine\n"


def test_own_output_is_written_again(run: Path, tmp_path: Path, call: Call) -> None:
    page, sheet = tmp_path / "page.html", tmp_path / "sheet.png"
    page.touch()  # an empty file holds nothing that could be lost
    for _ in range(3):
        assert call("explain", run, "test:0", "--html", page, "--png", sheet).code == 0
    assert page.read_bytes().startswith(PAGE)
    assert sheet.read_bytes().startswith(SHEET)


@pytest.mark.parametrize("name", ["samples.csv", "corrected.csv", "report.html"])
def test_debug_leaves_files_of_others_alone(name: str, run: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "out"
    assert call("debug", run, "--out", out).code == 0
    assert call("debug", run, "--out", out).code == 0
    for path in out.iterdir():
        path.unlink()
    (out / name).write_text("mine,too\n1,2\n")
    found = call("debug", run, "--out", out)
    assert found.code == 2
    assert "not written by this command; choose another --out, or move it away" in found.last_line
    assert held(out) == {name: b"mine,too\n1,2\n"}


def test_debug_does_not_overwrite_the_manifest_that_was_trained_on(
    run: Path, data: Path, tmp_path: Path, call: Call
) -> None:
    out = tmp_path / "out"
    assert call("debug", run, "--out", out).code == 0
    manifest = out / "corrected.csv"
    assert call("train", manifest, "--root", data, "--out", tmp_path / "again", "--epochs", 1).code == 0
    found = call("debug", tmp_path / "again", "--out", out)
    assert found.code == 2
    assert "corrected.csv is an input" in found.last_line


def test_figures_are_known_by_what_they_tell(tmp_path: Path) -> None:
    place = tmp_path / "audit.json"
    place.write_text('{"about": {"model_sha256": "00"}}')
    check_outputs({place: b"{}"}, [])
    for text in ('{"about": "me"}', "[1]", "{", "{}"):
        place.write_text(text)
        with pytest.raises(UsageError, match="not written by this command"):
            check_outputs({place: b"{}"}, [])


@pytest.mark.parametrize("command", ["map", "audit", "robustness"])
def test_long_work_is_not_begun_where_its_page_cannot_be_written(
    command: str, run: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.html").write_text("mine")
    monkeypatch.setattr("provnet.runs.run.read_run", None)  # nothing is read
    found = call(command, run, "--out", tmp_path)
    assert found.code == 2
    assert "report.html is there already" in found.last_line
    assert held(tmp_path) == {"report.html": b"mine"}


@cases("command", ["audit", "check", "debug", "demo", "generate", "map", "robustness", "train"])
def test_an_empty_name_is_not_the_folder_that_one_is_in(
    command: str, run: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"demo": [], "train": ["embedded"]}.get(command, [run])
    found = call(command, *given, "--out", "")
    assert found.code == 2
    assert "the name of the folder is empty" in found.last_line
    assert list(tmp_path.iterdir()) == []
