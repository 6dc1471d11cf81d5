"""Scans that a server kept are replayed, inspected, sent and evaluated as others, also where they break."""

import errno
import logging
import os
import threading
from contextlib import contextmanager

import h5py
import numpy as np
import pytest
from simulated_scans import StandIn, make_scan, reconstructor, settings

from gadget.configs import config_folder
from gadget.evaluation_inputs import read_full_scans
from gadget.pipeline import reconstruct_stream
from gadget.replay import replay
from gadget.scan_file import count_readouts, read_scan
from gadget.sending import send_and_keep
from gadget.server import Server
from gadget.spool.manifest import read_manifest
from gadget.spool.spool import Spool
from gadget.spool.stream_file import StreamWriter
from gadget.wire.codec import encode_parts
from gadget.wire.messages import Acquisition, ConfigFile

N_NOISE, N_LINES = 32, 26
"""Readouts of a simulated scan: noise, and lines of each slice."""


def as_stream(scan, path, *, n_readouts=None):
    """Write a recorded scan as a stream file, broken off after some readouts where a number is given."""
    writer = StreamWriter(path)
    writer.append(encode_parts(ConfigFile("any")))
    n_left = -1 if n_readouts is None else n_readouts
    for message in read_scan(scan):
        if isinstance(message, Acquisition):
            if n_left == 0:
                break
            n_left -= 1
        writer.append(encode_parts(message))
    writer.close()
    return path


def replayed(scan, out):
    replay(scan, out, settings(), reconstructor=reconstructor(StandIn()))
    with h5py.File(out) as file:
        folder = file["dataset/image_1"]
        return (
            folder["data"][()],
            [text.decode() for text in folder["attributes"][()]],
            folder["header"]["slice"],
        )


def test_a_stream_is_replayed_like_the_hdf5_file_of_the_same_scan(tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=2)
    stream = as_stream(scan, tmp_path / "scan.stream")

    expected, got = replayed(scan, tmp_path / "a.h5"), replayed(stream, tmp_path / "b.h5")

    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[2], [0, 1])


def test_what_a_crash_left_gives_the_images_of_the_complete_slices_and_labels_the_other(tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=3)
    broken = as_stream(scan, tmp_path / "scan.stream", n_readouts=N_NOISE + 2 * N_LINES + 5)

    whole, cut = replayed(scan, tmp_path / "a.h5"), replayed(broken, tmp_path / "b.h5")

    np.testing.assert_array_equal(cut[0][:2], whole[0][:2])
    np.testing.assert_array_equal(cut[2], [0, 1, 2])
    assert ["INCOMPLETE DATA" in meta for meta in cut[1]] == [False, False, True]
    assert "incomplete: 5 imaging lines where the header announces 26" in cut[1][2]


@contextmanager
def server(spool, joint):
    shared = reconstructor(joint)

    def handle(messages, peer):
        return reconstruct_stream(messages, settings(), reconstructor=shared, cancelled=peer.cancelled)

    with Server(handle, hosts=("127.0.0.1",), port=0, watch_factories=[spool.watch]) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        try:
            yield one.addresses[0][1]
        finally:
            one.stop()
            thread.join(10)


def sent(scan, port, out):
    received = send_and_keep(scan, out, "127.0.0.1", port, config_name="any")
    assert received.labelled == []
    with h5py.File(out) as file:
        return file["dataset/image_1/data"][()]


def test_a_scan_that_a_server_kept_is_replayed_and_sent_again_to_the_same_images(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    scan = make_scan(tmp_path / "scan.h5", n_slices=2)
    with Spool(tmp_path / "spool") as spool:
        with server(spool, StandIn()) as port:
            images = sent(scan, port, tmp_path / "first.h5")
        assert spool.wait_until_idle(20)
        (kept,) = spool.folder.glob("*.h5")
        with server(spool, StandIn()) as port:
            np.testing.assert_array_equal(sent(kept, port, tmp_path / "again.h5"), images)

    np.testing.assert_array_equal(replayed(kept, tmp_path / "replay.h5")[0], images)
    records = list(read_manifest(spool.folder))
    for record in records:  # so that who reads of a scan in the log finds it
        assert f"spool: {N_NOISE + 2 * N_LINES} readouts, 0.1 MiB are in {record.scan}" in caplog.text
    assert [(one.readouts, one.images, one.outcome, one.kept) for one in records] == [
        (N_NOISE + 2 * N_LINES, 2, "done", "whole")
    ] * 2


def test_a_disk_that_fills_up_in_the_middle_of_a_scan_costs_no_image(tmp_path, monkeypatch, caplog):
    scan = make_scan(tmp_path / "scan.h5", n_slices=2)
    room = [20_000]
    real_writev = os.writev

    def writev(handle, buffers):
        n_bytes = min(room[0], sum(map(len, buffers)))
        if not n_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= n_bytes
        return real_writev(handle, [b"".join(buffers)[:n_bytes]])

    monkeypatch.setattr(os, "writev", writev)
    with (
        Spool(tmp_path / "spool") as spool,
        server(spool, StandIn()) as port,
        caplog.at_level(logging.WARNING),
    ):
        images = sent(scan, port, tmp_path / "out.h5")

    np.testing.assert_array_equal(images, replayed(scan, tmp_path / "replay.h5")[0])
    assert caplog.text.count("No space left on device. The scan goes on.") == 1
    (record,) = read_manifest(spool.folder)
    assert "then no more: No space left on device" in record.kept
    assert record.images == 2
    (stream,) = spool.folder.glob("*.stream")
    assert 19_000 < stream.stat().st_size <= 20_000
    assert len(list(read_scan(stream))) > 3


def test_a_stream_can_be_evaluated(tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=1)
    stream = as_stream(scan, tmp_path / "scan.stream")

    (expected,), (got,) = read_full_scans(scan, settings()), read_full_scans(stream, settings())

    np.testing.assert_array_equal(got.samples, expected.samples)


# The commands


def test_a_stream_is_inspected_like_the_hdf5_file_of_the_same_scan(run, tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=2)
    stream = as_stream(scan, tmp_path / "scan.stream")

    code, text, _ = run("inspect", stream)
    _, expected, _ = run("inspect", scan)

    assert code == 0
    assert text.count("encoding 0") == 1
    assert text.partition("encoding 0")[2] == expected.partition("encoding 0")[2]
    assert "-> dataset  scan  a stream" in text


def test_a_stream_that_breaks_off_is_inspected_up_to_there(run, tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=2)
    stream = as_stream(scan, tmp_path / "scan.stream", n_readouts=N_NOISE + N_LINES + 5)

    code, text, _ = run("inspect", stream)

    assert code == 1
    words = " ".join(text.split())
    assert "is incomplete: it breaks off after 65 whole messages" in words
    assert "there is no CLOSE" in words
    assert "5 of 26 lines measured" in text
    assert run("inspect", stream, "--group", "other")[2].count("one scan and no group 'other'") == 1


def test_the_list_of_a_spool_is_shown(run, tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=1)
    with Spool(tmp_path / "spool") as spool, server(spool, StandIn()) as port:
        sent(scan, port, tmp_path / "out.h5")
        assert spool.wait_until_idle(20)
        sent(scan, port, tmp_path / "other.h5")
        assert spool.wait_until_idle(20)
    first, second = (record.scan for record in read_manifest(spool.folder))
    (spool.folder / f"{first}.h5").unlink()
    as_stream(scan, spool.folder / "scan-20260102T030405Z-0001.stream", n_readouts=40)

    code, text, _ = run("spooled-scans", spool.folder)

    assert code == 0
    title, *rows = [line.split(maxsplit=5) for line in text.splitlines()]
    assert title[:2] == ["began", "(UTC)"]
    assert [row[1:2] + row[3:] for row in rows] == [
        ["58", "1", "-", "done"],
        ["58", "1", f"{second}.h5", "done"],
        [
            "?",
            "?",
            "scan-20260102T030405Z-0001.stream",
            "runs, or was cut off and not yet listed by a new server",
        ],
    ]
    assert rows[2][0] == "2026-01-02T03:04:05"
    assert run("spooled-scans", tmp_path / "absent")[0] == 2


def test_a_spool_that_cannot_be_used_is_told_before_the_server_listens(run, tmp_path):
    code, out, err = run("serve", "--port", "0", "--prior", "tv", "--spool", tmp_path / "absent" / "spool")

    assert code == 1
    assert out == ""
    assert "as a spool: No such file or directory" in err


FAST = ("--set", "solver.iterations=2", "--device", "cpu")
NAME = "scan-20260102T030405Z-0001"


@pytest.mark.parametrize(("there", "asked"), [(".h5", ".stream"), (".stream", ".h5")])
def test_a_scan_of_a_spool_is_found_under_its_other_ending_which_is_said(there, asked, run, tmp_path):
    """As when it was listed just before it became an HDF5 file."""
    scan = make_scan(tmp_path / "scan.h5", n_slices=1)
    if there == ".stream":
        as_stream(scan, tmp_path / f"{NAME}{there}")
    else:
        scan.rename(tmp_path / f"{NAME}{there}")
    path = tmp_path / f"{NAME}{asked}"
    said = f"{path} is not there; {NAME}{there} is, the same scan, and is read."

    for command in (
        ("inspect", path),
        ("check-config", config_folder() / "recon" / "total-variation.yaml", "--for", path),
        ("replay", path, tmp_path / "out.h5", "--prior", "tv", "--no-posterior", *FAST),
        (*("evaluate", path, "--out", tmp_path / "evaluation"), *("--methods", "zero-filled")),
    ):
        code, out, err = run(*command)
        assert (command[0], code, err.count(said)) == (command[0], 0 if command[0] != "inspect" else code, 1)
        assert out


def test_a_stream_that_becomes_hdf5_while_a_command_runs_is_read_on(tmp_path, caplog):
    scan = make_scan(tmp_path / "scan.h5", n_slices=1)
    stream = as_stream(scan, tmp_path / f"{NAME}.stream")
    n_readouts = count_readouts(stream)
    stream.unlink()
    scan.rename(stream.with_suffix(".h5"))

    assert sum(isinstance(one, Acquisition) for one in read_scan(stream)) == n_readouts
    assert count_readouts(stream) == n_readouts
    assert caplog.text.count("the same scan") == 2


def test_only_scans_of_a_spool_have_two_endings(run, tmp_path):
    make_scan(tmp_path / "mine.h5", n_slices=1)
    for name in ("mine.stream", f"{NAME}.stream", f"{NAME}.h5"):
        code, _, err = run("inspect", tmp_path / name)
        assert code == 2
        assert f"{name}' does not exist" in err
