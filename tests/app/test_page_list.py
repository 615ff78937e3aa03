"""The list of samples behind the view Data, with a server whose answers come when the test says so."""

from __future__ import annotations

from playwright.sync_api import Page

from .browser import open_view
from .made import Live

LIST = """async (act) => {
  const { sampleList } = await import("/static/js/parts/sample_list.js");
  const replies = [];
  const get = (path, { offset, limit }) => new Promise((ok, fails) => replies.push({
    fails: () => fails(new Error("503")),
    of(total) {
      const n = Math.max(0, Math.min(limit, total - offset));
      ok({ total, scores: false, items: Array.from({ length: n }, (_, i) => 251 - total + offset + i) });
    },
  }));
  const list = sampleList({ get }, {}, () => {}, () => {});
  const soon = () => new Promise((done) => setTimeout(done, 0));
  return act(list, replies, soon);
}"""


def told(live: Live, page: Page, act: str) -> object:
    open_view(page, live, "#/run")
    return page.evaluate(f"({LIST})({act})")


def test_samples_that_are_taken_while_the_list_shrinks_are_not_others(live: Live, page: Page) -> None:
    act = """async (list, replies, soon) => {
      const total = list.reload(); replies[0].of(250); await total;
      const all = list.take([...Array(250).keys()]).then((found) => found.length, (error) => error.message);
      await soon(); replies[1].of(250);
      await soon(); replies[2].of(249); // one of the list was decided about: those behind it moved up
      return all;
    }"""
    assert told(live, page, act) == "The list has changed meanwhile; select them again."
    whole = act.replace("of(249)", "of(250)")
    assert told(live, page, whole) == 250


def test_a_page_that_was_asked_for_before_a_reload_that_failed_is_asked_for_again(live: Live, page: Page) -> None:
    act = """async (list, replies, soon) => {
      list.want([0]);
      const total = list.reload().catch(() => {});
      replies[0].of(250); replies[1].fails(); await total; await soon();
      list.want([0]);
      replies[2]?.of(250); await soon();
      return [replies.length, list.item(7)];
    }"""
    assert told(live, page, act) == [3, 8]
