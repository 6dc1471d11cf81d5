"""Uncertainty series in the stream, with a scripted sampling: order, pauses, contents, limits, ends."""

import logging
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from scripted_sampling import ScriptedSampling, kinds, ramp, run_sampling, sampling_stream
from simulated_scans import MATRIX, StandIn, meta_of, scan_messages, settings

import gadget.posterior_queue
from gadget.errors import PeerProtocolError
from gadget.image_labels import StreamSummary
from gadget.pipeline import reconstruct_stream
from gadget.settings import with_overrides
from gadget.wire.messages import Acquisition
from reconlib.joint.outcome import Outcome


class Source:
    """Messages that come when the test says so: ``pauses`` maps a message's number to steps of silence."""

    def __init__(self, messages, pauses):
        self._messages = messages
        self._pauses = dict(pauses)
        self._n_taken = 0

    def silent(self) -> bool:
        left = self._pauses.get(self._n_taken, 0)
        self._pauses[self._n_taken] = left - 1
        return left > 0

    def __iter__(self):
        for message in self._messages:
            self._n_taken += 1
            yield message


def without_noise_readouts(messages):
    return [
        one for one in messages if not isinstance(one, Acquisition) or not one.header["flags"] & (1 << 18)
    ]


def end_of_slice(messages, slice_: int) -> int:
    """Return how many messages there are up to the last readout of a slice."""
    return 1 + max(
        number
        for number, message in enumerate(messages)
        if isinstance(message, Acquisition) and message.header["idx"]["slice"] == slice_
    )


# Order


def test_each_slice_gives_three_series_and_all_images_come_first(tmp_path):
    answers = run_sampling(scan_messages(tmp_path, n_slices=2))

    assert kinds(answers) == [(1, 1), (1, 2), (2, 1), (3, 1), (2, 2), (3, 2)]
    assert [int(image.header["slice"]) for image in answers] == [0, 1, 0, 0, 1, 1]


def test_series_leave_while_the_source_is_silent(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)
    source = Source(messages, {end_of_slice(messages, 0): 4})

    answers = run_sampling(source, silent=source.silent)

    assert kinds(answers) == [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2)]


def test_sampling_stops_at_the_step_where_data_comes_and_goes_on_where_it_was(tmp_path):
    """Two of four calls into the sampling fit into the pause; the next image comes before the rest."""
    messages = scan_messages(tmp_path, n_slices=2)
    source = Source(messages, {end_of_slice(messages, 0): 2})
    script, joint = ScriptedSampling(), StandIn()
    seen = []
    answers = sampling_stream(source, script, joint, silent=source.silent)

    for answer in answers:
        seen.append((kinds([answer])[0], len(script.events), len(joint.calls)))

    assert seen[:3] == [((1, 1), 0, 1), ((1, 2), 2, 2), ((2, 1), 4, 2)]
    assert script.events == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_nothing_is_sampled_while_messages_wait(tmp_path):
    messages = scan_messages(tmp_path, n_slices=3)
    script = ScriptedSampling()
    n_events = []

    def counted():
        for message in messages:
            n_events.append(len(script.events))
            yield message

    run_sampling(counted(), script)

    assert set(n_events) == {0}


def test_without_uncertainty_nothing_is_sampled(tmp_path):
    script = ScriptedSampling()

    answers = run_sampling(scan_messages(tmp_path, n_slices=2), script, chosen=settings())

    assert kinds(answers) == [(1, 1), (1, 2)]
    assert script.events == []


def test_slices_of_a_batch_are_sampled_together(tmp_path):
    script = ScriptedSampling()
    chosen = settings(posterior__enabled=True, batch_slices=2)

    answers = run_sampling(scan_messages(tmp_path, n_slices=3), script, chosen=chosen)

    assert [len(call["kspace"].samples) for call in script.calls] == [2, 1]
    assert kinds(answers)[3:] == [(2, 1), (3, 1), (2, 2), (3, 2), (2, 3), (3, 3)]
    torch.testing.assert_close(script.calls[0]["reconstruction"].image[1], torch.full((1, *MATRIX), 2 + 0j))


# What the sampling gets, and what becomes of its result


def test_the_sampling_gets_what_the_reconstruction_found(tmp_path):
    script, joint = ScriptedSampling(), StandIn()
    chosen = settings(
        posterior__enabled=True,
        posterior__sampler="mala",
        posterior__chains=3,
        posterior__warmup=5,
        posterior__draws=7,
        posterior__thin=2,
        seed=9,
        solver__imaginary_weight=0.5,
    )

    run_sampling(scan_messages(tmp_path, n_slices=1), script, joint, chosen)

    (call,) = script.calls
    sampling, found = call["settings"], call["reconstruction"]
    assert (sampling.sampler, sampling.chains) == ("mala", 3)
    assert (sampling.warmup, sampling.draws, sampling.thin) == (5, 7, 2)
    assert (call["seed"], call["solver"].imaginary_weight) == (9, 0.5)
    torch.testing.assert_close(call["kspace"].samples, joint.batches[0].samples, rtol=0, atol=0)
    assert call["kspace"].noise_std == 1
    assert (found.scale, found.noise_level, found.prior_weight) == ((0.5,), (0.25,), (0.125,))
    assert (found.image_phase, found.prior_weight_rule) == ("real", "noise")
    assert found.outcomes == (Outcome.OUT_OF_ITERATIONS,)
    assert bool((found.coils == 2j).all())


def test_mean_and_standard_deviation_are_in_the_units_of_the_image(tmp_path):
    image, mean, std = run_sampling(scan_messages(tmp_path, n_slices=1), joint=StandIn(misbehave=ramp))

    expected = np.broadcast_to(np.linspace(0.5, 1.0, MATRIX[0])[:, None], MATRIX)
    for one, factor in ((image, 1), (mean, 1), (std, 0.1)):
        assert one.data.dtype == np.float32
        np.testing.assert_allclose(one.data[0, 0], factor * expected, rtol=1e-5)
    for name in ("slice", "matrix_size", "field_of_view", "position", "read_dir", "acquisition_time_stamp"):
        assert np.array_equal(std.header[name], image.header[name])


def test_the_draws_are_mapped_to_the_recon_grid(tmp_path):
    """The scan's readouts and its recon matrix differ: half the columns are oversampling along y."""
    messages = scan_messages(tmp_path, n_slices=1)
    header = messages[0].text
    recon = header[header.index("<reconSpace>") : header.index("</reconSpace>")]
    smaller = recon.replace(f"<y>{MATRIX[0]}</y>", f"<y>{MATRIX[0] // 2}</y>").replace("<y>260", "<y>130")
    messages[0] = type(messages[0])(header.replace(recon, smaller))
    script = ScriptedSampling()

    answers = run_sampling(messages, script)

    assert [image.data.shape[2:] for image in answers] == [(MATRIX[0] // 2, MATRIX[1])] * 3
    grid = torch.zeros(5, 1, *MATRIX, dtype=torch.complex64)
    grid[3, 0, MATRIX[0] // 2, MATRIX[1] // 2] = 2 - 1j
    on_recon = script.calls[0]["to_output"](grid)
    assert on_recon.shape == (5, 1, MATRIX[0] // 2, MATRIX[1])
    assert on_recon[3, 0, MATRIX[0] // 4, MATRIX[1] // 2] == 2 - 1j
    assert int((on_recon != 0).sum()) == 1


def test_the_series_say_what_they_are(tmp_path):
    script = ScriptedSampling(std_factor=1.25)
    _, mean, std = map(meta_of, run_sampling(scan_messages(tmp_path, n_slices=1), script))

    assert mean["ImageType"] == "DERIVED\\PRIMARY\\M\\MEAN"
    assert std["ImageType"] == "DERIVED\\PRIMARY\\M\\STD_DEVIATION"
    assert (mean["SeriesDescriptionAdditional"], std["SeriesDescriptionAdditional"]) == (
        "EBM_MEAN",
        "EBM_STD",
    )
    assert (mean["EBM_Image"], std["EBM_Image"]) == ("POSTERIOR_MEAN", "POSTERIOR_STD")
    assert mean["ImageComments"] == "gadgetron-ebm: posterior mean, 4 x 3 draws"
    assert std["ImageComments"] == "gadgetron-ebm: posterior standard deviation, 4 x 3 draws"
    assert float(std["WindowWidth"]) == pytest.approx(0.1 * 1.25 * float(mean["WindowWidth"]))
    for meta in (mean, std):
        assert (meta["EBM_Posterior"], meta["EBM_PosteriorOutcome"]) == (
            "DONE",
            "all draws made, the chains agree",
        )
        assert (int(meta["EBM_Chains"]), int(meta["EBM_Draws"]), meta["EBM_Sampler"]) == (4, 3, "kinetic")
        assert float(meta["EBM_WorstRhat"]) == 1.03125
        assert float(meta["EBM_SmallestEffectiveSampleSize"]) == 250
        assert (float(meta["EBM_NoiseLevel"]), meta["EBM_NoiseLevelFrom"]) == (0.25, "measured")
        assert (float(meta["EBM_EffectiveTemperature"]), float(meta["EBM_StdFactor"])) == (0.5, 1.25)
        assert (meta["EBM_Prior"], float(meta["EBM_SamplingSeconds"])) == ("total-variation", 6.0)
        assert meta["EBM_PriorVersion"]
        assert "EBM_AcceptanceRate" not in meta


def test_a_noise_level_from_the_data_is_told(tmp_path):
    messages = without_noise_readouts(scan_messages(tmp_path, n_slices=1))

    _, mean, _ = map(meta_of, run_sampling(messages))

    assert mean["EBM_NoiseLevelFrom"] == "estimated from the data"


def test_whole_numbers_are_exact_by_their_own_slopes(tmp_path):
    """Brightness 1, 2, 3; the mean has the slope of its image, the standard deviation one that fits it."""
    chosen = settings(posterior__enabled=True, output__pixel_type="uint16")

    answers = run_sampling(scan_messages(tmp_path, n_slices=3), chosen=chosen)

    slope = {
        kind: float(meta_of(one)["RescaleSlope"]) for kind, one in zip(kinds(answers), answers, strict=True)
    }
    for (series, index), image in zip(kinds(answers), answers, strict=True):
        assert image.data.dtype == np.uint16
        assert 1000 <= int(image.data.max()) <= 4095
        expected = index if series < 3 else index / 10
        own = slope[series, index]
        np.testing.assert_allclose(image.data * own, expected, atol=own / 2 * 1.001)
        assert float(meta_of(image)["RescaleIntercept"]) == 0
    assert [slope[2, index] for index in (1, 2, 3)] == [slope[1, index] for index in (1, 2, 3)]
    assert slope[3, 1] == pytest.approx(slope[1, 1] / 10)


# Limits


def test_the_time_limit_counts_sampling_alone_and_per_slice(tmp_path):
    """Each step takes 2 s, everything else 100 s: two slices with 3 s each end after three steps."""
    now = [0.0]

    def took(_batch, _step):
        now[0] += 2

    class Slow(StandIn):
        def __call__(self, *arguments, **others):
            now[0] += 100
            return super().__call__(*arguments, **others)

    script = ScriptedSampling(n_steps=50, on_step=took)
    chosen = settings(posterior__enabled=True, posterior__time_limit_s=3, batch_slices=2)

    answers = run_sampling(scan_messages(tmp_path, n_slices=2), script, Slow(), chosen, lambda: now[0])

    assert script.events == [(1, 0), (1, 1), (1, 2)]
    assert meta_of(answers[2])["EBM_Posterior"] == "TOO_SHORT"


def test_time_that_runs_out_with_the_last_step_cuts_nothing_short(tmp_path):
    now = [0.0]

    def took(_batch, _step):
        now[0] += 2

    chosen = settings(posterior__enabled=True, posterior__time_limit_s=8)
    script = ScriptedSampling(n_steps=3, on_step=took)

    answers = run_sampling(scan_messages(tmp_path, n_slices=1), script, chosen=chosen, clock=lambda: now[0])

    assert meta_of(answers[1])["EBM_Posterior"] == "DONE"


def test_too_much_that_waits_is_sampled_first(tmp_path, monkeypatch, caplog):
    """Room for two slices of 3 coils: the third makes the first one go, and so on."""
    caplog.set_level(logging.INFO)
    n_pixels = MATRIX[0] * MATRIX[1]
    of_one = n_pixels * (2 * 3 * 8 + 8 + 1)
    monkeypatch.setattr(
        gadget.posterior_queue.PosteriorQueue.__init__, "__kwdefaults__", {"waiting_bytes": 2 * of_one}
    )

    answers = run_sampling(scan_messages(tmp_path, n_slices=4))

    assert kinds(answers) == [
        *[(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (1, 4), (2, 2), (3, 2)],
        *[(2, 3), (3, 3), (2, 4), (3, 4)],
    ]
    assert "3 images wait for their uncertainty (0 MiB): it goes first until there is room" in caplog.text


# Ends


def test_a_cancelled_stream_samples_no_more(tmp_path, caplog):
    cancelled = [False]

    def cancel(_batch, step):
        cancelled[0] = step == 2

    script = ScriptedSampling(n_steps=50, on_step=cancel)

    answers = run_sampling(scan_messages(tmp_path, n_slices=2), script, cancelled=lambda: cancelled[0])

    assert kinds(answers) == [(1, 1), (1, 2)]
    assert script.events == [(1, 0), (1, 1), (1, 2)]
    assert "ended before the uncertainty of its last 2 image(s) was done" in caplog.text


def test_a_consumer_that_stops_leaves_nothing_behind(tmp_path, caplog):
    script = ScriptedSampling()
    answers = sampling_stream(scan_messages(tmp_path, n_slices=2), script)
    n_threads = threading.active_count()

    for answer in answers:
        if kinds([answer]) == [(2, 1)]:
            break
    answers.close()

    assert "its last 1 image(s)" in caplog.text
    assert threading.active_count() <= n_threads
    assert script.events == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert list(answers) == []


def test_a_source_that_fails_ends_the_stream_with_its_error(tmp_path, caplog):
    messages = scan_messages(tmp_path, n_slices=2)
    script = ScriptedSampling()

    def broken():
        yield from messages[:-8]
        raise PeerProtocolError("half a message")

    seen = []
    with pytest.raises(PeerProtocolError, match="half a message"):
        seen.extend(iter_into(seen, sampling_stream(broken(), script)))

    assert kinds(seen) == [(1, 1)]
    assert script.events == []
    assert "its last 1 image(s)" in caplog.text


def iter_into(seen, answers):
    """Keep answers one by one, so that those before an error are not lost."""
    for answer in answers:
        seen.append(answer)
    return []


# The real sampling


FEW_DRAWS = settings(
    posterior__enabled=True,
    posterior__chains=2,
    posterior__warmup=3,
    posterior__draws=4,
    posterior__time_limit_s=None,
    solver__iterations=5,
)


def test_the_real_sampling_gives_the_same_draws_however_often_it_pauses(tmp_path):
    """Total variation, few steps: two slices, pauses between steps in one of two runs."""
    messages = scan_messages(tmp_path, n_slices=2)
    source = Source(messages, {end_of_slice(messages, 0): 5})

    straight = list(reconstruct_stream(messages, FEW_DRAWS))
    paused = list(reconstruct_stream(source, FEW_DRAWS, silent=source.silent))

    assert kinds(straight) == kinds(paused) == [(1, 1), (1, 2), (2, 1), (3, 1), (2, 2), (3, 2)]
    for one, other in zip(straight, paused, strict=True):
        np.testing.assert_array_equal(one.data, other.data)
    image, mean, std = straight[0].data, straight[2].data, straight[3].data
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.linalg.norm(mean - image) < 0.3 * np.linalg.norm(image)
    assert meta_of(straight[2])["EBM_Posterior"] == "NOT_MIXED"


@pytest.mark.parametrize("factor", [1e-9, 1e6])
def test_scaling_a_scan_scales_its_three_series_and_nothing_else(tmp_path, factor):
    """Without noise readouts, which would take the scale out."""
    messages = without_noise_readouts(scan_messages(tmp_path, n_slices=1))
    scaled = [
        replace(one, data=one.data * np.float32(factor)) if isinstance(one, Acquisition) else one
        for one in messages
    ]

    before, after = (list(reconstruct_stream(one, FEW_DRAWS)) for one in (messages, scaled))

    assert kinds(before) == kinds(after) == [(1, 1), (2, 1), (3, 1)]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other.data / factor, one.data, rtol=1e-3, atol=1e-3 * one.data.max())
        assert meta_of(one)["ImageComments"] == meta_of(other)["ImageComments"]
        assert float(meta_of(other)["WindowWidth"]) == pytest.approx(
            factor * float(meta_of(one)["WindowWidth"]), rel=1e-3
        )


def test_zeros_and_pure_noise_have_finite_labelled_uncertainty(tmp_path):
    """Two slices in one batch: one without any signal, one that is noise alone."""
    messages = scan_messages(tmp_path, n_slices=2)
    rng = np.random.default_rng(3)
    for message in messages:
        if isinstance(message, Acquisition) and not message.header["flags"] & (1 << 18):
            noise = rng.normal(size=(2, *message.data.shape)).astype(np.float32)
            message.data[:] = 0.02 * (noise[0] + 1j * noise[1]) if message.header["idx"]["slice"] else 0
    summary = StreamSummary()

    answers = list(
        reconstruct_stream(messages, with_overrides(FEW_DRAWS, [("batch_slices", 2)]), summary=summary)
    )

    assert kinds(answers) == [(1, 1), (1, 2), (2, 1), (3, 1), (2, 2), (3, 2)]
    assert all(np.isfinite(image.data).all() for image in answers)
    assert [bool(image.data.any()) for image in answers] == [False, True, False, False, True, True]
    assert [meta_of(image)["EBM_Posterior"] for image in answers[2:]] == [
        *["ALL_ZERO"] * 2,
        *["NOT_MIXED"] * 2,
    ]
    assert (len(summary.labelled), len(summary.rough)) == (1, 1)
