"""``/metrics``: counts and times in Prometheus' text format, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/. Names follow its conventions: base units,
``_total`` for counters, the standard names for the process. Nothing in it says what was scanned.
"""

import os
from collections.abc import Iterable, Iterator, Mapping

from gadget.operations.journal import Journal
from gadget.operations.process_figures import process_figures
from gadget.operations.server_status import Condition, ServerStatus
from gadget.operations.slice_record import KINDS, PASSED_ON
from gadget.operations.totals import Histogram
from gadget.version import software

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX = "gadgetron_ebm_"
_OUTCOMES = ("done", "failed", "abandoned")
_LEVELS = ("warning", "error")
Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def metrics_text(journal: Journal, status: ServerStatus) -> str:
    """Return the metrics of a server."""
    with journal.changed:
        lines = [*_of_journal(journal), *_of_status(status)]
    return "\n".join([*lines, *_of_processes(journal, status), ""])


def _of_journal(journal: Journal) -> Iterator[str]:
    totals = journal.totals
    yield from _family(
        "scans_total",
        "counter",
        "Scans that have ended, by how.",
        [({"outcome": one}, totals.scans[one]) for one in _OUTCOMES],
    )
    yield from _family("scans_running", "gauge", "Scans that are running.", [({}, len(journal.running))])
    yield from _family(
        "probes_total", "counter", "Connections that came and went without a scan.", [({}, totals.probes)]
    )
    yield from _family(
        "received_messages_total",
        "counter",
        "Data messages (readouts, buckets, ...) received.",
        [({}, totals.data_messages)],
    )
    yield from _family(
        "received_bytes_total", "counter", "Bytes of their samples.", [({}, totals.data_bytes)]
    )
    yield from _family(
        "images_sent_total",
        "counter",
        "Images sent, by kind.",
        [({"kind": one.lower()}, totals.images[one]) for one in (*KINDS, PASSED_ON)],
    )
    yield from _histogram(
        "image_latency_seconds", "From the last data of a slice to its first image sent.", totals.latency
    )
    yield from _histogram(
        "reconstruction_seconds", "Time to reconstruct a slice, without waiting.", totals.reconstruction
    )
    yield from _family(
        "log_messages_total",
        "counter",
        "Warnings and errors in the log.",
        [({"level": one}, totals.problems[one]) for one in _LEVELS],
    )


def _of_status(status: ServerStatus) -> Iterator[str]:
    yield from _family(
        "ready",
        "gauge",
        "1 while scans are reconstructed, 0 while they wait for the model or are refused.",
        [({}, float(status.condition is Condition.READY))],
    )
    yield from _family("connections", "gauge", "Open connections.", [({}, status.n_connections)])
    yield from _family(
        "queued_bytes",
        "gauge",
        "Received and not yet taken by a reconstruction.",
        [({}, status.queued_bytes)],
    )
    yield from _family(
        "worker_restarts_total",
        "counter",
        "How often the reconstructing process had to be started again.",
        [({}, status.n_restarts)],
    )


def _of_processes(journal: Journal, status: ServerStatus) -> Iterator[str]:
    yield from _family("build_info", "gauge", "The version.", [({"version": software()}, 1)])
    yield from _family(
        "process_start_time_seconds", "gauge", "When it started, Unix time.", [({}, journal.started_at)], ""
    )
    own, worker = (None if pid is None else process_figures(pid) for pid in (os.getpid(), status.worker_pid))
    for prefix, figures in (("process_", own), (f"{_PREFIX}worker_", worker)):
        if figures is not None:
            for name, kind, text, value in (
                ("resident_memory_bytes", "gauge", "Resident memory.", figures.resident_bytes),
                ("cpu_seconds_total", "counter", "User and system time.", figures.cpu_s),
                ("open_fds", "gauge", "Open files and sockets.", figures.n_open_files),
                ("threads", "gauge", "Threads.", figures.n_threads),
            ):
                yield from _family(name, kind, text, [({}, value)], prefix)


def _family(
    name: str, kind: str, words: str, samples: Iterable[Sample], prefix: str = _PREFIX
) -> Iterator[str]:
    yield from _head(prefix + name, kind, words)
    for labels, value in samples:
        yield _line(prefix + name, labels, value)


def _histogram(name: str, words: str, histogram: Histogram) -> Iterator[str]:
    name = _PREFIX + name
    yield from _head(name, "histogram", words)
    so_far = 0
    for bound, count in zip((*map(_number, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        so_far += count
        yield _line(f"{name}_bucket", {"le": bound}, so_far)
    yield _line(f"{name}_sum", {}, histogram.total)
    yield _line(f"{name}_count", {}, so_far)


def _head(name: str, kind: str, words: str) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value)) if value != int(value) else str(int(value))
