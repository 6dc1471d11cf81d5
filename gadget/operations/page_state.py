"""What the monitor page is told: plain dictionaries for JSON, numbers written as the log writes them."""

from __future__ import annotations

import os

from gadget.operations.journal import Journal
from gadget.operations.latency import in_seconds, quantile
from gadget.operations.process_figures import process_figures
from gadget.operations.scan_record import ScanRecord
from gadget.operations.server_status import Condition, ServerStatus
from gadget.operations.slice_record import SliceRecord
from gadget.version import software
from gadget.wire.limits import MIB

Json = dict[str, object]

SHOWN_SCANS = 200
DAY_S = 24 * 3600.0


def health(status: ServerStatus) -> Json:
    """Return whether scans are reconstructed now: for probes of containers and services."""
    return {
        "status": "ok" if status.condition is Condition.READY else status.condition.name.lower(),
        "words": status.condition.value,
        "connections": status.n_connections,
        "restarts": status.n_restarts,
    }


def page_state(journal: Journal, status: ServerStatus) -> Json:
    """Return all that the page shows but the scans that have ended."""
    memory = [_memory("server", os.getpid())]
    if status.worker_pid is not None:
        memory.append(_memory("reconstruction", status.worker_pid))
    with journal.changed:
        totals = journal.totals
        latencies = list(journal.latencies)
        now = journal.clock()
        return {
            "n_ended": sum(totals.scans.values()),
            "now": now,
            "started": journal.started_at,
            "software": software(),
            "health": health(status),
            "queue": {
                "connections": status.n_connections,
                "most": status.most_connections,
                "waiting_mib": round(status.queued_bytes / MIB, 1),
            },
            "memory": [one for one in memory if one is not None],
            "latency": {
                "median": in_seconds(quantile(latencies, 0.5)) if latencies else None,
                "p95": in_seconds(quantile(latencies, 0.95)) if latencies else None,
                "recent": [round(one, 3) for one in latencies],
            },
            "counts": {
                "scans": sum(totals.scans.values()),
                "failed": sum(totals.scans.values()) - totals.scans["done"],
                "images": sum(totals.images.values()),
                "fallbacks": totals.images["FALLBACK"],
                "warnings": totals.problems["warning"],
                "errors": totals.problems["error"],
            },
            "running": [_scan(one, now) for one in journal.running],
            "slices": [_slice(one) for one in reversed(journal.slices)],
            "problems": [
                {"at": one.at, "level": one.level, "text": one.text, "times": one.times}
                for one in reversed(journal.problems)
            ],
        }


def scans_of_the_day(journal: Journal) -> list[Json]:
    """Return the scans that have ended within the last 24 hours, the newest first."""
    with journal.changed:
        now = journal.clock()
        ended = [one for one in reversed(journal.finished) if now - one.began_at < DAY_S]
        return [_scan(one, now) for one in ended[:SHOWN_SCANS]]


def _scan(scan: ScanRecord, now: float) -> Json:
    seconds = (scan.ended_at or now) - scan.began_at
    latency_s = scan.latency_s
    if latency_s is None and scan.latencies:
        latency_s = (quantile(scan.latencies, 0.5), quantile(scan.latencies, 0.95))
    return {
        "number": scan.number,
        "address": scan.address,
        "peer": scan.peer,
        "measured": scan.measured,
        "coils": scan.n_coils,
        "began": scan.began_at,
        "seconds": round(seconds, 1),
        "state": scan.state,
        "words": scan.words,
        "messages": scan.n_data,
        "mib": round(scan.n_bytes / MIB, 1),
        "mib_per_s": round(scan.n_bytes / MIB / max(scan.receiving_s, 0.001), 1),
        "announced": scan.n_announced,
        "images": scan.n_reconstructed,
        "kinds": dict(scan.images),
        "median": in_seconds(latency_s[0]) if latency_s else None,
        "p95": in_seconds(latency_s[1]) if latency_s else None,
    }


def _slice(record: SliceRecord) -> Json:
    return {
        "number": record.number,
        "scan": record.scan,
        "label": record.label,
        "at": record.at,
        "facts": list(record.facts.items()),
        "badges": list(record.badges.items()),
        "pictures": [
            {
                "name": one.name,
                "address": f"pictures/{record.number}/{index}.png",
                "low": f"{one.window[0]:.3g}",
                "high": f"{one.window[1]:.3g}",
                "palette": one.palette,
                "aspect": round(one.aspect, 4),
                "width": one.levels.shape[1],
                "height": one.levels.shape[0],
            }
            for index, one in enumerate(record.pictures)
        ],
    }


def _memory(what: str, pid: int) -> Json | None:
    figures = process_figures(pid)
    return None if figures is None else {"what": what, "mib": round(figures.resident_bytes / MIB)}
