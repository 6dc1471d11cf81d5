"""Twin scans: loop counters, several encodings, calibration."""

from collections.abc import Callable
from dataclasses import replace

from synthetic_scan import Protocol
from twin_scans import (
    DOUBLE,
    FULL,
    NY,
    OBJECT,
    OVERSAMPLED,
    THICKNESS,
    WIDE,
    Expected,
    Twin,
    brightened,
    kspace_of,
    protocol,
    rows_of,
    twin,
)

from gadget.wire.headers import AcquisitionFlag as Flag


def counted(name: str, n: int = 2) -> Callable[[], Twin]:
    """Several images, their lines interleaved."""
    numbers = range(n)

    def make() -> Twin:
        blobs = {number: brightened(1 + 0.5 * place) for place, number in enumerate(numbers)}
        kspaces = {number: kspace_of(blobs[number], *WIDE) for number in numbers}
        readouts = [
            one
            for row in range(NY)
            for number in numbers
            for one in rows_of(kspaces[number], [row], **{name: number})
        ]
        images = tuple(Expected(blobs=blobs[number], counters={name: number}) for number in numbers)
        return twin(readouts, OVERSAMPLED, images=images)

    return make


def slices_with_gaps() -> Twin:
    """Slices 0 to 4 with 40 % gaps, excited as 1, 3, 0, 2, 4, line by line, without any flag."""
    order, step = (1, 3, 0, 2, 4), 1.4 * THICKNESS
    blobs = {number: brightened(1 + 0.25 * number) for number in order}
    kspaces = {number: kspace_of(blobs[number], *WIDE) for number in order}
    readouts = [
        one
        for row in range(NY)
        for number in order
        for one in rows_of(kspaces[number], [row], slice=number, position=(10.0, -20.0, 30 + step * number))
    ]
    images = tuple(
        Expected(blobs=blobs[number], counters={"slice": number}, moved_mm=step * number)
        for number in sorted(order)
    )
    return twin(readouts, OVERSAMPLED, images=images)


def repetitions_without_flags() -> Twin:
    first, second = brightened(1.0), brightened(1.5)
    readouts = [
        *rows_of(kspace_of(first, *WIDE), repetition=0),
        *rows_of(kspace_of(second, *WIDE), repetition=1),
    ]
    images = (Expected(blobs=first), Expected(blobs=second, counters={"repetition": 1}))
    return twin(readouts, OVERSAMPLED, images=images)


def averages_combined() -> Twin:
    """Averages whose mean is the object: 0.5 and 1.5 times it."""
    readouts = [
        *rows_of(0.5 * DOUBLE, average=0),
        *rows_of(1.5 * DOUBLE, average=1),
    ]
    return twin(readouts, replace(OVERSAMPLED, limits={**OVERSAMPLED.limits, "average": (0, 1, 0)}))


def averages_kept() -> Twin:
    made = counted("average")()
    return replace(made, settings={"scan__keep_averages": True})


def unequal_dwell_times() -> Twin:
    """Readouts of 5 us and 20 us: their mean is 1/5 of 3 and 4/5 of 1/2 times the object."""
    return twin(
        [
            *rows_of(3.0 * DOUBLE, average=0, sample_time_us=5.0),
            *rows_of(0.5 * DOUBLE, average=1, sample_time_us=20.0),
        ],
        replace(OVERSAMPLED, limits={**OVERSAMPLED.limits, "average": (0, 1, 0)}),
    )


def segments() -> Twin:
    """Three shots, each with its LAST_IN_SEGMENT and even LAST_IN_SLICE."""
    readouts = [
        one
        for shot in range(3)
        for one in rows_of(
            DOUBLE,
            range(shot, NY, 3),
            segment=shot,
            flags=lambda row: (Flag.LAST_IN_SEGMENT, Flag.LAST_IN_SLICE) if row >= NY - 3 else (),
        )
    ]
    return twin(readouts, OVERSAMPLED)


def encoding_of(scan: Protocol) -> str:
    text = scan.xml()
    return text[text.index("<encoding>") : text.index("</encoding>") + len("</encoding>")]


SMALL_MATRIX, SMALL_FOV = (16, 13), (136.0, 143.0)
SMALL = protocol(
    encoded=(*SMALL_MATRIX, 1),
    encoded_fov=(*SMALL_FOV, THICKNESS),
    recon=(*SMALL_MATRIX, 1),
    recon_fov=(*SMALL_FOV, THICKNESS),
    limits={"kspace_encoding_step_1": (0, 12, 6)},
)


def several_encodings() -> Twin:
    """The second encoding is the one that is oversampled; both give the same image."""
    text = protocol(extra=encoding_of(OVERSAMPLED)).xml()
    readouts = [*rows_of(FULL), *rows_of(DOUBLE, encoding_space_ref=1)]
    return twin(readouts, text, images=(Expected(), Expected()))


# Calibration


def embedded(center: range = range(5, 16)) -> Callable[[], Twin]:
    """Every second line, and the lines between as calibration only; image lines among them are both."""

    def flags(row: int) -> tuple[Flag, ...]:
        if row % 2:
            return (Flag.IS_PARALLEL_CALIBRATION,)
        return (Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING,) if row in center else ()

    lines = [row for row in range(NY) if row % 2 == 0 or row in center]
    scan = replace(OVERSAMPLED, acceleration=2, calibration_mode="embedded")
    return lambda: twin(rows_of(DOUBLE, lines, flags=flags), scan)


def no_calibration() -> Twin:
    lines = sorted({*range(0, NY, 2), *range(8, 13)})
    return twin(rows_of(DOUBLE, lines), replace(OVERSAMPLED, acceleration=2, calibration_mode="other"))


def separate(lines: range, **fields: int) -> Callable[[], Twin]:
    """A calibration of another matrix, encoding and contrast, five times as bright."""

    def make() -> Twin:
        scan = replace(OVERSAMPLED, acceleration=lines.step, calibration_mode="separate")
        text = scan.xml().replace("</encoding>", f"</encoding>{encoding_of(SMALL)}", 1)
        calibration = rows_of(
            5 * kspace_of(OBJECT, SMALL_MATRIX, SMALL_FOV),
            flags=lambda _row: (Flag.IS_PARALLEL_CALIBRATION,),
            encoding_space_ref=1,
            **fields,
        )
        return twin([*calibration, *rows_of(DOUBLE, lines)], text)

    return make


def separate_of_another_contrast() -> Twin:
    """The same encoding, but another contrast: five times as bright, and never image data."""
    calibration = rows_of(
        5 * DOUBLE, range(4, 17), flags=lambda _row: (Flag.IS_PARALLEL_CALIBRATION,), contrast=1
    )
    return twin([*calibration, *rows_of(DOUBLE)], replace(OVERSAMPLED, calibration_mode="separate"))
