"""The sampling of a batch: scales, seeds, batches, pauses, memory, and how it says that it ended."""

import math

import jaxtyping
import pytest
import torch
from gaussian_scans import NO_IMAGINARY_PRIOR, Quadratic, Roughness, prior_of, reconstruction_of, scan

from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.posterior.run import PosteriorRun, sample_posterior
from reconlib.posterior.settings import PosteriorSettings
from reconlib.posterior.target import PosteriorTarget
from reconlib.reconstruction import Reconstruction, ReconstructionSettings, reconstruct

SHORT = PosteriorSettings(chains=2, warmup=6, draws=12)
TV = prior_of(TotalVariation(temperature=0.05))


def replaced(reconstruction, **changes):
    values = {name: getattr(reconstruction, name) for name in Reconstruction.__slots__}
    return Reconstruction(**(values | changes))


def quick(
    kspace, coils, image, *, settings=SHORT, energy=Quadratic(), weight=0.3, run=sample_posterior, **more
):
    return run(
        kspace,
        reconstruction_of(kspace, coils, image, weight=weight),
        prior=prior_of(energy),
        settings=settings,
        solver=NO_IMAGINARY_PRIOR,
        **more,
    )


def assert_same(found, expected, rtol=1e-4):
    scale = float(expected.std.max())
    torch.testing.assert_close(found.mean, expected.mean, rtol=rtol, atol=rtol * scale)
    torch.testing.assert_close(found.std, expected.std, rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize("sampler", ["kinetic", "langevin", "mala", "sk-rock"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(sampler, generator):
    case = scan(generator, n_slices=2, grid=(7, 9))
    settings = PosteriorSettings(sampler=sampler, chains=2, warmup=6, draws=8)
    first, again, other = (quick(*case, settings=settings, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(first.std, again.std)
    assert first.worst_rhat == again.worst_rhat
    assert not torch.equal(first.mean, other.mean)


@pytest.mark.parametrize("factor", [1e-9, 1e6])
def test_scaling_the_scan_scales_the_draws_and_nothing_else(factor, generator):
    """A reconstruction of scaled samples is scaled back by its scale: the image in these tests is about 1."""
    kspace, coils, image = scan(generator, n_slices=2, grid=(7, 9))
    results = []
    for c in (1.0, factor):
        scaled = KSpace(samples=c * kspace.samples, mask=kspace.mask, noise_std=c * kspace.noise_std)
        reconstruction = reconstruction_of(scaled, coils, c * image, weight=0.003, scale=1 / c)
        results.append(sample_posterior(scaled, reconstruction, prior=TV, settings=SHORT))
    plain, scaled = results
    scale = float(plain.std.max())
    torch.testing.assert_close(scaled.mean / factor, plain.mean, rtol=0, atol=1e-3 * scale)
    torch.testing.assert_close(scaled.std / factor, plain.std, rtol=0, atol=1e-3 * scale)
    assert scaled.sigma == pytest.approx(plain.sigma)
    assert scaled.effective_temperature == pytest.approx(plain.effective_temperature)
    assert scaled.worst_rhat == pytest.approx(plain.worst_rhat, rel=1e-3)
    assert scaled.outcomes == plain.outcomes


@pytest.mark.parametrize("sampler", ["kinetic", "mala"])
def test_a_slice_does_not_depend_on_its_neighbours(sampler, generator):
    kspace, coils, image = scan(generator, n_slices=3, grid=(7, 9))
    settings = PosteriorSettings(sampler=sampler, chains=2, warmup=6, draws=12)
    together = quick(kspace, coils, image, settings=settings)
    one = KSpace(samples=kspace.samples[1:2], mask=kspace.mask[1:2], noise_std=kspace.noise_std)
    alone = quick(one, coils[1:2], image[1:2], settings=settings)
    torch.testing.assert_close(together.mean[1:2], alone.mean)
    torch.testing.assert_close(together.std[1:2], alone.std)
    assert together.worst_rhat[1] == pytest.approx(alone.worst_rhat[0], rel=1e-3)


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 7])
def test_chunks_of_rows_change_nothing(chunk, generator, monkeypatch):
    case = scan(generator, n_slices=3, grid=(7, 9))
    settings = PosteriorSettings(chains=3, warmup=2, draws=6)
    expected = quick(*case, settings=settings)
    monkeypatch.setattr("reconlib.posterior.target.rows_that_fit", lambda *_: chunk)
    assert_same(quick(*case, settings=settings), expected)


def test_out_of_device_memory_halves_the_chunk_and_goes_on(generator, monkeypatch, caplog):
    case = scan(generator, n_slices=2, grid=(7, 9))
    settings = PosteriorSettings(chains=4, warmup=2, draws=6)
    expected = quick(*case, settings=settings)
    plain = PosteriorTarget._evaluate_piece

    def small_device(self, image, *rest):
        if len(image) > 3:
            raise torch.OutOfMemoryError("made up")
        plain(self, image, *rest)

    monkeypatch.setattr(PosteriorTarget, "_evaluate_piece", small_device)
    monkeypatch.setattr("reconlib.posterior.target.rows_that_fit", lambda *_: 8)
    assert_same(quick(*case, settings=settings), expected)
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "going on with 4 chains at once",
        "going on with 2 chains at once",
    ]


def test_memory_that_does_not_suffice_for_one_chain_is_an_error(generator, monkeypatch):
    def no_memory(*_):
        raise torch.OutOfMemoryError("made up")

    monkeypatch.setattr(PosteriorTarget, "_evaluate_piece", no_memory)
    with pytest.raises(torch.OutOfMemoryError, match="made up"):
        quick(*scan(generator, grid=(7, 9)))


def test_a_run_that_is_paused_and_looked_at_ends_as_one_that_is_not(generator):
    case = scan(generator, n_slices=2, grid=(7, 9))
    steps = []
    expected = quick(*case, on_step=lambda done, total: steps.append((done, total)))
    run = quick(*case, run=PosteriorRun)
    torch.randn(5)
    assert (run.n_done, run.n_kept) == (0, 0)
    assert run.result().outcomes == (PosteriorOutcome.TOO_SHORT,) * 2
    while run.advance():
        run.result()
        torch.randn(3)
    found = run.result()
    assert torch.equal(found.mean, expected.mean)
    assert torch.equal(found.std, expected.std)
    assert run.n_done == run.n_steps == steps[-1][0] == steps[-1][1]
    assert run.n_kept == 12
    assert not run.advance()


def test_thinning_keeps_every_second_image(generator):
    case = scan(generator, grid=(7, 9))
    seen = []

    def all_draws(image):
        seen.append(image.clone())
        return image

    quick(*case, settings=PosteriorSettings(chains=2, warmup=3, draws=12), to_output=all_draws)
    every = [image for image in seen if len(image) == 2]
    seen.clear()
    posterior = quick(
        *case, settings=PosteriorSettings(chains=2, warmup=3, draws=6, thin=2), to_output=all_draws
    )
    kept = [image for image in seen if len(image) == 2]
    assert posterior.n_draws == len(kept) == 6
    for number, image in enumerate(kept):
        assert torch.equal(image, every[2 * number + 1])


def test_the_result_is_on_the_output_grid(generator):
    """A linear map of the draws: here the mean of pairs of columns, and a crop."""

    def to_output(image):
        return (image[..., ::2] + image[..., 1::2])[..., 1:, :] / 2

    kspace, coils, image = scan(generator, n_slices=2, grid=(7, 8))
    draws = []
    posterior = quick(kspace, coils, image, to_output=lambda x: draws.append(x.clone()) or to_output(x))
    assert posterior.mean.shape == posterior.std.shape == (2, 1, 6, 4)
    assert posterior.mean.dtype == torch.complex64
    assert posterior.std.dtype == torch.float32
    mapped = to_output(torch.stack([one for one in draws if len(one) == 4])[:, :2])
    torch.testing.assert_close(posterior.mean[0, 0], mapped.mean(dim=(0, 1))[0])


def test_the_cards_factor_is_in_the_width(generator):
    case = scan(generator, grid=(7, 9))
    plain = quick(*case)
    assert plain.std_factor == 1
    assert plain.acceptance is None
    wider = sample_posterior(
        case[0],
        reconstruction_of(*case, weight=0.3),
        prior=prior_of(Quadratic(), posterior={"std_factor": 1.25}),
        settings=SHORT,
        solver=NO_IMAGINARY_PRIOR,
    )
    assert wider.std_factor == 1.25
    torch.testing.assert_close(wider.std, 1.25 * plain.std)
    assert torch.equal(wider.mean, plain.mean)


@pytest.mark.parametrize("draws", [1, 2])
def test_a_budget_of_a_step_is_too_short_and_shows_no_map(draws, generator):
    case = scan(generator, grid=(7, 9))
    calls = iter([False] * (12 + 40) + [False] * draws + [True])
    posterior = quick(*case, settings=PosteriorSettings(), out_of_time=lambda: next(calls))
    assert posterior.n_draws == draws
    assert posterior.outcomes == (PosteriorOutcome.TOO_SHORT,)
    assert math.isnan(posterior.worst_rhat[0])
    assert math.isnan(posterior.smallest_ess[0])
    assert bool(torch.isnan(posterior.std).all()) == (draws < 2)
    assert bool(torch.isnan(posterior.mean.real).all()) == (draws < 2)


def test_outcomes_say_whether_time_or_draws_ran_out_and_whether_they_suffice(generator):
    case = scan(generator, grid=(16, 16), keep=2.0)
    enough = PosteriorSettings(chains=8, warmup=40, draws=100)
    done = quick(*case, settings=enough)
    assert done.outcomes == (PosteriorOutcome.DONE,)
    assert done.worst_rhat[0] < 1.1
    assert done.smallest_ess[0] > 50
    clock = iter([False] * 110 + [True] * 2)
    stopped = quick(*case, settings=enough, out_of_time=lambda: next(clock))
    assert stopped.outcomes == (PosteriorOutcome.OUT_OF_TIME,)
    assert stopped.n_draws == 110 - 12 - 40
    few = quick(*case, settings=PosteriorSettings(chains=2, warmup=40, draws=10))
    assert few.outcomes == (PosteriorOutcome.NOT_MIXED,)
    assert few.smallest_ess[0] < 50


def test_chains_that_have_not_met_are_not_called_done(generator):
    """Nothing but the prior's wide Gaussian holds the image: chains start together and drift apart."""
    kspace, coils, image = scan(generator, n_coils=1, grid=(16, 16), keep=0.1)
    posterior = quick(
        kspace,
        coils,
        image,
        energy=Roughness(),
        weight=1e-4,
        settings=PosteriorSettings(chains=4, warmup=5, draws=40),
    )
    assert posterior.outcomes == (PosteriorOutcome.NOT_MIXED,)
    assert posterior.worst_rhat[0] > 1.1


def test_a_slice_that_is_not_finite_or_all_zero_is_labelled_and_disturbs_no_other(generator):
    kspace, coils, image = scan(generator, n_slices=4, grid=(7, 9))
    expected = quick(kspace, coils, image)
    samples = kspace.samples.clone()
    samples[0] = 0
    samples[2, 1, 3, 4] = math.nan
    image = image.clone()
    image[0], image[2] = 0, math.nan
    broken = KSpace(samples=samples, mask=kspace.mask, noise_std=kspace.noise_std)
    outcomes = (Outcome.ALL_ZERO, Outcome.CONVERGED, Outcome.NOT_FINITE, Outcome.OUT_OF_TIME)
    posterior = sample_posterior(
        broken,
        replaced(reconstruction_of(broken, coils, image, weight=0.3), outcomes=outcomes),
        prior=prior_of(Quadratic()),
        settings=SHORT,
        solver=NO_IMAGINARY_PRIOR,
    )
    assert posterior.outcomes[0] is PosteriorOutcome.ALL_ZERO
    assert posterior.outcomes[2] is PosteriorOutcome.NOT_FINITE
    assert not bool(posterior.mean[0].any() or posterior.std[0].any())
    assert bool(torch.isnan(posterior.std[2]).all())
    for row in (1, 3):
        torch.testing.assert_close(posterior.mean[row], expected.mean[row])
        torch.testing.assert_close(posterior.std[row], expected.std[row])
        assert posterior.outcomes[row] is expected.outcomes[row]


def test_a_chain_that_blows_up_is_not_finite_and_the_others_go_on(generator):
    class Bomb(Quadratic):
        """Infinite where an image is far from the others' brightness."""

        def value_and_gradient(self, image):
            value, gradient = super().value_and_gradient(image)
            lost = image.mean(dim=(1, 2, 3)) > 5
            return torch.where(lost, math.inf, value), torch.where(
                lost[:, None, None, None], math.nan, gradient
            )

    kspace, coils, image = scan(generator, n_slices=2, grid=(7, 9))
    expected = quick(kspace, coils, image)
    samples, bright = kspace.samples.clone(), image.clone()
    bright[0] = 20
    found = quick(
        KSpace(samples=samples, mask=kspace.mask, noise_std=kspace.noise_std), coils, bright, energy=Bomb()
    )
    assert found.outcomes[0] is PosteriorOutcome.NOT_FINITE
    assert bool(torch.isnan(found.std[0]).all())
    torch.testing.assert_close(found.std[1], expected.std[1])
    alone = KSpace(samples=samples[:1], mask=kspace.mask[:1], noise_std=kspace.noise_std)
    run = quick(alone, coils[:1], bright[:1], energy=Bomb(), run=PosteriorRun)
    while run.advance():
        pass
    assert run.n_done < run.n_steps, "nothing is left to do when all chains are lost"
    assert run.result().outcomes == (PosteriorOutcome.NOT_FINITE,)


def test_a_scan_without_any_signal_is_all_zero_at_once(generator):
    kspace, _, _ = scan(generator, n_slices=2, grid=(7, 9))
    empty = KSpace(samples=0 * kspace.samples, mask=kspace.mask, noise_std=1.0)
    posterior = sample_posterior(empty, reconstruct(empty, prior=TV), prior=TV, settings=SHORT)
    assert posterior.outcomes == (PosteriorOutcome.ALL_ZERO,) * 2
    assert not bool(posterior.mean.any() or posterior.std.any())


def test_pure_noise_gives_finite_labelled_images(generator):
    shape = (1, 4, 16, 15)
    samples = torch.complex(*torch.randn(2, *shape, generator=generator))
    noise = KSpace(samples=samples, mask=torch.ones(1, 1, 16, 15, dtype=torch.bool), noise_std=1.0)
    quickly = ReconstructionSettings(iterations=8)
    posterior = sample_posterior(
        noise, reconstruct(noise, prior=TV, settings=quickly), prior=TV, settings=SHORT, solver=quickly
    )
    assert bool(torch.isfinite(posterior.std).all())
    assert bool(torch.isfinite(torch.view_as_real(posterior.mean)).all())
    assert posterior.outcomes[0] in (PosteriorOutcome.DONE, PosteriorOutcome.NOT_MIXED)


@pytest.mark.parametrize(("values", "goes_negative"), [("magnitude", False), ("signed", True)])
def test_a_real_image_stays_real_and_of_the_sign_that_its_prior_knows(generator, values, goes_negative):
    kspace, coils, image = scan(generator, grid=(7, 9))
    seen = []
    posterior = sample_posterior(
        kspace,
        reconstruction_of(kspace, coils, image.abs(), weight=0.3, phase="real"),
        prior=prior_of(Quadratic(), input={"values": values}),
        settings=SHORT,
        to_output=lambda x: seen.append(x.clone()) or x,
    )
    draws = torch.cat(seen)
    assert not bool(draws.imag.any())
    assert bool((draws.real < 0).any()) is goes_negative
    assert bool((posterior.std > 0).all())


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"sampler": "nuts"}, "there is no sampler 'nuts'; take one of kinetic, langevin, mala, sk-rock"),
        ({"chains": 0}, "chains is 0; it must be at least 1"),
        ({"warmup": -1}, "warmup is -1; it must be at least 0"),
        ({"draws": 0}, "draws is 0; it must be at least 1"),
        ({"thin": 0}, "thin is 0; it must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, match, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # which checks a name before we do
    with pytest.raises(ValueError, match=match):
        PosteriorSettings(**setting)
