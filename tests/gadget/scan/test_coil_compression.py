"""Virtual coils: against numpy's SVD, and through the assembler."""

from dataclasses import replace

import numpy as np
import pytest
from labelled_scan import N_COLUMNS, N_ROWS, PROTOCOL, assembled, header_text, mixing, noise_of, std_of, white
from synthetic_scan import Spot, inverse_transform, kspace_of, readout

from gadget.assembly_settings import assembly_settings
from gadget.scan.assemble import AssembledSlice, AssemblySettings, NoiseSource
from gadget.scan.coil_compression import CompressionChoice, CompressionUse, coil_compression
from gadget.settings import Settings
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

ALWAYS = CompressionChoice(use=CompressionUse.ALWAYS)


def samples_of(n_coils: int = 9, n_modes: int = 3, noise: float = 0.02) -> np.ndarray:
    """Coils that mix a few sources, with a little noise."""
    sources = white(n_modes, 35, 1) * np.geomspace(3, 1, n_modes)[:, None]
    samples = mixing(n_coils)[:, :n_modes] @ sources + noise * white(n_coils, 35, 2)
    return samples.reshape(n_coils, 5, 7).astype(np.complex64)


@pytest.mark.parametrize("energy", [0.5, 0.9, 0.99, 0.9999])
def test_the_retained_energy_is_that_of_numpy_s_svd(energy: float) -> None:
    samples = samples_of()
    found = coil_compression(samples, replace(ALWAYS, energy=energy))
    singular = np.linalg.svd(samples.reshape(9, -1).astype(np.complex128), compute_uv=False)
    held = np.cumsum(singular**2) / np.sum(singular**2)
    assert found is not None
    n_virtual = found.matrix.shape[0]
    assert held[n_virtual - 1] >= energy > (held[n_virtual - 2] if n_virtual > 1 else 0)
    assert found.retained == pytest.approx(held[n_virtual - 1], abs=1e-6)
    mixed = found.matrix @ samples.reshape(9, -1)
    ratio = np.sum(np.abs(mixed) ** 2) / np.sum(np.abs(samples) ** 2)
    assert ratio == pytest.approx(held[n_virtual - 1], abs=1e-6)


def test_the_rows_are_orthonormal() -> None:
    found = coil_compression(samples_of(), replace(ALWAYS, n_virtual=4))
    assert found is not None
    assert found.matrix.shape == (4, 9)
    np.testing.assert_allclose(found.matrix @ found.matrix.conj().T, np.eye(4), atol=1e-12)


def test_nothing_is_compressed_where_that_takes_all_coils_or_there_is_no_signal() -> None:
    assert coil_compression(samples_of(), replace(ALWAYS, n_virtual=9)) is None
    assert coil_compression(samples_of(), replace(ALWAYS, energy=1.0)) is None
    assert coil_compression(np.zeros((9, 5, 7), np.complex64), ALWAYS) is None


@pytest.mark.parametrize(
    ("use", "n_coils", "expected"),
    [
        (CompressionUse.AUTO, 16, False),
        (CompressionUse.AUTO, 17, True),
        (CompressionUse.ALWAYS, 2, True),
        (CompressionUse.ALWAYS, 1, False),
        (CompressionUse.NEVER, 64, False),
    ],
)
def test_up_to_16_coils_nothing_is_compressed_unless_asked(
    use: CompressionUse, n_coils: int, expected: bool
) -> None:
    assert CompressionChoice(use=use).applies_to(n_coils) is expected


# Through the assembler

N_COILS = 18


def spots(contrast: float = 1.0) -> tuple[Spot, ...]:
    """Three spots, seen by 18 coils in three independent ways; the second one's brightness varies."""
    places = ((-23.0, 12.0), (17.5, -23.0), (5.0, 30.0))
    weights = white(N_COILS, 3, 21) + 2
    brightness = (1.0, contrast, 0.6)
    return tuple(
        Spot(x=x, y=y, amplitudes=tuple(complex(value) for value in 30 * bright * weights[:, number]))
        for number, ((x, y), bright) in enumerate(zip(places, brightness, strict=True))
    )


def lines(brightness: float, mix: np.ndarray, **fields: object) -> list[Acquisition]:
    kspace = kspace_of(spots(brightness), (N_COLUMNS, N_ROWS), PROTOCOL.encoded_fov[:2])
    kspace = kspace + (mix @ white(N_COILS, N_ROWS * N_COLUMNS, 5)).reshape(kspace.shape)
    return [
        readout(kspace[:, row], row, *([Flag.LAST_IN_SLICE] if row == N_ROWS - 1 else []), **fields)
        for row in range(N_ROWS)
    ]


def scan(choice: CompressionChoice, *, contrasts: tuple[float, ...] = (1.0,)) -> list[AssembledSlice]:
    mix = mixing(N_COILS) * 0.1
    readouts = [noise_of(mix @ white(N_COILS, 20_000, 6))]
    for number, contrast in enumerate(contrasts):
        readouts += lines(contrast, mix, contrast=number)
    return assembled(header_text(), readouts, AssemblySettings(coil_compression=choice))


def rss_of(slice_: AssembledSlice) -> np.ndarray:
    images = inverse_transform(slice_.kspace.samples[0].numpy())
    return np.sqrt(np.sum(np.abs(images) ** 2, axis=0))


def test_18_coils_that_see_three_things_become_few_and_the_image_stays() -> None:
    (full,) = scan(CompressionChoice(use=CompressionUse.NEVER))
    (few,) = scan(CompressionChoice(energy=0.999))
    assert full.kspace.samples.shape[1] == N_COILS
    n_virtual = few.kspace.samples.shape[1]
    assert few.context.n_coils == n_virtual
    assert 3 <= n_virtual < 9
    assert few.kspace.noise_std == full.kspace.noise_std == 1.0
    assert few.context.is_prewhitened
    error = np.abs(rss_of(few) - rss_of(full))[rss_of(full) > 0.2 * rss_of(full).max()]
    assert error.max() < 0.01 * rss_of(full).max()
    (note,) = [note for note in few.context.notes if "compressed to" in note]
    # Independent: the share that numpy's SVD gives to so many
    singular = np.linalg.svd(full.kspace.samples[0].numpy().reshape(N_COILS, -1), compute_uv=False)
    held = np.cumsum(singular**2) / np.sum(singular**2)
    assert held[n_virtual - 1] >= 0.999 > held[n_virtual - 2]
    assert note == (
        f"18 coils compressed to {n_virtual} virtual ones ({100 * held[n_virtual - 1]:.2f} % of the energy)"
    )


def test_the_noise_stays_1_after_compression() -> None:
    mix = mixing(N_COILS)
    noise = (mix @ white(N_COILS, N_ROWS * N_COLUMNS, 5)).reshape(N_COILS, N_ROWS, N_COLUMNS)
    readouts = [noise_of(mix @ white(N_COILS, 20_000, 6))]
    readouts += [readout(noise[:, row], row) for row in range(N_ROWS)]
    # Of pure noise all singular values are nearly the same, so any 17 directions have the noise of one coil.
    choice = replace(ALWAYS, n_virtual=17)
    (slice_,) = assembled(header_text(), readouts, AssemblySettings(coil_compression=choice))
    assert std_of(slice_) == pytest.approx(np.ones((2, 17)), abs=0.1)


def test_all_contrasts_of_a_slice_share_one_compression() -> None:
    choice = CompressionChoice(n_virtual=6)
    first, second = scan(choice, contrasts=(1.0, 0.3))
    full_first, full_second = scan(CompressionChoice(use=CompressionUse.NEVER), contrasts=(1.0, 0.3))
    # The matrix that took one to the other, by least squares
    full = full_first.kspace.samples[0].numpy().reshape(N_COILS, -1)
    few = first.kspace.samples[0].numpy().reshape(6, -1)
    matrix = few @ np.linalg.pinv(full)
    expected = matrix @ full_second.kspace.samples[0].numpy().reshape(N_COILS, -1)
    found = second.kspace.samples[0].numpy().reshape(6, -1)
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(found).max())


def test_the_order_of_slices_does_not_matter() -> None:
    mix = mixing(N_COILS) * 0.1
    noise = noise_of(mix @ white(N_COILS, 20_000, 6))
    slices = [lines(1.0, mix, slice=0), lines(0.3, mix, slice=1)]
    settings = AssemblySettings(coil_compression=CompressionChoice(n_virtual=6))
    up = assembled(header_text(), [noise, *slices[0], *slices[1]], settings)
    down = assembled(header_text(), [noise, *slices[1], *slices[0]], settings)
    assert [slice_.context.slice for slice_ in down] == [1, 0]
    for one, other in zip(up, sorted(down, key=lambda s: s.context.slice), strict=True):
        np.testing.assert_array_equal(one.kspace.samples.numpy(), other.kspace.samples.numpy())


def test_data_that_is_not_white_is_not_compressed_and_that_is_said() -> None:
    settings = AssemblySettings(noise=NoiseSource.DATA)
    (slice_,) = assembled(header_text(), lines(1.0, mixing(N_COILS)), settings)
    assert slice_.kspace.samples.shape[1] == N_COILS
    assert "coils not compressed: that needs prewhitened data" in slice_.context.notes


def test_data_that_came_white_is_compressed() -> None:
    settings = AssemblySettings(
        noise=NoiseSource.PREWHITENED, coil_compression=CompressionChoice(n_virtual=5)
    )
    (slice_,) = assembled(header_text(), lines(1.0, np.eye(N_COILS)), settings)
    assert slice_.kspace.samples.shape[1] == 5
    assert slice_.kspace.noise_std == 1.0


def test_the_default_of_the_settings_is_that_of_the_assembly() -> None:
    assert assembly_settings(Settings()) == AssemblySettings()
