"""One worker process as the front sees it: started, asked, listened to, and ended."""

import contextlib
import json
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from gadget.worker.channel import Channel

_END_S = 5.0


class WorkerProcess:
    """Starts with being made.

    Raises
    ------
    OSError
        The program cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.answers: dict[int, str | None] = {}
        """To what it was asked, by number: empty where all is well, None until it answers."""
        self.is_loaded = False
        """Whether it has loaded what it was first asked for, or said why not."""
        self.is_overdue = False
        """Whether it was asked for a sign of life and has not given one yet."""
        self.is_gone = False
        self.is_left_behind = False
        """Whether it is given up and could not be ended."""
        self.how_it_ended = ""
        self.channel, other = Channel.pair()
        try:
            with other:
                options = json.dumps({"channel": other.fileno()})
                self._process = subprocess.Popen(
                    [*command, options],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    pass_fds=[other.fileno()],
                    start_new_session=True,
                )
        except OSError:
            self.channel.close()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def sent(self, content: dict[str, Any], passed: socket.socket | None = None) -> bool:
        """Send a packet unless too much lies there unread; whether it was sent.

        Raises
        ------
        OSError
            The process is gone.
        """
        try:
            self.channel.send(content, passed=passed, waits=False)
        except BlockingIOError:
            return False
        return True

    def next_packet(self, ping_after_s: float, silent_s: float) -> dict[str, Any] | None:
        """Wait for what it says next; None: it is gone, or was ended because it says nothing.

        Parameters
        ----------
        ping_after_s, silent_s
            After how long it is asked for a sign of life, and how long it has for one.
        """
        if not self.channel.wait(ping_after_s):
            with contextlib.suppress(OSError):  # it is gone, which the next look finds, or reads nothing
                self.sent({"ping": 0})
            # the first of the two waits is for a worker that is busy for a moment
            self.is_overdue = not self.channel.wait(min(ping_after_s, silent_s))
            if self.is_overdue and not self.channel.wait(max(silent_s - ping_after_s, 0.0)):
                self.how_it_ended = f"gave no sign of life for {silent_s:g} s and was ended"
                self._process.kill()
                return None
            self.is_overdue = False
        packet = self.channel.receive()
        return None if packet is None else packet[0]

    def hang_up(self) -> None:
        """Let it end at once."""
        self.channel.hang_up()

    def bury(self) -> str:
        """Make sure that the process has ended, and return how, in words."""
        code = self._code()
        if code is None:
            self._process.kill()
            code = self._code()
        self.channel.close()
        if code is None:  # in the kernel, with a device or disk that does not answer
            self.is_left_behind = True
            return f"did not end when it was killed (process {self.pid}) and was left behind"
        return self.how_it_ended or _in_words(code)

    def _code(self) -> int | None:
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return None


def _in_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"
