"""Lines of the log: as text, as JSON, with numbers, with what somebody hopes will look like another line."""

import contextvars
import json
import logging
import sys
import threading

import pytest

from gadget.logs import JsonLines, TextLines, facts, name_scan, setup_logging
from gadget.streaming_ahead import Ahead


def record(
    message: str, *arguments: object, level: int = logging.INFO, **others: object
) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "gadget.x", "levelno": level, "levelname": logging.getLevelName(level), "msg": message}
        | {"args": arguments, "created": 1_700_000_000.25}
        | others
    )


def test_a_json_line_has_time_level_logger_and_message():
    line = JsonLines().format(record("slice %d: %s", 3, "done"))

    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "info",
        "logger": "gadget.x",
        "message": "slice 3: done",
    }


def test_numbers_that_belong_to_a_message_stand_in_json_by_name():
    entry = json.loads(JsonLines().format(record("slow", **facts(latency_s=0.5, slice=3, level="mine"))))

    assert (entry["latency_s"], entry["slice"]) == (0.5, 3)
    assert entry["level"] == "info"  # no fact takes the place of what each line has


def test_a_json_line_is_one_line_of_ascii_whatever_the_message():
    line = JsonLines().format(record("two\nlines, \x1b[31mred, \u2028, \ud800"))

    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["message"].startswith("two\nlines")


def test_an_exception_is_in_its_json_object():
    try:
        raise ValueError("what went wrong")
    except ValueError:
        entry = json.loads(JsonLines().format(record("failed", exc_info=sys.exc_info())))

    assert entry["exception"].endswith("ValueError: what went wrong")


def test_an_exception_of_another_process_is_in_the_json_object():
    assert (
        json.loads(JsonLines().format(record("failed", exc_text="Traceback ...")))["exception"]
        == "Traceback ..."
    )


def test_no_message_can_look_like_two_lines_of_the_log():
    line = TextLines().format(record("bad name: x\nERROR the disk is full\r\x1b[2J"))

    assert line == "INFO bad name: x\n    ERROR the disk is full??[2J"


def test_the_time_starts_a_line_where_it_is_asked_for():
    assert TextLines(with_time=True).format(record("ready")).startswith("2023-11-")


@pytest.mark.parametrize("verbose", [True, False])
def test_what_is_set_up_writes_json_to_stderr(capsys, verbose):
    setup_logging(verbose=verbose, log_format="json")
    logging.getLogger("gadget.x").info("a slice")
    logging.getLogger("gadget.x").warning("a warning")
    logging.getLogger("elsewhere").info("noise")

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    assert [line["message"] for line in lines] == ["a slice", "a warning"][not verbose :]


def logged(handler: logging.Handler, message: str, **extra: object) -> None:
    """Log a warning that only this handler gets."""
    log = logging.Logger("gadget.x")
    log.addHandler(handler)
    log.warning(message, extra=extra)


def test_each_line_says_which_scan_it_is_about(capsys):
    setup_logging(verbose=True)
    handler = logging.getLogger().handlers[0]

    def about(address):
        name_scan(address)
        logged(handler, "slice 0: done")
        logged(handler, f"{address}: failed")

    for address in ("10.0.0.1:5", "10.0.0.2:6"):
        thread = threading.Thread(target=about, args=(address,))
        thread.start()
        thread.join()
    logged(handler, "ready")

    assert capsys.readouterr().err.splitlines() == [
        "WARNING 10.0.0.1:5: slice 0: done",
        "WARNING 10.0.0.1:5: failed",
        "WARNING 10.0.0.2:6: slice 0: done",
        "WARNING 10.0.0.2:6: failed",
        "WARNING ready",
    ]


def test_a_json_line_has_the_scan_by_name(capsys):
    setup_logging(verbose=True, log_format="json")
    handler = logging.getLogger().handlers[0]
    contextvars.copy_context().run(lambda: (name_scan("a:1"), logged(handler, "x", **facts(slice=2))))

    entry = json.loads(capsys.readouterr().err)
    assert (entry["scan"], entry["slice"], entry["message"]) == ("a:1", 2, "x")


def test_a_json_line_does_not_say_its_scan_twice():
    own, other = ("a:1: failed: b:2: no", "a:10: failed")
    about = facts(scan="a:1")

    assert json.loads(JsonLines().format(record(own, **about)))["message"] == "failed: b:2: no"
    assert json.loads(JsonLines().format(record(other, **about)))["message"] == "a:10: failed"
    assert TextLines().format(record(own, **about)) == "INFO a:1: failed: b:2: no"


def test_what_works_ahead_in_another_thread_knows_its_scan(capsys):
    setup_logging(verbose=True)
    handler = logging.getLogger().handlers[0]

    def source():
        logged(handler, "assembled")
        yield 1

    def work():
        name_scan("peer:7")
        ahead = Ahead(source(), cost=lambda _: 1, limit=1, name="assembly")
        assert list(ahead) == [1]
        ahead.join()

    contextvars.copy_context().run(work)

    assert capsys.readouterr().err == "WARNING peer:7: assembled\n"
