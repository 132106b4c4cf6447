"""Apps: pages that a host shows in place of the text of a tool's result.

A page is a resource with a URI such as `ui://clock/main`. A tool refers to its page.
The host loads the page into a sandbox, passes the result to it, and lets it call tools.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from ..protocol.extensions import APP_MIME_TYPE, APPS
from ..protocol.revisions import Revision
from ..protocol.sanitize import strip_controls
from ..protocol.types import Json, Tool
from ..server.app import Server
from ..server.exceptions import ConfigurationError
from ..server.features.tools import ServerTool, is_page_uri
from .base import Extension

# The permissions that a page may request from the browser.
Permission = Literal["camera", "microphone", "geolocation", "clipboardWrite"]
PERMISSIONS: tuple[str, ...] = get_args(Permission)


class Csp(TypedDict, total=False):
    """The origins that a page may use. Hosts block all others.

    Keys:

    - `connectDomains`: origins that the page may request data from
    - `resourceDomains`: origins of scripts, styles, images and fonts
    - `frameDomains`: origins of frames
    - `baseUriDomains`: origins that a `<base>` element may name
    """

    connectDomains: list[str]
    resourceDomains: list[str]
    frameDomains: list[str]
    baseUriDomains: list[str]


class Apps(Extension):
    """Tools with pages. A server that has one declares this extension automatically."""

    identifier = APPS

    def list_tool(
        self, tool: ServerTool, listed: Tool, revision: Revision, is_declared: bool
    ) -> Tool | None:
        """Hide tools that only pages may call from hosts without support for apps.

        Such a host would offer them to the model. The pages of other tools are listed
        for all clients: some hosts show them without declaring the extension, and other
        clients ignore them.
        """
        described = _ui_of(listed)
        if "model" in described.get("visibility", ("model", "app")):
            return listed
        has_meta = "_meta" in revision.table[Tool]
        return listed if is_declared and has_meta else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Check that each tool's page exists."""
        for tool in list(self.server.tools.values()):
            uri = _ui_of(tool.listed).get("resourceUri")
            if uri is not None and not self._has_page(uri):
                raise ConfigurationError(
                    f"{tool.label}: the page {uri!r} does not exist; add it with "
                    f"server.ui({uri!r}, html=...)"
                )
        yield

    def _has_page(self, uri: str) -> bool:
        """Return whether a page exists, as a resource or by a template."""
        if uri in self.server.resources:
            return True
        templates = list(self.server.templates.values())
        return any(item.template.match(uri) is not None for item in templates)


def add_page(
    server: Server[Any],
    uri: str,
    html: str | Path | Callable[..., Any],
    *,
    name: str | None,
    title: str | None,
    description: str | None,
    csp: Csp | None,
    permissions: Iterable[Permission],
    domain: str | None,
    prefers_border: bool | None,
) -> None:
    """Add a page to a server: see `Server.ui`."""
    if not is_page_uri(uri):
        raise ValueError(
            f"server.ui: expected a URI such as 'ui://clock/main', got {uri!r}"
        )
    described = _page_meta(uri, csp, permissions, domain, prefers_border)
    meta = {"ui": described} if described else None
    function = html if callable(html) else _reader(server, uri, html)
    server.add_resource(
        uri,
        function,
        name=name or uri.removeprefix("ui://"),
        title=title,
        description=description,
        mime_type=APP_MIME_TYPE,
        meta=meta,
        contents_meta=meta,
    )


def _ui_of(listed: Tool) -> Json:
    """Return a tool's settings for apps, from its `_meta`."""
    described = (listed.meta or {}).get("ui")
    return described if isinstance(described, dict) else {}


def _page_meta(
    uri: str,
    csp: Csp | None,
    permissions: Iterable[str],
    domain: str | None,
    prefers_border: bool | None,
) -> Json:
    """Return a page's settings, for its `_meta`."""
    described: Json = {}
    if csp is not None:
        described["csp"] = _checked_csp(uri, csp)
    wanted = [permissions] if isinstance(permissions, str) else list(permissions)
    for permission in wanted:
        if permission not in PERMISSIONS:
            raise ValueError(
                f"server.ui({uri!r}, permissions): expected some of "
                f"{', '.join(PERMISSIONS)}, got {permission!r}"
            )
    if wanted:
        described["permissions"] = {permission: {} for permission in wanted}
    if domain is not None:
        described["domain"] = domain
    if prefers_border is not None:
        described["prefersBorder"] = prefers_border
    return described


def _checked_csp(uri: str, csp: Csp) -> Json:
    checked: Json = {}
    for name, origins in csp.items():
        if name not in Csp.__annotations__:
            raise ValueError(
                f"server.ui({uri!r}, csp): expected the keys "
                f"{', '.join(Csp.__annotations__)}, got {name!r}"
            )
        if not _are_strings(origins):
            raise TypeError(
                f"server.ui({uri!r}, csp): expected a list of origins for {name}, got "
                f"{origins!r}"
            )
        checked[name] = origins
    return checked


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _reader(server: Server[Any], uri: str, html: str | Path) -> Callable[..., Any]:
    """Return a function that returns a page, given as a string or a file."""
    if isinstance(html, str) and "<" not in html:
        raise ValueError(
            f"server.ui({uri!r}, html): expected an HTML document, got {html!r}; for a "
            "file, use pathlib.Path"
        )
    if not isinstance(html, str | Path):
        raise TypeError(
            f"server.ui({uri!r}, html): expected a string, a Path or a function, got "
            f"{html!r}"
        )
    text = html if isinstance(html, str) else html.read_text(encoding="utf-8")
    page = _as_contents(text)

    async def read_page() -> str | bytes:
        return page

    def read_file_again() -> None:
        nonlocal page
        assert isinstance(html, Path)
        page = _as_contents(html.read_text(encoding="utf-8"))
        server.resource_updated(uri)

    if isinstance(html, Path):
        server.watched[html.resolve()] = read_file_again
    return read_page


def _as_contents(text: str) -> str | bytes:
    """Return a page as bytes if it has control characters, which text cannot have."""
    return text if strip_controls(text) == text else text.encode()
