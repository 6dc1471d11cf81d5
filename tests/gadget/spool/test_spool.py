"""The folder in which scans are kept: what becomes of a scan, and of what is too old or too much."""

import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import ismrmrd
import numpy as np
import pytest
from spooled_bytes import (
    CLOSE,
    CONFIG,
    HEADER,
    PATIENT,
    QUERY,
    SCAN,
    an_ending,
    image,
    keep,
    messages_of,
    names_in,
    readout,
)

import gadget.spool.limits
import gadget.spool.spool
from gadget.errors import FileError, GadgetError, PeerProtocolError
from gadget.scan_file import read_scan
from gadget.spool.limits import SpoolLimits
from gadget.spool.manifest import read_manifest
from gadget.spool.scan_names import scan_files
from gadget.spool.spool import Spool
from gadget.wire.codec import encode_parts
from gadget.wire.messages import Acquisition, ScanHeader, Waveform

NAME = r"scan-\d{8}T\d{6}Z-\d{4}"


@pytest.fixture
def spool(tmp_path):
    with Spool(tmp_path / "spool") as spool:
        assert spool.wait_until_idle(20)
        yield spool


def test_a_scan_is_written_as_it_comes_and_becomes_an_ismrmrd_file_when_it_has_ended(spool):
    scan = spool.watch("127.0.0.1:1")
    for number, message in enumerate(messages_of(SCAN), 1):
        scan.received(message, time.monotonic())
        (stream,) = spool.folder.glob("*.stream")
        assert stream.read_bytes() == b"".join(SCAN[:number])

    scan.ended(an_ending())
    assert spool.wait_until_idle(20)

    assert names_in(spool.folder) == [f"{scan.name}.h5", "scans.jsonl"]
    path = spool.folder / f"{scan.name}.h5"
    with ismrmrd.Dataset(str(path), mode="r") as dataset:
        assert PATIENT.encode() in dataset.read_xml_header()
        assert dataset.number_of_acquisitions() == 3
        assert dataset.number_of_waveforms() == 1
        second = dataset.read_acquisition(1)
        np.testing.assert_array_equal(second.data, np.full((2, 3), 2))
        np.testing.assert_array_equal(second.traj, np.full((3, 2), 2))
        np.testing.assert_array_equal(dataset.read_waveform(0).data, np.full((2, 3), 5))
    with h5py.File(path) as file:
        asked = [(row["kind"], row["text"]) for row in file["asked/messages"]]
    assert asked == [(b"ConfigFile", b"default"), (b"Text", b"{}")]


def test_the_copy_has_each_bit_of_the_scan(spool, data_folder):
    captured = (data_folder / "wire" / "client_gadgetron.bin").read_bytes()
    scan = keep(spool, [captured])

    kinds = (ScanHeader, Acquisition, Waveform)
    ours = [one for one in read_scan(spool.folder / f"{scan.name}.h5") if isinstance(one, kinds)]
    theirs = [one for one in messages_of([captured]) if isinstance(one, kinds)]

    assert len(ours) == 130
    assert ours[0].text == theirs[0].text
    for one, other in zip(ours[1:], theirs[1:], strict=True):
        assert b"".join(map(bytes, encode_parts(one))) == b"".join(map(bytes, encode_parts(other)))


@pytest.mark.parametrize(
    ("name", "kind"), [("external_bucket.bin", "AcquisitionBucket"), ("external_recondata.bin", "ReconData")]
)
def test_a_scan_that_hdf5_has_no_place_for_stays_a_stream(spool, data_folder, caplog, name, kind):
    captured = (data_folder / "wire" / name).read_bytes()

    with caplog.at_level(logging.INFO):
        scan = keep(spool, [captured])

    assert (spool.folder / f"{scan.name}.stream").read_bytes() == captured
    assert names_in(spool.folder) == [f"{scan.name}.stream", "scans.jsonl"]
    assert f"holds a {kind}, for which HDF5 files have no place" in caplog.text
    (record,) = read_manifest(spool.folder)
    assert record.peer == "Gadgetron, to its external node"
    assert record.kept == "whole"


def test_a_scan_without_its_end_stays_a_stream_and_the_list_says_why(spool):
    scan = keep(spool, SCAN[:-2], ending=an_ending(PeerProtocolError("The connection ended without CLOSE.")))

    assert names_in(spool.folder) == [f"{scan.name}.stream", "scans.jsonl"]
    (record,) = read_manifest(spool.folder)
    assert record.outcome == "failed: The connection ended without CLOSE."
    assert record.kept == "without an end: the peer sent no CLOSE"
    assert record.readouts == 2


def test_a_failure_that_may_name_the_patient_is_not_on_the_list(spool):
    keep(spool, ending=an_ending(ValueError(PATIENT)))

    (record,) = read_manifest(spool.folder)
    assert record.outcome.startswith("failed: The reconstruction failed (ValueError).")
    assert PATIENT not in (spool.folder / "scans.jsonl").read_text()


def test_the_list_says_when_how_much_and_how_it_ended_and_nothing_of_the_patient(spool, caplog):
    with caplog.at_level(logging.DEBUG):
        scan = spool.watch("127.0.0.1:1")
        for message in messages_of(SCAN):
            scan.received(message, time.monotonic())
        for message in messages_of([HEADER, image(), image()]):
            scan.sent(message, 0.0)
        scan.ended(an_ending())
        assert spool.wait_until_idle(20)

    (line,) = (spool.folder / "scans.jsonl").read_text().splitlines()
    values = json.loads(line)
    assert values.pop("began").endswith("+00:00")
    assert values == {
        "scan": scan.name,
        "seconds": 1.2,
        "peer": "an MRD or FIRE client",
        "readouts": 3,
        "bytes": sum(map(len, SCAN)),
        "images": 2,
        "outcome": "done",
        "kept": "whole",
    }
    assert PATIENT not in caplog.text + line + "".join(names_in(spool.folder))


@pytest.mark.parametrize(
    ("failure", "words"),
    [(None, "done"), (PeerProtocolError("The connection ended."), "failed: The connection ended.")],
    ids=["done", "failed"],
)
def test_the_list_says_how_many_images_stand_in_the_place_of_reconstructions(spool, failure, words):
    """Those are the scans that are worth a replay."""
    scan = spool.watch("127.0.0.1:1")
    for message in messages_of(SCAN):
        scan.received(message, time.monotonic())
    for message in messages_of(
        [HEADER, image("RECONSTRUCTED"), image("FALLBACK"), image("FALLBACK"), image()]
    ):
        scan.sent(message, 0.0)
    scan.ended(an_ending(failure))
    assert spool.wait_until_idle(20)

    (record,) = read_manifest(spool.folder)
    assert (record.images, record.outcome) == (4, f"{words}; fallback images: 2")


def test_what_is_in_the_spool_is_its_owner_s_alone(tmp_path):
    before = os.umask(0)
    try:
        with Spool(tmp_path / "spool") as spool:
            keep(spool)
            keep(spool, SCAN[:4])
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700
    assert len(names_in(tmp_path / "spool")) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "spool").iterdir()} == {0o600}


@pytest.mark.parametrize(
    "pieces", [[], [CONFIG], [CONFIG, CLOSE]], ids=["no word", "config", "config, CLOSE"]
)
def test_probes_leave_nothing(spool, pieces):
    keep(spool, pieces, ending=an_ending(had_scan=False))

    assert names_in(spool.folder) == []


def test_what_came_so_far_can_be_had_again_while_the_scan_runs(spool):
    scan = spool.watch("127.0.0.1:1")
    assert not scan.is_whole
    with pytest.raises(GadgetError, match=r"was not kept whole: nothing came yet\."):
        next(scan.messages())
    for message in messages_of([CONFIG, HEADER, QUERY, readout(1), readout(2)]):
        scan.received(message, time.monotonic())

    assert scan.is_whole
    again = scan.messages()
    taken = [next(again) for _ in range(3)]
    scan.received(next(messages_of([readout(3)])), time.monotonic())
    taken += again

    assert b"".join(bytes(part) for one in taken for part in encode_parts(one)) == b"".join(
        [CONFIG, HEADER, readout(1), readout(2), readout(3)]
    )
    scan.ended(an_ending())
    assert spool.wait_until_idle(20)


def test_two_scans_at_once_do_not_mix(spool):
    scans = [spool.watch(f"127.0.0.1:{port}") for port in (1, 2)]
    for first, second in zip(messages_of(SCAN), messages_of(SCAN), strict=True):
        scans[0].received(first, time.monotonic())
        scans[1].received(second, time.monotonic())
    for scan in scans:
        scan.ended(an_ending())
    assert spool.wait_until_idle(20)

    assert names_in(spool.folder) == sorted([f"{scan.name}.h5" for scan in scans] + ["scans.jsonl"])
    assert [len(list(read_scan(spool.folder / f"{scan.name}.h5"))) for scan in scans] == [6, 6]


def test_a_scan_of_the_same_name_is_not_written_over(spool, monkeypatch):
    monkeypatch.setattr(
        gadget.spool.spool, "new_name", lambda _began, number: f"scan-20260101T000000Z-{number:04d}"
    )
    (spool.folder / "scan-20260101T000000Z-0001.h5").write_text("another server's")

    scan = keep(spool)

    assert scan.name == "scan-20260101T000000Z-0002"
    assert (spool.folder / "scan-20260101T000000Z-0001.h5").read_text() == "another server's"


# Limits


def make_finished(folder: Path, day: int, n_bytes: int, *, age_s: float = 0.0, suffix: str = ".h5") -> Path:
    path = folder / f"scan-202601{day:02d}T000000Z-0001{suffix}"
    path.write_bytes(bytes(n_bytes))
    when = time.time() - age_s
    os.utime(path, (when, when))
    return path


def test_where_the_spool_is_too_large_the_oldest_go_first(tmp_path, caplog):
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o700)
    days = (3, 11, 7, 1, 9, 12, 2, 10, 4, 8, 5, 6)
    files = {day: make_finished(folder, day, 1000, age_s=100 - day) for day in days}

    with caplog.at_level(logging.INFO), Spool(folder, SpoolLimits(size_bytes=2500)) as spool:
        assert spool.wait_until_idle(20)

    assert sorted(day for day, path in files.items() if path.exists()) == [11, 12]
    assert "scan-20260101T000000Z-0001 was removed: the spool is larger than" in caplog.text


def test_what_is_too_old_goes_and_nothing_else_in_the_folder(tmp_path, caplog):
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o700)
    old = make_finished(folder, 1, 10, age_s=101)
    young = make_finished(folder, 2, 10, age_s=90)
    others = [
        make_finished(folder, 3, 10, age_s=1000, suffix=suffix)
        for suffix in (".txt", " (copy).h5", ".h5.bak")
    ]
    others += [
        folder / "notes",
        folder / "scan-20260101T000000Z-0007.h5",
        folder / "scan-20260101T000000Z-0008.h5",
    ]
    others[-3].write_text("mine")
    others[-2].mkdir()
    others[-1].symlink_to(others[-3])
    os.utime(others[-3], (1, 1))

    with caplog.at_level(logging.INFO), Spool(folder, SpoolLimits(age_s=100)) as spool:
        assert spool.wait_until_idle(20)

    assert not old.exists()
    assert young.exists()
    assert all(path.exists() for path in others)
    assert "was removed: older than" in caplog.text


def test_a_running_scan_is_never_removed_however_large(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o700)
    finished = make_finished(folder, 1, 10)
    with Spool(folder, SpoolLimits(size_bytes=1)) as spool:
        running = spool.watch("127.0.0.1:1")
        for message in messages_of(SCAN[:-1]):
            running.received(message, time.monotonic())
        keep(spool)

        assert not finished.exists()
        assert names_in(folder) == [f"{running.name}.stream", "scans.jsonl"]
        assert len(list(running.messages())) == len(SCAN) - 1
        running.received(next(messages_of([CLOSE])), time.monotonic())
        running.ended(an_ending())
        assert spool.wait_until_idle(20)


def test_a_scan_that_begins_while_the_folder_is_looked_at_is_not_removed(tmp_path, monkeypatch):
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o700)
    finished = make_finished(folder, 1, 10)
    begun = []

    def look_and_let_a_scan_begin(looked_at):
        if not begun:
            begun.append(spool.watch("127.0.0.1:1"))
            for message in messages_of(SCAN[:-1]):
                begun[0].received(message, time.monotonic())
        return scan_files(looked_at)

    with Spool(folder) as spool:
        assert spool.wait_until_idle(20)
        monkeypatch.setattr(gadget.spool.limits, "scan_files", look_and_let_a_scan_begin)
        spool.limits = SpoolLimits(size_bytes=1)
        keep(spool)  # the limits are looked after once a scan has ended

        assert not finished.exists()
        assert begun[0].file.path.exists()
        begun[0].ended(an_ending())


def test_limits_are_looked_after_between_copies(tmp_path, monkeypatch):
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o700)
    n_copied, go_on = [], threading.Event()
    copy = Spool._copy

    def slow_copy(spool, name):
        if n_copied:
            assert go_on.wait(20)
        n_copied.append(name)
        copy(spool, name)

    monkeypatch.setattr(Spool, "_copy", slow_copy)
    with Spool(folder) as spool:
        assert spool.wait_until_idle(20)
        finished = make_finished(folder, 1, 10)
        spool.limits = SpoolLimits(size_bytes=1)
        with spool._changed:  # so that both have ended before the first is seen to
            scans = [keep(spool, settle=False) for _ in range(2)]
        until = time.monotonic() + 10
        while finished.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert not finished.exists()
        assert (folder / f"{scans[1].name}.stream").exists()
        go_on.set()
        assert spool.wait_until_idle(20)


# A folder that will not do


def test_one_server_at_a_time_uses_a_spool(spool):
    with pytest.raises(FileError, match=r"is in use by another server\. Stop that one"):
        Spool(spool.folder)


def test_a_spool_that_others_may_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o770)

    with pytest.raises(FileError, match=r"Others may write to the spool .*chmod 700"):
        Spool(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    with pytest.raises(FileError, match=r"Cannot use .*absent/spool as a spool: No such file or directory"):
        Spool(tmp_path / "absent" / "spool")
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"Cannot use .*file as a spool: File exists"):
        Spool(tmp_path / "file")


def test_the_spool_needs_no_torch():
    code = "import sys, gadget.spool.spool; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
