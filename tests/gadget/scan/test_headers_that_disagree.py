"""Where header and readouts disagree: what is taken, and that it is said. Spots of known k-space."""

import re

import numpy as np
import pytest
from scan_assembly import assembled, assembler, assert_close, mask_of, samples_of
from synthetic_scan import OBJECT, Protocol, Spot, kspace_of, lines_of, noise_readout, readout

from gadget.errors import ScanError
from gadget.scan.assemble import AssembledSlice, AssemblySettings
from gadget.wire.headers import AcquisitionFlag as Flag

FULL = kspace_of(OBJECT, (80, 45), (240.0, 135.0))
KEPT = kspace_of(OBJECT, (40, 45), (120.0, 135.0))
"""The same without oversampling: 3 mm pixels."""


def warning_of(slice_: AssembledSlice) -> str:
    (warning,) = slice_.context.warnings
    assert f"warning: {warning}" in slice_.context.notes
    return warning


# Oversampling


@pytest.mark.parametrize(
    ("encoded", "fov", "words"),
    [
        (40, 120.0, "readouts of 80 samples where the header encodes 40 columns: taken as 2 times more"),
        (40, 240.0, "taken as 80 columns over its 240 mm"),
    ],
    ids=["neither matrix nor field of view doubled", "only the field of view doubled"],
)
def test_oversampling_that_the_header_forgets_is_removed(encoded: int, fov: float, words: str) -> None:
    scan = Protocol(encoded=(encoded, 45, 1), encoded_fov=(fov, 135.0, 5.0))
    (slice_,) = assembled(scan, lines_of(FULL))
    assert_close(samples_of(slice_), KEPT)
    assert slice_.context.grid_fov_mm == (120.0, 135.0)
    assert words in warning_of(slice_)


def test_a_doubled_matrix_over_the_same_field_of_view_is_pixels_of_half_the_size() -> None:
    scan = Protocol(encoded=(80, 45, 1), encoded_fov=(120.0, 135.0, 5.0))
    fine = kspace_of(OBJECT, (80, 45), (120.0, 135.0))
    (slice_,) = assembled(scan, lines_of(fine))
    assert_close(samples_of(slice_), fine)
    assert slice_.context.grid_fov_mm == (120.0, 135.0)
    assert "If this is readout oversampling, encodedSpace.fieldOfView_mm.x has to be twice" in warning_of(
        slice_
    )


@pytest.mark.parametrize("center", [0, 20, 40])
def test_oversampling_removed_upstream_needs_no_right_center_sample(center: int) -> None:
    (slice_,) = assembled(Protocol(), lines_of(KEPT, center=center))
    assert_close(samples_of(slice_), KEPT)
    assert slice_.context.warnings == ()


def test_readouts_of_one_and_of_two_times_the_matrix_in_one_slice_are_refused() -> None:
    scan = Protocol(encoded=(40, 45, 1), encoded_fov=(120.0, 135.0, 5.0))
    for first, second in ((KEPT, FULL), (FULL, KEPT)):
        sorter = assembler(scan)
        sorter.add(readout(first[:, 3], 3))
        with pytest.raises(ScanError, match="some readouts had their oversampling removed and some not"):
            sorter.add(readout(second[:, 4], 4))


# The readout's centre


def test_samples_that_stick_out_a_little_are_cut_off() -> None:
    # 57 samples from column 25 on: two more than there are columns
    longer = kspace_of(OBJECT, (84, 45), (252.0, 135.0))[:, :, 27:]
    cut = Protocol(encoded=(82, 45, 1), encoded_fov=(252.0 * 82 / 84, 135.0, 5.0))
    (slice_,) = assembled(cut, [readout(longer[:, row], row, center=15) for row in range(45)])
    assert mask_of(slice_)[3].tolist() == [False] * 26 + [True] * 56
    assert_close(samples_of(slice_)[:, :, 26:], longer[:, :, :56])
    assert (
        "57 samples with the centre at 15 stick out of the 82 columns of the header: 0 and 1"
        in warning_of(slice_)
    )


def test_samples_that_stick_out_in_front_are_cut_off_there() -> None:
    longer = kspace_of(OBJECT, (84, 45), (252.0, 135.0))[:, :, :70]
    cut = Protocol(encoded=(82, 45, 1), encoded_fov=(252.0 * 82 / 84, 135.0, 5.0))
    (slice_,) = assembled(cut, [readout(longer[:, row], row, center=42) for row in range(45)])
    assert_close(samples_of(slice_)[:, :, :69], longer[:, :, 1:])
    assert "of the header: 1 and 0 samples at the ends cut off" in warning_of(slice_)


def test_readouts_of_several_lengths_are_each_placed_by_their_centre() -> None:
    lengths = {0: (25, 80), 1: (0, 70), 2: (0, 80)}
    readouts = []
    for row in range(45):
        first, last = lengths[row % 3]
        readouts.append(readout(FULL[:, row, first:last], row, center=40 - first))
    (slice_,) = assembled(Protocol(), readouts)
    expected = FULL.copy()
    expected[:, 0::3, :25] = 0
    expected[:, 1::3, 70:] = 0
    assert_close(samples_of(slice_), expected)
    assert mask_of(slice_).sum() == 15 * (55 + 70 + 80)


def test_an_asymmetric_echo_of_reversed_readouts_has_the_convention_that_fits() -> None:
    # 55 of 80 columns, k = 0 at the 15th in the order of k. As acquired: sample 39 by the standard; 40 as
    # scanners count that mirror about the middle of the matrix.
    for center in (39, 40):
        readouts = [
            readout(FULL[:, row, 25:][:, ::-1], row, Flag.IS_REVERSE, center=center) for row in range(45)
        ]
        (slice_,) = assembled(Protocol(), readouts)
        assert_close(samples_of(slice_)[:, :, 25:], FULL[:, :, 25:])
        assert mask_of(slice_)[7].tolist() == [False] * 25 + [True] * 55


def test_an_echo_far_from_the_centre_that_the_header_gives_is_warned_about() -> None:
    (slice_,) = assembled(Protocol(), [readout(FULL[:, row, 25:], row, center=39) for row in range(45)])
    # The echo of two spots is not a single peak: by 24 columns, give or take 2
    assert re.search(
        "lies 2[2-6] columns before the centre of the 80 columns: check center", warning_of(slice_)
    )
    (slice_,) = assembled(Protocol(), [readout(FULL[:, row, 25:], row, center=15) for row in range(45)])
    assert slice_.context.warnings == ()


# Lines


def test_a_centre_line_that_cannot_be_is_replaced() -> None:
    scan = Protocol(limits={"kspace_encoding_step_1": (0, 30, 0)})
    (slice_,) = assembled(scan, lines_of(FULL, list(range(31))))
    assert_close(samples_of(slice_)[:, :31], KEPT[:, :31])
    assert (
        "the header's centre 0 of kspace_encoding_step_1 cannot be, as its lines 0 to 30 would"
        in warning_of(slice_)
    )


def test_a_centre_line_that_the_data_contradicts_is_believed_and_warned_about() -> None:
    # Partial Fourier, lines 0 to 29 of which 10 is the centre; a converter wrote 22
    scan = Protocol(limits={"kspace_encoding_step_1": (0, 29, 22)})
    spot = (Spot(x=0.0, y=0.0),)
    full, kept = scan.kspace(spot), scan.kept_kspace(spot)
    (slice_,) = assembled(scan, [readout(full[:, row], row - 12) for row in range(12, 42)])
    assert_close(samples_of(slice_)[:, :30], kept[:, 12:42])
    assert warning_of(slice_) == (
        "the strongest line has kspace_encode_step_1 10, but the centre of k-space is taken to be 22: check "
        "the header's limits, if the image is blurred"
    )


def test_a_few_lines_outside_the_matrix_are_left_out_counted_and_said() -> None:
    sorter = assembler(Protocol())
    readouts = lines_of(FULL)
    strange = [readout(99 * FULL[:, 0], line) for line in (45, 65535, 45)]
    (slice_,) = [one for a in (*strange, *readouts) for one in sorter.add(a)]
    assert isinstance(slice_, AssembledSlice)
    assert_close(samples_of(slice_), KEPT)
    assert warning_of(slice_) == (
        "3 readouts of lines outside the matrix left out: 45 rows with line 22 at row 22 hold the lines 0 to "
        "44 of kspace_encode_step_1"
    )
    assert "not used: 3 readouts of lines outside the matrix" in sorter.report()


def test_a_slice_of_nothing_but_lines_outside_the_matrix_makes_no_image_and_is_counted() -> None:
    sorter = assembler(Protocol())
    assert sorter.add(readout(FULL[:, 0], 50, Flag.LAST_IN_SLICE)) == ()
    assert sorter.finish() == ()
    assert sorter.report() == ("1 image readouts", "not used: 1 readouts of lines outside the matrix")


def test_many_lines_outside_the_matrix_are_refused() -> None:
    sorter = assembler(Protocol())
    sorter.add(readout(FULL[:, 3], 3))
    for line in (45, 46, 45):
        sorter.add(readout(FULL[:, 3], line))
    with pytest.raises(
        ScanError,
        match=r"Readout 5 of the stream \(scan_counter 7\) has kspace_encode_step_1 47 and "
        r"kspace_encode_step_2 0, which lie outside the matrix, as those of 2 other lines do: 45 rows with "
        r"line 22 at row 22 hold the lines 0 to 44 of kspace_encode_step_1. Check encodedSpace.matrixSize",
    ):
        sorter.add(readout(FULL[:, 3], 47, scan_counter=7))


def test_partitions_where_the_matrix_has_none_are_outside_of_it() -> None:
    sorter = assembler(Protocol())
    for line in range(2):
        sorter.add(readout(FULL[:, 3], line, kspace_encode_step_2=4))
    with pytest.raises(ScanError, match="kspace_encode_step_2 4, which lie outside the matrix"):
        sorter.add(readout(FULL[:, 3], 3, kspace_encode_step_2=4))


# EPI


def test_epi_that_the_header_does_not_name_is_refused() -> None:
    sorter = assembler(Protocol())
    sorter.add(readout(FULL[:, 0], 0, Flag.IS_PHASECORR_DATA))
    sorter.add(readout(FULL[:, 0], 0))
    with pytest.raises(ScanError, match="phase correction readouts: this is EPI, whatever the header says"):
        sorter.add(readout(FULL[:, 1, ::-1], 1, Flag.IS_REVERSE))


# Averages of different bandwidths


def test_averages_are_weighted_by_their_dwell_times_whichever_came_first() -> None:
    scan = Protocol(encoded=(40, 45, 1), encoded_fov=(120.0, 135.0, 5.0))
    rng = np.random.default_rng(5)
    shape = (2, 45, 3, 40)
    noise = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    # Four times the dwell time: half the noise; the whitening is for the dwell time of the first, or second
    readouts = [readout(noise[0, row], row, sample_time_us=5.0) for row in range(45)]
    readouts += [readout(0.5 * noise[1, row], row, sample_time_us=20.0, average=1) for row in range(45)]
    (slice_,) = assembled(scan, readouts)
    (backwards,) = assembled(scan, readouts[::-1])
    expected = (5 * noise[0] + 20 * 0.5 * noise[1]).transpose(1, 0, 2) / 25
    assert_close(samples_of(slice_), expected)
    assert_close(samples_of(backwards), expected)
    assert slice_.kspace.noise_std == pytest.approx(np.sqrt(1 / 5))
    assert slice_.kspace.noise_std == pytest.approx(np.std(samples_of(slice_).real), rel=0.03)
    assert backwards.kspace.noise_std == pytest.approx(slice_.kspace.noise_std)
    assert any(
        "different dwell times: weighted by them, noise scaled for 5 us" in n for n in slice_.context.notes
    )


@pytest.mark.parametrize("dwell_us", [0.0, -5.0, np.nan, np.inf, 1e30])
def test_dwell_times_that_cannot_be_weigh_nothing(dwell_us: float) -> None:
    noise = noise_readout(1.0, sample_time_us=dwell_us)
    first = lines_of(FULL)[:-1]
    second = lines_of(3 * FULL, list(range(44)), average=1, sample_time_us=dwell_us)[:-1]
    for parts in ((*first, *second), (*second, *first)):
        (slice_,) = assembled(Protocol(), [noise, *parts], AssemblySettings())
        # Plain means of 1 and 3, but for line 43, measured once
        expected = 2 * KEPT[:, 5:43]
        found = samples_of(slice_)[:, 5:43]
        assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
