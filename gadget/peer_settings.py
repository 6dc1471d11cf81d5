"""Settings that come over a connection: properties of a Gadgetron chain, parameters of a FIRE client.

A name is ours when its first part is one of our keys (``prior``, ``solver.iterations``); it must then be
right. Other names belong to somebody else: they are logged, never used. A peer may set less than the one who
started the server:

* ``device``, ``threads``, ``batch_slices`` and ``noise.cache`` are the server's;
* ``prior`` takes a plain name, never a folder;
* time limits, and the work of sampling (``posterior.draws`` and others), can be made smaller, not larger;
* ``posterior.enabled`` can be made false, not true.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from gadget.checked_settings import parse_value
from gadget.errors import SettingsError
from gadget.settings import Settings, with_overrides

logger = logging.getLogger(__name__)

SERVERS_OWN = ("device", "threads", "batch_slices", "noise.cache")
NOT_RAISED = (
    "solver.time_limit_s",
    "posterior.time_limit_s",
    "posterior.chains",
    "posterior.warmup",
    "posterior.draws",
    "posterior.thin",
)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def settings_from_xml(settings: Settings, config: str) -> Settings:
    """Lay the properties of a Gadgetron ``<configuration>`` over the settings; other XML changes nothing."""
    text = config.strip()
    if not text or re.fullmatch(r"<\?xml[^>]*\?>", text):
        return settings
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise SettingsError("The configuration has a document type declaration; send plain XML without one.")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:  # ValueError: bytes that are not UTF-8
        raise SettingsError(
            f"The configuration is not XML ({error}); it needs <configuration> as its root."
        ) from error
    if _local(root.tag) != "configuration":
        logger.warning("The configuration's root is <%s>, not <configuration>: not used.", _local(root.tag))
        return settings
    return _with_peer_values(settings, _properties(root), "The <configuration>")


def settings_from_json(settings: Settings, text: str) -> Settings:
    """Lay the JSON ``parameters`` of a FIRE or OpenRecon client over the settings.

    Values may be texts (``"true"``, ``"5"``), as they often are. Text that is no JSON object changes nothing.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        logger.info("A text of %d characters that is not JSON came: not used.", len(text))
        return settings
    parameters = content.get("parameters") if isinstance(content, dict) else None
    if not isinstance(parameters, dict):
        logger.info("A JSON text without an object 'parameters' came: not used.")
        return settings
    return _with_peer_values(settings, _flat(parameters), "The JSON parameters")


def has_json_parameters(text: str) -> bool:
    """Whether a text is what a FIRE or OpenRecon client sends: JSON with an object ``parameters``."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        return False
    return isinstance(content, dict) and isinstance(content.get("parameters"), dict)


def _with_peer_values(settings: Settings, values: Iterable[tuple[str, Any]], source: str) -> Settings:
    ours: dict[str, Any] = {}
    foreign = []
    for name, value in values:
        if name.partition(".")[0] in Settings.model_fields:
            read = parse_value(name, value, Settings) if isinstance(value, str) else value
            # A whole section as one text must not get past what its keys may not be.
            ours |= dict(_flat(read, f"{name}.")) if isinstance(read, dict) else {name: read}
        else:
            foreign.append(name)
    if foreign:
        logger.warning(
            "%s: not known here, not used: %s.",
            source,
            ", ".join(repr(name[:60]) for name in sorted(foreign)),
        )
    faults = [fault for name, value in ours.items() if (fault := _forbidden(settings, name, value))]
    if faults:
        raise SettingsError(f"{source} may not set:\n" + "\n".join(f"  {fault}" for fault in faults))
    return with_overrides(settings, ours.items(), source) if ours else settings


def _forbidden(settings: Settings, name: str, value: Any) -> str:
    if name in SERVERS_OWN:
        return f"{name}: it is the server's own; set it where the server is started."
    if name == "prior" and isinstance(value, str) and not _PLAIN_NAME.fullmatch(value):
        return (
            f"prior: '{value}' is not a plain name; a folder can only be given where the server is started."
        )
    if name == "posterior.enabled" and value is True and not settings.posterior.enabled:
        return f"{name}: the server sends no uncertainty series; it decides where it is started."
    if name in NOT_RAISED:
        section, _, key = name.partition(".")
        limit = getattr(getattr(settings, section), key)
        if limit is not None and not (isinstance(value, int | float) and value <= limit):
            return f"{name}: found {value}, but the server allows at most {limit:g}{_unit(key)}."
    return ""


def _unit(key: str) -> str:
    return " s per slice" if key == "time_limit_s" else ""


def _properties(root: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for element in root:
        if _local(element.tag) != "property":
            continue
        parts = dict(element.attrib) | {_local(child.tag): (child.text or "").strip() for child in element}
        if "name" not in parts or "value" not in parts:
            raise SettingsError(
                f"The <configuration> has a <property> with {', '.join(sorted(parts)) or 'nothing'} only; "
                "it needs a name and a value, as attributes or as child elements."
            )
        yield parts["name"], parts["value"]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and name in Settings.model_fields:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
