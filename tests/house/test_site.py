"""The site that `make docs` builds has every page, and links that lead to pages of the site."""

from __future__ import annotations

import re

from site_pages import PAGES, relinked

KNOWN = {"index.md", "architecture.md", "commands.md", "spec/acks.md", "examples/compose.yaml"}


def test_every_page_stands_in_the_navigation(root):
    """Readers would find a page that is in no menu only by search."""
    nav = (root / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"[\w./-]+\.md", nav)
    pages = {page.relative_to(root / "docs").as_posix() for page in (root / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages | set(PAGES.values()))


def test_a_link_of_the_readme_leads_to_a_page_of_the_site():
    """docs/ is the root of the site, and files beside it have pages there."""
    text = "[a](docs/commands.md#acks) [b](ARCHITECTURE.md) ![c](docs/examples/compose.yaml)"
    assert relinked(text, "README.md", "index.md", KNOWN) == (
        "[a](commands.md#acks) [b](architecture.md) ![c](examples/compose.yaml)"
    )


def test_a_link_out_of_docs_leads_to_a_page_of_the_site():
    """Pages of docs/ keep their places, one folder nearer to the root."""
    text = "[a](../../README.md) [b](../commands.md)"
    assert relinked(text, "docs/spec/acks.md", "spec/acks.md", KNOWN) == "[a](../index.md) [b](../commands.md)"


def test_a_link_to_a_file_without_a_page_becomes_its_text():
    """The configuration file is part of the repository, not of the site."""
    assert relinked("see [it](../conf/disque.conf)", "docs/config.md", "config.md", KNOWN) == "see it"
