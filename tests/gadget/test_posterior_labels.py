"""Uncertainty that failed, that cannot be relied on or that there is none of: what the stream says of it."""

import logging

import pytest
from scripted_sampling import ScriptedSampling, kinds, run_sampling
from simulated_scans import GADGETRON, StandIn, meta_of, scan_messages, settings

import gadget.reconstructor
from gadget.image_labels import StreamSummary
from gadget.wire.messages import Text
from reconlib.joint.outcome import Outcome
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.priors.typicality import Typicality


@pytest.mark.parametrize(("at", "error"), [(0, RuntimeError("Mustermann^Max")), (2, MemoryError())])
def test_a_failure_costs_no_image_and_no_other_slice(tmp_path, caplog, at, error):
    def fail(batch, step):
        if (batch, step) == (1, at):
            raise error

    script, summary = ScriptedSampling(on_step=fail), StreamSummary()

    answers = run_sampling(scan_messages(tmp_path, n_slices=2), script, summary=summary)

    words = "out of memory" if isinstance(error, MemoryError) else "RuntimeError in the sampling"
    assert kinds(answers) == [(1, 1), (1, 2), (2, 2), (3, 2)]
    assert answers[2] == Text(f"gadgetron-ebm: image 1 (slice 0): no uncertainty images: {words}")
    assert summary.labelled == [f"slice 0: no uncertainty images: {words}"]
    assert (summary.n_images, summary.n_sampled) == (2, 1)
    assert "WARNING" in {record.levelname for record in caplog.records}
    assert f"slice 0: no uncertainty images: {words}" in caplog.text


def test_a_batch_that_fails_is_tried_slice_by_slice(tmp_path):
    def fail(batch, step):
        if batch in (1, 3) and step == 1:
            raise MemoryError

    script = ScriptedSampling(on_step=fail)
    chosen = settings(posterior__enabled=True, batch_slices=3)

    answers = run_sampling(scan_messages(tmp_path, n_slices=3), script, chosen=chosen)

    assert [len(call["kspace"].samples) for call in script.calls] == [3, 1, 1, 1]
    assert kinds(answers)[3:] == [(2, 1), (3, 1), (2, 3), (3, 3)]


def test_gadgetron_gets_no_text(tmp_path):
    def fail(_batch, _step):
        raise RuntimeError

    answers = run_sampling([GADGETRON, *scan_messages(tmp_path, n_slices=1)], ScriptedSampling(on_step=fail))

    assert kinds(answers) == [(1, 1)]
    assert len(answers) == 1


def test_an_interrupt_is_not_a_failure_to_recover_from(tmp_path):
    def interrupt(_batch, _step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sampling(scan_messages(tmp_path, n_slices=1), ScriptedSampling(on_step=interrupt))


@pytest.mark.parametrize("outcome", [PosteriorOutcome.TOO_SHORT, PosteriorOutcome.NOT_MIXED])
def test_what_cannot_be_relied_on_is_said_everywhere(tmp_path, caplog, outcome):
    script, summary = ScriptedSampling(outcomes=[outcome]), StreamSummary()

    answers = run_sampling(scan_messages(tmp_path, n_slices=1), script, summary=summary)

    assert kinds(answers) == [(1, 1), (2, 1), (3, 1)]
    for image in answers[1:]:
        meta = meta_of(image)
        assert meta["ImageComments"].endswith(f"4 x 3 draws; NOT RELIABLE: {outcome.value}")
        assert (meta["EBM_Posterior"], meta["EBM_PosteriorOutcome"]) == (outcome.name, outcome.value)
    assert meta_of(answers[0])["ImageComments"] == "gadgetron-ebm"
    assert summary.rough == [f"slice 0: uncertainty NOT RELIABLE, {outcome.value}"]
    assert summary.labelled == []
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage() == (
        f"slice 0: uncertainty NOT RELIABLE, {outcome.value}; 4 x 3 draws (kinetic), worst R-hat 1.031, "
        "smallest effective sample size 250, noise level 0.25 (measured), 6.0 s"
    )


def test_numbers_that_too_few_draws_cannot_give_are_not_known(tmp_path, caplog):
    script = ScriptedSampling(n_steps=1, outcomes=[PosteriorOutcome.TOO_SHORT])

    answers = run_sampling(scan_messages(tmp_path, n_slices=1), script)

    assert kinds(answers)[:1] == [(1, 1)]
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage() == (
        f"slice 0: no uncertainty images: {PosteriorOutcome.TOO_SHORT.value}; 4 x 1 draws (kinetic), worst "
        "R-hat not known, smallest effective sample size not known, noise level 0.25 (measured), 6.0 s"
    )


def test_enough_draws_in_time_need_no_label(tmp_path):
    summary = StreamSummary()
    script = ScriptedSampling(outcomes=[PosteriorOutcome.OUT_OF_TIME])

    answers = run_sampling(scan_messages(tmp_path, n_slices=1), script, summary=summary)

    assert (summary.labelled, summary.rough) == ([], [])
    assert (summary.n_sampled, summary.sampling_seconds) == (1, 6.0)
    assert meta_of(answers[1])["EBM_Posterior"] == "OUT_OF_TIME"
    assert "NOT RELIABLE" not in meta_of(answers[1])["ImageComments"]


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (ScriptedSampling(outcomes=[PosteriorOutcome.NOT_FINITE]), PosteriorOutcome.NOT_FINITE),
        (ScriptedSampling(n_steps=1, outcomes=[PosteriorOutcome.TOO_SHORT]), PosteriorOutcome.TOO_SHORT),
    ],
    ids=["not finite", "no draws"],
)
def test_without_draws_there_is_no_map_but_a_word(tmp_path, caplog, script, outcome):
    summary = StreamSummary()

    image, text = run_sampling(scan_messages(tmp_path, n_slices=1), script, summary=summary)

    line = f"no uncertainty images: {outcome.value}"
    assert kinds([image]) == [(1, 1)]
    assert text == Text(f"gadgetron-ebm: image 1 (slice 0): {line}")
    assert summary.labelled == [f"slice 0: {line}"]
    assert summary.n_sampled == 0
    assert line in caplog.text


def test_a_fallback_has_no_uncertainty_and_that_is_said(tmp_path, caplog):
    summary = StreamSummary()
    joint = StandIn(outcomes=[Outcome.NOT_FINITE])

    answers = run_sampling(scan_messages(tmp_path, n_slices=2), joint=joint, summary=summary)

    assert kinds(answers) == [(1, 1), (1, 2), (2, 2), (3, 2)]
    assert summary.labelled[1:] == ["slice 0: no uncertainty images: the image is a fallback"]
    assert "slice 0: no uncertainty images: the image is a fallback" in caplog.text


def test_a_slice_of_zeros_has_labelled_zeros(tmp_path):
    def blank(result):
        result.image *= 0

    summary = StreamSummary()
    joint = StandIn(outcomes=[Outcome.ALL_ZERO], misbehave=blank)

    answers = run_sampling(scan_messages(tmp_path, n_slices=1), joint=joint, summary=summary)

    assert kinds(answers) == [(1, 1), (2, 1), (3, 1)]
    for image in answers[1:]:
        assert not image.data.any()
        assert meta_of(image)["EBM_Posterior"] == "ALL_ZERO"
        assert meta_of(image)["ImageComments"].endswith("; the k-space is all zero")
    assert summary.labelled == ["slice 0: image of zeros: the k-space is all zero"]


def test_uncertainty_of_incomplete_data_says_so(tmp_path):
    answers = run_sampling(scan_messages(tmp_path, n_slices=1)[:-8])

    assert all("INCOMPLETE DATA" in meta_of(image)["ImageComments"] for image in answers)
    assert len(answers) == 3


def test_the_text_of_a_failure_is_not_sent(tmp_path):
    def fail(_batch, _step):
        raise RuntimeError("Mustermann^Max")

    answers = run_sampling(scan_messages(tmp_path, n_slices=1), ScriptedSampling(on_step=fail))

    assert "Mustermann" not in answers[1].text


def test_an_image_outside_of_what_the_prior_knows_has_a_warning_in_all_series(tmp_path, monkeypatch):
    found = Typicality(word="outside", sentence="outside: above all others")
    monkeypatch.setattr(gadget.reconstructor, "typicality", lambda _prior, _image: found)

    answers = run_sampling(scan_messages(tmp_path, n_slices=1))

    assert len(answers) == 3
    for image in answers:
        assert "WARNING, outside: above all others" in meta_of(image)["ImageComments"]
        assert meta_of(image)["EBM_Typicality"] == "outside"
