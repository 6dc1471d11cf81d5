"""Whatever comes to the monitor's port: it is answered or closed, and the next one is served."""

import contextlib
import logging
import socket

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from watched import look_on

from gadget.operations.journal import Journal
from gadget.operations.monitor import Monitor

PATHS = ["/", "/health", "/metrics", "/state", "/scans", "/pictures/1/0.png", "/colours/magma.png", "*", ""]
paths = st.sampled_from(PATHS) | st.text(st.characters(max_codepoint=255), max_size=40).map("/".__add__)
names = st.sampled_from(["Host", "Content-Length", "Transfer-Encoding", "Expect", "Connection", "Range"])
values = st.sampled_from(["localhost", "127.0.0.1", "[::1]:9", "evil.example", "-1", "9" * 40, "chunked"])
requests = st.builds(
    lambda method, path, version, headers: (
        f"{method} {path} {version}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    ).encode("latin-1"),
    st.sampled_from(["GET", "HEAD", "POST", "OPTIONS", "CONNECT", "get", ""]),
    paths,
    st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9" + "9" * 40, "x", ""]),
    st.lists(st.tuples(names, values | st.text(st.characters(max_codepoint=255), max_size=20)), max_size=4),
)


@pytest.fixture(scope="module")
def monitor():
    journal = Journal()
    look_on(journal.watch("peer"))
    with Monitor(journal, port=0) as one:
        yield one


def answer(monitor: Monitor, data: bytes) -> bytes:
    """Send bytes and their end; return all that comes until the other side has closed."""
    port = int(monitor.address.rsplit(":", 1)[1].rstrip("/"))
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        found = b""
        with contextlib.suppress(ConnectionError):  # it closes with what it does not want unread
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(65536):
                found += piece
        return found


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300) | requests | st.lists(requests, max_size=3).map(b"".join))
@example(data=b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n")
@example(data=b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n")
@example(data=b"GET / HTTP/1.1\r\nHost: localhost\r\n " + b"x" * 70_000)
@example(data=b"GET /state HTTP/1.1\r\nHost: evil.example\r\n\r\n")
def test_any_bytes_are_answered_or_closed_and_no_fault_of_ours(data, monitor, caplog):
    with caplog.at_level(logging.INFO, logger="gadget"):
        answer(monitor, data)
    assert caplog.records == []
    with caplog.at_level(logging.INFO, logger="gadget"):
        assert answer(monitor, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").startswith(
            b"HTTP/1.1 200"
        )
