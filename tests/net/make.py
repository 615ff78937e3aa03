"""Record what provnet does today: `python -m tests.net.make [FOLDER]` from the root of the project, about 30 seconds.

Only the command line and the public names are used, so that the record outlives any move of a module. Without FOLDER
the fixtures beside this file are replaced. Everything runs on the embedded digits, on one thread, with seed 0.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn import functional

import provnet
from provnet.cli import main

FIXTURES = Path(__file__).parent / "fixtures"
TINY = ["--limit", "120", "--epochs", "2", "--batch-size", "32"]
FAST = [*TINY, "--preset", "fast"]
RUNS: dict[str, list[str]] = {
    "single": ["embedded", *FAST, "--network", "single", "--backbone", "mlp"],
    "default": ["embedded", *TINY],
    "independent": ["embedded", *TINY, "--network", "class-independent", "--preset", "robust"],
    "conditional": ["embedded", *FAST, "--augment", "tiny"],
    "heads": ["embedded", *FAST, "--network", "class-conditional-heads", "--alpha", "0.5", "--no-conditional"],
    "keys": ["photos", *FAST, "--network", "class-independent", "--head", "exemplar"],
    "keys-trained": ["embedded", *FAST, "--head", "exemplar-trained", "--key-width", "16", "--keys", "int8"],
    "vae": ["embedded", *TINY, "--task", "generate", "--epochs", "1"],
    "subset": ["embedded", *FAST, "--index-subset", "40%", "--holdout", "0.2"],
    "shared": [
        "embedded",
        *FAST,
        "--backbone",
        "sharing-small",
        "--level",
        "2",
        "--no-conditional",
        "--apply",
        "decisions.csv",
    ],
}
COMMANDS: dict[str, list[str]] = {  # in this order: some read what an earlier one wrote
    "evaluate": ["evaluate", "conditional"],
    "evaluate-keys": ["evaluate", "keys", "photos"],
    "evaluate-vae": ["evaluate", "vae"],
    "evaluate-subset": ["evaluate", "subset"],
    "explain": ["explain", "conditional", "test:0..3", "-k", "3"],
    "explain-joint": ["explain", "heads", "test:0..3", "-k", "3", "--weights", "joint"],
    "explain-keys": ["explain", "keys", "photos/train/1/0.bmp", "photos/test/2/0.bmp"],
    "explain-subset": ["explain", "subset", "test:0..3", "-k", "3"],
    "debug": ["debug", "conditional", "--out", "debugged", "--review"],
    "debug-keys": ["debug", "keys", "--out", "debugged-keys", "--review"],
    "audit": ["audit", "conditional", "--limit", "60", "--out", "audited"],
    "member": ["member", "conditional", "test:0..2"],
    "member-keys": ["member", "keys", "photos/train/1/0.bmp", "photos/test/2/0.bmp", "--nonmembers", "photos"],
    "robustness": [
        "robustness",
        "conditional",
        "--limit",
        "30",
        "--conditions",
        "blur-1,occlusion-4",
        "--out",
        "robust",
    ],
    "map": ["map", "conditional", "--limit", "60", "--perplexity", "5", "--engine", "scikit-learn", "--out", "mapped"],
    "credit": ["credit", "conditional", "test:0..9", "--by", "by.csv", "--out", "credited"],
    "credit-keys": ["credit", "keys", "photos", "-k", "3", "--by", "by-photos.csv"],
    "attribute": ["attribute", "conditional", "photos/test/2", "--false-alarms", "0.1", "--out", "attributed"],
    "check": ["check", "conditional", "--limit", "40", "--no-card"],
    "add": ["add", "keys", "more", "--skip-known"],
    "withhold": ["withhold", "keys", "--id", "train/1/0.bmp"],
    "explain-withheld": ["explain", "keys", "photos/train/1/0.bmp", "more/train/1/20.bmp"],
    "erase": ["withhold", "keys", "--id", "train/2/3.bmp", "--erase"],
    "restore": ["withhold", "keys", "--id", "train/1/0.bmp", "--restore"],
    "verify": ["verify", "keys"],
    "info": ["info", "conditional"],
    "info-keys": ["info", "keys"],
    "generate": ["generate", "vae", "-n", "3", "--label", "7", "--out", "made"],
    "interpolate": ["interpolate", "vae", "test:0", "test:1", "--steps", "3", "--out", "way"],
    "reproduce": ["reproduce", "instance", "--scale", "tiny", "--out", "results"],
}
TABLES = ("debugged", "debugged-keys", "credited", "mapped", "robust", "attributed")  # folders with CSV files
SERVED = ("conditional", "vae")  # runs whose OpenAPI documents are kept
VERSIONS = {
    "torch": torch.__version__,
    "python": ".".join(map(str, sys.version_info[:3])),
    "provnet": provnet.__version__,
}


def normalise(value: Any, under: str = "") -> Any:
    """Take out what differs from run to run and from machine to machine, and nothing else: time, versions, folder."""
    if isinstance(value, dict):
        timed = under == "seconds"
        return {name: "<seconds>" if timed else normalise(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [normalise(part, under) for part in value]
    if under.endswith("seconds") and isinstance(value, int | float):
        return "<seconds>"
    if under in VERSIONS and value == VERSIONS[under]:
        return f"<{under}>"
    return value.replace(str(Path.cwd()), "<here>") if isinstance(value, str) else value


def normalise_text(text: str) -> str:
    """The same for Markdown, where versions stand in rows of tables."""
    here = str(Path.cwd())
    text = text.replace(here.replace("_", r"\_"), "<here>").replace(here, "<here>")  # Markdown escapes underscores
    for name, version in VERSIONS.items():
        text = re.sub(
            rf"^(\| (?:machine\.)?{name} \| ){re.escape(version)} \|$", rf"\1<{name}> |", text, flags=re.MULTILINE
        )
    return text


def probe() -> str:
    """A hash of one fixed training step: machines that agree on it round alike, and their losses can be compared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(32, 1, 28, 28, generator=generator)
        kernel = (torch.rand(32, 1, 3, 3, generator=generator) - 0.5).requires_grad_()
        second = (torch.rand(64, 32, 3, 3, generator=generator) / 10 - 0.05).requires_grad_()
        matrix = (torch.rand(10, 64 * 49, generator=generator) / 50 - 0.01).requires_grad_()
        optimiser = torch.optim.AdamW([kernel, second, matrix], lr=0.01)
        for _ in range(2):
            features = functional.max_pool2d(functional.gelu(functional.conv2d(images, kernel, padding=1)), 2)
            features = functional.max_pool2d(
                functional.batch_norm(functional.conv2d(features, second, padding=1), None, None, training=True), 2
            )
            loss = functional.cross_entropy(features.flatten(1) @ matrix.T, torch.arange(32) % 10)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        parts = [part.detach().numpy().tobytes() for part in (loss, kernel, second, matrix)]
    finally:
        torch.set_num_threads(before)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def write_data() -> None:
    """Two folders of pictures with equal ones among them, lists of contributors, and decisions."""
    for split, folder, first, count in (
        ("train", "photos/train", 0, 8),
        ("test", "photos/test", 0, 2),
        ("train", "more/train", 20, 2),
    ):
        data = provnet.open_data("embedded", split=split)
        for label in range(4):
            rows = (data.labels == label).nonzero().flatten()[first : first + count].tolist()
            for number, row in enumerate(rows):
                path = Path(folder, str(label), f"{number + first}.bmp")
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(data.images[row, 0].numpy()).save(path)
    for label in (0, 3):  # equal bytes within a class and under another label, and one known picture to add
        shutil.copyfile("photos/train/0/0.bmp", f"photos/train/{label}/9.bmp")
    shutil.copyfile("photos/train/1/1.bmp", "more/train/1/22.bmp")
    samples = provnet.open_data("embedded", limit=120).samples
    ids = samples.sample_ids
    contributors = [f"{name},P{number % 7}" for number, name in enumerate(ids)]
    Path("by.csv").write_text("\n".join(["sample_id,contributor", *contributors]) + "\n", "utf-8")
    photos = [f"{name},P{number % 3}" for number, name in enumerate(provnet.open_data("photos").samples.sample_ids)]
    Path("by-photos.csv").write_text("\n".join(["sample_id,contributor", *photos]) + "\n", "utf-8")
    rows = [
        f"{name},{bytes(samples.sha256[number]).hex()},{what}"
        for number, (name, what) in enumerate(zip(ids, ("drop,", "relabel,3", "keep,"), strict=False))
    ]
    Path("decisions.csv").write_text("\n".join(["sample_id,sha256,decision,new_label", *rows]) + "\n", "utf-8")


def call(*arguments: str) -> str:
    """What a command prints; a command that fails ends the recording."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    if code:
        raise SystemExit(f"provnet {' '.join(arguments)} ended with {code}:\n{err.getvalue()}")
    return out.getvalue()


def keep(path: Path, value: Any) -> None:
    """Write JSON or text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else lines(value) + "\n", "utf-8")


def lines(value: Any, margin: str = "") -> str:
    """JSON with a line for each part that is not small: short files, whose changes can be read."""
    short = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(short) <= 160 or not isinstance(value, dict | list):
        return short
    inner = margin + " "
    if isinstance(value, list):
        parts = [inner + lines(part, inner) for part in value]
    else:
        parts = [f"{inner}{json.dumps(name)}: {lines(value[name], inner)}" for name in sorted(value)]
    start, end = "[]" if isinstance(value, list) else "{}"
    return f"{start}\n" + ",\n".join(parts) + f"\n{margin}{end}"


def keep_folder(run: Path, to: Path) -> None:
    """Text files as they are; of others size, hash, and the norm of each tensor, which another machine can compare."""
    files: dict[str, Any] = {}
    texts = {p.name for p in run.iterdir() if p.suffix in (".json", ".md", ".jsonl", ".csv")}
    for path in sorted(run.iterdir()):
        if path.name in texts and path.suffix == ".json":
            found = normalise(json.loads(path.read_text("utf-8")))
            if path.name == "manifest.json":  # hashes of texts that name a version differ with it; the texts are kept
                for name in texts & set(found["files"]):
                    found["files"][name] = "<text>"
                found["sha256"] = "<of the above>"
            keep(to / path.name, found)
        elif path.name in texts:
            keep(to / path.name, normalise_text(path.read_text("utf-8")))
        elif path.suffix == ".safetensors":
            tensors = {
                name: [str(t.dtype), list(t.shape), float(t.double().norm())] for name, t in load_file(path).items()
            }
            files[path.name] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "tensors": tensors}
        else:
            files[path.name] = "<there>"
    keep(to / "files.json", files)


def openapi(run: str) -> dict[str, Any]:
    """The document that `provnet app` serves of a run."""
    command = [sys.executable, "-m", "provnet", "app", run, "--no-browser", "--port", "0", "--exposure", "full"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            address, _, token = server.stdout.readline().split(": ", 1)[1].strip().partition("/#t=")
            request = urllib.request.Request(
                f"{address}/api/v1/openapi.json", headers={"Authorization": f"Bearer {token}"}
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                found: dict[str, Any] = json.load(answer)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
    found["info"]["version"] = "<provnet>"
    return found


def others(document: Any, usual: Any, depth: int = 3) -> Any:
    """The parts of a document that the usual one does not have, or has otherwise."""
    if depth == 0 or not isinstance(document, dict) or not isinstance(usual, dict):
        return document
    parts = {name: (part, usual.get(name)) for name, part in document.items() if part != usual.get(name)}
    return {name: others(part, other, depth - 1) for name, (part, other) in parts.items()}


def options() -> dict[str, list[str]]:
    """Every option of every command, as its help names it, or its whole help, where it has one."""
    words = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
    names = re.findall(r"^│ ([a-z]+) ", call("--help").split("Commands")[1], re.MULTILINE)
    return {
        name: sorted(
            {
                word
                for line in call(name, "--help-all" if "--help-all" in call(name, "--help") else "--help").splitlines()
                if line.startswith("│")
                for word in words.findall(line[:40])
            }
        )
        for name in names
    }


def record(to: Path) -> None:
    """Write everything below a folder; the present folder is one to work in."""
    write_data()
    keep(to / "probe.txt", probe() + "\n")
    for name, arguments in RUNS.items():
        said = call("train", *arguments, "--out", name, "--json")
        keep(to / "json" / f"train-{name}.json", normalise(json.loads(said)))
        keep(to / "logs" / f"{name}.jsonl", Path(name, "log.jsonl").read_text("utf-8"))
        keep_folder(Path(name), to / "folders" / name)
    for name, arguments in COMMANDS.items():
        keep(to / "json" / f"{name}.json", normalise(json.loads(call(*arguments, "--json"))))
    keep_folder(Path("keys"), to / "folders" / "keys-changed")
    for folder in TABLES:
        for path in sorted(Path(folder).glob("*.csv")):
            keep(to / "tables" / folder / path.name, path.read_text("utf-8"))
    usual, making = (openapi(run) for run in SERVED)
    keep(to / "openapi" / f"{SERVED[0]}.json", usual)
    keep(to / "openapi" / f"{SERVED[1]}.json", others(making, usual))
    keep(to / "options.json", options())


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """An empty folder to work in, one thread, and no setting of the user's."""
    before, folder = Path.cwd(), tempfile.mkdtemp(prefix="net-")
    for name in [name for name in os.environ if name.startswith("PROVNET_")]:
        del os.environ[name]
    os.environ.update(XDG_CACHE_HOME=folder, COLUMNS="200", OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(folder)


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else FIXTURES
    if target == FIXTURES:
        shutil.rmtree(FIXTURES, ignore_errors=True)
    with apart():
        record(target)
