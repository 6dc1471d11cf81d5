"""Problems whose axes are exchanged on the way: the same images, the same prior, the right way round."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_problem import single_precision, small_problem

import reconlib.reconstruction
from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.axis_order import exchanged, exchanged_axes, is_better_exchanged
from reconlib.kspace import KSpace
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct

SHIPPED = Path(__file__).parents[3] / "config" / "priors"
SETTINGS = ReconstructionSettings(iterations=6, prior_weight_factor=10.0)


@pytest.fixture
def tv() -> Prior:
    return load_prior(find_prior("tv", [SHIPPED]), torch.device("cpu"))


def kspace_of(lines: str) -> KSpace:
    """K-space 18 x 14: every second line, six in the centre; complete along ``lines``, or scattered."""
    problem = single_precision(small_problem(grid=(18, 14), n_coils=4, keep=1.0, noise=0.01).kspace)
    mask = torch.ones_like(problem.mask)
    if lines in ("kx", "scattered"):
        mask[..., ::2, :] = False
        mask[..., 6:12, :] = True
    if lines in ("ky", "scattered"):
        mask[..., ::2] = False
        mask[..., 4:10] = True
    return KSpace(samples=problem.samples * mask, mask=mask, noise_std=problem.noise_std)


class Upright:
    """An energy that tells its axes apart: total variation, that along y counted three times."""

    temperature = 1.0

    def value(self, image: torch.Tensor, /) -> torch.Tensor:
        return TotalVariation(epsilon=0.01).value(image * self._tilt(image))

    def value_and_gradient(self, image: torch.Tensor, /) -> tuple[torch.Tensor, torch.Tensor]:
        tilt = self._tilt(image)
        value, gradient = TotalVariation(epsilon=0.01).value_and_gradient(image * tilt)
        return value, gradient * tilt

    def _tilt(self, image: torch.Tensor) -> torch.Tensor:
        return torch.linspace(0.1, 3.0, image.shape[-2])[:, None]


@pytest.mark.parametrize(
    ("lines", "expected"), [("kx", True), ("ky", False), ("all", False), ("scattered", False)]
)
def test_only_lines_along_kx_alone_are_exchanged(lines, expected):
    kspace = kspace_of(lines)
    assert is_better_exchanged(kspace) is expected
    assert is_better_exchanged(exchanged(kspace)) is (lines == "ky")


@pytest.mark.parametrize("solver", ["fast", "paper"])
def test_the_reconstruction_is_that_of_axes_as_they_are(tv, solver, monkeypatch):
    """Of a prior that tells x from y, too: it sees the image upright."""
    kspace = kspace_of("kx")
    prior = replace(tv, energy=Upright())
    arguments = {"prior": prior, "settings": replace(SETTINGS, solver=solver)}
    found = reconstruct(kspace, **arguments)
    monkeypatch.setattr(reconlib.reconstruction, "is_better_exchanged", lambda _kspace: False)
    expected = reconstruct(kspace, **arguments)
    for one, other in ((found.image, expected.image), (found.coils, expected.coils)):
        assert one.is_contiguous()
        torch.testing.assert_close(one, other, rtol=0, atol=2e-3 * float(other.abs().max()))
    blind = reconstruct(kspace, **arguments | {"prior": replace(tv, energy=TotalVariation(epsilon=0.01))})
    difference = float((blind.image - expected.image).abs().max() / expected.image.abs().max())
    assert difference > 0.02


def test_exchanged_axes_are_exchanged_in_memory_and_back():
    images = torch.randn(2, 3, 4, 5, dtype=torch.complex64)
    turned = exchanged_axes(images)
    assert turned.is_contiguous()
    assert torch.equal(turned[1, 2, 3], images[1, 2, :, 3])
    assert torch.equal(exchanged_axes(turned), images)
