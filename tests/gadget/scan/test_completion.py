"""When an image leaves: by the number of lines, by LAST flags, by the next repetition, at the end."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from scan_assembly import UNWHITENED, assembler, assert_close, samples_of
from synthetic_scan import Protocol, lines_of, noise_readout, readout

from gadget.scan.assemble import AssemblySettings, NoiseSource, SliceAssembler
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

LINES = {"kspace_encoding_step_1": (0, 44, 22)}
ONCE = {**LINES, "average": (0, 0, 0)}
FULL = Protocol().kspace()
KEPT = Protocol().kept_kspace()
IMAGING = list(range(0, 45, 2))
REFERENCE = list(range(17, 28))


def unflagged(rows: Iterable[int] = range(45), *flags: Flag, **fields: Any) -> list[Acquisition]:
    return [readout(FULL[:, row], row, *flags, scan_counter=row, **fields) for row in rows]


def left_after(sorter: SliceAssembler, readouts: list[Acquisition]) -> list[tuple[int, int]]:
    """Feed readouts; return, for each image, after which readout it left and of how many lines it is."""
    return [
        (number, one.context.n_lines) for number, a in enumerate(readouts, start=1) for one in sorter.add(a)
    ]


def test_an_image_leaves_with_its_last_announced_line_without_any_flag() -> None:
    sorter = assembler(Protocol(limits=ONCE))
    rng = np.random.default_rng(1)
    # Two slices, with a gap in their numbers, their lines mixed up
    readouts = [*unflagged(slice=3), *unflagged(slice=7)]
    order = rng.permutation(90)
    left = left_after(sorter, [readouts[i] for i in order])
    last = {number: max(np.flatnonzero(order // 45 == number)) + 1 for number in (0, 1)}
    assert left == [(n, 45) for n in sorted(last.values())]
    assert sorter.finish() == ()


def test_partial_fourier_leaves_with_its_last_line_too() -> None:
    sorter = assembler(Protocol(limits={**ONCE, "kspace_encoding_step_1": (0, 29, 12)}))
    assert left_after(sorter, unflagged(range(30))) == [(30, 30)]


def test_every_announced_average_is_waited_for() -> None:
    sorter = assembler(Protocol(limits={**LINES, "average": (0, 2, 0)}))
    readouts = [a for average in range(3) for a in unflagged(average=average)]
    assert left_after(sorter, readouts) == [(135, 45)]


def test_averages_that_the_header_does_not_announce_are_not_lost() -> None:
    sorter = assembler(Protocol(limits=LINES))
    assert left_after(sorter, [*unflagged(), *unflagged(average=1)]) == []
    (slice_,) = sorter.finish()
    assert slice_.context.n_averages == 2


def test_kept_averages_leave_one_by_one() -> None:
    settings = AssemblySettings(noise=NoiseSource.PREWHITENED, keep_averages=True)
    sorter = assembler(Protocol(limits=LINES), settings)
    assert left_after(sorter, [*unflagged(), *unflagged(average=1)]) == [(45, 45), (90, 45)]


def test_noise_readouts_that_are_to_be_used_are_waited_for() -> None:
    # In reverse order the noise comes last: the image has to be whitened with it all the same
    readouts = [noise_readout(2.0), *unflagged()]
    forwards, backwards = (assembler(Protocol(limits=ONCE), AssemblySettings()) for _ in range(2))
    (one,) = [one for a in readouts for one in forwards.add(a)]
    assert left_after(backwards, readouts[::-1]) == []
    (other,) = backwards.finish()
    assert_close(samples_of(other), samples_of(one))
    assert other.context == one.context


def test_a_flag_that_comes_too_early_is_no_reason_to_trust_the_order() -> None:
    readouts = lines_of(FULL)[::-1]
    sorter = assembler(Protocol(limits=ONCE))
    assert left_after(sorter, readouts) == []
    (slice_,) = sorter.finish()
    assert slice_.context.is_complete
    assert_close(samples_of(slice_), KEPT)


# Accelerated scans


def accelerated(mode: str | None, extra: str = "") -> Protocol:
    return Protocol(limits=ONCE, acceleration=2, calibration_mode=mode, extra=extra)


REFERENCE_LINES = (
    "<userParameters><userParameterLong><name>EmbeddedRefLinesE1</name><value>11</value>"
    "</userParameterLong></userParameters>"
)


def test_an_embedded_calibration_of_announced_size_is_waited_for() -> None:
    calibration = unflagged(REFERENCE, Flag.IS_PARALLEL_CALIBRATION)
    imaging = unflagged(IMAGING)
    sorter = assembler(accelerated("embedded", REFERENCE_LINES))
    assert left_after(sorter, [*calibration, *imaging]) == [(34, 29)]
    # Calibration lines close nothing: images may follow them
    sorter = assembler(accelerated("embedded", REFERENCE_LINES))
    assert left_after(sorter, [*imaging, *calibration]) == []
    (slice_,) = sorter.finish()
    assert slice_.context.n_lines == 29


def test_an_embedded_calibration_of_unknown_size_is_waited_for_until_the_end() -> None:
    calibration = unflagged(REFERENCE, Flag.IS_PARALLEL_CALIBRATION)
    sorter = assembler(accelerated("embedded"))
    assert left_after(sorter, [*calibration, *unflagged(IMAGING)]) == []


def test_calibration_lines_that_are_imaging_do_not_stand_for_missing_lines() -> None:
    # 11 + 18 imaging lines are more than the 23 announced ones, but five outer ones are still to come
    both = (Flag.IS_PARALLEL_CALIBRATION, Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING)
    outer = [row for row in IMAGING if row not in REFERENCE]
    sorter = assembler(accelerated("embedded", REFERENCE_LINES))
    readouts = [*unflagged(REFERENCE, *both), *unflagged(outer)]
    assert left_after(sorter, readouts) == [(len(readouts), 29)]


@pytest.mark.parametrize("mode", ["separate", "external", None])
def test_other_accelerated_scans_leave_by_number_only_with_a_calibration(mode: str | None) -> None:
    calibration = unflagged(REFERENCE, Flag.IS_PARALLEL_CALIBRATION, contrast=1)
    sorter = assembler(accelerated(mode))
    assert left_after(sorter, [*calibration, *unflagged(IMAGING)]) == [(34, 23)]
    sorter = assembler(accelerated(mode))
    assert left_after(sorter, unflagged(IMAGING)) == []
    assert len(sorter.finish()) == 1


def test_interleaved_acceleration_needs_no_calibration() -> None:
    sorter = assembler(accelerated("interleaved"))
    readouts = [*unflagged(IMAGING), *unflagged(range(1, 45, 2), repetition=1)]
    assert left_after(sorter, readouts) == [(23, 23), (45, 22)]


def test_calibration_lines_that_imaging_lines_cover_are_counted_in_any_order() -> None:
    calibration = unflagged(REFERENCE, Flag.IS_PARALLEL_CALIBRATION)
    for parts in ((calibration, unflagged(IMAGING)), (unflagged(IMAGING), calibration)):
        sorter = assembler(accelerated("embedded"))
        left_after(sorter, [a for part in parts for a in part])
        sorter.finish()
        covered = "not used: 5 calibration-only readouts of lines that imaging readouts cover"
        assert sorter.report() == ("23 image, 11 calibration-only readouts", covered)


# Later repetitions, late lines


def test_a_later_repetition_closes_what_a_flag_would_have_closed() -> None:
    # 30 of 45 lines, random, in two slices; the first readout of the next repetition closes its own slice
    rows = sorted(np.random.default_rng(3).choice(45, 30, replace=False).tolist())
    sorter = assembler(Protocol(limits=LINES))
    for number in range(2):
        assert left_after(sorter, unflagged(rows, slice=number)) == []
    (slice_,) = sorter.add(unflagged([0], slice=1, repetition=1)[0])
    assert (slice_.context.slice, slice_.context.repetition, slice_.context.n_lines) == (1, 0, 30)


def test_repetitions_that_run_inside_the_lines_are_not_cut_off() -> None:
    sorter = assembler(Protocol(limits=LINES))
    readouts = [unflagged([row], repetition=repetition)[0] for row in range(45) for repetition in range(3)]
    assert left_after(sorter, readouts) == []
    assert [one.context.n_lines for one in sorter.finish()] == [45, 45, 45]


def test_lines_after_the_last_announced_one_make_an_image_of_their_own() -> None:
    sorter = assembler(Protocol(limits={**ONCE, "kspace_encoding_step_1": (0, 39, 22)}))
    assert left_after(sorter, unflagged()) == [(40, 40)]
    (late,) = sorter.finish()
    assert late.context.n_lines == 5
    assert any("came after their slice had been closed" in note for note in late.context.notes)


def test_every_line_is_in_exactly_one_image_whatever_the_order_and_the_flags() -> None:
    # Line numbers up to 44 in three slices and two contrasts, flags anywhere: the sum over all images counts
    rng = np.random.default_rng(9)
    readouts = []
    for number in range(3):
        for contrast in range(2):
            for row in range(45):
                flags = [Flag.LAST_IN_SLICE] * bool(rng.random() < 0.1)
                flags += [Flag.LAST_IN_REPETITION] * bool(rng.random() < 0.05)
                flags += [Flag.LAST_IN_MEASUREMENT] * bool(rng.random() < 0.05)
                readouts += unflagged([row], *flags, slice=number, contrast=contrast)
    for _ in range(4):
        sorter = assembler(Protocol(limits=ONCE), UNWHITENED)
        images = [one for i in rng.permutation(len(readouts)) for one in sorter.add(readouts[i])]
        images += sorter.finish()
        for number in range(3):
            for contrast in range(2):
                parts = [
                    samples_of(one)
                    for one in images
                    if (one.context.slice, one.context.contrast) == (number, contrast)
                ]
                assert_close(np.sum(parts, axis=0), KEPT)
