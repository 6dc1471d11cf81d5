"""A real server with a spool that is killed in the middle of a scan."""

import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import h5py
import pytest
from simulated_scans import make_scan

from gadget.scan_file import read_scan
from gadget.spool.manifest import read_manifest
from gadget.wire.codec import encode
from gadget.wire.messages import Acquisition, ConfigFile

TV = ("--prior", "tv", "--no-posterior", "--set", "solver.iterations=3", "--device", "cpu")
PATIENCE_S = 60.0


def until(condition):
    """Wait for what another process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@contextmanager
def serving(folder):
    """Run a server in a process of its own; yield the process and its port."""
    program = [sys.executable, "-c", "from gadget.cli import main; main()"]
    options = ["serve", "--host", "127.0.0.1", "--port", "0", "--spool", str(folder), *TV]
    with subprocess.Popen([*program, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, int(process.stdout.readline().rsplit(maxsplit=1)[1])
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(PATIENCE_S)


def children_of(pid):
    """Return the processes that any thread of a process has started."""
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(number) for text in lists for number in text.split()]


@pytest.mark.slow
def test_a_server_killed_in_the_middle_of_a_scan_loses_nothing_of_it(run, tmp_path):
    folder = tmp_path / "spool"
    scan = make_scan(tmp_path / "scan.h5", n_slices=3)
    messages = [ConfigFile("any"), *read_scan(scan)]
    n_readouts = 32 + 2 * 26 + 5
    sent = b"".join(map(encode, messages[: 2 + n_readouts]))
    with serving(folder) as (server, port), socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(sent + encode(messages[2 + n_readouts])[:100])
        until(lambda: sum(path.stat().st_size for path in folder.glob("*.stream")) >= len(sent))
        workers = until(lambda: children_of(server.pid))
        server.send_signal(signal.SIGKILL)
        server.wait()
    for pid in workers:
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists())

    (stream,) = folder.glob("*.stream")
    assert stream.read_bytes() == sent
    code, _, words = run("replay", stream, tmp_path / "replayed.h5", *TV)
    assert code == 0
    assert "is incomplete: it breaks off after 91 whole messages" in words
    assert run("replay", scan, tmp_path / "whole.h5", *TV)[0] == 0
    with h5py.File(tmp_path / "replayed.h5") as one, h5py.File(tmp_path / "whole.h5") as other:
        images, expected = (file["dataset/image_1/data"][()] for file in (one, other))
        comments = one["dataset/image_1/attributes"][()]
    assert images[:2] == pytest.approx(expected[:2], rel=1e-4)
    assert [b"INCOMPLETE DATA" in text for text in comments] == [False, False, True]

    with serving(folder) as (_, port):
        assert run("send", scan, tmp_path / "next.h5", "--to", f"127.0.0.1:{port}")[0] == 0
        first, second = until(lambda: records if len(records := list(read_manifest(folder))) == 2 else None)
        until((folder / f"{second.scan}.h5").exists)
    assert first.outcome == "cut off: the server ended during this scan"
    assert (first.scan, first.readouts) == (stream.stem, n_readouts)
    assert (second.outcome, second.kept, second.images) == ("done", "whole", 3)
    assert sum(isinstance(one, Acquisition) for one in read_scan(folder / f"{second.scan}.h5")) == 32 + 3 * 26
