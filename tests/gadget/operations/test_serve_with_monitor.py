"""``gadgetron-ebm serve`` as a process: its log as JSON, its monitor, and that both say the same."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from simulated_scans import scan_messages

from gadget.client import send_scan
from gadget.wire.messages import ConfigFile, Image

COMMAND = (sys.executable, "-c", "from gadget.cli import main; main()")
QUICK = ("--prior", "tv", "--device", "cpu", "--set", "solver.iterations=3", "--no-posterior")


class Serving:
    """A server process; its log goes to a file."""

    def __init__(self, log: Path, *options: str) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*COMMAND, "serve", "--host", "127.0.0.1", "--port", "0", *QUICK, *options],
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def announced(self, pattern: str) -> str:
        """Wait for a message like this in the log; return its first group."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if match := re.search(pattern, self.log.read_text()):
                return match[1]
            time.sleep(0.02)
        raise AssertionError(f"it does not say {pattern}:\n{self.log.read_text()}")

    def entries(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def __enter__(self) -> "Serving":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read()


@pytest.mark.slow
def test_log_and_monitor_say_the_same(tmp_path):
    messages = [ConfigFile("default"), *scan_messages(tmp_path, n_slices=2)]
    with Serving(tmp_path / "log", "--monitor", "0", "--log-format", "json") as serving:
        port = int(serving.announced(r"listening on 127.0.0.1 port (\d+)"))
        page = serving.announced(r"monitor at ([^\s\"]+)")
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(f"{page}health")  # it answers before the model is loaded
        counts = []

        def send():
            counts.append(sum(isinstance(one, Image) for one in send_scan(messages, "127.0.0.1", port)))

        senders = [threading.Thread(target=send) for _ in range(2)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(120)
        assert counts == [2, 2]
        assert json.loads(get(f"{page}health"))["status"] == "ok"
        deadline = time.monotonic() + 20
        while len(scans := json.loads(get(f"{page}scans"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        state = json.loads(get(f"{page}state"))
        assert [part["what"] for part in state["memory"]] == ["server", "reconstruction"]
        assert "gadgetron_ebm_worker_resident_memory_bytes" in get(f"{page}metrics").decode()
        assert get(f"{page}pictures/1/0.png").startswith(b"\x89PNG")
        serving.process.send_signal(signal.SIGTERM)
        assert serving.process.wait(20) == 0
        assert serving.process.stdout.read() == ""  # where the log is for machines, all is in it
    entries = serving.entries()
    assert (entries[-1]["message"], entries[-1]["level"]) == ("stopped", "info")
    assert serving.log.read_text().count(page) == 2  # in words and by name, of one line
    assert sorted(one["port"] for one in entries if "port" in one) == [port]
    for scan in scans:
        of_scan = [one for one in entries if one.get("scan") == scan["address"]]
        assert not [one for one in entries if scan["address"] in one["message"]]
        assert of_scan[-1]["message"].startswith("done (")
        (summary,) = [one for one in of_scan if "median_latency_s" in one]
        assert (f"{summary['median_latency_s']:.3f}", f"{summary['p95_latency_s']:.3f}") == (
            scan["median"],
            scan["p95"],
        )
        # lines of the other process say which scan they are about, too
        made = [one["message"] for one in of_scan if one["logger"] == "gadget.series_writer"]
        assert [line.split(":")[0] for line in made] == ["slice 0", "slice 1"]
        for record in state["slices"]:
            if record["scan"] == scan["number"]:
                weight = dict(record["facts"])["weight"]
                assert any(f"weight {weight}" in line for line in made)
    assert sorted(one["latency_s"] for one in entries if "latency_s" in one) == sorted(
        state["latency"]["recent"]
    )


def test_who_looks_on_needs_no_torch():
    look = "import sys, gadget.operations.monitor, gadget.operations.latency; print('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", look], capture_output=True, check=True).stdout == b"False\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--monitor", "65536"), "'--monitor': Input should be less than or equal to 65535"),
        (("--log-format", "xml"), "'xml' is not one of 'text', 'json'"),
    ],
)
def test_misuse_is_told(run, options, words):
    code, _, err = run("serve", *options)

    assert code == 2
    assert words in err
