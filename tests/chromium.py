"""Debian's Chromium without a window, driven over its DevTools protocol by a pair of pipes: no package is needed for it."""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """Fails where there is none: what is asked of a page must not pass unseen."""
    found = os.environ.get("SEQLOOM_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert found, "no Chromium: `make programs` installs Debian's; or name another one in SEQLOOM_CHROMIUM"
    return found


class Browser:
    """One page at a time. `with Browser(folder) as browser: browser.open(path, width=360, dark=True)`"""

    def __init__(self, folder: Path):
        to_browser, self.to_browser = os.pipe()
        self.from_browser, from_browser = os.pipe()
        command = [
            find_chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank",
        ]  # fmt: skip

        def pipes() -> None:
            """The browser reads from 3 and writes to 4."""
            reads, writes = os.dup(to_browser), os.dup(from_browser)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        with open(folder / "browser.log", "w") as log:
            self.process = subprocess.Popen(command, close_fds=False, preexec_fn=pipes, stdout=log, stderr=log)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.rest, self.events = 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{part}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)

    session: str | None = None

    def receive(self) -> dict:
        while b"\0" not in self.rest:
            found = os.read(self.from_browser, 1 << 16)
            assert found, "the browser has ended"
            self.rest += found
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method: str, **values: object) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, event: str) -> None:
        while not any(each.get("method") == event for each in self.events):
            self.events.append(self.receive())

    def open(
        self, place: Path | str, width: int = 1000, height: int = 800, dark: bool = False, script: bool = True
    ) -> None:
        """place: a file, or an address."""
        self.events.clear()
        address = place if isinstance(place, str) else place.resolve().as_uri()
        self.own = ("file:", "data:", "/".join(address.split("/")[:3]) + "/")
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")

    def ask(self, expression: str) -> object:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"Enter": 13, " ": 32, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37}[key]
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def write(self, text: str) -> None:
        """As if typed where the focus is."""
        self.call("Input.insertText", text=text)

    def wait_until(self, expression: str, seconds: float = 30.0) -> None:
        until = time.monotonic() + seconds
        while not self.ask(f"Boolean({expression})"):
            assert time.monotonic() < until, f"not within {seconds} s: {expression}; {self.complaints()}"
            time.sleep(0.05)

    def complaints(self) -> list[dict]:
        """Everything on the console, exceptions, and requests to anything but the page itself."""
        wrong = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        found = [each for each in self.events if each.get("method") in wrong]
        requests = [each for each in self.events if each.get("method") == "Network.requestWillBeSent"]
        return found + [each for each in requests if not each["params"]["request"]["url"].startswith(self.own)]

    def screenshot(self, path: Path, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
