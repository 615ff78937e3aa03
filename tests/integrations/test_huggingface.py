"""The Trainer of Hugging Face itself, on models made from small configs: fifty steps each, and what it can be told."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
    SegformerConfig,
    SegformerForImageClassification,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    YolosConfig,
    YolosForObjectDetection,
)

import provnet
from provnet.attached.provenance import Provenance, attach, index
from provnet.base.errors import IntegrityError, UsageError
from provnet.data.dataset import Dataset
from provnet.data.modalities.text import Text

WORDS = [f"w{i}" for i in range(40)]
N, STEPS, BATCH = 96, 50, 8
ROOT = Path(__file__).parents[2]


def tokenizer() -> PreTrainedTokenizerFast:
    """Whole words, in the form of BERT."""
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]")


def texts() -> tuple[list[str], list[int]]:
    dice = random.Random(0)
    found = [" ".join(dice.choices(WORDS, k=dice.randrange(4, 12))) for _ in range(N)]
    return found, [int("w1" in text.split() or "w2" in text.split()) for text in found]


def text_data() -> Dataset:
    return provnet.open_data(*texts(), modality=Text(tokenizer(), length=16))


def picture_data() -> Dataset:
    return provnet.open_data("embedded", limit=N)


SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def bert(**given: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": 44, "num_labels": 2, "max_position_embeddings": 32} | given
    return BertForSequenceClassification(BertConfig(**sizes))


def vit() -> nn.Module:
    torch.manual_seed(0)
    return ViTForImageClassification(ViTConfig(image_size=28, patch_size=7, num_channels=1, num_labels=10, **SIZES))


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return GPT2ForSequenceClassification(GPT2Config(vocab_size=44, num_labels=2, pad_token_id=0, **sizes))


def segformer() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32]}
    more = {"patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}
    return SegformerForImageClassification(SegformerConfig(num_channels=1, num_labels=10, **sizes, **more))


def yolos() -> nn.Module:
    torch.manual_seed(0)
    sizes = SIZES | {"image_size": [28, 28], "patch_size": 7, "num_channels": 1, "num_detection_tokens": 5}
    return YolosForObjectDetection(YolosConfig(num_labels=3, **sizes))


def lora() -> nn.Module:
    config = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
    return get_peft_model(bert(), config)  # type: ignore[no-any-return, arg-type]


MODELS = {
    "BERT": (bert, text_data, "the output of bert, pooled by mean"),
    "ViT": (vit, picture_data, "the input of classifier"),
    "Segformer": (segformer, picture_data, "the input of classifier"),
    "GPT-2": (gpt2, text_data, "the output of transformer, pooled by mean"),
    "LoRA on BERT": (lora, text_data, "the output of base_model.model.bert, pooled by mean"),
}


def go(
    folder: Path, model: nn.Module, data: Dataset, steps: int = STEPS, resume: str | None = None, **given: Any
) -> tuple[Provenance, Trainer]:
    prov = attach(model, data, weight=given.pop("weight", 0.1), **given.pop("place", {}))
    plain: dict[str, Any] = {"save_strategy": "no", "per_device_train_batch_size": BATCH, "learning_rate": 1e-3}
    arguments = TrainingArguments(
        str(folder), max_steps=steps, report_to=[], use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False,
        logging_steps=1, **plain | given,
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, **prov.for_trainer())  # type: ignore[arg-type]
    trainer.train(resume_from_checkpoint=resume)
    return prov, trainer


def losses(trainer: Trainer) -> list[float]:
    return [float(row["loss"]) for row in trainer.state.log_history if "loss" in row]


@pytest.mark.parametrize("name", MODELS)
def test_fifty_steps(name: str, tmp_path: Path) -> None:
    make, open_, place = MODELS[name]
    data, model = open_(), make()
    prov, trainer = go(tmp_path, model, data)
    assert prov.at.startswith(place)
    found = losses(trainer)
    assert len(found) == STEPS and np.isfinite(found).all()
    run = prov.finish()
    assert prov.bank.count.sum() == STEPS * BATCH - (STEPS // (N // BATCH)) * (-N % BATCH)
    named = run.explain(data, k=2)
    assert named.index[:, 0].tolist() == [data.samples.equal(i)[0] for i in range(N)]
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    run.save(tmp_path / "run")
    given: dict[str, Any] = {"modality": data.modality} if data.items is not None else {}
    again = provnet.load(tmp_path / "run", model=model, **given)
    assert np.array_equal(again.explain(data, k=2).weight, named.weight)


@pytest.mark.parametrize("name", MODELS)
def test_a_finished_model(name: str) -> None:
    make, open_, _ = MODELS[name]
    data, model = open_(), make().eval()
    run = index(model, data)
    with torch.inference_mode():
        given = run.network.normalise(data.inputs[:7])
        due = (model(**given) if isinstance(given, dict) else model(given)).logits
        assert torch.equal(run.network(data.inputs[:7]).logits, due)


def test_a_detector_is_refused_in_words_or_names_pictures_without_labels() -> None:
    """It gives scores of every box, no class of the picture; what it makes of whole pictures can be compared."""
    data = picture_data()
    with pytest.raises(UsageError, match="class scores are one row for each sample"):
        attach(yolos(), data)
    bare = provnet.open_data(data.images)
    with pytest.raises(UsageError, match=r"no labels and the model gives .*name the layer whose output are the feat"):
        index(yolos(), bare)
    run = index(yolos(), bare, at="vit", pool="mean")
    found = run.explain(bare, k=1)
    assert found.index[:, 0].tolist() == list(range(N))
    assert found[0].predicted == "" and found[0].exemplars[0].sample_id == "train/0"


def test_the_trainer_on_samples_without_labels(tmp_path: Path) -> None:
    """Their index is no label: the model is given none, and learns what its owner says."""

    class Owner(nn.Module):
        main_input_name = "pixel_values"

        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 8))

        def forward(self, pixel_values: torch.Tensor) -> Any:
            made = self.encoder(pixel_values)
            return {"loss": made.var(), "made": made}

    bare, model = provnet.open_data(picture_data().images), Owner()
    prov, _ = go(tmp_path, model, bare, place={"at": "encoder"})
    run = prov.finish()
    assert run.explain(bare, k=1).index[:, 0].tolist() == list(range(N)) and run.history is None


@pytest.mark.parametrize(
    "given",
    [{"at": "bert.encoder.layer.0", "pool": "cls"}, {"at": "bert.encoder", "pool": "last"}, {"groups": "class"}],
)
def test_other_places_and_groups(given: dict[str, Any], tmp_path: Path) -> None:
    prov, _ = go(tmp_path, bert(), text_data(), place=given)
    found = prov.finish().explain(text_data(), k=3)
    if "groups" in given:
        assert (found.label == found.predicted[:, None]).all()
    assert prov.at.endswith(given.get("pool", "pooled by mean"))


def test_two_processes_of_the_trainer(tmp_path: Path) -> None:
    """Every process has a part of each step; all of them have all keys."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1", "-m", __name__, str(tmp_path)]
    given = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "ACCELERATE_USE_CPU": "true"}
    ended = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    one, two = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert int(one["count"].sum()) == 2 * 12 * BATCH  # twelve steps
    assert one["first"].tolist() == list(range(N))


def test_the_trainers_loss_is_the_models_and_ours(tmp_path: Path) -> None:
    alone = losses(go(tmp_path / "a", bert(), text_data(), steps=20, weight=0)[1])
    again = losses(go(tmp_path / "b", bert(), text_data(), steps=20, weight=0)[1])
    both = losses(go(tmp_path / "c", bert(), text_data(), steps=20, weight=1.0)[1])
    assert alone == again
    first = N // BATCH
    assert alone[:first] == both[:first]  # no keys yet
    assert np.mean(both[first:]) > np.mean(alone[first:]) + 0.2


@pytest.mark.parametrize(
    "given",
    [
        {"gradient_accumulation_steps": 2},
        {"bf16": True},
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
        {"torch_compile": True, "torch_compile_backend": "aot_eager"},
        {"remove_unused_columns": False},
        {"dataloader_num_workers": 2},
        {"dataloader_drop_last": True},
        {"label_smoothing_factor": 0.1},
    ],
)
def test_what_the_trainer_can_be_told(given: dict[str, Any], tmp_path: Path) -> None:
    if "label_smoothing_factor" in given:
        with pytest.raises(UsageError, match="the model gives no loss"):
            go(tmp_path, bert(), text_data(), steps=2, **given)
        return
    prov, trainer = go(tmp_path, bert(), text_data(), **given)
    assert np.isfinite(losses(trainer)).all()
    assert len(prov.finish().explain(text_data(), k=1)) == N


def test_the_index_loss_of_accumulated_batches_is_that_of_one_large_batch(tmp_path: Path) -> None:
    """Whatever the model's own loss does: that of BERT is added up over the batches of a step, by the Trainer."""
    ours = []
    for batch, times in ((BATCH, 2), (2 * BATCH, 1)):
        found = []
        for weight in (1.0, 0.0):
            model, data = bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), text_data()
            prov = attach(model, data, weight=weight)
            keys = torch.randn(N, 32, generator=torch.Generator().manual_seed(3))
            if weight:
                prov.bank.keys.copy_(nn.functional.normalize(keys, dim=1))
            prov.bank.count += 1
            prov.bank._learn = lambda _: None  # type: ignore[method-assign]  # nor statistics
            prov.bank.settle = lambda **_: None  # type: ignore[method-assign]  # keys move between two parts of a step
            arguments = TrainingArguments(
                str(tmp_path), max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=1,
                per_device_train_batch_size=batch, gradient_accumulation_steps=times, save_strategy="no",
                dataloader_pin_memory=False,
            )  # fmt: skip
            trainer = Trainer(model=model, args=arguments, **prov.for_trainer())  # type: ignore[arg-type]
            trainer.train()
            found += losses(trainer)
        ours.append(found[0] - found[1])
    assert ours[0] == pytest.approx(ours[1], abs=2e-3)  # the Trainer logs four digits
    assert ours[0] > 1


def test_a_training_goes_on_from_the_trainers_own_checkpoint(tmp_path: Path) -> None:
    data = text_data()
    whole, _ = go(tmp_path / "whole", bert(), data, save_strategy="steps", save_steps=25)
    part, _ = go(tmp_path / "whole", bert(), data, resume=str(tmp_path / "whole/checkpoint-25"))
    one, two = whole.state_dict(), part.state_dict()
    assert torch.equal(one["count"], two["count"])
    torch.testing.assert_close(one["keys"], two["keys"], atol=1e-4, rtol=0)
    part.finish()


def test_a_checkpoint_without_keys_is_refused(tmp_path: Path) -> None:
    data = text_data()
    go(tmp_path, bert(), data, steps=10, save_strategy="steps", save_steps=5)
    (tmp_path / "checkpoint-5/provenance.safetensors").unlink()
    with pytest.raises(IntegrityError, match="nobody knows what was seen"):
        go(tmp_path, bert(), data, steps=10, resume=str(tmp_path / "checkpoint-5"))


def test_a_data_set_without_the_index_is_refused(tmp_path: Path) -> None:
    data, model = text_data(), bert()
    prov = attach(model, data)
    arguments = TrainingArguments(str(tmp_path), max_steps=2, report_to=[], use_cpu=True, disable_tqdm=True)
    rows = [{"input_ids": [5, 6, 7], "labels": 0}] * 16
    given = prov.for_trainer() | {"train_dataset": rows}
    with pytest.raises(UsageError, match="has no column index"):
        Trainer(model=model, args=arguments, **given).train()  # type: ignore[arg-type]


def test_a_model_that_peft_wraps_after_it_was_attached(tmp_path: Path) -> None:
    """What peft puts into the model lies where it was attached: the run answers as the wrapped model does."""
    model, data = bert(), text_data()
    prov = attach(model, data)
    wrapped = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query"]))  # type: ignore[arg-type]
    arguments = TrainingArguments(
        str(tmp_path), max_steps=N // BATCH, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
        per_device_train_batch_size=BATCH, learning_rate=1e-2,
    )  # fmt: skip
    Trainer(model=wrapped, args=arguments, **prov.for_trainer()).train()  # type: ignore[arg-type]
    run = prov.finish()
    with torch.inference_mode():
        due = wrapped.eval()(**run.network.normalise(data.inputs[:7])).logits
        assert torch.equal(run.network(data.inputs[:7]).logits, due)


def test_a_data_set_of_hugging_face_is_opened_as_it_is() -> None:
    found, labels = texts()
    features = datasets.Features(
        {
            "uid": datasets.Value("string"),
            "sentence": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["without", "with"]),
            "rating": datasets.Value("int32"),
        }
    )
    columns = {"uid": [f"u{i}" for i in range(N)], "sentence": found, "label": labels, "rating": [3] * N}
    given = datasets.Dataset.from_dict(columns, features=features)
    own = Text(tokenizer(), length=16)
    data = provnet.open_data(given, ids="uid", modality=own)
    assert data.class_names == ("without", "with")
    assert data.samples.sample_ids[:2] == ("u0", "u1")
    assert list(data.items or ()) == found and data.labels.tolist() == labels
    assert (data.samples.sha256 == text_data().samples.sha256).all()
    rated = provnet.open_data(given, "rating", ids="uid", modality=own)
    assert rated.class_names == ("3",)
    with pytest.raises(UsageError, match=r"this holds train; open one of them, such as source\['train'\]"):
        provnet.open_data(datasets.DatasetDict({"train": given}), modality=own)
    with pytest.raises(UsageError, match="which column holds the pictures"):
        provnet.open_data(given)
    with pytest.raises(UsageError, match="there is no column stars; there are uid, sentence"):
        provnet.open_data(given, "stars", modality=own)
    with pytest.raises(UsageError, match="3 columns of type string"):
        more = given.add_column("first", found).add_column("second", found).remove_columns("uid")
        provnet.open_data(more.rename_column("sentence", "third"), modality=own)


def test_pictures_of_hugging_face() -> None:
    plain = picture_data()
    pictures = [Image.fromarray(one[0].numpy()) for one in plain.images[:20]]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list("abcdefghij"))})
    given = datasets.Dataset.from_dict({"image": pictures, "label": plain.labels[:20].tolist()}, features=features)
    data = provnet.open_data(given)
    assert torch.equal(data.images, plain.images[:20])
    assert data.class_names == tuple("abcdefghij")


def in_company(folder: Path) -> None:
    """What each of several processes does for `test_two_processes_of_the_trainer`."""
    data = text_data()
    prov, _ = go(folder / "trainer", bert(), data, steps=12, ddp_backend="gloo")
    run = prov.finish()
    first = torch.from_numpy(run.explain(data, k=1).index[:, 0])
    tensors = {"keys": run.network.index_head.keys, "count": torch.from_numpy(prov.bank.count), "first": first}
    save_file({name: one.contiguous() for name, one in tensors.items()}, folder / f"{os.environ['RANK']}.safetensors")


if __name__ == "__main__":
    in_company(Path(sys.argv[1]))
