"""Parameter counts: counted by hand from the paper's list of layers, by the code, and as the documents print them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, build, parameter_count

PAGE = Path(__file__).parents[2] / "docs/networks.md"
N, C, M = 60_000, 10, 6_000


def conv(inputs: int, outputs: int) -> int:
    """3x3 weights, biases, and the two numbers a channel of BatchNorm."""
    return 9 * inputs * outputs + 3 * outputs


def hidden(inputs: int, outputs: int) -> int:
    """A fully connected layer with BatchNorm."""
    return inputs * outputs + 3 * outputs


def last(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


SINGLE = conv(1, 128) + conv(128, 256) + conv(256, 512) + hidden(512 * 16, 4096) + hidden(4096, 2048)  # app. 7.1
SHARED = conv(1, 64) + conv(64, 128) + conv(128, 256) + hidden(256 * 16, 2048)  # app. 7.2
CLASS = hidden(2048, 512) + last(512, C)
COUNTS = {
    "single": SINGLE + last(2048, N),
    "class-independent": SHARED + CLASS + hidden(2048, 2048) + hidden(2048, 1024) + last(1024, N),
    "class-conditional": SHARED + CLASS + hidden(2048 + C, 2048) + hidden(2048, 1024) + last(1024, M),
    "class-conditional-heads": SHARED + CLASS + hidden(2048, 2048) + hidden(2048, 1024) + last(1024, N),
}


@pytest.mark.parametrize("network", COUNTS)
def test_the_papers_layers(network: str) -> None:
    config = NetworkConfig(network, "paper-single" if network == "single" else "paper", (1, 28, 28), classes=C)
    index_map = IndexMap(torch.arange(N) % C)
    with torch.device("meta"):  # count without memory for weights
        net = build(config, index_map)
    assert parameter_count(net) == COUNTS[network]


def test_the_documents_print_the_same() -> None:
    printed = dict(re.findall(r"^([\w-]+): ([\d,]+) parameters$", PAGE.read_text("utf-8"), re.MULTILINE))
    assert {name: int(value.replace(",", "")) for name, value in printed.items()} == {
        name: COUNTS[name] for name in ("single", "class-independent", "class-conditional")
    }


def test_frozen_layers_are_not_counted() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    layers[0].requires_grad_(False)
    assert parameter_count(layers) == 4
