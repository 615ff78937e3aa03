"""Train on a folder of pictures, then move and edit the files: explanations still name the right samples.

    python examples/folder_of_pictures.py

Makes its own folder from the digits that come with provnet, one folder a class, as your own pictures would lie.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import provnet
from provnet.data.compare import compare
from provnet.data.evidence import evidence
from provnet.data.select import holdout


def write_pictures(folder: Path, limit: int) -> None:
    """Some embedded digits as PNG files: folder/7/train-17.png."""
    data = provnet.open_data("embedded", limit=limit)
    for image, label, name in zip(data.images, data.labels.tolist(), data.samples.sample_ids, strict=True):
        path = folder / data.class_names[label] / f"{name.replace('/', '-')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(path)


def main(epochs: int | None = None, limit: int = 500) -> None:
    """Train on a folder, change the folder, explain again; `epochs` and `limit` make it smaller."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "pictures"
        write_pictures(folder, limit)

        train, test = holdout(provnet.open_data(folder), 0.1)  # a tenth of each class, chosen by content
        model = provnet.ProvenanceClassifier(epochs=epochs, batch_size=32).fit(train)
        print(f"trained on {len(train)} pictures, {len(test)} held out, accuracy {model.score(test):.3f}")

        explanation = model.explain(test.images[:1], k=2)
        one = explanation.one(0)
        first, second = one.exemplars
        print(f"{test.samples.sample_ids[0]} is a {one.predicted} because of {first.path} and {second.path}")

        moved = folder.rename(Path(place) / "elsewhere")
        (moved / first.path).rename(moved / first.label / "renamed.png")  # the same picture under another name
        Image.fromarray(np.zeros((28, 28), np.uint8)).save(moved / second.path)  # another picture under the same name

        now = provnet.open_data(moved)  # all of it: the held-out pictures count as added
        for line in compare(model.run_.samples, now.samples).lines():
            print("data:", line)
        shown = evidence(model.run_.samples, now, explanation.index[0])
        for exemplar, found in zip((first, second), shown, strict=True):
            print(f"{exemplar.sample_id}: {'picture found, bytes as trained on' if not found.note else found.note}")


if __name__ == "__main__":
    main()
