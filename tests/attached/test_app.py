"""The web app on a run that is attached: requests in company do not read each other's features, and jobs are done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from provnet.attached.provenance import attach
from provnet_app.served import Served
from tests.app.made import digit, digits, serving
from tests.attached.made import cnn, train


def test_it_is_served() -> None:
    data, test, model = digits("train", 80), digits("test", 60), cnn(len(digits("train", 80).class_names))
    prov = attach(model, data)
    train(model, prov, epochs=3)
    run = prov.finish()
    due = run.explain(test.images[:12], k=3)
    with serving(Served(run, "own", training=data, index=np.arange(len(data)), test=test)) as live:
        with ThreadPoolExecutor(12) as pool:
            found = list(pool.map(lambda i: live.send("/explain?k=3", digit(i)).json(), range(12)))
        for row, one in enumerate(found):
            expected = due.one(row)
            assert one["predicted"]["label"] == expected.predicted
            assert [e["sha256"] for e in one["exemplars"]] == [e.sha256 for e in expected.exemplars]
            weights = [e.weight for e in expected.exemplars]
            assert [e["weight"] for e in one["exemplars"]] == pytest.approx(weights, abs=1e-3)
        for name in ("scores", "map"):
            live.wait(name)
