"""Names and values in the texts that peers send as configuration or parameters, whatever they mean.

* **XML**: the ``<configuration>`` of a Gadgetron chain, with a ``<property>`` for each value.
* **JSON**: FIRE and OpenRecon clients send ``{"parameters": {...}}``, in a TEXT after the header or as
  configuration. OpenRecon sends every parameter of its panel, filled in or not; values are texts, often.
* **YAML**: a configuration file of ours, sent as text.
"""

import json
import re
from typing import Any
from xml.etree import ElementTree

from gadget.checked_settings import read_yaml_text
from gadget.errors import SettingsError

LARGEST_TEXT = 32768
"""Characters of YAML that are read of one message, values included: reading YAML is slow."""

_NAME, _CUSTOM_NAME = "config", "customconfig"
NAMES_OF_NAMES = frozenset({_NAME, _CUSTOM_NAME})
"""Parameters and properties that name a configuration, and set nothing themselves."""


def is_xml(text: str) -> bool:
    """Whether a text is meant as XML."""
    return text.lstrip().startswith("<")


def xml_properties(text: str) -> list[tuple[str, str]] | None:
    """Return the properties of a ``<configuration>``; none of a bare declaration, None of any other XML.

    Raises
    ------
    SettingsError
        The text is not XML, or a property has no name or no value.
    """
    text = text.strip()
    if not text or re.fullmatch(r"<\?xml[^>]*\?>", text):
        return []
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise SettingsError("The configuration has a document type declaration; send plain XML without one.")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:  # ValueError: bytes that are not UTF-8
        raise SettingsError(
            f"The configuration is not XML ({error}); it needs <configuration> as its root."
        ) from error
    return _properties(root) if _local(root.tag) == "configuration" else None


def json_parameters(text: str) -> dict[str, Any] | None:
    """Return the ``parameters`` of what a FIRE or OpenRecon client sends; None of any other text."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # ValueError: no JSON, or a number of thousands of digits
        return None
    parameters = content.get("parameters") if isinstance(content, dict) else None
    return parameters if isinstance(parameters, dict) else None


def yaml_values(text: str) -> dict[str, Any]:
    """Return the values of a configuration that is sent as YAML (or as JSON without ``parameters``).

    Raises
    ------
    SettingsError
        It is too long, not YAML, or no list of 'key: value' lines.
    """
    if len(text) > LARGEST_TEXT:
        raise SettingsError(
            f"The configuration is a text of {len(text)} characters that is not XML; at most {LARGEST_TEXT} "
            "are read."
        )
    return read_yaml_text(text, "The configuration")


def named_by_xml(text: str) -> str | None:
    """Return the name of the configuration that the properties ask for; None also where they are faulty."""
    try:
        properties = dict(xml_properties(text) or ())
    except SettingsError:
        return None
    return properties.get(_CUSTOM_NAME) or properties.get(_NAME) or None


def named_by_json(text: str) -> str | None:
    """Return the name of the configuration that JSON parameters ask for."""
    parameters = json_parameters(text) or {}
    names = (parameters.get(key) for key in (_CUSTOM_NAME, _NAME))
    return next((name.strip() for name in names if isinstance(name, str) and name.strip()), None)


def _properties(root: ElementTree.Element) -> list[tuple[str, str]]:
    found = []
    for element in root:
        if _local(element.tag) != "property":
            continue
        parts = dict(element.attrib) | {_local(child.tag): (child.text or "").strip() for child in element}
        if "name" not in parts or "value" not in parts:
            raise SettingsError(
                f"The <configuration> has a <property> with {', '.join(sorted(parts)) or 'nothing'} only; "
                "it needs a name and a value, as attributes or as child elements."
            )
        found.append((parts["name"], parts["value"]))
    return found


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
