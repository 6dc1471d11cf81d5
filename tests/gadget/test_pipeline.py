"""A scan's messages through the pipeline, with stand-ins for the joint reconstruction."""

import json
import logging
from dataclasses import replace

import ismrmrd
import numpy as np
import pytest
import torch
from simulated_scans import MATRIX, StandIn, reconstructor, scan_messages, settings

import gadget.reconstructor
from gadget.errors import PeerProtocolError, ScanError, SettingsError
from gadget.image_labels import StreamSummary
from gadget.pipeline import reconstruct_stream
from gadget.pixels import PixelType
from gadget.reconstructor import ImageKind
from gadget.series_writer import pixel_type_for
from gadget.wire.codec import MrdDecoder
from gadget.wire.headers import WAVEFORM_HEADER
from gadget.wire.messages import (
    Acquisition,
    AcquisitionBucket,
    Close,
    ConfigFile,
    ConfigText,
    Image,
    ImageArray,
    ScanHeader,
    Text,
    Waveform,
)
from gadget.wire.session import Dialect
from reconlib.joint.outcome import Outcome
from reconlib.priors.typicality import Typicality

GADGETRON = ConfigText("<configuration/>")
PARAMETERS = Text(json.dumps({"parameters": {"sendoriginal": "false"}}))


def run(messages, joint=None, chosen=None, **others):
    """Return all answers."""
    joint = StandIn() if joint is None else joint
    chosen = settings() if chosen is None else chosen
    return list(reconstruct_stream(messages, chosen, reconstructor=reconstructor(joint), **others))


def meta_of(image: Image) -> ismrmrd.Meta:
    return ismrmrd.Meta.deserialize(image.meta.partition("\0")[0])


def fail(_result) -> None:
    raise RuntimeError("Mustermann^Max")


def waveform(number: int) -> Waveform:
    header = np.zeros((), WAVEFORM_HEADER)
    header["scan_counter"] = number
    return Waveform(header=header[()], data=np.zeros((1, 2), np.uint32))


def test_each_slice_gives_one_image_with_its_own_header(tmp_path):
    images = run(scan_messages(tmp_path, n_slices=3))

    assert [type(image) for image in images] == [Image] * 3
    assert [int(image.header["slice"]) for image in images] == [0, 1, 2]
    assert [int(image.header["image_index"]) for image in images] == [1, 2, 3]
    assert {int(image.header["image_series_index"]) for image in images} == {1}
    for number, image in enumerate(images, start=1):
        assert image.data.dtype == np.float32
        assert image.data.shape == (1, 1, *MATRIX)
        np.testing.assert_allclose(image.data, number, rtol=1e-6)
        assert tuple(image.header["matrix_size"]) == (MATRIX[1], MATRIX[0], 1)


def test_the_joint_reconstruction_gets_prewhitened_kspace_of_one_slice(tmp_path):
    joint = StandIn()

    run(scan_messages(tmp_path, n_slices=2), joint)

    assert [tuple(batch.samples.shape) for batch in joint.batches] == [(1, 3, *MATRIX)] * 2
    assert all(batch.noise_std == 1 and batch.mask.all() for batch in joint.batches)
    assert not torch.equal(joint.batches[0].samples, joint.batches[1].samples)


def test_an_image_leaves_as_soon_as_its_slice_is_complete(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)
    last_of_first = max(
        number
        for number, message in enumerate(messages)
        if isinstance(message, Acquisition) and message.header["idx"]["slice"] == 0
    )
    n_read = 0

    def counted():
        nonlocal n_read
        for message in messages:
            n_read += 1
            yield message

    stream = reconstruct_stream(counted(), settings(), reconstructor=reconstructor(StandIn()))
    next(stream)

    assert n_read == last_of_first + 1


@pytest.mark.parametrize(
    ("batch_slices", "sizes"), [(1, [1, 1, 1, 1, 1]), (2, [2, 2, 1]), (4, [4, 1]), (9, [5])]
)
def test_slices_are_reconstructed_in_batches_and_leave_in_order(tmp_path, batch_slices, sizes):
    joint = StandIn()

    images = run(scan_messages(tmp_path, n_slices=5), joint, settings(batch_slices=batch_slices))

    assert [len(batch.samples) for batch in joint.batches] == sizes
    assert [int(image.header["slice"]) for image in images] == [0, 1, 2, 3, 4]
    assert [float(image.data[0, 0, 0, 0]) for image in images] == [1, 2, 3, 4, 5]


def test_slices_that_do_not_fit_together_are_not_batched(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)
    # A slice with a line measured twice has less noise, and so a batch of its own.
    first = next(m for m in messages if isinstance(m, Acquisition) and m.header["flags"] & (1 << 6))
    messages.insert(messages.index(first), first)
    joint = StandIn()

    run(messages, joint, settings(batch_slices=2))

    assert [len(batch.samples) for batch in joint.batches] == [1, 1]


def test_repetitions_are_told_apart(tmp_path):
    images = run(scan_messages(tmp_path, n_slices=2, n_repetitions=2))

    counters = [(int(image.header["repetition"]), int(image.header["slice"])) for image in images]
    assert counters == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_scan_cut_off_early_still_gives_its_last_image_and_says_so(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)

    images = run(messages[:-8])

    assert [int(image.header["slice"]) for image in images] == [0, 1]
    assert meta_of(images[0])["ImageComments"] == "gadgetron-ebm"
    assert meta_of(images[1])["ImageComments"] == "gadgetron-ebm: INCOMPLETE DATA"


def test_nothing_after_close_is_read(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)

    def ends_with_close():
        yield from messages
        raise AssertionError("read past CLOSE")

    assert isinstance(messages[-1], Close)
    assert len(run(ends_with_close())) == 1


def test_a_stream_without_readouts_gives_nothing(tmp_path):
    header = scan_messages(tmp_path)[0]

    assert run([ConfigFile("default.xml"), header, Close()]) == []
    assert run([]) == []


def test_a_readout_before_the_header_is_refused(tmp_path):
    messages = scan_messages(tmp_path)

    with pytest.raises(PeerProtocolError, match="A readout came before the scan's header"):
        run(messages[1:])


def test_waveforms_and_images_of_others_pass_through_in_place(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)
    image = run(messages)[0]
    array = ImageArray(np.zeros((1,) * 7, np.complex64, "F"), np.zeros((1, 1, 1)), ("",), None, None)
    before, after = waveform(1), waveform(2)

    answers = run([messages[0], before, *messages[1:3], image, array, *messages[3:-1], after, Close()])

    assert answers[:3] == [before, image, array]
    assert isinstance(answers[3], Image)
    assert answers[4:] == [after]


def test_a_bucket_is_taken_for_its_readouts(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)
    readouts = [message for message in messages if isinstance(message, Acquisition)]
    noise = [readout for readout in readouts if readout.header["flags"] & (1 << 18)]
    imaging = [readout for readout in readouts if not readout.header["flags"] & (1 << 18)]
    both = imaging[3:5]
    wave = waveform(4)
    bucket = AcquisitionBucket(tuple(imaging), tuple(both), (wave,), b"", b"")
    direct, from_bucket = StandIn(), StandIn()

    run(messages, direct)
    answers = run([messages[0], *noise, bucket, Close()], from_bucket)

    assert answers[0] is wave
    torch.testing.assert_close(from_bucket.batches[0].samples, direct.batches[0].samples, rtol=0, atol=0)
    assert from_bucket.batches[0].noise_std == direct.batches[0].noise_std


def test_the_reference_lines_of_a_bucket_are_not_too_late(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)
    readouts = [message for message in messages if isinstance(message, Acquisition)]
    noise = [readout for readout in readouts if readout.header["flags"] & (1 << 18)]
    imaging = [readout for readout in readouts if not readout.header["flags"] & (1 << 18)]
    calibration_only = imaging.pop(5)
    calibration_only.header["flags"] = 1 << 19
    bucket = AcquisitionBucket(tuple(imaging), (calibration_only,), (), b"", b"")
    joint = StandIn()

    run([messages[0], *noise, bucket, Close()], joint)

    assert joint.batches[0].mask.all()


def test_a_faulty_header_is_refused():
    with pytest.raises(ScanError, match="not XML"):
        run([ScanHeader("<ismrmrdHeader>")])


def test_a_gadgetron_configuration_changes_the_settings_of_its_stream(tmp_path):
    joint = StandIn()
    config = ConfigText('<configuration><property name="solver.iterations" value="5"/></configuration>\0')

    run([config, *scan_messages(tmp_path, n_slices=1)], joint)

    assert joint.calls[0]["settings"].iterations == 5


def test_json_parameters_change_the_settings_of_their_stream(tmp_path):
    joint = StandIn()
    messages = scan_messages(tmp_path, n_slices=1)
    parameters = Text(json.dumps({"parameters": {"solver.iterations": "6"}}))

    run([ConfigFile("openrecon"), messages[0], parameters, *messages[1:]], joint)

    assert joint.calls[0]["settings"].iterations == 6


def test_what_a_peer_sets_ends_with_its_stream(tmp_path):
    joint = StandIn()
    messages = scan_messages(tmp_path, n_slices=1)
    shared = reconstructor(joint)
    config = ConfigText('<configuration><property name="solver.iterations" value="5"/></configuration>')

    for stream in ([config, *messages], messages):
        list(reconstruct_stream(stream, settings(), reconstructor=shared))

    assert [call["settings"].iterations for call in joint.calls] == [5, None]


def test_a_configuration_after_the_first_readout_is_not_used(tmp_path, caplog):
    joint = StandIn()
    messages = scan_messages(tmp_path, n_slices=1)
    parameters = Text(json.dumps({"parameters": {"solver.iterations": "6"}}))

    run([*messages[:2], parameters, *messages[2:]], joint)

    assert joint.calls[0]["settings"].iterations is None
    assert "A Text came after the first readout: not used" in caplog.text


def test_a_peer_may_not_name_a_folder(tmp_path):
    config = ConfigText(f'<configuration><property name="prior" value="{tmp_path}"/></configuration>')

    with pytest.raises(SettingsError, match="is not a plain name"):
        run([config, *scan_messages(tmp_path)])


def test_an_unknown_prior_is_refused_before_the_first_readout_is_used(tmp_path):
    with pytest.raises(SettingsError, match="no-such-prior"):
        run(scan_messages(tmp_path), chosen=settings(prior="no-such-prior"))


def test_the_meta_says_how_an_image_was_made(tmp_path):
    (image,) = run(scan_messages(tmp_path, n_slices=1))

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

    image, text = run(scan_messages(tmp_path, n_slices=1), StandIn(misbehave=fail), summary=summary)

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

    image, _ = run(scan_messages(tmp_path, n_slices=1), joint)

    samples = np.fft.ifftshift(joint.batches[0].samples[0].numpy(), axes=(1, 2))
    coil_images = np.fft.fftshift(np.fft.ifft2(samples, norm="ortho"), axes=(1, 2))
    expected = np.sqrt((np.abs(coil_images) ** 2).sum(0))
    np.testing.assert_allclose(image.data[0, 0], expected, rtol=1e-4)


def test_gadgetron_gets_no_text(tmp_path):
    answers = run([GADGETRON, *scan_messages(tmp_path, n_slices=1)], StandIn(misbehave=fail))

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

    answers = run(scan_messages(tmp_path, n_slices=2), StandIn(outcomes=[outcome]), summary=summary)

    assert [type(answer) for answer in answers] == [Image, Image]
    assert [meta_of(image)["EBM_Image"] for image in answers] == [name, "RECONSTRUCTED"]
    assert meta_of(answers[0])["ImageComments"] == f"gadgetron-ebm: {comment}"
    assert summary.labelled == [f"slice 0: {comment}"]


def test_the_summary_of_ordinary_images_has_nothing_to_tell(tmp_path):
    summary = StreamSummary()

    run(scan_messages(tmp_path, n_slices=2), summary=summary)

    assert (summary.n_images, summary.labelled) == (2, [])
    assert summary.counts[ImageKind.RECONSTRUCTED] == 2


def test_one_line_is_logged_for_each_slice(tmp_path, caplog):
    caplog.set_level(logging.INFO)

    run(scan_messages(tmp_path, n_slices=2))

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

    typical, outside = run(scan_messages(tmp_path, n_slices=2))

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
    (image,) = run(scan_messages(tmp_path, n_slices=1))

    meta = meta_of(image)
    assert meta["EBM_Typicality"] == "unknown"
    assert "total-variation" in meta["EBM_TypicalityDetails"]
    assert "EBM_EnergyPercentile" not in meta


def test_a_comparison_that_fails_costs_no_image(tmp_path, monkeypatch, caplog):
    def fail(_prior, _image):
        raise RuntimeError("broken")

    monkeypatch.setattr(gadget.reconstructor, "typicality", fail)

    (image,) = run(scan_messages(tmp_path, n_slices=1))

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

    (image,) = run([ScanHeader(xml), Text("Mustermann^Max"), *messages[1:]])

    assert "Mustermann" not in caplog.text
    assert "Mustermann" not in image.meta


def test_callers_see_each_slice_with_its_coils(tmp_path):
    seen = []

    answers = run(scan_messages(tmp_path, n_slices=2), on_slice=seen.append)

    assert [one.image for one in seen] == answers
    assert [one.slice.context.slice for one in seen] == [0, 1]
    np.testing.assert_array_equal(seen[0].result.coils, np.full((3, *MATRIX), 2j, np.complex64))


def test_a_cancelled_stream_stops_its_reconstruction(tmp_path):
    joint = StandIn()

    run(scan_messages(tmp_path, n_slices=1), joint, cancelled=lambda: True)

    assert joint.calls[0]["out_of_time"]()


@pytest.mark.parametrize(
    ("chosen", "dialect", "has_parameters", "expected"),
    [
        ("auto", Dialect.MRD, False, PixelType.FLOAT32),
        ("auto", Dialect.MRD, True, PixelType.INT16),
        ("auto", Dialect.GADGETRON, False, PixelType.FLOAT32),
        ("float", Dialect.MRD, True, PixelType.FLOAT32),
        ("uint16", Dialect.GADGETRON, False, PixelType.UINT16),
        ("int16", Dialect.MRD, False, PixelType.INT16),
    ],
)
def test_the_pixel_type_depends_on_the_peer(chosen, dialect, has_parameters, expected):
    chosen = settings(output__pixel_type=chosen)

    assert pixel_type_for(chosen, dialect, has_parameters=has_parameters) is expected


def test_int16_is_refused_in_a_gadgetron_chain(tmp_path):
    with pytest.raises(SettingsError, match=r"output\.pixel_type: int16 images end a Gadgetron chain"):
        run([GADGETRON, *scan_messages(tmp_path)], chosen=settings(output__pixel_type="int16"))


def test_whole_numbers_keep_one_slope_while_they_fit(tmp_path):
    messages = scan_messages(tmp_path, n_slices=5)

    images = run([messages[0], PARAMETERS, *messages[1:]])

    # Brightness 1, 2, 3, 4, 5: the first gets half of 4095, so the slope doubles for the third and the fifth.
    slopes = [float(meta_of(image)["RescaleSlope"]) for image in images]
    assert [slope / slopes[0] for slope in slopes] == pytest.approx([1, 1, 2, 2, 4])
    for number, (image, slope) in enumerate(zip(images, slopes, strict=True), start=1):
        assert image.data.dtype == np.int16
        assert 1000 <= int(image.data.max()) <= 4095
        np.testing.assert_allclose(image.data * slope, number, atol=slope / 2 * 1.001)


def test_an_image_of_zeros_can_be_sent_as_whole_numbers(tmp_path):
    def blank(result):
        result.image *= 0

    (image,) = run(
        scan_messages(tmp_path, n_slices=1),
        StandIn(outcomes=[Outcome.ALL_ZERO], misbehave=blank),
        settings(output__pixel_type="uint16"),
    )

    assert image.data.dtype == np.uint16
    assert not image.data.any()


@pytest.mark.parametrize(("key", "value", "whitened"), [("data", False, False), ("readouts", True, True)])
def test_the_noise_source_is_passed_on(tmp_path, key, value, whitened):
    joint = StandIn()

    (image,) = run(scan_messages(tmp_path, n_slices=1), joint, settings(noise__source=key))

    assert (joint.batches[0].noise_std == 1) is whitened
    assert ("not prewhitened" in str(meta_of(image)["ScanNotes"])) is not value


def test_calibration_lines_and_averages_follow_the_settings(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)
    imaging = [m for m in messages if isinstance(m, Acquisition) and not m.header["flags"] & (1 << 18)]
    imaging[5].header["flags"] = 1 << 19
    with_lines, without_lines = StandIn(), StandIn()

    run(messages, with_lines)
    run(messages, without_lines, settings(scan__calibration_in_data=False))

    assert int(with_lines.batches[0].mask[0, 0, :, 0].sum()) == MATRIX[0]
    assert int(without_lines.batches[0].mask[0, 0, :, 0].sum()) == MATRIX[0] - 1


def test_averages_can_be_kept(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)
    for message in messages:
        if isinstance(message, Acquisition) and message.header["idx"]["kspace_encode_step_1"] % 2:
            message.header["idx"]["average"] = 1

    images = run(messages, chosen=settings(scan__keep_averages=True))

    assert [int(image.header["average"]) for image in images] == [0, 1]


def decoded(path):
    """Return the messages that a real peer sent."""
    decoder = MrdDecoder()
    decoder.feed(path.read_bytes())
    return list(decoder.messages())


def test_what_real_peers_sent_gives_the_same_kspace(data_folder):
    """One 64 x 64 phantom with 2 repetitions, from Gadgetron's and a FIRE client, and through Gadgetron."""
    batches = {}
    for name in ("client_gadgetron", "client_fire", "external_acquisitions"):
        joint = StandIn()
        answers = run(decoded(data_folder / "wire" / f"{name}.bin"), joint)
        images = [answer for answer in answers if isinstance(answer, Image)]
        assert [int(image.header["repetition"]) for image in images] == [0, 1], name
        assert {image.data.shape for image in images} == {(1, 1, 64, 64)}
        batches[name] = joint.batches

    for name in ("client_fire", "external_acquisitions"):
        for one, other in zip(batches[name], batches["client_gadgetron"], strict=True):
            torch.testing.assert_close(one.samples, other.samples)


def test_the_waveforms_of_a_real_peer_pass_through(data_folder):
    messages = decoded(data_folder / "wire" / "external_acquisitions.bin")

    answers = run(messages)

    assert sum(isinstance(answer, Waveform) for answer in answers) == 12


def test_a_real_bucket_gives_images(data_folder):
    """Both repetitions, with waveforms and trajectories beside the readouts."""
    answers = run(decoded(data_folder / "wire" / "external_bucket.bin"))

    images = [answer for answer in answers if isinstance(answer, Image)]
    assert {image.data.shape for image in images} == {(1, 1, 64, 64)}
    assert len(images) == 2


@pytest.mark.parametrize(
    "name", ["external_image_float", "external_image_ushort", "external_image_meta", "external_imagearray"]
)
def test_real_images_pass_through(data_folder, name):
    messages = decoded(data_folder / "wire" / f"{name}.bin")

    answers = run(messages)

    assert answers == [message for message in messages if isinstance(message, Image | ImageArray)]
    assert answers
