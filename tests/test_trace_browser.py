"""The picture of a trace in a real browser: it is drawn, it does what it says, and it runs and loads nothing else."""

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_trace_picture import (
    CONVERSATION,
    HOSTILE,
    hostile,
    line,
    request,
    result,
    trace,
)
from websockets.sync.client import ClientConnection, connect

from mcp_trio.trace.diagram import as_html, steps
from mcp_trio.trace.format import Trace

pytestmark = pytest.mark.slow

KEYS = {"Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), " ": ("Space", 32, " ")}


class Page:
    """A tab of a browser, spoken to in the DevTools protocol."""

    def __init__(self, wire: ClientConnection) -> None:
        self.complaints: list[Any] = []
        self.loaded: list[str] = []
        self._wire = wire
        self._ids = itertools.count(1)
        self._session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {
            "sessionId": self.call(
                "Target.attachToTarget", targetId=target, flatten=True
            )["sessionId"]
        }
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        id = next(self._ids)
        self._wire.send(
            json.dumps({"id": id, "method": method, "params": params, **self._session})
        )
        while (message := json.loads(self._wire.recv(30))).get("id") != id:
            self._hear(message["method"], message["params"])
        assert "error" not in message, (method, message["error"])
        return message["result"]

    def _hear(self, method: str, params: Any) -> None:
        if method in (
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        ):
            self.complaints.append(params)
        if method == "Network.requestWillBeSent":
            self.loaded.append(params["request"]["url"])

    def open(
        self, file: Path, size: tuple[int, int] = (1200, 1000), theme: str = "light"
    ) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )
        self.call("Page.navigate", url=file.as_uri())
        self.until(
            "document.readyState === 'complete' && document.querySelector('#shown')?.textContent"
        )

    def ask(self, expression: str) -> Any:
        """What an expression is in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True
        )
        assert "exceptionDetails" not in answer, (expression, answer)
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        end = time.monotonic() + 20
        while not self.ask(f"!!({expression})"):
            assert time.monotonic() < end, (
                f"{expression} has not come true; {self.complaints}"
            )

    def box(self, selector: str) -> dict[str, float]:
        box: dict[str, float] = self.ask(
            f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()"
        )
        return box

    def mouse(self, *kinds: str, at: str) -> None:
        self.ask(
            f"document.querySelector({json.dumps(at)}).scrollIntoView({{block: 'center'}})"
        )
        box = self.box(at)
        place = {
            "x": box["left"] + min(20, box["width"] / 2),
            "y": box["top"] + box["height"] / 2,
        }
        for kind in kinds:
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                button="left",
                clickCount=1,
                **place,
            )

    def hover(self, at: str) -> None:
        self.mouse("mouseMoved", at=at)

    def click(self, at: str) -> None:
        self.mouse("mouseMoved", "mousePressed", "mouseReleased", at=at)

    def press(self, key: str) -> None:
        code, number, text = KEYS.get(key, (key, 0, key))
        typed = {"key": key, "code": code, "windowsVirtualKeyCode": number} | (
            {"text": text} if text else {}
        )
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **typed)


@contextmanager
def browser(folder: Path) -> Iterator[ClientConnection]:
    program = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if program is None:
        pytest.skip("there is no Chromium")
    # A container gives root no sandbox, and little shared memory.
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--remote-debugging-port=0",
    ]
    command = [program, *flags, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            listening = next(
                (
                    line
                    for line in process.stderr
                    if line.startswith("DevTools listening on ")
                ),
                None,
            )
            assert listening, "Chromium ended before it listened"
            with connect(listening.split()[-1], max_size=None, proxy=None) as wire:
                yield wire
                wire.send(json.dumps({"id": 0, "method": "Browser.close"}))
        finally:
            process.terminate()
            process.communicate(timeout=20)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConnection]:
    with browser(tmp_path_factory.mktemp("chromium")) as wire:
        yield wire


@pytest.fixture
def page(chromium: ClientConnection) -> Page:
    return Page(chromium)


def shown(page: Page, folder: Path, picture: Trace, **how: Any) -> None:
    file = folder / "picture.html"
    file.write_text(as_html(picture), "utf-8")
    page.open(file, **how)
    assert page.loaded == [file.as_uri()]


def number(method: str, kind: str = "request") -> int:
    return next(
        n
        for n, step in enumerate(steps(CONVERSATION))
        if method in step.label and step.kind == kind
    )


def test_every_message_is_there_on_its_senders_side(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, CONVERSATION)
    found = steps(CONVERSATION)
    labels = page.ask(
        "[...document.querySelectorAll('#steps .label')].map(label => label.textContent)"
    )
    assert labels == [step.label for step in found]
    assert (
        page.ask("document.title")
        == page.ask("document.querySelector('h1').textContent")
        == CONVERSATION.header.title
    )
    previous = 0.0
    for index, step in enumerate(found):
        card, arrow = (
            page.box(f"#step-{index} details"),
            page.box(f"#step-{index} .arrow"),
        )
        assert (card["right"] <= arrow["left"]) is (step.sender == "client"), step.label
        assert card["top"] > previous
        previous = card["top"]
    assert page.complaints == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_kinds_have_colours_that_can_be_read_in_both_themes(
    page: Page, tmp_path: Path, theme: str
) -> None:
    shown(page, tmp_path, CONVERSATION, theme=theme)
    colours = {}
    for index, step in enumerate(steps(CONVERSATION)):
        page.ask(
            f"document.querySelector('#step-{index} summary').focus()"
        )  # and so one that is joined has another ground
        label = (
            f"getComputedStyle(document.querySelector('#step-{index} .label')).color"
        )
        card = f"getComputedStyle(document.querySelector('#step-{index} details')).backgroundColor"
        colours[step.kind] = page.ask(label)
        assert contrast(page.ask(label), page.ask(card)) >= 4.5, (step.kind, theme)
    assert len(set(colours.values())) == len(colours) == 7


def contrast(*colours: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[4:-1].split(",")]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted(map(luminance, colours))
    return (light + 0.05) / (dark + 0.05)


def test_a_click_or_a_key_unfolds_a_message(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, CONVERSATION)
    at = number("get_weather")
    page.click(f"#step-{at} summary")
    page.until(f"document.querySelector('#step-{at} pre')")
    text = page.ask(f"document.querySelector('#step-{at} pre').textContent")
    assert text.startswith("POST /mcp\nstream 3\nmcp-session-id: 5f3a\n")
    assert '\n  "method": "tools/call",\n' in text
    assert "東京 🗼" in text
    page.press("Enter")
    page.until(f"!document.querySelector('#step-{at} details').open")
    page.press(" ")
    page.until(f"document.querySelector('#step-{at} details').open")
    page.press("Tab")
    assert page.ask("document.activeElement.textContent") == "↓ its response"
    page.press("Tab")
    assert page.ask("document.activeElement.closest('.step').id") == f"step-{at + 1}"
    assert (
        page.ask("document.activeElement.getAttribute('aria-label')")
        == "wire from the server, HTTP 200, stream 3"
    )
    assert page.complaints == []


@pytest.mark.parametrize(
    ("method", "side"), [("get_weather", "client"), ("elicitation/create", "server")]
)
@pytest.mark.parametrize("width", [1200, 400])
def test_a_request_is_joined_to_its_response(
    page: Page, tmp_path: Path, width: int, method: str, side: str
) -> None:
    shown(page, tmp_path, CONVERSATION, size=(width, 1400))
    found = steps(CONVERSATION)
    asked = number(method, "request" if side == "client" else "question")
    answered = found[asked].partner
    joined = "[...document.querySelectorAll('.joined')].map(item => Number(item.dataset.index))"
    assert page.ask(joined) == []
    page.hover(f"#step-{answered} summary")
    page.until("document.querySelector('#join')")
    assert page.ask(joined) == [asked, answered]
    bracket, start, end = (
        page.box("#join"),
        page.box(f"#step-{asked} .arrow"),
        page.box(f"#step-{answered} .arrow"),
    )
    assert (bracket["top"], bracket["bottom"]) == pytest.approx(
        (start["top"] + 1, end["top"] + 1), abs=1
    )
    assert (bracket["left"] < width / 2) is (side == "client")
    assert (
        page.ask("document.querySelector('#join').textContent") == found[answered].lag
    )
    page.hover("h1")
    page.until("!document.querySelector('#join')")
    page.ask(f"document.querySelector('#step-{asked} summary').focus()")
    assert page.ask(joined) == [asked, answered]


def test_the_filter_leaves_what_contains_the_text(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, CONVERSATION)
    page.click("#filter")
    for letter in "PROTOCOLVERSION":
        page.press(letter)
    visible = "[...document.querySelectorAll('.step')].filter(item => item.offsetHeight).map(item => item.id)"
    assert page.ask(visible) == ["step-0", "step-1"]
    assert (
        page.ask("document.querySelector('#shown').textContent")
        == f"2 of {len(steps(CONVERSATION))}"
    )
    page.press("ß")
    assert page.ask(visible) == []
    assert page.ask("document.querySelector('#none').offsetHeight") > 0


def test_all_unfold_and_fold_again(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, CONVERSATION)
    page.click("#expand")
    page.until(
        "[...document.querySelectorAll('details')].every(card => card.open && card.querySelector('pre'))"
    )
    page.click("#collapse")
    page.until("![...document.querySelectorAll('details')].some(card => card.open)")


@pytest.mark.parametrize("width", [320, 400, 800, 1600])
def test_nothing_stands_out_of_the_page(page: Page, tmp_path: Path, width: int) -> None:
    shown(page, tmp_path, CONVERSATION, size=(width, 800))
    page.click("#expand")
    page.until("document.querySelectorAll('pre').length > 9")
    assert page.ask("document.documentElement.scrollWidth") <= width


def test_hostile_content_stays_text(page: Page, tmp_path: Path) -> None:
    shown(page, tmp_path, hostile())
    page.click("#expand")
    page.until(
        "[...document.querySelectorAll('details')].every(card => card.querySelector('pre'))"
    )
    assert (
        page.ask("document.querySelectorAll('img, iframe, svg, form, b').length") == 0
    )
    assert page.ask("document.querySelectorAll('script').length") == 2
    texts = page.ask("document.body.innerText")
    assert all(text in texts for text in HOSTILE)
    assert page.ask("window.hurt") is None
    assert page.complaints == []
    assert len(page.loaded) == 1


def test_two_thousand_messages_are_drawn_soon(page: Page, tmp_path: Path) -> None:
    asked = [
        line(
            n / 100,
            "client",
            request(n, "tools/call", {"name": "echo", "text": "x" * 300}),
        )
        for n in range(1000)
    ]
    answered = [
        line(n / 100 + 0.001, "server", result(n, {"text": "x" * 300}))
        for n in range(1000)
    ]
    began = time.monotonic()
    shown(
        page,
        tmp_path,
        trace(*(one for pair in zip(asked, answered, strict=True) for one in pair)),
    )
    assert page.ask("document.querySelectorAll('.step').length") == 2000
    page.hover("#step-1999 summary")
    page.until("document.querySelector('#join')")
    page.click("#expand")
    page.until("document.querySelectorAll('pre').length === 2000")
    assert time.monotonic() - began < 15
