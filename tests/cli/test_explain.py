"""`provnet explain`: inputs, outputs, and evidence that is shown only while it is what it was."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from provnet.runs.log import verify_chain
from tests.cases import cases

from .conftest import Call

EXEMPLAR = {"sample_id", "sha256", "index", "label", "weight", "path", "duplicates", "duplicate_count"}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_json_is_exactly_as_promised(run: Path, data: Path, call: Call) -> None:
    picture = data / "train" / "digit-1" / "2.png"
    found = call("explain", run, picture, "test:0", "-k", 3, "--json")
    assert found.code == 0
    assert [record["input"] for record in found.json] == [str(picture), "test:0"]
    for record in found.json:
        assert list(record) == ["input", "predicted", "confidence", "supported", "exemplars"]
        assert isinstance(record["supported"], bool)
        assert 0 <= record["confidence"] <= 1
        assert len(record["exemplars"]) == 3
        for exemplar in record["exemplars"]:
            assert set(exemplar) == EXEMPLAR
            assert exemplar["sha256"] == sha256(data / exemplar["path"])
            assert exemplar["sample_id"] == exemplar["path"]
            assert exemplar["label"] == Path(exemplar["path"]).parent.name
    first = found.json[0]["exemplars"][0]
    assert first["sha256"] == sha256(picture)  # a training sample names itself


def test_text_for_people(run: Path, call: Call) -> None:
    found = call("explain", run, "test:0..2")
    assert found.code == 0
    assert found.out.count("confidence") == 3
    assert "sha256 " in found.out
    assert "test:2" in found.out


def test_page_and_sheet_are_written(run: Path, tmp_path: Path, call: Call) -> None:
    page, sheet = tmp_path / "sub" / "page.html", tmp_path / "sheet.png"
    found = call("explain", run, "test:0", "test:1", "--html", page, "--png", sheet)
    assert found.code == 0
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert text.count("<article") == 2
    assert text.count("data:image/png") == 2 * 6
    with Image.open(sheet) as image:
        assert image.format == "PNG"
        assert image.width > 500


def test_the_log_chains_every_decision(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    log = tmp_path / "decisions.jsonl"
    picture = data / "test" / "digit-0" / "0.png"
    for _ in range(2):
        assert call("explain", run, "test:0", picture, "--log", log).code == 0
    assert verify_chain(log) == 4
    record = json.loads(log.read_text().splitlines()[1])
    assert record["input"] == str(picture)
    assert record["input_sha256"] == sha256(picture)
    manifest = json.loads((run / "manifest.json").read_text())
    assert record["model_sha256"] == manifest["files"]["model.safetensors"]["sha256"]
    assert (record["weights"], record["withheld"]) == ("plain", 0)
    assert set(record["exemplars"][0]) == EXEMPLAR
    log.write_text(log.read_text().replace('"supported":true', '"supported":false').replace("test:0", "test:1"))
    found = call("explain", run, "test:0", "--log", log, "--html", tmp_path / "page.html")
    assert found.code == 6
    assert not (tmp_path / "page.html").exists()


@cases(
    ("given", "code", "words"),
    [
        ("test:8", 2, "the test split has 8 samples"),
        ("test:x", 2, "give test:12 or test:0..9"),
        ("test", 2, "give test:12 or test:0..9"),
        ("test:3..1", 2, "the lower position first"),
        ("nowhere.png", 3, "nowhere.png: cannot be read"),
        ("empty.png", 3, "the file is empty"),
        ("wide.png", 3, "the picture is 20 x 30, the run takes 28 x 28"),
        ("objects.npy", 7, "can run code"),
        ("pickle.npy", 7, "can run code"),
        ("cut.npy", 3, "cannot be read as an array"),
        ("cut.npz", 3, "cannot be read as an array"),
        ("shape.npy", 3, "an array of shape (5, 9, 9)"),
        ("nan.npy", 3, "contains NaN"),
        ("two.npz", 3, "needs the array `images`"),
        ("text.npy", 3, "text not supported"),
    ],
)
def test_bad_inputs_are_refused_by_name(
    given: str, code: int, words: str, run: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.png").write_bytes(b"")
    Image.new("L", (30, 20)).save("wide.png")
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    Path("pickle.npy").write_bytes(b"\x80\x04K\x01.")
    np.save("shape.npy", np.zeros((5, 9, 9), np.uint8))
    np.save("nan.npy", np.full((28, 28), np.nan))
    np.save("text.npy", np.array([["a"]]))
    np.savez("two.npz", a=np.zeros(2), b=np.zeros(2))
    Path("cut.npy").write_bytes(Path("shape.npy").read_bytes()[:-9])
    Path("cut.npz").write_bytes(Path("two.npz").read_bytes()[:-30])
    found = call("explain", run, given, "--html", "page.html")
    assert found.code == code
    assert words in found.last_line
    assert not Path("page.html").exists()


def test_arrays_of_one_and_of_many(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    pictures = sorted((data / "train" / "digit-3").iterdir())[:2]
    pixels = [np.asarray(Image.open(path)) for path in pictures]
    np.save(tmp_path / "one.npy", pixels[0])
    np.savez(tmp_path / "many.npz", images=np.stack(pixels)[..., None], labels=np.zeros(2))
    found = call("explain", run, tmp_path / "one.npy", tmp_path / "many.npz", "--json")
    names = [record["input"].removeprefix(f"{tmp_path}/") for record in found.json]
    assert names == ["one.npy", "many.npz:0", "many.npz:1"]
    first = [record["exemplars"][0]["sha256"] for record in found.json]
    assert first == [sha256(pictures[0]), sha256(pictures[0]), sha256(pictures[1])]


def test_values_of_another_range(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    pixels = np.asarray(Image.open(data / "train" / "digit-0" / "0.png"))
    np.save(tmp_path / "unit.npy", pixels / 255.0)
    found = call("explain", run, tmp_path / "unit.npy", "--json")
    assert found.code == 0
    assert "the values lie in 0..1, this run was trained on 0..255" in found.err
    assert call("explain", run, tmp_path / "unit.npy", "--strict").code == 3


def test_a_run_on_floats_notices_bytes(tmp_path: Path, call: Call) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "unit.npz", images=rng.random((8, 6, 6)), labels=np.arange(8) % 2)
    assert call("train", tmp_path / "unit.npz", "--out", tmp_path / "run", "--epochs", 1).code == 0
    np.save(tmp_path / "bytes.npy", rng.integers(0, 256, (6, 6)))
    found = call("explain", tmp_path / "run", tmp_path / "bytes.npy", "--html", tmp_path / "page.html")
    assert found.code == 0
    assert "trained on about" in found.err
    assert "not shown" not in found.err  # floats are drawn, too
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count(
        "data:image/png"
    ) == 5  # the input and the four samples of a class
    assert call("explain", tmp_path / "run", tmp_path / "bytes.npy", "--strict").code == 3
    assert call("explain", tmp_path / "run", "picture.png").code == 3


def test_files_of_bytes_are_warned_of_where_a_run_was_trained_on_floats(tmp_path: Path, call: Call) -> None:
    """Never divided by a guess: data of -1..1 may look like data of 0..1."""
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "unit.npz", images=pixels / 255.0, labels=np.arange(8) % 2)
    assert call("train", tmp_path / "unit.npz", "--out", tmp_path / "run", "--epochs", 1).code == 0
    Image.fromarray(pixels[3]).save(tmp_path / "same.png")
    found = call("explain", tmp_path / "run", tmp_path / "same.png", "--json")
    assert found.code == 0
    assert "trained on about" in found.err
    assert call("explain", tmp_path / "run", tmp_path / "same.png", "--strict").code == 3


def test_vectors_take_arrays_only(tmp_path: Path, call: Call) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((12, 5))
    np.savez(tmp_path / "v.npz", images=values, labels=np.arange(12) % 3)
    assert call("train", tmp_path / "v.npz", "--out", tmp_path / "run", "--epochs", 1).code == 0
    np.save(tmp_path / "one.npy", values[0])
    assert len(call("explain", tmp_path / "run", tmp_path / "one.npy", "--json").json) == 1
    found = call("explain", tmp_path / "run", "picture.png")
    assert found.code == 2
    assert "no pictures" in found.last_line


def test_pictures_are_resized_where_the_run_says_so(data: Path, tmp_path: Path, call: Call) -> None:
    arguments = ["--epochs", 1, "--size", "14", "--mode", "rgb"]
    assert call("train", data, "--out", tmp_path / "run", *arguments).code == 0
    Image.new("RGBA", (60, 40), (255, 0, 0, 0)).save(tmp_path / "big.png")
    found = call("explain", tmp_path / "run", tmp_path / "big.png", "--png", tmp_path / "sheet.png")
    assert found.code == 0
    assert (tmp_path / "sheet.png").exists()


def test_more_exemplars_than_samples(run: Path, call: Call) -> None:
    found = call("explain", run, "test:0", "-k", 100, "--json")
    assert found.code == 0
    assert len(found.json[0]["exemplars"]) == 6  # the network looks within the predicted class
    assert "-k 100: this network looks within the predicted class" in found.err
    assert "all of them are named (6 at the fewest)" in found.err
    assert "training samples" not in found.err  # not all 24 of them
    assert call("explain", run, "test:0", "-k", 0).code == 2


def test_an_unsupported_input_is_told(run: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(shutil.copytree(run, tmp_path / "run"))
    from dataclasses import replace

    from provnet.runs.run import read_run, write_run

    loaded = read_run(own)
    support = {**loaded.config.support, "threshold": 1e6}
    write_run(replace(loaded, config=replace(loaded.config, support=support)), own)
    found = call("explain", own, "test:0", "--html", tmp_path / "page.html")
    assert "No supporting sample" in found.out
    assert "No supporting training sample" in (tmp_path / "page.html").read_text()
    assert call("explain", own, "test:0", "--json").json[0]["supported"] is False


def test_renamed_training_data_still_name_the_right_samples(
    run: Path, data: Path, own_data: Path, tmp_path: Path, call: Call
) -> None:
    wanted = data / "train" / "digit-2" / "0.png"
    for path in sorted((own_data / "train").rglob("*.png")):
        path.rename(path.with_suffix(".old"))
    for path in sorted((own_data / "train").rglob("*.old")):
        path.rename(path.with_name(f"{5 - int(path.stem)}.png"))  # another order, and names that mean other samples
    page = tmp_path / "page.html"
    found = call("explain", run, wanted, "-k", 6, "--data", own_data, "--html", page, "--strict", "--json")
    assert found.code == 0
    assert found.json[0]["exemplars"][0]["sha256"] == sha256(wanted)
    pictures = page.read_text().split('src="')[1:]
    assert pictures[0].split('"')[0] == pictures[1].split('"')[0]  # the query and its first exemplar
    assert len({picture.split('"')[0] for picture in pictures}) == 6


def test_a_changed_picture_is_never_shown(run: Path, own_data: Path, tmp_path: Path, call: Call) -> None:
    query = own_data / "train" / "digit-2" / "0.png"
    before = tmp_path / "query.png"
    shutil.copy(query, before)
    Image.fromarray(255 - np.asarray(Image.open(query))).save(query)
    page = tmp_path / "page.html"
    found = call("explain", run, before, "-k", 1, "--data", own_data, "--html", page)
    assert found.code == 0
    assert "changed since training" in found.err
    assert "changed since training" in page.read_text()
    assert page.read_text().count("data:image/png") == 1  # the query alone
    page.unlink()
    found = call("explain", run, before, "-k", 1, "--data", own_data, "--html", page, "--strict")
    assert found.code == 6
    assert not page.exists()


def test_without_training_data_ids_and_hashes_remain(own_data: Path, tmp_path: Path, call: Call) -> None:
    assert call("train", own_data, "--out", tmp_path / "run", "--epochs", 1).code == 0
    picture = tmp_path / "query.png"
    shutil.copy(own_data / "train" / "digit-2" / "0.png", picture)
    shutil.rmtree(own_data)
    page = tmp_path / "page.html"
    found = call("explain", tmp_path / "run", picture, "--html", page, "--json")
    assert found.code == 0
    assert len(found.json[0]["exemplars"]) == 5
    assert "picture not available" in page.read_text()
    assert call("explain", tmp_path / "run", picture, "--strict").code == 6
    assert call("explain", tmp_path / "run", picture, "--data", own_data).code == 2


def test_hostile_names_stay_text(own_data: Path, tmp_path: Path, call: Call) -> None:
    evil = "\x1b[2J<script>[red]"
    for split in ("train", "test"):
        (own_data / split / "digit-0").rename(own_data / split / evil)
    assert call("train", own_data, "--out", tmp_path / "run", "--epochs", 1).code == 0
    page = tmp_path / "page.html"
    picture = next((own_data / "train" / evil).iterdir())
    found = call("explain", tmp_path / "run", picture, "--html", page)
    assert found.code == 0
    assert "\x1b" not in found.out + found.err
    assert "<script>" not in page.read_text()
    assert "<script>[red]" in found.out


def test_page_and_sheet_need_two_names(run: Path, tmp_path: Path, call: Call) -> None:
    found = call("explain", run, "test:0", "--html", tmp_path / "x", "--png", tmp_path / "x")
    assert found.code == 2
    assert not (tmp_path / "x").exists()


def test_a_folder_is_refused_with_what_to_give_instead(run: Path, data: Path, call: Call) -> None:
    folder = data / "test" / "digit-0"
    for given in (folder, f"{folder}/"):
        found = call("explain", run, given)
        assert found.code == 2
        assert f"{folder} is a folder; give picture files (those in it as {folder}/*.png)" in found.last_line
        assert "test:0..9, .npy or .npz files" in found.last_line
    assert call("explain", run, *sorted(folder.glob("*.png"))).code == 0
