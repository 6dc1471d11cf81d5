"""What converters of the vendors' raw data really write, and what must not cost an image."""

import pytest
from scan_assembly import assembled, assert_close, samples_of
from synthetic_scan import Protocol, lines_of, readout

from gadget.errors import ScanError
from gadget.scan.header import parse_scan_header
from gadget.wire.headers import AcquisitionFlag as Flag

SCAN = Protocol()
KSPACE = SCAN.kspace()
LINES = {"kspace_encoding_step_1": (0, 44, 22)}


def test_numbers_that_only_reports_need_may_be_words_or_nan() -> None:
    """A style sheet that divides what is not there writes NaN; one for Philips data writes 'ETH' as TR."""
    parameters = "<sequenceParameters><TR>ETH</TR><TE>2.5</TE><TE>NaN</TE></sequenceParameters>"
    text = SCAN.xml().replace("</ismrmrdHeader>", f"{parameters}</ismrmrdHeader>")
    text = text.replace("<receiverChannels>3</receiverChannels>", "<receiverChannels>NaN</receiverChannels>")
    text = text.replace(
        "<acquisitionSystemInformation>",
        "<acquisitionSystemInformation><systemFieldStrength_T>inf</systemFieldStrength_T>",
    )
    text = text.replace("</encoding>", "<echoTrainLength>NaN</echoTrainLength></encoding>")
    found = parse_scan_header(text)
    assert found.repetition_times_ms == ()
    assert found.echo_times_ms == (2.5,)
    assert found.receiver_channels is None
    assert found.field_strength_t is None
    assert found.encodings[0].echo_train_length is None
    (slice_,) = assembled(text, lines_of(KSPACE))
    assert_close(samples_of(slice_), SCAN.kept_kspace())


@pytest.mark.parametrize("name", ["repetition", "slice", "set", "average", "kspace_encoding_step_2"])
@pytest.mark.parametrize("maximum", ["NaN", "-1"])
def test_limits_of_counters_that_place_no_line_may_be_nonsense(name: str, maximum: str) -> None:
    """'Number - 1' where the number is not there, or 0."""
    limit = f"<{name}><minimum>0</minimum><maximum>{maximum}</maximum><center>0</center></{name}>"
    text = SCAN.xml().replace("</encodingLimits>", f"{limit}</encodingLimits>")
    assert name not in parse_scan_header(text).encodings[0].limits
    (slice_,) = assembled(text, lines_of(KSPACE))
    assert slice_.context.is_complete


def test_limits_of_the_partitions_of_a_slab_have_to_be_right() -> None:
    limit = "<minimum>0</minimum><maximum>NaN</maximum><center>0</center>"
    text = Protocol(encoded=(80, 45, 4)).xml()
    text = text.replace(
        "</encodingLimits>",
        f"<kspace_encoding_step_2>{limit}</kspace_encoding_step_2></encodingLimits>",
    )
    with pytest.raises(ScanError, match=r"kspace_encoding_step_2\.maximum is 'NaN'; it must be a finite"):
        parse_scan_header(text)


@pytest.mark.parametrize("n", [1, 2])
def test_limits_that_give_the_number_of_averages_are_not_missing_one(n: int) -> None:
    """philips_ismrmrd writes numbers where the last index belongs."""
    protocol = Protocol(limits={**LINES, "average": (0, n, 0)})
    readouts = [one for average in range(n) for one in lines_of(KSPACE, average=average)]
    (slice_,) = assembled(protocol, readouts)
    assert slice_.context.is_complete
    assert (
        f"warning: the header's limits of average end at {n}, but no readout is of that one: taken as their "
        "number" in slice_.context.notes
    )
    assert_close(samples_of(slice_), protocol.kept_kspace())


def test_averages_that_a_broken_off_scan_lacks_are_missed() -> None:
    three = Protocol(limits={**LINES, "average": (0, 2, 0)})
    (slice_,) = assembled(three, lines_of(KSPACE, average=0))
    assert not slice_.context.is_complete
    # The last average of one slice came, of the other not.
    readouts = [*lines_of(KSPACE), *lines_of(KSPACE, average=1), *lines_of(KSPACE, slice=1)]
    first, second = assembled(Protocol(limits={**LINES, "average": (0, 1, 0)}), readouts)
    assert first.context.is_complete
    assert not second.context.is_complete


def test_every_last_line_may_end_slice_repetition_and_step() -> None:
    """Bruker's converter: slices interleaved, three LAST flags with the last line of each, no averages."""
    flags = (Flag.LAST_IN_SLICE, Flag.LAST_IN_REPETITION, Flag.LAST_IN_ENCODE_STEP1)
    readouts = [
        readout((1 + number) * KSPACE[:, row], row, *(flags if row == 44 else ()), slice=number)
        for row in range(45)
        for number in range(3)
    ]
    slices = assembled(SCAN, readouts)
    assert [one.context.slice for one in slices] == [0, 1, 2]
    for number, one in enumerate(slices):
        assert one.context.is_complete
        assert_close(samples_of(one), (1 + number) * SCAN.kept_kspace())


def test_white_space_round_a_header_does_not_matter() -> None:
    assert parse_scan_header(f"\n  {SCAN.xml()}\n\n") == parse_scan_header(SCAN.xml())


def test_a_header_without_dwell_time_position_and_counter_is_enough() -> None:
    """UIH's converter leaves scan_counter at 0, GE's the dwell time and, of P-files, all directions."""
    readouts = lines_of(
        KSPACE, sample_time_us=0.0, read_dir=(0, 0, 0), phase_dir=(0, 0, 0), slice_dir=(0, 0, 0)
    )
    for one in readouts:
        one.header["scan_counter"] = 0
    (slice_,) = assembled(SCAN, readouts)
    assert_close(samples_of(slice_), SCAN.kept_kspace())
