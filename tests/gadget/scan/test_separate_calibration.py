"""Calibration of another encoding, matrix, contrast or repetition: for coil maps, never image data."""

from typing import Any

import numpy as np
import pytest
from scan_assembly import UNWHITENED, assembler, assert_close, samples_of
from synthetic_scan import OBJECT, Protocol, kspace_of, lines_of, noise_readout, readout
from synthetic_slab import OBJECT as SLAB
from synthetic_slab import slab_kspace

from gadget.scan.assemble import AssembledSlice, AssemblySettings, SliceAssembler
from gadget.scan.calibration import CalibrationLines
from gadget.scan.volume import AssembledVolume
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

IMAGING = list(range(0, 45, 2))
FULL, KEPT = Protocol().kspace(), Protocol().kept_kspace()
ONLY_IMAGING = np.where(np.isin(np.arange(45), IMAGING)[:, None], KEPT, 0)

SMALL = kspace_of(OBJECT, (16, 21), (120.0, 140.0))
"""A calibration of its own: 16 columns, not oversampled, 21 rows over a larger field of view."""


def two_encodings(second: Protocol, **changes: Any) -> str:
    first = Protocol(acceleration=2, calibration_mode="separate", **changes).xml()
    text = second.xml()
    encoding = text[text.index("<encoding>") : text.index("</encoding>") + len("</encoding>")]
    return first.replace("</encoding>", f"</encoding>{encoding}", 1)


SECOND = Protocol(
    encoded=(16, 21, 1),
    encoded_fov=(120.0, 140.0, 5.0),
    recon=(16, 21, 1),
    recon_fov=(120.0, 140.0, 5.0),
    limits={"kspace_encoding_step_1": (0, 20, 10)},
)


def calibration_of(kspace: np.ndarray, rows: list[int] | None = None, **fields: Any) -> list[Acquisition]:
    chosen = range(kspace.shape[1]) if rows is None else rows
    return [readout(kspace[:, row], row, Flag.IS_PARALLEL_CALIBRATION, **fields) for row in chosen]


def slices_of(sorter: SliceAssembler, readouts: list[Acquisition]) -> list[AssembledSlice]:
    found = [one for a in readouts for one in sorter.add(a)]
    found += sorter.finish()
    assert all(isinstance(one, AssembledSlice) for one in found)
    return found  # type: ignore[return-value]  # as just checked


def lines_for(one: AssembledSlice) -> CalibrationLines:
    assert one.calibration is not None
    return one.calibration


def test_the_lines_of_another_encoding_are_handed_on_and_are_no_image_data() -> None:
    sorter = assembler(two_encodings(SECOND))
    readouts = [*calibration_of(SMALL, encoding_space_ref=1), *lines_of(FULL, IMAGING)]
    (slice_,) = slices_of(sorter, readouts)
    assert_close(samples_of(slice_), ONLY_IMAGING)
    lines = lines_for(slice_)
    assert_close(lines.samples, SMALL)
    assert lines.mask.all()
    assert lines.fov_mm == (120.0, 140.0)
    assert (
        "21 calibration lines of encoding 1, contrast 0 (16 x 21 over 120 x 140 mm) are for the coil maps, "
        "not image data" in slice_.context.notes
    )
    assert sorter.report() == ("23 image, 21 calibration-only readouts",)


def test_they_are_whitened_like_the_slice() -> None:
    settings = AssemblySettings()
    noise = noise_readout(2.0, sample_time_us=20.0)
    fields = {"encoding_space_ref": 1, "sample_time_us": 7.0}
    sorter = assembler(two_encodings(SECOND), settings)
    (slice_,) = slices_of(sorter, [noise, *calibration_of(SMALL, **fields), *lines_of(FULL, IMAGING)])
    # The very factors of the slice, whose coils see white noise of different estimated levels
    row = np.flatnonzero(slice_.kspace.mask[0, 0, :, 0].numpy())[11]
    matrix = np.linalg.lstsq(KEPT[:, row].T, samples_of(slice_)[:, row].T, rcond=None)[0].T
    expected = np.einsum("ab,byx->ayx", matrix, SMALL)
    found = lines_for(slice_).samples
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    "fields", [{"sample_time_us": 2.0}, {"contrast": 3}, {"set": 2}, {"contrast": 1, "phase": 4}], ids=str
)
def test_lines_of_another_kind_of_the_same_encoding_are_handed_on_too(fields: dict[str, Any]) -> None:
    sorter = assembler(Protocol(acceleration=2, calibration_mode="embedded"))
    rows = list(range(17, 28))
    (slice_,) = slices_of(sorter, [*calibration_of(FULL, rows, **fields), *lines_of(FULL, IMAGING)])
    assert_close(samples_of(slice_), ONLY_IMAGING)
    assert_close(lines_for(slice_).samples[:, rows], KEPT[:, rows])
    assert np.flatnonzero(lines_for(slice_).mask.any(axis=1)).tolist() == rows
    assert sorter.report() == ("23 image, 11 calibration-only readouts",)


def test_shorter_readouts_are_of_lower_resolution_not_without_oversampling() -> None:
    # 40 samples of the 80 columns: just the number that is left after the removal of oversampling
    sorter = assembler(Protocol(acceleration=2, calibration_mode="embedded"))
    rows = list(range(17, 28))
    (slice_,) = slices_of(sorter, [*calibration_of(FULL[:, :, 20:60], rows), *lines_of(FULL, IMAGING)])
    lines = lines_for(slice_)
    assert lines.fov_mm == (240.0, 135.0)
    assert_close(lines.samples[:, rows, 20:60], FULL[:, rows, 20:60])
    assert not lines.mask[:, :20].any()
    assert not lines.mask[:, 60:].any()


def test_later_repetitions_get_the_calibration_of_the_first() -> None:
    sorter = assembler(Protocol(acceleration=2, calibration_mode="embedded"))
    rows = list(range(17, 28))
    readouts = [*calibration_of(FULL, rows), *lines_of(FULL, IMAGING), *lines_of(FULL, IMAGING, repetition=1)]
    first, second = slices_of(sorter, readouts)
    assert (first.context.n_lines, second.context.n_lines) == (29, 23)
    assert first.calibration is None
    assert_close(lines_for(second).samples[:, rows], KEPT[:, rows])


# Which one, for which slice


def at(z: float) -> dict[str, Any]:
    return {"position": (0.0, 0.0, z)}


def test_slices_get_the_calibration_of_their_position_whatever_its_counter() -> None:
    sorter = assembler(two_encodings(SECOND))
    readouts = []
    for number, z in enumerate((30.0, 10.0, 20.0)):
        readouts += calibration_of(z * SMALL, encoding_space_ref=1, slice=number, **at(z))
    for number, z in enumerate((10.0, 21.0, 30.0, 40.0)):
        readouts += lines_of(FULL, IMAGING, slice=number, **at(z))
    slices = slices_of(sorter, readouts)
    for slice_, z in zip(slices[:3], (10.0, 20.0, 30.0), strict=True):
        assert_close(lines_for(slice_).samples, z * SMALL)
    assert slices[3].calibration is None


def test_slices_of_a_scan_without_positions_get_that_of_their_counter() -> None:
    sorter = assembler(two_encodings(SECOND))
    readouts = [a for n in (2, 0) for a in calibration_of((1 + n) * SMALL, encoding_space_ref=1, slice=n)]
    readouts += [a for n in (0, 1, 2) for a in lines_of(FULL, IMAGING, slice=n)]
    first, second, third = slices_of(sorter, readouts)
    assert_close(lines_for(first).samples, SMALL)
    assert second.calibration is None
    assert_close(lines_for(third).samples, 3 * SMALL)


def test_a_calibration_that_is_tilted_is_not_taken() -> None:
    sorter = assembler(two_encodings(SECOND))
    tilted = {"phase_dir": (0.0, 0.9, 0.43), "slice_dir": (0.0, -0.43, 0.9)}
    readouts = [*calibration_of(SMALL, encoding_space_ref=1, **tilted), *lines_of(FULL, IMAGING)]
    (slice_,) = slices_of(sorter, readouts)
    assert slice_.calibration is None
    assert "not used: 21 calibration-only readouts after their slice was complete" in sorter.report()


def test_of_several_calibrations_the_one_with_the_most_lines_is_taken() -> None:
    sorter = assembler(two_encodings(SECOND))
    readouts = [
        *calibration_of(FULL, [21, 22, 23], contrast=1),
        *calibration_of(SMALL, encoding_space_ref=1),
        *lines_of(FULL, IMAGING),
    ]
    (slice_,) = slices_of(sorter, readouts)
    assert lines_for(slice_).fov_mm == (120.0, 140.0)
    assert "not used: 3 calibration-only readouts after their slice was complete" in sorter.report()


def test_a_line_that_came_several_times_is_the_last_by_its_counters_in_any_order() -> None:
    first = calibration_of(SMALL, encoding_space_ref=1)
    second = calibration_of(5 * SMALL, encoding_space_ref=1, repetition=1)
    for parts in ((*first, *second), (*second, *first)):
        (slice_,) = slices_of(assembler(two_encodings(SECOND)), [*parts, *lines_of(FULL, IMAGING)])
        assert_close(lines_for(slice_).samples, 5 * SMALL)


# What is of no use is counted


def test_a_calibration_without_images_is_counted() -> None:
    sorter = assembler(two_encodings(SECOND))
    readouts = [*calibration_of(SMALL, encoding_space_ref=1, slice=8), *lines_of(FULL, IMAGING)]
    (slice_,) = slices_of(sorter, readouts)
    assert slice_.calibration is None
    assert "not used: 21 calibration-only readouts without imaging readouts" in sorter.report()


def test_a_calibration_of_an_encoding_that_is_not_supported_is_counted() -> None:
    epi = two_encodings(SECOND).replace("cartesian", "epi", 2).replace("epi", "cartesian", 1)
    sorter = assembler(epi)
    readouts = [*calibration_of(SMALL, encoding_space_ref=1), *lines_of(FULL, IMAGING)]
    (slice_,) = slices_of(sorter, readouts)
    assert slice_.calibration is None
    assert "not used: 21 calibration-only readouts of an encoding that is not supported" in sorter.report()


def test_a_calibration_that_cannot_be_laid_out_is_said() -> None:
    sorter = assembler(two_encodings(SECOND))
    readouts = [*calibration_of(SMALL[:, :, :14], encoding_space_ref=1, center=13), *lines_of(FULL, IMAGING)]
    (slice_,) = slices_of(sorter, readouts)
    assert slice_.calibration is None
    assert any(
        note.startswith(
            "calibration lines cannot be used: A calibration readout has 14 samples with the centre"
        )
        for note in slice_.context.notes
    )


def test_slabs_get_slabs() -> None:
    matrix, fov = (26, 18, 13), (208.0, 180.0, 91.0)
    limits = {"kspace_encoding_step_1": (0, 17, 9), "kspace_encoding_step_2": (0, 12, 6)}
    space = {"encoded": matrix, "encoded_fov": fov, "recon": matrix, "recon_fov": fov}
    small = Protocol(
        encoded=(16, 10, 7),
        encoded_fov=fov,
        recon=(16, 10, 7),
        recon_fov=fov,
        limits={"kspace_encoding_step_1": (0, 9, 5), "kspace_encoding_step_2": (0, 6, 3)},
    )
    text = two_encodings(small, limits=limits, **space)
    full, lower = slab_kspace(SLAB, matrix, fov), slab_kspace(SLAB, (16, 10, 7), fov)
    readouts = [
        readout(lower[:, z, y], y, Flag.IS_PARALLEL_CALIBRATION, kspace_encode_step_2=z, encoding_space_ref=1)
        for z in range(7)
        for y in range(10)
    ]
    readouts += [
        readout(full[:, z, y], y, kspace_encode_step_2=z) for z in range(13) for y in range(0, 18, 2)
    ]
    sorter = assembler(text, UNWHITENED)
    (volume,) = [*(one for a in readouts for one in sorter.add(a)), *sorter.finish()]
    assert isinstance(volume, AssembledVolume)
    assert volume.calibration is not None
    assert_close(volume.calibration.samples, lower)
    assert volume.calibration.mask.shape == (7, 10, 16)
    assert volume.calibration.fov_mm == fov
