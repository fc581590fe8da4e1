"""A headless Chromium that opens a page at a width and tells what it says: its own protocol.

The socket is spoken by hand: no package is needed for a handful of messages of one page.
"""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BINARY = next((path for name in NAMES if (path := shutil.which(name))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "about:blank",
)
ADDRESS = re.compile(r"DevTools listening on (ws://\S+)")
WAIT_S = 60.0
TEXT, SHORT, LONG = 1, 126, 127


@dataclass
class Socket:
    """One WebSocket connection of a client; masked with zeros, which the protocol allows."""

    link: socket.socket
    rest: bytes = b""

    @classmethod
    def opened(cls, address: str) -> "Socket":
        """Connect and shake hands."""
        found = urlsplit(address)
        link = socket.create_connection((found.hostname, found.port), timeout=WAIT_S)
        key = base64.b64encode(os.urandom(16)).decode()
        link.sendall(
            f"GET {found.path} HTTP/1.1\r\nHost: {found.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        made = cls(link)
        while b"\r\n\r\n" not in made.rest:
            made.rest += link.recv(4096)
        head, _, made.rest = made.rest.partition(b"\r\n\r\n")
        if b" 101 " not in head:
            raise ConnectionError(f"the browser answered {head!r}, required: 101")
        return made

    def send(self, text: str) -> None:
        """Send one message."""
        data = text.encode()
        if len(data) < SHORT:
            size = bytes([0x80 | len(data)])
        elif len(data) < 2**16:
            size = bytes([0x80 | SHORT]) + len(data).to_bytes(2, "big")
        else:
            size = bytes([0x80 | LONG]) + len(data).to_bytes(8, "big")
        self.link.sendall(bytes([0x80 | TEXT]) + size + bytes(4) + data)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        while len(self.rest) < count:
            more = self.link.recv(2**16)
            if not more:
                raise ConnectionError("the browser hung up")
            self.rest += more
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def receive(self) -> str:
        """The next message, of one frame or more."""
        whole, last = b"", False
        while not last:
            first, size = self.take(2)
            if size in (SHORT, LONG):
                size = int.from_bytes(self.take(2 if size == SHORT else 8), "big")
            data = self.take(size)
            if first & 0x0F in (0, TEXT):
                whole, last = whole + data, bool(first & 0x80)
        return whole.decode()


@dataclass
class Page:
    """One page of a browser. said: errors and warnings of its console; asked: what it loaded."""

    link: Socket
    session: str = ""
    number: int = 0
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """One command and its answer; events on the way are noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": given}
        if self.session:
            message["sessionId"] = self.session
        self.link.send(json.dumps(message))
        while (found := self.next()).get("id") != self.number:
            pass
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']}")
        return dict(found["result"])

    def next(self) -> dict[str, Any]:
        """The next message; events are noted."""
        found: dict[str, Any] = json.loads(self.link.receive())
        method, given = found.get("method", ""), found.get("params", {})
        self.seen.append(method)
        if method == "Log.entryAdded":
            self.said.append(given["entry"]["text"])
        if method == "Runtime.consoleAPICalled":
            self.said.append(str(given["args"]))
        if method == "Runtime.exceptionThrown":
            self.said.append(str(given["exceptionDetails"]))
        if method == "Network.requestWillBeSent":
            self.asked.append(given["request"]["url"])
        return found

    def show(self, file: Path, width: int, *, dark: bool) -> None:
        """Open a file at a width of so many pixels, in one theme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.seen.clear()
        self.call("Page.navigate", url=file.as_uri())
        while "Page.loadEventFired" not in self.seen:
            self.next()

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def picture(self, file: Path) -> None:
        """A picture of the whole page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """A page in a browser of its own, with an empty profile."""
    if BINARY is None:
        raise FileNotFoundError(f"no browser is on the path, required: one of {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory() as profile:
        command = [BINARY, *FLAGS[:-1], f"--user-data-dir={profile}", FLAGS[-1]]
        started = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        try:
            for line in started.stderr:
                if match := ADDRESS.search(line):
                    break
            else:
                raise ConnectionError("the browser ended before it listened")
            page = Page(Socket.opened(match[1]))
            target = page.call("Target.createTarget", url="about:blank")["targetId"]
            attached = page.call("Target.attachToTarget", targetId=target, flatten=True)
            page.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.call(f"{domain}.enable")
            yield page
            page.link.link.close()
        finally:
            started.terminate()
            started.wait(WAIT_S)
            started.stderr.close()
