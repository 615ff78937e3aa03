"""The 15 conditions: as strong as the paper says, the same in every batch and order, bytes stay bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from provnet.base.errors import UsageError
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, ProvenanceNet, build
from provnet.tools.robustness.compute import (
    ATTACKS,
    CONDITIONS,
    KINDS,
    Condition,
    attack,
    class_scores,
    conditions_by_name,
    distort,
)
from tests.cases import cases

KEYS = torch.arange(40)


def grey(value: int = 128, n: int = 40, side: int = 28) -> Tensor:
    return torch.full((n, 1, side, side), value, dtype=torch.uint8)


def noisy(n: int = 6, channels: int = 1, side: int = 28) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (n, channels, side, side), dtype=np.uint8))


def dot(n: int = 40) -> Tensor:
    """One white pixel right of the middle of a black picture."""
    pictures = torch.zeros(n, 1, 29, 29, dtype=torch.uint8)
    pictures[:, :, 14, 22] = 255
    return pictures


def place(picture: Tensor) -> tuple[float, float]:
    """Centre of mass from the middle: (down, right)."""
    mass = picture[0].double()
    ways = torch.arange(29).double() - 14
    return float((mass.sum(1) * ways).sum() / mass.sum()), float((mass.sum(0) * ways).sum() / mass.sum())


def test_they_are_the_papers_fourteen_and_the_clean_one() -> None:
    kinds = [one.kind for one in CONDITIONS.values()]
    assert len(CONDITIONS) == 15
    assert set(kinds) == set(KINDS)
    assert {kind: kinds.count(kind) for kind in KINDS} == {
        **dict.fromkeys(("salt-pepper", "noise", "occlusion", "translation", "rotation", "blur"), 2),
        **dict.fromkeys(("clean", "scaling", "motion"), 1),
    }
    assert list(CONDITIONS) == [one.name for one in CONDITIONS.values()]


@cases("name", CONDITIONS)
@cases("channels", [1, 3])
def test_a_picture_is_distorted_alike_in_every_batch_and_order(name: str, channels: int) -> None:
    pictures, keys = noisy(6, channels), torch.tensor([5, -7, 2**62, 0, 9, 11])
    whole = distort(pictures, keys, name, seed=3)
    assert whole.dtype == torch.uint8
    assert whole.shape == pictures.shape
    order = torch.tensor([4, 1, 5])
    assert torch.equal(distort(pictures[order], keys[order], name, seed=3), whole[order])
    assert torch.equal(distort(pictures, keys, name, seed=3), whole)
    assert name == "clean" or not torch.equal(whole, pictures)
    drawn = CONDITIONS[name].kind not in ("clean", "blur", "motion")
    assert torch.equal(distort(pictures, keys, name, seed=4), whole) != drawn


@cases("name", CONDITIONS)
def test_floats_are_distorted_as_bytes_are(name: str) -> None:
    pictures = noisy()
    bytes_ = distort(pictures, KEYS[:6], name).float() / 255
    floats = distort(pictures.float() / 255 * 4 - 2, KEYS[:6], name, low=-2.0, high=2.0)
    assert floats.dtype == torch.float32
    assert float(((floats + 2) / 4 - bytes_).abs().max()) <= 0.5 / 255 + 1e-5


def test_the_clean_one_is_a_copy() -> None:
    pictures = noisy()
    out = distort(pictures, KEYS[:6], "clean")
    assert torch.equal(out, pictures)
    out[:] = 0
    assert int(pictures.max()) > 0


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_salt_and_pepper_are_as_many_as_said_and_half_of_each(share: float) -> None:
    out = distort(grey(), KEYS, f"salt-pepper-{share}")
    n = out.numel()
    spread = 5 * (share / 2 / n) ** 0.5
    assert abs((out == 255).sum().item() / n - share / 2) < spread
    assert abs((out == 0).sum().item() / n - share / 2) < spread
    colour = distort(grey().expand(-1, 3, -1, -1), KEYS, f"salt-pepper-{share}")
    assert torch.equal(colour[:, 0], colour[:, 2])


@pytest.mark.parametrize("sigma", [0.1, 0.2])
def test_noise_has_the_spread_said(sigma: float) -> None:
    change = (distort(grey(), KEYS, f"noise-{sigma}").double() - 128) / 255
    assert abs(float(change.std()) - sigma) < 0.01
    assert abs(float(change.mean())) < 0.005


@pytest.mark.parametrize("side", [4, 6])
def test_occlusion_is_a_black_square_inside_the_picture_and_everywhere(side: int) -> None:
    out = distort(grey(n=400), torch.arange(400), f"occlusion-{side}")
    black = out[:, 0] == 0
    assert (black.sum((1, 2)) == side * side).all()
    rows, columns = black.any(2), black.any(1)
    assert (rows.sum(1) == side).all()
    assert (columns.sum(1) == side).all()
    starts = set(rows.int().argmax(1).tolist())
    assert starts == set(range(28 - side + 1))


@pytest.mark.parametrize("most", [3, 4])
def test_translation_moves_by_whole_pixels_up_to_the_most(most: int) -> None:
    pictures = torch.zeros(400, 1, 28, 28, dtype=torch.uint8)
    pictures[:, :, 14, 14] = 200
    out = distort(pictures, torch.arange(400), f"translation-{most}")
    where = out[:, 0].flatten(1).argmax(1)
    assert (out.flatten(1).sum(1) == 200).all()
    for found in (where // 28 - 14, where % 28 - 14):
        assert set(found.tolist()) == set(range(-most, most + 1))


@pytest.mark.parametrize("degrees", [30, 40])
def test_rotation_turns_about_the_middle_up_to_the_most(degrees: int) -> None:
    found = [place(one) for one in distort(dot(), KEYS, f"rotation-{degrees}")]
    radii = np.array([np.hypot(*one) for one in found])
    angles = np.degrees([np.arctan2(*one) for one in found])
    assert np.abs(radii - 8).max() < 0.5
    assert np.abs(angles).max() < degrees + 2
    assert angles.min() < -degrees / 2 < degrees / 2 < angles.max()


def test_scaling_is_within_its_range_and_keeps_the_middle() -> None:
    found = np.array([place(one) for one in distort(dot(), KEYS, "scaling-0.2")])
    assert np.abs(found[:, 0]).max() < 0.3
    assert 6.1 < found[:, 1].min() < 7
    assert 9 < found[:, 1].max() < 9.9


@pytest.mark.parametrize("sigma", [1, 2])
def test_blur_spreads_a_dot_by_sigma_and_keeps_its_sum(sigma: int) -> None:
    pictures = torch.zeros(1, 1, 28, 28)
    pictures[:, :, 14, 14] = 1
    out = distort(pictures, KEYS[:1], f"blur-{sigma}")[0, 0].double()
    ways = torch.arange(28).double() - 14
    assert abs(float(out.sum()) - 1) < 1e-5
    assert abs(float((out.sum(0) * ways**2).sum()) ** 0.5 - sigma) < 0.02
    assert torch.allclose(out, out.t(), atol=1e-7)


def test_motion_is_the_mean_of_five_in_a_row() -> None:
    pictures = torch.zeros(1, 1, 28, 28)
    pictures[:, :, 14, 14] = 1
    out = distort(pictures, KEYS[:1], "motion-5")[0, 0]
    assert torch.allclose(out[14, 12:17], torch.full((5,), 0.2))
    assert int((out > 0).sum()) == 5


def test_stronger_is_the_same_distortion_stronger() -> None:
    weak, strong = (distort(grey(), KEYS, f"noise-{sigma}").double() - 128 for sigma in (0.1, 0.2))
    assert float(torch.corrcoef(torch.stack([weak.flatten(), strong.flatten()]))[0, 1]) > 0.99
    weak, strong = (distort(grey(), KEYS, f"salt-pepper-{share}") != 128 for share in (0.1, 0.2))
    assert bool((strong | ~weak).all())


def test_lengths_grow_with_the_picture() -> None:
    black = distort(grey(side=56), KEYS, "occlusion-4")[:, 0] == 0
    assert (black.sum((1, 2)) == 64).all()
    small = distort(grey(n=1, side=8), KEYS[:1], "occlusion-4")
    assert int((small == 0).sum()) == 1


@cases(
    ("pictures", "keys", "condition", "words"),
    [
        (torch.zeros(2, 9), torch.arange(2), "blur-1", "(2, 9)"),
        (torch.zeros(2, 1, 9, 9, dtype=torch.int64), torch.arange(2), "blur-1", "int64"),
        (torch.zeros(2, 1, 9, 9), torch.arange(3), "blur-1", "2 here"),
        (torch.zeros(2, 1, 9, 9), torch.arange(2.0), "blur-1", "float32"),
        (torch.zeros(2, 1, 7, 9), torch.arange(2), "blur-1", "7 x 9"),
        (torch.zeros(2, 1, 9, 9), torch.arange(2), "blur-3", 'Did you mean "blur-'),
        (torch.zeros(2, 1, 9, 9), torch.arange(2), Condition("x", "fog", 1, ""), 'unknown kind of distortion "fog"'),
    ],
)
def test_what_cannot_be_distorted_is_refused(pictures: Tensor, keys: Tensor, condition: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        distort(pictures, keys, condition)
    assert words in str(error.value)


def test_a_range_without_width_is_refused_and_nothing_stays_nothing() -> None:
    with pytest.raises(UsageError, match="low and a higher end"):
        distort(torch.zeros(1, 1, 9, 9), KEYS[:1], "blur-1", low=1.0, high=1.0)
    assert distort(torch.zeros(0, 1, 9, 9), KEYS[:0], "noise-0.1").shape == (0, 1, 9, 9)


def test_conditions_by_name_begin_with_the_clean_one() -> None:
    assert [one.name for one in conditions_by_name(["blur-1", "clean", "blur-1"])] == ["clean", "blur-1"]
    assert [one.name for one in conditions_by_name()] == list(CONDITIONS)
    with pytest.raises(UsageError, match="unknown condition"):
        conditions_by_name(["fog"])


def network(kind: str, head: str = "plain") -> ProvenanceNet:
    torch.manual_seed(0)
    config = NetworkConfig(kind, "small", (1, 8, 8), classes=3, scale=255.0, mean=(0.5,), std=(0.3,), head=head)
    return build(config, IndexMap([0, 0, 1, 1, 2, 2])).eval()


@cases("how", ATTACKS)
@cases(("kind", "head"), [("single", "plain"), ("class-independent", "plain"), ("single", "exemplar")])
def test_an_attack_stays_within_epsilon_and_raises_the_loss(how: str, kind: str, head: str) -> None:
    net = network(kind, head)
    if head == "exemplar":
        net.index_head.set_keys(torch.arange(6), torch.randn(6, net.index_head.keys.shape[1]))  # type: ignore[union-attr, operator]
    pictures, labels = noisy(8, side=8), torch.arange(8) % 3
    before = [parameter.clone() for parameter in net.parameters()]
    moved = attack(net, pictures, labels, KEYS[:8], how, epsilon=0.05)
    assert float((moved - pictures.float()).abs().max()) <= 0.05 * 255 + 1e-3
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 255

    @torch.no_grad()
    def loss(images: Tensor) -> float:
        return float(cross_entropy(class_scores(net, images), labels))

    assert loss(moved) > loss(pictures)
    with torch.no_grad():
        assert torch.allclose(class_scores(net, pictures), net(pictures).logits, atol=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in net.parameters())


def test_pgd_is_stronger_than_fgsm_and_keyed_by_sample() -> None:
    net, pictures, labels = network("class-independent"), noisy(8, side=8), torch.arange(8) % 3
    moved = {how: attack(net, pictures, labels, KEYS[:8], how) for how in ATTACKS}
    with torch.no_grad():
        losses = {how: float(cross_entropy(class_scores(net, one), labels)) for how, one in moved.items()}
    assert losses["pgd"] > losses["fgsm"]
    whole = attack(net, pictures, labels, KEYS[:8], "pgd")
    alone = attack(net, pictures[5:6], labels[5:6], KEYS[5:6], "pgd")
    assert float((whole[5:6] - alone).abs().max()) < 0.1 * 255  # the same start; rounding may turn a sign later


def test_attacks_refuse_what_they_cannot_use() -> None:
    net, pictures = network("single"), noisy(2, side=8)
    for epsilon in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(UsageError, match="epsilon"):
            attack(net, pictures, torch.zeros(2, dtype=torch.int64), KEYS[:2], "fgsm", epsilon=epsilon)
    with pytest.raises(UsageError, match="one label"):
        attack(net, pictures, torch.zeros(3, dtype=torch.int64), KEYS[:2], "fgsm")
    with pytest.raises(UsageError, match='unknown attack "cw"'):
        attack(net, pictures, torch.zeros(2, dtype=torch.int64), KEYS[:2], "cw")
