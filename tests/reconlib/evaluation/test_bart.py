"""BART's files against an independent reader, and BART itself where it is."""

import numpy as np
import pytest
import torch

from reconlib.evaluation.bart import Bart, BartError, _Folder, read_cfl, write_cfl
from reconlib.evaluation.metrics import psnr_after_scale_fit
from reconlib.operators.fourier import fft2c
from reconlib.operators.sense import root_sum_of_squares


@pytest.fixture
def bart():
    found = Bart.find()
    if found is None:
        pytest.skip("bart is not on the PATH")
    return found


def smooth_scan(n: int = 48):
    """Two discs seen by four coils of smooth maps: (coil images, k-space)."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, n), torch.linspace(-1, 1, n), indexing="ij")
    disc = (torch.hypot(y, x) < 0.8).float() - 0.5 * (torch.hypot(y - 0.2, x + 0.1) < 0.3).float()
    corners = [(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)]
    maps = torch.stack(
        [
            torch.exp(-((y - a) ** 2 + (x - b) ** 2) / 3) * torch.exp(1j * (a * x + b * y) / 2)
            for a, b in corners
        ]
    )
    images = (disc * maps)[None].to(torch.complex64)
    return images, fft2c(images)


def test_an_array_is_written_as_bart_reads_it(tmp_path):
    array = (np.arange(2 * 3 * 1 * 4) * (1 + 0.5j)).reshape(2, 3, 1, 4).astype(np.complex64)
    write_cfl(tmp_path / "a", array)

    header = (tmp_path / "a.hdr").read_text().split("\n")
    numbers = np.frombuffer((tmp_path / "a.cfl").read_bytes(), "<f4")
    assert header[:2] == ["# Dimensions", "2 3 1 4"]
    # first index fastest, real and imaginary part in turn
    for i, j, k in [(0, 0, 0), (1, 0, 0), (0, 2, 0), (1, 2, 3)]:
        place = 2 * (i + 2 * j + 6 * k)
        assert complex(*numbers[place : place + 2]) == array[i, j, 0, k]
    assert np.array_equal(read_cfl(tmp_path / "a"), array)


def test_trailing_dimensions_of_one_are_left_out(tmp_path):
    (tmp_path / "a.hdr").write_text("# Dimensions\n2 1 3 1 1 1\n# Command\nphantom\n")
    np.arange(6, dtype=np.complex64).tofile(tmp_path / "a.cfl")
    assert read_cfl(tmp_path / "a").shape == (2, 1, 3)


def test_bart_agrees_on_axes_and_transform(bart):
    """``bart fft -u`` of what was written equals our centred, unitary transform."""
    images, kspace = smooth_scan(20)
    with _Folder(bart) as folder:
        folder.put("images", images[..., :14])
        folder.run("fft", "-u", "3", "images", "kspace")
        found = folder.get("kspace")
    assert found.shape == (1, 4, 20, 14)
    assert torch.allclose(found, fft2c(images[..., :14]), atol=1e-4)
    assert kspace.shape == (1, 4, 20, 20)


def test_compressed_sensing_and_nlinv_find_the_object(bart):
    images, samples = smooth_scan()
    reference = root_sum_of_squares(images)
    samples = samples.clone()
    samples[..., 1::2, :] *= 0
    _, whole = smooth_scan()
    samples[..., 16:32, :] = whole[..., 16:32, :]
    zero_filled = root_sum_of_squares(
        torch.fft.fftshift(
            torch.fft.ifft2(torch.fft.ifftshift(samples, dim=(-2, -1)), norm="ortho"), dim=(-2, -1)
        )
    )

    maps = bart.espirit_maps(samples)
    pics = bart.pics(samples, maps, "W:3:0:0.002", iterations=30)
    nlinv = bart.nlinv(samples, 8)

    start = float(psnr_after_scale_fit(zero_filled, reference))
    for result in (pics, nlinv):
        assert result.image.shape == reference.shape
        assert result.coils.shape == images.shape
        assert float(psnr_after_scale_fit(result.image, reference)) > start + 3


def test_what_bart_says_is_told(bart):
    with pytest.raises(BartError, match=r"bart pics .* failed"):
        bart.pics(
            torch.ones(1, 2, 8, 8, dtype=torch.complex64),
            torch.ones(1, 3, 8, 9, dtype=torch.complex64),
            "W:3:0:0.1",
        )


def test_bart_says_its_version(bart):
    assert bart.version().startswith("v")


def test_a_command_that_is_not_there_or_leaves_nothing_is_told(tmp_path):
    samples = torch.ones(1, 2, 8, 8, dtype=torch.complex64)
    with pytest.raises(BartError, match="cannot be run: No such file"):
        Bart(tmp_path / "nothing").nlinv(samples, 3)
    silent = tmp_path / "bart"
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    with pytest.raises(BartError, match="bart left no readable file 'image'"):
        Bart(silent).nlinv(samples, 3)
    silent.write_text("#!/bin/sh\necho 'out of luck' >&2\nexit 3\n")
    with pytest.raises(BartError, match=r"failed \(3\): out of luck"):
        Bart(silent).nlinv(samples, 3)


def test_numbers_that_are_none_are_told(tmp_path):
    fake = tmp_path / "bart"
    fake.write_text("#!/bin/sh\nfor n in image maps; do cp kspace.hdr $n.hdr; cp kspace.cfl $n.cfl; done\n")
    fake.chmod(0o755)
    samples = torch.ones(1, 2, 8, 8, dtype=torch.complex64)
    samples[0, 0, 3, 3] = complex(float("nan"), 0)
    with pytest.raises(BartError, match="bart's image holds infinities or NaNs"):
        Bart(fake).nlinv(samples, 3)


def test_bart_is_absent_where_the_path_has_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Bart.find() is None
