"""Logging of the command line: to stderr, set up in this one place. Libraries only make loggers."""

import logging
import sys

OWN = ("gadget", "reconlib")


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic only in its stubs
    """Writes to what ``sys.stderr`` is at the moment: a progress bar puts itself in its place for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def setup_logging(*, verbose: bool, with_time: bool = False) -> None:
    """Send logs to stderr: warnings, and what happens to each slice where it was asked for.

    Parameters
    ----------
    with_time
        Start each line with the time, as a server wants.
    """
    handler = _StderrHandler()
    handler.setFormatter(
        logging.Formatter(("%(asctime)s " if with_time else "") + "%(levelname)s %(message)s")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OWN:
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.WARNING)
