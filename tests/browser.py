"""A page in headless Chromium, driven as a person would, over the DevTools protocol."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--remote-debugging-port=0",
)
PATIENCE_S = 120.0


class Page:
    """One page; `profile` is an empty folder for the browser's files."""

    def __init__(self, url: str, profile: Path, size: tuple[int, int] = (900, 700)) -> None:
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        self._process = subprocess.Popen(
            [*command, url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            listening = profile / "DevToolsActivePort"
            wait_for(lambda: listening.is_file() and listening.read_text().count("\n"), "Chromium")
            port = listening.read_text().split()[0]
            target = wait_for(lambda: _find_target(port, url), f"a page at {url}")
            self._socket = connect(target, max_size=None)
        except BaseException:
            self._end()
            raise
        self._ids = itertools.count()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()
        self._end()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def text(self) -> str:
        """What can be read on the page."""
        return self.evaluate("document.body ? document.body.innerText : ''")

    def wait_for_text(self, wanted: Callable[[str], Any], what: str) -> Any:
        """The first true value of `wanted` over the page's text."""
        return wait_for(lambda: wanted(self.text()), what, self.text)

    def press(self, label: str) -> None:
        """Click the button of that name, once it is there."""
        button = (
            "[...document.querySelectorAll('button')]"
            f".find(button => button.innerText.trim() === {json.dumps(label)})"
        )
        wait_for(lambda: self.evaluate(f"!!{button}"), f"button {label!r}", self.text)
        self.evaluate(f"{button}.click()")

    def slide(self, label: str, goal: float) -> None:
        """Move the slider of that name up to a value, with the arrow keys."""
        found = self.evaluate(
            "[...document.querySelectorAll('[role=slider]')].some(thumb => {"
            " let box = thumb;"
            " while (box.parentElement.querySelectorAll('[role=slider]').length === 1)"
            " box = box.parentElement;"
            f" const it_is = box.innerText.includes({json.dumps(label)});"
            " if (it_is) thumb.focus();"
            " return it_is; })"
        )
        assert found, f"no slider {label!r} in: {self.text()}"

        def press_until_there() -> bool:
            if float(self.evaluate("document.activeElement.ariaValueNow")) >= goal:
                return True
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", windowsVirtualKeyCode=39)
            return False

        wait_for(press_until_there, f"slider {label!r} at {goal}", self.text)

    def screenshot(self) -> np.ndarray:
        """What can be seen, uint8 [height, width, 3]."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        return np.asarray(imageio.imread(io.BytesIO(data)))[..., :3]

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def serving(
    words: list[str | Path], announcement: str, **options: Any
) -> Iterator[tuple[subprocess.Popen, str]]:
    """`andante` with these words in a process of its own, and the URL that its first line announces."""
    command = [Path(sys.executable).with_name("andante"), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        found = re.match(announcement, line)
        assert found, line + process.stderr.read()
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(condition: Callable[[], Any], what: str, state: Callable[[], str] = str) -> Any:
    """The first true value of `condition`."""
    end = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < end, f"waited for {what}\n{state()}"
        time.sleep(0.1)
    return value


def _find_target(port: str, url: str) -> str | None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE_S) as answer:
        pages = json.load(answer)
    return next((page["webSocketDebuggerUrl"] for page in pages if page["url"].startswith(url)), None)
