"""Which coil a row of a readout is, by mask, labels and order."""

from typing import Any

import numpy as np
import pytest
from synthetic_scan import readout

from gadget.scan.coil_identity import CoilIdentity, identify, match


def header_of(*channels: int) -> Any:
    """Return a header with these bits set in channel_mask, as ISMRMRD's isChannelActive reads them."""
    words = [0] * 16
    for channel in channels:
        words[channel // 64] |= 1 << (channel % 64)
    return readout(np.zeros((1, 4)), channel_mask=np.array(words, np.uint64)).header


def test_without_a_mask_the_labels_name_the_rows_in_their_order() -> None:
    # As a Skyra's file has it: numbers of the receiver, names in the order of the channels
    labels = {22: "Body:B22", 21: "Body:B21", 34: "Spine:S52"}
    coils = identify(header_of(), 3, labels)
    assert coils.names == ("Body:B22", "Body:B21", "Spine:S52")
    assert coils.channels == (0, 1, 2)


def test_numbers_from_0_to_n_minus_1_give_the_order() -> None:
    assert identify(header_of(), 3, {2: "C", 0: "A", 1: "B"}).names == ("A", "B", "C")


def test_a_mask_picks_the_channels_and_their_names() -> None:
    labels = {number: f"H{number}" for number in range(70)}
    coils = identify(header_of(1, 63, 64, 69), 4, labels)
    assert coils.channels == (1, 63, 64, 69)
    assert coils.names == ("H1", "H63", "H64", "H69")


def test_a_mask_of_another_number_of_channels_says_nothing() -> None:
    labels = {0: "A", 1: "B", 2: "C"}
    assert identify(header_of(0, 1), 3, labels) == identify(header_of(), 3, labels)


def test_labels_of_the_masked_channels_alone_name_the_rows() -> None:
    coils = identify(header_of(4, 9), 2, {0: "A", 1: "B"})
    assert (coils.channels, coils.names) == ((4, 9), ("A", "B"))


@pytest.mark.parametrize("labels", [{}, {0: "A"}, {0: "A", 1: "A"}, {0: "A", 1: " "}])
def test_labels_that_are_missing_double_or_empty_name_nothing(labels: dict[int, str]) -> None:
    assert identify(header_of(), 2, labels).names == ()


def test_a_name_is_one_short_line() -> None:
    coils = identify(header_of(), 1, {0: "a\nb\t" + "c" * 100})
    assert coils.names == (("a b " + "c" * 100)[:64],)


def test_coils_are_matched_by_name_whatever_their_order() -> None:
    noise = CoilIdentity(4, names=("A", "B", "C", "D"))
    assert match(noise, CoilIdentity(3, names=("D", "A", "B")), is_same_scan=False) == (3, 0, 1)


def test_channels_count_within_one_scan_only() -> None:
    noise, data = CoilIdentity(3, (0, 1, 5)), CoilIdentity(2, (1, 5))
    assert match(noise, data, is_same_scan=True) == (1, 2)
    assert match(noise, data, is_same_scan=False) == (
        "it has 3 coils and the imaging readouts have 2, and nothing says which of them are the same "
        "(coilLabel of the headers, channel_mask of the readouts)"
    )
    assert match(data, noise, is_same_scan=True) == "it has no channel(s) 0 of the scanner"


def test_as_many_coils_without_names_are_taken_in_their_order() -> None:
    assert match(CoilIdentity(3), CoilIdentity(3, names=("A", "B", "C")), is_same_scan=False) == (0, 1, 2)


def test_coils_that_the_noise_does_not_have_are_named() -> None:
    noise, data = CoilIdentity(2, names=("A", "B")), CoilIdentity(2, names=("B", "X"))
    assert match(noise, data, is_same_scan=False) == "it has no coil(s) X (1)"


def test_rows_are_said_by_number_without_names() -> None:
    assert CoilIdentity(3).say([0, 2]) == "coil(s) 0, 2 (counted from 0)"
