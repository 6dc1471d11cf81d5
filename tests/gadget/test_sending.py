"""The whole way over TCP: a server with the pipeline, a client that keeps what comes back."""

import threading
from contextlib import contextmanager

import h5py
import numpy as np
import pytest
from scripted_sampling import ScriptedSampling
from simulated_scans import StandIn, make_scan, reconstructor, settings

from gadget.errors import GadgetError, PeerProtocolError, ScanError
from gadget.pipeline import reconstruct_stream
from gadget.replay import replay
from gadget.sending import send_and_keep
from gadget.server import Server
from gadget.wire.messages import Text
from reconlib.posterior.outcome import PosteriorOutcome


@contextmanager
def server(handle):
    """Serve on a free port of this machine; yield the port."""
    with Server(handle, hosts=("127.0.0.1",), port=0) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        try:
            yield one.addresses[0][1]
        finally:
            one.stop()
            thread.join(10)


def pipeline(joint, chosen=None):
    shared = reconstructor(joint)

    def handle(messages, peer):
        return reconstruct_stream(
            messages, chosen or settings(), reconstructor=shared, cancelled=peer.cancelled
        )

    return handle


def send(scan, out, port, **others):
    return send_and_keep(scan, out, "127.0.0.1", port, config_name="any", **others)


def test_a_scan_over_tcp_gives_the_images_of_a_replay(tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=2)
    replay(scan, tmp_path / "replay.h5", settings(), reconstructor=reconstructor(StandIn()))
    readouts = []

    with server(pipeline(StandIn())) as port:
        received = send(
            scan, tmp_path / "sent.h5", port, png=tmp_path / "png", on_readout=lambda: readouts.append(1)
        )

    assert (received.n_images, received.labelled) == (2, [])
    assert len(list((tmp_path / "png").iterdir())) == 2
    assert len(readouts) == 32 + 52
    with h5py.File(tmp_path / "replay.h5") as one, h5py.File(tmp_path / "sent.h5") as other:
        assert set(one["dataset"]) == set(other["dataset"]) == {"xml", "image_1"}
        assert one["dataset/xml"][0] == other["dataset/xml"][0]
        np.testing.assert_array_equal(one["dataset/image_1/data"], other["dataset/image_1/data"])
        np.testing.assert_array_equal(one["dataset/image_1/header"]["slice"], [0, 1])


def test_labelled_images_and_what_the_server_says_are_told(tmp_path):
    def fail(_result):
        raise MemoryError

    with server(pipeline(StandIn(misbehave=fail))) as port:
        received = send(make_scan(tmp_path / "scan.h5", n_slices=1), tmp_path / "sent.h5", port)

    label = "FALLBACK: zero-filled root sum of squares (out of memory)"
    assert received.labelled == [
        f"image 1: gadgetron-ebm: {label}",
        f"the server says: gadgetron-ebm: image 1 (slice 0): {label}",
    ]


def test_uncertainty_over_tcp_is_that_of_a_replay_and_labels_are_told(tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=2)
    chosen = settings(posterior__enabled=True)
    outcomes = [PosteriorOutcome.TOO_SHORT]
    shared = reconstructor(StandIn(), sampling=ScriptedSampling(outcomes=outcomes))
    replay(
        scan,
        tmp_path / "replay.h5",
        chosen,
        reconstructor=reconstructor(StandIn(), sampling=ScriptedSampling(outcomes=outcomes)),
    )

    def handle(messages, peer):
        return reconstruct_stream(
            messages, chosen, reconstructor=shared, cancelled=peer.cancelled, silent=peer.silent
        )

    with server(handle) as port:
        received = send(scan, tmp_path / "sent.h5", port, png=tmp_path / "png")

    assert received.n_images == 6
    assert received.labelled == []
    assert len(received.rough) == 2
    assert all("NOT RELIABLE: too short" in line for line in received.rough)
    assert "posterior_0002_slice_1.png" in {path.name for path in (tmp_path / "png").iterdir()}
    with h5py.File(tmp_path / "replay.h5") as one, h5py.File(tmp_path / "sent.h5") as other:
        assert set(one["dataset"]) == set(other["dataset"]) == {"xml", "image_1", "image_2", "image_3"}
        for series in ("image_1", "image_2", "image_3"):
            np.testing.assert_array_equal(one[f"dataset/{series}/data"], other[f"dataset/{series}/data"])


def test_a_failure_half_way_is_told(tmp_path):
    def handle(messages, peer):
        answers = pipeline(StandIn())(messages, peer)
        yield next(answers)
        raise ScanError("The rest is bad.")

    with server(handle) as port:
        received = send(make_scan(tmp_path / "scan.h5", n_slices=2), tmp_path / "sent.h5", port)

    assert received.n_images == 1
    assert received.labelled == ["the server says: The rest is bad."]


def test_a_server_that_sends_no_image_is_a_failure_and_leaves_no_file(tmp_path):
    def handle(messages, _peer):
        for _ in messages:
            pass
        yield Text("nothing to do")

    scan = make_scan(tmp_path / "scan.h5", n_slices=1)
    with (
        server(handle) as port,
        pytest.raises(PeerProtocolError, match=r"sent no image: the server says: noth"),
    ):
        send(scan, tmp_path / "sent.h5", port)

    assert not (tmp_path / "sent.h5").exists()


def test_the_reason_of_a_refused_scan_is_told(tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=1)
    with h5py.File(scan, "a") as file:
        xml = file["dataset/xml"][0].decode()
        file["dataset/xml"][0] = xml.replace(">cartesian<", ">epi<").encode()

    with (
        server(pipeline(StandIn())) as port,
        pytest.raises(PeerProtocolError, match=r"'epi'.*not supported"),
    ):
        send(scan, tmp_path / "sent.h5", port)


def test_a_server_that_is_not_there_is_named(tmp_path):
    with server(pipeline(StandIn())) as port:
        pass

    with pytest.raises(GadgetError, match=f"Cannot connect to 127.0.0.1 port {port}"):
        send(make_scan(tmp_path / "scan.h5", n_slices=1), tmp_path / "sent.h5", port)
