"""The shipped chains: what they say, and what comes of scans that a scripted Gadgetron runs through them."""

import re
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import scripted_peer as script
from captured_scans import assert_is_phantom, captured, images_of, noise_adjusted, root_sum_of_squares
from scripted_gadgetron import (
    Chain,
    ChainError,
    ExternalNode,
    Gadget,
    NodeInThread,
    dial_as_gadgetron,
    execute_as_gadgetron,
    read_chain,
)
from scripted_peer import IMAGE, IMAGE_ARRAY, WAVEFORM

from gadget import gadgetron_entry
from gadget.answering import Peer
from gadget.configs import config_folder
from gadget.gadgetron_configs import chains
from gadget.pipeline import reconstruct_stream
from gadget.server import Server
from gadget.settings import Settings
from gadget.wire.messages import Message

BASES = ("ebm_after_noise_adjust", "ebm_buffers", "ebm_connect", "ebm_execute")
VARIANTS = ("", "_dicom", "_uint16")
NAMES = [f"{base}{variant}.xml" for base in BASES for variant in VARIANTS]
EXECUTED = [name for name in NAMES if not name.startswith("ebm_connect")]
QUICK = {
    "prior": "tv",
    "solver.method": "paper",
    "solver.iterations": "2",
    "posterior.enabled": "false",
}

# As Gadgetron's own chains and CMakeLists name them (gadgetron/gadgetron, 4.x).
CORE = {
    ("gadgetron_core_readers", "AcquisitionReader"),
    ("gadgetron_core_readers", "WaveformReader"),
    ("gadgetron_core_readers", "ImageReader"),
    ("gadgetron_core_writers", "ImageWriter"),
    ("gadgetron_dicom", "DicomImageWriter"),
}
GADGETS = {
    ("gadgetron_mricore", "NoiseAdjustGadget"): set(),
    ("gadgetron_mricore", "AcquisitionAccumulateTriggerGadget"): {"trigger_dimension", "sorting_dimension"},
    ("gadgetron_mricore", "BucketToBufferGadget"): {
        *("N_dimension", "S_dimension", "split_slices", "ignore_segment"),
    },
    ("gadgetron_dicom", "DicomFinishGadget"): set(),
}


def text_of(name: str, **properties: str) -> str:
    """Return a shipped chain; properties of its configuration are added or replaced."""
    text = (config_folder() / "gadgetron" / name).read_text(encoding="utf-8")
    for key, value in {**QUICK, **{key.replace("__", "."): one for key, one in properties.items()}}.items():
        text = re.sub(rf'<property name="{re.escape(key)}" value="[^"]*"/>\n', "", text)
        line = f'<property name="{key}" value="{value}"/>\n</configuration>\n        </external>'
        text = re.sub(r"</configuration>\s*</external>", line, text)
    return text


def shipped(name: str) -> Chain:
    return read_chain((config_folder() / "gadgetron" / name).read_text(encoding="utf-8"))


def properties_of(chain: Chain) -> dict[str, str]:
    root = ElementTree.fromstring(chain.configuration)
    return {str(one.get("name")): str(one.get("value")) for one in root.iter("property")}


def named(gadget: Gadget) -> tuple[str, str]:
    return gadget.dll, gadget.classname


def test_the_chains_are_those_of_four_kinds_in_three_variants():
    assert sorted(chains()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_gadgetron_can_read_the_chain_and_has_what_it_names(name):
    chain = shipped(name)

    assert {named(one) for one in chain.readers} == {one for one in CORE if one[0].endswith("readers")}
    assert {named(one) for one in chain.writers} <= CORE
    for gadget in (*chain.before, *chain.after):
        assert set(gadget.properties) <= GADGETS[named(gadget)]
    if chain.action == "connect":
        assert chain.action_attributes == {"address": "localhost", "port": "9003"}
    else:
        assert chain.action_attributes == {
            "name": "gadget.gadgetron_entry",
            "target": "reconstruct",
            "type": "python",
        }
        assert callable(gadgetron_entry.reconstruct)


@pytest.mark.parametrize("base", BASES)
def test_variants_differ_in_how_images_leave_only(base):
    plain, dicom, uint16 = (shipped(f"{base}{variant}.xml") for variant in VARIANTS)

    for other in (dicom, uint16):
        assert (other.readers, other.before) == (plain.readers, plain.before)
        assert other.action_attributes == plain.action_attributes
        assert {**properties_of(other), "output.pixel_type": "float"} == properties_of(plain)
        assert properties_of(other)["output.pixel_type"] == "uint16"
    assert plain.writers == uint16.writers
    assert [named(one) for one in plain.writers] == [("gadgetron_core_writers", "ImageWriter")]
    assert plain.after == uint16.after == ()
    assert [named(one) for one in dicom.writers] == [("gadgetron_dicom", "DicomImageWriter")]
    assert [named(one) for one in dicom.after] == [("gadgetron_dicom", "DicomFinishGadget")]


def test_what_stands_before_the_node_is_what_the_name_says():
    before = {base: [one.classname for one in shipped(f"{base}.xml").before] for base in BASES}

    assert before == {
        "ebm_execute": [],
        "ebm_connect": [],
        "ebm_after_noise_adjust": ["NoiseAdjustGadget"],
        "ebm_buffers": ["AcquisitionAccumulateTriggerGadget", "BucketToBufferGadget"],
    }
    assert properties_of(shipped("ebm_after_noise_adjust.xml"))["noise.source"] == "prewhitened"


def test_the_scripted_gadgetron_refuses_what_gadgetron_refuses():
    good = (config_folder() / "gadgetron" / "ebm_execute.xml").read_text(encoding="utf-8")

    with pytest.raises(ChainError, match="No parser accepted"):
        read_chain(good.replace("<version>2</version>", ""))
    with pytest.raises(ChainError, match="valid action"):
        read_chain(re.sub("<execute.*?/>", "", good))


@pytest.fixture
def run() -> Iterator[Callable[..., list[tuple[int, bytes]]]]:
    """Run a scan through a chain whose node is executed in this process; return what it sent."""
    nodes: list[NodeInThread] = []

    def run_chain(text: str, header: bytes, messages: list[bytes]) -> list[tuple[int, bytes]]:
        node = NodeInThread(gadgetron_entry.reconstruct)
        nodes.append(node)
        chain = ExternalNode(read_chain(text), node.peer, header)
        chain.push(*messages)
        chain.close()
        assert not chain.bypassed
        return chain.results()

    yield run_chain
    for node in nodes:
        node.peer.sock.close()
        node.ends_within(10)


def reconstruct_here(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
    return iter(reconstruct_stream(messages, Settings(), cancelled=peer.cancelled, silent=peer.silent))


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(reconstruct_here, port=0)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.stop()
    thread.join(10)
    running.close()


@pytest.fixture
def dial(server) -> Callable[..., list[tuple[int, bytes]]]:
    """Run a scan through a chain whose node is a server in this process; return what it sent."""

    def run_chain(text: str, header: bytes, messages: list[bytes]) -> list[tuple[int, bytes]]:
        chain = read_chain(text)
        with dial_as_gadgetron({**chain.action_attributes, "port": str(server.addresses[0][1])}) as peer:
            node = ExternalNode(chain, peer, header)
            node.push(*messages)
            node.close()
            return node.results()

    return run_chain


@pytest.fixture(params=["execute", "connect"])
def through(request, run, dial) -> Callable[..., list[tuple[int, bytes]]]:
    """Run a scan through both kinds of chains that take readouts, with properties of the configuration."""
    run_chain = run if request.param == "execute" else dial

    def run_either(header: bytes, messages: list[bytes], **properties: str) -> list[tuple[int, bytes]]:
        return run_chain(text_of(f"ebm_{request.param}.xml", **properties), header, messages)

    return run_either


@pytest.mark.parametrize("name", EXECUTED)
def test_each_executed_chain_gives_the_images_of_the_scan(name, run, data_folder):
    header, readouts = captured(data_folder, "external_acquisitions")
    sent = readouts
    if name.startswith("ebm_buffers"):
        sent = captured(data_folder, "external_recondata")[1]
    elif name.startswith("ebm_after_noise_adjust"):
        sent = readouts = noise_adjusted(readouts)
    results = run(text_of(name), header, sent)

    images = images_of(results)
    data_types = {struct.unpack_from("<H", body, 2)[0] for number, body in results if number == IMAGE}
    assert data_types == ({5} if "output.pixel_type=float" in flat(name) else {1})
    assert_is_phantom(images, root_sum_of_squares(readouts))


def flat(name: str) -> str:
    return ", ".join(f"{key}={value}" for key, value in properties_of(shipped(name)).items())


def test_the_variants_show_the_same_values(run, data_folder):
    header, readouts = captured(data_folder, "external_acquisitions")
    floats, integers = (
        images_of(run(text_of(name), header, readouts))
        for name in ("ebm_execute.xml", "ebm_execute_dicom.xml")
    )

    np.testing.assert_allclose(integers, floats, atol=1e-3 * floats.max())


def test_an_executed_chain_may_set_what_is_otherwise_the_servers_own(run, data_folder):
    header, readouts = captured(data_folder, "external_acquisitions")
    text = text_of("ebm_execute.xml", device="cpu", threads="1", batch_slices="2")

    assert images_of(run(text, header, readouts)).shape == (2, 64, 64)


def test_what_the_node_does_not_use_comes_back_byte_for_byte(through, data_folder):
    header, readouts = captured(data_folder, "external_acquisitions")
    waveforms = [one for one in readouts if one[:2] == struct.pack("<H", WAVEFORM)]
    foreign = [
        one
        for name in ("image_float", "image_ushort", "image_meta", "imagearray")
        for one in captured(data_folder, f"external_{name}")[1]
    ]
    assert (len(waveforms), len(foreign)) == (12, 8)

    results = through(header, [*foreign[:5], *waveforms, *foreign[5:]])

    expected = [*foreign[:5], *waveforms, *foreign[5:]]
    assert [struct.pack("<H", number) + body for number, body in results] == expected
    assert [number for number, _ in results].count(IMAGE_ARRAY) == 2


def test_buffers_give_images(through, data_folder):
    header, buffers = captured(data_folder, "external_recondata")

    assert images_of(through(header, buffers)).shape == (2, 64, 64)


def test_buckets_give_images_and_their_waveforms(through, data_folder):
    header, buckets = captured(data_folder, "external_bucket")

    results = through(header, buckets)

    assert [number for number, _ in results].count(WAVEFORM) == 12
    assert images_of(results).shape == (2, 64, 64)


def test_a_client_that_is_gone_before_any_data_is_a_scan_without_images(through, data_folder):
    header, _ = captured(data_folder, "external_acquisitions")

    assert through(header, []) == []


def test_an_early_end_gives_an_image_that_says_so(through, data_folder):
    header, readouts = captured(data_folder, "external_acquisitions")

    results = through(header, readouts[:50])

    images = [body for number, body in results if number == IMAGE]
    assert len(images) == 1
    assert b"INCOMPLETE DATA" in images[0]


def test_gadgetron_is_told_which_property_is_wrong(through, data_folder):
    header, readouts = captured(data_folder, "external_acquisitions")

    with pytest.raises(ChainError, match=r"solver\.iterations"):
        through(header, readouts, solver__iterations="many")
    with pytest.raises(ChainError, match=r"output\.pixel_type: int16 images end a Gadgetron chain"):
        through(header, readouts, output__pixel_type="int16")


def test_gadgetron_may_go_on_sending_after_a_failure_until_it_closes_late(data_folder):
    header, readouts = captured(data_folder, "external_acquisitions")
    options = replace(gadgetron_entry.OPTIONS, linger_s=20.0)
    node = NodeInThread(
        lambda connection: gadgetron_entry.serve_connection(connection, gadgetron_entry._pipeline, options)
    )
    chain = ExternalNode(read_chain(text_of("ebm_execute.xml", prior="no-such-prior")), node.peer, header)
    chain.push(readouts[0])
    number, reason = node.peer.take_message()
    assert number == script.ERROR
    assert b"no-such-prior" in reason
    chain.push(*readouts[1:] * 3)
    assert node.peer.take_all() == [(script.CLOSE, b"")]
    chain.close()
    assert node.ends_within(10) == 1
    node.peer.sock.close()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in EXECUTED])
def test_each_connecting_chain_gives_the_images_of_the_scan(name, dial, data_folder):
    header, readouts = captured(data_folder, "external_acquisitions")

    results = dial(text_of(name), header, readouts)

    assert [number for number, _ in results].count(WAVEFORM) == 12
    assert_is_phantom(images_of(results), root_sum_of_squares(readouts))


def test_a_connecting_chain_is_told_what_it_may_not_set(dial, data_folder):
    header, readouts = captured(data_folder, "external_acquisitions")

    with pytest.raises(ChainError, match="device: it is the server's own"):
        dial(text_of("ebm_connect.xml", device="cpu"), header, readouts)


def test_a_server_that_starts_after_gadgetron_is_still_found():
    with Server(reconstruct_here, hosts=["127.0.0.1"], port=0) as early:
        port = early.addresses[0][1]

    def start_late() -> None:
        with Server(reconstruct_here, hosts=["127.0.0.1"], port=port) as late:
            started.append(late)
            late.serve_forever()

    started: list[Server] = []
    thread = threading.Timer(0.3, start_late)
    thread.start()
    with dial_as_gadgetron({"address": "127.0.0.1", "port": str(port)}, pause_s=0.2) as peer:
        peer.send(script.CLOSE_BYTES)
        assert peer.take_all() == [(script.CLOSE, b"")]
    started[0].stop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ebm_execute.xml", "ebm_buffers_dicom.xml"])
def test_the_process_that_a_chain_executes_gives_the_images(name, data_folder):
    source = "external_recondata" if name.startswith("ebm_buffers") else "external_acquisitions"
    header, messages = captured(data_folder, source)
    chain = read_chain(text_of(name))
    with execute_as_gadgetron(chain.action_attributes) as gadgetron:
        node = ExternalNode(chain, gadgetron.peer, header)
        node.push(*messages)
        node.close()
        results = node.results()
        assert gadgetron.ends_within(20) == 0
    readouts = captured(data_folder, "external_acquisitions")[1]
    assert_is_phantom(images_of(results), root_sum_of_squares(readouts))
