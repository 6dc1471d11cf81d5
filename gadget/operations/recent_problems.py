"""Warnings and errors of the log, kept for the monitor; the log holds no patient data."""

import logging
from types import TracebackType

from gadget.logs import add_scan, message_of
from gadget.operations.journal import Journal


class RecentProblems(logging.Handler):
    """Notes what is logged as warning or worse in a journal, while it is entered (``with``)."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self.addFilter(add_scan)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        try:
            text = message_of(record)
        except Exception:  # noqa: BLE001  # as logging itself does: a log call must never end a scan
            self.handleError(record)
            return
        self._journal.note_problem(level, text)

    def __enter__(self) -> "RecentProblems":
        logging.getLogger().addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        logging.getLogger().removeHandler(self)
        self.close()
