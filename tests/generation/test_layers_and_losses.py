"""The paper's layers and weights, the losses against their definitions, and what the modern generator adds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal as Gaussian
from torch.distributions import kl_divergence

from provnet.base.errors import UsageError
from provnet.heads.heads import ExemplarHead, PerClassHead
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, ProvenanceVAE, answer_at, build, posterior_of
from provnet.models.vae import ModernVAE, sample
from provnet.tasks.generate import Generate, Made, Normal
from provnet.training.loop import ProvenanceObjective


def built(backbone: str, labels: list[int], shape: tuple[int, ...] = (1, 28, 28), **more: object) -> ProvenanceVAE:
    torch.manual_seed(0)
    plain = backbone != "vae-modern"
    network, head = ("class-conditional-heads", "plain") if plain else ("class-conditional", "exemplar")
    wanted = {"network": network, "head": head, "scale": 255.0, **more}
    net = build(
        NetworkConfig(backbone=backbone, input_shape=shape, classes=max(labels) + 1, **wanted), IndexMap(labels)
    )  # type: ignore[arg-type]
    assert isinstance(net, ProvenanceVAE)
    return net


def batch(n: int, shape: tuple[int, ...] = (1, 28, 28)) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, (n, *shape), dtype=np.uint8))


def test_layers_of_the_papers_generator() -> None:
    weights = {name: tuple(p.shape) for name, p in built("vae-paper", [0, 0, 1, 1, 1]).named_parameters() if p.ndim > 1}
    assert weights == {
        "backbone.encoder.0.weight": (64, 1, 3, 3),
        "backbone.encoder.3.weight": (128, 64, 3, 3),
        "backbone.encoder.6.weight": (256, 128, 3, 3),
        "backbone.mean.weight": (128, 12544),
        "backbone.log_variance.weight": (128, 12544),
        "backbone.project.weight": (12544, 128),
        "backbone.lift.0.weight": (256, 128, 3, 3),
        "backbone.finish.0.weight": (128, 64, 3, 3),
        "backbone.finish.3.weight": (64, 32, 3, 3),
        "backbone.finish.6.weight": (1, 32, 3, 3),
        "task_head.1.weight": (2, 128),
        "index_head.linear.weight": (5, 128),
    }


def test_heads_look_at_the_mean_of_128_maps() -> None:
    net = built("vae-paper", [0, 1]).eval()
    z = torch.randn(3, 128)
    maps = net.vae.hidden(z)
    assert maps.shape == (3, 128, 7, 7)
    assert torch.equal(answer_at(net, z).features, maps.mean((2, 3)))


def test_faces_have_three_layers_each_way_and_100_latents() -> None:
    net = built("vae-faces", [0, 1], shape=(3, 8, 8))
    linear = [tuple(m.weight.shape) for m in net.vae.modules() if isinstance(m, torch.nn.Linear)]
    sizes = [(1024, 192), (1024, 1024), (100, 1024), (100, 1024), (1024, 100), (1024, 1024), (192, 1024)]
    assert linear == sizes


def test_thousands_of_heads_of_different_sizes_are_rows_of_one_matrix_and_equal_a_loop() -> None:
    sizes = np.random.default_rng(0).integers(1, 26, 300)
    labels = np.repeat(np.arange(300), sizes)
    net = built("vae-faces", labels.tolist(), shape=(1, 4, 4)).eval()
    head = net.index_head
    assert isinstance(head, PerClassHead)
    assert sum(isinstance(m, torch.nn.Linear) for m in head.modules()) == 1
    rows = torch.from_numpy(np.random.default_rng(1).permutation(len(labels))[:64])
    given = torch.from_numpy(labels)[rows]
    output = answer_at(net, torch.randn(64, 100), given)
    assert output.index_scores is not None
    starts = np.cumsum(sizes) - sizes
    for place, person in enumerate(given.tolist()):
        own = slice(int(starts[person]), int(starts[person] + sizes[person]))
        alone = F.linear(output.features[place], head.linear.weight[own], head.linear.bias[own])
        torch.testing.assert_close(output.index_scores[place, : len(alone)], alone)
        assert bool(torch.isinf(output.index_scores[place, len(alone) :]).all())


def test_the_paper_weighs_its_losses_6_to_4() -> None:
    net = built("vae-paper", [0, 0, 1, 1, 1]).train()
    images, labels, targets = batch(5), torch.tensor([0, 0, 1, 1, 1]), torch.arange(5)
    output = net(images, labels)
    losses = ProvenanceObjective(0.4, 0.4, 0.0)(net, output, labels, targets)
    made = output.made
    assert made is not None
    bce = F.binary_cross_entropy(made.logits.sigmoid(), images / 255, reduction="sum") / 5
    own = Gaussian(made.posterior.mean, (made.posterior.log_variance / 2).exp())
    kl = kl_divergence(own, Gaussian(0.0, 1.0)).sum() / 5
    assert output.index_scores is not None
    index = F.cross_entropy(output.index_scores, torch.tensor([0, 1, 0, 1, 2]))
    wanted = 0.6 * (bce + kl) + 0.4 * (F.cross_entropy(output.logits, labels) + index)
    torch.testing.assert_close(losses.total, wanted, rtol=1e-5, atol=1e-3)
    assert losses.parts is not None
    torch.testing.assert_close(losses.parts, torch.stack([bce, kl, torch.zeros(())]).detach(), rtol=1e-5, atol=1e-3)
    assert Generate.parts == ("reconstruction", "divergence", "feature")


def test_divergence_from_a_prior_of_the_class_is_that_of_two_normals() -> None:
    torch.manual_seed(1)
    one, other = (Normal(torch.randn(4, 6), torch.randn(4, 6)) for _ in range(2))
    x = torch.rand(4, 1, 2, 2)
    made = Made(x, torch.zeros(4, 1, 2, 2), one, other, torch.tensor(3.0), torch.tensor(0.5), 2.0)
    total, parts = Generate().extra(made)
    wanted = kl_divergence(*(Gaussian(n.mean, (n.log_variance / 2).exp()) for n in (one, other))).sum(1).mean()
    torch.testing.assert_close(parts[1], wanted)
    torch.testing.assert_close(total, 2 * (parts[0] + 0.5 * wanted + 3))


def test_latents_are_drawn_in_training_and_stay_at_their_mean_afterwards() -> None:
    net, images = built("vae-paper", [0, 1]), batch(4)
    net.train()
    logits = [net(images, torch.zeros(4, dtype=torch.int64)).made.logits for _ in range(2)]  # type: ignore[union-attr]
    assert not torch.equal(*logits)
    net.eval()
    first, again = net(images), net(images)
    assert first.made is None
    assert torch.equal(first.logits, again.logits)
    posterior = posterior_of(net, images)
    assert torch.equal(first.features, answer_at(net, posterior.mean).features)
    assert not torch.equal(sample(posterior), posterior.mean)


def test_the_feature_loss_teaches_the_decoder_alone_and_leaves_statistics_as_they_are() -> None:
    vae = built("vae-modern", [0, 1], shape=(1, 8, 8)).train().vae
    before = {name: value.clone() for name, value in vae.stages.named_buffers()}  # type: ignore[union-attr]
    logits = torch.randn(4, 1, 8, 8, requires_grad=True)
    vae.feature_loss(torch.rand(4, 1, 8, 8), logits).backward()
    assert logits.grad is not None
    assert float(logits.grad.abs().sum()) > 0
    assert all(p.grad is None for p in vae.parameters())
    assert all(torch.equal(value, before[name]) for name, value in vae.stages.named_buffers())  # type: ignore[union-attr]


def test_equal_pictures_have_no_feature_loss() -> None:
    vae = built("vae-modern", [0, 1], shape=(1, 8, 8)).eval().vae
    x = torch.rand(4, 1, 8, 8).clamp(0.01, 0.99)
    assert float(vae.feature_loss(x, torch.logit(x))) == pytest.approx(0, abs=1e-4)
    assert float(vae.feature_loss(x, torch.logit(1 - x))) > 0.1


def test_the_divergence_counts_more_and_more_and_the_network_remembers_how_much() -> None:
    vae = built("vae-modern", [0] * 8, shape=(1, 8, 8)).vae
    assert isinstance(vae, ModernVAE)
    found = [float(vae.warmth(8)) for _ in range(12)]
    assert found[0] == 0
    assert found == sorted(found)
    assert found[5] == pytest.approx(0.5)
    assert found[10:] == [1.0, 1.0]
    assert float(vae.state_dict()["seen"]) == 96


def test_the_modern_decoder_is_told_the_class_and_its_keys_are_those_of_the_class() -> None:
    net = built("vae-modern", [0, 1, 1], shape=(1, 8, 8)).eval()
    z = torch.randn(1, 32).repeat(2, 1)
    one, other = net.picture(z, torch.tensor([0, 1]))
    assert not torch.allclose(one, other)
    assert isinstance(net.index_head, ExemplarHead)
    assert net.index_head.conditional


def test_latents_are_drawn_as_those_of_the_class_lie() -> None:
    vae = ModernVAE((1, 8, 8), classes=2, n=8000)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8000) % 2
    mean = torch.randn(8000, 32, generator=generator) * torch.tensor([0.5, 2.0])[labels].unsqueeze(
        1
    ) + labels.unsqueeze(1)
    vae.settle(Normal(mean, torch.full((8000, 32), 0.25).log()), labels)
    noise = torch.randn(20_000, 32, generator=generator)
    for kind, spread in ((0, 0.5), (1, 2.0)):
        drawn = vae.draw(noise, torch.full((20_000,), kind))
        assert float(drawn.mean()) == pytest.approx(kind, abs=0.03)
        assert float(drawn.var(0).mean()) == pytest.approx(spread**2 + 0.25, rel=0.1)


@pytest.mark.parametrize("backbone", ["vae-paper", "vae-modern"])
def test_sides_must_be_multiples_of_four(backbone: str) -> None:
    with pytest.raises(UsageError, match=r"multiples of 4, got \(1, 10, 8\)"):
        built(backbone, [0, 1], shape=(1, 10, 8))


def test_a_network_that_does_not_go_with_the_heads_is_refused() -> None:
    with pytest.raises(UsageError, match='cannot be a "single" network'):
        built("vae-paper", [0, 1], network="single")
