"""Hooks of mkdocs: links to files outside of docs/ lead to the repository."""

import posixpath
import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
# Without this, pages that name everything would come first in every search. So would
# pages whose titles have words that begin with an "a", because the search completes
# each word that is typed.
BOOST = {
    "apps.md": 0.5,
    "authentication.md": 0.5,
    "index.md": 0.3,
    "internals.md": 0.2,
    "migrating.md": 0.4,
    "openapi.md": 0.2,
    "tier.md": 0.2,
}
REFERENCE_BOOST = 0.3
LINK = re.compile(r"(!?)(\[[^]]*\]\()(\.\./[^)\s]+)(\))")


def repository() -> str:
    """Return the URL of the repository, from the package's metadata."""
    setup = ConfigParser()
    setup.read(PROJECT / "setup.cfg", encoding="utf-8")
    return setup.get("metadata", "url", fallback="").rstrip("/")


def on_config(config: Any) -> Any:  # noqa: ANN401
    """Link to the repository at the end of each page."""
    link = {
        "icon": "material/source-repository",
        "link": repository(),
        "name": "Source code",
    }
    config.extra["social"] = [link]
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401
    """Rank a page in the search, and rewrite its links that leave the folder."""
    folder = posixpath.dirname(page.file.src_uri)
    boost = REFERENCE_BOOST if folder else BOOST.get(page.file.src_uri, 1)
    page.meta["search"] = {"boost": boost}

    def rewrite(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link[3]))
        if path.startswith("docs/"):
            return link[0]
        view = "raw" if link[1] else "blob"
        return f"{link[1]}{link[2]}{repository()}/{view}/main/{path}{link[4]}"

    return LINK.sub(rewrite, markdown)
