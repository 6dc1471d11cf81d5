"""Frames of a series that goes on."""

import pytest

from reconlib.trajectories.sliding_window import SlidingWindow


def frames_of(n_readouts: int, length: int, step: int) -> list[range]:
    """The numbers of the readouts of each complete frame of a finished series."""
    window: SlidingWindow[int] = SlidingWindow(length, step)
    frames = [frame for number in range(n_readouts) if (frame := window.add(number)) is not None]
    return [range(frame.first, frame.first + length) for frame in frames]


def test_the_first_frame_comes_with_the_last_of_its_readouts():
    window = SlidingWindow(length=5, step=2)

    frames = [window.add(number) for number in range(10)]

    assert [number for number, frame in enumerate(frames) if frame is not None] == [4, 6, 8]
    assert [frame.readouts for frame in frames if frame is not None] == [
        (0, 1, 2, 3, 4),
        (2, 3, 4, 5, 6),
        (4, 5, 6, 7, 8),
    ]
    assert [frame.index for frame in frames if frame is not None] == [0, 1, 2]
    assert [frame.first for frame in frames if frame is not None] == [0, 2, 4]


@pytest.mark.parametrize(
    ("length", "step", "expected"),
    [
        (4, 4, [range(0, 4), range(4, 8), range(8, 12)]),
        (3, 5, [range(0, 3), range(5, 8), range(10, 13)]),
        (6, 3, [range(0, 6), range(3, 9), range(6, 12)]),
        (1, 6, [range(0, 1), range(6, 7), range(12, 13)]),
        (14, 1, []),
    ],
)
def test_a_frame_is_a_step_after_the_one_before(length, step, expected):
    assert frames_of(13, length, step) == expected


@pytest.mark.parametrize(
    ("n_readouts", "length", "step", "rest"),
    [
        (3, 5, 2, (0, 1, 2)),
        (5, 5, 2, ()),
        (6, 5, 2, (5,)),
        (7, 3, 5, (5, 6)),
        (4, 3, 5, ()),
        (5, 3, 5, ()),
        (11, 4, 4, (8, 9, 10)),
    ],
)
def test_readouts_that_no_frame_has_are_said(n_readouts, length, step, rest):
    window = SlidingWindow(length, step)
    for number in range(n_readouts):
        window.add(number)

    assert window.rest() == rest
    assert window.n_unused == len(rest)
    assert window.n_readouts == n_readouts


def test_an_empty_window_is_refused():
    with pytest.raises(ValueError, match="A window of 0 readouts that moves on by 1 makes no frames"):
        SlidingWindow(0, 1)
