"""What k-space refuses, and how it goes to a device."""

import pytest
import torch

from reconlib.kspace import KSpace, NonuniformKSpace

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


class Transfers:
    """Stands in for a CUDA device: tells how tensors go there, and leaves them on the CPU."""

    def __init__(self, patch: pytest.MonkeyPatch, *, can_pin: bool = True) -> None:
        self.told: list[tuple[str, torch.dtype]] = []
        to = torch.Tensor.to

        def pin_memory(tensor):
            if not can_pin:
                raise RuntimeError("CUDA error: out of memory")
            self.told.append(("pinned", tensor.dtype))
            return tensor.clone()

        def moved(tensor, device, *, non_blocking=False):
            if torch.device(device).type == "cpu":
                return to(tensor, device)
            self.told.append(("not waited for" if non_blocking else "waited for", tensor.dtype))
            return tensor

        patch.setattr(torch.Tensor, "pin_memory", pin_memory)
        patch.setattr(torch.Tensor, "to", moved)


POINTS = NonuniformKSpace(
    samples=torch.ones(2, 3, 5, dtype=torch.complex64),
    trajectory=torch.zeros(1, 5, 2, dtype=torch.float64),
    weights=torch.ones(1, 5),
    shape=(4, 6),
    noise_std=0.5,
)


@pytest.mark.parametrize(
    ("kspace", "dtypes"),
    [
        (KSpace(samples=SAMPLES, mask=MASK, noise_std=0.5), [torch.complex64, torch.bool]),
        (POINTS, [torch.complex64, torch.float64, torch.float32]),
    ],
    ids=["grid", "points"],
)
def test_nobody_waits_for_a_transfer_to_a_cuda_device(kspace, dtypes, monkeypatch):
    transfers = Transfers(monkeypatch)
    moved = kspace.to("cuda")
    assert transfers.told == [(how, dtype) for dtype in dtypes for how in ("pinned", "not waited for")]
    assert torch.equal(moved.samples, kspace.samples)
    assert moved.noise_std == 0.5


def test_where_no_memory_can_be_pinned_the_transfer_is_waited_for(monkeypatch):
    transfers = Transfers(monkeypatch, can_pin=False)
    KSpace(samples=SAMPLES, mask=MASK, noise_std=0.5).to("cuda:0")
    assert transfers.told == [("waited for", torch.complex64), ("waited for", torch.bool)]


def test_on_a_cpu_nothing_is_copied(monkeypatch):
    transfers = Transfers(monkeypatch)
    moved = POINTS.to("cpu")
    assert transfers.told == []
    assert moved.samples is POINTS.samples
    assert moved.trajectory is POINTS.trajectory
    assert moved.weights is POINTS.weights


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_transfer_brings_what_was_there_when_it_began(generator):
    """Memory of transfers that are under way is not used for others."""
    stacks = [torch.randn(8, 8, 256, 256, dtype=torch.complex64, generator=generator) for _ in range(4)]
    mask = torch.ones(8, 1, 256, 256, dtype=torch.bool)
    moved = []
    for samples in stacks:
        source = samples.clone()
        moved.append(KSpace(samples=source, mask=mask, noise_std=1.0).to("cuda").samples)
        source.zero_()
    for found, expected in zip(moved, stacks, strict=True):
        assert torch.equal(found.cpu(), expected)
