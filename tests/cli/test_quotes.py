"""Tables that a spreadsheet does not compute, and that are read back as they were."""

from __future__ import annotations

import csv
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provnet import open_data
from provnet.base.files import shown
from provnet.base.options import Train
from provnet.base.words import path_word
from provnet.cli.train import resume_command
from provnet.runs.run import read_run
from provnet.samples.csvfile import quoted, unquoted
from provnet.samples.decisions import Decision, decisions_csv, read_decisions
from tests.cases import cases
from tests.data.made import pictures, write_folder

from .conftest import Call

NAMES = ("=cmd|' /C calc'!A0", "@SUM(1)", "+1/-a.png", "-1", "\tx", "\x1b[2J", "'=1", "''-1", "'tis", "plain")


@given(st.text(alphabet="'=+-@\t\r\n\x1bab", max_size=6))
def test_quotes_are_taken_away_again(text: str) -> None:
    assert unquoted(quoted(text)) == text
    assert quoted(text)[:1] not in set("=+-@\t\r\n\x1b")


def test_decisions_come_back_as_they_were(tmp_path: Path) -> None:
    given = [Decision(name, "ab" * 32, "relabel", name, row) for row, name in enumerate(NAMES, 2)]
    place = tmp_path / "decisions.csv"
    place.write_bytes(decisions_csv(given, {"label": list(NAMES)}))
    assert read_decisions(place) == given
    with place.open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\x1b"))]


@given(
    st.lists(
        st.text(
            st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("\r\n,\"'"), min_size=1
        ),
        unique=True,
    )
)
def test_any_text_comes_back_from_decisions(names: list[str]) -> None:
    given = [Decision(name, "ab" * 32, "relabel", name, row) for row, name in enumerate(names, 2)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "decisions.csv")
        place.write_bytes(decisions_csv(given, {"label": names}))
        assert read_decisions(place) == given


def test_a_manifest_gives_labels_ids_and_sources_without_quotes(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, pictures("1.png", "'=2.png"))
    (folder / "list.csv").write_text("path,label,id,source\n1.png,'=a,'@b,'+c\n'=2.png,=a,,\n")
    data = open_data(folder / "list.csv")
    assert data.class_names == ("=a",)
    assert data.samples.sample_ids == ("@b", "'=2.png")
    assert data.samples.sources == ("+c", None)
    assert data.samples.paths == ("1.png", "'=2.png")  # a path is the name of a file: never changed


def test_the_corrected_manifest_trains_on_the_same_samples(tmp_path: Path, call: Call, data: Path) -> None:
    own = tmp_path / "data"
    for number, name in enumerate(("=cmd|x", "@SUM", "+1")):
        shutil.copytree(data / "train" / f"digit-{number}", own / name)
    assert call("train", own, "--out", tmp_path / "run", "--epochs", 1).code == 0
    assert call("debug", tmp_path / "run", "--out", tmp_path / "out", "--threshold", 1).code == 0
    before, after = open_data(own), open_data(tmp_path / "out" / "corrected.csv", root=own)
    assert after.samples.sample_ids == before.samples.sample_ids
    assert after.samples.paths == before.samples.paths
    assert after.class_names == before.class_names


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such file names")
@pytest.mark.usefixtures("telling")
def test_files_whose_names_are_no_utf8_are_corrected_by_decisions(tmp_path: Path, call: Call, data: Path) -> None:
    own = tmp_path / "data"
    for number in range(3):
        shutil.copytree(data / "train" / f"digit-{number}", own / str(number))
    (own / "0" / "0.png").rename(own / "0" / os.fsdecode(b"caf\xe9.png"))
    assert call("train", own, "--out", tmp_path / "run", "--epochs", 1).code == 0
    found = call("debug", tmp_path / "run", "--out", tmp_path / "out", "--threshold", "0.000001")
    command = next(line for line in found.out.splitlines() if line.startswith("next: provnet train"))
    assert call(*shlex.split(command)[2:-1], tmp_path / "again", "--epochs", 1).code == 0
    before, after = read_run(tmp_path / "run").samples, read_run(tmp_path / "again").samples
    wanted = {one.sample_id: one.new_label for one in read_decisions(tmp_path / "out" / "corrected.csv")}
    assert wanted
    for i, name in enumerate(before.sample_ids):
        j = after.id_places[name]
        assert after.hex(j) == before.hex(i)
        label = before.class_names[int(before.labels[i])]
        assert after.class_names[int(after.labels[j])] == wanted.get(name, label)


@cases("name", ["a b", "a\nb", "it's\n\\x", "-\t\x1b[2J1", "\u202e\U000e0001é", os.fsdecode(b"caf\xe9")])
def test_a_suggested_command_can_be_pasted(name: str) -> None:
    """What is shown on one line is taken for the same name by the shell."""
    again = resume_command(Train(data="d", out=Path(name)))
    for words in (path_word(name), again.split(" --out ", 1)[1].removesuffix(" --resume")):
        assert shown(words) == words
        said = subprocess.run(["bash", "-c", f"printf %s {words}"], capture_output=True, check=True).stdout
        assert os.fsdecode(said).removeprefix("./") == name
