"""Two lines in a plain loop: the model learns, every sample is named, and nothing of the user's is changed."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import provnet
from provnet.attached.provenance import index
from provnet.attached.steps import spread_of
from provnet.base.errors import IntegrityError, UsageError
from provnet.models.attached import weights_sha256
from provnet.tools.debug.compute import debug
from tests.attached.made import attach, cnn, loader, mlp, steps, train, training, vectors


def test_a_network_for_pictures() -> None:
    model, data = cnn(), training()
    prov = attach(model, data)
    assert prov.at == "the input of 7"
    losses = train(model, prov, epochs=6)
    assert losses[-1] < losses[4]  # the first epoch has no keys to tell apart
    model.train()
    run = prov.finish()
    assert model.training
    found = provnet.explain(run, data, k=3)
    alone = [data.samples.equal(i)[0] for i in range(len(data))]
    assert found.index[:, 0].tolist() == alone  # by construction
    with torch.no_grad():
        due = model.eval()(data.images.float() / 255)
    assert found.predicted.tolist() == due.argmax(1).tolist()
    assert run.history is not None and run.history.shape == (6, len(data))
    assert run.history[-1].mean() < run.history[0].mean()
    assert run.network.index_head.learned_hits()[1] == len(data)


def test_an_mlp_over_vectors_names_equal_samples_alike() -> None:
    model, data = mlp(), vectors()
    prov = attach(model, data)
    train(model, prov)
    found = provnet.explain(prov.finish(), data, k=2)
    assert found.index[5].tolist() == [2, 5]
    assert found.weight[5, 0] == found.weight[5, 1]


def test_by_default_the_training_is_the_users_own() -> None:
    data = training()
    with_prov, without = cnn(), cnn()
    prov = provnet.attach(with_prov, data)
    recorded = train(with_prov, prov)
    other = attach(without, data)  # its dataset alone
    other._tap.unhook()
    torch.manual_seed(0)
    optimizer, plain = torch.optim.AdamW(without.parameters(), 2e-3), []
    for _ in range(2):
        for x, y, _ in loader(other):
            loss = F.cross_entropy(without(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            plain.append(float(loss.detach()))
    assert recorded == plain
    assert weights_sha256(with_prov) == weights_sha256(without)
    assert prov.finish().history is not None


def test_hooks_change_nothing_and_are_gone_at_the_end() -> None:
    data = training()
    model = cnn().eval()
    x = data.images.float() / 255
    with torch.no_grad():
        before = model(x)
        prov = attach(model, data)
        assert torch.equal(model(x), before)
    train(model.train(), prov)
    prov.finish()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_the_index_loss_pulls_on_the_model() -> None:
    data = training()
    heavy, light = cnn(), cnn()
    for model, weight in ((heavy, 1.0), (light, 0.0)):
        train(model, attach(model, data, weight=weight))
    assert weights_sha256(heavy) != weights_sha256(light)


def test_the_first_features_are_taken_whole_and_later_ones_by_half() -> None:
    data, model = vectors(), mlp()
    prov = attach(model, data)
    rows = torch.tensor([3, 1])
    seen = []
    for factor in (1.0, 2.0):
        out = model[:2](data.images[rows] * factor)
        seen.append(out.detach())
        model(data.images[rows] * factor)
        prov._check.steps = 9  # other input on purpose
        prov.loss(rows).backward()  # type: ignore[no-untyped-call]
    prov.bank.settle(all_of_them=True)
    keys = prov.bank.keys[prov.bank.rows[rows]]
    mean, spread = seen[0].mean(0), spread_of(seen[0].var(0, correction=0))
    first = F.normalize((seen[0] - mean) / spread, dim=1)
    second = prov.bank.reduced(seen[1])
    torch.testing.assert_close(keys, F.normalize(0.5 * first + 0.5 * second, dim=1))
    assert prov.bank.count[[3, 1, 0]].tolist() == [2, 2, 0]


def test_keys_move_after_the_backward_pass_of_their_own_step() -> None:
    data, model = vectors(), mlp()
    prov = attach(model, data)
    batches = [torch.arange(0, 20), torch.arange(20, 40), torch.arange(0, 20)]
    total: Tensor = torch.zeros(())
    for rows in batches:  # three forward passes, one backward pass for all
        total = total + prov_loss(model, prov, rows)
    total.backward()
    total = prov_loss(model, prov, batches[0])
    assert prov.bank.count.sum() == 60
    total.backward()


def prov_loss(model: nn.Module, prov: provnet.attached.provenance.Provenance, rows: Tensor) -> Tensor:
    loss: Tensor = model(prov.data.images[rows]).sum() + prov.loss(rows)
    return loss


def test_a_sample_drawn_twice_in_a_batch() -> None:
    data, model = vectors(), mlp()
    prov = attach(model, data)
    rows = torch.tensor([4, 7, 4])
    prov_loss(model, prov, rows).backward()  # type: ignore[no-untyped-call]
    prov.bank.settle(all_of_them=True)
    assert prov.bank.count[[4, 7]].tolist() == [1, 1]


def test_conditional_looks_within_the_predicted_class() -> None:
    data, model = vectors(), mlp()
    prov = attach(model, data, groups="class")
    train(model, prov)
    found = provnet.explain(prov.finish(), data, k=4)
    assert all((found.label[row] == found.predicted[row]).all() for row in range(len(data)))


def test_drawn_keys() -> None:
    data, model = training(), cnn()
    prov = attach(model, data, negatives=20)
    losses = train(model, prov, epochs=3)
    assert np.isfinite(losses).all()
    assert len(provnet.explain(prov.finish(), data, k=1)) == len(data)


def test_a_training_that_was_killed_goes_on_as_if_it_had_not_been() -> None:
    data = vectors()
    whole, first = mlp(), mlp()
    prov = attach(whole, data)
    due = train(whole, prov, epochs=4)
    before = attach(first, data)
    optimizer = torch.optim.AdamW(first.parameters(), 2e-3)
    torch.manual_seed(0)
    losses, kept = [], None
    for epoch in range(4):
        if epoch == 2:  # everything anew from what was saved
            assert kept is not None
            state, weights, momentum, dice = pickle.loads(kept)
            first = mlp()
            first.load_state_dict(weights)
            optimizer = torch.optim.AdamW(first.parameters(), 2e-3)
            optimizer.load_state_dict(momentum)
            before = attach(first, data)
            before.load_state_dict(state)
            torch.set_rng_state(dice)
        for x, y, rows in loader(before):
            loss = F.cross_entropy(first(x), y) + before.loss(rows)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        kept = pickle.dumps((before.state_dict(), first.state_dict(), optimizer.state_dict(), torch.get_rng_state()))
    assert losses == due
    one, other = before.finish(), prov.finish()
    assert torch.equal(one.network.index_head.keys, other.network.index_head.keys)
    assert one.history is not None and np.array_equal(one.history, other.history)


def test_a_state_changes_nothing() -> None:
    data, model = vectors(), mlp()
    prov = attach(model, data)
    for step, _ in enumerate(steps(model, prov)):
        if step == 2:
            prov.state_dict()
    other_model = mlp()
    other = attach(other_model, data)
    train(other_model, other)
    assert torch.equal(prov.state_dict()["keys"], other.state_dict()["keys"])


def test_a_state_is_made_between_loss_and_backward() -> None:
    data, model = vectors(), mlp()
    prov = attach(model, data)
    for _ in range(2):
        loss = prov_loss(model, prov, torch.arange(20))
        assert prov.state_dict()["count"].sum() > 0
        loss.backward()  # type: ignore[no-untyped-call]


def test_finished_models_keep_their_answers_to_the_bit() -> None:
    data = training()
    model = cnn()
    model(data.images.float() / 255)  # statistics of BatchNorm
    sha256 = weights_sha256(model)
    run = index(model, data)
    assert model.training and weights_sha256(model) == sha256
    with torch.inference_mode():
        due = model.eval()(data.images[:7].float() / 255)
        assert torch.equal(run.network(data.images[:7]).logits, due)
    assert run.history is None
    one, two = (run.explain(x, k=3) for x in (data.images, data.images.float() / 255))  # stored, and the model's own
    assert np.array_equal(one.index, two.index) and np.array_equal(one.weight, two.weight)
    found = provnet.explain(run, data, k=1)
    assert found.index[:, 0].tolist() == [data.samples.equal(i)[0] for i in range(len(data))]


def test_a_run_notices_when_its_model_was_trained_on() -> None:
    data, model = vectors(), mlp()
    run = index(model, data)
    kept = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        model[0].weight.add_(0.5)
    with pytest.raises(IntegrityError, match="weights have changed since its samples were indexed"):
        provnet.explain(run, data, k=1)
    model.load_state_dict(kept)
    assert len(provnet.explain(run, data, k=1)) == len(data)


def test_copies_and_files_of_a_model_in_training_take_no_hooks_along() -> None:
    data, model = vectors(), mlp()
    prov = attach(model, data)
    model(data.images[:4])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other(data.images[:9])
    prov.loss(torch.arange(4))


def test_transform_and_augment() -> None:
    data, model = training(), cnn()

    def transform(one: Tensor) -> Tensor:
        return (one.float() / 255 - 0.13) / 0.31

    prov = attach(model, data, transform=transform)
    for augment in (None, "robust", "noise", lambda one: one.flip(2)):
        x, y, rows = next(iter(loader(prov, augment=augment)))
        changed = not torch.equal(x, transform(data.images[rows]))
        assert changed is (augment is not None)
        assert torch.equal(y, data.labels[rows])
        (F.cross_entropy(model(x), y) + prov.loss(rows)).backward()
    train(model, prov)
    run = prov.finish()
    with torch.no_grad():
        due = model.eval()(transform(data.images)).argmax(1)
    assert provnet.explain(run, data, k=1).predicted.tolist() == due.tolist()


def test_workers_fetch_the_same_samples() -> None:
    prov = attach(cnn(), training())
    alone = {int(i): x for xs, _, rows in loader(prov) for x, i in zip(xs, rows, strict=True)}
    apart = {int(i): x for xs, _, rows in loader(prov, num_workers=2) for x, i in zip(xs, rows, strict=True)}
    assert alone.keys() == apart.keys() == set(range(len(training())))
    assert all(torch.equal(alone[i], apart[i]) for i in alone)


def test_a_wide_layer_is_projected_on_fixed_directions() -> None:
    data = vectors()
    model = nn.Sequential(nn.Linear(6, 600), nn.ReLU(), nn.Linear(600, 3))
    first, second = (index(model, data).network.index_head.keys for _ in range(2))
    assert first.shape == (len(data), 512) and torch.equal(first, second)
    prov = attach(model, data)
    train(model, prov)
    assert prov.bank.keys.shape == (len(data), 128)


def test_nothing_of_ours_is_trained() -> None:
    model = mlp()
    before = {name for name, _ in model.named_parameters()}
    prov = attach(model, vectors())
    assert {name for name, _ in model.named_parameters()} == before
    train(model, prov)
    run = prov.finish()
    own = {id(one) for one in model.parameters()}
    assert {id(one) for one in run.network.parameters()} == own


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_counts_a_step_once(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    class Saving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.last = nn.Sequential(nn.Linear(6, 12), nn.ReLU()), nn.Linear(12, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = x.requires_grad_()
            out: Tensor = self.last(checkpoint(self.body, x, use_reentrant=reentrant))
            return out

    data = vectors()
    torch.manual_seed(0)
    model = Saving()
    inside = attach(model, data, at="body.0")
    outside = attach(model, data)
    rows = torch.arange(20)
    for _ in range(2):
        out = model(data.images[rows].clone())
        if reentrant:
            with pytest.raises(UsageError, match=r"carry no gradient .*use_reentrant=False"):
                inside.loss(rows)
            (out.sum() + outside.loss(rows)).backward()
        else:
            (out.sum() + inside.loss(rows) + outside.loss(rows)).backward()
    outside.bank.settle(all_of_them=True)
    assert outside.bank.count[:20].tolist() == [2] * 20


def test_autocast() -> None:
    data, model = vectors(), mlp()
    prov = attach(model, data)
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(data.images).sum() + prov.loss(torch.arange(40))
        loss.backward()
    assert prov.bank.keys.dtype == torch.float32
    prov.finish()


@pytest.mark.parametrize("way", ["before", "after"])
def test_compiled_models(way: str) -> None:
    data = vectors()
    plain, model = mlp(), mlp()
    due = train(plain, attach(plain, data))
    if way == "before":
        prov = attach(model, data)
        compiled = torch.compile(model, backend="eager")
    else:
        compiled = torch.compile(model, backend="eager")
        prov = attach(compiled, data)  # type: ignore[arg-type]
    found = train(compiled, prov)  # type: ignore[arg-type]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(due))
    prov.finish()


def test_samples_without_labels(tmp_path: Path) -> None:
    data = provnet.open_data(training().images)
    assert data.samples.grouping is None
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 24), nn.ReLU(), nn.Linear(24, 6))
    prov = attach(model, data)
    for _ in range(2):
        for x, rows in loader(prov):
            (model(x).var() + prov.loss(rows)).backward()
    run = prov.finish()
    assert run.history is None
    found = run.explain(data, k=2)
    assert found.index[:, 0].tolist() == [data.samples.equal(i)[0] for i in range(len(data))]
    assert found[0].predicted == "" and (found.label == -1).all() and "<img " in found.show(data).html
    figures = provnet.evaluate(run, test=data, train=data)
    assert figures.index_accuracy_perturbed["jpeg"].value > 0.9 and figures.class_accuracy.n == 0  # type: ignore[operator]
    run.save(tmp_path / "run")
    again = provnet.load(tmp_path / "run", model=model)
    assert np.array_equal(again.explain(data, k=2).weight, found.weight)
    for ask in (lambda: debug(run, data), lambda: attach(cnn(), data, groups="class")):
        with pytest.raises(UsageError, match="have no labels"):
            ask()
