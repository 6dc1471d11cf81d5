"""Rows, columns and the kept field of view, against numbers written down by hand."""

import re

import pytest
from synthetic_scan import Protocol

from gadget.errors import ScanError
from gadget.scan.header import Encoding, parse_scan_header
from gadget.scan.phase_rows import PhaseRows, expected_lines, partition_rows, phase_rows
from gadget.scan.placement import ReadoutGrid, ReadoutSpan, kept_columns, readout_grid, readout_span


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
        # Reversed: k = 0 at the sample that center_sample names, the 20th of 60 as acquired
        ({"n_samples": 60, "center_sample": 20, "is_reversed": True}, ReadoutSpan(0, 60, 1)),
        # symmetric: the middle, as scanners have it in either direction
        ({"n_samples": 60, "center_sample": 30, "is_reversed": True}, ReadoutSpan(0, 60, 10)),
        # 60 of 80 mirrored about the middle of the matrix: 60 - 40; the 19th after the flip would not fit
        ({"n_samples": 60, "center_sample": 40, "is_reversed": True}, ReadoutSpan(0, 60, 20)),
        # Nothing but the order of k fits
        (
            {"n_samples": 70, "center_sample": 10, "is_reversed": True, "discard_pre": 20},
            ReadoutSpan(
                0,
                50,
                30,
                "center_sample 10 of reversed readouts of 70 samples does not fit the matrix in the order of "
                "acquisition: taken in the order of k",
            ),
        ),
        # Not set
        (
            {"n_samples": 60, "center_sample": 0},
            ReadoutSpan(
                0,
                60,
                10,
                "center_sample 0 of readouts of 60 samples taken as not set: sample 30 taken as the centre",
            ),
        ),
        ({"n_samples": 40, "center_sample": 0}, ReadoutSpan(0, 40, 40)),
        # A full readout with its centre elsewhere
        (
            {"n_samples": 80, "center_sample": 30},
            ReadoutSpan(
                0,
                80,
                0,
                "center_sample 30 of readouts that fill the 80 columns of the matrix cannot be: sample 40 "
                "taken as the centre",
            ),
        ),
        # A fortieth of the matrix sticks out
        (
            {"n_samples": 60, "center_sample": 18},
            ReadoutSpan(
                0,
                58,
                22,
                "readouts of 60 samples with the centre at 18 stick out of the 80 columns of the header: 0 "
                "and 2 samples at the ends cut off",
            ),
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
    assert (rows.note, rows.warning) == (None, None)
    assert rows.announced == range(18, 124)


def test_a_line_outside_the_matrix_has_no_row() -> None:
    rows = PhaseRows(45, 20)
    assert (rows.row(42), rows.row(43), rows.row(0), rows.row(65535)) == (44, None, 2, None)
    assert rows.describe() == (
        "45 rows with line 20 at row 22 hold the lines -2 to 42 of kspace_encode_step_1"
    )


@pytest.mark.parametrize(
    ("header_limits", "center", "words"),
    [
        ({}, 22, "no limits of kspace_encoding_step_1 in the header: line 22 taken as the centre"),
        (limits(0, 0, 0), 22, "no limits of kspace_encoding_step_1"),
        (
            limits(0, 44, 0),
            22,
            "the header's centre 0 of kspace_encoding_step_1 cannot be, as its lines 0 to 44 would leave "
            "the matrix of 45 rows: line 22 taken as the centre",
        ),
        (limits(0, 44, 23), 22, "centre 23 of kspace_encoding_step_1 cannot be"),
        (limits(0, 44, 22), 22, None),
        (limits(3, 47, 25), 25, None),
        (limits(3, 47, 20), 25, "centre 20 .* its lines 3 to 47 would leave the matrix"),
        (limits(0, 30, 8), 8, None),
        # Half of k-space, centre at the end: fits; centre not set in a scan of more than half: cannot be
        (limits(0, 20, 0), 0, None),
        (limits(0, 30, 0), 22, "centre 0 .* its lines 0 to 30 would leave the matrix"),
        (limits(40, 70, 0), 55, "centre 0 .* line 55 taken as the centre"),
        # One line of 45 may stick out: it is left out
        (limits(0, 40, 17), 17, None),
        (limits(0, 40, 16), 22, "centre 16 .* cannot be"),
    ],
)
def test_the_centre_line_where_the_header_is_silent_or_contradicts_itself(
    header_limits: dict[str, tuple[int, int, int]], center: int, words: str | None
) -> None:
    rows = phase_rows(encoding(limits=header_limits))
    assert rows.center == center
    said = rows.note or rows.warning
    assert (said is None) if words is None else (said is not None and re.search(words, said) is not None)


def test_partitions_have_the_rules_of_lines() -> None:
    def partitions(z: int, limit: tuple[int, int, int] | None) -> PhaseRows:
        header_limits = limits(0, 44, 22) | ({"kspace_encoding_step_2": limit} if limit else {})
        return partition_rows(encoding(encoded=(80, 45, z), limits=header_limits))

    # Partial Fourier: 7 of 10 partitions, the centre third
    rows = partitions(10, (0, 6, 2))
    assert [rows.row(i) for i in (0, 2, 6)] == [3, 5, 9]
    assert rows.announced == range(3, 10)
    assert partitions(10, (0, 9, 0)).warning is not None
    silent = partitions(10, None)
    assert silent.center == partitions(10, (0, 0, 0)).center == 5
    assert silent.note == "no limits of kspace_encoding_step_2 in the header: line 5 taken as the centre"
    assert partitions(1, None).note is None
    assert partitions(1, (4, 4, 4)).row(4) == 0


@pytest.mark.parametrize(
    ("n_rows", "header_limits", "acceleration", "expected"),
    [
        (144, limits(0, 105, 54), 3, 36),
        (45, limits(0, 44, 22), 1, 45),
        (45, {}, 2, 23),
        (45, limits(4, 40, 22), 4, 10),
        # One line lies outside the matrix
        (45, limits(0, 40, 17), 1, 40),
    ],
)
def test_the_header_announces_a_number_of_imaging_lines(
    n_rows: int, header_limits: dict[str, tuple[int, int, int]], acceleration: int, expected: int
) -> None:
    scan = encoding(encoded=(80, n_rows, 1), limits=header_limits, acceleration=acceleration)
    assert expected_lines(scan) == expected


def test_a_3d_scan_announces_lines_times_partitions() -> None:
    header_limits = limits(0, 44, 22) | {"kspace_encoding_step_2": (0, 6, 2)}
    scan = encoding(encoded=(80, 45, 10), limits=header_limits, acceleration=2)
    assert expected_lines(scan) == 23 * 7
    assert expected_lines(scan, is_3d=False) == 23


@pytest.mark.parametrize(
    ("encoded", "fov", "recon", "recon_fov", "n_samples", "expected", "words"),
    [
        # Header without oversampling, readouts with: twice the field of view
        (40, 120.0, 40, 120.0, 80, (80, 40, 3.0), "80 samples .* encodes 40 columns: taken as 2 times more"),
        # Four times oversampled where the header says twice
        (80, 240.0, 40, 120.0, 160, (160, 40, 3.0), "2 times more oversampling, over 480 mm"),
        # The field of view is doubled but not the matrix: only so have the pixels the recon matrix's size
        (40, 240.0, 40, 120.0, 80, (80, 40, 3.0), "taken as 80 columns over its 240 mm"),
        # Zero-filled twofold: the pixels of 80 samples over the header's field of view are those of the image
        (40, 120.0, 80, 120.0, 80, (80, 80, 1.5), "taken as 80 columns over its 120 mm"),
        # The matrix is doubled but not the field of view: as written
        (80, 120.0, 40, 120.0, 80, (80, 80, 1.5), "taken as pixels of half the size. If this is readout"),
        (80, 240.0, 40, 120.0, 80, (80, 40, 3.0), None),
        (40, 120.0, 40, 120.0, 40, (40, 40, 3.0), None),
        (81, 243.0, 40, 120.0, 81, (81, 40, 3.0), None),
    ],
)
def test_oversampling_in_every_form_that_headers_have(
    encoded: int,
    fov: float,
    recon: int,
    recon_fov: float,
    n_samples: int,
    expected: tuple[int, int, float],
    words: str | None,
) -> None:
    scan = encoding(
        encoded=(encoded, 45, 1),
        encoded_fov=(fov, 135.0, 5.0),
        recon=(recon, 45, 1),
        recon_fov=(recon_fov, 135.0, 5.0),
    )
    grid = readout_grid(scan, n_samples, n_samples // 2)
    assert (grid.n_columns, grid.n_kept, grid.pixel_mm) == expected
    assert (grid.warning is None) == (words is None)
    assert words is None or re.search(words, str(grid.warning))
