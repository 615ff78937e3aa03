"""Ours and nearest neighbours, in the form that `peers.py` compares."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from debug_baselines import knn_disagreement
from knn import K, by_index, on_pixels, unit_features
from peers_cnn import Subject, features
from peers_methods import Method
from torch import Tensor

from provnet.answers.attributor import explain
from provnet.heads.retrieval import top_k
from provnet.runs.run import Run


def ours(run: Run, weights: str) -> Method:
    """The index branch; the scores are the weights of all samples."""
    n = len(run.samples.labels)

    def scores(images: Tensor) -> np.ndarray:
        found = explain(run, images, k=n, weights=weights)
        out = np.zeros((len(images), n))
        np.put_along_axis(out, found.index, found.weight, axis=1)
        return out

    return Method(by_index(run, weights), scores)


def our_logarithms(run: Run) -> Method:
    """The same before the softmax: cosines with the keys, in which small weights count as well."""
    net = run.network.eval()

    def scores(images: Tensor) -> np.ndarray:
        with torch.inference_mode():
            found = net(images)
            by_row = net.index_head(found.index_features, found.classes)
        return np.asarray(by_row[:, net.index_head.rows].numpy())

    return Method(by_index(run, "plain"), scores)


def nearest_pixels(train: Tensor, labels: np.ndarray) -> Method:
    """Euclidean distance of pixels; scores are minus its square."""
    keys = train.flatten(1).float() / 255

    def scores(images: Tensor) -> np.ndarray:
        return np.asarray(-torch.cdist(images.flatten(1).float() / 255, keys).square().numpy())

    return Method(on_pixels(train), scores, lambda: knn_disagreement(F.normalize(keys, dim=1), labels))


def nearest_features(subject: Subject) -> Method:
    """Cosine of the features before the last layer of the plain CNN."""
    keys = features(subject.net, subject.inputs)

    def asked(images: Tensor) -> Tensor:
        return features(subject.net, subject.prepared(images))

    return Method(
        lambda images: np.asarray(top_k(asked(images), keys, K).row.numpy()),
        lambda images: np.asarray((asked(images) @ keys.T).numpy()),
        lambda: knn_disagreement(keys, subject.labels.numpy()),
    )


def nearest_of_ours(run: Run, train: Tensor) -> Method:
    """Cosine of the backbone's features of our network, without its index branch."""
    features_of = unit_features(run)
    keys = features_of(train)
    return Method(
        lambda images: np.asarray(top_k(features_of(images), keys, K).row.numpy()),
        lambda images: np.asarray((features_of(images) @ keys.T).numpy()),
    )
