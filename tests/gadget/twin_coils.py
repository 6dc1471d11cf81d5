"""Twin scans: noise, coils, and slabs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from synthetic_scan import Protocol, readout
from twin_scans import (
    DOUBLE,
    FOV,
    MATRIX,
    NOISE_STD,
    NX,
    NY,
    OBJECT,
    OVERSAMPLED,
    PARTITIONS,
    SLAB,
    THICKNESS,
    Twin,
    kspace_of,
    noise,
    partitions,
    rows_of,
    slab_protocol,
    slab_rows,
    twin,
)

from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, ScanHeader

MIX = np.array([[1.0, 0.3j, 0.0], [0.0, 0.7, -0.4], [0.2, 0.1j, 2.0]])


def mixed(one: Acquisition, matrix: np.ndarray) -> Acquisition:
    return replace(one, data=(matrix @ one.data).astype(np.complex64))


def noise_of_another_dwell_time() -> Twin:
    """Noise at 2 us with a filter of 0.8: sqrt(5 / 2 * 0.8) times as strong as in readouts of 5 us."""
    other = noise(NOISE_STD * np.sqrt(5 / 2 * 0.8), sample_time_us=2.0)
    return twin(rows_of(DOUBLE), replace(OVERSAMPLED, noise_bandwidth=0.8), noise_readouts=[other])


def noise_pooled() -> Twin:
    """Two noise readouts of other lengths and dwell times hold the samples of the one."""
    one = noise()
    parts = [
        replace(one, header=header_of(one, 1500), data=one.data[:, :1500].copy()),
        noise_part(one, slice(1500, None), 20.0),
    ]
    return twin(rows_of(DOUBLE), OVERSAMPLED, noise_readouts=parts)


def header_of(one: Acquisition, n_samples: int, **fields: float) -> np.void:
    header = one.header.copy()
    header["number_of_samples"] = n_samples
    for name, value in fields.items():
        header[name] = value
    return header


def noise_part(one: Acquisition, part: slice, dwell_us: float) -> Acquisition:
    data = np.ascontiguousarray(one.data[:, part]) * np.float32(np.sqrt(5 / dwell_us))
    return replace(one, header=header_of(one, data.shape[1], sample_time_us=dwell_us), data=data)


def noise_correlated() -> Twin:
    readouts = [mixed(one, MIX) for one in rows_of(DOUBLE)]
    return twin(readouts, OVERSAMPLED, noise_readouts=[mixed(noise(), MIX)])


def prewhitened_upstream() -> Twin:
    """What NoiseAdjustGadget would send: divided by the noise that the noise readout shows."""
    one = noise()
    white = np.linalg.inv(np.linalg.cholesky(one.data @ one.data.conj().T / one.data.shape[1] / 2))
    # The factor of 3 coils and 4000 samples, see NoiseCovariance.prewhitening.
    white *= np.sqrt(3997 / 4000)
    readouts = [mixed(one, white) for one in rows_of(DOUBLE)]
    return twin(readouts, OVERSAMPLED, noise_readouts=[], settings={"noise__source": "prewhitened"})


def labelled(scan: Protocol, names: str, extra: str = "") -> str:
    labels = "".join(
        f"<coilLabel><coilNumber>{n}</coilNumber><coilName>{name}</coilName></coilLabel>"
        for n, name in enumerate(names)
    )
    text = scan.xml().replace("</receiverChannels>", f"</receiverChannels>{labels}")
    return text.replace("</measurementID>", f"</measurementID>{extra}")


def coils_in_another_order() -> Twin:
    """The noise of an adjustment before the scan, whose coils were the other way round; unequal coils."""
    gains = np.diag([1.0, 4.0, 0.25])
    adjustment = mixed(noise(), gains)
    adjustment = replace(adjustment, data=np.ascontiguousarray(adjustment.data[::-1]))
    depends = (
        "<measurementDependency><dependencyType>Noise</dependencyType>"
        "<measurementID>adjustment</measurementID></measurementDependency>"
    )
    before = labelled(OVERSAMPLED, "CBA").replace("m_17", "adjustment")
    readouts = [mixed(one, gains) for one in rows_of(DOUBLE)]
    return twin(
        readouts,
        labelled(OVERSAMPLED, "ABC", depends),
        noise_readouts=[],
        before=[ScanHeader(before), adjustment],
    )


def more_coils_in_the_noise() -> Twin:
    """Four coils in the noise readout, three of them, by channel_mask, in the data."""
    one = noise()
    rng = np.random.default_rng(3)
    extra = (rng.normal(size=(1, 4000)) + 1j * rng.normal(size=(1, 4000))) * NOISE_STD
    wide = np.concatenate([one.data[:1], extra, one.data[1:]])
    four = readout(wide, 0, Flag.IS_NOISE_MEASUREMENT, center=0, channel_mask=[0b1111] + [0] * 15)
    return twin(rows_of(DOUBLE, channel_mask=[0b1101] + [0] * 15), OVERSAMPLED, noise_readouts=[four])


def with_a_coil(value: complex, noise_of_it: complex) -> Callable[[], Twin]:
    def wider(one: Acquisition, number: complex) -> Acquisition:
        data = np.insert(one.data, 1, number, axis=0)
        header = one.header.copy()
        header["active_channels"] = header["available_channels"] = 4
        return replace(one, header=header, data=data)

    return lambda: twin(
        [wider(one, value) for one in rows_of(DOUBLE)],
        OVERSAMPLED,
        noise_readouts=[wider(noise(), noise_of_it)],
    )


def duplicate_coil() -> Twin:
    def doubled(one: Acquisition) -> Acquisition:
        header = one.header.copy()
        header["active_channels"] = header["available_channels"] = 4
        return replace(one, header=header, data=np.concatenate([one.data, 2j * one.data[:1]]))

    return twin([doubled(one) for one in rows_of(DOUBLE)], OVERSAMPLED, noise_readouts=[doubled(noise())])


def other_readouts_between() -> Twin:
    """Readouts that are no image data, of other lengths, before and among the lines."""
    kinds = (
        Flag.IS_NAVIGATION_DATA,
        Flag.IS_PHASECORR_DATA,
        Flag.IS_DUMMYSCAN_DATA,
        Flag.IS_HPFEEDBACK_DATA,
        Flag.IS_RTFEEDBACK_DATA,
        Flag.IS_SURFACECOILCORRECTIONSCAN_DATA,
    )
    others = [readout(np.full((3, 17 + n), 50.0), n, kind) for n, kind in enumerate(kinds)]
    lines = rows_of(DOUBLE)
    return twin([*others, *lines[:5], *others, *lines[5:]], OVERSAMPLED)


# 3-D

SOLID = kspace_of(OBJECT, (*MATRIX, PARTITIONS), (*FOV, SLAB))


def slab() -> Twin:
    return twin(slab_rows(SOLID), slab_protocol(), images=partitions())


def slab_oversampled() -> Twin:
    """Oversampled in all three directions."""
    matrix, fov = (2 * NX, 25, 13), (2 * FOV[0], 150.0, 91.0)
    limits = {"kspace_encoding_step_1": (0, 24, 12), "kspace_encoding_step_2": (0, 12, 6)}
    scan = slab_protocol(encoded=matrix, encoded_fov=fov, limits=limits)
    return twin(slab_rows(kspace_of(OBJECT, matrix, fov)), scan, images=partitions())


def slab_interpolated() -> Twin:
    images = partitions(2 * PARTITIONS, THICKNESS / 2)
    return twin(slab_rows(SOLID), slab_protocol(recon=(*MATRIX, 2 * PARTITIONS)), images=images)


def slab_with(
    keep: Callable[[int, int], bool], columns: slice = slice(None), acceleration: int = 1
) -> Callable[[], Twin]:
    return lambda: twin(
        slab_rows(SOLID, keep, columns=columns),
        slab_protocol(acceleration=acceleration),
        images=partitions(),
        settings={"batch_slices": NX},
    )


def near(z: int, y: int) -> bool:
    return abs(z - PARTITIONS // 2) <= 2 and abs(y - NY // 2) <= 3


def in_ellipse(z: int, y: int) -> bool:
    return ((z - 5) / 5.6) ** 2 + ((y - 10) / 10.6) ** 2 <= 1
