"""From readouts to slices of k-space: an object known in closed form, acquired in many ways."""

from dataclasses import replace

import numpy as np
import pytest
from scan_assembly import assembled, assembler, assert_close, mask_of, samples_of
from synthetic_scan import (
    OBJECT,
    Protocol,
    Spot,
    image_of,
    inverse_transform,
    kspace_of,
    lines_of,
    noise_readout,
    readout,
)

from gadget.errors import ScanError
from gadget.scan.assemble import AssemblySettings, NoiseSource
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

# Placement


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(),
        Protocol(encoded=(81, 44, 1), encoded_fov=(243.0, 132.0, 5.0)),
        Protocol(encoded=(78, 51, 1), encoded_fov=(234.0, 153.0, 5.0), recon_fov=(117.0, 135.0, 5.0)),
        Protocol(encoded=(40, 45, 1), encoded_fov=(120.0, 135.0, 5.0), recon=(80, 90, 1), limits={}),
    ],
    ids=["even to even", "odd to even", "even to odd", "not oversampled"],
)
def test_a_full_scan_is_the_object_s_k_space_at_the_cropped_field_of_view(protocol: Protocol) -> None:
    protocol = replace(protocol, limits={})
    fov_x, n_kept = (
        protocol.recon_fov[0],
        round(protocol.encoded[0] * protocol.recon_fov[0] / protocol.encoded_fov[0]),
    )
    # For a field of view that is not a whole number of pixels the kept one is as near as pixels allow.
    fov_x = n_kept * protocol.encoded_fov[0] / protocol.encoded[0]
    (slice_,) = assembled(protocol, lines_of(protocol.kspace()))
    expected = kspace_of(OBJECT, (n_kept, protocol.encoded[1]), (fov_x, protocol.encoded_fov[1]))
    assert_close(samples_of(slice_), expected)
    assert mask_of(slice_).all()
    assert slice_.context.grid_matrix == (n_kept, protocol.encoded[1])
    assert slice_.context.grid_fov_mm == pytest.approx((fov_x, protocol.encoded_fov[1]))


def test_what_lies_outside_the_reconstructed_field_of_view_is_gone() -> None:
    protocol = Protocol()
    outside = Spot(x=95.0, y=0.0)
    (slice_,) = assembled(protocol, lines_of(protocol.kspace((*OBJECT, outside))))
    assert_close(samples_of(slice_), protocol.kept_kspace())


def test_the_image_of_the_assembled_k_space_is_the_object() -> None:
    protocol = Protocol()
    (slice_,) = assembled(protocol, lines_of(protocol.kspace()))
    expected = image_of(OBJECT, (40, 45), (120.0, 135.0))
    np.testing.assert_allclose(inverse_transform(samples_of(slice_)), expected, atol=1e-5)


def test_samples_with_oversampling_removed_upstream_are_taken_as_they_are() -> None:
    protocol = Protocol()
    (slice_,) = assembled(protocol, lines_of(protocol.kept_kspace()))
    assert_close(samples_of(slice_), protocol.kept_kspace())
    assert "readout oversampling was removed before: 40 samples" in slice_.context.notes
    assert slice_.context.grid_fov_mm[0] == 120.0


def test_readouts_with_and_without_oversampling_in_one_slice_are_refused() -> None:
    protocol = Protocol()
    sorter = assembler(protocol)
    sorter.add(readout(protocol.kspace()[:, 3], 3))
    with pytest.raises(ScanError, match="has 40 samples where its slice has 80 columns: some readouts had"):
        sorter.add(readout(protocol.kept_kspace()[:, 4], 4))


def test_reversed_readouts_are_flipped() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    forth = [readout(kspace[:, row], row) for row in range(0, 45, 2)]
    # A readout of 80 samples, acquired from the far end
    back = [readout(kspace[:, row, ::-1], row, Flag.IS_REVERSE) for row in range(1, 45, 2)]
    (slice_,) = assembled(protocol, [*forth, *back])
    assert_close(samples_of(slice_), protocol.kept_kspace())


def test_an_asymmetric_echo_keeps_its_columns_and_leaves_the_others_unmeasured() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    readouts = [readout(kspace[:, row, 25:], row, center=15) for row in range(45)]
    (slice_,) = assembled(protocol, readouts)
    assert_close(samples_of(slice_)[:, :, 25:], kspace[:, :, 25:])
    assert not samples_of(slice_)[:, :, :25].any()
    assert not mask_of(slice_)[:, :25].any()
    assert mask_of(slice_)[:, 25:].all()
    assert "incomplete readouts: oversampling stays until after the reconstruction" in slice_.context.notes
    assert slice_.context.grid_matrix == (80, 45)
    assert slice_.context.grid_fov_mm[0] == 240.0


def test_a_reversed_asymmetric_echo_lands_in_the_same_columns() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    # Columns 25 to 79, k = 0 at column 40: acquired backwards, that is sample 54 - 15
    readouts = [readout(kspace[:, row, 25:][:, ::-1], row, Flag.IS_REVERSE, center=39) for row in range(45)]
    (slice_,) = assembled(protocol, readouts)
    assert_close(samples_of(slice_)[:, :, 25:], kspace[:, :, 25:])


def test_discarded_samples_are_not_measured() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    spoilt = kspace.copy()
    spoilt[:, :, :4] = 1e6
    spoilt[:, :, -2:] = 1e6
    (slice_,) = assembled(protocol, lines_of(spoilt, discard_pre=4, discard_post=2))
    assert_close(samples_of(slice_)[:, :, 4:-2], kspace[:, :, 4:-2])
    assert mask_of(slice_)[7].tolist() == [False] * 4 + [True] * 74 + [False] * 2


def test_partial_fourier_leaves_rows_unmeasured() -> None:
    # Lines 0 to 29 are measured, line 12 is the centre: rows 10 to 39 of 45
    protocol = Protocol(limits={"kspace_encoding_step_1": (0, 29, 12)})
    kspace = protocol.kspace()
    readouts = [readout(kspace[:, row], row - 10) for row in range(10, 40)]
    (slice_,) = assembled(protocol, readouts)
    assert_close(samples_of(slice_)[:, 10:40], protocol.kept_kspace()[:, 10:40])
    assert np.flatnonzero(mask_of(slice_)[:, 0]).tolist() == list(range(10, 40))
    assert slice_.context.notes[0] == "30 of 45 lines measured"


def test_trajectories_of_a_cartesian_scan_are_ignored() -> None:
    protocol = Protocol()
    readouts = [
        Acquisition(acquisition.header, np.full((80, 2), np.nan, np.float32), acquisition.data)
        for acquisition in lines_of(protocol.kspace(), trajectory_dimensions=2)
    ]
    (slice_,) = assembled(protocol, readouts)
    assert_close(samples_of(slice_), protocol.kept_kspace())


def test_the_order_of_the_lines_does_not_matter() -> None:
    protocol = Protocol(
        acceleration=2, calibration_mode="embedded", limits={"kspace_encoding_step_1": (0, 44, 22)}
    )
    kspace = protocol.kspace()
    readouts = [noise_readout()]
    readouts += [readout(kspace[:, row], row, scan_counter=row) for row in range(0, 45, 2)]
    # Calibration lines differ from the imaging lines of the same rows: only order decides, if anything does
    readouts += [
        readout(1.5 * kspace[:, row], row, Flag.IS_PARALLEL_CALIBRATION, scan_counter=50 + row)
        for row in range(17, 28)
    ]
    readouts += [readout(3 * kspace[:, row], row, average=1, scan_counter=90 + row) for row in (4, 22)]
    settings = AssemblySettings()
    (in_order,) = assembled(protocol, readouts, settings)
    assert in_order.context.n_lines == 29
    rng = np.random.default_rng(11)
    for order in (range(len(readouts))[::-1], rng.permutation(len(readouts)), rng.permutation(len(readouts))):
        (shuffled,) = assembled(protocol, [readouts[i] for i in order], settings)
        # Means of two are added in another order, so the last bit may differ
        np.testing.assert_allclose(samples_of(shuffled), samples_of(in_order), rtol=1e-5, atol=1e-6)
        assert (mask_of(shuffled) == mask_of(in_order)).all()
        assert shuffled.context == in_order.context


# Loops and completeness


def test_every_combination_of_the_loops_makes_a_slice_as_soon_as_it_is_complete() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    sorter = assembler(protocol)
    for repetition in range(2):
        for contrast in range(2):
            for number in (2, 0):
                counters = {"repetition": repetition, "contrast": contrast, "slice": number}
                factor = 1 + repetition + 10 * contrast + 100 * number
                *before, last = lines_of(factor * kspace, **counters)
                assert [sorter.add(acquisition) for acquisition in before] == [()] * 44
                (slice_,) = sorter.add(last)
                assert_close(samples_of(slice_), factor * protocol.kept_kspace())
                found = slice_.context
                assert (found.repetition, found.contrast, found.slice) == (repetition, contrast, number)
                assert found.is_complete
    assert sorter.finish() == ()


def test_interleaved_slices_and_segments_are_told_apart_and_merged() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    readouts = [
        readout((1 + number) * kspace[:, row], row, slice=number, segment=row % 3, set=number % 2)
        for segment in range(3)
        for number in range(3)
        for row in range(segment, 45, 3)
    ]
    slices = assembled(protocol, readouts)
    assert [slice_.context.slice for slice_ in slices] == [0, 2, 1]  # by set, then slice
    for slice_ in slices:
        assert_close(samples_of(slice_), (1 + slice_.context.slice) * protocol.kept_kspace())


def test_a_last_flag_after_every_shot_closes_nothing_before_the_lines_are_there() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    sorter = assembler(protocol)
    shots = [list(range(shot, 45, 3)) for shot in range(3)]
    first, second, third = (lines_of(kspace, rows, segment=i) for i, rows in enumerate(shots))
    # With two of three shots the flag comes at 67 % of the lines, as in a partial Fourier scan; but it came
    # before, at 33 %, so it ends shots.
    assert [sorter.add(acquisition) for acquisition in first + second + third[:-1]] == [()] * 44
    (slice_,) = sorter.add(third[-1])
    assert slice_.context.is_complete
    assert_close(samples_of(slice_), protocol.kept_kspace())
    assert sorter.finish() == ()


def test_lines_after_a_flag_that_was_believed_are_not_lost() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    sorter = assembler(protocol)
    early, late = lines_of(kspace, list(range(29))), lines_of(kspace, list(range(29, 45)))
    assert [sorter.add(acquisition) for acquisition in early[:-1]] == [()] * 28
    (slice_,) = sorter.add(early[-1])
    assert slice_.context.n_lines == 29
    assert [sorter.add(acquisition) for acquisition in late] == [()] * 16
    (rest,) = sorter.finish()
    assert rest.context.n_lines == 16
    assert not rest.context.is_complete
    assert any("came after their slice had been closed" in note for note in rest.context.notes)


def test_the_last_flag_of_the_measurement_or_repetition_closes_all_full_slices() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    for flag in (Flag.LAST_IN_MEASUREMENT, Flag.LAST_IN_REPETITION):
        sorter = assembler(protocol)
        for number in range(2):
            for row in range(45):
                if (number, row) != (1, 44):
                    assert sorter.add(readout(kspace[:, row], row, slice=number)) == ()
        sorter.add(readout(kspace[:, 0], 0, slice=2))
        done = sorter.add(readout(kspace[:, 44], 44, flag, slice=1))
        assert [slice_.context.slice for slice_ in done] == [0, 1]
        (rest,) = sorter.finish()
        assert rest.context.slice == 2
        assert not rest.context.is_complete


def test_the_first_line_of_a_later_repetition_closes_the_earlier_one_without_any_flag() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    sorter = assembler(protocol)
    for row in range(45):
        assert sorter.add(readout(kspace[:, row], row)) == ()
    (slice_,) = sorter.add(readout(kspace[:, 0], 0, repetition=1))
    assert (slice_.context.repetition, slice_.context.is_complete) == (0, True)


def test_what_is_incomplete_at_the_end_comes_out_and_says_so() -> None:
    protocol = Protocol()
    (slice_,) = assembled(protocol, lines_of(protocol.kspace(), list(range(12))))
    assert not slice_.context.is_complete
    assert "12 of 45 lines measured" in slice_.context.notes
    assert "incomplete: 12 imaging lines where the header announces 45, 1 average(s)" in slice_.context.notes


def test_a_repetition_counter_that_never_moves_still_gives_every_image() -> None:
    protocol = Protocol()
    sorter = assembler(protocol)
    images = [
        slice_
        for factor in (1, 2, 3)
        for acquisition in lines_of(factor * protocol.kspace())
        for slice_ in sorter.add(acquisition)
    ]
    assert len(images) == 3
    for factor, slice_ in zip((1, 2, 3), images, strict=True):
        assert_close(samples_of(slice_), factor * protocol.kept_kspace())


def test_a_stream_without_image_data_gives_nothing() -> None:
    sorter = assembler(Protocol(), AssemblySettings())
    assert sorter.add(noise_readout()) == ()
    assert sorter.finish() == ()
    assert sorter.report() == ("1 noise readouts",)


# Averages


def test_averages_are_combined_as_the_mean_and_close_the_slice_only_together() -> None:
    protocol = Protocol(limits={"kspace_encoding_step_1": (0, 44, 22), "average": (0, 2, 0)})
    kspace = protocol.kspace()
    sorter = assembler(protocol)
    for average, factor in ((0, 1.0), (1, 4.0)):
        for acquisition in lines_of(factor * kspace, average=average):
            assert sorter.add(acquisition) == ()
    results = [sorter.add(acquisition) for acquisition in lines_of(4.0 * kspace, average=2)]
    (slice_,) = results[-1]
    assert_close(samples_of(slice_), 3.0 * protocol.kept_kspace())
    assert slice_.kspace.noise_std == pytest.approx(1 / np.sqrt(3))
    assert slice_.context.n_averages == 3
    assert any("lines measured up to 3 times are averaged (equally often)" in n for n in slice_.context.notes)


def test_the_noise_of_unequal_averages_is_the_root_mean_square_that_is_measured() -> None:
    # No object: 9 of 45 lines measured four times, the others once
    protocol = Protocol(encoded=(40, 45, 1), encoded_fov=(120.0, 135.0, 5.0))
    rng = np.random.default_rng(2)

    def noise() -> np.ndarray:
        return rng.normal(size=(3, 40)) + 1j * rng.normal(size=(3, 40))

    readouts = [readout(noise(), row) for row in range(45)]
    readouts += [readout(noise(), row, average=1 + i) for i in range(3) for row in range(18, 27)]
    (slice_,) = assembled(protocol, readouts)
    measured = np.sqrt(np.mean(samples_of(slice_).real ** 2))
    assert slice_.kspace.noise_std == pytest.approx(measured, rel=0.03)
    assert slice_.kspace.noise_std == pytest.approx(np.sqrt((36 + 9 / 4) / 45))
    assert any("root mean square over the lines" in note for note in slice_.context.notes)


def test_averages_can_be_kept_apart() -> None:
    protocol = Protocol(limits={"kspace_encoding_step_1": (0, 44, 22), "average": (0, 1, 0)})
    settings = AssemblySettings(noise=NoiseSource.PREWHITENED, keep_averages=True)
    readouts = [a for n in range(2) for a in lines_of((1 + n) * protocol.kspace(), average=n)]
    first, second = assembled(protocol, readouts, settings)
    assert (first.context.average, second.context.average) == (0, 1)
    assert_close(samples_of(second), 2 * protocol.kept_kspace())


# Context


def test_image_header_values_come_from_the_line_nearest_to_the_centre() -> None:
    protocol = Protocol()
    kspace = protocol.kspace()
    readouts = [
        readout(
            kspace[:, row],
            row,
            scan_counter=row,
            acquisition_time_stamp=1000 + row,
            physiology_time_stamp=(row, 2, 3),
            position=(row, -5.5, 7.25),
            read_dir=(0.0, 1.0, 0.0),
            phase_dir=(0.0, 0.0, 1.0),
            slice_dir=(1.0, 0.0, 0.0),
            patient_table_position=(0.0, 0.0, -12.5),
            measurement_uid=4_000_000_000,
            user_int=np.arange(8) - 3,
            user_float=np.arange(8) / 2,
            slice=3,
        )
        for row in range(45)
    ]
    # The centre of k-space from a calibration-only readout does not count
    readouts[22] = readout(kspace[:, 22], 22, Flag.IS_PARALLEL_CALIBRATION, slice=3)
    (slice_,) = assembled(protocol, readouts)
    context = slice_.context
    assert context.acquisition_time_stamp == 1021
    assert context.physiology_time_stamp == (21, 2, 3)
    assert context.position == (21.0, -5.5, 7.25)
    assert (context.read_dir, context.phase_dir, context.slice_dir) == (
        (0.0, 1.0, 0.0),
        (0.0, 0.0, 1.0),
        (1.0, 0.0, 0.0),
    )
    assert context.patient_table_position == (0.0, 0.0, -12.5)
    assert context.measurement_uid == 4_000_000_000
    assert context.user_int == tuple(range(-3, 5))
    assert context.user_float == tuple(i / 2 for i in range(8))
    assert context.encoded_matrix == (80, 45, 1)
    assert context.recon_matrix == (40, 45, 1)
    assert context.recon_fov_mm == (120.0, 135.0, 5.0)
    assert (context.protocol_name, context.measurement_id) == ("t1_test", "m_17")
    assert context.label() == "slice 3"
    assert (context.n_lines, context.n_lines_announced, context.n_averages) == (45, 45, 1)


def test_a_2d_scan_whose_header_has_partitions_is_taken_as_slices() -> None:
    protocol = Protocol(encoded=(80, 45, 6), recon=(40, 45, 6), recon_fov=(120.0, 135.0, 30.0))
    (slice_,) = assembled(protocol, lines_of(protocol.kspace(), repetition=2))
    assert slice_.context.recon_matrix == (40, 45, 1)
    assert slice_.context.recon_fov_mm[2] == 5.0
    assert "6 partitions in the header, none encoded: taken as a 2-D slice" in slice_.context.notes
    assert slice_.context.label() == "slice 0, repetition 2"
