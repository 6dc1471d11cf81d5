"""Read the ISMRMRD XML header into a frozen, checked description of the scan.

Only the elements that this program needs are read, by their names, so that a header of a newer schema, or one
that lacks an element we do not need, still gives images; ``ismrmrd.xsd`` refuses both, and passes invalid
numbers through. Everything that is read is checked here. The subject's data is never read, and no text of the
header is ever logged.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from gadget.errors import ScanError
from gadget.scan.header_xml import (
    child_of,
    numbers,
    optional_number,
    optional_whole,
    shortened,
    tag,
    text_of,
    told_number,
    told_whole,
    user_numbers,
)
from gadget.scan.trajectory_description import (
    NO_DESCRIPTION,
    TrajectoryDescription,
    read_trajectory_description,
)

LARGEST_MATRIX = 8192
"""Samples per axis above which a header is taken to be wrong."""

DEFAULT_NOISE_BANDWIDTH = 0.793
"""Gadgetron's relative receiver noise bandwidth where the header has none."""

NONCARTESIAN = ("radial", "goldenangle", "spiral", "other")
"""Trajectories whose readouts are placed by their points (:mod:`gadget.scan.trajectory`)."""

_SUPPORTED = f"'cartesian' and, with trajectories, {', '.join(map(repr, NONCARTESIAN))} can be reconstructed."
_AXES = ("x", "y", "z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The range of one loop counter, both ends included."""

    minimum: int
    maximum: int
    center: int

    @property
    def size(self) -> int:
        """How many values the counter takes."""
        return self.maximum - self.minimum + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A sampling grid: number of samples and field of view along x (readout), y and z."""

    matrix: tuple[int, int, int]
    fov_mm: tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """One ``encoding`` of the header: what its readouts' counters mean."""

    index: int
    encoded: Space
    recon: Space
    limits: Mapping[str, Limit]
    """By the standard's names ('kspace_encoding_step_1', 'slice', ...); absent where the header has none, or,
    of counters that place no line, where its numbers cannot be."""
    trajectory: str
    acceleration: tuple[int, int] = (1, 1)
    calibration_mode: str | None = None
    multiband_factor: int = 1
    echo_train_length: int | None = None
    trajectory_description: TrajectoryDescription = NO_DESCRIPTION
    """Of a Cartesian encoding only the ``identifier`` ('ConventionalEPI', ...)."""

    @property
    def is_cartesian(self) -> bool:
        """Whether readouts are lines of a grid, whatever trajectories they carry."""
        return self.trajectory == "cartesian"

    @property
    def announces_partitions(self) -> bool:
        """Whether the header says that there is a second phase-encoding direction: a 3-D scan.

        Several partitions in the encoded matrix are not enough: 2-D scans of some converters have them, too,
        with limits of kspace_encoding_step_2 that end at 0 or are not there.
        """
        limit = self.limits.get("kspace_encoding_step_2")
        return self.encoded.matrix[2] > 1 and limit is not None and limit.maximum > 0

    def refusal(self) -> str | None:
        """Say why readouts of this encoding cannot be reconstructed yet; None where they can."""
        where = f"encoding[{self.index}]"
        if self.trajectory == "epi":
            return (
                f"{where} has the trajectory 'epi', which is not supported yet: EPI needs regridding and "
                f"ghost correction first. {_SUPPORTED}"
            )
        if "epi" in self.trajectory_description.identifier.lower():
            return (
                f"{where} is EPI by its trajectoryDescription, whatever its trajectory "
                f"('{self.trajectory}') says: not supported yet, as EPI needs regridding and ghost "
                "correction first."
            )
        if not self.is_cartesian and self.trajectory not in NONCARTESIAN:
            return f"{where} has the trajectory '{self.trajectory}', which is not supported. {_SUPPORTED}"
        if self.multiband_factor > 1:
            return (
                f"{where} is a multiband scan (factor {self.multiband_factor}), which is not supported yet. "
                "Only slices excited one by one can be reconstructed."
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanDescription:
    """What the XML header says about the scan, without any patient data."""

    encodings: tuple[Encoding, ...]
    relative_receiver_noise_bandwidth: float | None = None
    receiver_channels: int | None = None
    coil_labels: Mapping[int, str] = field(default_factory=dict)
    """Coil name by coil number."""
    field_strength_t: float | None = None
    system_vendor: str | None = None
    system_model: str | None = None
    protocol_name: str | None = None
    sequence_name: str | None = None
    series_description: str | None = None
    measurement_id: str | None = None
    patient_position: str | None = None
    body_part: str | None = None
    dependencies: Mapping[str, str] = field(default_factory=dict)
    """Identifier of another measurement by kind of dependency ('Noise', 'SenMap', ...)."""
    echo_times_ms: tuple[float, ...] = ()
    repetition_times_ms: tuple[float, ...] = ()
    inversion_times_ms: tuple[float, ...] = ()
    reference_lines: tuple[int | None, int | None] = (None, None)
    """Lines of an embedded calibration along the two phase-encoding directions, as Siemens' converter has
    them (``EmbeddedRefLinesE1`` and ``E2`` of the user parameters); None where the header does not say."""

    @property
    def noise_bandwidth(self) -> float:
        """The relative receiver noise bandwidth, Gadgetron's default where the header has none."""
        value = self.relative_receiver_noise_bandwidth
        return DEFAULT_NOISE_BANDWIDTH if value is None else value

    def encoding_of(self, index: int) -> Encoding:
        """Return the encoding that a readout's ``encoding_space_ref`` names."""
        if 0 <= index < len(self.encodings):
            return self.encodings[index]
        raise ScanError(
            f"A readout names encoding_space_ref {index}, but the scan header has {len(self.encodings)} "
            "encoding(s). Check the converter."
        )


def parse_scan_header(text: str) -> ScanDescription:
    """Parse the XML header of a scan.

    Raises
    ------
    ScanError
        The text is not XML, not an ISMRMRD header, or lacks (or has nonsense in) what placing k-space needs.
        Scans that are described well but not supported (EPI, multiband, ...) do not raise here:
        ask :meth:`Encoding.refusal`.
    """
    root = _root(text)
    encodings = tuple(
        _encoding(node, index) for index, node in enumerate(n for n in root if tag(n) == "encoding")
    )
    if not encodings:
        raise ScanError("The scan header has no encoding; cannot lay out k-space. Check the converter.")
    measurement = child_of(root, "measurementInformation")
    system = child_of(root, "acquisitionSystemInformation")
    study = child_of(root, "studyInformation")
    sequence = child_of(root, "sequenceParameters")
    user = user_numbers(child_of(root, "userParameters"))
    bandwidth = optional_number(system, "relativeReceiverNoiseBandwidth")
    if bandwidth is not None and not 0 < bandwidth <= 1:
        raise ScanError(
            f"Scan header: relativeReceiverNoiseBandwidth is {bandwidth:g}; it must be above 0 and at most 1."
        )
    return ScanDescription(
        encodings=encodings,
        relative_receiver_noise_bandwidth=bandwidth,
        receiver_channels=told_whole(system, "receiverChannels"),
        coil_labels=_coil_labels(system),
        field_strength_t=told_number(system, "systemFieldStrength_T"),
        system_vendor=text_of(system, "systemVendor"),
        system_model=text_of(system, "systemModel"),
        protocol_name=text_of(measurement, "protocolName"),
        sequence_name=text_of(measurement, "sequenceName"),
        series_description=text_of(measurement, "seriesDescription"),
        measurement_id=text_of(measurement, "measurementID"),
        patient_position=text_of(measurement, "patientPosition"),
        body_part=text_of(study, "bodyPartExamined"),
        dependencies=_dependencies(measurement),
        echo_times_ms=numbers(sequence, "TE"),
        repetition_times_ms=numbers(sequence, "TR"),
        inversion_times_ms=numbers(sequence, "TI"),
        reference_lines=(user.get("EmbeddedRefLinesE1"), user.get("EmbeddedRefLinesE2")),
    )


def _root(text: str) -> Element:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ScanError(
            "The scan header has a document type declaration; ISMRMRD headers have none. Refused."
        )
    try:
        root = ElementTree.fromstring(text.strip())  # white space before a declaration is no XML
    except (ElementTree.ParseError, ValueError) as error:
        is_syntax = isinstance(error, ElementTree.ParseError)
        detail = f"{error}" if is_syntax else "characters that cannot be in a text"
        raise ScanError(
            f"The scan header is not XML ({detail}; {len(text)} characters). Check what the peer or "
            "converter sends."
        ) from None
    if tag(root) != "ismrmrdHeader":
        raise ScanError(
            f"The scan header's root element is '{shortened(tag(root))}'; an ISMRMRD header has "
            "'ismrmrdHeader'."
        )
    return root


def _encoding(node: Element, index: int) -> Encoding:
    where = f"encoding[{index}]"
    trajectory = (text_of(node, "trajectory") or "").lower()
    if not trajectory:
        raise ScanError(f"Scan header has no {where}.trajectory; cannot tell how k-space was sampled.")
    identifier = text_of(child_of(node, "trajectoryDescription"), "identifier") or ""
    parallel = child_of(node, "parallelImaging")
    factors = child_of(parallel, "accelerationFactor")
    multiband = child_of(parallel, "multiband")
    limits_node = child_of(node, "encodingLimits")
    encoded = _space(node, "encodedSpace", where)
    limits = {}
    for child in [] if limits_node is None else limits_node:
        name = tag(child)
        places = name == "kspace_encoding_step_1" or (
            name == "kspace_encoding_step_2" and encoded.matrix[2] > 1
        )
        try:
            limits[name] = _limit(child, f"{where}.encodingLimits.{name}")
        except ScanError:
            if places:
                raise
    return Encoding(
        index=index,
        encoded=encoded,
        recon=_space(node, "reconSpace", where),
        limits=limits,
        trajectory=trajectory,
        acceleration=(
            max(1, optional_whole(factors, "kspace_encoding_step_1") or 1),
            max(1, optional_whole(factors, "kspace_encoding_step_2") or 1),
        ),
        calibration_mode=text_of(parallel, "calibrationMode"),
        multiband_factor=optional_whole(multiband, "multiband_factor") or 1,
        echo_train_length=told_whole(node, "echoTrainLength"),
        trajectory_description=read_trajectory_description(node)
        if trajectory in NONCARTESIAN
        else TrajectoryDescription(identifier=identifier),
    )


def _space(node: Element, name: str, where: str) -> Space:
    space = child_of(node, name)
    size = child_of(space, "matrixSize")
    if size is None:
        raise ScanError(
            f"Scan header has no {where}.{name}.matrixSize; cannot lay out k-space. Check the converter."
        )
    fov = child_of(space, "fieldOfView_mm")
    if fov is None:
        raise ScanError(
            f"Scan header has no {where}.{name}.fieldOfView_mm; cannot place the image. Check the converter."
        )
    matrix = tuple(_matrix_size(size, axis, f"{where}.{name}.matrixSize.{axis}") for axis in _AXES)
    fov_mm = tuple(_field_of_view(fov, axis, f"{where}.{name}.fieldOfView_mm.{axis}") for axis in _AXES)
    return Space(matrix=(matrix[0], matrix[1], matrix[2]), fov_mm=(fov_mm[0], fov_mm[1], fov_mm[2]))


def _matrix_size(node: Element, axis: str, path: str) -> int:
    value = optional_whole(node, axis, path)
    if value is None:
        raise ScanError(f"Scan header has no {path}; cannot lay out k-space. Check the converter.")
    if not 1 <= value <= LARGEST_MATRIX:
        raise ScanError(f"Scan header: {path} is {value}; it must be from 1 to {LARGEST_MATRIX}.")
    return value


def _field_of_view(node: Element, axis: str, path: str) -> float:
    value = optional_number(node, axis, path)
    if value is None:
        raise ScanError(f"Scan header has no {path}; cannot place the image. Check the converter.")
    # Home-made 2-D files leave the thickness at zero; it shapes no pixel.
    if value < 0 or (value == 0 and axis != "z"):
        raise ScanError(f"Scan header: {path} is {value:g}; a field of view must be positive.")
    return value


def _limit(node: Element, path: str) -> Limit:
    values = {}
    for name in ("minimum", "maximum", "center"):
        values[name] = optional_whole(node, name, f"{path}.{name}") or 0
    limit = Limit(**values)
    if not 0 <= limit.minimum <= limit.maximum <= 65535 or not 0 <= limit.center <= 65535:
        raise ScanError(
            f"Scan header: {path} has minimum {limit.minimum}, maximum {limit.maximum}, center "
            f"{limit.center}; counters run from a minimum to a maximum within 0 to 65535."
        )
    return limit


def _coil_labels(system: Element | None) -> dict[int, str]:
    labels = {}
    for node in [] if system is None else system:
        number = optional_whole(node, "coilNumber") if tag(node) == "coilLabel" else None
        if number is not None:
            labels[number] = text_of(node, "coilName") or ""
    return labels


def _dependencies(measurement: Element | None) -> dict[str, str]:
    found = {}
    for node in [] if measurement is None else measurement:
        if tag(node) == "measurementDependency":
            found[text_of(node, "dependencyType") or ""] = text_of(node, "measurementID") or ""
    return found
