"""An HTTP API as tools: the issues of a project, from any API that is like GitHub's.

    API=https://api.github.com/repos/python-trio/trio python -m mcp_trio run examples/http_api.py

Without API it serves a small sample, so that it works offline. TOKEN is sent as a bearer token. One client, with its
pool of connections, lives as long as the server.
"""

import os
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, TypeVar

import httpx
import msgspec
from msgspec import Meta, Struct

from mcp_trio import Context, ResourceNotFound, Server, ToolAnnotations, ToolError

API = os.environ.get("API", "")
TOKEN = os.environ.get("TOKEN", "")
SECONDS = 10

if API and not API.startswith(("http://", "https://")):
    sys.exit(f"API={API}: expected a URL such as https://api.github.com/repos/me/mine")


class Issue(Struct):
    """An issue."""

    number: int
    title: str
    state: str


class IssueWithText(Issue):
    """An issue with its text."""

    body: str | None = None


SAMPLE: list[dict[str, Any]] = [
    {"number": 1, "title": "It is slow", "state": "closed", "body": "Use an index."},
    {"number": 2, "title": "It is too fast", "state": "open", "body": "I blinked."},
]


def sample(request: httpx.Request) -> httpx.Response:
    """Answer as the API would, from the sample."""
    if request.url.path == "/issues":
        state = request.url.params["state"]
        found = [issue for issue in SAMPLE if issue["state"] == state]
        return httpx.Response(200, json=found)
    for issue in SAMPLE:
        if request.url.path == f"/issues/{issue['number']}":
            return httpx.Response(200, json=issue)
    return httpx.Response(404)


async def open_client() -> AsyncIterator[httpx.AsyncClient]:
    """Keep one client for all requests."""
    async with httpx.AsyncClient(
        base_url=API or "http://sample",
        headers={"Authorization": f"Bearer {TOKEN}"} if TOKEN else {},
        timeout=SECONDS,
        transport=None if API else httpx.MockTransport(sample),
    ) as client:
        yield client


server: Server[httpx.AsyncClient] = Server("issues", lifespan=open_client)
T = TypeVar("T")


async def fetch(
    client: httpx.AsyncClient, path: str, type: type[T], **query: str | int
) -> T | None:
    """Return what the API has under a path, or None if it has nothing there.

    Raises ToolError, which tells the model what went wrong.
    """
    try:
        response = await client.get(path, params=query)
    except httpx.TimeoutException:
        raise ToolError(f"The API did not answer within {SECONDS} s") from None
    except httpx.HTTPError as problem:
        raise ToolError(f"The API cannot be reached: {problem}") from None
    if response.status_code == 404:
        return None
    if response.status_code in (403, 429):
        wait = response.headers.get("Retry-After", "60")
        raise ToolError(f"The API refuses more requests; try again in {wait} s")
    if not response.is_success:
        raise ToolError(f"The API answered with the status {response.status_code}")
    try:
        return msgspec.json.decode(response.content, type=type)
    except msgspec.DecodeError as problem:
        raise ToolError(f"The API answered with something else: {problem}") from None


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def list_issues(
    ctx: Context[httpx.AsyncClient],
    state: Literal["open", "closed"] = "open",
    limit: Annotated[int, Meta(ge=1, le=100)] = 20,
) -> list[Issue]:
    """List issues, the newest first.

    Args:
        state: Whether to list open or closed issues
        limit: The most issues to list
    """
    found = await fetch(
        ctx.lifespan, "issues", list[Issue], state=state, per_page=limit
    )
    return found or []


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def get_issue(
    ctx: Context[httpx.AsyncClient], number: Annotated[int, Meta(ge=1)]
) -> IssueWithText:
    """Get an issue with its text.

    Args:
        number: The issue's number
    """
    issue = await fetch(ctx.lifespan, f"issues/{number}", IssueWithText)
    if issue is None:
        raise ToolError(f"There is no issue {number}; list_issues has the numbers")
    return issue


@server.resource("issue://{number}", mime_type="text/markdown")
async def issue_text(number: int, ctx: Context[httpx.AsyncClient]) -> str:
    """The text of an issue."""
    issue = await fetch(ctx.lifespan, f"issues/{number}", IssueWithText)
    if issue is None:
        raise ResourceNotFound(f"issue://{number}")
    return f"# {issue.title}\n\n{issue.body or ''}\n"


if __name__ == "__main__":
    server.run()
