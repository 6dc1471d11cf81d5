"""Noise readouts to prewhitening: measured on simulated noise whose covariance is chosen."""

import numpy as np
import pytest

from gadget.errors import ScanError
from gadget.scan.noise import NoiseScan, Prewhitening, noise_std_from_edges

N_COILS = 5


def mixing_matrix(condition: float) -> np.ndarray:
    """Colour white noise so that its covariance has this condition number."""
    rng = np.random.default_rng(3)
    normal = rng.normal(size=(2, N_COILS, N_COILS))
    unitary, _ = np.linalg.qr(normal[0] + 1j * normal[1])
    return (unitary * np.sqrt(np.geomspace(1, condition, N_COILS))) * 1e-5


def white(n_samples: int, seed: int = 1) -> np.ndarray:
    """Complex noise with E|n|^2 = 2 in each of the coils."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N_COILS, n_samples)) + 1j * rng.normal(size=(N_COILS, n_samples))


def scan_of(*readouts: tuple[np.ndarray, float]) -> NoiseScan:
    scan = NoiseScan()
    for data, dwell_us in readouts:
        scan.add(data.astype(np.complex64), dwell_us)
    return scan


def whitening_of(*readouts: tuple[np.ndarray, float], names: tuple[str, ...] = ()) -> Prewhitening:
    covariance = scan_of(*readouts).covariance(names)
    assert covariance is not None
    whitening = covariance.prewhitening()
    assert whitening is not None
    return whitening


def test_correlated_noise_of_condition_200_comes_out_white_with_std_1() -> None:
    mixing = mixing_matrix(200.0)
    whitening = whitening_of((mixing @ white(60_000), 10.0))
    # The true covariance, not the estimate: 2 I to the precision of 60,000 samples (1 / sqrt(60000) = 0.004).
    exact = whitening.matrix @ (2 * mixing @ mixing.conj().T) @ whitening.matrix.conj().T
    np.testing.assert_allclose(exact, 2 * np.eye(N_COILS), atol=0.04)
    # Other noise of the same coils.
    other = whitening.matrix @ (mixing @ white(50_000, seed=2))
    assert np.std(other.real, axis=1) == pytest.approx(np.ones(N_COILS), abs=0.02)
    assert np.std(other.imag, axis=1) == pytest.approx(np.ones(N_COILS), abs=0.02)


def test_readouts_of_different_lengths_are_pooled() -> None:
    noise = mixing_matrix(20.0) @ white(3000)
    one = whitening_of((noise, 10.0))
    three = whitening_of((noise[:, :7], 10.0), (noise[:, 7:1200], 10.0), (noise[:, 1200:], 10.0))
    np.testing.assert_allclose(three.matrix, one.matrix, rtol=1e-10)
    assert "3000 noise samples of 3 readout(s)" in three.notes[0]


def test_noise_readouts_of_another_dwell_time_are_scaled() -> None:
    # Noise power is inversely proportional to the dwell time: four times the dwell time, half the noise.
    noise = white(40_000)
    mixed = whitening_of((noise, 5.0), (white(40_000, seed=9) / 2, 20.0))
    assert np.abs(np.diag(mixed.matrix)) == pytest.approx(np.ones(N_COILS), abs=0.02)
    assert any("different dwell times were scaled to 5 us" in note for note in mixed.notes)


@pytest.mark.parametrize(
    ("imaging_us", "noise_us", "bandwidth", "expected"),
    [(2.5, 10.0, 1.0, 0.5), (10.0, 10.0, 0.64, 0.8), (0.0, 10.0, 0.5, 1.0), (2.5, 0.0, 0.5, 1.0)],
)
def test_the_scale_follows_dwell_times_and_bandwidth(
    imaging_us: float, noise_us: float, bandwidth: float, expected: float
) -> None:
    whitening = whitening_of((white(1000), noise_us))
    assert whitening.scale(imaging_us, bandwidth) == pytest.approx(expected)


def test_the_scale_is_said_in_words() -> None:
    whitening = whitening_of((white(1000), 10.0))
    said = whitening.describe_scale(2.5, 0.793, from_header=False)
    assert said == (
        "dwell times 2.5 us (data) and 10 us (noise), relative noise bandwidth 0.793 (the default, none in "
        "the header)"
    )
    assert "not known" in whitening.describe_scale(0.0, 0.793, from_header=False)


def test_a_dead_coil_is_left_out() -> None:
    noise = white(2000)
    noise[2] = 0
    whitening = whitening_of((noise, 10.0))
    assert whitening.kept_coils == (0, 1, 3, 4)
    assert whitening.matrix.shape == (4, 5)
    assert np.isfinite(whitening.matrix).all()
    assert np.abs(whitening.matrix[:, 2]).max() == 0
    assert any(note.startswith("coil(s) 2 (counted from 0) left out") for note in whitening.notes)


def test_a_copied_coil_is_left_out() -> None:
    noise = white(2000)
    noise[4] = (0.3 - 2j) * noise[1]
    whitening = whitening_of((noise, 10.0))
    assert whitening.kept_coils == (0, 1, 2, 3)
    assert np.abs(whitening.matrix).max() < 2


def test_weak_coils_are_not_taken_for_dead_ones() -> None:
    noise = white(2000) * np.geomspace(1, 1e-4, N_COILS)[:, None]
    whitening = whitening_of((noise, 10.0))
    assert whitening.kept_coils == (0, 1, 2, 3, 4)


def test_too_few_samples_whiten_each_coil_for_itself() -> None:
    whitening = whitening_of((mixing_matrix(5.0) @ white(19), 10.0))
    off_diagonal = whitening.matrix - np.diag(np.diag(whitening.matrix))
    assert np.abs(off_diagonal).max() == 0
    assert any("only 19 noise samples for 5 coils: their correlations" in note for note in whitening.notes)


def test_noise_readouts_of_zeros_and_none_at_all_give_no_whitening() -> None:
    assert scan_of((np.zeros((3, 100)), 10.0)).covariance() is None
    assert NoiseScan().covariance() is None


def test_noise_readouts_of_different_coil_counts_are_refused() -> None:
    scan = scan_of((white(10), 10.0))
    with pytest.raises(ScanError, match="Noise readouts have 5 and 4 coils; all need the same number"):
        scan.add(white(10)[:4].astype(np.complex64), 10.0)


def test_the_noise_level_from_k_space_edges_stands_a_few_large_samples() -> None:
    rng = np.random.default_rng(5)
    std = np.array([1.0, 2.0, 3.0])
    samples = rng.normal(size=(40, 3, 60)) + 1j * rng.normal(size=(40, 3, 60))
    samples *= std[:, None]
    samples[0, :, :20] += 1000.0
    measured = noise_std_from_edges(samples.astype(np.complex64))
    # Root mean square of the coils; 4800 numbers a coil, and less than 1 % are outliers.
    assert measured == pytest.approx(np.sqrt(np.mean(std**2)), rel=0.03)


def test_a_coil_without_signal_does_not_count_in_the_noise_level() -> None:
    rng = np.random.default_rng(5)
    samples = rng.normal(size=(40, 2, 60)) + 1j * rng.normal(size=(40, 2, 60))
    samples[:, 1] = 0
    assert noise_std_from_edges(samples.astype(np.complex64)) == pytest.approx(1.0, rel=0.03)
    assert noise_std_from_edges(np.zeros((4, 2, 6), np.complex64)) == 0


@pytest.mark.parametrize("n_samples", [20, 25, 40])
def test_few_noise_samples_do_not_make_other_noise_look_larger(n_samples: int) -> None:
    # Uncorrected, other noise of 5 coils would come out at sqrt(n / (n - 5)): 1.15, 1.12 and 1.07.
    mixing = mixing_matrix(50.0)
    power = []
    for seed in range(150):
        whitening = whitening_of((mixing @ white(n_samples, seed=seed), 10.0))
        power.append(np.mean(np.sum(np.abs(whitening.matrix @ mixing) ** 2, axis=1)))
    assert np.sqrt(np.mean(power)) == pytest.approx(1.0, abs=0.03)


def test_coils_are_named_where_names_are_known() -> None:
    noise = white(2000)
    noise[1] = 0
    noise[4] = 2 * noise[3]
    notes = whitening_of((noise, 10.0), names=("H1", "H2", "H3", "H4", "H5")).notes
    assert "coil(s) H2 (1) left out: no noise in the noise readouts" in notes
    assert "coil(s) H5 (4) left out: next to no noise, or only a copy of other coils'" in notes


def test_the_noise_of_a_coil_that_is_silent_in_one_of_the_readouts_is_not_known() -> None:
    gap = white(2000)
    gap[3] = 0
    whitening = whitening_of((white(2000, seed=2), 10.0), (gap, 10.0))
    assert whitening.kept_coils == (0, 1, 2, 4)


def test_coils_without_data_are_whitened_away_as_if_they_were_not_there() -> None:
    noise = mixing_matrix(20.0) @ white(4000)
    full = scan_of((noise, 10.0)).covariance()
    assert full is not None
    part = full.prewhitening(left_out=(1,))
    assert part is not None
    without = whitening_of((noise[[0, 2, 3, 4]], 10.0))
    np.testing.assert_allclose(part.matrix[:, [0, 2, 3, 4]], without.matrix, rtol=1e-10)
    assert np.abs(part.matrix[:, 1]).max() == 0


def test_the_first_dwell_time_that_is_known_is_the_one_that_counts() -> None:
    whitening = whitening_of((white(1000), 0.0), (white(1000, seed=4), 8.0))
    assert whitening.dwell_us == 8.0
