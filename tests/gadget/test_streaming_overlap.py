"""Reading, assembly, reconstruction and sending at the same time: what waits for what, and how it ends."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from scripted_sampling import ScriptedSampling
from simulated_scans import StandIn, reconstructor, scan_messages, settings
from stand_ins import ZeroFilled

import gadget.pipeline
import gadget.series_writer
from gadget.errors import GadgetError, ScanError
from gadget.image_meta import read_meta
from gadget.pipeline import reconstruct_stream
from gadget.wire.headers import WAVEFORM_HEADER
from gadget.wire.messages import Acquisition, Image, Message, Waveform

SOON = 5.0


def stream(messages, joint=None, chosen=None, made=None, **others) -> Iterator[Message]:
    made = made or reconstructor(joint or StandIn())
    return reconstruct_stream(messages, chosen or settings(), reconstructor=made, overlap=True, **others)


def ends_of_slices(messages) -> list[int]:
    """Return how many messages there are up to the last readout of each slice."""
    ends: dict[int, int] = {}
    for number, message in enumerate(messages, start=1):
        if isinstance(message, Acquisition) and not message.header["flags"] & (1 << 18):
            ends[int(message.header["idx"]["slice"])] = number
    return [ends[slice_] for slice_ in sorted(ends)]


class Paused:
    """Messages that go on beyond a number of them only when they are let to."""

    def __init__(self, messages: list[Message], after: int) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._messages, self._after = messages, after

    def __iter__(self) -> Iterator[Message]:
        yield from self._messages[: self._after]
        self.reached.set()
        assert self.go_on.wait(SOON)
        yield from self._messages[self._after :]


class Taker(threading.Thread):
    """Takes all answers of a stream in another thread, while the ``with`` runs."""

    def __init__(self, answers: Iterator[Message]) -> None:
        super().__init__()
        self.taken: list[Message] = []
        self._answers = answers

    def run(self) -> None:
        self.taken += self._answers

    def __enter__(self) -> "Taker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join(SOON)
        assert not self.is_alive()


def stages() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name in ("assembly", "images")]


@pytest.fixture(autouse=True)
def no_stage_is_left():
    before = stages()
    yield
    for thread in set(stages()) - set(before):
        thread.join(SOON)
        assert not thread.is_alive()


def images_of(messages) -> list[Image]:
    return [one for one in messages if isinstance(one, Image)]


def slices_of(messages) -> list[int]:
    """Return the slices of images; none may be a fallback, as a stand-in's failed assertion gives one."""
    images = images_of(messages)
    assert {read_meta(one)["EBM_Image"] for one in images} <= {"RECONSTRUCTED"}
    return [int(one.header["slice"]) for one in images]


def test_the_images_are_those_of_a_stream_without_threads(tmp_path):
    messages = scan_messages(tmp_path, n_slices=4)
    plain = list(reconstruct_stream(messages, settings(), reconstructor=reconstructor(ZeroFilled())))
    overlapped = list(stream(messages, ZeroFilled()))

    assert len(plain) == 4
    for one, other in zip(plain, overlapped, strict=True):
        assert one.header.tobytes()[:-4] == other.header.tobytes()[:-4]
        np.testing.assert_array_equal(one.data, other.data)


@pytest.mark.parametrize("missing", ["assembly", "images"])
def test_without_a_thread_the_images_are_the_same(missing, tmp_path, monkeypatch, caplog):
    messages = scan_messages(tmp_path, n_slices=3)
    expected = list(reconstruct_stream(messages, settings(), reconstructor=reconstructor(StandIn())))
    start = threading.Thread.start

    def start_others(thread: threading.Thread) -> None:
        if thread.name == missing:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_others)
    answers = list(stream(messages))

    assert [one.header["image_index"] for one in answers] == [1, 2, 3]
    for one, other in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(one.data, other.data)
    assert f"The steps of this scan ({missing}) do not overlap: can't start new thread." in caplog.text


def test_an_image_comes_before_the_next_line_does_whatever_the_batch_could_be(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)
    source = Paused(messages, ends_of_slices(messages)[0])
    answers = stream(source, chosen=settings(batch_slices=4))

    assert slices_of([next(answers)]) == [0]
    source.go_on.set()
    assert slices_of(answers) == [1]


def test_lines_are_taken_and_assembled_while_an_image_is_made(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)
    source = Paused(messages, ends_of_slices(messages)[1])

    def wait(_result):
        assert source.reached.wait(SOON)

    answers = stream(source, StandIn(misbehave=wait))
    assert slices_of([next(answers)]) == [0]
    source.go_on.set()
    assert slices_of(answers) == [1]


def test_an_image_is_made_while_the_one_before_is_sent(tmp_path):
    made = threading.Event()
    joint = StandIn(misbehave=lambda result: made.set() if result.image[0, 0, 0, 0].real == 2 else None)
    answers = stream(scan_messages(tmp_path, n_slices=2), joint)

    next(answers)
    assert made.wait(SOON)  # while we, who send, have the first
    assert slices_of(answers) == [1]


@pytest.mark.parametrize(("batch_slices", "sizes"), [(1, [1, 1, 1, 1, 1]), (2, [1, 2, 2]), (9, [1, 4])])
def test_slices_that_have_come_meanwhile_are_reconstructed_together(tmp_path, batch_slices, sizes):
    messages = scan_messages(tmp_path, n_slices=5)
    source = Paused(messages, ends_of_slices(messages)[0])

    def wait_for_all_others(result):
        if result.image[0, 0, 0, 0].real == 1:
            source.go_on.set()
            (assembly,) = [thread for thread in stages() if thread.name == "assembly"]
            assembly.join(SOON)

    joint = StandIn(misbehave=wait_for_all_others)
    answers = stream(source, joint, settings(batch_slices=batch_slices))

    assert slices_of(answers) == [0, 1, 2, 3, 4]
    assert [len(batch.samples) for batch in joint.batches] == sizes


def test_the_source_is_held_up_where_images_take_long(tmp_path, monkeypatch):
    """One slice is being reconstructed, one waits, and one more is in the assembly's hands."""
    monkeypatch.setattr(gadget.pipeline, "AHEAD_BYTES", 1)
    messages = scan_messages(tmp_path, n_slices=6)
    third, more, go_on = threading.Event(), threading.Event(), threading.Event()

    def source():
        for number, message in enumerate(messages, start=1):
            if number == ends_of_slices(messages)[2]:
                third.set()
            if third.is_set() and number > ends_of_slices(messages)[2]:
                more.set()
            yield message

    joint = StandIn(misbehave=lambda _result: go_on.wait(SOON))
    with Taker(stream(source(), joint)) as taker:
        assert third.wait(SOON)
        assert not more.wait(0.1)
        go_on.set()

    assert slices_of(taker.taken) == [0, 1, 2, 3, 4, 5]


def test_uncertainty_begins_when_the_image_has_been_handed_on(tmp_path):
    has_image = threading.Event()

    def on_step(batch, _step):
        if batch == 1:
            assert has_image.wait(SOON)

    made = reconstructor(StandIn(), sampling=ScriptedSampling(on_step=on_step))
    answers = stream(scan_messages(tmp_path, n_slices=2), chosen=settings(posterior__enabled=True), made=made)
    assert int(next(answers).header["image_series_index"]) == 1
    has_image.set()
    rest = [(int(one.header["image_series_index"]), int(one.header["image_index"])) for one in answers]
    assert sorted(rest) == [(1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]


def test_sampling_waits_while_the_source_has_more(tmp_path):
    """Between readouts that are there already there is no step, as long as the source says so."""
    script = ScriptedSampling()
    messages = scan_messages(tmp_path, n_slices=3)
    made = reconstructor(StandIn(), sampling=script)
    answers = stream(messages, chosen=settings(posterior__enabled=True), made=made, silent=lambda: False)
    series = [int(one.header["image_series_index"]) for one in answers]
    assert series == [1, 1, 1, 2, 3, 2, 3, 2, 3]


# Ends


def test_a_faulty_scan_gives_the_images_before_the_fault_and_then_the_error(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)
    broken = messages[ends_of_slices(messages)[0]]
    messages[ends_of_slices(messages)[0]] = Acquisition(broken.header, broken.trajectory, broken.data[:1])
    answers = stream(messages)

    assert slices_of([next(answers)]) == [0]
    with pytest.raises(ScanError, match="has 1 coils, but earlier readouts have 3"):
        list(answers)


def test_a_source_that_fails_is_told_after_the_images_that_came(tmp_path):
    messages = scan_messages(tmp_path, n_slices=2)

    def source():
        yield from messages[: ends_of_slices(messages)[0]]
        raise GadgetError("the peer is gone")

    answers = stream(source())
    next(answers)
    with pytest.raises(GadgetError, match="the peer is gone"):
        next(answers)


def test_a_failure_in_the_making_of_images_ends_it_while_the_source_still_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(gadget.series_writer, "LARGEST_IMAGE_INDEX", 1)
    messages = scan_messages(tmp_path, n_slices=3)
    source = Paused(messages, ends_of_slices(messages)[1])
    answers = stream(source)

    next(answers)
    with pytest.raises(ScanError, match="image_index is a 16-bit field"):
        next(answers)
    source.go_on.set()  # the conversation ends; the thread that takes messages must end then, too


def test_closing_it_stops_a_reconstruction_that_runs(tmp_path):
    begun = threading.Event()
    stopped_by = []

    def wait(result):
        if result.image[0, 0, 0, 0].real == 2:
            begun.set()
            waited = threading.Event()
            while not joint.calls[-1]["out_of_time"]():
                waited.wait(0.01)
            stopped_by.append("out_of_time")

    joint = StandIn(misbehave=wait)
    answers = stream(scan_messages(tmp_path, n_slices=3), joint)
    next(answers)
    assert begun.wait(SOON)
    answers.close()

    assert stopped_by == ["out_of_time"]
    assert len(joint.batches) == 2
    assert "images" not in [thread.name for thread in stages()]


def test_a_stream_that_nobody_waits_for_gives_up_its_place_before_the_device(tmp_path):
    solver, gone = reconstructor(StandIn()), threading.Event()
    waits = threading.Event()

    def cancelled():
        waits.set()
        return gone.is_set()

    with solver.turns.turn("another scan", urgent=True):
        answers = stream(scan_messages(tmp_path, n_slices=1), made=solver, cancelled=cancelled)
        with Taker(answers) as taker:
            assert waits.wait(SOON)
            gone.set()
    assert taker.taken == []


def test_two_streams_take_turns(tmp_path):
    """While one has the device, the other waits for it, up to the last slice."""
    scans = []
    for name, noise in (("one", 0.01), ("two", 0.3)):
        (tmp_path / name).mkdir()
        scans.append(scan_messages(tmp_path / name, n_slices=3, noise=noise))
    waited = threading.Event()

    def wait_for_the_other(_result):
        while len(solver.turns) == 0 and len(joint.batches) < 6:
            waited.wait(0.01)

    joint = StandIn(misbehave=wait_for_the_other)
    solver, chosen = reconstructor(joint), settings(noise__source="data")
    with ExitStack() as takers, solver.turns.turn("the test", urgent=True):
        for scan in scans:
            takers.enter_context(Taker(stream(scan, chosen=chosen, made=solver)))
        while len(solver.turns) < 2:
            waited.wait(0.01)

    noise = [batch.noise_std for batch in joint.batches]
    is_noisy = [one > np.mean(noise) for one in noise]
    assert is_noisy in ([True, False] * 3, [False, True] * 3)


# Which message completed an image


@pytest.mark.parametrize("overlap", [False, True])
def test_each_image_names_the_data_message_that_completed_it(tmp_path, overlap):
    messages = scan_messages(tmp_path, n_slices=3)
    waveform = Waveform(np.zeros((), WAVEFORM_HEADER), np.zeros((1, 4), np.uint32))
    messages.insert(ends_of_slices(messages)[0] + 5, waveform)
    n_before_data = next(n for n, one in enumerate(messages) if isinstance(one, Acquisition))
    expected = [end - n_before_data for end in ends_of_slices(messages)]

    answers = reconstruct_stream(
        messages,
        settings(output__images=["magnitude", "phase"], posterior__enabled=True),
        reconstructor=reconstructor(StandIn(), sampling=ScriptedSampling()),
        overlap=overlap,
    )
    found: dict[int, list[int]] = {}
    for one in images_of(answers):
        series = found.setdefault(int(one.header["image_series_index"]), [])
        series.append(int(read_meta(one)["EBM_CompletedBy"]))

    assert found == dict.fromkeys((1, 2, 3, 4), expected)  # magnitude, mean, deviation, phase
    assert expected[1] - expected[0] == expected[2] - expected[1] + 1  # the waveform counts
