"""What a notebook shows of explanations: all that names a sample, nothing that is withheld, no markup from a name."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from PIL import Image

from provnet.answers import attributor
from provnet.answers.attributor import explain
from provnet.answers.explanation import MOST_EXEMPLARS, MOST_INPUTS, Explanation
from provnet.report.records import ExemplarCard, ExplanationCard
from provnet.report.sheet import cards_html
from tests.cases import cases

from .digits import trained, training, unseen

ALLOWED = {"div", "strong", "code", "img"}


class Page(HTMLParser):
    """Tags, attributes and text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def pictures(self) -> list[np.ndarray]:
        uris = [str(attributes["src"]) for tag, attributes in self.tags if tag == "img"]
        return [np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))) for uri in uris]


def found(k: int = 3) -> Explanation:
    return explain(trained(), unseen().images, k=k)


def test_the_inputs_and_all_that_names_their_exemplars() -> None:
    few = found()[:2]
    page = Page(few._repr_html_())
    words = " ".join(page.text)
    for one in few:
        for x in one.exemplars:
            assert all(part in words for part in (x.label, x.sample_id, x.sha256[:12], f"{x.weight * 100:.1f} %"))
            assert any(attributes.get("title") == f"SHA-256 {x.sha256}" for _, attributes in page.tags)
    assert [picture.tolist() for picture in page.pictures] == unseen().images[:2, 0].tolist()
    assert "show(data)" in words
    assert few.show().html == few._repr_html_() == few.show()._repr_html_()


def test_pictures_of_exemplars_come_from_the_data_while_their_hash_fits() -> None:
    few, data = found()[:2], training()
    page = Page(few.show(data).html)
    named = [few.index[row] for row in range(2)]
    expected = [part for row in range(2) for part in (unseen().images[row], *data.images[named[row]])]
    assert [picture.tolist() for picture in page.pictures] == [part[0].tolist() for part in expected]
    assert "show(data)" not in " ".join(page.text)
    other = replace(data, images=data.images.clone())
    other.images[int(few.index[0, 0])] += 1
    changed = Page(few.show(other).html)
    assert len(changed.pictures) == len(page.pictures) - int((few.index == few.index[0, 0]).sum())
    assert "changed since training" in changed.text


def test_withheld_samples_are_never_shown() -> None:
    few = found()[:2]
    hidden = int(few.index[0, 0])
    withheld = np.zeros(len(few.samples), dtype=np.bool_)
    withheld[hidden] = True
    html = replace(few, samples=replace(few.samples, withheld=withheld)).show(training()).html
    page = Page(html)
    words = [text.strip() for text in page.text]
    assert few.samples.sample_ids[hidden] not in words
    assert few.samples.hex(hidden)[:12] not in html
    assert "1 withheld, not shown" in words
    assert training().images[hidden, 0].tolist() not in [picture.tolist() for picture in page.pictures]
    assert few.samples.sample_ids[int(few.index[0, 1])] in words


def test_a_page_stays_short_and_says_what_it_leaves_out() -> None:
    every = explain(trained("single"), unseen().images, k=40)
    page = Page(every.show().html)
    assert len(page.pictures) == MOST_INPUTS < len(every)
    assert sum(tag == "code" for tag, _ in page.tags) == MOST_INPUTS * MOST_EXEMPLARS
    assert f"{len(every) - MOST_INPUTS} more inputs, not shown: slice the explanation" in page.text
    assert f"{MOST_INPUTS * (40 - MOST_EXEMPLARS)} more exemplars of those inputs, not shown" in page.text
    assert not any("not shown" in text for text in Page(found()[:2].show().html).text)


def test_some_of_the_inputs_keep_their_pictures() -> None:
    for rows in (slice(4, 8), slice(None, None, -7), np.array([3, 3, 0]), np.arange(50) % 9 == 1):
        pictures = Page(found()[rows].show().html).pictures
        expected = unseen().images.numpy()[rows][:MOST_INPUTS, 0]
        assert [picture.tolist() for picture in pictures] == expected.tolist()


def test_where_there_are_no_pictures() -> None:
    few = replace(found()[:2], images=None)
    page = Page(few.show().html)
    assert page.pictures == []
    assert few.samples.sample_ids[int(few.index[0, 0])] in page.text
    assert Page(few[:0].show().html).pictures == []


def test_an_answer_without_support_says_so() -> None:
    few = found()[:2]
    words = ["no supporting sample" in replace(few, supported=np.array([yes, True]))._repr_html_() for yes in (0, 1)]
    assert words == [True, False]


@cases(
    "name",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' style='x",
        "a&lt;b",
        "http://a.example/x.png",
        "\x1b[2J",
        "a\u202eb",
        "p\udcff",
    ],
)
def test_no_name_becomes_markup(name: str) -> None:
    item = ExemplarCard(None, name, name, name, 0.5, name)
    card = ExplanationCard(None, name, name, 0.5, False, (item,))
    clean = ExemplarCard(None, "a", "a" * 64, "a", 0.5, "a")
    page = Page(cards_html([card], [name]))
    plain = Page(cards_html([replace(card, name="a", predicted="a", exemplars=(clean,))], ["a"]))
    drop = [(tag, {k: v for k, v in attributes.items() if k != "title"}) for tag, attributes in page.tags]
    assert drop == [(tag, {k: v for k, v in attributes.items() if k != "title"}) for tag, attributes in plain.tags]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", "".join(page.text))


def test_nothing_is_loaded_and_nothing_runs() -> None:
    page = Page(found().show(training()).html)
    assert {tag for tag, _ in page.tags} <= ALLOWED
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "href"]
        assert str(attributes.get("src", "data:image/png;base64,")).startswith("data:image/png;base64,")
        assert "url(" not in str(attributes.get("style"))


def test_float_inputs_and_vectors() -> None:
    queries = unseen().images[:2].float() / 255
    page = Page(explain(trained(), queries * 255, k=2).show().html)
    assert [picture.tolist() for picture in page.pictures] == unseen().images[:2, 0].tolist()
    vectors = replace(found()[:2], images=torch.zeros(2, 5))
    assert Page(vectors.show().html).pictures == []


def test_inputs_are_kept_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller may fill the same tensor with the next batch."""
    given = unseen().images[:2].clone()
    found = explain(trained(), given)
    before = found.show().html
    given.zero_()
    assert found.show().html == before
    monkeypatch.setattr(attributor, "MOST_BYTES", 100)
    assert explain(trained(), unseen().images[:2]).images is None
