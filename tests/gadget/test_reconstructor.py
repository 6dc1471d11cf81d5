"""The safety net round the joint reconstruction: every slice gets an image, and the image says which."""

import logging
import traceback

import numpy as np
import pytest
import torch
import yaml
from simulated_scans import TOTAL_VARIATION, StandIn, reconstructor, settings

from gadget.configs import prior_folders
from gadget.errors import SettingsError
from gadget.reconstructor import ImageKind, Reconstructor, find_device, reconstruction_settings
from gadget.settings import Settings
from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace
from reconlib.priors.library import find_prior
from reconlib.reconstruction import ReconstructionSettings


@pytest.fixture
def slices(generator):
    """Return k-space of three slices, 4 coils, 9 x 7 pixels."""
    made = []
    for _ in range(3):
        samples = torch.complex(*torch.randn(2, 1, 4, 9, 7, generator=generator))
        made.append(KSpace(samples=samples, mask=torch.ones(1, 1, 9, 7, dtype=torch.bool), noise_std=1.0))
    return made


def root_sum_of_squares(kspace: KSpace) -> np.ndarray:
    axes = (-2, -1)
    shifted = np.fft.ifftshift(kspace.samples.numpy()[0], axes=axes)
    images = np.fft.fftshift(np.fft.ifft2(shifted, norm="ortho"), axes=axes)
    return np.sqrt((np.abs(images) ** 2).sum(0))


def test_a_batch_gives_one_result_for_each_slice_in_order(slices):
    joint = StandIn()

    results = reconstructor(joint)(slices, TOTAL_VARIATION)

    assert [len(batch.samples) for batch in joint.batches] == [3]
    torch.testing.assert_close(joint.batches[0].samples[1], slices[1].samples[0])
    assert [result.image[0, 0].real for result in results] == [1, 2, 3]
    assert all(result.image.shape == (9, 7) and result.coils.shape == (4, 9, 7) for result in results)
    assert all(result.kind is ImageKind.RECONSTRUCTED for result in results)


def test_the_numbers_of_the_reconstruction_reach_the_result(slices):
    (result,) = reconstructor(StandIn())(slices[:1], TOTAL_VARIATION)

    assert (result.iterations, result.scale, result.noise_level) == (7, 0.5, 0.25)
    assert (result.prior_weight, result.mean_coil_magnitude) == (0.125, 0.75)
    assert (result.image_phase, result.prior_weight_rule) == ("real", "noise")
    assert result.outcome == "ran its full number of iterations"
    assert result.prior_version


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.CONVERGED, ImageKind.RECONSTRUCTED),
        (Outcome.OUT_OF_ITERATIONS, ImageKind.RECONSTRUCTED),
        (Outcome.OUT_OF_TIME, ImageKind.OUT_OF_TIME),
        (Outcome.ALL_ZERO, ImageKind.ALL_ZERO),
        (Outcome.NOT_FINITE, ImageKind.FALLBACK),
    ],
)
def test_each_outcome_has_its_kind_of_image(slices, outcome, kind):
    (result,) = reconstructor(StandIn(outcomes=[outcome]))(slices[:1], TOTAL_VARIATION)

    assert (result.kind, result.outcome) == (kind, outcome.value)


def test_a_time_limit_that_leaves_no_iteration_gives_a_fallback_that_says_so(slices):
    def not_once(result):
        result.n_iterations = (0,)

    joint = StandIn(outcomes=[Outcome.OUT_OF_TIME], misbehave=not_once)
    (result,) = reconstructor(joint)(slices[:1], TOTAL_VARIATION)

    assert (result.kind, result.outcome) == (ImageKind.FALLBACK, "stopped at its time limit")
    np.testing.assert_allclose(result.image, root_sum_of_squares(slices[0]), rtol=1e-5)


def test_every_outcome_is_covered():
    assert len(Outcome) == 5


def test_a_failure_gives_the_zero_filled_image(slices, caplog):
    def fail(_result):
        raise RuntimeError("svd did not converge")

    (result,) = reconstructor(StandIn(misbehave=fail))(slices[:1], TOTAL_VARIATION)

    assert result.kind is ImageKind.FALLBACK
    assert result.outcome == "RuntimeError in the joint reconstruction"
    assert result.coils is None
    assert result.iterations is None
    np.testing.assert_allclose(result.image, root_sum_of_squares(slices[0]), rtol=1e-5)
    assert "svd did not converge" in caplog.text


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_running_out_of_memory_gives_a_fallback_that_says_so(slices, error):
    def fail(_result):
        raise error

    (result,) = reconstructor(StandIn(misbehave=fail))(slices[:1], TOTAL_VARIATION)

    assert (result.kind, result.outcome) == (ImageKind.FALLBACK, "out of memory")


def test_a_batch_that_fails_is_tried_slice_by_slice(slices):
    def fail(result):
        if len(result.outcomes) > 1 or result.image[0, 0, 0, 0].real == 7:
            raise MemoryError

    results = reconstructor(StandIn(misbehave=fail))(slices, TOTAL_VARIATION)

    assert [result.kind.name for result in results] == ["RECONSTRUCTED", "FALLBACK", "RECONSTRUCTED"]
    np.testing.assert_allclose(results[1].image, root_sum_of_squares(slices[1]), rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_image_that_is_not_finite_is_replaced_for_its_slice_alone(slices, value):
    def spoil(result):
        result.image[1, 0, 4, 3] = value

    results = reconstructor(StandIn(misbehave=spoil))(slices, TOTAL_VARIATION)

    assert [result.kind.name for result in results] == ["RECONSTRUCTED", "FALLBACK", "RECONSTRUCTED"]
    assert results[1].outcome == "the iterate has infinities or NaNs"


def test_an_interrupt_is_not_a_failure_to_recover_from(slices):
    def interrupt(_result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reconstructor(StandIn(misbehave=interrupt))(slices[:1], TOTAL_VARIATION)


def test_the_time_limit_counts_per_slice(slices):
    now = [100.0]
    joint = StandIn()
    reconstruct = reconstructor(joint, clock=lambda: now[0])
    reconstruct(slices, settings(solver__time_limit_s=2))
    out_of_time = joint.calls[0]["out_of_time"]

    now[0] = 105.9
    assert not out_of_time()
    now[0] = 106.0
    assert out_of_time()


def test_without_a_time_limit_only_a_peer_that_is_gone_stops_it(slices):
    joint = StandIn()
    gone = [False]
    reconstructor(joint)(slices, TOTAL_VARIATION, lambda: gone[0])
    out_of_time = joint.calls[0]["out_of_time"]

    assert not out_of_time()
    gone[0] = True
    assert out_of_time()


def test_seconds_are_those_of_the_batch_shared_among_its_slices(slices):
    times = iter([10.0, 16.0])

    results = reconstructor(StandIn(), clock=lambda: next(times))(slices, TOTAL_VARIATION)

    assert [result.seconds for result in results] == [2.0, 2.0, 2.0]


def test_the_seed_and_the_settings_are_passed_on(slices):
    joint = StandIn()

    reconstructor(joint)(slices, settings(seed=9, solver__iterations=4, image_phase="real"))

    assert joint.calls[0]["seed"] == 9
    assert joint.calls[0]["settings"].iterations == 4
    assert joint.calls[0]["settings"].image_phase == "real"


def test_the_default_settings_are_those_of_the_reconstruction():
    assert reconstruction_settings(Settings()) == ReconstructionSettings()


def test_every_choice_is_translated():
    chosen = settings(
        image_phase="soft",
        solver__iterations=3,
        solver__method="paper",
        solver__coil_smoothness=2,
        solver__tolerance=0.1,
        solver__imaginary_weight=0.5,
        prior_weight__rule="fixed",
        prior_weight__value=5,
        prior_weight__factor=6,
    )

    assert reconstruction_settings(chosen) == ReconstructionSettings(
        image_phase="soft",
        solver="paper",
        iterations=3,
        coil_smoothness=2.0,
        tolerance=0.1,
        imaginary_weight=0.5,
        prior_weight_rule="fixed",
        prior_weight=5.0,
        prior_weight_factor=6.0,
    )


def test_a_prior_is_loaded_once():
    reconstruct = reconstructor(StandIn())

    assert reconstruct.load(TOTAL_VARIATION) is reconstruct.load(TOTAL_VARIATION)


def test_an_unknown_prior_is_refused_by_name():
    with pytest.raises(SettingsError, match=r"prior: .*no-such-prior"):
        reconstructor(StandIn()).load(settings(prior="no-such-prior"))


def test_the_rule_fit_needs_a_card_with_a_fit(tmp_path):
    shipped = find_prior("tv", prior_folders()) / "card.yaml"
    card = yaml.safe_load(shipped.read_text(encoding="utf-8"))
    card |= {"name": "unfitted", "prior_weight": {"rule": "noise"}}
    (tmp_path / "unfitted").mkdir()
    (tmp_path / "unfitted" / "card.yaml").write_text(yaml.safe_dump(card), encoding="utf-8")
    reconstruct = reconstructor(StandIn(), prior_search=[tmp_path])

    reconstruct.load(settings(prior="unfitted"))
    with pytest.raises(SettingsError, match=r"prior_weight\.rule: the card of the prior unfitted has no fit"):
        reconstruct.load(settings(prior="unfitted", prior_weight__rule="fit"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_without_a_device_is_refused():
    with pytest.raises(SettingsError, match="device: 'cuda' was asked for, but there is no CUDA device here"):
        Reconstructor("cuda")


def test_the_cpu_can_be_chosen_anywhere():
    assert find_device("cpu") == torch.device("cpu")


def test_auto_finds_a_device():
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_failure_is_logged_once_with_its_place(slices, caplog):
    def fail(_result):
        raise RuntimeError("broken")

    reconstructor(StandIn(misbehave=fail))(slices[:1], TOTAL_VARIATION)

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert traceback.extract_tb(record.exc_info[2])[-1].name == "fail"


def test_fixed_coils_give_a_single_coil_the_map_one_and_refuse_more(slices):
    joint = StandIn()
    one_coil = KSpace(samples=slices[0].samples[:, :1], mask=slices[0].mask, noise_std=slices[0].noise_std)

    reconstructor(joint)([one_coil], settings(prior="tv", coils="fixed"))
    assert bool((joint.calls[-1]["coils"] == torch.ones(1, 1, 9, 7)).all())
    reconstructor(joint)(slices[:1], TOTAL_VARIATION)
    assert joint.calls[-1]["coils"] is None
    with pytest.raises(SettingsError, match=r"single coil.*has 4 coils.*Set coils to joint"):
        reconstructor(joint)(slices[:1], settings(prior="tv", coils="fixed"))
