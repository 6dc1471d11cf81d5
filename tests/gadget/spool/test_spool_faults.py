"""A disk that fails ends no scan; a server that is killed loses none."""

import logging
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from spooled_bytes import CLOSE, CONFIG, HEADER, SCAN, an_ending, keep, messages_of, names_in, readout

import gadget.spool.hdf5_copy
import gadget.spool.spool
from gadget.errors import FileError, GadgetError
from gadget.scan_file import read_scan
from gadget.spool.hdf5_copy import copy_to_hdf5
from gadget.spool.manifest import read_manifest
from gadget.spool.spool import Spool
from gadget.spool.stream_file import StreamWriter
from gadget.wire.messages import Acquisition


def test_a_full_disk_ends_no_scan_and_is_said_once(small_disk, caplog):
    pieces = [CONFIG, HEADER, *(readout(line) for line in range(300)), CLOSE]
    with Spool(small_disk) as spool:
        assert spool.wait_until_idle(20)
        scan = spool.watch("127.0.0.1:1")
        for message in messages_of(pieces):
            scan.received(message, time.monotonic())

        assert scan.fault == "No space left on device"
        assert not scan.is_whole
        with pytest.raises(GadgetError, match="was not kept whole: No space left on device"):
            next(scan.messages())
        scan.ended(an_ending())
        assert spool.wait_until_idle(20)
        kept = [one for one in read_scan(small_disk / f"{scan.name}.stream") if isinstance(one, Acquisition)]
        (small_disk / f"{scan.name}.stream").unlink()
        keep(spool, SCAN)

    warnings = [one.getMessage() for one in caplog.records if "is not kept any further" in one.getMessage()]
    assert len(warnings) == 1
    assert "No space left on device. The scan goes on." in warnings[0]
    assert 10 < len(kept) == scan.n_messages - 2
    first, second = read_manifest(small_disk)
    assert first.kept == f"{scan.n_messages} messages, then no more: No space left on device"
    assert first.outcome == "done"
    assert (second.kept, second.readouts) == ("whole", 3)


def test_a_folder_that_is_gone_ends_no_scan(tmp_path, caplog):
    with Spool(tmp_path / "spool") as spool:
        assert spool.wait_until_idle(20)
        spool.folder.rmdir()

        scan = keep(spool)

    assert scan.fault == "No such file or directory"
    assert "after 0 messages: No such file or directory. The scan goes on." in caplog.text


def test_a_list_without_room_is_written_when_there_is_some(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(gadget.spool.spool, "SYNC_S", 0.05)
    with Spool(tmp_path / "spool") as spool:
        assert spool.wait_until_idle(20)
        (spool.folder / "scans.jsonl").mkdir()
        first = keep(spool)
        assert "Is a directory" in caplog.text
        (spool.folder / "scans.jsonl").rmdir()
        second = keep(spool)

    assert [record.scan for record in read_manifest(spool.folder)] == [first.name, second.name]


def test_without_room_for_a_copy_the_stream_file_stays(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(gadget.spool.spool, "ROOM_FOR_A_COPY", 1e15)
    with Spool(tmp_path / "spool") as spool:
        scan = keep(spool)

    assert names_in(spool.folder) == [f"{scan.name}.stream", "scans.jsonl"]
    assert f"no room for an HDF5 file of {scan.name}; the stream file stays" in caplog.text


def test_a_copy_that_reads_otherwise_is_thrown_away(tmp_path, monkeypatch):
    stream = StreamWriter(tmp_path / "scan.stream")
    stream.append(SCAN)
    stream.close()
    row = gadget.spool.hdf5_copy._row

    def wrong_row(message):
        head, *parts = row(message)
        return head, *(part * 2 for part in parts)

    monkeypatch.setattr(gadget.spool.hdf5_copy, "_row", wrong_row)
    with pytest.raises(FileError, match=r"reads otherwise than .*after it was written from it"):
        copy_to_hdf5(stream.path, tmp_path / "scan.h5")

    assert names_in(tmp_path) == ["scan.stream"]


def test_a_server_that_stops_during_a_copy_leaves_it_to_the_next(tmp_path, monkeypatch, caplog):
    with monkeypatch.context() as patched, caplog.at_level(logging.INFO):
        patched.setattr(Spool, "_is_stopping", lambda _spool: True)
        with Spool(tmp_path / "spool") as spool:
            scan = keep(spool)
    assert names_in(spool.folder) == [f"{scan.name}.stream", "scans.jsonl"]
    assert "stays a stream file until the next start" in caplog.text

    with Spool(tmp_path / "spool") as spool:
        assert spool.wait_until_idle(20)
    assert names_in(spool.folder) == [f"{scan.name}.h5", "scans.jsonl"]
    assert len(list(read_manifest(spool.folder))) == 1


def test_a_scan_that_ends_while_others_are_looked_after_at_the_end_is_on_the_list(tmp_path, monkeypatch):
    """It has ended, and the spool is told to close, while the file of another is brought to a slow disk."""
    in_sync, go_on = threading.Event(), threading.Event()

    def slow_sync(_file):
        in_sync.set()
        assert go_on.wait(20)

    with Spool(tmp_path / "spool") as spool:
        assert spool.wait_until_idle(20)
        scan = spool.watch("127.0.0.1:1")
        for message in messages_of(SCAN):
            scan.received(message, time.monotonic())
        monkeypatch.setattr(StreamWriter, "sync", slow_sync)
        assert in_sync.wait(20)
        scan.ended(an_ending())
        closing = threading.Thread(target=spool.close)
        closing.start()
        while not spool._stopping:
            time.sleep(0.01)
        go_on.set()
        closing.join(20)
        assert [record.scan for record in read_manifest(spool.folder)] == [scan.name]
        monkeypatch.setattr(spool, "close", lambda: None)


def test_a_copy_whose_stream_was_not_yet_removed_is_checked_and_kept(tmp_path):
    with Spool(tmp_path / "spool") as spool:
        scan = keep(spool)
    stream = StreamWriter(spool.folder / f"{scan.name}.stream")
    stream.append(SCAN)
    stream.close()
    before = (spool.folder / f"{scan.name}.h5").stat().st_ino

    with Spool(tmp_path / "spool") as spool:
        assert spool.wait_until_idle(20)

    assert names_in(spool.folder) == [f"{scan.name}.h5", "scans.jsonl"]
    assert (spool.folder / f"{scan.name}.h5").stat().st_ino == before


def test_two_files_that_differ_both_stay(tmp_path, caplog):
    with Spool(tmp_path / "spool") as spool:
        scan = keep(spool)
    stream = StreamWriter(spool.folder / f"{scan.name}.stream")
    stream.append([*SCAN[:-1], readout(9), CLOSE])
    stream.close()

    with Spool(tmp_path / "spool") as spool:
        assert spool.wait_until_idle(20)

    assert names_in(spool.folder) == [f"{scan.name}.h5", f"{scan.name}.stream", "scans.jsonl"]
    assert "is no copy of" in caplog.text


def test_what_is_left_of_a_copy_whose_writer_died_is_removed_and_nothing_else(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o700)
    for name in (".scan-20260101T000000Z-0001.h5.abc.part", ".other.h5.abc.part"):
        (folder / name).touch()

    with Spool(folder) as spool:
        assert spool.wait_until_idle(20)

    assert names_in(folder) == [".other.h5.abc.part"]


def test_a_list_with_half_a_line_is_read_and_written_on(tmp_path):
    with Spool(tmp_path / "spool") as spool:
        first = keep(spool)
        path = spool.folder / "scans.jsonl"
        path.write_bytes(path.read_bytes() + path.read_bytes()[:40])

        second = keep(spool)

    assert [record.scan for record in read_manifest(spool.folder)] == [first.name, second.name]


SERVER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from gadget.server import Server
    from gadget.spool.spool import Spool

    def handle(messages, peer):
        for message in messages:
            pass
        return []

    with Spool(Path(sys.argv[1])) as spool, Server(
        handle, hosts=("127.0.0.1",), port=0, watch_factories=[spool.watch]
    ) as server:
        print(server.addresses[0][1], flush=True)
        server.serve_forever()
    """
)


def test_a_server_killed_in_the_middle_of_a_scan_leaves_what_came(tmp_path, caplog):
    folder = tmp_path / "spool"
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(folder)], stdout=subprocess.PIPE, text=True
    ) as server:
        import socket

        with socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as peer:
            pieces = [*SCAN[:-1], readout(9)]
            peer.sendall(b"".join(pieces) + readout(10)[:-3])
            wanted = sum(map(len, pieces))
            deadline = time.monotonic() + 20
            while sum(path.stat().st_size for path in folder.glob("*.stream")) < wanted:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            server.send_signal(signal.SIGKILL)
            server.wait()

    (stream,) = folder.glob("*.stream")
    assert stream.read_bytes() == b"".join(pieces)
    assert sum(isinstance(one, Acquisition) for one in read_scan(stream)) == 4

    with Spool(folder) as spool:
        assert spool.wait_until_idle(20)
    (record,) = read_manifest(folder)
    assert record.scan == stream.stem
    assert record.outcome == "cut off: the server ended during this scan"
    assert record.readouts == 4
    assert f"found {stream.stem}: cut off: the server ended during this scan (4 readouts)" in caplog.text
    assert stream.exists()
    with Spool(folder) as spool:
        assert spool.wait_until_idle(20)
    assert len(list(read_manifest(folder))) == 1
