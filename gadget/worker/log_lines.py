"""The worker's log lines go to the front, which writes one log for both."""

import logging
from typing import Any

from gadget.errors import GadgetError
from gadget.logs import OWN, add_scan
from gadget.worker.channel import Channel

_LONGEST = 20_000
_KEPT = ("name", "levelno", "levelname", "created", "facts")


class _ToFront(logging.Handler):
    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self.addFilter(add_scan)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        content = {name: getattr(record, name) for name in _KEPT if hasattr(record, name)}
        content["msg"] = record.getMessage()[:_LONGEST]
        if record.exc_info:
            content["exc_text"] = (self.formatter or logging.Formatter()).formatException(record.exc_info)[
                -_LONGEST:
            ]
        try:
            self._channel.send({"log": content})
        except (OSError, GadgetError):
            self.handleError(record)  # the front is gone, and this process with it, in a moment


def log_to_front(channel: Channel) -> None:
    """Send all further log lines over the channel."""
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.handlers[:] = [_ToFront(channel)]
    root.setLevel(logging.WARNING)
    for name in OWN:
        logging.getLogger(name).setLevel(logging.INFO)


def log_again(content: dict[str, Any]) -> None:
    """Log in this process what another one sent."""
    record = logging.makeLogRecord(content)
    log = logging.getLogger(record.name)
    if log.isEnabledFor(record.levelno):
        log.handle(record)
