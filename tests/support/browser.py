"""A real browser, driven over the DevTools protocol."""

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
from websockets.sync.client import ClientConnection, connect

KEYS = {"Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), " ": ("Space", 32, " ")}


class Page:
    """A tab of a browser, controlled over the DevTools protocol."""

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
        """Return the value of an expression in the page."""
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
def browser(folder: Path, *more_flags: str) -> Iterator[ClientConnection]:
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
    flags += more_flags
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
