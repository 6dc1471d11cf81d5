"""``python -m gadgetron PORT MODULE TARGET`` against a test that plays Gadgetron's side."""

import contextlib
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripted_peer as script
import stub_nodes
from scripted_gadgetron import NodeInThread
from scripted_peer import CLOSE, CLOSE_BYTES, ERROR, ScriptedGadgetron, readout

from gadget import gadgetron_entry
from gadget.errors import GadgetError

CONFIG = script.GADGETRON_CONFIG
HEADER = script.text_message(
    script.HEADER,
    b"""<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><experimentalConditions>
<H1resonanceFrequency_Hz>63500000</H1resonanceFrequency_Hz></experimentalConditions><encoding>
<encodedSpace><matrixSize><x>16</x><y>5</y><z>1</z></matrixSize>
<fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm></encodedSpace>
<reconSpace><matrixSize><x>16</x><y>5</y><z>1</z></matrixSize>
<fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm></reconSpace>
<encodingLimits/><trajectory>cartesian</trajectory></encoding></ismrmrdHeader>
""",
)
READOUTS = [readout(counter=k) for k in range(5)]
REASON = b"no more after 2; config '<?xml version=\"1.0\"?>\\n<configuration/>', header %d" % len(HEADER[6:])
ECHO = [(script.ACQUISITION, one[2:]) for one in READOUTS]


def waveform() -> bytes:
    header = struct.pack("<H6xQIIIHHfH2x", 1, 0, 0, 0, 0, 50, 2, 2500.0, 1)
    return struct.pack("<H", script.WAVEFORM) + header + bytes(4 * 50 * 2)


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[Any], None]], NodeInThread]]:
    with contextlib.ExitStack() as stack:

        def start(target: Callable[[Any], None]) -> NodeInThread:
            node = NodeInThread(target)
            stack.callback(node.ends_within, 10)
            stack.callback(node.peer.sock.close)
            return node

        yield start


def spawn(target: str, module: str = "stub_nodes") -> ScriptedGadgetron:
    return ScriptedGadgetron(module, target, import_from=[Path(__file__).parent])


def test_a_scan_goes_through_the_process_and_back():
    foreign = [(script.WAVEFORM, waveform()[2:]), (script.IMAGE, script.image(3, 2)[2:])]
    with spawn("echo") as gadgetron:
        gadgetron.peer.send(CONFIG, HEADER, *READOUTS, waveform(), script.image(3, 2), CLOSE_BYTES)
        assert gadgetron.peer.take_all() == [*ECHO, *foreign, (CLOSE, b"")]
        assert gadgetron.ends_within(30) == 0


def test_a_failure_of_the_process_is_sent_as_an_error_then_close():
    with spawn("count_and_fail") as gadgetron:
        gadgetron.peer.send(CONFIG, HEADER, *READOUTS)
        assert gadgetron.peer.take_all() == [*ECHO[:2], (ERROR, REASON), (CLOSE, b"")]
        gadgetron.peer.send(CLOSE_BYTES)
        assert gadgetron.ends_within(30) == 1
        assert "failed: no more after 2" in gadgetron.log()


def test_a_process_whose_gadgetron_vanishes_inside_a_message_ends():
    with spawn("echo") as gadgetron:
        gadgetron.peer.send(CONFIG, HEADER, READOUTS[0], READOUTS[1][:400])
        assert gadgetron.peer.take_message() == ECHO[0]
        gadgetron.peer.vanish()
        assert gadgetron.ends_within(5) == 1
        assert "failed: The connection ended inside" in gadgetron.log()


@pytest.mark.parametrize("last", [CLOSE_BYTES, READOUTS[1][:100]], ids=["closed", "half a readout"])
def test_a_process_ends_although_its_reconstruction_hangs(last):
    with spawn("hang") as gadgetron:
        gadgetron.peer.send(CONFIG, HEADER, READOUTS[0], last)
        assert gadgetron.peer.take_message() == ECHO[0]
        gadgetron.peer.vanish()
        assert gadgetron.ends_within(5) == 1
        assert "did not stop and was left behind" in gadgetron.log()


def test_a_scan_may_come_one_byte_at_a_time(run):
    node = run(stub_nodes.echo)
    for position in range(len(CONFIG + HEADER + READOUTS[0])):
        node.peer.send((CONFIG + HEADER + READOUTS[0])[position : position + 1])
    assert node.peer.take_message() == ECHO[0]
    node.peer.send(CLOSE_BYTES)
    assert node.peer.take_all() == [(CLOSE, b"")]
    assert node.ends_within(5) == 0


def test_gadgetron_may_send_no_configuration_at_all(run):
    bare = script.text_message(script.CONFIG_TEXT, b'<?xml version="1.0"?>\n')
    node = run(stub_nodes.echo)
    node.peer.send(bare, HEADER, READOUTS[0], CLOSE_BYTES)
    assert node.peer.take_all() == [ECHO[0], (CLOSE, b"")]


@pytest.mark.parametrize("config", [b"", b"\0", b"<stuff/>", b"no XML"], ids=repr)
def test_gadgetron_gets_an_error_whatever_its_configuration_looks_like(config, run):
    node = run(stub_nodes.break_down)
    node.peer.send(script.text_message(script.CONFIG_TEXT, config), HEADER, READOUTS[0], CLOSE_BYTES)
    assert [message_id for message_id, _ in node.peer.take_all()] == [ERROR, CLOSE]


def test_an_unforeseen_failure_names_no_patient(run, caplog):
    node = run(stub_nodes.break_down)
    config = script.text_message(script.CONFIG_TEXT, b"<configuration>Jane Doe</configuration>")
    node.peer.send(config, HEADER, *READOUTS, CLOSE_BYTES)
    (message_id, text), close = node.peer.take_all()
    assert (message_id, close) == (ERROR, (CLOSE, b""))
    assert b"RuntimeError" in text
    assert b"Jane" not in text
    assert node.ends_within(5) == 1
    assert "Jane" not in caplog.text
    assert "RuntimeError; this is a bug" in caplog.text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (b"\x4d\x00", b"Unknown MRD message id 77"),
        (CONFIG, b"ConfigText out of turn"),
        (script.image(3, 2, 99), b"data_type 99"),
        (struct.pack("<HQ", script.ERROR, 0), b"Error out of turn"),
    ],
    ids=["unknown id", "second config", "image type", "an ERROR"],
)
def test_broken_bytes_are_answered_with_an_error(words, reason, run):
    node = run(stub_nodes.echo)
    node.peer.send(CONFIG, HEADER, READOUTS[0], words)
    messages = node.peer.take_all()
    assert messages[0] == ECHO[0]
    assert messages[1][0] == ERROR
    assert reason in messages[1][1]
    assert messages[2:] == [(CLOSE, b"")]
    node.peer.vanish()
    assert node.ends_within(5) == 1


PIECES = {
    "after the header": b"",
    "in an id": READOUTS[0][:1],
    "in a readout's header": READOUTS[0][:100],
    "in a readout's samples": READOUTS[0][:400],
    "between readouts": READOUTS[0],
    "in the second readout": READOUTS[0] + READOUTS[1][:350],
}


@pytest.mark.parametrize("place", PIECES)
def test_a_gadgetron_that_vanishes_ends_the_node_within_five_seconds(place, run, caplog):
    node = run(stub_nodes.echo)
    node.peer.send(CONFIG, HEADER, PIECES[place])
    if PIECES[place].startswith(READOUTS[0]):
        assert node.peer.take_message() == ECHO[0]
    node.peer.vanish()
    assert node.ends_within(5) == 1
    assert "failed: The connection ended" in caplog.text


@pytest.mark.parametrize("last", [CLOSE_BYTES, b"", READOUTS[1][:100]], ids=["closed", "open", "half"])
def test_a_gadgetron_that_vanishes_ends_the_reconstruction_within_five_seconds(last, run):
    node = run(stub_nodes.compute)
    node.peer.send(CONFIG, HEADER, READOUTS[0], last)
    assert node.peer.take_message() == ECHO[0]
    node.peer.vanish()
    assert node.ends_within(5) == 1


def test_it_waits_for_a_gadgetron_that_is_slow(run):
    node = run(stub_nodes.echo)
    node.peer.send(CONFIG, HEADER, READOUTS[0])
    assert node.peer.take_message() == ECHO[0]
    time.sleep(1.0)
    assert node.thread.is_alive()
    node.peer.send(READOUTS[1], CLOSE_BYTES)
    assert node.peer.take_all() == [ECHO[1], (CLOSE, b"")]


def test_nothing_is_read_or_sent_behind_our_back(run):
    """The gadgetron package's Connection is left without a socket, and so sends no second CLOSE."""
    kept = []

    def target(connection: Any) -> None:
        kept.append(connection)
        stub_nodes.echo(connection)

    node = run(target)
    node.peer.send(CONFIG, HEADER, CLOSE_BYTES)
    assert node.peer.take_all() == [(CLOSE, b"")]
    assert node.ends_within(5) == 0
    with pytest.raises(GadgetError, match=r"that gadget\.gadgetron_entry has taken over"):
        next(kept[0])
    with pytest.raises(GadgetError, match="1 bytes were sent on a connection"):
        kept[0].socket.write(b"x")


def test_a_connection_of_another_kind_is_refused():
    with pytest.raises(GadgetError, match=r"not what the gadgetron package 1\.4\.1 makes"):
        gadgetron_entry.reconstruct(object())


SETTINGS = script.text_message(
    script.CONFIG_TEXT,
    b'<?xml version="1.0"?>\n<configuration><property name="prior" value="tv"/>'
    b'<property name="solver.iterations" value="3"/>'
    b'<property name="posterior.chains" value="2"/><property name="posterior.warmup" value="2"/>'
    b'<property name="posterior.draws" value="4"/></configuration>\n',
)


def spawn_the_real_one() -> ScriptedGadgetron:
    return ScriptedGadgetron("gadget.gadgetron_entry", "reconstruct", seconds=120)


def recorded_scan(data_folder: Path) -> bytes:
    """Return header, readouts and waveforms that Gadgetron sent to an external node."""
    recorded = (data_folder / "wire" / "external_acquisitions.bin").read_bytes()
    (config_length,) = struct.unpack_from("<I", recorded, 2)
    return recorded[6 + config_length :]


def test_the_pipeline_reconstructs_what_gadgetron_sends(data_folder):
    with spawn_the_real_one() as gadgetron:
        gadgetron.peer.send(SETTINGS, recorded_scan(data_folder), CLOSE_BYTES)
        messages = gadgetron.peer.take_all()
        assert gadgetron.ends_within(10) == 0
    assert [message_id for message_id, _ in messages if message_id == script.WAVEFORM] == [
        script.WAVEFORM
    ] * 12
    images = [body for message_id, body in messages if message_id == script.IMAGE]
    of_series = {series: [] for series in (1, 2, 3)}
    for body in images:
        of_series[struct.unpack_from("<H", body, 128)[0]].append(body)
    assert [len(bodies) for bodies in of_series.values()] == [2, 2, 2]
    for repetition, body in [pair for bodies in of_series.values() for pair in enumerate(bodies)]:
        assert struct.unpack_from("<H", body, 2) == (5,)  # float
        assert struct.unpack_from("<3H", body, 16) == (64, 64, 1)
        assert struct.unpack_from("<H", body, 104) == (repetition,)
        pixels = np.frombuffer(body[-4 * 64 * 64 :], "<f4")
        assert np.isfinite(pixels).all()
        assert pixels.max() > 0
    assert messages[-1] == (CLOSE, b"")


def test_the_pipeline_reports_a_scan_that_it_cannot_reconstruct():
    epi = HEADER[6:].replace(b"cartesian", b"epi")
    with spawn_the_real_one() as gadgetron:
        gadgetron.peer.send(SETTINGS, script.text_message(script.HEADER, epi), *READOUTS, CLOSE_BYTES)
        (message_id, reason), close = gadgetron.peer.take_all()
        assert gadgetron.ends_within(10) == 1
    assert (message_id, close) == (ERROR, (CLOSE, b""))
    assert b"epi" in reason


def test_the_pipeline_ends_when_gadgetron_vanishes(data_folder):
    endless = SETTINGS.replace(b'value="3"', b'value="9999"')
    endless = script.text_message(script.CONFIG_TEXT, endless[6:])
    with spawn_the_real_one() as gadgetron:
        gadgetron.peer.send(endless, recorded_scan(data_folder), CLOSE_BYTES)
        while gadgetron.peer.take_message()[0] != script.WAVEFORM:
            pass
        time.sleep(1.0)
        gadgetron.peer.vanish()
        # It takes 1 to 2 s; the five seconds are tested above, without torch on a busy machine in the way.
        assert gadgetron.ends_within(10) == 1
        assert "left behind" not in gadgetron.log()
