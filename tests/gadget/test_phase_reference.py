"""Whose coil maps a phase is relative to."""

import numpy as np
import pytest
from test_series import context

from gadget.phase_reference import PhaseReferences

RNG = np.random.default_rng(4)
SHAPE = (7, 6)


def maps_with_phase(phase: np.ndarray) -> np.ndarray:
    """Normalised maps of three coils, all turned by a phase (y, x)."""
    maps = np.random.default_rng(8).normal(size=(3, *SHAPE, 2)) @ [1, 1j]
    return (maps / np.linalg.norm(maps, axis=0) * np.exp(1j * phase)).astype(np.complex64)


def phases() -> np.ndarray:
    return RNG.uniform(-3, 3, SHAPE)


def test_phase_differences_are_those_of_the_objects_whatever_phase_the_maps_took():
    objects = [RNG.gamma(2.0, size=SHAPE) * np.exp(1j * phases()) for _ in range(3)]
    references, sent = PhaseReferences(), []
    for number, one in enumerate(objects, start=1):
        taken = phases()
        image, reference = references.referred(
            (one * np.exp(-1j * taken)).astype(np.complex64),
            maps_with_phase(taken),
            context(contrast=number, set=5 - number, repetition=number),
            number,
        )
        sent.append(image)
        assert (reference.image_index, reference.is_shared) == (1, True)
        np.testing.assert_allclose(np.abs(image), np.abs(one), rtol=1e-5)
    for image, one in zip(sent[1:], objects[1:], strict=True):
        apart = np.angle(image * sent[0].conj() * (one * objects[0].conj()).conj())
        assert np.abs(apart).max() < 2e-3
    assert reference.words == (
        "phase relative to that of the coil maps estimated with image 1 (slice 4, contrast 1, phase 2, "
        "repetition 1, set 4, average 6), the first of this slice"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"slice": 5},
        {"encoding_index": 1},
        {"position": (1.5, -2.5, 30.5)},
        {"read_dir": (0.0, -1.0, 0.0)},
        {"grid_matrix": (6, 8)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_place_has_a_reference_of_its_own(change):
    references = PhaseReferences()
    image, maps = np.ones(SHAPE, np.complex64), maps_with_phase(np.zeros(SHAPE))
    references.referred(image, maps, context(), 1)
    same, reference = references.referred(image, np.complex64(1j) * maps, context(**change), 2)
    assert reference.image_index == 2
    assert (same == image).all()
    _, back = references.referred(image, maps, context(contrast=7), 3)
    assert back.image_index == 1


def test_memory_is_bounded_and_what_does_not_fit_says_so():
    maps = maps_with_phase(np.zeros(SHAPE))
    references = PhaseReferences(kept_bytes=maps.nbytes // 2)
    image = np.ones(SHAPE, np.complex64)
    references.referred(image, maps, context(slice=0), 1)
    _, lost = references.referred(image, maps, context(slice=1), 2)
    assert not lost.is_shared
    assert "no memory was left for maps" in lost.words
    assert "phase differences to its other images are not defined" in lost.words
    _, kept = references.referred(image, maps, context(slice=0, contrast=3), 3)
    assert (kept.image_index, kept.is_shared) == (1, True)


def test_an_image_of_zeros_is_nobodys_reference():
    references = PhaseReferences()
    maps = maps_with_phase(np.zeros(SHAPE))
    references.referred(np.zeros(SHAPE, np.complex64), np.zeros_like(maps), context(), 1)
    _, reference = references.referred(np.ones(SHAPE, np.complex64), maps, context(contrast=2), 2)
    assert reference.image_index == 2
