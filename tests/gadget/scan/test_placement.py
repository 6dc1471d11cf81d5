"""Rows, columns and the kept field of view, against numbers written down by hand."""

import pytest
from synthetic_scan import Protocol

from gadget.errors import ScanError
from gadget.scan.header import Encoding, parse_scan_header
from gadget.scan.placement import (
    PhaseRows,
    ReadoutGrid,
    ReadoutSpan,
    expected_lines,
    kept_columns,
    phase_rows,
    readout_grid,
    readout_span,
)


def encoding(**changes: object) -> Encoding:
    return parse_scan_header(Protocol(**changes).xml()).encodings[0]  # type: ignore[arg-type]


def limits(low: int, high: int, center: int) -> dict[str, tuple[int, int, int]]:
    return {"kspace_encoding_step_1": (low, high, center)}


@pytest.mark.parametrize(
    ("encoded", "fov", "recon_fov", "expected"),
    [
        (384, 560.0, 280.0, 192),
        (81, 240.0, 120.0, 40),
        (96, 300.0, 100.0, 32),
        (64, 200.0, 200.0, 64),
        (64, 200.0, 260.0, 64),
        (100, 300.0, 200.0, 67),
    ],
)
def test_the_reconstructed_field_of_view_says_how_many_columns_are_kept(
    encoded: int, fov: float, recon_fov: float, expected: int
) -> None:
    space = encoding(
        encoded=(encoded, 45, 1), encoded_fov=(fov, 135.0, 5.0), recon_fov=(recon_fov, 135.0, 5.0)
    )
    assert kept_columns(space) == expected


@pytest.mark.parametrize(
    ("n_samples", "center", "removed_upstream"),
    [
        (80, 40, False),
        (40, 20, True),  # halved upstream, the centre too
        (40, 40, True),  # the centre as it was before
        (40, 0, True),  # the centre never set
        (40, 8, False),  # an asymmetric echo that happens to have as many samples
        (60, 20, False),
    ],
)
def test_oversampling_that_was_removed_upstream_is_recognised(
    n_samples: int, center: int, removed_upstream: bool
) -> None:
    grid = readout_grid(encoding(), n_samples, center)
    assert grid.removed_upstream is removed_upstream
    assert grid.n_columns == (40 if removed_upstream else 80)
    assert grid.n_kept == 40
    assert grid.pixel_mm == 3.0


GRID = ReadoutGrid(n_columns=80, n_kept=40, pixel_mm=3.0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"n_samples": 80, "center_sample": 40}, ReadoutSpan(0, 80, 0)),
        ({"n_samples": 80, "center_sample": 0}, ReadoutSpan(0, 80, 0)),
        # 60 samples, k = 0 at the 20th: its column is 40, so the first sample lies in column 20
        ({"n_samples": 60, "center_sample": 20}, ReadoutSpan(0, 60, 20)),
        ({"n_samples": 60, "center_sample": 40}, ReadoutSpan(0, 60, 0)),
        (
            {"n_samples": 90, "center_sample": 50, "discard_pre": 10},
            ReadoutSpan(10, 90, 0),
        ),
        (
            {"n_samples": 80, "center_sample": 40, "discard_pre": 3, "discard_post": 5},
            ReadoutSpan(3, 75, 3),
        ),
        # Reversed: what was acquired first comes last in the order of k
        (
            {"n_samples": 80, "center_sample": 40, "discard_pre": 3, "discard_post": 5, "is_reversed": True},
            ReadoutSpan(5, 77, 5),
        ),
    ],
)
def test_samples_are_placed_by_their_centre(arguments: dict[str, int], expected: ReadoutSpan) -> None:
    assert readout_span(GRID, **arguments) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"n_samples": 60, "center_sample": 10},
            r"X has 60 samples with the centre at sample 10, which do not fit the 80 columns of the encoded "
            r"matrix with the centre at 40",
        ),
        ({"n_samples": 96, "center_sample": 48}, "X has 96 samples .* do not fit the 80 columns"),
        ({"n_samples": 50, "center_sample": 50}, "X has center_sample 50 of 50 samples; the centre"),
        (
            {"n_samples": 8, "center_sample": 4, "discard_pre": 6, "discard_post": 2},
            "X has 8 samples, of which discard_pre 6 and discard_post 2 leave none",
        ),
    ],
)
def test_samples_that_do_not_fit_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ScanError, match=message):
        readout_span(GRID, name="X", **arguments)  # type: ignore[arg-type]


def test_the_centre_line_of_the_header_goes_to_the_middle_row() -> None:
    # The measured Skyra scan: 106 of 144 lines, centre 54
    rows = phase_rows(encoding(encoded=(80, 144, 1), limits=limits(0, 105, 54)))
    assert rows.row(54) == 72
    assert rows.row(0) == 18
    assert rows.row(105) == 123
    assert rows.note is None


def test_a_line_outside_the_matrix_is_refused_with_line_matrix_and_centre() -> None:
    rows = PhaseRows(45, 20)
    assert rows.row(42) == 44
    with pytest.raises(
        ScanError,
        match=r"X has kspace_encode_step_1 43, which lies outside the matrix: 45 rows with line 20 at row 22 "
        r"hold the lines -2 to 42",
    ):
        rows.row(43, "X")


@pytest.mark.parametrize(
    ("header_limits", "center", "note"),
    [
        ({}, 22, "no limits of kspace_encoding_step_1 in the header: line 22 taken as the centre"),
        (limits(0, 0, 0), 22, "no limits of kspace_encoding_step_1"),
        (limits(0, 44, 0), 22, "the header's centre line 0 cannot be, as its 45 lines fill the matrix"),
        (limits(0, 44, 23), 22, "centre line 23 cannot be"),
        (limits(0, 44, 22), 22, None),
        (limits(0, 30, 8), 8, None),
    ],
)
def test_the_centre_line_where_the_header_is_silent_or_contradicts_itself(
    header_limits: dict[str, tuple[int, int, int]], center: int, note: str | None
) -> None:
    rows = phase_rows(encoding(limits=header_limits))
    assert rows.center == center
    assert (rows.note is None) if note is None else (rows.note is not None and note in rows.note)


@pytest.mark.parametrize(
    ("header_limits", "acceleration", "expected"),
    [(limits(0, 105, 54), 3, 36), (limits(0, 44, 22), 1, 45), ({}, 2, 23), (limits(4, 40, 22), 4, 10)],
)
def test_the_header_announces_a_number_of_imaging_lines(
    header_limits: dict[str, tuple[int, int, int]], acceleration: int, expected: int
) -> None:
    assert expected_lines(encoding(limits=header_limits, acceleration=acceleration)) == expected
