"""Latency: from the data that completed a slice to its image, counted as the pipeline counts."""

import logging

import pytest
from simulated_scans import StandIn, reconstructor, scan_messages, settings
from watched import ENDED, HEADER, image, look_on, readout, reconstruction, text

from gadget.operations.latency import Arrivals, LatencyWatch, quantile
from gadget.pipeline import reconstruct_stream
from gadget.wire.messages import Acquisition, Image


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger="gadget.operations.latency")
    return caplog


def test_the_time_counts_from_the_data_that_completed_the_slice(log):
    look_on(LatencyWatch("peer"))  # readouts at 100, 101, 102 s; images at 102.25, 102.5, 102.75 s

    assert [record.getMessage() for record in log.records[:3]] == [
        "peer: image 1 of series 1, slice 0: sent 2.250 s after its last data",
        "peer: image 2 of series 1, slice 1: sent 1.500 s after its last data",
        "peer: image 3 of series 1, slice 2: sent 0.750 s after its last data",
    ]
    assert log.records[0].facts == {"scan": "peer", "image": 1, "series": 1, "slice": 0, "latency_s": 2.25}


def test_the_end_tells_what_the_latencies_came_to(log):
    look_on(LatencyWatch("peer"))

    assert log.records[-1].getMessage() == (
        "peer: 3 images of series 1, from last data to sent: median 1.500 s, 95 % within 2.250 s"
    )


def test_uncertainty_does_not_count_among_the_latencies_of_images(log):
    watch = LatencyWatch("peer")
    watch.received(readout(), 1.0)
    watch.sent(reconstruction(), 2.0)
    watch.sent(image(1, series=3, Image="POSTERIOR_STD", CompletedBy=1), 31.0)
    watch.ended(ENDED)

    assert "image 1 of series 3, slice 0: sent 30.000 s" in log.records[1].getMessage()
    assert "1 images of series 1, from last data to sent: median 1.000 s" in log.records[-1].getMessage()


def test_only_data_is_counted():
    arrivals = Arrivals()
    for at, message in enumerate((HEADER, readout(), text("{}"), readout())):
        arrivals.received(message, float(at))

    assert len(arrivals) == 2
    assert arrivals.latency("2", 4.5) == 1.5


@pytest.mark.parametrize("number", [None, "", "0", "3", "-1", "1.5", "one", "٣", "9" * 500])
def test_what_is_no_number_of_a_message_has_no_latency(number):
    arrivals = Arrivals()
    arrivals.received(readout(), 1.0)
    arrivals.received(readout(), 2.0)

    assert arrivals.latency(number, 5.0) is None


def test_images_of_other_origin_are_not_logged(log):
    watch = LatencyWatch("peer")
    watch.received(readout(), 1.0)
    watch.sent(image(), 2.0)
    watch.sent(text("hello"), 2.0)
    watch.ended(ENDED)

    assert not log.records


def test_the_pipeline_says_which_message_completed_each_slice(tmp_path, log):
    watch = LatencyWatch("peer")
    n_sent, completing = 0, []

    def received():
        nonlocal n_sent
        for message in scan_messages(tmp_path, n_slices=2):
            if isinstance(message, Acquisition):
                n_sent += 1
                if message.header["flags"] >> 7 & 1:  # ISMRMRD's ACQ_LAST_IN_SLICE = 8, counted from 1
                    completing.append(n_sent)
            watch.received(message, float(n_sent))
            yield message

    answers = reconstruct_stream(received(), settings(), reconstructor=reconstructor(StandIn()))
    for answer in answers:
        if isinstance(answer, Image):
            watch.sent(answer, 1000.0)

    assert len(completing) == 2
    assert [record.facts["latency_s"] for record in log.records] == [1000.0 - k for k in completing]


@pytest.mark.parametrize(
    ("part", "expected"), [(0.5, 3), (0.95, 5), (0.2, 1), (0.21, 2), (1.0, 5)]
)  # nearest rank, by hand
def test_a_quantile_is_one_of_the_values(part, expected):
    assert quantile([5, 1, 3, 2, 4], part) == expected


def test_nothing_has_no_quantile():
    with pytest.raises(ValueError, match=r"no quantile 0.5 of 0 values"):
        quantile([], 0.5)
