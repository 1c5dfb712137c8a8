"""A hook for MkDocs: pages outside docs/, and links between them and the others.

README.md becomes the first page of the site, and ARCHITECTURE, CONTRIBUTING and CHANGELOG become pages. Links in the
sources are for readers of the repository. The hook turns each link into the link to the same page of the site. A link
to a file that the site does not have becomes plain text. mkdocs.yml names this file.
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
    """Add the pages whose sources are beside docs/."""
    from mkdocs.structure.files import File  # It belongs to the extra docs, which the tests don't need.

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: Any) -> str:
    """Replace the links of one page by links to pages of the site."""
    place = page.file.src_uri
    source = SOURCES.get(place, f"docs/{place}")
    known = {file.src_uri for file in files}
    return relinked(markdown, source, place, known)


def relinked(markdown: str, source: str, place: str, known: set[str]) -> str:
    """Return the text of the file `source` with the links that the page `place` of the site needs."""

    def link(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        wanted = PAGES.get(path, path.removeprefix("docs/"))
        if wanted not in known or (path not in PAGES and not path.startswith("docs/")):
            return str(text)
        return f"{mark}[{text}]({posixpath.relpath(wanted, posixpath.dirname(place) or '.')}{anchor or ''})"

    return LINK.sub(link, markdown)
