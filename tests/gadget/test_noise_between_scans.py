"""The noise of one stream used in the next: through the pipeline, and a folder on disk."""

from pathlib import Path

import pytest
from simulated_scans import StandIn, reconstructor, scan_messages, settings

from gadget.errors import SettingsError
from gadget.pipeline import reconstruct_stream
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, ConfigText, Message, ScanHeader
from reconlib.kspace import KSpace


def is_noise(message: Message) -> bool:
    return isinstance(message, Acquisition) and bool(
        int(message.header["flags"]) & Flag.IS_NOISE_MEASUREMENT.bit
    )


def with_header(messages: list[Message], measurement: str, dependency: str = "") -> list[Message]:
    """Give a scan an ID, and the ID of its noise."""
    inner = f"<measurementID>{measurement}</measurementID>"
    if dependency:
        inner += (
            "<measurementDependency><dependencyType>Noise</dependencyType>"
            f"<measurementID>{dependency}</measurementID></measurementDependency>"
        )
    changed: list[Message] = []
    for message in messages:
        if isinstance(message, ScanHeader):
            assert message.text.count("<measurementID>1</measurementID>") == 1
            message = ScanHeader(message.text.replace("<measurementID>1</measurementID>", inner))
        changed.append(message)
    return changed


def kspace_of(messages: list[Message], **changes: object) -> list[KSpace]:
    joint = StandIn()
    list(reconstruct_stream(messages, settings(**changes), reconstructor=reconstructor(joint)))
    return joint.batches


@pytest.fixture
def scans(tmp_path: Path) -> tuple[list[Message], list[Message]]:
    """Return an adjustment of only noise, and a scan that depends on it."""
    whole = scan_messages(tmp_path, n_slices=1)
    noise = [one for one in whole if not isinstance(one, Acquisition) or is_noise(one)]
    image = [one for one in whole if not is_noise(one)]
    assert any(is_noise(one) for one in noise)
    return with_header(noise, "scanner_patient_343"), with_header(image, "m_2", "scanner_patient_343")


def test_a_scan_is_whitened_with_the_noise_of_the_adjustment_before_it(
    tmp_path: Path, scans: tuple[list[Message], list[Message]]
) -> None:
    cache = str(tmp_path / "noise")
    adjustment, scan = scans
    (tmp_path / "own").mkdir()
    (own,) = kspace_of(scan_messages(tmp_path / "own", n_slices=1))
    assert kspace_of(adjustment, noise__cache=cache) == []
    (found,) = kspace_of(scan, noise__cache=cache)
    assert (found.samples - own.samples).abs().max() < 1e-6 * own.samples.abs().max()
    assert found.noise_std == own.noise_std == 1.0


def test_without_a_folder_nothing_is_kept_and_the_noise_is_estimated(
    tmp_path: Path, scans: tuple[list[Message], list[Message]]
) -> None:
    before = set(tmp_path.rglob("*"))
    adjustment, scan = scans
    assert kspace_of(adjustment) == []
    (found,) = kspace_of(scan)
    assert found.noise_std != 1.0
    assert set(tmp_path.rglob("*")) == before


def test_a_peer_cannot_set_the_folder(tmp_path: Path, scans: tuple[list[Message], list[Message]]) -> None:
    config = f'<configuration><property name="noise.cache" value="{tmp_path}/x"/></configuration>'
    with pytest.raises(SettingsError, match=r"noise\.cache: it is the server's own"):
        kspace_of([ConfigText(config), *scans[0]])
    as_text = f'<configuration><property name="noise" value="{{cache: {tmp_path}/x}}"/></configuration>'
    with pytest.raises(SettingsError, match=r"noise\.cache: it is the server's own"):
        kspace_of([ConfigText(as_text), *scans[0]])
    assert not (tmp_path / "x").exists()


def test_a_peer_that_sets_the_source_of_noise_leaves_the_folder(
    tmp_path: Path, scans: tuple[list[Message], list[Message]]
) -> None:
    config = '<configuration><property name="noise" value="{source: readouts}"/></configuration>'
    cache = str(tmp_path / "noise")
    kspace_of([ConfigText(config), *scans[0]], noise__cache=cache)
    assert len(list((tmp_path / "noise").iterdir())) == 1
