"""Gadgetron's buffers give back the readouts that they were made from."""

from pathlib import Path

import numpy as np
import pytest
from simulated_gadgetron import EMPTY, accumulated
from simulated_scans import settings
from synthetic_scan import Protocol, lines_of, noise_readout, readout

from gadget.errors import ScanError
from gadget.pipeline import reconstruct_stream
from gadget.reconstructor import Reconstructor
from gadget.scan.recon_data import readouts_of
from gadget.wire.codec import MrdDecoder
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, Image, Message, ReconBit, ReconData, ReconDataArray, ScanHeader

KSPACE = Protocol().kspace()


def message(data, reference=None, **changes) -> ReconData:
    made = None if reference is None else accumulated(reference)
    return ReconData((ReconBit(accumulated(data, **changes), made),))


def same(a: Acquisition, b: Acquisition) -> bool:
    is_same_header = all(
        a.header[name].tobytes() == b.header[name].tobytes()
        for name in a.header.dtype.names
        if name != "trajectory_dimensions"
    )
    return is_same_header and np.array_equal(a.data, b.data)


def images_of(messages: list[Message], **changes) -> np.ndarray:
    chosen = settings(noise__source="data", solver__iterations=3, **changes)
    answers = reconstruct_stream(messages, chosen, reconstructor=Reconstructor("cpu"))
    return np.stack([one.data[0, 0] for one in answers if isinstance(one, Image)])


def captured(data_folder: Path, name: str) -> list[Message]:
    """Return what Gadgetron sent, without its noise readout, which the chain behind the others had used."""
    decoder = MrdDecoder()
    decoder.feed((data_folder / "wire" / f"{name}.bin").read_bytes())
    return [
        one
        for one in decoder.messages()
        if not (isinstance(one, Acquisition) and int(one.header["flags"]) & Flag.IS_NOISE_MEASUREMENT.bit)
    ]


def test_gadgetrons_own_buffers_hold_the_readouts_that_came_without_them(data_folder):
    """It neither whitened nor removed oversampling: samples, coils and headers are bit for bit alike."""
    plain = [one for one in captured(data_folder, "external_acquisitions") if isinstance(one, Acquisition)]
    buffers = [one for one in captured(data_folder, "external_recondata") if isinstance(one, ReconData)]

    found = [one for buffer in buffers for one in readouts_of(buffer)]

    assert len(found) == len(plain) == 128
    assert all(same(a, b) for a, b in zip(found, plain, strict=True))


@pytest.mark.parametrize("name", ["external_recondata", "external_bucket"])
def test_gadgetrons_buffers_and_buckets_give_the_image_of_the_raw_readouts(data_folder, name):
    expected = images_of(captured(data_folder, "external_acquisitions"))
    found = images_of(captured(data_folder, name))

    assert found.shape == (2, 64, 64)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * expected.max())


def test_readouts_come_back_in_the_order_of_acquisition_and_places_without_header_are_not_measured():
    sent = lines_of(KSPACE, [30, 4, 22, 11])
    for counter, one in enumerate(sent):
        one.header["scan_counter"] = counter

    found = list(readouts_of(message(sent)))

    assert len(found) == 4
    assert all(same(a, b) for a, b in zip(found, sent, strict=True))
    assert [one.trajectory.shape for one in found] == [(80, 0)] * 4


def test_all_axes_of_a_buffer_are_read():
    sent = [
        readout(KSPACE[:, e1] * (1 + e2 + 10 * n + 100 * s + 1000 * loc), e1, scan_counter=counter, **where)
        for counter, (e1, e2, n, s, loc) in enumerate(np.ndindex(4, 2, 3, 2, 2))
        for where in [{"kspace_encode_step_2": e2, "repetition": n, "set": s, "slice": loc}]
    ]

    found = list(readouts_of(message(sent, shape=(4, 2, 3, 2, 2))))

    assert all(same(a, b) for a, b in zip(found, sent, strict=True))


def test_embedded_reference_lines_are_used_once_and_separate_ones_are_calibration_only():
    both, only = Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING, Flag.IS_PARALLEL_CALIBRATION
    data = [readout(KSPACE[:, row], row, *([both] if row in (21, 22) else [])) for row in (9, 21, 22, 35)]
    # In the reference buffer one embedded line was filtered, and one separate line lost its flag.
    reference = [
        readout(KSPACE[:, 21] * 0.5, 21, both),
        readout(KSPACE[:, 22], 22, both),
        readout(KSPACE[:, 23], 23, only),
        readout(KSPACE[:, 24], 24),
        readout(KSPACE[:, 25], 25, both),
    ]

    found = list(readouts_of(message(data, reference)))

    lines = [int(one.header["idx"]["kspace_encode_step_1"]) for one in found]
    assert lines == [23, 24, 25, 9, 21, 22, 35]
    assert [int(one.header["flags"]) & only.bit > 0 for one in found] == [True] * 3 + [False] * 4
    assert not any(int(one.header["flags"]) & both.bit for one in found[:3])
    np.testing.assert_array_equal(found[4].data, data[1].data)


def test_samples_that_were_discarded_are_cut_off_or_still_there():
    whole = readout(KSPACE[:, 7], 7, center=40, discard_pre=10, discard_post=2)
    (kept,) = readouts_of(message([whole]))
    assert same(kept, whole)

    cut = readout(KSPACE[:, 7, 10:78], 7, center=40, discard_pre=10, discard_post=2)
    cut.header["number_of_samples"] = 80
    (found,) = readouts_of(message([cut]))
    names = ("number_of_samples", "center_sample", "discard_pre", "discard_post")
    assert [int(found.header[name]) for name in names] == [68, 30, 0, 0]


def test_a_readout_that_was_changed_on_the_way_has_its_centre_in_its_middle():
    changed = readout(KSPACE[:, 7, 20:60], 7, center=31)
    changed.header["number_of_samples"] = 80
    (found,) = readouts_of(message([changed]))
    assert (int(found.header["number_of_samples"]), int(found.header["center_sample"])) == (40, 20)


def test_buffers_without_oversampling_give_the_image_of_readouts_without_it():
    protocol = Protocol()
    kept = lines_of(protocol.kept_kspace())
    for one in kept:
        one.header["number_of_samples"], one.header["center_sample"] = 80, 40
    header, noise = ScanHeader(protocol.xml()), noise_readout()

    expected = images_of([header, noise, *lines_of(protocol.kspace())])
    found = images_of([header, noise, message(kept)])

    np.testing.assert_allclose(found, expected, atol=2e-3 * expected.max())


def test_a_prewhitened_buffer_is_taken_as_such_by_the_setting():
    header = ScanHeader(Protocol().xml())
    chosen = settings(noise__source="prewhitened", solver__iterations=1)
    (image,) = reconstruct_stream(
        [header, message(lines_of(KSPACE))], chosen, reconstructor=Reconstructor("cpu")
    )
    assert "taken as prewhitened before it came here" in image.meta


def test_empty_buffers_are_no_readouts():
    assert list(readouts_of(ReconData((ReconBit(EMPTY, EMPTY), ReconBit(EMPTY, None))))) == []


def test_headers_that_do_not_fit_the_data_are_refused_by_their_shapes():
    good = accumulated(lines_of(KSPACE))
    bad = ReconDataArray(good.data, None, None, good.headers[:-1], good.sampling)
    with pytest.raises(
        ScanError,
        match=r"Bit 0 of the recon data: its data has the shape \(80, 45, 1, 3, 1, 1, 1\) .* its headers "
        r"\(44, 1, 1, 1, 1\); they need \(45, 1, 1, 1, 1\) .* Check the gadget before this one",
    ):
        list(readouts_of(ReconData((ReconBit(bad, None),))))
