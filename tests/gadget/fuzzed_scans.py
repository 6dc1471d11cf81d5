"""Scans that no scanner would send: random headers, flags, counters, sizes and numbers, for hypothesis."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from synthetic_scan import readout

from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

FLAGS = tuple(flag.bit for flag in Flag)
ODD_NUMBERS = ("", "0", "-1", "1.5", "nan", "inf", "1e300", "99999999999", "zwei", "8193", "65536")
MODES = ("embedded", "separate", "interleaved", "external", "other", "")


def number(low: int, high: int) -> st.SearchStrategy[str]:
    """Text of a number, in one of 400 cases one that cannot be."""
    return st.tuples(st.integers(0, 399), st.integers(low, high), st.sampled_from(ODD_NUMBERS)).map(
        lambda drawn: drawn[2] if drawn[0] == 0 else str(drawn[1])
    )


@st.composite
def spaces(draw: st.DrawFn, n_x: int, n_y: int) -> str:
    """Return matrix and field of view, mostly of about this size."""
    sizes = "".join(
        f"<{axis}>{draw(number(max(1, n - 1), n + 1)) if draw(st.booleans()) else n}</{axis}>"
        for axis, n in (("x", n_x), ("y", n_y))
    )
    depth = draw(st.sampled_from(("1", "1", "1", "3", "4")))
    fov = "".join(f"<{axis}>{draw(number(20, 60))}</{axis}>" for axis in "xyz")
    return f"<matrixSize>{sizes}<z>{depth}</z></matrixSize><fieldOfView_mm>{fov}</fieldOfView_mm>"


@st.composite
def limits(draw: st.DrawFn) -> str:
    """Return limits of some counters."""
    names = ("kspace_encoding_step_1", "kspace_encoding_step_2", "average", "slice", "repetition", "segment")
    found = ""
    for name in draw(st.sets(st.sampled_from(names))):
        low, high = sorted((draw(st.integers(0, 3)), draw(st.integers(0, 8))))
        center = draw(number(0, 8))
        found += (
            f"<{name}><minimum>{low}</minimum><maximum>{high}</maximum><center>{center}</center></{name}>"
        )
    return f"<encodingLimits>{found}</encodingLimits>"


@st.composite
def encodings(draw: st.DrawFn, n_x: int, n_y: int) -> str:
    """Return one encoding, mostly a Cartesian one."""
    trajectory = draw(st.sampled_from(("cartesian",) * 60 + ("epi", "radial", "Cartesian")))
    steps = "".join(
        f"<kspace_encoding_step_{n}>{draw(number(0, 3))}</kspace_encoding_step_{n}>" for n in (1, 2)
    )
    return (
        f"<encoding><encodedSpace>{draw(spaces(n_x, n_y))}</encodedSpace>"
        f"<reconSpace>{draw(spaces(n_x, n_y))}</reconSpace>"
        f"{draw(limits())}<trajectory>{trajectory}</trajectory><parallelImaging><accelerationFactor>{steps}"
        f"</accelerationFactor><calibrationMode>{draw(st.sampled_from(MODES))}</calibrationMode>"
        "</parallelImaging></encoding>"
    )


@st.composite
def headers(draw: st.DrawFn, n_x: int = 8, n_y: int = 8) -> str:
    """Return an XML header."""
    bandwidth = draw(st.sampled_from((*["0.8", "1"] * 20, "0", "2", "nan")))
    dependency = draw(
        st.sampled_from(
            (
                "",
                "<measurementDependency><dependencyType>Noise</dependencyType>"
                "<measurementID>n</measurementID></measurementDependency>",
            )
        )
    )
    found = "".join(draw(encodings(n_x, n_y)) for _ in range(draw(st.sampled_from((1, 1, 1, 2)))))
    return (
        '<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">'
        f"<measurementInformation><measurementID>m</measurementID>{dependency}</measurementInformation>"
        f"<acquisitionSystemInformation><relativeReceiverNoiseBandwidth>{bandwidth}"
        f"</relativeReceiverNoiseBandwidth></acquisitionSystemInformation>{found}</ismrmrdHeader>"
    )


@dataclass(frozen=True)
class Habits:
    """What most readouts of a scan have in common."""

    n_samples: int
    n_lines: int
    n_coils: int
    oddness: int
    """Of 100 readouts this many are odd ones."""


@st.composite
def readouts(draw: st.DrawFn, habits: Habits) -> Acquisition:
    """Return one readout, sometimes with something in it that does not belong there."""
    odd = draw(st.integers(0, 99)) < habits.oddness
    n_samples = draw(st.integers(0, 26)) if odd and draw(st.booleans()) else habits.n_samples
    n_coils = draw(st.integers(0, 4)) if odd and draw(st.integers(0, 5)) == 0 else habits.n_coils
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    data = rng.normal(size=(n_coils, n_samples)) + 1j * rng.normal(size=(n_coils, n_samples))
    if odd and data.size:
        value = draw(st.sampled_from((np.nan, np.inf, 1e38, 1e-40, 0.0, 1e19)))
        where = draw(st.sampled_from(("all", "coil", "sample")))
        index = {"all": (slice(None), slice(None)), "coil": (0, slice(None)), "sample": (0, 0)}[where]
        data[index] = value
    few, any_ = st.integers(0, 2), st.sampled_from((0, 1, 7, 255, 65535))
    counter = any_ if odd else few
    fields = {
        "average": draw(st.integers(0, 1)),
        "slice": draw(counter),
        "contrast": draw(st.sampled_from((0, 0, 0, 1))),
        "phase": draw(counter) if odd else 0,
        "repetition": draw(st.sampled_from((0, 0, 1))),
        "set": draw(counter) if odd else 0,
        "segment": draw(few),
        "kspace_encode_step_2": draw(counter) if draw(st.integers(0, 3)) == 0 else 0,
        "encoding_space_ref": draw(st.sampled_from((0, 0, 0, 0, 0, 0, 1, 2))) if odd else 0,
        "discard_pre": draw(st.integers(0, n_samples + 1)) if odd else 0,
        "discard_post": draw(st.integers(0, 2)) if odd else 0,
        "sample_time_us": draw(st.sampled_from((5.0, 10.0, 0.0, -1.0, np.nan, np.inf))) if odd else 5.0,
        "position": draw(st.sampled_from(((0, 0, 0), (1, 2, 3), (np.nan, 0, np.inf)))) if odd else (0, 0, 0),
        "measurement_uid": draw(st.sampled_from((0, 2**32 - 1))),
        "scan_counter": draw(st.integers(0, 2**32 - 1)),
    }
    center = draw(st.sampled_from((0, 1, n_samples - 1, n_samples, 65535))) if odd else None
    one = readout(
        data,
        draw(st.integers(0, habits.n_lines - 1)) if not odd else draw(counter),
        center=center and max(0, center),
        **fields,
    )
    flags = draw(st.sets(st.sampled_from(FLAGS), max_size=3)) if draw(st.integers(0, 19)) == 0 else set()
    if draw(st.integers(0, 9)) == 0:
        flags = flags | {Flag.IS_NOISE_MEASUREMENT.bit}
    one.header["flags"] = sum(flags)
    if odd and draw(st.booleans()):
        one.header["channel_mask"][0] = draw(st.integers(0, 2**64 - 1))
    return one


@st.composite
def scans(draw: st.DrawFn) -> tuple[str, list[Acquisition]]:
    """Return header and readouts."""
    n_x, n_y = draw(st.integers(1, 12)), draw(st.integers(1, 10))
    habits = Habits(
        n_samples=draw(st.sampled_from((n_x, n_x, n_x, 2 * n_x, max(1, n_x - 2)))),
        n_lines=n_y,
        n_coils=draw(st.integers(1, 3)),
        oddness=draw(st.sampled_from((0, 0, 3, 15, 60))),
    )
    return draw(headers(n_x, n_y)), draw(st.lists(readouts(habits), min_size=1, max_size=30))
