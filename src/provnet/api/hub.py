"""A run as a module that follows the Hugging Face Hub's mixin: save_pretrained, from_pretrained, push_to_hub.

The mixin's own reader parses config.json and falls back to pickles; here both ends are provnet's: the same folder, the
same checks of every hash, nothing executable. Files that the Hub adds (.gitattributes) are not touched and not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from huggingface_hub import PyTorchModelHubMixin, snapshot_download
from torch import Tensor, nn

from provnet.base.errors import UsageError
from provnet.models.network import ProvenanceNet, ProvenanceOutput
from provnet.runs.inputs import Fitted, run_of
from provnet.runs.run import FILES, Run, RunConfig, read_run, write_run
from provnet.samples.identity import SampleTable


class ProvenanceModel(
    nn.Module,
    PyTorchModelHubMixin,
    library_name="provnet",
    tags=["provenance", "data-attribution", "explainability"],
):
    """A provenance network with its sample table, as a model of the Hugging Face Hub.

    >>> import tempfile, torch
    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.models.network import build
    >>> from provnet.heads.index_map import IndexMap
    >>> hashes = np.zeros((2, 32), np.uint8)
    >>> samples = SampleTable(("a", "b"), hashes, hashes, np.array([0, 1]), ("x", "y"), (None, None), (None, None))
    >>> config = NetworkConfig("class-conditional", "mlp", (4,), classes=2)
    >>> model = ProvenanceModel(build(config, IndexMap([0, 1])), RunConfig(config), samples)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = model.save_pretrained(folder)
    ...     again = ProvenanceModel.from_pretrained(folder)
    >>> again.samples.sample_ids
    ('a', 'b')
    """

    def __init__(
        self, network: ProvenanceNet, config: RunConfig, samples: SampleTable, history: np.ndarray | None = None
    ) -> None:
        super().__init__()
        self.network = network
        self.config = config
        self.samples = samples
        self.history = history

    @classmethod
    def from_run(cls, run: Run | Fitted) -> Self:
        """The module of a run."""
        run = run_of(run)
        return cls(run.network, run.config, run.samples, run.history).eval()

    @property
    def run(self) -> Run:
        """The run of this module, for `explain`, `evaluate` and the rest."""
        return Run(self.network, self.config, self.samples, self.history)

    def forward(self, images: Tensor, classes: Tensor | None = None) -> ProvenanceOutput:
        """The output of the network for raw images (B, ...)."""
        output: ProvenanceOutput = self.network(images, classes)
        return output

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write the run's folder; the mixin's own would delete config.json first, this one replaces the set as one."""
        push, repo_id = options.pop("push_to_hub", False), options.pop("repo_id", None)
        for name in ("config", "model_card_kwargs"):
            if options.pop(name, None):
                raise UsageError(f"{name} cannot be given: it comes from the run itself")
        write_run(self.run, save_directory)
        if push:
            return str(self.push_to_hub(repo_id=repo_id or Path(save_directory).name, **options))
        return None

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        backbone: nn.Module | None = None,
        map_location: str = "cpu",
        **model_kwargs: Any,
    ) -> Self:
        """Read a run from a local folder, or from the Hub where the name is no folder; every hash is checked."""
        if model_kwargs:
            raise UsageError(f"unknown settings {', '.join(sorted(model_kwargs))}: the run brings its own config")
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            if not _looks_like_a_repository(str(pretrained_model_name_or_path)):
                raise UsageError(f"no run at {folder}: no such folder, and not a Hub name of the form owner/name")
            folder = Path(
                snapshot_download(
                    str(pretrained_model_name_or_path),
                    revision=revision,
                    token=token,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                    allow_patterns=[*FILES, "manifest.json"],
                )
            )
        return cls.from_run(read_run(folder, backbone)).to(map_location)


def _looks_like_a_repository(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 2 and all(part and not part.startswith((".", "~")) for part in parts)
