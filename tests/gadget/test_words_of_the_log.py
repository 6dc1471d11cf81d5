"""Words of refusals, warnings and notes that no other test reads: each with the scan that earns it."""

import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scan_assembly import assembled
from simulated_scans import StandIn, reconstructor, settings
from synthetic_scan import Protocol, lines_of, noise_readout

from gadget.errors import ScanError
from gadget.noise_cache import NoiseCache
from gadget.pipeline import reconstruct_stream
from gadget.scan.assemble import AssemblySettings, NoiseSource
from gadget.scan.coil_start import STARTS, STAYS, UNUSABLE
from gadget.scan.header import parse_scan_header
from gadget.scan.noise import NoiseCovariance
from gadget.wire.messages import Acquisition, ConfigFile, Message, Response, ScanHeader

SCAN = Protocol()
KSPACE = SCAN.kspace()
WITH_NOISE = AssemblySettings()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("<trajectory>cartesian</trajectory>", ""),
            "Scan header has no encoding[0].trajectory; cannot tell how k-space was sampled.",
        ),
        (
            ("fieldOfView_mm", "somethingElse"),
            "Scan header has no encoding[0].encodedSpace.fieldOfView_mm; cannot place the image. Check the "
            "converter.",
        ),
        (
            ("<y>135.0</y>", ""),
            "Scan header has no encoding[0].encodedSpace.fieldOfView_mm.y; cannot place the image. Check the "
            "converter.",
        ),
        (
            ("<maximum>44</maximum>", "<maximum>65536</maximum>"),
            "encodingLimits.kspace_encoding_step_1 has minimum 0, maximum 65536, center 22; counters run "
            "from a minimum to a maximum within 0 to 65535.",
        ),
        (
            ("<maximum>44</maximum>", "<maximum>44.5</maximum>"),
            "encodingLimits.kspace_encoding_step_1.maximum is 44.5; it must be a whole number.",
        ),
    ],
)
def test_a_header_without_what_places_kspace_is_refused(change: tuple[str, str], words: str) -> None:
    with pytest.raises(ScanError, match=re.escape(words)):
        parse_scan_header(SCAN.xml().replace(*change))


def notes_of(readouts: list[Acquisition], chosen: AssemblySettings = WITH_NOISE) -> tuple[str, ...]:
    (one,) = assembled(SCAN, readouts, chosen)
    return one.context.notes


def test_notes_say_what_became_of_the_oversampling() -> None:
    assert "readout oversampling removed: 80 to 40 columns" in notes_of(lines_of(KSPACE))


def test_a_slice_of_zeros_or_without_noise_says_what_level_was_assumed() -> None:
    chosen = AssemblySettings(noise=NoiseSource.DATA)
    assert "all samples are zero: noise level 1 assumed" in notes_of(lines_of(0 * KSPACE), chosen)
    words = "no noise found in the outermost samples: a millionth of the largest sample assumed"
    assert words in notes_of(lines_of(np.where(np.abs(KSPACE) > 0.5, KSPACE, 0)), chosen)


def test_noise_whose_dwell_time_is_not_known_is_taken_as_it_is() -> None:
    words = "a dwell time is not known: noise readouts and data taken to have the same noise"
    assert words in notes_of([noise_readout(1.0, sample_time_us=0.0), *lines_of(KSPACE)])


def test_few_noise_samples_give_no_correlations() -> None:
    words = "only 8 noise samples for 3 coils: their correlations were left out"
    assert words in notes_of([noise_readout(1.0, n_samples=8), *lines_of(KSPACE)])


def test_a_coil_that_is_no_number_throughout_a_readout_is_left_out() -> None:
    broken = lines_of(KSPACE)
    data = broken[7].data.copy()
    data[1] = np.inf
    broken[7] = replace(broken[7], data=data)
    words = "coil(s) 1 (counted from 0) left out: NaN or infinite throughout a readout"
    assert words in notes_of([noise_readout(1.0), *broken])


@pytest.mark.parametrize(
    ("shift", "axis", "words"),
    [
        (
            20,
            2,
            "the strongest sample of the readouts lies 20 columns behind the centre of the 80 columns: check "
            "center_sample, if the image is blurred",
        ),
        (
            -20,
            2,
            "the strongest sample of the readouts lies 20 columns before the centre of the 80 columns: check "
            "center_sample, if the image is blurred",
        ),
        (
            12,
            1,
            "the strongest line has kspace_encode_step_1 34, but the centre of k-space is taken to be 22: "
            "check the header's limits, if the image is blurred",
        ),
    ],
)
def test_an_echo_far_from_the_centre_is_warned_about(
    shift: int, axis: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    notes = notes_of(lines_of(np.roll(KSPACE, shift, axis=axis)))
    assert f"warning: {words}" in notes
    assert caplog.text.count(words) == 1


# The stream


def answers_of(messages: list[Message], **changes: Any) -> list[Message]:
    joint = changes.pop("joint", StandIn())
    return list(reconstruct_stream(messages, settings(**changes), reconstructor=reconstructor(joint)))


def test_a_stream_of_a_header_alone_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="gadget")
    assert answers_of([ConfigFile("x"), ScanHeader(SCAN.xml())]) == []
    assert "The stream ended without a readout." in caplog.text


def test_messages_that_do_not_belong_into_a_scan_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    answers = answers_of([ScanHeader(SCAN.xml()), Response(1, "x"), *lines_of(KSPACE)])
    assert len(answers) == 1
    assert "A Response came in the middle of a scan: not used." in caplog.text


def test_a_batch_that_fails_is_tried_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    calls = iter(range(9))

    def fail_once(_result: object) -> None:
        if next(calls) == 0:
            raise MemoryError

    readouts = [one for number in range(2) for one in lines_of(KSPACE, slice=number)]
    answers = answers_of(
        [ScanHeader(SCAN.xml()), *readouts],
        joint=StandIn(misbehave=fail_once),
        batch_slices=2,
        noise__source="prewhitened",
    )
    assert len(answers) == 2
    assert "A batch of 2 slices failed (out of memory): one by one now." in caplog.text


def test_what_is_said_of_a_separate_calibration() -> None:
    assert UNUSABLE == "separate calibration not used: the centre of its k-space was not measured"
    assert STARTS == "coil maps: the estimate starts from the separate calibration"
    assert STAYS.startswith(
        "coil maps: those of the separate calibration, as the centre of the image's k-space"
    )


# The noise cache


NOISE = NoiseCovariance(matrix=np.eye(2, dtype=np.complex128), n_samples=100, n_readouts=1, dwell_us=5.0)


def test_a_cache_that_is_no_folder_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "noise"
    path.write_text("no folder")
    assert NoiseCache(path).find("m") is None
    assert re.search(r"Noise cache: [0-9a-f]{64}\.json is not used: .*noise is not a folder", caplog.text)


def test_a_cache_of_another_version_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = NoiseCache(tmp_path / "noise")
    cache.keep("m", NOISE)
    (path,) = cache.folder.iterdir()
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"format": "gadgetron-ebm noise covariance, version 2"}))
    assert cache.find("m") is None
    assert "is not used: another program or version wrote it." in caplog.text
