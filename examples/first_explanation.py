"""A first explanation: train on the digits that come with provnet, ask about others, see which samples stand behind.

    python examples/first_explanation.py

About a minute on two cores. Leaves the run folder runs/first, which every command of `provnet` reads.
"""

from __future__ import annotations

from pathlib import Path

import provnet


def main(out: Path = Path("runs/first"), epochs: int | None = None, limit: int | None = None) -> None:
    """Train, explain three digits, save, load again; `epochs` and `limit` make it smaller."""
    data = provnet.open_data("embedded", limit=limit)
    test = provnet.open_data("embedded", split="test", limit=limit)

    model = provnet.ProvenanceClassifier(network="class-conditional", epochs=epochs).fit(data)
    print(f"accuracy on {len(test):,} unseen digits: {model.score(test):.4f}")

    for truth, e in zip(test.labels[:3].tolist(), model.explain(test.images[:3], k=3), strict=True):
        print(f"a {truth}: predicted {e.predicted}, confidence {e.confidence:.3f}, supported {e.supported}")
        for exemplar in e.exemplars:
            print(f"  {exemplar.weight:6.1%}  {exemplar.sample_id}  sha256 {exemplar.sha256[:12]}")

    model.save(out)
    again = provnet.load(out)
    print("loaded again, same answers:", bool((again.predict(test.images) == model.predict(test.images)).all()))


if __name__ == "__main__":
    main()
