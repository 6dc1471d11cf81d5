"""A scan's messages through the pipeline, with stand-ins for the joint reconstruction."""

import json

import numpy as np
import pytest
import torch
from simulated_scans import (
    GADGETRON,
    MATRIX,
    StandIn,
    meta_of,
    reconstructor,
    run_stream,
    scan_messages,
    settings,
)

from gadget.errors import PeerProtocolError, ScanError, SettingsError
from gadget.pipeline import reconstruct_stream
from gadget.pixels import PixelType
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

PARAMETERS = Text(json.dumps({"parameters": {"sendoriginal": "false"}}))


def waveform(number: int) -> Waveform:
    header = np.zeros((), WAVEFORM_HEADER)
    header["scan_counter"] = number
    return Waveform(header=header[()], data=np.zeros((1, 2), np.uint32))


def test_each_slice_gives_one_image_with_its_own_header(tmp_path):
    images = run_stream(scan_messages(tmp_path, n_slices=3))

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

    run_stream(scan_messages(tmp_path, n_slices=2), joint)

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

    images = run_stream(scan_messages(tmp_path, n_slices=5), joint, settings(batch_slices=batch_slices))

    assert [len(batch.samples) for batch in joint.batches] == sizes
    assert [int(image.header["slice"]) for image in images] == [0, 1, 2, 3, 4]
    assert [float(image.data[0, 0, 0, 0]) for image in images] == [1, 2, 3, 4, 5]


def test_slices_that_do_not_fit_together_are_not_batched(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)
    # A slice with a line measured twice has less noise, and so a batch of its own.
    first = next(m for m in messages if isinstance(m, Acquisition) and m.header["flags"] & (1 << 6))
    messages.insert(messages.index(first), first)
    joint = StandIn()

    run_stream(messages, joint, settings(batch_slices=2))

    assert [len(batch.samples) for batch in joint.batches] == [1, 1]


def test_repetitions_are_told_apart(tmp_path):
    images = run_stream(scan_messages(tmp_path, n_slices=2, n_repetitions=2))

    counters = [(int(image.header["repetition"]), int(image.header["slice"])) for image in images]
    assert counters == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_scan_cut_off_early_still_gives_its_last_image_and_says_so(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)

    images = run_stream(messages[:-8])

    assert [int(image.header["slice"]) for image in images] == [0, 1]
    assert meta_of(images[0])["ImageComments"] == "gadgetron-ebm"
    assert meta_of(images[1])["ImageComments"] == "gadgetron-ebm: INCOMPLETE DATA"


def test_nothing_after_close_is_read(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)

    def ends_with_close():
        yield from messages
        raise AssertionError("read past CLOSE")

    assert isinstance(messages[-1], Close)
    assert len(run_stream(ends_with_close())) == 1


def test_a_stream_without_readouts_gives_nothing(tmp_path):
    header = scan_messages(tmp_path)[0]

    assert run_stream([ConfigFile("default.xml"), header, Close()]) == []
    assert run_stream([]) == []


def test_a_readout_before_the_header_is_refused(tmp_path):
    messages = scan_messages(tmp_path)

    with pytest.raises(PeerProtocolError, match="A readout came before the scan's header"):
        run_stream(messages[1:])


def test_waveforms_and_images_of_others_pass_through_in_place(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)
    image = run_stream(messages)[0]
    array = ImageArray(np.zeros((1,) * 7, np.complex64, "F"), np.zeros((1, 1, 1)), ("",), None, None)
    before, after = waveform(1), waveform(2)

    answers = run_stream([messages[0], before, *messages[1:3], image, array, *messages[3:-1], after, Close()])

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

    run_stream(messages, direct)
    answers = run_stream([messages[0], *noise, bucket, Close()], from_bucket)

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

    run_stream([messages[0], *noise, bucket, Close()], joint)

    assert joint.batches[0].mask.all()


def test_a_faulty_header_is_refused():
    with pytest.raises(ScanError, match="not XML"):
        run_stream([ScanHeader("<ismrmrdHeader>")])


def test_a_gadgetron_configuration_changes_the_settings_of_its_stream(tmp_path):
    joint = StandIn()
    config = ConfigText('<configuration><property name="solver.iterations" value="5"/></configuration>\0')

    run_stream([config, *scan_messages(tmp_path, n_slices=1)], joint)

    assert joint.calls[0]["settings"].iterations == 5


def test_json_parameters_change_the_settings_of_their_stream(tmp_path):
    joint = StandIn()
    messages = scan_messages(tmp_path, n_slices=1)
    parameters = Text(json.dumps({"parameters": {"solver.iterations": "6"}}))

    run_stream([ConfigFile("openrecon"), messages[0], parameters, *messages[1:]], joint)

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

    run_stream([*messages[:2], parameters, *messages[2:]], joint)

    assert joint.calls[0]["settings"].iterations is None
    assert "A Text came after the first readout: not used" in caplog.text


def test_a_peer_may_not_name_a_folder(tmp_path):
    config = ConfigText(f'<configuration><property name="prior" value="{tmp_path}"/></configuration>')

    with pytest.raises(SettingsError, match="is not a plain name"):
        run_stream([config, *scan_messages(tmp_path)])


def test_an_unknown_prior_is_refused_before_the_first_readout_is_used(tmp_path):
    with pytest.raises(SettingsError, match="no-such-prior"):
        run_stream(scan_messages(tmp_path), chosen=settings(prior="no-such-prior"))


def test_callers_see_each_slice_with_its_coils(tmp_path):
    seen = []

    answers = run_stream(scan_messages(tmp_path, n_slices=2), on_slice=seen.append)

    assert [one.image for one in seen] == answers
    assert [one.slice.context.slice for one in seen] == [0, 1]
    np.testing.assert_array_equal(seen[0].result.coils, np.full((3, *MATRIX), 2j, np.complex64))


def test_a_cancelled_stream_stops_its_reconstruction(tmp_path):
    joint = StandIn()

    run_stream(scan_messages(tmp_path, n_slices=1), joint, cancelled=lambda: True)

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
        run_stream([GADGETRON, *scan_messages(tmp_path)], chosen=settings(output__pixel_type="int16"))


def test_whole_numbers_keep_one_slope_while_they_fit(tmp_path):
    messages = scan_messages(tmp_path, n_slices=5)

    images = run_stream([messages[0], PARAMETERS, *messages[1:]])

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

    (image,) = run_stream(
        scan_messages(tmp_path, n_slices=1),
        StandIn(outcomes=[Outcome.ALL_ZERO], misbehave=blank),
        settings(output__pixel_type="uint16"),
    )

    assert image.data.dtype == np.uint16
    assert not image.data.any()


@pytest.mark.parametrize(("key", "value", "whitened"), [("data", False, False), ("readouts", True, True)])
def test_the_noise_source_is_passed_on(tmp_path, key, value, whitened):
    joint = StandIn()

    (image,) = run_stream(scan_messages(tmp_path, n_slices=1), joint, settings(noise__source=key))

    assert (joint.batches[0].noise_std == 1) is whitened
    assert ("not prewhitened" in str(meta_of(image)["ScanNotes"])) is not value


def test_calibration_lines_and_averages_follow_the_settings(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)
    imaging = [m for m in messages if isinstance(m, Acquisition) and not m.header["flags"] & (1 << 18)]
    imaging[5].header["flags"] = 1 << 19
    with_lines, without_lines = StandIn(), StandIn()

    run_stream(messages, with_lines)
    run_stream(messages, without_lines, settings(scan__calibration_in_data=False))

    assert int(with_lines.batches[0].mask[0, 0, :, 0].sum()) == MATRIX[0]
    assert int(without_lines.batches[0].mask[0, 0, :, 0].sum()) == MATRIX[0] - 1


def test_averages_can_be_kept(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)
    for message in messages:
        if isinstance(message, Acquisition) and message.header["idx"]["kspace_encode_step_1"] % 2:
            message.header["idx"]["average"] = 1

    images = run_stream(messages, chosen=settings(scan__keep_averages=True))

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
        answers = run_stream(decoded(data_folder / "wire" / f"{name}.bin"), joint)
        images = [answer for answer in answers if isinstance(answer, Image)]
        assert [int(image.header["repetition"]) for image in images] == [0, 1], name
        assert {image.data.shape for image in images} == {(1, 1, 64, 64)}
        batches[name] = joint.batches

    for name in ("client_fire", "external_acquisitions"):
        for one, other in zip(batches[name], batches["client_gadgetron"], strict=True):
            torch.testing.assert_close(one.samples, other.samples)


def test_the_waveforms_of_a_real_peer_pass_through(data_folder):
    messages = decoded(data_folder / "wire" / "external_acquisitions.bin")

    answers = run_stream(messages)

    assert sum(isinstance(answer, Waveform) for answer in answers) == 12


def test_a_real_bucket_gives_images(data_folder):
    """Both repetitions, with waveforms and trajectories beside the readouts."""
    answers = run_stream(decoded(data_folder / "wire" / "external_bucket.bin"))

    images = [answer for answer in answers if isinstance(answer, Image)]
    assert {image.data.shape for image in images} == {(1, 1, 64, 64)}
    assert len(images) == 2


@pytest.mark.parametrize(
    "name", ["external_image_float", "external_image_ushort", "external_image_meta", "external_imagearray"]
)
def test_real_images_pass_through(data_folder, name):
    messages = decoded(data_folder / "wire" / f"{name}.bin")

    answers = run_stream(messages)

    assert answers == [message for message in messages if isinstance(message, Image | ImageArray)]
    assert answers
