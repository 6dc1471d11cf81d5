"""What k-space refuses."""

import pytest
import torch

from reconlib.kspace import KSpace

SAMPLES = torch.zeros(2, 3, 5, 8, dtype=torch.complex64)
MASK = torch.ones(2, 1, 5, 8, dtype=torch.bool)


def test_kspace_keeps_what_it_is_given():
    kspace = KSpace(samples=SAMPLES, mask=MASK, noise_std=0.5).to("cpu")
    assert kspace.samples.shape == (2, 3, 5, 8)
    assert kspace.noise_std == 0.5


@pytest.mark.parametrize("samples", [SAMPLES.real, SAMPLES[0]], ids=["real", "one axis less"])
def test_samples_must_be_complex_with_four_axes(samples):
    with pytest.raises(ValueError, match=r"it must be complex with the axes \(slice, coil, ky, kx\)"):
        KSpace(samples=samples, mask=MASK, noise_std=1.0)


@pytest.mark.parametrize(
    "mask",
    [MASK.float(), MASK[:1], MASK.expand(2, 3, 5, 8), MASK[..., :1]],
    ids=lambda m: str(tuple(m.shape)),
)
def test_the_mask_must_fit_the_samples(mask):
    with pytest.raises(ValueError, match=r"need bool \(2, 1, 5, 8\)"):
        KSpace(samples=SAMPLES, mask=mask, noise_std=1.0)


@pytest.mark.parametrize("noise_std", [0.0, -1.0, float("nan")])
def test_the_noise_level_must_be_positive(noise_std):
    with pytest.raises(ValueError, match="it must be positive, in the units of samples"):
        KSpace(samples=SAMPLES, mask=MASK, noise_std=noise_std)
