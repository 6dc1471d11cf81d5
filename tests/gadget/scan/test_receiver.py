"""Noise of a scan's own readouts, through the whole assembler: coils, dwell times, dead channels."""

import numpy as np
import pytest
from labelled_scan import (
    N_COLUMNS,
    N_ROWS,
    assembled,
    header_text,
    lines_of_noise,
    mixing,
    noise_of,
    std_of,
    white,
)
from synthetic_scan import readout

from gadget.errors import ScanError
from gadget.scan.assemble import AssembledSlice, AssemblySettings, NoiseSource, SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

NAMES = ("H1", "H2", "H3", "H4")


def mask_of(*channels: int) -> np.ndarray:
    words = np.zeros(16, np.uint64)
    words[0] = sum(1 << channel for channel in channels)
    return words


def only(slices: list[AssembledSlice]) -> AssembledSlice:
    (slice_,) = slices
    return slice_


def assert_white(slice_: AssembledSlice, n_coils: int) -> None:
    """Noise of 1 per real component in independent coils: 1800 samples know it to 2 %."""
    samples = slice_.kspace.samples[0].numpy().reshape(n_coils, -1)
    assert slice_.kspace.noise_std == 1.0
    assert std_of(slice_) == pytest.approx(np.ones((2, n_coils)), abs=0.07)
    covariance = samples @ samples.conj().T / samples.shape[1]
    np.testing.assert_allclose(covariance, 2 * np.eye(n_coils), atol=0.25)


@pytest.mark.parametrize(
    ("noise_us", "image_us", "bandwidth", "n_samples"),
    [(20.0, 2.4, 0.793, 5000), (2.0, 8.0, 0.5, 5000), (5.0, 5.0, None, 5000), (9.0, 3.0, 1.0, 600)],
)
def test_noise_is_1_after_prewhitening_whatever_dwell_time_and_bandwidth(
    noise_us: float, image_us: float, bandwidth: float | None, n_samples: int
) -> None:
    # Noise power of the data: that of the noise readouts over their bandwidth, times t_noise / t_image
    power = noise_us / image_us / (0.793 if bandwidth is None else bandwidth)
    mix = mixing(4)
    readouts = [
        noise_of(mix @ white(4, n_samples // 2, 1), sample_time_us=noise_us),
        noise_of(mix @ white(4, n_samples - n_samples // 2, 2), sample_time_us=noise_us),
        *lines_of_noise(mix * np.sqrt(power), sample_time_us=image_us),
    ]
    assert_white(only(assembled(header_text(bandwidth=bandwidth), readouts)), 4)


def test_noise_readouts_of_more_coils_are_matched_by_their_channels() -> None:
    mix = mixing(5)
    readouts = [
        noise_of(mix @ white(5, 5000, 1), channel_mask=mask_of(0, 1, 2, 3, 4)),
        *lines_of_noise(mix[[1, 2, 4]], channel_mask=mask_of(1, 2, 4)),
    ]
    slice_ = only(assembled(header_text(), readouts))
    assert slice_.kspace.samples.shape[1] == 3
    assert std_of(slice_) == pytest.approx(np.ones((2, 3)), abs=0.07)
    assert any(
        note == "the noise readouts have 5 coils: matched to the 3 of the data by name or channel"
        for note in slice_.context.notes
    )


def test_noise_readouts_of_fewer_coils_than_the_data_are_refused_by_name() -> None:
    readouts = [
        noise_of(white(3, 500, 1), channel_mask=mask_of(0, 1, 2)),
        *lines_of_noise(mixing(4), channel_mask=mask_of(0, 1, 2, 3)),
    ]
    with pytest.raises(
        ScanError, match=r"Readout 2 .* has 4 coils, .* have 3; .* it has no coil\(s\) H4 \(3\)"
    ):
        assembled(header_text(NAMES), readouts)


def test_noise_readouts_that_cannot_be_matched_are_refused_with_the_way_out() -> None:
    readouts = [noise_of(white(5, 500, 1)), *lines_of_noise(mixing(4))]
    with pytest.raises(
        ScanError, match=r"nothing says which of them are the same.*set noise\.source to data"
    ):
        assembled(header_text(), readouts)
    # The same when the noise comes second
    with pytest.raises(ScanError, match=r"Readout 2 .* has 5 coils, but earlier readouts have 4; the noise"):
        assembled(header_text(), [readouts[1], readouts[0]])
    slice_ = only(assembled(header_text(), readouts, AssemblySettings(noise=NoiseSource.DATA)))
    assert not slice_.context.is_prewhitened


def test_noise_readouts_of_different_coils_are_refused() -> None:
    readouts = [noise_of(white(4, 500, 1)), noise_of(white(3, 500, 1))]
    with pytest.raises(
        ScanError, match=r"Readout 2 .* has 3 coils, but earlier noise readouts have 4; all noise"
    ):
        assembled(header_text(), readouts)


def test_imaging_readouts_of_other_channels_are_refused() -> None:
    readouts = [
        readout(white(2, N_COLUMNS, 1), 0, channel_mask=mask_of(0, 1)),
        readout(white(2, N_COLUMNS, 1), 1, channel_mask=mask_of(1, 2)),
    ]
    with pytest.raises(
        ScanError, match=r"Readout 2 .* has other coils than earlier ones, by its channel_mask"
    ):
        assembled(header_text(), readouts)


def with_coil(readouts: list[Acquisition], coil: int, value: complex) -> list[Acquisition]:
    changed = []
    for acquisition in readouts:
        data = acquisition.data.copy()
        data[coil] = value
        changed.append(Acquisition(acquisition.header, acquisition.trajectory, data))
    return changed


def test_a_coil_without_noise_is_left_out_by_name() -> None:
    mix = mixing(4)
    noise = with_coil([noise_of(mix @ white(4, 5000, 1))], 2, 0)
    slice_ = only(assembled(header_text(NAMES), [*noise, *lines_of_noise(mix)]))
    assert_white(slice_, 3)
    assert "coil(s) H3 (2) left out: no noise in the noise readouts" in slice_.context.notes


def test_a_coil_that_is_zero_in_some_of_the_lines_only_is_used() -> None:
    mix = mixing(4)
    image = lines_of_noise(mix)
    image[:3] = with_coil(image[:3], 2, 0)
    slice_ = only(assembled(header_text(NAMES), [noise_of(mix @ white(4, 5000, 1)), *image]))
    assert slice_.kspace.samples.shape[1] == 4
    assert not any("left out" in note for note in slice_.context.notes)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_coil_without_data_is_left_out_by_name_and_the_others_are_white(value: float) -> None:
    # Its noise is correlated with that of the others: whitened with it, they would not come out at 1.
    mix = mixing(4)
    image = with_coil(lines_of_noise(mix), 0, value)
    slice_ = only(assembled(header_text(NAMES), [noise_of(mix @ white(4, 5000, 1)), *image]))
    assert_white(slice_, 3)
    why = "no signal in the imaging readouts" if value == 0 else "NaN or infinite throughout a readout"
    assert f"coil(s) H1 (0) left out: {why}" in slice_.context.notes


def test_a_coil_that_is_nan_in_one_readout_only_is_left_out_of_the_whole_slice_and_of_no_other() -> None:
    mix = mixing(4)
    image = lines_of_noise(mix)
    image[20:21] = with_coil(image[20:21], 3, np.nan)
    readouts = [noise_of(mix @ white(4, 5000, 1)), *image, *lines_of_noise(mix, slice=1)]
    first, second = assembled(header_text(NAMES), readouts)
    assert_white(first, 3)
    assert_white(second, 4)
    assert not any("left out" in note for note in second.context.notes)


def test_a_coil_that_is_nan_in_the_noise_is_left_out() -> None:
    mix = mixing(4)
    noise = with_coil([noise_of(mix @ white(4, 5000, 1))], 1, np.nan)
    slice_ = only(assembled(header_text(), [*noise, *lines_of_noise(mix)]))
    assert_white(slice_, 3)
    note = "coil(s) 1 (counted from 0) left out: no noise in the noise readouts"
    assert note in slice_.context.notes


def test_a_copied_coil_is_left_out_by_name() -> None:
    mix = mixing(4)
    mix[3] = (0.5 + 1j) * mix[1]
    slice_ = only(assembled(header_text(NAMES), [noise_of(mix @ white(4, 5000, 1)), *lines_of_noise(mix)]))
    assert_white(slice_, 3)
    note = "coil(s) H4 (3) left out: next to no noise, or only a copy of other coils'"
    assert note in slice_.context.notes


def test_a_silent_coil_is_left_out_without_noise_readouts_too() -> None:
    image = with_coil(lines_of_noise(mixing(4)), 1, 0)
    slice_ = only(assembled(header_text(NAMES), image))
    assert slice_.kspace.samples.shape[1] == 3
    assert not slice_.context.is_prewhitened
    assert "coil(s) H2 (1) left out: no signal in the imaging readouts" in slice_.context.notes


def test_noise_of_coils_that_the_data_does_not_have_alive_is_no_whitening() -> None:
    # Coil 0 has noise and no data, coil 1 data and no noise: nothing is left to whiten with.
    noise = with_coil([noise_of(white(2, 500, 1))], 1, 0)
    image = with_coil(lines_of_noise(mixing(2)), 0, 0)
    slice_ = only(assembled(header_text(), [*noise, *image]))
    assert slice_.kspace.samples.shape[1] == 1
    assert not slice_.context.is_prewhitened
    assert np.isfinite(slice_.kspace.noise_std)


@pytest.mark.parametrize("flags", [(), (Flag.IS_NOISE_MEASUREMENT,)])
def test_a_readout_with_some_numbers_that_are_not_finite_is_refused(flags: tuple[Flag, ...]) -> None:
    sorter = SliceAssembler(parse_scan_header(header_text()))
    data = white(3, N_COLUMNS, 1)
    data[1, 7] = np.nan
    with pytest.raises(ScanError, match=r"Readout 1 .* holds 1 NaN or infinite numbers\. The data was"):
        sorter.add(readout(data, 0, *flags))
    with pytest.raises(ScanError, match=r"Readout 2 .* holds 120 NaN or infinite numbers"):
        sorter.add(readout(np.full((3, N_COLUMNS), np.nan), 0, *flags))


def test_an_empty_noise_readout_is_refused() -> None:
    with pytest.raises(ScanError, match=r"Readout 1 .* is empty: 3 coils, 0 samples"):
        assembled(header_text(), [noise_of(np.zeros((3, 0)))])


def test_a_scan_of_zeros_keeps_its_coils() -> None:
    image = [readout(np.zeros((3, N_COLUMNS)), row) for row in range(N_ROWS)]
    slice_ = only(assembled(header_text(), image))
    assert slice_.kspace.samples.shape[1] == 3
    assert any("all samples are zero" in note for note in slice_.context.notes)
