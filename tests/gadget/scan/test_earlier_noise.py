"""Noise of an earlier measurement, named by measurementDependency."""

import logging

import numpy as np
import pytest
from labelled_scan import (
    Shelf,
    assembled,
    header_text,
    lines_of_noise,
    mixing,
    noise_of,
    std_of,
    white,
)

from gadget.errors import ScanError
from gadget.scan.assemble import AssembledSlice, AssemblySettings, NoiseSource

NAMES = ("H1", "H2", "H3", "H4")
ADJUSTMENT = "45387_1079885_1079904_343"


def shelf_with(
    mix: np.ndarray, names: tuple[str, ...], *, dwell_us: float = 20.0, bandwidth: float | None = 1.0
) -> Shelf:
    """Return what an adjustment measurement of only noise leaves behind."""
    shelf = Shelf()
    noise = noise_of(mix @ white(mix.shape[0], 5000, 1), sample_time_us=dwell_us)
    text = header_text(names, own_id=ADJUSTMENT, bandwidth=bandwidth)
    assert assembled(text, [noise], AssemblySettings(noise_store=shelf)) == []
    return shelf


def scan(
    mix: np.ndarray,
    names: tuple[str, ...],
    shelf: Shelf | None,
    *,
    kind: str = "Noise",
    dwell_us: float = 5.0,
) -> AssembledSlice:
    text = header_text(names, dependency=f"{kind}={ADJUSTMENT}")
    image = lines_of_noise(mix, sample_time_us=dwell_us)
    (slice_,) = assembled(text, image, AssemblySettings(noise_store=shelf))
    return slice_


@pytest.mark.parametrize("kind", ["Noise", "noise", "NOISE"])
def test_noise_of_an_adjustment_measurement_whitens_a_later_scan(kind: str) -> None:
    mix = mixing(4)
    # The scan's header says 1, that of the noise 0.8: the noise readouts' own bandwidth counts.
    shelf = shelf_with(mix, NAMES, bandwidth=0.8)
    slice_ = scan(mix * np.sqrt(20 / 5 / 0.8), NAMES, shelf, kind=kind)
    assert slice_.context.is_prewhitened
    assert slice_.kspace.noise_std == 1.0
    assert std_of(slice_) == pytest.approx(np.ones((2, 4)), abs=0.07)
    assert (
        "prewhitened with 5000 noise samples of 1 readout(s) of an earlier measurement"
        in slice_.context.notes
    )


def test_coils_in_another_order_are_matched_by_name() -> None:
    mix = mixing(4, spread=30.0)
    order = [2, 0, 3, 1]
    shelf = shelf_with(mix, NAMES, dwell_us=5.0)
    slice_ = scan(mix[order], tuple(NAMES[row] for row in order), shelf)
    assert std_of(slice_) == pytest.approx(np.ones((2, 4)), abs=0.07)
    assert "coils of the earlier noise measurement matched by name" in slice_.context.notes


def test_fewer_coils_than_the_noise_has_are_matched_by_name() -> None:
    mix = mixing(4, spread=30.0)
    shelf = shelf_with(mix, NAMES, dwell_us=5.0)
    image = lines_of_noise(mix[[3, 1]], sample_time_us=5.0)
    text = header_text(("H4", "H2"), dependency=f"Noise={ADJUSTMENT}")
    (slice_,) = assembled(text, image, AssemblySettings(noise_store=shelf))
    assert std_of(slice_) == pytest.approx(np.ones((2, 2)), abs=0.07)


def test_noise_without_one_of_the_coils_is_not_used_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf = shelf_with(mixing(4), NAMES)
    slice_ = scan(mixing(4), ("H1", "H2", "H3", "Neck"), shelf)
    assert not slice_.context.is_prewhitened
    why = "the earlier noise measurement that the header names cannot be used: it has no coil(s) Neck (3)"
    assert any(f"({why})" in note for note in slice_.context.notes)
    assert why in caplog.text
    assert ADJUSTMENT not in caplog.text


def test_as_many_coils_without_names_are_taken_in_order_and_that_is_said() -> None:
    mix = mixing(4, spread=30.0)
    slice_ = scan(mix * 2, (), shelf_with(mix, ()))
    assert std_of(slice_) == pytest.approx(np.ones((2, 4)), abs=0.07)
    assert any("names are not known: taken in the order" in note for note in slice_.context.notes)


def test_noise_that_is_not_kept_and_no_cache_are_said() -> None:
    missing = scan(mixing(4), NAMES, Shelf())
    assert any("that the header names is not in noise.cache)" in note for note in missing.context.notes)
    no_cache = scan(mixing(4), NAMES, None)
    assert any("earlier noise measurement, but noise.cache is not set)" in n for n in no_cache.context.notes)


def test_a_scan_s_own_noise_readouts_go_before_and_are_kept() -> None:
    shelf = shelf_with(mixing(4) * 100, NAMES)
    mix = mixing(4)
    text = header_text(NAMES, dependency=f"Noise={ADJUSTMENT}", own_id="m_18")
    readouts = [noise_of(mix @ white(4, 5000, 5)), *lines_of_noise(mix)]
    (slice_,) = assembled(text, readouts, AssemblySettings(noise_store=shelf))
    assert std_of(slice_) == pytest.approx(np.ones((2, 4)), abs=0.07)
    expected = 2 * mix @ mix.conj().T
    np.testing.assert_allclose(shelf.noise["m_18"].matrix, expected, atol=0.1 * np.abs(expected).max())
    assert shelf.noise["m_18"].coil_names == NAMES


def test_noise_is_kept_even_where_the_scan_then_fails() -> None:
    shelf = Shelf()
    readouts = [noise_of(white(4, 500, 5)), *lines_of_noise(mixing(4), encoding_space_ref=3)[:1]]
    with pytest.raises(ScanError, match="encoding_space_ref 3"):
        assembled(header_text(NAMES), readouts, AssemblySettings(noise_store=shelf))
    bad = lines_of_noise(mixing(4))[0]
    bad.data[0, 3] = np.nan
    with pytest.raises(ScanError, match="NaN"):
        assembled(header_text(NAMES), [readouts[0], bad], AssemblySettings(noise_store=shelf))
    assert shelf.noise["m_17"].n_samples == 500


def test_all_noise_readouts_of_a_measurement_are_kept_together() -> None:
    shelf = Shelf()
    mix = mixing(4)
    image = lines_of_noise(mix)
    readouts = [noise_of(white(4, 500, 5)), *image[:10], noise_of(white(4, 300, 6)), *image[10:]]
    assembled(header_text(NAMES), readouts, AssemblySettings(noise_store=shelf))
    assert shelf.noise["m_17"].n_samples == 800


@pytest.mark.parametrize("noise", [NoiseSource.DATA, NoiseSource.PREWHITENED])
def test_nothing_is_looked_up_where_noise_readouts_are_not_asked_for(noise: NoiseSource) -> None:
    shelf = shelf_with(mixing(4), NAMES)
    text = header_text(NAMES, dependency=f"Noise={ADJUSTMENT}")
    (slice_,) = assembled(text, lines_of_noise(mixing(4)), AssemblySettings(noise=noise, noise_store=shelf))
    assert slice_.context.is_prewhitened is (noise is NoiseSource.PREWHITENED)
    assert not any("earlier" in note for note in slice_.context.notes)


def test_measurement_ids_are_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    scan(mixing(4), NAMES, shelf_with(mixing(4), NAMES))
    assert ADJUSTMENT not in caplog.text
