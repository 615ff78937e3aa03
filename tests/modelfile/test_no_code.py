"""Nothing in the library can run code from a file: a walk over the source, and a load under watch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import provnet
from provnet.runs.run import write_run
from tests.cases import cases

from .made import NETWORKS, make_run

SOURCE = Path(provnet.__file__).parent.parent
MODULES = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "importlib", "imp", "runpy",
    "code", "pickletools",
}  # fmt: skip
BUILTINS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {("torch", "load"), ("torch", "save"), ("yaml", "load"), ("os", "system"), ("os", "popen")}
ALLOWED = {
    ("provnet/__init__.py", "importlib"),  # the public names are loaded when they are first used
    ("provnet/base/processes.py", "importlib.util"),  # packages are looked up, not imported
    ("provnet/cli/app.py", "importlib"),  # and the commands of a literal table
    ("provnet/models/pretrained.py", "torch.load"),  # weights alone, of the one file whose SHA-256 stands there
}


def findings(source: str) -> list[str]:
    """What a piece of source must not use."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found += [module] if module.split(".")[0] in MODULES else []
            found += [f"{module}.{a.name}" for a in node.names if (module, a.name) in ATTRIBUTES]
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            found.append(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [f"{node.value.id}.{node.attr}"] if (node.value.id, node.attr) in ATTRIBUTES else []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load"):
            safe = any(k.arg == "allow_pickle" and ast.unparse(k.value) == "False" for k in node.keywords)
            found += [] if safe else ["numpy.load without allow_pickle=False"]
    return found


def test_the_source_uses_nothing_that_runs_code_from_files() -> None:
    files = [path for room in ("provnet", "provnet_app", "provnet_paper") for path in (SOURCE / room).rglob("*.py")]
    assert len(files) > 100
    found = {(str(path.relative_to(SOURCE)), use) for path in files for use in findings(path.read_text("utf-8"))}
    assert found == ALLOWED


@cases(
    "source",
    [
        "import pickle", "import pickle as p", "from pickle import loads", "import joblib", "import marshal",
        "import importlib.util", "from importlib import import_module", "torch.load(x)", "torch.save(x, y)",
        "from torch import load", "eval('1')", "f = exec", "__import__('os')", "np.load(x)",
        "np.load(x, allow_pickle=True)", "os.system('x')",
    ],
)  # fmt: skip
def test_the_walk_finds_what_it_looks_for(source: str) -> None:
    assert len(findings(source)) == 1


def test_the_one_file_that_torch_reads_has_a_known_hash_and_gives_weights_alone() -> None:
    source = (SOURCE / "provnet/models/pretrained.py").read_text("utf-8")
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and ast.unparse(n.func) == "torch.load"]
    assert [ast.unparse(call) for call in calls] == [
        "torch.load(io.BytesIO(raw), map_location='cpu', weights_only=True)"
    ]
    before = source[: source.index("torch.load(")]
    assert before.rindex("if found != PUBLISHED:") > before.rindex("raw = read_file(")


def test_the_walk_lets_ordinary_code_pass() -> None:
    assert findings("model.eval()\nnp.load(x, allow_pickle=False)\nre.compile('x')\nsafetensors.torch.save_file") == []


WATCHED = """
import os, sys
import torch
from pathlib import Path
from provnet.runs.run import read_run
from provnet.runs.verify import verify
FORBIDDEN = {"pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn",
             "socket.connect", "socket.getaddrinfo", "os.remove", "os.rename", "os.mkdir", "os.rmdir"}
def watch(event, args):
    if event in FORBIDDEN:
        print("FORBIDDEN", event, args, flush=True)
        os._exit(1)
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        print("WRITES", args, flush=True)
        os._exit(1)
warm = read_run(sys.argv[1])  # torch imports parts of itself at first use
sys.addaudithook(watch)
for folder in sys.argv[1:-1]:
    run = read_run(folder)
    run.network(torch.zeros(2, 4))
    assert verify(folder).ok
print("done", flush=True)
if sys.argv[-1] != "-":
    EXTRA
os._exit(0)
"""


def watched(folders: list[Path], extra: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    code = WATCHED.replace("EXTRA", extra or "pass")
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, folders), "x" if extra else "-"],
        check=False, capture_output=True, text=True, env=environment, timeout=300,
    )  # fmt: skip


def test_loading_opens_no_network_runs_nothing_and_writes_nothing(tmp_path: Path) -> None:
    for network in NETWORKS:
        write_run(make_run(network), tmp_path / network)
    done = watched([tmp_path / network for network in NETWORKS])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "done\n"


def test_the_watch_sees_what_it_looks_for(tmp_path: Path) -> None:
    write_run(make_run(), tmp_path / "run")
    done = watched([tmp_path / "run"], "import pickle; pickle.loads(b'cos\\nsystem\\n.')")
    assert done.returncode == 1
    assert "FORBIDDEN pickle.find_class" in done.stdout
