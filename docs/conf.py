"""The documentation site: `make docs` builds it from the Markdown of this folder.

The pages are written to be read as they are. What only the site needs, its tree of pages, is made here from index.md:
each second heading there is a part of the tree, and its links are its pages, in order and under their labels.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

import provnet

project = "provnet"
author = "the authors of provnet"
project_copyright = author
version = release = provnet.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"provnet {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"source_view_link": None, "navigation_with_keys": True}
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

myst_heading_anchors = 4
myst_links_external_new_tab = False
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_in_temp = True
nb_merge_streams = True

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_use_ivar = True


def trees(text: str) -> str:
    """The hidden tree of pages that index.md describes."""
    parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    found = []
    for caption, body in zip(parts[1::2], parts[2::2], strict=True):
        links = re.findall(r"\[([^\]]+)\]\(((?!\.\.)[\w/-]+)\.md\)", body)
        pages = dict.fromkeys(f"{label} <{page}>" for label, page in links)
        found.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]))
    return "\n\n".join(found)


def prepare(app: Sphinx, name: str, content: list[str]) -> None:
    """Add the tree of pages to the first page; name files outside of this folder instead of linking to them."""
    if name == "index":
        content[0] += "\n" + trees(content[0])
    here = (Path(app.srcdir) / name).parent

    def named(link: re.Match[str]) -> str:
        label, target = link[1], (here / link[2]).resolve()
        if target.is_relative_to(app.srcdir) or not target.exists():
            return link[0]
        path = f"`{target.relative_to(Path(app.srcdir).parent)}`"
        return path if label.strip("`") == target.name else f"{label} ({path})"

    content[0] = re.sub(r"(?<!!)\[([^\]\[]+)\]\(([^)#\s:]+)(?:#[^)]*)?\)", named, content[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", prepare)
