"""An inspection as text for a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from gadget.counted import counted
from gadget.inspection.content import (
    EncodingContent,
    ExpectedImages,
    Inspection,
    Loop,
    Pattern,
    SliceGeometry,
    Vector,
)
from gadget.inspection.sampling import LEGEND

WIDTH = 96
"""Letters of a line of a sampling picture."""
MAX_ROWS, MAX_PARTITIONS = 5 * WIDTH, 48
"""Larger pictures show blocks of rows or partitions, one letter per block."""
MIXED = "+"
MOST_LINES = 12
"""Entries of a list that are printed; the JSON has all of them."""


def as_text(inspection: Inspection) -> str:
    """Return everything that was found, in sections; what cannot be printed becomes a blank."""
    lines: list[str] = []
    for title, section in (
        ("", _overview(inspection)),
        ("what is wrong", _bullets(inspection.faults)),
        ("patient", _patient(inspection)),
        ("system", _system(inspection)),
        *((f"encoding {one.index}", _encoding(one)) for one in inspection.encodings),
        ("readouts", _readouts(inspection)),
        ("sampling", _sampling(inspection.sampling)),
        ("coils", _coils(inspection)),
        ("trajectory", _trajectory(inspection)),
        ("waveforms", _waveforms(inspection)),
        ("geometry", _geometry(inspection.geometry)),
        ("times", _times(inspection)),
        ("what replay would do with it, by default", _outcome(inspection)),
    ):
        content = list(section)
        if content:
            lines += ["", title] if title else []
            lines += [f"  {line}" if title else line for line in content]
    return "\n".join("".join(c if c.isprintable() else " " for c in line).rstrip() for line in lines)


def _overview(inspection: Inspection) -> Iterator[str]:
    yield f"{inspection.file}: {_bytes(inspection.n_bytes)}"
    rows = [(group.name, group.kind, group.holds) for group in inspection.groups]
    for line, group in zip(_table(rows), inspection.groups, strict=True):
        yield f"{'->' if group.name == inspection.group else '  '} {line}"
    others = [one.name for one in inspection.groups if one.kind == "scan" and one.name != inspection.group]
    if others:
        yield f"   Only {inspection.group} is described; another scan with --group: {', '.join(others)}"


def _patient(inspection: Inspection) -> Iterator[str]:
    for section, texts in (inspection.patient or {}).items():
        yield f"{section}:"
        for name, text in texts.items():
            yield f"  {name}: {text}"


def _system(inspection: Inspection) -> Iterator[str]:
    system = inspection.system
    if system is None:
        return
    field = None if system.field_strength_t is None else f"{system.field_strength_t:g} T"
    n_channels = system.receiver_channels
    channels = None if n_channels is None else counted(n_channels, "receiver channel")
    scanner = [text for text in (system.vendor, system.model, field, channels) if text]
    yield ", ".join(scanner) if scanner else "not named"
    protocol = [f"protocol {system.protocol_name}"] if system.protocol_name else []
    protocol += [f"sequence {system.sequence_name}"] if system.sequence_name else []
    protocol += [f"patient position {system.patient_position}"] if system.patient_position else []
    for name, values in (("TE", system.echo_times_ms), ("TR", system.repetition_times_ms)):
        protocol += [f"{name} {', '.join(f'{value:g}' for value in values)} ms"] if values else []
    if protocol:
        yield ", ".join(protocol)
    if system.relative_receiver_noise_bandwidth is not None:
        yield f"relative receiver noise bandwidth {system.relative_receiver_noise_bandwidth:g}"
    if system.depends_on:
        yield f"refers to earlier measurements: {', '.join(system.depends_on)}"


def _encoding(encoding: EncodingContent) -> Iterator[str]:
    if encoding.trajectory is None:
        yield "not in the header"
    else:
        kind = [encoding.trajectory]
        if encoding.acceleration is not None:
            kind.append("acceleration " + " x ".join(str(factor) for factor in encoding.acceleration))
        kind.append(f"calibration {encoding.calibration_mode or 'not given'}")
        if encoding.multiband_factor not in (None, 1):
            kind.append(f"multiband {encoding.multiband_factor}")
        if encoding.echo_train_length is not None:
            kind.append(f"echo train {encoding.echo_train_length}")
        yield ", ".join(kind)
        for name, matrix, fov, pixel in (
            ("encoded", encoding.encoded_matrix, encoding.encoded_fov_mm, encoding.encoded_pixel_mm),
            ("image", encoding.recon_matrix, encoding.recon_fov_mm, encoding.recon_pixel_mm),
        ):
            if matrix is not None and fov is not None and pixel is not None:
                size = " x ".join(str(n) for n in matrix)
                yield f"{name:<8}{size}, {_vector(fov, ' x ')} mm, pixel {_vector(pixel, ' x ')} mm"
    if encoding.refusal is not None:
        yield from _wrapped(f"REFUSED: {encoding.refusal}")
    # Loops that never leave 0 and are announced so say nothing.
    loops = [loop for loop in encoding.loops if not _is_idle(loop)]
    if loops:
        rows = [("counter", "header", "readouts", "values", "")]
        yield from _table([*rows, *(_loop(loop) for loop in loops)])


def _is_idle(loop: Loop) -> bool:
    announces = loop.announced is not None and loop.announced.maximum > 0
    return not announces and not loop.maximum and loop.note is None


def _loop(loop: Loop) -> tuple[str, ...]:
    header = "-"
    if loop.announced is not None:
        header = f"{loop.announced.minimum} to {loop.announced.maximum}"
        header += f", centre {loop.announced.center}" if loop.name.startswith("kspace") else ""
    found = "none" if loop.minimum is None else f"{loop.minimum} to {loop.maximum}"
    return loop.name, header, found, str(loop.n_values), loop.note or ""


def _readouts(inspection: Inspection) -> Iterator[str]:
    groups = inspection.readouts
    if not groups:
        return
    rows = [("number", "kind", "encoding", "coils", "samples", "centre", "discarded", "dwell time", "")]
    for one in groups[:MOST_LINES]:
        extra = ["reversed"] if one.is_reversed else []
        extra += [f"{one.trajectory_dimensions}-D trajectory"] if one.trajectory_dimensions else []
        rows.append(
            (
                str(one.n_readouts),
                one.kind,
                str(one.encoding),
                str(one.n_coils),
                str(one.n_samples),
                str(one.center_sample),
                f"{one.discard_pre}, {one.discard_post}",
                f"{one.dwell_us:g} us",
                ", ".join(extra),
            )
        )
    yield from _table(rows)
    if len(groups) > MOST_LINES:
        rest = groups[MOST_LINES:]
        yield f"and {sum(one.n_readouts for one in rest)} more, of {len(rest)} further combinations"
    flags = ", ".join(f"{name} {n}" for name, n in inspection.flags.items())
    yield from _wrapped(f"flags: {flags or 'none'}")


def _sampling(patterns: Sequence[Pattern]) -> Iterator[str]:
    for pattern in patterns[:MOST_LINES]:
        where = f" (encoding {pattern.encoding})" if len({one.encoding for one in patterns}) > 1 else ""
        n_lines = pattern.n_rows * pattern.n_partitions
        calibration = f", {pattern.n_calibration} with calibration only" if pattern.n_calibration else ""
        times = f", up to {pattern.largest_count} times" if pattern.largest_count > 1 else ""
        yield (
            f"{pattern.images}{where}: {pattern.n_imaging + pattern.n_calibration} of {n_lines} lines"
            f"{calibration}{times}"
        )
        yield from _picture(pattern)
    if len(patterns) > MOST_LINES:
        yield f"and {len(patterns) - MOST_LINES} further patterns"
    if patterns:
        yield LEGEND


def _picture(pattern: Pattern) -> Iterator[str]:
    """Draw the rows: a two-dimensional scan as text that goes on in the next line, a volume as ky by kz."""
    if pattern.n_partitions == 1:
        letters, block = _in_blocks(pattern.codes[0], MAX_ROWS)
        if block > 1:
            yield f"one letter for {block} rows; {MIXED}: some of them"
        for start in range(0, len(letters), WIDTH):
            yield f"{start * block:>5} {letters[start : start + WIDTH]}"
        return
    rows = [_in_blocks(line, WIDTH)[0] for line in pattern.codes]
    block = -(-pattern.n_rows // WIDTH)
    columns, deep = zip(*rows, strict=True), -(-pattern.n_partitions // MAX_PARTITIONS)
    drawn = ["".join(line) for line in zip(*(_in_blocks(c, MAX_PARTITIONS)[0] for c in columns), strict=True)]
    yield f"rows (ky) from left to right, partitions (kz) downwards{_per_letter(block, deep)}"
    for number, line in enumerate(drawn):
        yield f"{number * deep:>5} {line}"


def _per_letter(rows: int, partitions: int) -> str:
    if rows == partitions == 1:
        return ""
    return f"; one letter for {rows} x {partitions}, {MIXED}: some of them"


def _in_blocks(codes: Iterable[str], most: int) -> tuple[str, int]:
    """Draw a line with at most so many letters; return also how many codes one letter stands for."""
    line = "".join(codes)
    block = max(1, -(-len(line) // most))
    parts = (line[start : start + block] for start in range(0, len(line), block))
    return "".join(part[0] if len(set(part)) == 1 else MIXED for part in parts), block


def _coils(inspection: Inspection) -> Iterator[str]:
    noise = inspection.noise
    if noise is not None:
        dwell = ", ".join(f"{value:g}" for value in noise.dwell_us)
        readouts, samples = counted(noise.n_readouts, "noise readout"), counted(noise.n_samples, "sample")
        yield f"{readouts}, {samples}, dwell time {dwell} us"
    elif inspection.readouts:
        yield "no noise readouts"
    if inspection.coils:
        rows = [("coil", "name", "noise std", "signal rms", "largest correlation", "")]
        for coil in inspection.coils:
            correlation = "-"
            if coil.largest_correlation is not None:
                correlation = f"{coil.largest_correlation:.3f} with {coil.correlated_with}"
            rows.append(
                (
                    str(coil.number),
                    coil.name or "-",
                    _number(coil.noise_std),
                    _number(coil.signal_rms),
                    correlation,
                    coil.note or "",
                )
            )
        yield from _table(rows)


def _trajectory(inspection: Inspection) -> Iterator[str]:
    for one in inspection.trajectory:
        ranges = (f"{low:.4g} to {high:.4g}" for low, high in zip(one.minimum, one.maximum, strict=True))
        yield f"{counted(one.dimensions, 'dimension')}: {'; '.join(ranges)}"


def _waveforms(inspection: Inspection) -> Iterator[str]:
    for one in inspection.waveforms:
        yield (
            f"id {one.waveform_id}: {one.n_waveforms} with {counted(one.n_channels, 'channel')}, in all "
            f"{counted(one.n_samples, 'sample')} of {one.sample_time_us:g} us"
        )


def _geometry(slices: Sequence[SliceGeometry]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        ("slice", "position (mm)", "read", "phase", "slice direction", "plane", "")
    ]
    shown = slices if len(slices) <= MOST_LINES else [*slices[: MOST_LINES - 1], slices[-1]]
    several = len({one.encoding for one in slices}) > 1
    for one in shown:
        name = f"{one.slice} (encoding {one.encoding})" if several else str(one.slice)
        directions = (_direction(vector) for vector in (one.read_dir, one.phase_dir, one.slice_dir))
        note = f"{one.n_geometries} different ones" if one.n_geometries > 1 else ""
        rows.append((name, _vector(one.position_mm), *directions, one.plane, note))
    if slices:
        yield from _table(rows)
    if len(shown) < len(slices):
        yield f"{len(slices)} in all"


def _times(inspection: Inspection) -> Iterator[str]:
    times = inspection.times
    if times is None:
        return
    yield f"time stamps {times.first} to {times.last}: {times.duration_s:.1f} s if a tick is 2.5 ms"
    if times.physiology_stamps:
        yield f"physiology stamps used: {', '.join(str(number) for number in times.physiology_stamps)}"
    if times.n_measurement_uids > 1:
        yield f"{times.n_measurement_uids} different measurement_uid: readouts of several measurements"


def _outcome(inspection: Inspection) -> Iterator[str]:
    outcome = inspection.outcome
    yield counted(outcome.n_images, "image")
    batches = [list(alike) for _, alike in groupby(outcome.images, key=_what_is_alike)]
    for alike in batches[:MOST_LINES]:
        one = alike[0]
        labels = one.label if len(alike) == 1 else f"{one.label} to {alike[-1].label}"
        n_images = sum(images.n_images for images in alike)
        of_slabs = "" if n_images == 1 else f"{n_images} images, "
        size = " x ".join(str(n) for n in one.matrix)
        fov = " x ".join(f"{value:g}" for value in one.fov_mm)
        complete = "" if one.is_complete else ", INCOMPLETE"
        yield f"{labels}: {of_slabs}{size} pixels, {fov} mm, from {counted(one.n_coils, 'coil')}{complete}"
        yield from _bullets((*one.notes, *one.prior_mismatches))
    if len(batches) > MOST_LINES:
        yield f"and {len(batches) - MOST_LINES} further groups of images"
    yield from _bullets(outcome.report)
    if outcome.refusal is not None:
        yield from _wrapped(f"REFUSED: {outcome.refusal}")


def _what_is_alike(images: ExpectedImages) -> tuple[object, ...]:
    return (
        images.encoding,
        images.n_images,
        images.matrix,
        images.fov_mm,
        images.n_coils,
        images.is_complete,
        images.notes,
        images.prior_mismatches,
    )


def _bullets(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from _wrapped(f"- {sentence}")


def _wrapped(text: str) -> Iterator[str]:
    """Break a text at blanks; lines after the first are indented."""
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > WIDTH + 6:
            yield line
            line = f"  {word}"
        else:
            line = f"{line} {word}" if line else word
    if line:
        yield line


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lay out rows of equal length in columns, left-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        yield "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()


def _vector(values: Vector, separator: str = " ") -> str:
    return separator.join(f"{round(value, 4) + 0.0:.5g}" for value in values)


def _direction(values: Vector) -> str:
    # Adding zero turns -0 into 0.
    return " ".join(f"{round(value, 4) + 0.0:g}" for value in values)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _bytes(n: int) -> str:
    return f"{n / 2**20:.1f} MiB" if n >= 2**20 else f"{n / 2**10:.1f} KiB"
