"""Planted memorisation: near-copies of an overfitted generator against fresh samples of a normal one; table and JSON.

    python benchmarks/copies.py --data-dir DIR [--data mnist fashion-mnist] [--limit 4000] [--heldout 2000]
        [--samples 1000] [--steps 1000] [--epochs 1] [--device cpu|cuda] [--seed 0] [--out FILE.json]

Two plain convolutional VAEs are trained: one on all the training pictures (normal), one on 100 of them until it
reproduces them (overfitted). Truth does not come from the statistic that is tested: an image of the overfitted one is a
near-copy where its plain pixel distance to one of the 100 is at most a third of the distance from that picture to its
nearest other training picture, so that it provably lies far nearer to it than to any other. Training pictures with
noise, shift, JPEG and blur are copies too; held-out pictures, plain, blurred and rebuilt by the normal VAE, are not.

Each statistic has its threshold set on the same held-out pictures, to the same rate of false alarms. `the 100` compares
with the 100 pictures alone, as if nothing else had been trained on. Bars: near-copies of the overfitted VAE flagged at
95 % or more, fresh samples of the normal one at 1 % or less.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from machine import machine
from torch import Tensor, nn

from provnet import open_data
from provnet.answers.metrics import copy_rate
from provnet.base.options import RunOptions
from provnet.data.modalities.augment import add_noise, jpeg, shift
from provnet.runs.run import Run
from provnet.tools.copies.compute import nearest_features, nearest_pixels
from provnet.tools.copies.near_copies import FALSE_ALARMS, blur, calibrate_copies, copy_ratios
from provnet.tools.map.compute import index_features
from provnet.training.config import train_config
from provnet.training.fit import fit

PLANTED, NEAR = 100, 1 / 3
LATENTS = 32
COPIES, FRESH = 0.95, 0.01
STATES = {True: "met", False: "NOT MET", None: "not measured"}
STATISTICS = ("copy ratio", "pixel distance", "pixel ratio", "feature distance")


class SmallVae(nn.Module):
    """A plain convolutional VAE for pictures of 28 x 28."""

    def __init__(self, latents: int, width: int = 24) -> None:
        super().__init__()
        self.latents, flat = latents, 2 * width * 49
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(flat, 256), nn.ReLU(), nn.Linear(256, 2 * latents),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(latents, 256), nn.ReLU(), nn.Linear(256, flat), nn.ReLU(), nn.Unflatten(1, (2 * width, 7, 7)),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 1, 4, 2, 1),
        )  # fmt: skip

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the latents."""
        mean, log_variance = self.encoder(images).chunk(2, 1)
        return mean, log_variance


def trained(images: Tensor, latents: int, steps: int, batch: int, seed: int) -> SmallVae:
    """A VAE of pictures (n, 1, 28, 28) in 0..1."""
    torch.manual_seed(seed)
    net = SmallVae(latents).to(images.device)
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(steps):
        real = images[torch.randint(len(images), (batch,), device=images.device)]
        mean, log_variance = net.encode(real)
        made = net.decoder(mean + torch.randn_like(mean) * (log_variance / 2).exp())
        rebuilt = F.binary_cross_entropy_with_logits(made, real, reduction="sum")
        loss = (rebuilt + 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum()) / batch
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net.eval()


@torch.no_grad()
def drawn(net: SmallVae, count: int, device: torch.device) -> Tensor:
    """Samples of the prior, as bytes."""
    noise = torch.randn(count, net.latents, device=device)
    return torch.cat([as_bytes(net.decoder(part).sigmoid()) for part in noise.split(500)])


@torch.no_grad()
def rebuilt(net: SmallVae, images: Tensor, sampled: bool = False) -> Tensor:
    """Pictures as the VAE makes them of their own latents, as bytes."""
    parts = []
    for part in images.split(500):
        mean, log_variance = net.encode(part)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp() if sampled else mean
        parts.append(as_bytes(net.decoder(z).sigmoid()))
    return torch.cat(parts)


def as_bytes(images: Tensor) -> Tensor:
    """Pictures in 0..1 as uint8 on the CPU."""
    return (images * 255).round().clamp(0, 255).to(torch.uint8).cpu()


def blur_bytes(images: Tensor, level: float) -> Tensor:
    """Blurred bytes."""
    return blur(images.float(), level).round().clamp(0, 255).to(torch.uint8)


def planted(made: Tensor, training: Tensor, within: float) -> Tensor:
    """Images of the overfitted VAE that are near-copies of one of the first 100, by plain pixels (see above)."""
    flat, keys = (values.flatten(1).double() for values in (made, training))
    apart = torch.cdist(keys[:PLANTED], keys)
    apart[torch.arange(PLANTED), torch.arange(PLANTED)] = torch.inf
    room = apart.amin(1)
    return (torch.cdist(flat, keys[:PLANTED]) <= within * room).any(1)


class Judges:
    """The statistics that are compared, smaller where an image looks more like a copy; thresholds by held-out ones."""

    def __init__(self, training: Tensor, heldout: Tensor, run: Run | None, device: torch.device, seed: int) -> None:
        self.training, self.run, self.device = training, run, device
        self.keys = None if run is None else index_features(run, training)
        self.calibration = calibrate_copies(training, heldout, device=device, seed=seed, most=len(heldout))
        others = self.distances(heldout)
        self.threshold = {name: float(np.quantile(values, FALSE_ALARMS)) for name, values in others.items()}

    def distances(self, images: Tensor) -> dict[str, np.ndarray]:
        """What a distance alone says."""
        pixels = nearest_pixels(images, self.training, device=self.device)
        found = {"pixel distance": pixels.distance, "pixel ratio": pixels.distance / pixels.following}
        if self.run is not None and self.keys is not None:
            own = index_features(self.run, images)
            found["feature distance"] = nearest_features(own, self.keys, device=self.device).distance
        return found

    def flagged(self, images: Tensor) -> dict[str, Any]:
        """Share of the images that each statistic flags."""
        score = self.calibration.score(copy_ratios(images, self.training, device=self.device))
        flags = {"copy ratio": score <= self.calibration.threshold}
        flags |= {name: values <= self.threshold[name] for name, values in self.distances(images).items()}
        return {name: copy_rate(values).to_json() for name, values in flags.items()}


def measure(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """One data set."""
    device = torch.device(given.device)
    train = open_data(name, data_dir=given.data_dir, limit=given.limit)
    test = open_data(name, split="test", data_dir=given.data_dir).images
    test = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(given.seed))]
    heldout, fresh = test[: given.heldout], test[given.heldout :][: given.samples]
    images, unseen = ((values.float() / 255).to(device) for values in (train.images, fresh))
    began = time.perf_counter()
    normal = trained(images, LATENTS, given.steps, 64, given.seed)
    memory = trained(images[:PLANTED], LATENTS, 3 * given.steps, 50, given.seed + 1)
    config = train_config("robust", epochs=given.epochs, seed=given.seed)
    run = fit(train, config.using(network="class-independent", head="exemplar"), RunOptions(device=given.device))
    seconds = {"training": round(time.perf_counter() - began, 1)}
    torch.manual_seed(given.seed + 2)
    made = drawn(memory, 20 * given.samples, device)
    again = rebuilt(memory, images[:PLANTED].repeat(max(1, given.samples // PLANTED), 1, 1, 1), sampled=True)
    near = planted(made, train.images, NEAR)
    some = train.images[: given.samples // 4]
    copies = {
        "overfitted VAE, samples that are near-copies": made[near][: given.samples],
        "overfitted VAE, the 100 rebuilt": again[planted(again, train.images, NEAR)],
        "training, noise 0.1": add_noise(some, given.seed),
        "training, shift": shift(some, given.seed),
        "training, JPEG 50": jpeg(some),
        "training, blur 1": blur_bytes(some, 1.0),
    }
    others = {
        "normal VAE, fresh samples": drawn(normal, given.samples, device),
        "normal VAE, held-out rebuilt": rebuilt(normal, unseen),
        "held-out": fresh,
        "held-out, blur 1": blur_bytes(fresh, 1.0),
    }
    began = time.perf_counter()
    judges = Judges(train.images, heldout, run, device, given.seed)
    alone = Judges(train.images[:PLANTED], heldout, None, device, given.seed)
    rows = {"all": {}, "the 100": {}}
    for kind, sets in (("copy", copies), ("fresh", others)):
        for words, pictures in sets.items():
            if len(pictures):
                rows["all"][words] = {"kind": kind, "n": len(pictures), **judges.flagged(pictures)}
                if words.startswith(("overfitted", "normal", "held-out")):
                    rows["the 100"][words] = {"kind": kind, "n": len(pictures), **alone.flagged(pictures)}
    seconds["judging"] = round(time.perf_counter() - began, 1)
    return {
        "data": name, "training_samples": len(train), "heldout": len(heldout), "false_alarms": FALSE_ALARMS,
        "threshold": judges.calibration.threshold, "thresholds": judges.threshold, "seconds": seconds,
        "near_copies_of_samples": copy_rate(near.numpy()).to_json(), "rows": rows, "bars": bars(rows),
    }  # fmt: skip


def bars(rows: dict[str, Any]) -> dict[str, Any]:
    """Whether the bars are met, compared with all the training pictures and with the 100 alone."""
    reached = {}
    wanted = {"overfitted VAE, samples that are near-copies": COPIES, "overfitted VAE, the 100 rebuilt": COPIES}
    for against, of in rows.items():
        for words, least in wanted.items():
            value = of[words]["copy ratio"]["value"] if words in of else None
            met = None if value is None else value >= least  # None: the overfitted VAE made none
            reached[f"{words}, {against}"] = {"bar": f">= {least}", "value": value, "met": met}
        value = of["normal VAE, fresh samples"]["copy ratio"]["value"]
        reached[f"normal VAE, fresh samples, {against}"] = {"bar": f"<= {FRESH}", "value": value, "met": value <= FRESH}
    return reached


def table(one: dict[str, Any]) -> str:
    """The figures as people read them."""
    set_on = f"{one['heldout']:,} held-out pictures at {one['false_alarms']:.1%}"
    head = f"{one['data']}: {one['training_samples']:,} training pictures, threshold {one['threshold']:.3f} by {set_on}"
    lines = [f"{head}; seconds {one['seconds']}"]
    for against, of in one["rows"].items():
        lines.append(f"  compared with {against}: share flagged (95 % interval of the copy ratio's)")
        lines.append(f"    {'':46} {'n':>5}  {'copy ratio':>24}" + "".join(f"{name:>18}" for name in STATISTICS[1:]))
        for words, row in of.items():
            own = row["copy ratio"]
            cell = f"{own['value']:.2%} ({own['low']:.1%} to {own['high']:.1%})"
            rest = "".join(f"{row[name]['value']:>18.2%}" if name in row else f"{'-':>18}" for name in STATISTICS[1:])
            lines.append(f"    {words:46} {row['n']:>5}  {cell:>24}{rest}")
    for words, bar in one["bars"].items():
        shown = "none" if bar["value"] is None else f"{bar['value']:.2%}"
        lines.append(f"  bar, {words}: {shown}, {bar['bar']}: {STATES[bar['met']]}")
    return "\n".join(lines)


def main() -> None:
    """Train, judge, print, write after each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--data", nargs="*", default=["mnist", "fashion-mnist"])
    for name, value in (("limit", 4000), ("heldout", 2000), ("samples", 1000), ("steps", 1000), ("epochs", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name in given.data:
        results.append(measure(name, given))
        print(table(results[-1]), flush=True)
        if given.out is not None:
            about = {"machine": machine(rates=False), "seed": given.seed, "steps": given.steps, "epochs": given.epochs}
            given.out.write_text(json.dumps({**about, "results": results}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
