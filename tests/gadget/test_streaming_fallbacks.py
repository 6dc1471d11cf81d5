"""Scans that are sent again after a worker died: only fallbacks, without what has left already."""

import logging

import numpy as np
import pytest
from simulated_scans import StandIn, reconstructor, scan_messages, settings, simulated
from synthetic_scan import inverse_transform
from synthetic_slab import slab

from gadget.image_meta import read_meta
from gadget.pipeline import reconstruct_stream
from gadget.streaming_scan import ScanDevice
from gadget.volume_reconstruction import reconstruct_volume
from gadget.wire.messages import ConfigText, Image, Text

REASON = "the program that reconstructed it ended"


def run(messages, chosen=None, joint=None, **others):
    made = reconstructor(joint or StandIn())
    return list(
        reconstruct_stream(messages, chosen or settings(), reconstructor=made, fallback_only=REASON, **others)
    )


@pytest.mark.parametrize("overlap", [False, True])
def test_the_rest_of_a_scan_comes_as_root_sums_of_squares_that_say_why(tmp_path, overlap, caplog):
    joint = StandIn()
    caplog.set_level(logging.INFO)

    answers = run(scan_messages(tmp_path, n_slices=4), joint=joint, n_skipped=1, overlap=overlap)

    assert joint.batches == []
    assert [type(one) for one in answers] == [Image, Text] * 3
    for number, (image, text) in enumerate(zip(answers[::2], answers[1::2], strict=True), start=1):
        assert int(image.header["slice"]) == number
        assert int(image.header["image_index"]) == number + 1
        meta = read_meta(image)
        assert (meta["EBM_Image"], meta["EBM_Outcome"]) == ("FALLBACK", REASON)
        assert meta["ImageComments"] == (
            f"gadgetron-ebm: FALLBACK: zero-filled root sum of squares ({REASON})"
        )
        assert text.text == (
            f"gadgetron-ebm: image {number + 1} (slice {number}): FALLBACK: zero-filled root sum of squares "
            f"({REASON})"
        )
        assert f"slice {number}: FALLBACK: zero-filled root sum of squares ({REASON})" in caplog.text
    assert "slice 0: not made again, its image has left" in caplog.text


def test_they_are_what_the_samples_give_without_a_prior(tmp_path):
    image, _ = run(scan_messages(tmp_path, n_slices=1), settings(noise__source="prewhitened"))
    coil_images = inverse_transform(simulated(1, 0.02).kspace.samples[0].numpy())
    expected = np.sqrt((np.abs(coil_images) ** 2).sum(axis=0))

    assert np.corrcoef(image.data.ravel(), expected.ravel())[0, 1] > 0.9999


def test_a_prior_that_cannot_be_loaded_does_not_matter(tmp_path):
    answers = run(scan_messages(tmp_path, n_slices=1), settings(prior="no-such-prior"))

    meta = read_meta(answers[0])
    assert (meta["EBM_Prior"], meta["EBM_PriorVersion"]) == ("no-such-prior", "not loaded")


def test_there_is_no_uncertainty_and_each_image_is_labelled(tmp_path, caplog):
    answers = run(scan_messages(tmp_path, n_slices=2), settings(posterior__enabled=True))

    assert [one.header["image_series_index"] for one in answers if isinstance(one, Image)] == [1, 1]
    assert caplog.text.count("no uncertainty images: the image is a fallback") == 2


def test_gadgetron_gets_no_text(tmp_path):
    answers = run([ConfigText("<configuration/>"), *scan_messages(tmp_path, n_slices=2)])

    assert [type(one) for one in answers] == [Image, Image]


def test_nothing_is_made_where_all_has_left(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)

    assert run(messages, n_skipped=2) == []
    assert run(messages, n_skipped=9) == []


def test_partitions_of_a_volume_are_fallbacks_too():
    mask = np.ones((13, 18, 26), bool)
    mask[::3, 1::2] = False
    device = ScanDevice(
        reconstructor=reconstructor(StandIn()), settings=settings(), prior=None, fallback_only=REASON
    )
    found = list(reconstruct_volume(slab(mask=mask), device))

    assert {(result.kind.name, result.outcome) for _, result in found} == {("FALLBACK", REASON)}
    assert all(result.image.any() for _, result in found)
