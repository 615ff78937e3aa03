"""Reading a page back with the standard library's parser: elements, attributes, text."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str, css_class: str = "") -> list[dict[str, str]]:
        return [
            a for name, a in self.elements if name == tag and (not css_class or css_class in a.get("class", "").split())
        ]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def assert_self_contained(source: str) -> Page:
    """One well-formed page that loads nothing, runs nothing and has only elements of ours."""
    source.encode("utf-8")
    page = Page(source)
    assert page.unbalanced == []
    assert page.open == []
    assert "://" not in source
    assert "url(" not in source
    assert "@import" not in source
    for tag, attributes in page.elements:
        assert tag in OURS, tag
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "srcset", "action", "data", "xlink:href"):
                inside = ("#",) if tag == "a" else ("data:image/png;base64,", "data:image/jpeg;base64,", "data:,")
                assert value.startswith(inside), (tag, name, value[:40])
    return page


OURS = {
    *("html", "head", "meta", "link", "title", "style", "body", "main", "header", "footer", "section", "article"),
    *("div", "span", "p", "h1", "h2", "h3", "h4", "b", "i", "bdi", "em", "strong", "code", "ol", "ul", "li"),
    *("dl", "dt", "dd", "figure", "img", "svg", "path", "rect", "line", "circle", "text"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "fieldset", "legend", "label", "input"),
}
