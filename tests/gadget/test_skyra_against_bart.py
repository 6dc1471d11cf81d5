"""The measured Skyra phantom: its noise after prewhitening, and its image beside BART's of the same lines.

K-space is placed and whitened here by plain numpy, so that nothing of the gadget is on both sides.
"""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from gadget.replay import replay
from gadget.scan.assemble import SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.scan_file import read_scan
from gadget.settings import load_settings
from gadget.wire.messages import Acquisition, ScanHeader
from reconlib.evaluation.bart import Bart

N_COILS, N_COLUMNS, N_ROWS, N_KEPT = 14, 384, 144, 192
OUTER_ROWS = [18, 21, 24, 27, 30, 111, 114, 117, 120, 123]
"""Of the lines that were measured, those with the least signal."""
BESIDE_THE_OBJECT = [*range(14), *range(184, 192)]
"""Columns of the kept half that no bottle reaches: these lie at 14 to 182."""


@pytest.fixture
def scan_file(data_folder: Path) -> Path:
    return data_folder / "kspace" / "skyra_phantom_14coil_r3.h5"


def along_readout(samples: np.ndarray, *, is_inverse: bool) -> np.ndarray:
    transform = np.fft.ifft if is_inverse else np.fft.fft
    shifted = transform(np.fft.ifftshift(samples, axes=-1), axis=-1, norm="ortho")
    return np.fft.fftshift(shifted, axes=-1)


def std_per_column(hybrid: np.ndarray) -> np.ndarray:
    """Per real component, over coils and lines."""
    return np.sqrt(np.mean(np.abs(hybrid) ** 2, axis=(0, 1)) / 2)


def assembled_samples(text: str, readouts: list[Acquisition]) -> np.ndarray:
    sorter = SliceAssembler(parse_scan_header(text))
    (slice_,) = [one for readout in readouts for one in sorter.add(readout)]
    samples: np.ndarray = slice_.kspace.samples[0].numpy()
    return samples


def messages_of(scan_file: Path) -> tuple[str, list[Acquisition]]:
    messages = list(read_scan(scan_file))
    (header,) = [message for message in messages if isinstance(message, ScanHeader)]
    return header.text, [message for message in messages if isinstance(message, Acquisition)]


def test_the_noise_follows_the_receiver_s_filter_out_of_the_kept_half(scan_file: Path) -> None:
    text, readouts = messages_of(scan_file)
    text = text.replace("<x>280.000000</x>", "<x>560.000000</x>")  # keeps the oversampling
    samples = assembled_samples(text, readouts)
    std = std_per_column(along_readout(samples[:, OUTER_ROWS], is_inverse=True))
    assert std.shape == (N_COLUMNS,)
    assert np.median(std[:12]) == pytest.approx(0.37, abs=0.04)
    assert np.median(std[-12:]) == pytest.approx(0.37, abs=0.04)


def test_the_noise_is_1_per_real_component_in_the_kept_half(scan_file: Path) -> None:
    samples = assembled_samples(*messages_of(scan_file))
    assert samples.shape == (N_COILS, N_ROWS, N_KEPT)
    hybrid = along_readout(samples[:, OUTER_ROWS], is_inverse=True)
    std = std_per_column(hybrid)[BESIDE_THE_OBJECT]
    assert np.sqrt(np.mean(std**2)) == pytest.approx(1.0, abs=0.06)
    # 280 numbers a column know it to 4 %.
    assert np.abs(std - 1).max() < 0.12
    # Real and imaginary parts alike, and the coils independent
    beside = hybrid[:, :, BESIDE_THE_OBJECT].reshape(N_COILS, -1)
    assert np.std(beside.real) == pytest.approx(np.std(beside.imag), rel=0.06)
    covariance = beside @ beside.conj().T / beside.shape[1] / 2
    np.testing.assert_allclose(covariance, np.eye(N_COILS), atol=0.4)


def whitened_by_numpy(readouts: list[Acquisition]) -> np.ndarray:
    noise = readouts[0].data.astype(np.complex128)
    factor = np.linalg.cholesky(noise @ noise.conj().T / (N_COLUMNS - N_COILS) / 2)
    whiten = np.linalg.inv(factor) * np.sqrt(2.4 / 20.0 * 0.793)
    kspace = np.zeros((N_COILS, N_ROWS, N_COLUMNS), np.complex128)
    for readout in readouts[1:]:
        # Line 54 is the centre, row 72 of 144.
        kspace[:, int(readout.header["idx"]["kspace_encode_step_1"]) + 18] = whiten @ readout.data
    hybrid = along_readout(kspace, is_inverse=True)[:, :, N_KEPT // 2 : 3 * N_KEPT // 2]
    return along_readout(hybrid, is_inverse=False).astype(np.complex64)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_image_is_that_of_bart_from_the_same_lines(scan_file: Path, tmp_path: Path) -> None:
    bart = Bart.find()
    if bart is None:
        pytest.skip("bart is not on the PATH: nothing to compare with")
    _, readouts = messages_of(scan_file)
    samples = torch.from_numpy(whitened_by_numpy(readouts))[None]
    maps = bart.espirit_maps(samples)
    theirs = {
        name: bart.pics(samples, maps, regulariser, iterations=60).image[0, 0].numpy()
        for name, regulariser in {"l2": "Q:0.01", "total variation": "T:3:0:0.01"}.items()
    }
    chosen = [("prior", "tv"), ("device", "cpu"), ("posterior.enabled", False), ("solver.iterations", 60)]
    replay(scan_file, tmp_path / "out.h5", load_settings(None, chosen))
    with h5py.File(tmp_path / "out.h5", "r") as file:
        ours = file["dataset/image_1/data"][0, 0, 0]
    assert ours.shape == (N_ROWS, N_KEPT)
    inside = theirs["l2"] > 0.2 * np.percentile(theirs["l2"], 99.5)
    assert 8_000 < inside.sum() < 13_000  # two bottles of 12 cm
    for name, image in theirs.items():
        correlation = np.corrcoef(ours[inside], image[inside])[0, 1]
        print(f"correlation with ESPIRiT + {name}: {correlation:.4f}")  # noqa: T201
        assert correlation > 0.98
        # Intensities in units of the noise agree, too, and outside there is nothing.
        assert np.median(ours[inside] / image[inside]) == pytest.approx(1.0, abs=0.05)
    assert np.abs(ours[~inside]).mean() < 0.05 * ours[inside].mean()
