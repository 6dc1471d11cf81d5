"""Image quality on measured scans, through the whole chain: scan file, pipeline, image file."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from gadget.replay import replay
from gadget.scan_writer import write_scan
from gadget.settings import load_settings
from reconlib.evaluation.metrics import psnr_after_scale_fit
from reconlib.evaluation.sampling_patterns import random_lines
from reconlib.simulation.scan import scan_from_kspace


def reference(kspace: np.ndarray) -> np.ndarray:
    """Root-sum-of-squares image of fully sampled k-space, by numpy alone."""
    axes = (-2, -1)
    coil_images = np.fft.fftshift(
        np.fft.ifft2(np.fft.ifftshift(kspace, axes=axes), axes=axes, norm="ortho"), axes=axes
    )
    return np.sqrt((np.abs(coil_images) ** 2).sum(axis=0))


def psnr_of_replay(scan: Path, out: Path, prior: str, truth: np.ndarray) -> float:
    chosen = [("prior", prior), ("device", "cpu"), ("posterior.enabled", False)]
    summary = replay(scan, out, load_settings(None, chosen))
    assert (summary.n_images, summary.labelled) == (1, [])
    with h5py.File(out, "r") as file:
        image = file["dataset/image_1/data"][0, 0, 0]
    assert image.shape == truth.shape
    as_batch = [torch.from_numpy(np.asarray(x, dtype=np.float64))[None, None] for x in (image, truth)]
    return float(psnr_after_scale_fit(*as_batch))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "at_least_db"), [("brain_t1_8coil_full", 42.0), ("brain_t1_7coil_full", 33.2)]
)
def test_learned_prior_beats_total_variation_on_measured_brains(
    name: str, at_least_db: float, data_folder: Path, tmp_path: Path
) -> None:
    kspace = np.load(data_folder / "kspace" / f"{name}.npy")
    lines = random_lines(kspace.shape[1], acceleration=4, calibration_fraction=0.08, seed=42)
    write_scan(tmp_path / "scan.h5", scan_from_kspace(kspace, lines))
    truth = reference(kspace)
    total_variation = psnr_of_replay(tmp_path / "scan.h5", tmp_path / "tv.h5", "tv", truth)
    learned = psnr_of_replay(tmp_path / "scan.h5", tmp_path / "learned.h5", "brain-local", truth)
    print(f"{name}: total variation {total_variation:.2f} dB, learned {learned:.2f} dB")  # noqa: T201
    assert learned > total_variation
    assert learned >= at_least_db
