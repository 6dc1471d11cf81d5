"""Logging of the command line: to stderr, set up in this one place. Libraries only make loggers.

A line is a text, or (for machines that collect logs) a JSON object. Numbers that belong to a message go with
it by ``logger.info("...", extra=facts(latency_s=0.4))``; the text says them in words, the object by name.
Where several scans run at once, each line says which it is about: :func:`name_scan`.
"""

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

OWN = ("gadget", "reconlib")

LogFormat = Literal["text", "json"]

Fact = str | int | float | bool | None

_FACTS = "facts"
_SCAN = "scan"
_current_scan: ContextVar[str | None] = ContextVar("current_scan", default=None)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def facts(**values: Fact) -> dict[str, dict[str, Fact]]:
    """Return the ``extra`` of a logging call that carries these values."""
    return {_FACTS: values}


def name_scan(address: str) -> None:
    """Let what this thread logs from now on say that it is about the scan of this peer.

    Threads that it starts know it only if they run in a copy of its context.
    """
    _current_scan.set(address)


def add_scan(record: logging.LogRecord) -> bool:
    """Add the scan to a record's facts, if it has none and there is one; a filter that lets all pass."""
    known = getattr(record, _FACTS, {})
    if _SCAN not in known and (scan := _current_scan.get()) is not None:
        setattr(record, _FACTS, {_SCAN: scan, **known})
    return True


def message_of(record: logging.LogRecord) -> str:
    """Return the message, which begins with the scan that it is about, if there is one."""
    scan, message = _scan_and_message(record)
    return message if scan is None else f"{scan}: {message}"


def _scan_and_message(record: logging.LogRecord) -> tuple[object, str]:
    """Return the scan that a record is about, if there is one, and the message without it."""
    message, scan = record.getMessage(), getattr(record, _FACTS, {}).get(_SCAN)
    return scan, message if scan is None else message.removeprefix(f"{scan}: ")


def setup_logging(*, verbose: bool, with_time: bool = False, log_format: LogFormat = "text") -> None:
    """Send logs to stderr: warnings, and what happens to each slice where it was asked for.

    Parameters
    ----------
    with_time
        Start each line with the time, as a server wants; JSON lines always have it.
    """
    handler = _StderrHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines(with_time=with_time))
    handler.addFilter(add_scan)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OWN:
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.WARNING)


class TextLines(logging.Formatter):
    """Lines for people. What follows a line break is indented, so that no message can look like two."""

    def __init__(self, *, with_time: bool = False) -> None:
        super().__init__(("%(asctime)s " if with_time else "") + "%(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = message_of(record)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return _CONTROL.sub("?", super().format(record)).replace("\n", "\n    ")


class JsonLines(logging.Formatter):
    """One JSON object a line: time (ISO 8601, UTC), level, logger, message, what was given as facts."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _scan_and_message(record)[1],
        }
        entry |= {name: value for name, value in getattr(record, _FACTS, {}).items() if name not in entry}
        if record.exc_text:  # another process has formatted it
            entry["exception"] = record.exc_text
        elif record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic only in its stubs
    """Writes to what ``sys.stderr`` is at the moment: a progress bar puts itself in its place for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)
