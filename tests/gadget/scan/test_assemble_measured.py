"""Assembly of data that other programs made: a Skyra's scan, bytes of Gadgetron's and FIRE's clients."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from synthetic_scan import inverse_transform

from gadget.scan.assemble import AssembledSlice, AssemblySettings, NoiseSource, SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.series import reconstruction_image
from gadget.wire.codec import MrdDecoder
from gadget.wire.headers import ACQUISITION_HEADER
from gadget.wire.messages import Acquisition, ScanHeader


@pytest.fixture
def skyra(data_folder: Path) -> tuple[str, list[Acquisition]]:
    """Return the XML header and the readouts of the phantom scan."""
    with h5py.File(data_folder / "kspace" / "skyra_phantom_14coil_r3.h5", "r") as file:
        text, records = file["dataset/xml"][0].decode(), file["dataset/data"][:]
    readouts = [
        Acquisition(
            np.array(record["head"], ACQUISITION_HEADER)[()],
            np.zeros((384, 0), np.float32),
            record["data"].view(np.complex64).reshape(14, 384),
        )
        for record in records
    ]
    return text, readouts


def assembled(
    text: str, readouts: list[Acquisition], settings: AssemblySettings | None = None
) -> AssembledSlice:
    sorter = SliceAssembler(parse_scan_header(text), settings)
    (slice_,) = [slice_ for acquisition in readouts for slice_ in sorter.add(acquisition)]
    assert sorter.finish() == ()
    return slice_


def test_the_skyra_scan_is_one_slice_of_106_lines_range_in_144_rows(
    skyra: tuple[str, list[Acquisition]],
) -> None:
    slice_ = assembled(*skyra)
    assert slice_.kspace.samples.shape == (1, 14, 144, 192)
    lines = [int(a.header["idx"]["kspace_encode_step_1"]) for a in skyra[1][1:]]
    rows = sorted(line - 54 + 72 for line in lines)
    mask = slice_.kspace.mask[0, 0].numpy()
    assert np.flatnonzero(mask.any(axis=1)).tolist() == rows
    assert mask[rows].all()
    context = slice_.context
    assert (context.n_lines, context.n_calibration_lines, context.n_lines_announced) == (68, 32, 36)
    assert context.is_complete
    assert context.grid_fov_mm == pytest.approx((280.0, 210.0))
    # Line 54 was the 35th imaging or calibration readout; its stamp in the file
    assert context.acquisition_time_stamp == 32510392
    assert context.position == pytest.approx((20.048315, 66.570045, 0.0))
    assert (
        "dwell times 2.4 us (data) and 20 us (noise), relative noise bandwidth 0.793 (from the header)"
        in context.notes
    )


def test_the_skyra_scan_s_k_space_is_what_plain_numpy_makes_of_it(
    skyra: tuple[str, list[Acquisition]],
) -> None:
    slice_ = assembled(*skyra)
    noise = skyra[1][0].data.astype(np.complex128)
    factor = np.linalg.cholesky(noise @ noise.conj().T / 384 / 2)
    # A matrix from 384 samples of 14 coils whitens other samples to 384 / (384 - 14) on average: taken out.
    whiten = np.linalg.inv(factor) * np.sqrt(2.4 / 20.0 * 0.793) * np.sqrt((384 - 14) / 384)
    for acquisition in (skyra[1][36], skyra[1][53], skyra[1][68]):
        image = np.fft.fftshift(np.fft.ifft(np.fft.ifftshift(acquisition.data, axes=1), axis=1), axes=1)
        middle = image[:, 96:288] * np.sqrt(384)
        kept = np.fft.fftshift(np.fft.fft(np.fft.ifftshift(middle, axes=1), axis=1), axes=1) / np.sqrt(192)
        row = int(acquisition.header["idx"]["kspace_encode_step_1"]) + 18
        expected = whiten @ kept
        np.testing.assert_allclose(
            slice_.kspace.samples[0, :, row].numpy(), expected, atol=1e-5 * np.abs(expected).max()
        )


def test_the_skyra_image_shows_two_bottles_in_place_on_a_dark_ground(
    skyra: tuple[str, list[Acquisition]],
) -> None:
    slice_ = assembled(*skyra)
    coil_images = inverse_transform(slice_.kspace.samples[0].numpy())
    rss = np.sqrt((np.abs(coil_images) ** 2).sum(axis=0)).astype(np.float32)
    image = reconstruction_image(rss, slice_.context, image_index=1)
    assert image.data.shape == (1, 1, 144, 192)
    assert image.header["matrix_size"].tolist() == [192, 144, 1]
    assert image.header["field_of_view"].tolist() == [280.0, 210.0, 8.0]
    pixels = image.data[0, 0]
    # As seen: bottles of about 120 mm round (14, 63) to (96, 63) and (100, 63) to (182, 63)
    left, right = pixels[50:80, 30:80], pixels[50:80, 116:166]
    assert min(left.mean(), right.mean()) > 8 * np.median(pixels[:16])
    assert pixels[50:80, :8].mean() < 0.2 * left.mean()
    assert pixels[124:140].mean() < 0.2 * left.mean()


def test_the_noise_of_the_skyra_scan_follows_the_receiver_s_filter(
    skyra: tuple[str, list[Acquisition]],
) -> None:
    # Hybrid space, outer lines, whitened by the noise scan, all columns: METHOD's figures for this very scan
    text, readouts = skyra
    text = text.replace("<x>280.000000</x>", "<x>560.000000</x>")  # keeps the oversampling
    samples = assembled(text, readouts).kspace.samples[0].numpy()
    outer = [18, 21, 24, 27, 114, 117, 120, 123]
    hybrid = np.fft.fftshift(
        np.fft.ifft(np.fft.ifftshift(samples[:, outer], axes=2), axis=2, norm="ortho"), axes=2
    )
    std = np.sqrt(np.mean(hybrid.real**2, axis=(0, 1)))
    assert np.median(std[:12]) == pytest.approx(0.37, abs=0.04)
    assert np.median(std[100:112]) == pytest.approx(1.06, abs=0.12)


def test_the_noise_level_of_the_skyra_scan_without_its_noise_readout_is_near(
    skyra: tuple[str, list[Acquisition]],
) -> None:
    text, readouts = skyra
    with_noise = assembled(text, readouts)
    without = assembled(text, readouts[1:])
    data_only = assembled(text, readouts, AssemblySettings(noise=NoiseSource.DATA))
    assert without.kspace.noise_std == data_only.kspace.noise_std
    # The noise scan's own level, brought to the dwell time of the data. Sharp-edged bottles leave signal at
    # the edges of k-space, so the estimate is too large: 1.43 times.
    level = np.sqrt(np.mean(np.abs(readouts[0].data) ** 2) / 2) / np.sqrt(2.4 / 20.0 * 0.793)
    assert level < without.kspace.noise_std < 1.5 * level
    assert with_noise.kspace.noise_std == 1.0


# The captured streams: a 64 x 64 Shepp-Logan phantom, 4 coils, 2 repetitions

_ELLIPSES = (
    # amplitude, half axes, centre, degrees: Toft's modified Shepp-Logan phantom
    (1.0, 0.69, 0.92, 0.0, 0.0, 0.0),
    (-0.8, 0.6624, 0.874, 0.0, -0.0184, 0.0),
    (-0.2, 0.11, 0.31, 0.22, 0.0, -18.0),
    (-0.2, 0.16, 0.41, -0.22, 0.0, 18.0),
    (0.1, 0.21, 0.25, 0.0, 0.35, 0.0),
    (0.1, 0.046, 0.046, 0.0, 0.1, 0.0),
    (0.1, 0.046, 0.046, 0.0, -0.1, 0.0),
    (0.1, 0.046, 0.023, -0.08, -0.605, 0.0),
    (0.1, 0.023, 0.023, 0.0, -0.606, 0.0),
    (0.1, 0.023, 0.046, 0.06, -0.605, 0.0),
)


def shepp_logan(size: int) -> np.ndarray:
    grid = (np.arange(size) - size // 2) / (size / 2)
    x, y = grid, grid[:, None]
    image = np.zeros((size, size))
    for amplitude, a, b, x0, y0, degrees in _ELLIPSES:
        angle = np.deg2rad(degrees)
        along = (x - x0) * np.cos(angle) + (y - y0) * np.sin(angle)
        across = (y - y0) * np.cos(angle) - (x - x0) * np.sin(angle)
        image[(along / a) ** 2 + (across / b) ** 2 <= 1] += amplitude
    return image


@pytest.mark.parametrize("name", ["client_gadgetron", "client_fire", "external_acquisitions"])
def test_captured_streams_give_two_repetitions_of_the_shepp_logan_phantom(
    data_folder: Path, name: str
) -> None:
    decoder = MrdDecoder()
    decoder.feed((data_folder / "wire" / f"{name}.bin").read_bytes())
    messages = list(decoder.messages())
    (header,) = [message for message in messages if isinstance(message, ScanHeader)]
    readouts = [message for message in messages if isinstance(message, Acquisition)]
    sorter = SliceAssembler(parse_scan_header(header.text))
    slices = [slice_ for acquisition in readouts for slice_ in sorter.add(acquisition)]
    assert sorter.finish() == ()
    assert [slice_.context.repetition for slice_ in slices] == [0, 1]
    phantom = shepp_logan(64)
    for repetition, slice_ in enumerate(slices):
        rss = np.sqrt((np.abs(inverse_transform(slice_.kspace.samples[0].numpy())) ** 2).sum(axis=0))
        # Coils that fall off towards the rim, and noise, keep it from 1; a shift by one pixel gives 0.8
        assert np.corrcoef(rss.ravel(), phantom.ravel())[0, 1] > 0.95
        # The same from the raw samples, by the whole oversampled image
        lines = [a.data for a in readouts if a.header["idx"]["repetition"] == repetition][-64:]
        oversampled = inverse_transform(np.stack(lines, axis=1))[:, :, 32:96]
        plain = np.sqrt((np.abs(oversampled) ** 2).sum(axis=0))
        assert np.corrcoef(rss.ravel(), plain.ravel())[0, 1] > 0.999
        assert slice_.kspace.mask.all()
