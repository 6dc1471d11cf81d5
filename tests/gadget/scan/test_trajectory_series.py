"""Real-time series: a window of readouts slides over the stream, whatever the counters say."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from trajectory_protocol import LARGER, UNWHITENED, changed, readouts, recorded, sorter_of

from gadget.errors import ScanError
from gadget.scan.assemble import AssemblySettings
from gadget.scan.trajectory import TooFewReadouts
from gadget.scan.trajectory_choice import TrajectoryChoice
from reconlib.simulation.nonuniform_settings import NonuniformSettings

GOLDEN = NonuniformSettings(n_readouts=40, order="golden")
SCAN = recorded(GOLDEN)


def window(length: int, step: int | None = None, **others) -> AssemblySettings:
    choice = TrajectoryChoice(window=length, window_step=step, delay_correction=False, **others)
    return replace(UNWHITENED, trajectory=choice)


def frames(lines, settings):
    """Return (number of the readout, frame) of each frame, and the assembler."""
    sorter = sorter_of(SCAN, settings)
    found = [(number, one) for number, line in enumerate(lines, start=1) for one in sorter.add(line)]
    assert sorter.finish() == ()
    return found, sorter


def test_a_frame_comes_with_its_last_readout():
    found, sorter = frames(readouts(SCAN), window(15))
    assert [(number, one.context.repetition, one.context.n_lines) for number, one in found] == [
        (15, 0, 15),
        (30, 1, 15),
    ]
    assert "not used: 10 readouts after the last whole frame of a series" in sorter.report()
    assert "frame 1 of a real-time series: readouts 15 to 29" in found[1][1].context.notes
    assert all(one.context.is_complete for _, one in found)
    assert found[0][1].series == found[1][1].series is not None


def test_a_window_slides_by_its_step():
    found, sorter = frames(readouts(SCAN), window(15, 5))
    assert [number for number, _ in found] == [15, 20, 25, 30, 35, 40]
    assert not any("not used" in line for line in sorter.report())
    n_samples = SCAN.points.shape[1]
    for _, one in found:
        first = 5 * one.context.repetition
        expected = np.sqrt(2 / LARGER) * SCAN.samples[0][:, first : first + 15].reshape(3, 15 * n_samples)
        np.testing.assert_allclose(one.kspace.samples[0].numpy(), expected, rtol=1e-6, atol=1e-6)


def test_repetitions_averages_and_flags_make_no_difference():
    lines = [changed(one, repetition=row // 8, average=row % 3) for row, one in enumerate(readouts(SCAN))]

    found, _ = frames(lines, window(15))

    plain, _ = frames(readouts(SCAN), window(15))
    assert [number for number, _ in found] == [15, 30]
    for (_, one), (_, other) in zip(found, plain, strict=True):
        assert one.context.repetition == other.context.repetition
        assert torch.equal(one.kspace.trajectory.sort(1).values, other.kspace.trajectory.sort(1).values)


def test_slices_have_series_of_their_own():
    lines = [changed(one, slice=row % 2) for row, one in enumerate(readouts(SCAN))]
    found, _ = frames(lines, window(15))
    assert [(number, one.context.slice, one.context.repetition) for number, one in found] == [
        (29, 0, 0),
        (30, 1, 0),
    ]
    assert found[0][1].series != found[1][1].series


def test_a_series_shorter_than_its_window_is_one_frame_and_says_so():
    sorter = sorter_of(SCAN, window(50))
    assert not any(sorter.add(line) for line in readouts(SCAN))
    (one,) = sorter.finish()
    assert (one.context.n_lines, one.context.is_complete) == (40, False)
    assert "incomplete: 40 readouts where the header announces 50" in one.context.notes


def test_coils_without_data_are_told_apart_frame_by_frame():
    lines = readouts(SCAN)
    broken = lines[18].data.copy()
    broken[1] = np.nan
    lines[18] = replace(lines[18], data=broken)

    found, _ = frames(lines, window(10, 5))

    assert [one.context.n_coils for _, one in found] == [3, 3, 2, 2, 3, 3, 3]


def test_a_window_of_too_few_readouts_is_refused():
    with pytest.raises(TooFewReadouts, match=r"1 readout\(s\) touch .* A frame has 1 readouts: trajectory"):
        frames(readouts(SCAN), window(1))


def test_a_faulty_readout_is_refused_when_it_comes():
    sorter = sorter_of(SCAN, window(15))
    lines = readouts(SCAN)
    sorter.add(lines[0])
    damaged = lines[1].data.copy()
    damaged[0, 3] = np.nan
    with pytest.raises(ScanError, match=r"holds \d NaN or infinite numbers"):
        sorter.add(replace(lines[1], data=damaged))


def test_a_window_that_memory_cannot_hold_is_refused():
    with pytest.raises(ScanError, match="a window of 15 readouts does not fit in the memory that is left"):
        frames(readouts(SCAN), replace(window(15), max_open_bytes=10_000))


def test_cartesian_scans_have_no_frames():
    from scan_assembly import assembled
    from synthetic_scan import Protocol, lines_of

    (one,) = assembled(Protocol(), lines_of(Protocol().kspace()), window(15))
    assert one.series is None
    assert one.context.n_lines == 45
