"""What the XML header says, sorted into what describes the scan and what tells who was scanned."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from gadget.errors import ScanError
from gadget.inspection.content import System
from gadget.scan.header import ScanDescription, parse_scan_header

PATIENT_SECTIONS = ("subjectInformation", "studyInformation", "measurementInformation")
"""Sections of the header that tell, or may tell, who was scanned: shown when asked for only."""


def scan_header(text: str) -> tuple[ScanDescription | None, str | None]:
    """Return the description of the scan, or what is wrong with the header."""
    try:
        return parse_scan_header(text), None
    except ScanError as error:
        return None, str(error)


def system_of(description: ScanDescription) -> System:
    """Return scanner and protocol."""
    return System(
        vendor=description.system_vendor,
        model=description.system_model,
        field_strength_t=description.field_strength_t,
        receiver_channels=description.receiver_channels,
        relative_receiver_noise_bandwidth=description.relative_receiver_noise_bandwidth,
        protocol_name=description.protocol_name,
        sequence_name=description.sequence_name,
        patient_position=description.patient_position,
        echo_times_ms=description.echo_times_ms,
        repetition_times_ms=description.repetition_times_ms,
        depends_on=tuple(description.dependencies),
    )


def patient_of(text: str) -> dict[str, dict[str, str]]:
    """Return the texts of the sections that may tell who was scanned; nothing where it is no XML."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return {}
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        return {}
    return {_name(node): dict(_texts(node, "")) for node in root if _name(node) in PATIENT_SECTIONS}


def _texts(node: ElementTree.Element, path: str) -> Iterator[tuple[str, str]]:
    seen: dict[str, int] = {}
    for child in node:
        name = _name(child)
        seen[name] = seen.get(name, 0) + 1
        here = f"{path}{name}" + (f"[{seen[name] - 1}]" if seen[name] > 1 else "")
        if len(child):
            yield from _texts(child, f"{here}.")
        elif (child.text or "").strip():
            yield here, (child.text or "").strip()


def _name(node: ElementTree.Element) -> str:
    return node.tag.rpartition("}")[2]
