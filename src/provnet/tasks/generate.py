"""What training a generator adds: pixels in [0, 1], figures after every epoch, and latents measured at the end.

Letters: B batch, N samples, L latents.
"""

from __future__ import annotations

import torch
from torch import Tensor

from provnet.base.batches import keyed_generator
from provnet.base.errors import DataError
from provnet.data.dataset import ImageData, ResidentData
from provnet.data.modalities.decode import are_pictures
from provnet.models.keys import features_at_once
from provnet.models.network import Normal, ProvenanceNet
from provnet.models.vae import ProvenanceVAE, answer_at, posterior_of, sample

MEASURED = 60_000  # samples that are looked at after an epoch
DRAWN = 11  # kind of randomness, beside order (1), targets (2) and others


def between_0_and_1(data: ImageData) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """(mean, std, scale) of a generator's input: bytes divided by 255, as the paper has it."""
    if data.images.dtype != torch.uint8 or not are_pictures(data.images):
        raise DataError(f"a generator learns from pictures of bytes; these data are {data.images.dtype} {data.shape}")
    return (0.0,), (1.0,), 255.0


@torch.inference_mode()
def measured(net: ProvenanceNet, samples: ResidentData, seed: int, epoch: int) -> dict[str, float]:
    """Class and index accuracy of a generator on training samples, at the mean of their latents and at drawn ones.

    The index is that of the given class's head. Large data are measured on every k-th sample.
    """
    if not isinstance(net, ProvenanceVAE) or net.index_map.n != len(samples):
        return {}
    device, training = next(net.parameters()).device, net.training
    net.eval()
    hits = torch.zeros(4, dtype=torch.int64, device=device)
    every = torch.arange(0, len(samples), -(-len(samples) // MEASURED), device=samples.images.device)
    generator = keyed_generator(seed, epoch, DRAWN)
    for index in torch.split(every, features_at_once(samples.images, device)):
        images, labels = samples.batch(index)
        posterior = posterior_of(net, images)
        for place, z in enumerate((posterior.mean, sample(posterior, generator))):
            output = answer_at(net, z, labels)
            right = net.scores(output).best(1).index[:, 0] == index.to(device)
            hits[2 * place] += (output.logits.argmax(1) == labels).sum()
            hits[2 * place + 1] += right.sum()
    net.train(training)
    return dict(zip(FIGURES, (hits / len(every)).tolist(), strict=True))


@torch.inference_mode()
def settle(net: ProvenanceNet, images: Tensor, labels: Tensor) -> None:
    """Tell a generator how the latents of its training samples are spread."""
    if not isinstance(net, ProvenanceVAE):
        return
    device = next(net.parameters()).device
    net.eval()
    parts = [posterior_of(net, part.to(device)) for part in torch.split(images, features_at_once(images, device))]
    whole = Normal(torch.cat([part.mean for part in parts]), torch.cat([part.log_variance for part in parts]))
    net.vae.settle(whole, labels.to(device))


FIGURES = ("class_at_mean", "index_at_mean", "class_at_sample", "index_at_sample")
