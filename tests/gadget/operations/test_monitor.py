"""The monitor over HTTP: addresses, refusals, headers, streams, limits, and how it ends."""

import contextlib
import http.client
import json
import logging
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from watched import SECRETS, look_on

import gadget.operations
from gadget.errors import GadgetError
from gadget.operations.journal import Journal
from gadget.operations.monitor import MOST_CONNECTIONS, Monitor
from gadget.operations.server_status import Condition, ServerStatus
from gadget.operations.trusted_host import is_trusted, own_names

PAGE = Path(gadget.operations.__file__).parent / "page"
ADDRESSES = ["/", "/monitor.js", "/health", "/metrics", "/state", "/scans", "/pictures/1/0.png", "/nothing"]


class Asked:
    """A monitor, and what it answers."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.status = ServerStatus()
        self.monitor = Monitor(self.journal, lambda: self.status, port=0)
        self.port = int(self.monitor.address.rsplit(":", 1)[1].rstrip("/"))

    def get(self, path, method="GET", **headers):
        """Return status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def stream(self):
        """Return a connection that listens to events, and a file to read them from."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        sock.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        file = sock.makefile("rb")
        while file.readline() not in (b"\r\n", b""):
            pass
        return sock, file


@pytest.fixture
def asked():
    one = Asked()
    with one.monitor:
        yield one


def next_event(file, name):
    """Return the content of the next event of a name."""
    while line := file.readline():
        if line == f"event: {name}\n".encode():
            return json.loads(file.readline().removeprefix(b"data: "))
    raise EOFError("the stream ended")


def test_the_page_and_its_parts_are_there(asked):
    for path in PAGE.iterdir():
        status, headers, body = asked.get("/" if path.name == "index.html" else f"/{path.name}")
        assert (status, body) == (200, path.read_bytes())
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_names_no_other_host():
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"""[a-z]://|["'(]//""", text), path.name
        assert "innerHTML" not in text
        assert "style=" not in text  # the policy would refuse it


@pytest.mark.parametrize("path", ADDRESSES)
def test_all_answers_have_the_policy_and_are_never_stored(asked, path):
    _, headers, _ = asked.get(path)

    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Access-Control-Allow-Origin"] is None
    assert headers["Server"] == "gadgetron-ebm"


@pytest.mark.parametrize(
    "path", ["/", "/monitor.js", "/state", "/scans", "/pictures/1/0.png", "/events", "/x"]
)
def test_a_name_that_is_not_ours_is_not_answered(asked, path):
    status, _, body = asked.get(path, Host=f"evil.example:{asked.port}")

    assert status == 421
    assert b"--monitor-host" in body


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_counts_are_told_under_any_name(asked, path):
    assert asked.get(path, Host="service-of-some-network:9080")[0] == 200


@pytest.mark.parametrize(
    ("host", "trusted"),
    [
        ("localhost", True),
        ("LOCALHOST:9100", True),
        ("localhost.:9100", True),
        ("127.0.0.1:9100", True),
        ("[::1]:9100", True),
        ("10.1.2.3", True),
        ("scanner-pc:9100", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evil.example:9100", False),
        ("127.0.0.1.evil.example", False),
        ("localhost:9100@evil.example", False),
        ("", False),
        (None, False),
        ("localhost\n", False),
        ("[::1", False),
    ],
)
def test_trusted_are_our_names_and_addresses(host, trusted):
    assert is_trusted(host, own_names("Scanner-PC")) is trusted


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_there_is_nothing_to_change(asked, method):
    status, headers, _ = asked.get("/state", method)

    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_head_is_an_answer_without_its_body(asked, path):
    status, headers, body = asked.get(path, "HEAD")

    assert (status, body) == (asked.get(path)[0], b"")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    "path", ["/../monitor.py", "/page/index.html", "/%2e%2e/png.py", "//etc/passwd", "/colours/../../x.png"]
)
def test_no_path_leads_out_of_the_page(asked, path):
    assert asked.get(path)[0] == 404


@pytest.mark.parametrize(
    ("condition", "status", "word"),
    [
        (Condition.READY, 200, "ok"),
        (Condition.LOADING, 503, "loading"),
        (Condition.RESTARTING, 503, "restarting"),
        (Condition.STOPPING, 503, "stopping"),
    ],
)
def test_health_tells_by_its_status_whether_scans_are_reconstructed(asked, condition, status, word):
    asked.status = ServerStatus(condition=condition, n_connections=2, n_restarts=1)

    found, _, body = asked.get("/health")

    assert found == status
    assert json.loads(body) == {
        "status": word,
        "words": condition.value,
        "connections": 2,
        "restarts": 1,
    }


def test_metrics_say_what_format_they_have(asked):
    status, headers, body = asked.get("/metrics")

    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"gadgetron_ebm_ready 1\n" in body


def test_pictures_are_png_files(asked):
    look_on(asked.journal.watch("peer"))

    status, headers, body = asked.get("/pictures/1/0.png")

    assert (status, headers["Content-Type"]) == (200, "image/png")
    assert body.startswith(b"\x89PNG\r\n")
    assert asked.get("/pictures/99/0.png")[0] == 404
    assert asked.get("/colours/magma.png")[0] == 200


def test_a_scan_appears_in_the_stream_of_events(asked):
    sock, file = asked.stream()
    with sock, file:
        assert next_event(file, "state")["running"] == []
        assert next_event(file, "scans") == []
        look_on(asked.journal.watch("peer"), ending=None)
        while not (state := next_event(file, "state"))["slices"]:
            pass
        assert state["running"][0]["number"] == 1
        look_on(asked.journal.watch("other"))
        assert [scan["number"] for scan in next_event(file, "scans")] == [2]


def test_no_answer_has_a_name_from_the_header(asked):
    look_on(asked.journal.watch("peer"))
    look_on(asked.journal.watch("peer"), ending=None)

    for path in ADDRESSES:
        body = asked.get(path)[2]
        assert not [secret for secret in SECRETS if secret.encode() in body]


def test_warnings_of_the_log_are_shown_while_it_runs(asked):
    logging.getLogger("gadget.somewhere").warning("slice %d is %s", 3, "odd")

    (problem,) = json.loads(asked.get("/state")[2])["problems"]
    assert (problem["level"], problem["text"]) == ("warning", "slice 3 is odd")
    asked.monitor.close()
    logging.getLogger("gadget.somewhere").warning("later")
    assert len(asked.journal.problems) == 1


def threads_of_monitors():
    return [one for one in threading.enumerate() if "monitor" in one.name or "process_request" in one.name]


def test_open_streams_and_silent_connections_do_not_keep_it_from_ending(asked):
    silent = socket.create_connection(("127.0.0.1", asked.port), timeout=10)
    streams = [asked.stream() for _ in range(3)]  # accepted after it
    next_event(streams[0][1], "state")
    assert len(threads_of_monitors()) == 5
    started = time.monotonic()

    asked.monitor.close()

    assert time.monotonic() - started < 5
    assert not threads_of_monitors()
    for sock, file in streams:
        file.close()
        sock.close()
    silent.close()


def test_connections_beyond_the_limit_are_closed_at_once(asked):
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            sock, file = asked.stream()
            stack.enter_context(sock)
            stack.enter_context(file)
        beyond = stack.enter_context(socket.create_connection(("127.0.0.1", asked.port), timeout=10))
        with contextlib.suppress(ConnectionError):
            assert beyond.recv(1) == b""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:  # the places are free again once the browsers are gone
        asked.journal.note_problem("warning", "wakes the streams")
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            if asked.get("/health")[0] == 200:
                return
    pytest.fail("no place became free")


def test_a_place_is_free_again_where_there_was_no_thread_for_it(asked, monkeypatch):
    start = threading.Thread.start

    def start_no_answer(thread):
        if "process_request" in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_no_answer)
        for _ in range(MOST_CONNECTIONS):
            with socket.create_connection(("127.0.0.1", asked.port), timeout=10) as one:
                assert one.recv(1) == b""
    assert asked.get("/health")[0] == 200
    asked.monitor.close()


def test_a_port_that_is_taken_is_told(asked):
    with pytest.raises(
        GadgetError, match=r"monitor cannot listen on 127.0.0.1 port \d+: Address already in use"
    ):
        Monitor(Journal(), port=asked.port)


def test_an_address_that_is_nobodys_is_told():
    with pytest.raises(GadgetError, match=r"monitor cannot listen on 'no such host': .* --monitor-host"):
        Monitor(Journal(), port=0, host="no such host")


def test_it_listens_on_this_machine_only(asked):
    assert asked.monitor.address == f"http://127.0.0.1:{asked.port}/"
