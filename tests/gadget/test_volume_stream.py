"""3-D scans from readouts to images: where a point lies, what the images are, and what is said about them."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from simulated_scans import StandIn, reconstructor, settings
from stand_ins import ZeroFilled
from synthetic_scan import Protocol, Spot, kspace_of, noise_readout, readout
from synthetic_slab import CONTEXT, OBJECT, SlabSpot, slab_image, slab_kspace

from gadget.errors import ScanError
from gadget.evaluation_inputs import _from_ismrmrd
from gadget.image_labels import StreamSummary
from gadget.image_meta import read_meta
from gadget.pipeline import reconstruct_stream
from gadget.scan.assemble import AssembledSlice
from gadget.scan.calibration import CalibrationLines
from gadget.scan.coil_start import STARTS, UNUSABLE, coil_start
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, Image, Message, ScanHeader, Text
from reconlib.kspace import KSpace

SLAB = Protocol(
    encoded=(52, 18, 13),
    encoded_fov=(416.0, 180.0, 91.0),
    recon=(26, 18, 13),
    recon_fov=(208.0, 180.0, 91.0),
    limits={"kspace_encoding_step_1": (0, 17, 9), "kspace_encoding_step_2": (0, 12, 6)},
)
OBLIQUE = {
    "position": (10.0, -20.0, 30.0),
    "read_dir": (0.6, 0.8, 0.0),
    "phase_dir": (-0.8, 0.6, 0.0),
    "slice_dir": (0.0, 0.0, 1.0),
}


def scan(
    protocol: Protocol = SLAB,
    spots=OBJECT,
    keep=lambda _z, _y: True,
    columns: slice = slice(None),
    **fields,
) -> list[Message]:
    """Return header, noise of standard deviation 1e-3 and readouts; the last one ends the slab."""
    kspace = slab_kspace(spots, protocol.encoded, protocol.encoded_fov)
    places = [(z, y) for z in range(kspace.shape[1]) for y in range(kspace.shape[2]) if keep(z, y)]
    first = columns.start or 0
    readouts = [
        readout(
            kspace[:, z, y, columns],
            y,
            *([Flag.LAST_IN_SLICE] if (z, y) == places[-1] else []),
            center=kspace.shape[3] // 2 - first,
            kspace_encode_step_2=z,
            scan_counter=counter,
            **OBLIQUE,
            **fields,
        )
        for counter, (z, y) in enumerate(places)
    ]
    return [ScanHeader(protocol.xml()), noise_readout(1e-3), *readouts]


def scattered(z: int, y: int) -> bool:
    return (2 * z + y) % 3 == 0 or (abs(z - 6) < 4 and abs(y - 9) < 5)


def run(messages: list[Message], joint=None, **others) -> list[Message]:
    chosen = others.pop("chosen", settings())
    joint = ZeroFilled() if joint is None else joint
    return list(reconstruct_stream(messages, chosen, reconstructor=reconstructor(joint), **others))


def images_of(answers: list[Message]) -> list[Image]:
    return [answer for answer in answers if isinstance(answer, Image)]


def brightest_mm(images: list[Image]) -> np.ndarray:
    """Return the patient coordinates of the brightest pixel, from nothing but headers and pixels."""
    pixels = np.stack([image.data[0, 0] for image in images])
    p, y, x = np.unravel_index(int(pixels.argmax()), pixels.shape)
    header = images[int(p)].header
    place = np.array(header["position"], float)
    for index, name, axis in ((x, "read_dir", 0), (y, "phase_dir", 1)):
        n, fov_mm = int(header["matrix_size"][axis]), float(header["field_of_view"][axis])
        place += (int(index) - n // 2) * fov_mm / n * np.array(header[name], float)
    return place


@pytest.mark.parametrize("n_z", [13, 12])
@pytest.mark.parametrize("keep", [lambda _z, _y: True, scattered], ids=["complete", "under-sampled"])
def test_a_point_in_an_oblique_slab_lies_where_the_images_say(n_z, keep):
    """At x = 24, y = -30, z = 14 mm of the slab: on pixels of 8 x 10 x 7 mm."""
    protocol = replace(
        SLAB,
        encoded=(52, 18, n_z),
        encoded_fov=(416.0, 180.0, 7.0 * n_z),
        recon=(26, 18, n_z),
        recon_fov=(208.0, 180.0, 7.0 * n_z),
        limits={**SLAB.limits, "kspace_encoding_step_2": (0, n_z - 1, n_z // 2)},
    )
    point = (SlabSpot(spot=Spot(x=24.0, y=-30.0, width=5.0), z=14.0, width_z=4.0),)

    images = images_of(run(scan(protocol, point, keep)))

    assert len(images) == n_z
    expected = np.array([10.0, -20.0, 30.0])
    expected = (
        expected + 24 * np.array([0.6, 0.8, 0]) - 30 * np.array([-0.8, 0.6, 0]) + 14 * np.array([0, 0, 1])
    )
    np.testing.assert_allclose(brightest_mm(images), expected, atol=1e-4)


def test_a_complete_slab_gives_its_partitions_as_ordinary_images():
    images = images_of(run(scan(slice=3)))

    coils = slab_image(OBJECT, (26, 18, 13), (208.0, 180.0, 91.0), (np.arange(13) - 6) * 7.0)
    truth = np.sqrt((np.abs(coils) ** 2).sum(axis=0))
    found = np.stack([image.data[0, 0] for image in images]) * 1e-3  # prewhitened: noise 1
    np.testing.assert_allclose(found, truth, atol=0.02 * truth.max())
    assert [int(image.header["slice"]) for image in images] == list(range(39, 52))
    assert [int(image.header["image_index"]) for image in images] == list(range(1, 14))
    assert {tuple(image.header["matrix_size"]) for image in images} == {(26, 18, 1)}
    assert {tuple(image.header["field_of_view"]) for image in images} == {(208.0, 180.0, 7.0)}
    np.testing.assert_allclose([image.header["position"][2] for image in images], 30 + 7.0 * np.arange(-6, 7))


def test_slabs_and_contrasts_are_told_apart():
    more = [one for kind in ({"slice": 1}, {"contrast": 1}) for one in scan(**kind)[2:]]
    images = images_of(run([*scan(), *more]))

    counters = [(int(one.header["contrast"]), int(one.header["slice"])) for one in images]
    assert counters == [(0, n) for n in range(26)] + [(1, n) for n in range(13)]
    assert [int(image.header["image_index"]) for image in images] == list(range(1, 40))


def test_an_under_sampled_slab_gives_its_partitions_from_planes():
    joint = StandIn()
    summary = StreamSummary()

    answers = run(scan(keep=scattered), joint, chosen=settings(posterior__enabled=True), summary=summary)

    images = images_of(answers)
    assert [tuple(batch.samples.shape) for batch in joint.batches] == [(1, 3, 13, 18)] * 26
    assert len(images) == 13
    # The stand-in's n-th image is n everywhere, and planes lie along x.
    np.testing.assert_allclose(images[4].data[0, 0], np.tile(np.arange(1.0, 27.0), (18, 1)), rtol=1e-5)
    assert "reconstructed in planes (z, y)" in images[0].meta
    reason = "not sampled for a volume that is reconstructed in planes across its partitions"
    assert summary.labelled == [f"slice 0: no uncertainty images: {reason}"]
    assert [answer.text for answer in answers if isinstance(answer, Text)] == [
        f"gadgetron-ebm: image 13 (slice 12): no uncertainty images: {reason}"
    ]


def test_partitions_with_failed_planes_are_fallbacks_in_comment_text_and_summary():
    calls = iter(range(26))
    summary = StreamSummary()

    def fail(_result):
        if next(calls) == 20:
            raise MemoryError

    answers = run(scan(keep=scattered), StandIn(misbehave=fail), summary=summary)

    words = "FALLBACK: zero-filled root sum of squares (out of memory, in 1 of 26 planes)"
    assert {read_meta(image)["ImageComments"] for image in images_of(answers)} == {f"gadgetron-ebm: {words}"}
    assert summary.labelled == [f"slice {n}: {words}" for n in range(13)]
    assert sum(isinstance(answer, Text) for answer in answers) == 13


def test_a_volume_that_does_not_part_into_planes_is_refused_before_it_is_reconstructed():
    joint = StandIn()
    with pytest.raises(
        ScanError, match="complete along none of the three directions, which is not supported"
    ):
        run(scan(keep=scattered, columns=slice(8, 52)), joint)
    assert joint.batches == []


def test_an_asymmetric_echo_of_complete_partitions_is_reconstructed_slice_by_slice():
    joint = StandIn()
    images = images_of(run(scan(columns=slice(8, 52)), joint))
    assert [tuple(batch.mask.shape) for batch in joint.batches] == [(1, 1, 18, 52)] * 13
    assert not joint.batches[0].mask[..., :8].any()
    assert {image.data.shape for image in images} == {(1, 1, 18, 26)}


def test_the_order_of_readouts_changes_nothing():
    messages = scan(keep=scattered)
    header, noise, *readouts = messages
    turned = [header, noise, *readouts[::-1]]
    for one in turned[2:]:
        assert isinstance(one, Acquisition)
    found = images_of(run(turned))
    expected = images_of(run(messages))
    assert all(np.array_equal(a.data, b.data) for a, b in zip(found, expected, strict=True))


def test_an_evaluation_refuses_a_3d_scan_by_name(monkeypatch, tmp_path):
    """The reader of the file is replaced; what it would have read are the messages."""
    monkeypatch.setattr("gadget.evaluation_assembly.read_scan", lambda _path: scan())
    path = tmp_path / "slab.h5"
    with h5py.File(path, "w") as file:
        file.create_group("dataset")
    with pytest.raises(
        ScanError, match=r"slab\.h5 is a 3-D scan, which is not evaluated; give a scan of slices"
    ):
        _from_ismrmrd(path, settings(), None, use_truth=False)


def test_phases_of_partitions_from_planes_are_missing_by_name():
    summary = StreamSummary()
    answers = run(
        scan(keep=scattered), chosen=settings(output__images=["magnitude", "phase"]), summary=summary
    )
    assert len(images_of(answers)) == 13
    assert all("its coil maps are not kept" in line for line in summary.labelled)
    assert len(summary.labelled) == 13


def test_slices_with_a_separate_calibration_start_from_its_maps_and_hold_none_of_its_data():
    """Every third line of an imaging slice; the calibration is ten times as bright and elsewhere complete."""
    kspace = kspace_of((OBJECT[0].spot,), (26, 18), (208.0, 180.0)).astype(np.complex64)
    mask = np.zeros((18, 26), bool)
    mask[::3] = True
    lines = CalibrationLines(samples=10 * kspace, mask=np.ones((18, 26), bool), fov_mm=(208.0, 180.0))
    context = replace(CONTEXT, recon_matrix=(26, 18, 1))
    one = AssembledSlice(
        context,
        KSpace(
            samples=torch.from_numpy(kspace * mask)[None],
            mask=torch.from_numpy(mask)[None, None],
            noise_std=1.0,
        ),
        lines,
    )
    without = replace(one, calibration=None)
    useless = replace(one, calibration=replace(lines, mask=np.zeros((18, 26), bool)))

    maps, noted = coil_start([one, without, useless])

    assert maps is not None
    assert maps.shape == (3, 3, 18, 26)
    assert not maps[1:].any()
    np.testing.assert_allclose(np.linalg.norm(maps[0], axis=0), 1, atol=1e-5)
    assert all(a.kspace is b.kspace for a, b in zip(noted, [one, without, useless], strict=True))
    assert (
        noted[0].context.notes[-1].startswith("coil maps: those of the separate calibration, as the centre")
    )
    assert noted[1] is without
    assert noted[2].context.notes[-1] == UNUSABLE
    full = replace(one, kspace=replace(one.kspace, mask=torch.ones_like(one.kspace.mask)))
    assert coil_start([full])[1][0].context.notes[-1] == STARTS
    assert coil_start([without])[0] is None
