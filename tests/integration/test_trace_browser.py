"""The diagram of a trace in a real browser, where it loads nothing else."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection

from mcp_trio.trace.diagram import as_html, steps
from mcp_trio.trace.format import Trace
from tests.support.browser import Page, browser, contrast
from tests.support.diagrams import (
    CONVERSATION,
    HOSTILE,
    hostile,
    line,
    request,
    result,
    trace,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow]


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
def test_nothing_overflows_the_page(page: Page, tmp_path: Path, width: int) -> None:
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
