"""The table of twin scans: one object acquired in every way gives the images of the fully sampled scan.

Each variant goes through the whole pipeline (prior tv, few iterations), as does the fully sampled scan that
it is compared with: largest difference of any pixel over the largest pixel of the scan, and headers that name
the same place. The k-space that it was made of is compared with the object's.

Tolerances:

* ``SAME`` (2e-3) where k-space determines the image: what differs is rounding, and the prior, the smoothness
  of the maps and the object's tails at the edge (3e-4 of its maximum) on another grid. Found: up to 1.1e-3.
* Where samples are missing, the image is what the model puts there. Stated is about twice what was found
  (0.01 to 0.1).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ismrmrd
import numpy as np
import pytest
from simulated_scans import settings
from twin_coils import (
    coils_in_another_order,
    duplicate_coil,
    in_ellipse,
    more_coils_in_the_noise,
    near,
    noise_correlated,
    noise_of_another_dwell_time,
    noise_pooled,
    other_readouts_between,
    prewhitened_upstream,
    slab,
    slab_interpolated,
    slab_oversampled,
    slab_with,
    with_a_coil,
)
from twin_loops import (
    averages_combined,
    averages_kept,
    counted,
    embedded,
    no_calibration,
    repetitions_without_flags,
    segments,
    separate,
    separate_of_another_contrast,
    several_encodings,
    slices_with_gaps,
    unequal_dwell_times,
)
from twin_readouts import (
    alternating,
    asymmetric,
    asymmetric_not_oversampled,
    asymmetric_reversed,
    center_not_set,
    center_that_cannot_be,
    discarded,
    discarded_reversed,
    lines_outside,
    oversampled,
    oversampled_by_a_quarter,
    oversampled_odd,
    oversampled_only_in_the_data,
    oversampled_with_the_matrix_not_doubled,
    partial_fourier,
    partial_fourier_in_both,
    partial_kx_by_discarding,
    phase_oversampled,
    recon_of_a_larger_field_of_view,
    recon_of_a_smaller_field_of_view,
    recon_smaller_than_encoded,
    recon_zero_filled,
    recon_zero_filled_odd,
    removed_upstream,
    resolution_that_looks_like_oversampling,
    reversed_readouts,
    trajectory_ignored,
    without_limits,
)
from twin_scans import (
    FOV,
    MATRIX,
    NOISE_STD,
    NX,
    NY,
    OBJECT,
    PLACE,
    SENSITIVITIES,
    SLAB,
    Blob,
    Expected,
    Twin,
    full,
    kspace_of,
)

from gadget.finished_slice import FinishedSlice
from gadget.image_meta import read_meta
from gadget.pipeline import reconstruct_stream
from gadget.scan.assemble import AssembledSlice
from gadget.wire.messages import Image

SAME = 2e-3
FEW, MANY, MOST = 8, 25, 40
"""Iterations where k-space determines the image, and where it does not, or hardly."""


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    make: Callable[[], Twin]
    tolerance: float = SAME
    iterations: int = FEW
    is_slow: bool = False


VARIANTS = {
    # readout
    "fully sampled": Row(lambda: full()),
    "readout oversampled twice": Row(oversampled),
    "readout oversampled, odd": Row(oversampled_odd),
    "readout oversampled by a quarter": Row(oversampled_by_a_quarter),
    "readout oversampled only in the data": Row(oversampled_only_in_the_data),
    "readout oversampled, matrix not doubled": Row(oversampled_with_the_matrix_not_doubled),
    "readout of twice the resolution": Row(resolution_that_looks_like_oversampling),
    "oversampling removed upstream, centre in the middle": Row(removed_upstream(NX // 2)),
    "oversampling removed upstream, centre as before": Row(removed_upstream(NX)),
    "oversampling removed upstream, centre not set": Row(removed_upstream(0)),
    "centre of the readout not set": Row(center_not_set),
    "asymmetric echo": Row(asymmetric, 0.05, MANY),
    "asymmetric echo, not oversampled": Row(asymmetric_not_oversampled, 0.01, MANY),
    "asymmetric echo, reversed": Row(asymmetric_reversed(37 - 12), 0.05, MANY),
    "asymmetric echo, reversed, mirrored about the matrix": Row(asymmetric_reversed(38 - 12), 0.05, MANY),
    "partial Fourier in kx": Row(partial_kx_by_discarding, 0.05, MANY),
    "discarded samples": Row(discarded),
    "discarded samples, reversed": Row(discarded_reversed),
    "reversed readouts": Row(reversed_readouts),
    "alternating polarity without phase correction": Row(alternating),
    "trajectory beside Cartesian readouts": Row(trajectory_ignored),
    # phase encoding and matrices
    "phase oversampled": Row(phase_oversampled),
    "partial Fourier in ky, first lines missing": Row(partial_fourier(5, NY), 0.04, MANY),
    "partial Fourier in ky, last lines missing": Row(partial_fourier(0, NY - 5), 0.04, MANY),
    "partial Fourier in ky, lines counted from 0": Row(partial_fourier(5, NY, from_0=True), 0.04, MANY),
    "partial Fourier in kx and ky": Row(partial_fourier_in_both, 0.05, MANY),
    "limits missing": Row(without_limits),
    "centre of the limits that cannot be": Row(center_that_cannot_be),
    "lines outside the matrix": Row(lines_outside),
    "recon matrix zero-filled": Row(recon_zero_filled),
    "recon matrix zero-filled, odd": Row(recon_zero_filled_odd),
    "recon matrix cropped": Row(recon_smaller_than_encoded),
    "recon field of view cropped": Row(recon_of_a_smaller_field_of_view),
    "recon field of view larger than encoded": Row(recon_of_a_larger_field_of_view),
    # loops
    "slices interleaved, with gaps": Row(slices_with_gaps),
    "contrasts": Row(counted("contrast")),
    "sets": Row(counted("set")),
    "phases": Row(counted("phase", 3)),
    "repetitions": Row(counted("repetition")),
    "repetitions one after another without flags": Row(repetitions_without_flags),
    "averages combined": Row(averages_combined),
    "averages kept": Row(averages_kept),
    "averages of unequal dwell times": Row(unequal_dwell_times),
    "segments": Row(segments),
    "several encodings": Row(several_encodings),
    # calibration
    "calibration embedded, all lines": Row(embedded(center=range(NY))),
    "calibration embedded": Row(embedded(), 0.03, MANY),
    "calibration of another encoding, image fully sampled": Row(separate(range(NY))),
    "calibration of another encoding and contrast": Row(separate(range(0, NY, 2), contrast=1), 0.15, MANY),
    "calibration of another contrast": Row(separate_of_another_contrast),
    "calibration not there": Row(no_calibration, 0.08, MOST),
    # noise and coils
    "noise of another dwell time and bandwidth": Row(noise_of_another_dwell_time),
    "noise pooled over unequal readouts": Row(noise_pooled),
    "noise correlated": Row(noise_correlated),
    "prewhitened upstream": Row(prewhitened_upstream),
    "coils in another order": Row(coils_in_another_order),
    "more coils in the noise": Row(more_coils_in_the_noise),
    "dead coil": Row(with_a_coil(0, 0)),
    "dead coil with noise": Row(with_a_coil(0, 1e-3)),
    "broken coil": Row(with_a_coil(complex("nan"), 0)),
    "duplicate coil": Row(duplicate_coil),
    "readouts that are no image data": Row(other_readouts_between),
    # 3-D
    "3-D": Row(slab, is_slow=True),
    "3-D, oversampled in all directions": Row(slab_oversampled, is_slow=True),
    "3-D, slices interpolated": Row(slab_interpolated, is_slow=True),
    "3-D, asymmetric echo": Row(slab_with(lambda _z, _y: True, slice(6, None)), 0.01, MANY, is_slow=True),
    "3-D, partial Fourier in kz": Row(slab_with(lambda z, _y: z >= 2), 0.05, MANY),
    "3-D, under-sampled in ky": Row(
        slab_with(lambda _z, y: y % 2 == 0 or abs(y - 10) <= 2, acceleration=2), 0.15, MOST
    ),
    "3-D, under-sampled in kz": Row(
        slab_with(lambda z, _y: z % 2 == 0 or abs(z - 5) <= 2, acceleration=2), 0.08, MANY, is_slow=True
    ),
    "3-D, elliptical": Row(slab_with(in_ellipse), 0.02, MANY, is_slow=True),
    "3-D, under-sampled in both, elliptical": Row(
        slab_with(lambda z, y: in_ellipse(z, y) and ((z + y) % 2 == 0 or near(z, y)), acceleration=2),
        0.4,
        MANY,
    ),
}


WAYS = (
    *("readout oversampled", "removed upstream", "phase oversampled", "oversampled in all directions"),
    *("Fourier in kx", "Fourier in ky", "Fourier in kz", "asymmetric echo", "reversed readouts"),
    *("alternating polarity", "discarded samples", "zero-filled", "cropped", "odd", "lines outside"),
    *("limits missing", "slices interleaved, with gaps", "contrasts", "sets", "phases", "repetitions"),
    *("averages combined", "averages kept", "segments", "several encodings", "calibration embedded"),
    *("of another encoding", "of another contrast", "calibration not there", "dwell time and bandwidth"),
    *("pooled", "correlated", "prewhitened upstream", "another order", "dead coil", "duplicate coil"),
    *("broken coil", "no image data", "3-D", "slices interpolated", "under-sampled in ky"),
    *("under-sampled in kz", "under-sampled in both", "elliptical"),
)
"""What the table must name."""


def finished_of(scan: Twin, iterations: int, folder: Path | None = None) -> list[FinishedSlice]:
    """Return the images that a scan gives, with the k-space that they were made of."""
    chosen = dict(scan.settings)
    if scan.before:
        chosen["noise__cache"] = str(folder)
        assert not list(reconstruct_stream(scan.before, settings(**chosen)))
    finished: list[FinishedSlice] = []
    answers = list(
        reconstruct_stream(
            scan.messages, settings(solver__iterations=iterations, **chosen), on_slice=finished.append
        )
    )
    assert answers == [one.image for one in finished]
    return finished


@cache
def image_of_full(blobs: tuple[Blob, ...], matrix: tuple[int, int], fov: tuple[float, float]) -> np.ndarray:
    """Return the image of the fully sampled scan; few iterations are enough for it."""
    (one,) = finished_of(full(blobs, matrix, fov), FEW)
    return one.image.data[0, 0]


def test_the_fully_sampled_scan_shows_the_object_where_it_is() -> None:
    """In closed form: the root sum of squares of Gaussians through the coils' waves, 1 / noise as bright."""
    (nx, ny), (fov_x, fov_y) = MATRIX, FOV
    x = (np.arange(nx) - nx // 2) * fov_x / nx
    y = (np.arange(ny) - ny // 2)[:, None] * fov_y / ny
    coils = np.zeros((len(SENSITIVITIES), ny, nx), complex)
    for blob in OBJECT:
        shape = blob.brightness * np.exp(-((x - blob.x) ** 2 + (y - blob.y) ** 2) / (2 * blob.width**2))
        for coil, waves in enumerate(SENSITIVITIES):
            for factor, a, b, c in waves:
                turns = a * x / FOV[0] + b * y / FOV[1] + c * blob.z / SLAB
                coils[coil] += factor * shape * np.exp(2j * np.pi * turns)
    truth = np.sqrt((np.abs(coils) ** 2).sum(axis=0)) / NOISE_STD
    found = image_of_full(OBJECT, MATRIX, FOV)
    # The noise is known from 4000 samples of 3 coils to about 1 %.
    np.testing.assert_allclose(found, truth, atol=0.02 * truth.max())


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * row.is_slow) for name, row in VARIANTS.items()],
)
def test_a_twin_gives_the_images_of_the_fully_sampled_scan(name: str, tmp_path: Path) -> None:
    row = VARIANTS[name]
    scan = row.make()
    finished = finished_of(scan, row.iterations, tmp_path / "noise")

    references = [image_of_full(one.blobs, scan.matrix, scan.fov) for one in scan.images]
    assert len(finished) == len(references)
    largest = max(float(reference.max()) for reference in references)
    for number, (one, expected, reference) in enumerate(zip(finished, scan.images, references, strict=True)):
        deviation = float(np.abs(one.image.data[0, 0] - reference).max()) / largest
        assert deviation < row.tolerance, f"image {number} deviates by {deviation:.2e}"
        _check_place(one.image, scan, expected)
        _check_words(one.image, scan.warns)
    _check_kspace([(one, expected) for one, expected in zip(finished, scan.images, strict=True)])


def _check_kspace(pairs: list[tuple[FinishedSlice, Expected]]) -> None:
    """Compare with the object's k-space in closed form, up to the mixing of the coils by the prewhitening.

    A magnitude image does not see k-space that is moved as a whole; this does.
    """
    slices = [(one, expected) for one, expected in pairs if isinstance(one.slice, AssembledSlice)]
    largest = max((float(one.kspace.samples.abs().square().sum()) for one, _ in slices), default=0.0)
    for one, expected in slices:
        mask = one.kspace.mask[0, 0].numpy()
        found = one.kspace.samples[0].numpy()[:, mask]
        context = one.slice.context
        truth = kspace_of(expected.blobs, context.grid_matrix, context.grid_fov_mm)[:, mask]
        mixing = np.linalg.lstsq(truth.T, found.T, rcond=None)[0]
        rest = float(np.square(np.abs(found.T - truth.T @ mixing)).sum() / largest)
        assert np.sqrt(rest) < 1e-3, f"k-space deviates by {np.sqrt(rest):.2e}"


def _check_place(image: Image, scan: Twin, expected: Expected) -> None:
    header = image.header
    assert tuple(header["matrix_size"]) == (*scan.matrix, 1)
    np.testing.assert_allclose(header["field_of_view"][:2], scan.fov, rtol=1e-6)
    place = np.array(PLACE["position"]) + expected.moved_mm * np.array(PLACE["slice_dir"])
    np.testing.assert_allclose(header["position"], place, atol=1e-4)
    for name in ("read_dir", "phase_dir", "slice_dir"):
        np.testing.assert_allclose(header[name], PLACE[name], atol=1e-6)
    for name in ("slice", "contrast", "set", "phase", "repetition", "average"):
        assert int(header[name]) == expected.counters.get(name, 0)


def _check_words(image: Image, warns: str) -> None:
    meta = read_meta(image)
    notes = list(ismrmrd.Meta.deserialize(image.meta)["ScanNotes"])
    warnings = [note for note in notes if note.startswith("warning: ")]
    assert bool(warnings) == bool(warns)
    assert warns in " ".join(warnings)
    assert meta["EBM_Image"] == "RECONSTRUCTED"
    assert "INCOMPLETE" not in meta["ImageComments"]


def test_the_table_names_every_way_of_acquiring_a_scan() -> None:
    """A variant that somebody takes out of the table is missed here."""
    named = " / ".join(VARIANTS)
    missing = [way for way in WAYS if way not in named]
    assert not missing
