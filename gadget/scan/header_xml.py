"""Elements, texts and numbers of an ISMRMRD XML header, whatever the namespace; numbers are checked."""

import math
from xml.etree.ElementTree import Element

from gadget.errors import ScanError


def tag(node: Element) -> str:
    """Return the name of an element without its namespace."""
    return node.tag.rpartition("}")[2]


def child_of(node: Element | None, name: str) -> Element | None:
    """Return the first child of that name; None where there is none, or no node."""
    return next((n for n in ([] if node is None else node) if tag(n) == name), None)


def text_of(node: Element | None, name: str) -> str | None:
    """Return the text of the child of that name, stripped; None where it is empty or not there."""
    child = child_of(node, name)
    return (child.text or "").strip() or None if child is not None else None


def shortened(text: str) -> str:
    """Return a text fit for a message."""
    return text if len(text) <= 40 else text[:40] + "..."


def optional_number(node: Element | None, name: str, path: str | None = None) -> float | None:
    """Return the number in the child of that name; ``path`` names it in messages.

    Raises
    ------
    ScanError
        It is not a finite number.
    """
    text = text_of(node, name)
    return None if text is None else _number(text, path or name)


def optional_whole(node: Element | None, name: str, path: str | None = None) -> int | None:
    """Return the whole number in the child of that name, likewise."""
    value = optional_number(node, name, path)
    if value is not None and value != int(value):
        raise ScanError(f"Scan header: {path or name} is {value:g}; it must be a whole number.")
    return None if value is None else int(value)


def told_number(node: Element | None, name: str) -> float | None:
    """Return a number that nothing but a report depends on: None where it is none."""
    found = numbers(node, name)
    return found[0] if found else None


def told_whole(node: Element | None, name: str) -> int | None:
    """Return such a number, rounded."""
    value = told_number(node, name)
    return None if value is None else round(value)


def numbers(node: Element | None, name: str) -> tuple[float, ...]:
    """Return the finite numbers in all children of that name, for reports.

    Converters leave NaN and words there, where what they computed them from is not there.
    """
    texts = ((n.text or "").strip() for n in ([] if node is None else node) if tag(n) == name)
    return tuple(value for text in texts if (value := _finite(text)) is not None)


def user_numbers(parameters: Element | None) -> dict[str, int]:
    """Return the whole numbers above 0 among user parameters; what is none is of no use here."""
    found = {}
    for node in [] if parameters is None else parameters:
        name, value = text_of(node, "name"), text_of(node, "value") or ""
        if name and len(value) <= 5 and value.isascii() and value.isdecimal() and int(value) > 0:
            found[name] = int(value)
    return found


def _number(text: str, path: str) -> float:
    value = _finite(text)
    if value is None:
        raise ScanError(f"Scan header: {path} is '{shortened(text)}'; it must be a finite number.")
    return value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
