"""What the monitor answers to a browser, a probe or Prometheus, address by address."""

import json
import logging
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING

from gadget.operations.metrics import CONTENT_TYPE as METRICS_TYPE
from gadget.operations.metrics import metrics_text
from gadget.operations.page_state import Json, health, page_state, scans_of_the_day
from gadget.operations.png import PALETTES, encode_palette
from gadget.operations.trusted_host import is_trusted

if TYPE_CHECKING:
    from gadget.operations.monitor import WebServer

logger = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FILES = {
    f"/{path.name}".replace("/index.html", "/"): (_TYPES[path.suffix], path.read_bytes())
    for path in sorted(_FOLDER.iterdir())
    if path.suffix in _TYPES
}
"""All files there are: no name from the network ever becomes a path."""

_FOR_ANYBODY = ("/health", "/metrics")
"""Counts and times alone: whoever collects them may know us by a name that we do not."""
_PICTURE = re.compile(r"/pictures/([0-9]{1,12})/([0-9]{1,3})\.png")
_COLOURS = re.compile(r"/colours/([a-z]{1,12})\.png")

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",  # pictures of a person shall not stay on the disk of a browser
}
_SHORTEST_S, _RUNNING_S, _IDLE_S = 0.2, 1.0, 5.0
"""Between two events of the stream: at least, at most while a scan runs, at most otherwise."""


class MonitorPages(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    timeout = 20.0
    server: "WebServer"

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if path not in _FOR_ANYBODY and not is_trusted(self.headers.get("Host"), self.server.names):
            self._answer_text(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This monitor does not go by the name that was asked for. Use its address, or start the "
                "server with --monitor-host NAME.\n",
            )
            return
        if path in _FILES:
            self._answer(HTTPStatus.OK, *_FILES[path])
        elif path == "/health":
            found = health(self.server.status())
            is_ok = found["status"] == "ok"
            self._answer_json(HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE, found)
        elif path == "/metrics":
            text = metrics_text(self.server.journal, self.server.status())
            self._answer(HTTPStatus.OK, METRICS_TYPE, text.encode())
        elif path == "/state":
            self._answer_json(HTTPStatus.OK, page_state(self.server.journal, self.server.status()))
        elif path == "/scans":
            self._answer_json(HTTPStatus.OK, scans_of_the_day(self.server.journal))
        elif path == "/events":
            self._stream()
        elif match := _PICTURE.fullmatch(path):
            self._answer_picture(int(match[1]), int(match[2]))
        elif (match := _COLOURS.fullmatch(path)) and match[1] in PALETTES:
            self._answer(HTTPStatus.OK, "image/png", encode_palette(match[1]))
        else:
            self._answer_text(HTTPStatus.NOT_FOUND, "There is nothing here. The page is at /.\n")

    do_HEAD = do_GET

    def refuse(self) -> None:
        """Answer a request that would change something: there is nothing to change."""
        self.close_connection = True  # what follows may be a body, which is not read
        self._answer_text(
            HTTPStatus.METHOD_NOT_ALLOWED, "The monitor is read-only.\n", {"Allow": "GET, HEAD"}
        )

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse

    def _answer_picture(self, slice_number: int, index: int) -> None:
        picture = self.server.journal.picture(slice_number, index)
        if picture is None:
            self._answer_text(HTTPStatus.NOT_FOUND, "This picture is not kept any more.\n")
        else:
            self._answer(HTTPStatus.OK, "image/png", picture.png())

    def _stream(self) -> None:
        """Send the state of the page, and again whenever it changes (server-sent events, WHATWG HTML)."""
        self.close_connection = True
        self._head(HTTPStatus.OK, "text/event-stream", {"Connection": "close"})
        if self.command == "HEAD":
            return
        journal, ending = self.server.journal, self.server.ending
        n_ended = None
        while True:
            version = journal.version
            if ending.is_set():  # asked after that: the version changes once more behind it
                return
            state = page_state(journal, self.server.status())
            self._send_event("state", state)
            if (now_ended := state["n_ended"]) != n_ended:
                n_ended = now_ended
                self._send_event("scans", scans_of_the_day(journal))
            journal.wait_for_change(version, _RUNNING_S if state["running"] else _IDLE_S)
            ending.wait(_SHORTEST_S)

    def _send_event(self, name: str, content: object) -> None:
        self.wfile.write(f"event: {name}\ndata: {json.dumps(content)}\n\n".encode())

    def _answer_json(self, status: HTTPStatus, content: Json | list[Json]) -> None:
        self._answer(status, "application/json", json.dumps(content).encode() + b"\n")

    def _answer_text(self, status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
        self._answer(status, "text/plain; charset=utf-8", text.encode(), headers)

    def _answer(
        self, status: HTTPStatus, content_type: str, content: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self._head(status, content_type, {"Content-Length": str(len(content)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _head(self, status: HTTPStatus, content_type: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, **_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        """Return the ``Server`` header, without versions."""
        return "gadgetron-ebm"

    def log_message(self, format: str, *arguments: object) -> None:
        """Log requests for those who look for faults; their text comes from the network."""
        logger.debug("monitor: %r", format % arguments)
