"""The console in a real browser: calls, questions, cancellation, keyboard, themes."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from websockets.sync.client import ClientConnection

import mcp_trio
from mcp_trio.client import TASKS, connect
from tests.support.browser import Page, browser, contrast

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(mcp_trio.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
HOSTILE = (
    "<img src=x onerror='window.hurt=1'><script>window.hurt=2</script>\u202e</pre>"
)
EVERY_KIND = {
    "type": "object",
    "required": ["name", "count", "flag", "point"],
    "additionalProperties": False,
    "properties": {
        "name": {
            "type": "string",
            "title": "Your name",
            "description": "As it is written",
        },
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "text": {"type": "string", "default": "a\n b"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
        "share": {"type": "number", "exclusiveMinimum": 0},
        "flag": {"type": "boolean"},
        "maybe": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "moment": {"type": "string", "format": "date-time"},
        "mail": {"type": "string", "format": "email"},
        "colour": {"enum": ["red", "green", 3], "default": "green"},
        "size": {
            "oneOf": [
                {"const": "s", "title": "Small"},
                {"const": "l", "title": "Large"},
            ]
        },
        "always": {"const": 7},
        "tags": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
        "days": {
            "type": "array",
            "items": {"enum": ["Mon", "Tue"]},
            "uniqueItems": True,
        },
        "point": {"$ref": "#/$defs/Point"},
        "either": {
            "anyOf": [
                {"type": "integer", "title": "A number"},
                {"$ref": "#/$defs/Point"},
            ]
        },
        "free": {"type": "object", "additionalProperties": {"type": "integer"}},
        "tree": {"$ref": "#/$defs/Tree"},
    },
    "$defs": {
        "Point": {
            "type": "object",
            "properties": {
                "x": {"type": "number", "default": 1},
                "y": {"type": "number"},
            },
        },
        "Tree": {
            "type": "object",
            "properties": {
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
            },
        },
    },
}
SERVER = f"""
import json
from typing import Any
import trio
from mcp_trio import Audio, Context, EmbeddedResource, Image, ResourceLink, Server, Text, TextContents
from mcp_trio import ToolError, ToolResult
server = Server("kinds", title={HOSTILE!r}, instructions={HOSTILE!r})

@server.tool(input_schema=json.loads({json.dumps(json.dumps(EVERY_KIND))}))
async def every_kind(**given: Any) -> str:
    return json.dumps(given)

@server.tool
async def picky(name: str, inner: dict[str, list[int]] = {{}}) -> str:
    return name

@server.tool
async def exact(days: int) -> str:
    if days > 3:
        raise ToolError("$.days: expected at most 3 on this route")
    return "fine"

@server.tool(title={HOSTILE!r}, description={HOSTILE!r})
async def hostile(fails: bool = False) -> ToolResult:
    evil = {HOSTILE!r}
    return ToolResult([
        Text(evil), Image(evil.encode(), "image/svg+xml"), Image(evil.encode(), evil), Audio(b"x", evil),
        ResourceLink("javascript:alert(1)", evil, description=evil),
        EmbeddedResource(TextContents("javascript:alert(2)", evil, mime_type="text/html")),
    ], structured={{evil: [{{evil: evil}}]}}, is_error=fails)

@server.tool
async def rows() -> list[dict[str, int]]:
    return [{{"a": 1, "b": 2}}, {{"a": 3, "c": 4}}]

@server.tool
async def think(ctx: Context) -> str:
    said = await ctx.sample("What is it?", max_tokens=9)
    return f"{{said.model}}: {{said.text}}"

@server.tool
async def look(ctx: Context) -> str:
    return " ".join(root.uri for root in await ctx.roots())

@server.tool(timeout=0.5)
async def hasty(ctx: Context) -> str:
    return str(await ctx.roots())

@server.tool
async def grow() -> str:
    async def grown() -> str:
        return "grown"
    server.add_tool(grown, name="grown")
    return "ok"
"""

TASKS_SERVER = """
import trio
from msgspec import Struct
from mcp_trio import Context, InvalidParams, Server
from mcp_trio.extensions.tasks import Tasks

server = Server("tasks", extensions=[Tasks(poll_interval=0.1)])

class Choice(Struct):
    color: str

@server.tool(task="optional")
async def paint(ctx: Context) -> dict[str, str]:
    await ctx.progress(1, 2, "mixing")
    answer = await ctx.elicit("Which color?", Choice)
    return {"painted": answer.content.color if answer.content else answer.action}

@server.tool(task="optional")
async def dig(ctx: Context) -> str:
    await ctx.progress(3, 10)
    await trio.sleep_forever()
    return "never"

@server.tool(task="optional")
async def think(ctx: Context) -> str:
    said = await ctx.sample("What is it?", max_tokens=9)
    return said.text

@server.tool(task="optional", ttl=0.3)
async def forget() -> str:
    await trio.sleep_forever()
    return "never"

@server.tool(task="optional")
async def break_down() -> str:
    raise InvalidParams("out of order")
"""


class ConsolePage(Page):
    """The console in a tab."""

    def visit(
        self, url: str, theme: str = "light", size: tuple[int, int] = (1400, 900)
    ) -> None:
        self.resize(*size)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )
        self.call("Page.navigate", url=url)
        self.ready()

    def ready(self) -> None:
        self.until("document.querySelector('#connection')?.textContent === 'connected'")
        self.until("document.querySelector('#chosen form')")

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def screenshot(self, name: str) -> None:
        """Keep a picture of the page, if the environment names a folder."""
        folder = os.environ.get("MCP_TRIO_SCREENSHOTS")
        if folder:
            shot = self.call("Page.captureScreenshot")["data"]
            Path(folder, name).write_bytes(base64.b64decode(shot))

    def choose(self, name: str) -> None:
        self.click(f"#offers [data-name={json.dumps(name)}]")

    def fill(self, label: str, text: str, within: str = "#chosen") -> None:
        """Type into the field of a label, replacing its text."""
        found = self.ask(f"""(() => {{
            const fits = (label) => label.firstChild?.textContent === {json.dumps(label)};
            const label = [...document.querySelectorAll('{within} .field > label')].find(fits);
            const input = document.getElementById(label.htmlFor);
            input.focus();
            input.select?.();
            return input.tagName;
        }})()""")
        assert found
        self.call("Input.insertText", text=text)

    def select(self, selector: str, value: str) -> None:
        chosen = f"document.querySelector('{selector}')"
        self.ask(
            f"{chosen}.value = '{value}'; {chosen}.dispatchEvent(new Event('change'))"
        )

    def submit(self) -> None:
        self.click("#chosen button[type=submit]")

    def result(self, number: int = 0) -> str:
        """Wait for a result, and return the text of the latest."""
        article = f"document.querySelectorAll('#results article')[{number}]"
        self.until(f"{article}?.getAttribute('aria-busy') === 'false'")
        text: str = self.ask(f"{article}.innerText")
        return text

    def use_revision(self, revision: str) -> None:
        """Begin a new conversation, in another revision."""
        self.select("#revision", revision)
        self.ready()

    def start_task(self, url: str, tool: str) -> None:
        """Open a console in the newest revision, and call a tool that is a task."""
        self.visit(url)
        self.use_revision("2026-07-28")
        self.choose(tool)
        self.submit()

    def until_task(self, *words: str) -> None:
        """Wait until the latest task in the list shows all these words."""
        text = "(document.querySelector('#tasks li')?.innerText ?? '')"
        for word in words:
            self.until(f"{text}.includes({json.dumps(word)})")

    def rows(self) -> list[str]:
        found: list[str] = self.ask(
            "[...document.querySelectorAll('#rows li')].filter(row => !row.hidden)"
            ".map(row => row.querySelector('.what')?.textContent)"
        )
        return found


@contextmanager
def served(spec: str, *more: str) -> Iterator[str]:
    """Run a server as a process. Yields the URL of its console."""
    with served_at(spec, *more) as (console, _):
        yield console


@contextmanager
def served_at(spec: str, *more: str) -> Iterator[tuple[str, str]]:
    """Run a server as a process. Yields the URLs of its console and its endpoint."""
    command = [
        sys.executable,
        "-m",
        "mcp_trio",
        "run",
        spec,
        "--console",
        "0",
        "--http",
        "0",
        *more,
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("Console: http://127.0.0.1:"), line
            serving = process.stderr.readline()
            assert serving.startswith("Serving "), serving
            yield line.split()[1], serving.split()[-1]
        finally:
            process.terminate()
            told = process.communicate(timeout=20)[1]
    assert process.returncode == 0
    assert "Traceback" not in told


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConnection]:
    with browser(tmp_path_factory.mktemp("chromium")) as wire:
        yield wire


@pytest.fixture
def page(chromium: ClientConnection) -> Iterator[ConsolePage]:
    page = ConsolePage(chromium)
    yield page
    page.call(
        "Page.close"
    )  # a browser keeps six connections to a place, and each page holds one


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    with served("mcp_trio.demo") as url:
        yield url


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Run a server with tasks. Yields the URLs of its console and its endpoint."""
    file = tmp_path_factory.mktemp("tasks") / "tasks_server.py"
    file.write_text(TASKS_SERVER, "utf-8")
    with served_at(str(file)) as addresses:
        yield addresses


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("kinds") / "kinds.py"
    file.write_text(SERVER, "utf-8")
    with served(str(file)) as url:
        yield url


def test_the_newcomers_path(page: ConsolePage, demo: str, tmp_path: Path) -> None:
    page.visit(demo)
    # a call by its form
    page.choose("get_weather")
    page.fill("location", "Berlin")
    page.submit()
    assert (
        "Current weather in Berlin:\nTemperature: 66°F\nConditions: Clear"
        in page.result()
    )
    page.until("document.querySelector('#status').textContent.includes('done in')")
    # the messages
    called = page.rows().index("tools/call get_weather #5")
    assert page.rows()[called + 1] == "result of tools/call get_weather #5"
    page.click(f"#rows li:nth-child({called + 1}) summary")
    page.until(
        f"document.querySelector('#rows li:nth-child({called + 1}) pre')?.textContent.includes('\"Berlin\"')"
    )
    # a question
    page.choose("plan_trip")
    page.submit()
    page.until("document.querySelector('#question').open")
    page.fill("city", "Tokyo", "#question")
    page.press("Enter")
    assert "3 days in Tokyo: Thunderstorms. Pack light clothes." in page.result()
    assert not page.ask("document.querySelector('#question').open")
    # a slow call, cancelled
    page.choose("count_slowly")
    page.fill("steps", "100")
    page.fill("seconds", "0.2")
    page.submit()
    page.until("document.querySelector('#results progress').value >= 2")
    assert page.ask("document.querySelector('#results progress').max") == 100
    page.click("#results article .running button")
    assert "cancelled after" in page.result()
    page.until(
        "[...document.querySelectorAll('#rows .what')].some(row => row.textContent.includes('cancelled'))"
    )
    # a trace that replays
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.click("#save")
    page.until("document.querySelector('#status').textContent.startsWith('Saved')")
    name, _ = re.findall(
        r"conversation-\d+\.jsonl",
        page.ask("document.querySelector('#status').textContent"),
    )
    file = tmp_path / name
    while not file.exists():
        page.ask("1")
    command = [sys.executable, "-m", "mcp_trio", "replay", str(file), "mcp_trio.demo"]
    replayed = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    # and nothing from elsewhere
    origin = demo.partition("?")[0]
    assert all(
        url.startswith((origin, "data:", f"blob:{origin}")) for url in page.loaded
    )
    assert page.complaints == []


def test_the_token_stays_neither_in_the_address_bar_nor_in_the_history(
    page: ConsolePage, demo: str
) -> None:
    page.visit(demo)
    assert page.ask("location.search") == ""
    history = page.call("Page.getNavigationHistory")
    assert not [entry for entry in history["entries"] if "token" in entry["url"]]
    # The page can still be loaded again.
    page.call("Page.reload")
    page.until("performance.getEntriesByType('navigation')[0].type === 'reload'")
    page.until("document.querySelector('#connection')?.textContent === 'connected'")
    assert page.ask("location.search") == ""


def test_without_the_token_nothing_is_served(page: ConsolePage, demo: str) -> None:
    page.call("Page.navigate", url=demo.partition("?")[0])
    page.until("document.body?.innerText.includes('The token is missing or wrong')")


def test_what_is_shown_is_what_it_is(page: ConsolePage, demo: str) -> None:
    page.visit(demo)
    for tool, selector in (
        ("draw_gradient", "img[src^='data:image/png;base64,'][alt*='image/png']"),
        ("play_tone", "audio[controls][src^='data:audio/wav;base64,']"),
        ("link_city", "code"),
        ("embed_city", ".box pre"),
        ("query_database", "table th[scope=col]"),
        ("get_weather_data", ".tree .key"),
    ):
        page.choose(tool)
        labels = page.ask(
            "[...document.querySelectorAll('#chosen .field > label')].map(l => l.firstChild.textContent)"
        )
        if "location" in labels:
            page.fill("location", "London")
        if "query" in labels:
            page.fill("query", "select id, name from users")
        page.submit()
        page.result()
        assert page.ask(
            f"!!document.querySelector('#results article').querySelector({json.dumps(selector)})"
        ), tool
    page.until("document.querySelector('#results img').naturalWidth === 32")
    page.until(
        "Math.abs(document.querySelector('#results audio').duration - 0.2) < 0.01"
    )
    page.choose("link_city")
    page.fill("location", "London")
    page.submit()
    page.result()
    page.click("#results article .box button")
    page.until(
        "document.querySelector('#results article h3').textContent.startsWith('cities://London')"
    )
    assert "temperature: 14.5" in page.result()
    page.choose("get_weather")
    page.fill("location", "Nowhere")
    page.submit()
    assert "⚠ tool error" in page.result()
    assert page.complaints == []


def test_resources_templates_and_prompts_with_completion(
    page: ConsolePage, demo: str
) -> None:
    page.visit(demo)
    page.choose("demo://about")
    page.submit()
    assert "# mcp_trio demo\n\nOne of everything" in page.result()
    page.choose("cities://{name}")
    page.fill("name", "New")
    page.until(
        "document.querySelector('#chosen datalist option')?.value === 'New York'"
    )
    page.fill("name", "New York")
    page.submit()
    assert "zip_code" in page.result()
    page.choose("compare_weather")
    page.fill("first", "London")
    page.fill("second", "")
    page.until(
        "[...document.querySelectorAll('#chosen datalist')].at(-1).options.length === 5"
    )
    page.fill("second", "Berlin")
    page.submit()
    text = page.result()
    assert "Which has the better weather, London or Berlin?" in text
    assert "assistant" in text


def test_a_form_has_every_kind_of_field(page: ConsolePage, kinds: str) -> None:
    page.visit(kinds)
    page.choose("every_kind")
    page.fill("Your name", "Ada")
    page.fill("share", "0.5")
    page.fill("day", "")
    page.ask("""(() => {
        const labels = [...document.querySelectorAll('#chosen .field > label')];
        const by = (label) => labels.find((one) => one.firstChild.textContent === label);
        const input = (label) => document.getElementById(by(label).htmlFor);
        input('day').value = '2026-01-31';
        input('moment').value = '2026-01-31T12:00';
        input('size').value = '1';
        input('maybe').value = '1';
        input('free').value = '{"a": 1}';
        [...document.querySelectorAll('#chosen .check')].find((one) => one.textContent === 'Tue').click();
        [...document.querySelectorAll('#chosen button')].find((one) => one.textContent === 'Add an item').click();
    })()""")
    page.fill("tags 2", "b")
    page.submit()
    page.result()
    given = json.loads(
        page.ask("document.querySelector('#results article > pre').textContent")
    )
    assert given.pop("moment").startswith("2026-01-3")
    assert given == {
        "name": "Ada",
        "text": "a\n b",
        "count": 3,
        "share": 0.5,
        "flag": False,
        "maybe": False,
        "day": "2026-01-31",
        "colour": "green",
        "size": "l",
        "tags": ["a", "b"],
        "days": ["Tue"],
        "point": {"x": 1},
        "free": {"a": 1},
    }
    # the same as JSON, and back
    page.ask(
        "[...document.querySelectorAll('#chosen button')].find(one => one.textContent === 'As JSON').click()"
    )
    shown = json.loads(
        page.ask("document.querySelector('#chosen textarea.json').value")
    )
    assert shown["tags"] == ["a", "b"]
    page.fill(
        "Arguments",
        json.dumps(
            {
                "name": "Eve",
                "count": 2,
                "flag": True,
                "point": {"y": 5},
                "either": {"x": 4},
            }
        ),
    )
    page.ask(
        "[...document.querySelectorAll('#chosen button')].find(one => one.textContent === 'As JSON').click()"
    )
    page.submit()
    page.until(
        "document.querySelector('#results article > pre')?.textContent.includes('Eve')"
    )
    assert json.loads(
        page.ask("document.querySelector('#results article > pre').textContent")
    ) == {
        "name": "Eve",
        "count": 2,
        "flag": True,
        "point": {"y": 5},
        "either": {"x": 4},
    }
    # missing and invalid values are reported, and not sent
    page.fill("count", "10")
    page.submit()
    assert page.ask("document.querySelectorAll('#chosen :invalid').length") >= 1
    assert page.complaints == []


def test_an_error_from_the_server_is_shown_at_its_field(
    page: ConsolePage, kinds: str
) -> None:
    page.visit(kinds)
    page.choose("exact")
    page.fill("days", "4")
    page.submit()
    page.until("document.querySelector('#chosen [aria-invalid=true]')")
    assert page.ask("document.activeElement.getAttribute('aria-invalid')") == "true"
    described = page.ask(
        "document.getElementById(document.activeElement.getAttribute('aria-describedby')).textContent"
    )
    assert described == "$.days: expected at most 3 on this route"
    page.fill("days", "3")
    page.submit()
    assert "fine" in page.result()
    assert page.ask("document.querySelectorAll('[aria-invalid]').length") == 0
    page.choose("picky")
    page.fill("name", "x")
    page.fill("inner", '{"a": [1, "two"]}')
    page.submit()
    page.until(
        "document.querySelector('#chosen [aria-invalid=true]')?.tagName === 'TEXTAREA'"
    )


@pytest.mark.parametrize("revision", [None, "2026-07-28", "2024-10-07"])
def test_hostile_content_stays_text(
    page: ConsolePage, kinds: str, revision: str | None
) -> None:
    page.visit(kinds)
    if revision is not None:
        page.select("#revision", revision)
        page.ready()
    assert (
        HOSTILE in page.ask("document.querySelector('#about').textContent")
        or revision == "2024-10-07"
    )
    page.choose("hostile")
    page.submit()
    page.result()
    page.ask(
        "for (const one of document.querySelectorAll('#results details, #rows details')) one.open = true"
    )
    page.until(
        "[...document.querySelectorAll('#rows details')].every(one => one.childElementCount > 1)"
    )
    assert page.ask("window.hurt") is None
    assert page.ask(
        "document.querySelectorAll('iframe, object, embed, #results script, #results svg, a[href]').length"
    ) == (page.ask("document.querySelectorAll('.skip').length"))
    images = page.ask(
        "[...document.querySelectorAll('img')].map(one => one.src.slice(0, 11))"
    )
    assert all(source == "data:image/" for source in images)
    assert page.ask("document.querySelectorAll('script').length") == 1
    assert HOSTILE in page.ask("document.querySelector('#results').textContent")
    origin = kinds.partition("?")[0]
    assert all(url.startswith((origin, "data:")) for url in page.loaded)


@pytest.mark.parametrize("revision", [None, "2026-07-28", "2024-10-07"])
def test_nothing_is_asked_for_that_the_server_does_not_have(
    page: ConsolePage, kinds: str, demo: str, revision: str | None
) -> None:
    for url, groups in (
        (kinds, ["Tools"]),
        (demo, ["Tools", "Resources", "Resource templates", "Prompts"]),
    ):
        page.visit(url)
        if revision is not None:
            page.ask("document.querySelector('#status').textContent = ''")
            page.select("#revision", revision)
        page.until(
            "document.querySelector('#status').textContent.startsWith('Connected')"
        )
        found = page.ask(
            "[...document.querySelectorAll('#offers h2')].map(one => one.textContent)"
        )
        assert [title.partition(" (")[0] for title in found] == groups
        page.until("document.querySelectorAll('#rows li').length > 4")
        numbers = page.ask(
            "[...document.querySelectorAll('#rows li')].map(one => one.row.number)"
        )
        assert numbers == sorted(set(numbers))
        errors = "[...document.querySelectorAll('#rows li.wrong .what')].map(one => one.textContent)"
        assert [row for row in page.ask(errors) if "list" in row] == []


def test_the_newest_revision_is_offered_first(page: ConsolePage, demo: str) -> None:
    page.visit(demo)
    names = page.ask(
        "[...document.querySelector('#revision').options].map(one => one.value)"
    )
    assert names == sorted(names, reverse=True)
    assert len(names) == 6


def test_a_list_of_objects_is_a_table(page: ConsolePage, kinds: str) -> None:
    page.visit(kinds)
    page.choose("rows")
    page.submit()
    page.result()
    cells = page.ask(
        "[...document.querySelectorAll('#results tr')].map(row => [...row.children].map(one => one.textContent))"
    )
    assert cells == [["a", "b", "c"], ["1", "2", ""], ["3", "", "4"]]


def test_sampling_and_roots_are_answered_or_refused_by_hand(
    page: ConsolePage, kinds: str
) -> None:
    page.visit(kinds)
    page.choose("think")
    page.submit()
    page.until("document.querySelector('#question').open")
    assert "What is it?" in page.ask("document.querySelector('#question').innerText")
    page.fill("The model's reply", "A cat", "#question")
    page.click("#question-send")
    assert "a person: A cat" in page.result()
    page.submit()
    page.until("document.querySelector('#question').open")
    page.click("#question-cancel")
    assert "declined" in page.result()
    page.choose("look")
    page.submit()
    page.until("document.querySelector('#question').open")
    page.fill(
        "Folders, as file:// URIs, one per line", "file:///a\nfile:///b", "#question"
    )
    page.click("#question-send")
    assert "file:///a file:///b" in page.result()


def test_escape_cancels_a_question_and_decline_declines(
    page: ConsolePage, demo: str
) -> None:
    page.visit(demo)
    page.choose("plan_trip")
    for way in ("Escape", "#question-decline"):
        page.submit()
        page.until("document.querySelector('#question').open")
        if way == "Escape":
            for kind in ("keyDown", "keyUp"):
                page.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key="Escape",
                    code="Escape",
                    windowsVirtualKeyCode=27,
                )
        else:
            page.click(way)
        page.until("!document.querySelector('#question').open")
        assert "No trip, then." in page.result()
    rows = page.ask(
        "[...document.querySelectorAll('#rows li')].map(row => row.row?.text).join(' ')"
    )
    assert '{"action":"cancel"}' in rows
    assert '{"action":"decline"}' in rows


def test_a_question_that_is_withdrawn_goes_away(page: ConsolePage, kinds: str) -> None:
    page.visit(kinds)
    page.choose("hasty")
    page.submit()
    page.until("document.querySelector('#question').open")
    page.until("!document.querySelector('#question').open")
    assert "tool error" in page.result()


def test_a_task_asks_and_ends(page: ConsolePage, tasks: tuple[str, str]) -> None:
    page.visit(tasks[0])
    page.use_revision("2026-07-28")
    assert page.ask("document.querySelector('#tasks').hidden")
    page.choose("paint")
    page.submit()
    page.until("document.querySelector('#question').open")
    page.until_task("paint", "input required", "mixing", "Answer: Which color?")
    page.fill("color", "red", "#question")
    page.press("Enter")
    assert "red" in page.result()
    page.until_task("completed")
    assert not page.ask("document.querySelector('#question').open")
    # The result can be shown again.
    page.click("#tasks li .buttons:last-child button:not([hidden])")
    page.until("document.querySelectorAll('#results article').length === 2")
    assert "red" in page.result()
    page.click("#tasks .tools button")
    assert page.ask("document.querySelector('#tasks').hidden")
    assert page.complaints == []


def test_a_task_is_cancelled_where_it_was_called_and_in_the_list(
    page: ConsolePage, tasks: tuple[str, str]
) -> None:
    page.visit(tasks[0])
    page.use_revision("2026-07-28")
    page.choose("dig")
    for button in ("#results article .running button", "#tasks li button"):
        page.submit()
        page.until_task("working", "3 of 10")
        page.until(
            "document.querySelector('#results article .state').textContent === 'task: working'"
        )
        page.click(button)
        assert "cancelled after" in page.result()
        page.until_task("cancelled")
    assert page.complaints == []


def test_a_task_goes_on_while_its_page_is_loaded_again(
    page: ConsolePage, tasks: tuple[str, str]
) -> None:
    page.start_task(tasks[0], "paint")
    page.until("document.querySelector('#question').open")
    page.call("Page.reload")
    page.until("performance.getEntriesByType('navigation')[0].type === 'reload'")
    page.ready()
    page.until_task("input required", "Answer: Which color?")
    assert not page.ask("document.querySelector('#question').open")
    page.click("#tasks li button:not([hidden])")
    page.until("document.querySelector('#question').open")
    page.fill("color", "blue", "#question")
    page.press("Enter")
    page.until_task("completed")
    page.click("#tasks li .buttons:last-child button:not([hidden])")
    assert "blue" in page.result()
    assert page.complaints == []


def test_a_question_of_a_task_that_is_refused_cancels_the_task(
    page: ConsolePage, tasks: tuple[str, str]
) -> None:
    page.start_task(tasks[0], "think")
    page.until("document.querySelector('#question').open")
    page.click("#question-cancel")
    assert "cancelled after" in page.result()


def test_a_task_that_fails_or_expires_says_so(
    page: ConsolePage, tasks: tuple[str, str]
) -> None:
    page.start_task(tasks[0], "break_down")
    assert "out of order" in page.result()
    page.until_task("failed", "out of order")
    page.choose("forget")
    page.submit()
    assert "there is no such task, or it has expired" in page.result()
    page.until_task("expired")


def test_tasks_of_other_clients_are_shown_and_left_alone(
    page: ConsolePage, tasks: tuple[str, str]
) -> None:
    page.visit(tasks[0])
    page.use_revision("2026-07-28")

    async def create() -> None:
        async with connect(
            tasks[1], "2026-07-28", capabilities={"extensions": {TASKS: {}}}
        ) as client:
            await client.request("tools/call", {"name": "dig", "arguments": {}})

    trio.run(create)
    page.until_task("dig", "working", "mcp_trio client")
    assert page.ask(
        "[...document.querySelectorAll('#tasks li:first-child button')]"
        ".every((button) => button.hidden)"
    )


def test_a_page_that_changes_its_revision_leaves_its_task(
    page: ConsolePage, tasks: tuple[str, str]
) -> None:
    page.start_task(tasks[0], "dig")
    page.until_task("working", "3 of 10")
    page.use_revision("2025-11-25")
    assert "The task continues without it." in page.result()
    page.until_task("working")
    assert page.ask("document.querySelector('#tasks li button').hidden")
    page.use_revision("2026-07-28")
    page.until("!document.querySelector('#tasks li button').hidden")
    page.click("#tasks li button:not([hidden])")
    page.until_task("cancelled")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_tasks_can_be_read_in_both_themes_and_at_any_width(
    page: ConsolePage, tasks: tuple[str, str], theme: str
) -> None:
    page.visit(tasks[0], theme, (1400, 900))
    page.use_revision("2026-07-28")
    for tool in ("break_down", "paint", "dig"):
        page.choose(tool)
        page.submit()
        if tool == "paint":
            page.until("document.querySelector('#question').open")
            page.fill("color", "red", "#question")
            page.press("Enter")
        if tool != "dig":
            page.result()
    page.until_task("dig", "working", "3 of 10")
    for state in ("failed", "completed", "working"):
        page.until(f"document.querySelector('#tasks .{state}')")
    check_contrast(page, theme)
    page.screenshot(f"console_tasks_{theme}.png")
    for width in (320, 800):
        page.resize(width, 800)
        assert page.ask("document.documentElement.scrollWidth") <= width
    page.click("#tasks li button:not([hidden])")
    page.until_task("cancelled")


def test_a_page_beyond_the_connections_of_the_browser_says_so(
    chromium: ClientConnection, demo: str
) -> None:
    pages = [ConsolePage(chromium) for _ in range(6)]
    for page in pages[:5]:
        page.visit(demo)
    pages[5].call("Page.navigate", url=demo)
    pages[5].until(
        "document.querySelector('#connection')?.textContent.includes('five pages')"
    )
    pages[0].choose("get_current_time")
    pages[0].submit()
    assert "done in" in pages[0].result()
    for page in pages:
        page.call("Page.close")


def test_new_tools_appear_by_themselves(page: ConsolePage, kinds: str) -> None:
    page.visit(kinds)
    page.choose("grow")
    page.submit()
    page.until("document.querySelector('#offers [data-name=grown]')")


def test_messages_are_filtered_held_and_cleared(page: ConsolePage, demo: str) -> None:
    page.visit(demo)
    page.choose("get_current_time")
    page.submit()
    page.result()
    page.click("#filter")
    page.call("Input.insertText", text="GET_CURRENT")
    page.until("document.querySelector('#shown').textContent.includes(' of ')")
    assert all("get_current_time" in row or "tools/list" in row for row in page.rows())
    assert page.rows()[-1].startswith("tools/call get_current_time #")
    page.click("#pause")
    page.submit()
    page.result()
    page.until("document.querySelector('#shown').textContent.includes('wait')")
    held = len(page.rows())
    page.click("#pause")
    assert len(page.rows()) == held + 1
    page.click("#clear")
    page.until("document.querySelectorAll('#rows li').length === 0")


def test_everything_is_reached_by_keyboard(page: ConsolePage, demo: str) -> None:
    page.visit(demo)
    page.press("Tab")
    assert page.ask("document.activeElement.textContent") == "Skip to the work area"
    assert page.box(":focus")["width"] > 20
    page.press("Enter")
    assert page.ask("document.activeElement.id") == "main"
    reached = []
    for _ in range(12):
        page.press("Tab")
        reached.append(
            page.ask("document.activeElement.id || document.activeElement.textContent")
        )
        outline = page.ask("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", reached
        if reached[-1] == "Call":
            break
    assert "Call" in reached
    page.ask("document.querySelector('#chosen input').focus()")
    page.call("Input.insertText", text="Berlin")
    page.press("Enter")
    assert "Berlin" in page.result()
    unnamed = """[...document.querySelectorAll('input, select, textarea, button, progress, [role=region]')]
        .filter((one) => one.offsetParent && !one.labels?.length)
        .filter((one) => !one.textContent.trim() && !one.getAttribute('aria-label'))
        .map((one) => one.outerHTML)"""
    assert page.ask(unnamed) == []
    for landmark in ("header", "nav", "main", "h1", "[role=status]"):
        assert page.ask(f"document.querySelectorAll('{landmark}').length") == 1, (
            landmark
        )
    assert page.complaints == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_can_be_read_in_both_themes(
    page: ConsolePage, demo: str, theme: str
) -> None:
    page.visit(demo, theme)
    fill_the_page(page)
    check_contrast(page, theme)
    other = "dark" if theme == "light" else "light"
    before = page.ask("getComputedStyle(document.body).backgroundColor")
    page.select("#theme", other)
    assert page.ask("getComputedStyle(document.body).backgroundColor") != before
    page.select("#theme", "")


def check_contrast(page: ConsolePage, theme: str) -> None:
    """Expect every text on the page to differ enough from its ground."""
    grounds = """(() => {
        const ground = (one) => {
            const colour = getComputedStyle(one).backgroundColor;
            return colour === 'rgba(0, 0, 0, 0)' ? ground(one.parentElement) : colour;
        };
        const own = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        const seen = new Map();
        for (const one of document.querySelectorAll('body *')) if (own(one) && one.offsetParent && !one.disabled)
            seen.set(`${getComputedStyle(one).color}|${ground(one)}`, one.outerHTML.slice(0, 200));
        return [...seen].map(([pair, what]) => [...pair.split('|'), what]);
    })()"""
    pairs = page.ask(grounds)
    assert len(pairs) > 8
    for colour, ground, what in pairs:
        assert contrast(colour, ground) >= 4.5, (theme, colour, ground, what)


@pytest.mark.parametrize("width", [320, 360, 800, 1200, 1700])
def test_nothing_overflows_the_page(page: ConsolePage, demo: str, width: int) -> None:
    page.visit(demo, size=(width, 800))
    fill_the_page(page)
    assert page.ask("document.documentElement.scrollWidth") <= width


def fill_the_page(page: ConsolePage) -> None:
    """One of everything on it."""
    for tool in ("draw_gradient", "play_tone"):
        page.choose(tool)
        page.submit()
        page.result()
    for tool, label, text in (
        ("query_database", "query", "select * from users"),
        ("get_weather", "location", "Nowhere"),
        ("get_weather_data", "location", "Berlin"),
        ("link_city", "location", "Berlin"),
    ):
        page.choose(tool)
        page.fill(label, text)
        page.submit()
        page.result()
    page.ask(
        "for (const one of document.querySelectorAll('#results details')) one.open = true"
    )
    page.ask(
        "for (const one of [...document.querySelectorAll('#rows details')].slice(-3)) one.open = true"
    )


def test_the_page_says_that_the_server_has_gone(
    page: ConsolePage, tmp_path: Path
) -> None:
    with served("mcp_trio.demo") as url:
        page.visit(url)
    page.until(
        "document.querySelector('#connection').textContent.startsWith('not connected')"
    )
    page.choose("get_current_time")
    page.submit()
    assert "not connected" in page.result()
