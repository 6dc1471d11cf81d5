"""What the monitor knows: records of scans and slices, their bounds, and what it must never know."""

import json
import threading

import numpy as np
import pytest
from watched import CONFIG, ENDED, HEADER, SECRETS, image, look_on, readout, reconstruction, text

from gadget.answering import Ending
from gadget.errors import GadgetError
from gadget.operations import journal as journal_module
from gadget.operations.journal import MOST_SLICES, Journal
from gadget.operations.page_state import page_state, scans_of_the_day
from gadget.operations.server_status import ServerStatus
from gadget.operations.slice_record import KINDS
from gadget.reconstructor import ImageKind
from gadget.series import POSTERIOR_MEAN, POSTERIOR_STD
from gadget.wire.messages import Close, ConfigText, ScanHeader, Text


class Clock:
    """Seconds since the epoch, as the test says."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def journal(clock):
    return Journal(clock)


def state(journal):
    """What the page is told, as it arrives there."""
    return json.loads(json.dumps(page_state(journal, ServerStatus())))


def test_the_kinds_are_those_of_the_pipeline():
    assert {one.name for one in ImageKind} | {POSTERIOR_MEAN.name, POSTERIOR_STD.name} == set(KINDS)


def test_a_running_scan_says_how_far_it_is(journal, clock):
    watch = journal.watch("10.0.0.7:4000")
    watch.received(CONFIG, 0.0)
    watch.received(HEADER, 0.0)
    clock.now += 2.0
    for _ in range(1024):
        watch.received(readout(n_coils=4, n_samples=64), 1.0)
    watch.sent(reconstruction(1, completed_by=1), 1.5)
    clock.now += 1.0

    (scan,) = state(journal)["running"]

    assert scan["measured"] == "8 x 9, 160 x 180 mm, cartesian, accelerated 3 x 1, 2.89 T"
    assert (scan["address"], scan["peer"]) == ("10.0.0.7:4000", "an MRD or FIRE client")
    assert (scan["state"], scan["coils"], scan["messages"]) == ("receiving", 4, 1024)
    assert (scan["mib"], scan["mib_per_s"], scan["seconds"]) == (2.0, 1.0, 3.0)  # 1024 x 4 x 64 x 8 bytes
    assert (scan["images"], scan["announced"]) == (1, 6)
    assert scan["median"] == "0.500"


def test_a_scan_that_has_ended_is_one_of_the_day(journal, clock):
    look_on(journal.watch("peer"))

    (scan,) = scans_of_the_day(journal)
    assert (scan["state"], scan["images"], scan["median"], scan["p95"]) == ("done", 3, "1.500", "2.250")
    assert state(journal)["running"] == []
    clock.now += 25 * 3600
    assert scans_of_the_day(journal) == []


def test_a_scan_whose_data_is_all_there_is_reconstructing(journal):
    look_on(journal.watch("peer"), ending=None)

    assert state(journal)["running"][0]["state"] == "reconstructing"


def test_a_scan_that_was_answered_and_whose_peer_stays_is_not_called_receiving(journal):
    watch = journal.watch("peer")
    watch.received(HEADER, 1.0)
    watch.received(readout(), 2.0)
    watch.sent(Text("The peer broke the protocol."), 3.0)
    watch.sent(Close(), 3.0)
    (scan,) = state(journal)["running"]
    watch.received(Close(), 4.0)

    assert (scan["state"], scan["words"]) == ("answered", "The peer broke the protocol.")
    assert state(journal)["running"][0]["state"] == "answered"


def test_a_failure_says_why(journal):
    failure = GadgetError("The peer closed the connection before it had our CLOSE.")
    look_on(journal.watch("peer"), ending=Ending(3, 0, True, failure, False, 1.0))

    (scan,) = scans_of_the_day(journal)
    assert (scan["state"], scan["words"]) == ("failed", str(failure))


def test_an_unforeseen_failure_is_told_by_its_kind_alone(journal):
    look_on(journal.watch("peer"), ending=Ending(3, 0, True, ValueError("DOE^JANE"), False, 1.0))

    (scan,) = scans_of_the_day(journal)
    assert "ValueError" in scan["words"]
    assert "JANE" not in scan["words"]


def test_what_the_peer_was_told_is_shown(journal):
    watch = journal.watch("peer")
    watch.received(HEADER, 0.0)
    watch.sent(text("Slice 2 could not be reconstructed."), 1.0)

    assert state(journal)["running"][0]["words"] == "Slice 2 could not be reconstructed."


def test_a_probe_is_no_scan(journal):
    watch = journal.watch("peer")
    watch.received(CONFIG, 0.0)
    watch.ended(Ending(1, 0, False, None, False, 0.1))

    assert journal.totals.probes == 1
    assert not journal.finished


def test_a_slice_says_what_the_log_says(journal):
    look_on(journal.watch("peer"))

    newest = state(journal)["slices"][0]
    assert newest["label"] == "slice 2"
    assert dict(newest["facts"]) == {
        "latency": "0.750 s",
        "prior": "brain-local 1.3",
        "weight": "0.0123 (rule noise)",
        "outcome": "converged",
        "iterations": "40",
        "reconstruction": "1.3 s",
    }
    assert newest["badges"] == []


def test_uncertainty_joins_the_slice_that_it_belongs_to(journal):
    watch = journal.watch("peer")
    watch.received(HEADER, 0.0)
    watch.received(readout(), 1.0)
    watch.sent(reconstruction(1, pixels=np.full((9, 8), 4.0, np.float32)), 2.0)
    watch.sent(reconstruction(2), 2.0)
    posterior = {
        "Posterior": "NOT_MIXED",
        "PosteriorOutcome": "not mixed",
        "Chains": 2,
        "Draws": 100,
        "Sampler": "kinetic",
        "WorstRhat": 1.23456,
        "SmallestEffectiveSampleSize": 49.7,
        "CompletedBy": 1,
    }
    watch.sent(image(1, series=2, Image="POSTERIOR_MEAN", **posterior), 5.0)
    watch.sent(image(1, series=3, Image="POSTERIOR_STD", **posterior), 5.0)

    _, record = state(journal)["slices"]
    names = [one["name"] for one in record["pictures"]]
    assert names == ["image", "posterior mean", "standard deviation"]
    assert record["pictures"][1]["high"] == record["pictures"][0]["high"] == "4"  # one window for both
    facts = dict(record["facts"])
    assert (facts["uncertainty"], facts["draws"]) == ("not mixed", "2 x 100 (kinetic)")
    assert (facts["worst R-hat"], facts["smallest effective sample size"]) == ("1.235", "50")
    assert facts["latency of the uncertainty"] == "4.000 s"
    assert record["badges"] == [["uncertainty not reliable", "warning"]]
    assert journal.running[0].n_reconstructed == 2


@pytest.mark.parametrize(
    ("attributes", "badge"),
    [
        ({"Image": "FALLBACK"}, ["FALLBACK", "error"]),
        ({"Image": "OUT_OF_TIME"}, ["stopped by its time limit", "warning"]),
        ({"Image": "ALL_ZERO"}, ["all zero", "warning"]),
        ({"Typicality": "outside"}, ["outside for the prior", "warning"]),
        ({"ImageComments": "gadgetron-ebm: INCOMPLETE DATA"}, ["incomplete data", "warning"]),
    ],
)
def test_an_image_that_is_no_ordinary_one_has_a_badge(journal, attributes, badge):
    journal.watch("peer").sent(reconstruction(**attributes), 1.0)

    assert state(journal)["slices"][0]["badges"] == [badge]


def test_nothing_of_a_header_or_of_an_image_that_is_passed_on_is_kept(journal):
    watch = journal.watch("peer")
    watch.received(ConfigText("<configuration><patient>DOE^JANE</patient></configuration>"), 0.0)
    watch.received(HEADER, 0.0)
    watch.received(text('{"parameters": {"name": "DOE^JANE"}}'), 0.0)
    theirs = image(1, Prior="DOE^JANE", Outcome="JANE", ImageComments="DOE^JANE SECRET-1")
    watch.received(theirs, 0.5)
    watch.sent(theirs, 1.0)
    watch.ended(ENDED)

    assert state(journal)["slices"] == []
    told = json.dumps([state(journal), scans_of_the_day(journal)])
    assert '"images": 1' in told
    assert not [secret for secret in SECRETS if secret in told]


@pytest.mark.parametrize("xml", ["", "<ismrmrdHeader/>", "JANE", "<a><!DOCTYPE JANE></a>"])
def test_a_header_that_cannot_be_read_is_told_without_its_text(journal, xml):
    watch = journal.watch("peer")
    watch.received(ScanHeader(xml), 0.0)

    scan = state(journal)["running"][0]
    assert (scan["measured"], scan["announced"]) == ("its header cannot be read", None)


def test_the_same_problem_in_a_row_is_one_line(journal, clock):
    for word in ("a", "a", "b", "a"):
        clock.now += 1
        journal.note_problem("warning", word)

    shown = [(one["text"], one["times"], one["at"] - 1_000_000) for one in state(journal)["problems"]]
    assert shown == [("a", 1, 4.0), ("b", 1, 3.0), ("a", 2, 2.0)]
    assert state(journal)["counts"]["warnings"] == 4


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(journal_module, "MOST_PICTURE_BYTES", 10 * 72)
    monkeypatch.setattr(journal_module, "MOST_SCANS", 20)
    journal = Journal()
    for scan in range(110):
        look_on(journal.watch(f"peer {scan}"), n_readouts=1, n_images=3)
        journal.note_problem("error", "x" * 10_000 + str(scan))

    assert len(journal.finished) == 20
    assert len(journal.slices) == MOST_SLICES
    assert sum(one.n_bytes for one in journal.slices) <= 10 * 72
    assert journal.slices[-1].pictures  # the newest are those that stay
    assert len(journal.problems) <= 100
    assert max(len(one.text) for one in journal.problems) <= 400
    assert len(json.dumps(state(journal))) < 100_000
    assert len(scans_of_the_day(journal)) == 20


def test_a_picture_is_found_until_it_is_dropped(journal):
    look_on(journal.watch("peer"), n_images=MOST_SLICES + 1)

    assert journal.picture(2, 0) is not None
    assert journal.picture(2, 1) is None
    assert journal.picture(1, 0) is None


def test_who_waits_for_a_change_is_woken_by_it(journal):
    before = journal.version
    woken = threading.Event()
    waiting = threading.Thread(target=lambda: (journal.wait_for_change(before, 60.0), woken.set()))
    waiting.start()
    journal.note_problem("warning", "something")

    assert woken.wait(5.0)
    waiting.join()
