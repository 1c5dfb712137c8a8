"""A hook for MkDocs: pages that lie outside docs/, and links between them and the others.

README.md becomes the first page of the site, and ARCHITECTURE, CONTRIBUTING and CHANGELOG get pages of their own. A
link is written for readers of the repository. Here it is turned into the link that leads to the same page of the site.
A link to a file that the site does not have becomes its text. mkdocs.yml names this file.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
SOURCES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages whose sources lie beside docs/."""
    from mkdocs.structure.files import File  # Of the extra docs; the tests go without.

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: Any) -> str:
    """Make the links of one page lead to pages of the site."""
    place = page.file.src_uri
    source = SOURCES.get(place, f"docs/{place}")
    known = {file.src_uri for file in files}
    return relinked(markdown, source, place, known)


def relinked(markdown: str, source: str, place: str, known: set[str]) -> str:
    """Return a page's text with the links of the file `source` as they must be on the page `place` of the site."""

    def link(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        wanted = PAGES.get(path, path.removeprefix("docs/"))
        if wanted not in known or (path not in PAGES and not path.startswith("docs/")):
            return str(text)
        return f"{mark}[{text}]({posixpath.relpath(wanted, posixpath.dirname(place) or '.')}{anchor or ''})"

    return LINK.sub(link, markdown)
