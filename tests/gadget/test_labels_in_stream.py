"""What is said of each image in its meta, its comment, a Text, the summary and the log, and what never is."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from simulated_scans import GADGETRON, StandIn, meta_of, run_stream, scan_messages

import gadget.reconstructor
from gadget.image_labels import StreamSummary
from gadget.reconstructor import ImageKind
from gadget.wire.messages import Image, ScanHeader, Text
from reconlib.joint.outcome import Outcome
from reconlib.priors.typicality import Typicality


def fail(_result) -> None:
    raise RuntimeError("Mustermann^Max")


def test_the_meta_says_how_an_image_was_made(tmp_path):
    (image,) = run_stream(scan_messages(tmp_path, n_slices=1))

    meta = meta_of(image)
    assert meta["EBM_Image"] == "RECONSTRUCTED"
    assert meta["EBM_Outcome"] == "ran its full number of iterations"
    assert meta["EBM_ImagePhase"] == "real"
    assert meta["EBM_PriorWeightRule"] == "noise"
    assert (float(meta["EBM_PriorWeight"]), float(meta["EBM_NoiseLevel"])) == (0.125, 0.25)
    assert (float(meta["EBM_Scale"]), float(meta["EBM_MeanCoilMagnitude"])) == (0.5, 0.75)
    assert (meta["EBM_Solver"], int(meta["EBM_Iterations"])) == ("fast", 7)
    assert float(meta["EBM_Seconds"]) >= 0
    assert meta["EBM_Software"].startswith("gadgetron-ebm ")
    assert meta["EBM_Prior"]
    assert meta["EBM_PriorVersion"]
    assert meta["ImageComments"] == "gadgetron-ebm"
    assert meta["DataRole"] == "Image"
    assert "26 of 26 lines" in str(meta["ScanNotes"])


def test_a_fallback_is_labelled_in_comment_meta_summary_and_text(tmp_path):
    summary = StreamSummary()

    image, text = run_stream(scan_messages(tmp_path, n_slices=1), StandIn(misbehave=fail), summary=summary)

    label = "FALLBACK: zero-filled root sum of squares (RuntimeError in the joint reconstruction)"
    meta = meta_of(image)
    assert meta["EBM_Image"] == "FALLBACK"
    assert meta["EBM_Outcome"] == "RuntimeError in the joint reconstruction"
    assert "EBM_PriorWeight" not in meta
    assert meta["ImageComments"] == f"gadgetron-ebm: {label}"
    assert text == Text(f"gadgetron-ebm: image 1 (slice 0): {label}")
    assert summary.labelled == [f"slice 0: {label}"]
    assert summary.counts[ImageKind.FALLBACK] == summary.n_images == 1


def test_the_fallback_is_the_root_sum_of_squares_image(tmp_path):
    joint = StandIn(misbehave=fail)

    image, _ = run_stream(scan_messages(tmp_path, n_slices=1), joint)

    samples = np.fft.ifftshift(joint.batches[0].samples[0].numpy(), axes=(1, 2))
    coil_images = np.fft.fftshift(np.fft.ifft2(samples, norm="ortho"), axes=(1, 2))
    expected = np.sqrt((np.abs(coil_images) ** 2).sum(0))
    np.testing.assert_allclose(image.data[0, 0], expected, rtol=1e-4)


def test_gadgetron_gets_no_text(tmp_path):
    answers = run_stream([GADGETRON, *scan_messages(tmp_path, n_slices=1)], StandIn(misbehave=fail))

    assert [type(answer) for answer in answers] == [Image]


@pytest.mark.parametrize(
    ("outcome", "name", "comment"),
    [
        (Outcome.OUT_OF_TIME, "OUT_OF_TIME", "joint reconstruction, stopped at its time limit"),
        (Outcome.ALL_ZERO, "ALL_ZERO", "image of zeros: the k-space is all zero"),
    ],
)
def test_other_extraordinary_images_are_labelled_without_a_text(tmp_path, outcome, name, comment):
    summary = StreamSummary()

    answers = run_stream(scan_messages(tmp_path, n_slices=2), StandIn(outcomes=[outcome]), summary=summary)

    assert [type(answer) for answer in answers] == [Image, Image]
    assert [meta_of(image)["EBM_Image"] for image in answers] == [name, "RECONSTRUCTED"]
    assert meta_of(answers[0])["ImageComments"] == f"gadgetron-ebm: {comment}"
    assert summary.labelled == [f"slice 0: {comment}"]


def test_the_summary_of_ordinary_images_has_nothing_to_tell(tmp_path):
    summary = StreamSummary()

    run_stream(scan_messages(tmp_path, n_slices=2), summary=summary)

    assert (summary.n_images, summary.labelled) == (2, [])
    assert summary.counts[ImageKind.RECONSTRUCTED] == 2


def test_one_line_is_logged_for_each_slice(tmp_path, caplog):
    caplog.set_level(logging.INFO)

    run_stream(scan_messages(tmp_path, n_slices=2))

    lines = [record.getMessage() for record in caplog.records if "slice" in record.getMessage()]
    assert len(lines) == 2
    assert lines[1].startswith(
        "slice 1: joint reconstruction: ran its full number of iterations, 7 iterations, "
    )
    assert lines[1].endswith("weight 0.125 (rule noise)")


OUTSIDE = Typicality(
    word="outside",
    sentence="outside: the energy is above all others",
    energy_per_pixel=0.5,
    percentile=100.0,
    unusual_share=0.25,
)


def test_how_typical_an_image_is_stands_in_meta_and_log(tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    words = iter([replace(OUTSIDE, word="typical", sentence="typical: as others"), OUTSIDE])
    monkeypatch.setattr(gadget.reconstructor, "typicality", lambda _prior, _image: next(words))

    typical, outside = run_stream(scan_messages(tmp_path, n_slices=2))

    meta = meta_of(outside)
    assert (meta["EBM_Typicality"], meta["EBM_TypicalityDetails"]) == ("outside", OUTSIDE.sentence)
    assert (float(meta["EBM_EnergyPerPixel"]), float(meta["EBM_EnergyPercentile"])) == (0.5, 100)
    assert float(meta["EBM_UnusualRegions"]) == 0.25
    assert meta["ImageComments"] == f"gadgetron-ebm: WARNING, {OUTSIDE.sentence}"
    assert meta_of(typical)["EBM_Typicality"] == "typical"
    assert meta_of(typical)["ImageComments"] == "gadgetron-ebm"
    lines = [record for record in caplog.records if "typical: as" in record.getMessage()]
    assert [record.levelno for record in lines] == [logging.INFO]
    lines = [record for record in caplog.records if OUTSIDE.sentence in record.getMessage()]
    assert [record.levelno for record in lines] == [logging.WARNING]


def test_a_prior_without_comparison_says_so_in_the_meta(tmp_path):
    (image,) = run_stream(scan_messages(tmp_path, n_slices=1))

    meta = meta_of(image)
    assert meta["EBM_Typicality"] == "unknown"
    assert "total-variation" in meta["EBM_TypicalityDetails"]
    assert "EBM_EnergyPercentile" not in meta


def test_a_comparison_that_fails_costs_no_image(tmp_path, monkeypatch, caplog):
    def fail(_prior, _image):
        raise RuntimeError("broken")

    monkeypatch.setattr(gadget.reconstructor, "typicality", fail)

    (image,) = run_stream(scan_messages(tmp_path, n_slices=1))

    assert meta_of(image)["EBM_Image"] == "RECONSTRUCTED"
    assert meta_of(image)["EBM_TypicalityDetails"] == "unknown: RuntimeError in the comparison"
    assert "could not be told" in caplog.text


def test_patient_data_is_never_logged_nor_sent(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    messages = scan_messages(tmp_path, n_slices=1)
    subject = "<subjectInformation><patientName>Mustermann^Max</patientName></subjectInformation>"
    xml = messages[0].text.replace("<encoding>", f"{subject}<encoding>", 1)
    if subject not in xml:  # a prefixed namespace
        prefix = messages[0].text.partition("encoding>")[0].rpartition("<")[2]
        xml = messages[0].text.replace(f"<{prefix}encoding>", f"{subject}<{prefix}encoding>", 1)
    assert "Mustermann" in xml

    (image,) = run_stream([ScanHeader(xml), Text("Mustermann^Max"), *messages[1:]])

    assert "Mustermann" not in caplog.text
    assert "Mustermann" not in image.meta
