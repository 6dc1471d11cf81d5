"""Magnitude, phase, complex and real images: series, headers, meta, files and pictures."""

import json
import logging
import math

import h5py
import ismrmrd
import numpy as np
import pytest
import torch
from matplotlib import image as pictures
from simulated_scans import StandIn, make_scan, meta_of, reconstructor, scan_messages, settings
from test_series import context

from gadget.assembly_settings import assembly_settings
from gadget.errors import OwnProtocolError, ScanError, SettingsError
from gadget.figures import save_phase
from gadget.image_labels import StreamSummary
from gadget.phase_reference import PhaseReferences
from gadget.pipeline import reconstruct_stream
from gadget.pixels import PixelType
from gadget.reconstructor import ImageKind
from gadget.replay import replay
from gadget.scan.assemble import SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.series import RECONSTRUCTIONS, reconstruction_image
from gadget.series_writer import LARGEST_IMAGE_INDEX, SeriesWriter
from gadget.settings import load_settings
from gadget.wire.messages import Acquisition, ConfigText, Image, ScanHeader, Text
from reconlib.joint.outcome import Outcome

ALL = ["real", "phase", "complex", "magnitude"]
VALUE = 2 * np.exp(2.5j)


def steep(result):
    """Give every image the value 2 exp(2.5 i) and one coil map of the phase -1, the others 0."""
    result.image = torch.full_like(result.image, complex(VALUE))
    result.coils = torch.zeros_like(result.coils)
    result.coils[:, 0] = complex(np.exp(-1j))


def images_of(messages, chosen, joint=None, summary=None):
    joint = StandIn(misbehave=steep) if joint is None else joint
    stream = reconstruct_stream(messages, chosen, reconstructor=reconstructor(joint), summary=summary)
    return [reply for reply in stream if isinstance(reply, Image)]


def test_each_kind_has_its_series_type_and_description(tmp_path):
    sent = images_of(scan_messages(tmp_path, n_slices=2), settings(output__images=ALL))

    assert [int(image.header["image_series_index"]) for image in sent] == [1, 4, 5, 6] * 2
    assert [int(image.header["image_index"]) for image in sent] == [1] * 4 + [2] * 4
    assert [int(image.header["image_type"]) for image in sent[:4]] == [
        ismrmrd.IMTYPE_MAGNITUDE,
        ismrmrd.IMTYPE_PHASE,
        ismrmrd.IMTYPE_COMPLEX,
        ismrmrd.IMTYPE_REAL,
    ]
    data_types = [
        ismrmrd.DATATYPE_FLOAT,
        ismrmrd.DATATYPE_FLOAT,
        ismrmrd.DATATYPE_CXFLOAT,
        ismrmrd.DATATYPE_FLOAT,
    ]
    assert [int(image.header["data_type"]) for image in sent[:4]] == data_types
    values = [2.0, 2.5, VALUE, VALUE.real]
    for image, value in zip(sent, values * 2, strict=True):
        np.testing.assert_allclose(image.data, value, rtol=1e-5)
    metas = [meta_of(image) for image in sent[:4]]
    assert [meta["ImageType"].split("\\")[2] for meta in metas] == ["M", "P", "MIXED", "R"]
    assert [meta["EBM_Component"] for meta in metas] == ["magnitude", "phase", "complex", "real"]
    assert [meta["SeriesDescriptionAdditional"] for meta in metas] == [
        "EBM",
        "EBM_PHASE",
        "EBM_COMPLEX",
        "EBM_REAL",
    ]
    windows = [(float(meta["WindowCenter"]), float(meta["WindowWidth"])) for meta in metas]
    assert windows[1] == (0.0, 2 * math.pi)
    np.testing.assert_allclose(windows[0], (1, 2), rtol=1e-5)
    np.testing.assert_allclose(windows[2], (1, 2), rtol=1e-5)
    np.testing.assert_allclose(windows[3], (0, 2 * abs(VALUE.real)), rtol=1e-5)


def test_every_image_with_a_phase_says_what_it_is_relative_to(tmp_path):
    sent = images_of(scan_messages(tmp_path, n_slices=1, n_repetitions=2), settings(output__images=ALL))

    assert len(sent) == 8
    for image in sent:
        meta = meta_of(image)
        if int(image.header["image_type"]) == ismrmrd.IMTYPE_MAGNITUDE:
            assert "EBM_PhaseReference" not in meta
        else:
            assert meta["EBM_PhaseReferenceImage"] == "1"
            assert (
                "coil maps estimated with image 1 (slice 0), the first of this slice"
                in (meta["EBM_PhaseReference"])
            )


def test_the_magnitude_alone_is_sent_unless_others_are_asked_for(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)
    sent = images_of(messages, settings())
    assert [int(image.header["image_series_index"]) for image in sent] == [1]
    only = images_of(messages, settings(output__images=["phase"]))
    assert [int(image.header["image_series_index"]) for image in only] == [4]


def test_a_fallback_sends_its_magnitude_and_says_what_is_missing(tmp_path, caplog):
    summary = StreamSummary()
    joint = StandIn(outcomes=[Outcome.OUT_OF_ITERATIONS, Outcome.NOT_FINITE])
    messages = scan_messages(tmp_path, n_slices=2)
    sent = images_of(messages, settings(output__images=["phase", "complex"]), joint, summary)

    kinds = [(int(i.header["image_series_index"]), int(i.header["image_index"])) for i in sent]
    assert kinds == [(4, 1), (5, 1), (1, 2)]
    assert meta_of(sent[-1])["EBM_Image"] == ImageKind.FALLBACK.name
    assert summary.labelled[-1] == "slice 1: no image with a phase: the image is a fallback"
    assert "slice 1: no image with a phase: the image is a fallback" in caplog.text


def test_integer_pixels_give_phase_and_sign_back(tmp_path):
    chosen = settings(output__images=["magnitude", "phase", "real"], output__pixel_type="uint16")
    sent = images_of(scan_messages(tmp_path, n_slices=1), chosen)

    for image, value in zip(sent, (2.0, 2.5, VALUE.real), strict=True):
        assert image.data.dtype == np.uint16
        meta = meta_of(image)
        slope = float(meta["RescaleSlope"])
        back = image.data * slope + float(meta["RescaleIntercept"])
        assert np.abs(back - value).max() <= slope / 2 * 1.001
    assert set(np.unique(sent[1].data)) == {round((2.5 + math.pi) * 2048 / math.pi)}


def test_the_real_series_has_one_slope(tmp_path):
    """The second slice is 30 times as bright as the first one."""
    joint = StandIn()
    joint.misbehave = lambda result: setattr(
        result, "image", -result.image * (30 if len(joint.batches) > 1 else 1)
    )
    chosen = settings(output__images=["real"], output__pixel_type="int16")
    first, second = images_of(scan_messages(tmp_path, n_slices=2), chosen, joint)

    slopes = [float(meta_of(image)["RescaleSlope"]) for image in (first, second)]
    assert slopes[0] == pytest.approx(2 * 1 / 2047)
    assert slopes[1] == slopes[0] * 32
    assert second.data.max() == 2048 - round(60 / slopes[1])


def test_complex_stays_float_where_the_others_are_integers_by_themselves(tmp_path):
    parameters = Text(json.dumps({"parameters": {"output.images": ["phase", "complex"]}}))
    sent = images_of([parameters, *scan_messages(tmp_path, n_slices=1)], settings())
    assert [image.data.dtype for image in sent] == [np.int16, np.complex64]


def test_a_gadgetron_chain_may_ask_for_them(tmp_path):
    text = '<configuration><property name="output.images" value="[magnitude, phase]"/></configuration>'
    sent = images_of([ConfigText(text), *scan_messages(tmp_path, n_slices=1)], settings())
    assert [int(image.header["image_series_index"]) for image in sent] == [1, 4]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"output.images": ["fase"]}, "output.images.0: found the text 'fase', .*'magnitude', 'phase'"),
        (
            {"output.images": "phase"},
            "found the text 'phase', needs a list of any of magnitude, phase, complex, real",
        ),
        ({"output.images": []}, "needs a list of any of magnitude, phase, complex, real that is not empty"),
        ({"output.images": ["phase", "phase"]}, "the images phase, phase name one kind twice"),
        (
            {"output.images": ["complex"], "output.pixel_type": "uint16"},
            "complex images have no uint16 pixels; set pixel_type to float or auto, or leave complex out",
        ),
        (
            {"image_phase": "freely"},
            "image_phase: found the text 'freely', needs one of prior, real, soft, free",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused_with_words(changes, words):
    with pytest.raises(SettingsError, match=words):
        load_settings(None, changes.items())


def test_a_complex_series_refuses_integer_pixels():
    with pytest.raises(OwnProtocolError, match="complex images have no integer pixels"):
        reconstruction_image(
            np.ones((45, 40), np.complex64),
            context(),
            RECONSTRUCTIONS["complex"],
            image_index=1,
            pixel_type=PixelType.UINT16,
        )


def test_an_interpolated_phase_is_that_of_the_interpolated_complex_image():
    """A phase that wraps: interpolating the phase itself would smear its edges."""
    x = np.arange(40) - 20
    image = np.broadcast_to(np.exp(2j * np.pi * 3 * x / 40), (45, 40)).astype(np.complex64)
    sent = reconstruction_image(
        image, context(recon_matrix=(80, 45, 1)), RECONSTRUCTIONS["phase"], image_index=1
    )
    finer = 2 * np.pi * 3 * (np.arange(80) - 40) / 80
    assert np.abs(np.angle(np.exp(1j * (sent.data[0, 0] - finer)))).max() < 1e-4


def test_more_images_than_their_16_bit_number_can_count_are_refused_by_name(tmp_path):
    summary = StreamSummary()
    summary.counts[ImageKind.RECONSTRUCTED] = LARGEST_IMAGE_INDEX - 1
    stream = reconstruct_stream(
        scan_messages(tmp_path, n_slices=2),
        settings(),
        reconstructor=reconstructor(StandIn()),
        summary=summary,
    )
    assert int(next(stream).header["image_index"]) == 65535
    with pytest.raises(
        ScanError, match="slice 1 is image 65536 of its stream, but image_index is a 16-bit field"
    ):
        next(stream)


def test_missing_memory_for_shared_maps_is_in_meta_and_log(tmp_path, caplog):
    joint = reconstructor(StandIn(misbehave=steep))
    messages = scan_messages(tmp_path, n_slices=1)
    assembler = SliceAssembler(
        parse_scan_header(next(m.text for m in messages if isinstance(m, ScanHeader))),
        assembly_settings(settings()),
    )
    (one,) = [s for m in messages if isinstance(m, Acquisition) for s in assembler.add(m)]
    (result,) = joint([one.kspace], settings())
    writer = SeriesWriter(PixelType.FLOAT32, StreamSummary(), ["phase"], references=PhaseReferences(0))
    with caplog.at_level(logging.WARNING):
        finished = [writer.reconstruction(one, result, completed_by=1) for _ in range(2)]
    assert "no memory was left for maps" in meta_of(finished[0].image)["EBM_PhaseReference"]
    assert caplog.text.count("phase differences to its other images are not defined (said once)") == 1


def test_replay_writes_each_series_into_the_image_file_and_pictures(tmp_path):
    out, png = tmp_path / "images.h5", tmp_path / "png"
    replay(
        make_scan(tmp_path / "scan.h5", n_slices=2),
        out,
        settings(output__images=ALL, output__pixel_type="auto"),
        png=png,
        reconstructor=reconstructor(StandIn(misbehave=steep)),
    )
    with h5py.File(out) as file:
        assert sorted(name for name in file["dataset"] if name.startswith("image_")) == [
            "image_1",
            "image_4",
            "image_5",
            "image_6",
        ]
    with ismrmrd.Dataset(str(out), create_if_needed=False) as file:
        assert file.number_of_images("image_4") == 2
        np.testing.assert_allclose(file.read_image("image_4", 1).data, 2.5, rtol=1e-5)
        np.testing.assert_allclose(file.read_image("image_5", 0).data, VALUE, rtol=1e-5)
    assert len(list(png.iterdir())) == 8
    grey = pictures.imread(png / "image_6_0001_slice_0.png")
    assert np.abs(grey[..., :3]).max() == 0  # the value is the lowest of its window, which is symmetric
    colours = pictures.imread(png / "image_4_0002_slice_1.png")[..., :3]
    assert np.ptp(colours[0, 0]) > 0.05


def test_colours_of_phases_go_round(tmp_path):
    phase = np.array(
        [[-math.pi, math.pi, math.pi - 0.001, 0.0, math.pi / 2, -math.pi / 2, 2 * math.pi, np.nan]]
    )
    save_phase(tmp_path / "phase.png", phase)
    colours = pictures.imread(tmp_path / "phase.png")[0, :, :3]
    np.testing.assert_array_equal(colours[0], colours[1])
    assert np.abs(colours[2] - colours[0]).max() < 0.02
    assert np.abs(colours[4] - colours[5]).max() > 0.2
    np.testing.assert_array_equal(colours[6], colours[3])
    np.testing.assert_array_equal(colours[7], colours[3])
