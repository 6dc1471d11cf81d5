"""When a radial or spiral slice is complete, and what is refused."""

import re
from dataclasses import replace

import numpy as np
import pytest
from trajectory_protocol import (
    LAST_FLAGS,
    RADIAL,
    SPIRAL,
    UNWHITENED,
    assembled,
    changed,
    readouts,
    recorded,
    sorter_of,
    unflagged,
)

from gadget.errors import ScanError
from gadget.scan.assemble import AssemblySettings
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

SCAN = recorded(SPIRAL)
N = 12
"""Its interleaves."""


def without_limits(xml: str) -> str:
    return re.sub(r"<encodingLimits>.*</encodingLimits>", "<encodingLimits/>", xml, flags=re.DOTALL)


def averages(n: int):
    """A change of the header that announces so many averages."""
    announced = f"<average><minimum>0</minimum><maximum>{n - 1}</maximum>"
    return lambda xml: re.sub(r"<average>\s*<minimum>0</minimum>\s*<maximum>0</maximum>", announced, xml)


def emissions(acquisitions, settings=UNWHITENED, change=lambda xml: xml):
    """Return (readout by readout) how many readouts the images have that are complete with it."""
    sorter = sorter_of(SCAN, settings, change)
    found = [
        (number, one.context.n_lines)
        for number, readout in enumerate(acquisitions, start=1)
        for one in sorter.add(readout)
    ]
    return found, [(one.context.n_lines, one.context.is_complete) for one in sorter.finish()]


def test_the_last_announced_readout_closes_a_slice_without_flags() -> None:
    lines = unflagged(SCAN)
    assert emissions([*lines, *(changed(one, slice=1) for one in lines)]) == ([(N, N), (2 * N, N)], [])


def test_not_while_noise_may_follow() -> None:
    assert emissions(unflagged(SCAN), AssemblySettings()) == ([], [(N, True)])


def test_a_last_flag_closes_a_slice_that_has_most_readouts() -> None:
    lines = unflagged(SCAN)[:8]
    assert emissions([*lines[:-1], changed(lines[-1], Flag.LAST_IN_SLICE)]) == ([(8, 8)], [])


def test_flags_after_each_shot_close_nothing_early() -> None:
    lines = [changed(one, Flag.LAST_IN_SLICE) for one in unflagged(SCAN)]
    assert emissions(lines) == ([(N, N)], [])


def test_without_limits_a_flag_closes_what_there_is() -> None:
    assert emissions(readouts(SCAN), change=without_limits) == ([(N, N)], [])
    assert emissions(unflagged(SCAN), change=without_limits) == ([], [(N, True)])


def test_a_later_repetition_closes_the_earlier_one() -> None:
    lines = unflagged(SCAN)
    stream = [*lines[:9], *(changed(one, repetition=1) for one in lines)]
    assert emissions(stream) == ([(10, 9), (21, 12)], [])


def test_the_end_of_the_stream_closes_the_rest_and_says_so() -> None:
    (one,) = assembled(SCAN, unflagged(SCAN)[:6])
    assert not one.context.is_complete
    assert "incomplete: 6 readouts where the header announces 12" in one.context.notes


def test_averages_are_awaited_and_are_data_alike() -> None:
    lines = readouts(SCAN)
    stream = [*lines, *(changed(one, average=1) for one in lines)]

    found, rest = emissions(stream, change=averages(2))

    assert (found, rest) == ([(2 * N, 2 * N)], [])
    (one,) = assembled(SCAN, stream, change=averages(2))
    assert one.context.n_averages == 2
    # Each point came twice: each stands for half the area.
    (single,) = assembled(SCAN)
    assert float(one.kspace.weights.mean()) == pytest.approx(float(single.kspace.weights.mean()) / 2, rel=0.1)


def test_averages_may_be_kept_apart() -> None:
    lines = readouts(SCAN)
    stream = [*lines, *(changed(one, average=1) for one in lines)]
    settings = replace(UNWHITENED, keep_averages=True)
    assert emissions(stream, settings, averages(2)) == ([(N, N), (2 * N, N)], [])


def test_readouts_after_their_slice_make_an_image_of_their_own() -> None:
    first, late = assembled(SCAN, [*readouts(SCAN), *unflagged(SCAN)[:6]])
    assert first.context.n_lines == N
    assert any("came after their slice had been closed" in note for note in late.context.notes)


def test_too_few_readouts_at_the_end_are_reported_where_there_were_images() -> None:
    scan = recorded(RADIAL)
    lines = [changed(one, without=LAST_FLAGS) for one in readouts(scan)]
    sorter = sorter_of(scan)
    found = [one for readout in [*lines, changed(lines[0], repetition=1)] for one in sorter.add(readout)]
    found += sorter.finish()
    assert [one.context.n_lines for one in found] == [64]
    assert "not used: 1 readouts at the end, too few for an image" in sorter.report()


def test_too_few_readouts_are_refused_where_there_were_none() -> None:
    scan = recorded(RADIAL)
    with pytest.raises(ScanError, match=r"1 readout\(s\) touch .* % of the k-space of 36 x 40 pixels"):
        assembled(scan, readouts(scan)[:1])


def with_trajectory(readout: Acquisition, points: np.ndarray) -> Acquisition:
    readout = changed(readout, trajectory_dimensions=points.shape[1])
    return replace(readout, trajectory=points.astype(np.float32))


def spoilt(number: int, value: float):
    def change(lines: list[Acquisition]) -> list[Acquisition]:
        points = lines[number].trajectory.copy()
        points[5, 1] = value
        return [*lines[:number], with_trajectory(lines[number], points), *lines[number + 1 :]]

    return change


def in_columns(*columns: int):
    def change(lines: list[Acquisition]) -> list[Acquisition]:
        return [with_trajectory(one, one.trajectory[:, list(columns)]) for one in lines]

    return change


def kooshball(lines: list[Acquisition]) -> list[Acquisition]:
    height = np.linspace(-0.5, 0.5, len(lines[0].trajectory))[:, None]
    return [with_trajectory(one, np.concatenate([one.trajectory, height], axis=1)) for one in lines]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            spoilt(3, np.nan),
            r"has NaN or infinite values in 1 of 12 readouts, first in readout 3\.",
        ),
        (spoilt(3, np.inf), r"NaN or infinite values in 1 of 12 readouts"),
        (spoilt(3, 0.7), r"fits no units|goes beyond the edge"),
        (in_columns(0), r"The trajectory has 1 dimension\(s\); needed are 2"),
        (in_columns(0, 1, 0, 0, 0), r"The trajectory has 5 dimension\(s\)"),
        (kooshball, r"a three-dimensional trajectory \(kooshball, cones, ...\), which is not supported"),
        (
            lambda lines: [*lines[:4], replace(lines[4], trajectory=lines[4].trajectory[:-3]), *lines[5:]],
            r"Readout 4 has \d+ samples, but \d+ points of its trajectory",
        ),
        (
            lambda lines: [
                *lines[:4],
                replace(lines[4], data=lines[4].data[:, :-3], trajectory=lines[4].trajectory[:-3]),
                *lines[5:],
            ],
            r"Readout 4 has \d+ samples, and others of its slice have \d+",
        ),
        (
            lambda lines: [with_trajectory(one, one.trajectory[:, :0]) for one in lines],
            r"have no trajectory, and encoding\[0\] is 'spiral': only plain radial trajectories",
        ),
        (
            lambda lines: [*lines[:4], changed(lines[4], sample_time_us=2.5), *lines[5:]],
            r"slice 0: its readouts have dwell times from 2.5 to 5 us, which is not supported",
        ),
    ],
    ids=[
        "NaN",
        "infinite",
        "far out",
        "one column",
        "five columns",
        "kooshball",
        "points",
        "samples",
        "none",
        "dwell",
    ],
)
def test_faulty_readouts_are_refused_by_name(change, message) -> None:
    with pytest.raises(ScanError, match=message):
        assembled(SCAN, change(readouts(SCAN)))


def test_a_readout_of_other_coils_is_refused_at_once() -> None:
    lines = readouts(SCAN)
    sorter = sorter_of(SCAN)
    sorter.add(lines[0])
    with pytest.raises(ScanError, match="has 2 coils, but earlier readouts have 3"):
        sorter.add(replace(changed(lines[1], active_channels=2), data=lines[1].data[:2]))


def test_slices_beyond_the_memory_limit_are_refused() -> None:
    settings = replace(UNWHITENED, max_open_bytes=30_000)
    with pytest.raises(ScanError, match=r"its slice holds \d readouts, and no more memory is left"):
        assembled(SCAN, settings=settings)


def test_what_readouts_hold_is_copied() -> None:
    lines = readouts(SCAN)
    (expected,) = assembled(SCAN, lines)
    sorter = sorter_of(SCAN)
    for one in lines[:-1]:
        shared = replace(one, data=one.data.copy(), trajectory=one.trajectory.copy())
        sorter.add(shared)
        shared.data[:] = np.nan
        shared.trajectory[:] = np.nan
    (found,) = sorter.add(lines[-1])
    assert np.array_equal(found.kspace.samples.numpy(), expected.kspace.samples.numpy())


def test_a_cartesian_encoding_with_trajectories_stays_cartesian() -> None:
    from synthetic_scan import Protocol, lines_of

    protocol = Protocol()
    lines = lines_of(protocol.kspace())
    points = np.random.default_rng(1).uniform(-0.5, 0.5, (80, 2))
    from scan_assembly import assembled as cartesian

    (plain,) = cartesian(protocol, lines)
    (found,) = cartesian(protocol, [with_trajectory(one, points) for one in lines])
    assert np.array_equal(found.kspace.samples.numpy(), plain.kspace.samples.numpy())
    assert np.array_equal(found.kspace.mask.numpy(), plain.kspace.mask.numpy())
