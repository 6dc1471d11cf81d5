"""Progress of a training run on a terminal, and signals that ask it to stop."""

import io
import signal
import sys
from dataclasses import dataclass

import pytest

from gadget.commands.training_progress import reading_progress, stop_on_signals, training_progress


@dataclass
class _Progress:
    update: int
    n_updates: int = 40
    value: float = 0.25


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch) -> _Terminal:
    """Put a terminal in the place of stderr (in the test itself: pytest sets stderr before each phase)."""
    written = _Terminal()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    return written


def test_a_terminal_shows_how_far_the_run_is_how_fast_and_how_long_it_takes(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with training_progress(shown=True, what="energy gap") as report:
        for update in (30, 31, 32, 40):
            report(_Progress(update))
    shown = terminal.getvalue()
    assert "training, energy gap 0.25" in shown
    assert "40/40" in shown
    assert "updates/s" in shown
    assert "left:" in shown


def test_reading_is_shown_too(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with reading_progress(shown=True) as read:
        read(3, 7)
    assert "reading images" in terminal.getvalue()


@pytest.mark.parametrize("shown", [True, False])
def test_nothing_is_shown_in_a_pipe_or_by_processes_that_do_not_lead(shown, monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(terminal, "isatty", lambda: not shown)
    with training_progress(shown=shown, what="loss") as report, reading_progress(shown=shown) as read:
        read(1, 1)
        report(_Progress(1))
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_to_stop_and_its_handler_is_put_back(number, capsys):
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop()
        signal.raise_signal(number)
        assert stop()
    assert signal.getsignal(number) is before
    assert "stopping after this update" in capsys.readouterr().err


def test_a_second_signal_breaks_off_if_it_is_an_interrupt():
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
