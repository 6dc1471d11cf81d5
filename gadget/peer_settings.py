"""Settings that come over a connection: properties of a Gadgetron chain, parameters of a FIRE client.

A name is ours when its first part is one of our keys (``prior``, ``solver.iterations``); it must then be
right. In JSON parameters the name of a key may also be its letters and digits alone, in any case
(``solverIterations``), since OpenRecon allows no others; and an empty text there sets nothing. Other names
belong to somebody else: they are logged, never used. A peer may set less than the one who started the server:

* ``device``, ``threads``, ``batch_slices``, ``noise.cache`` and ``rules`` are the server's;
* ``prior`` takes a plain name, never a folder;
* time limits, and the work of sampling (``posterior.draws`` and others), can be made smaller, not larger;
* ``posterior.enabled`` can be made false, not true.

Which configuration a peer asks for by name is read elsewhere (:mod:`gadget.config_names`).
"""

import logging
import re
from collections.abc import Iterable
from typing import Any

from gadget.checked_settings import dotted, fields_of, parse_value
from gadget.errors import SettingsError
from gadget.peer_text import (
    LARGEST_TEXT,
    NAMES_OF_NAMES,
    is_xml,
    json_parameters,
    xml_properties,
    yaml_values,
)
from gadget.settings import Settings, with_overrides

logger = logging.getLogger(__name__)

SERVERS_OWN = ("device", "threads", "batch_slices", "noise.cache", "rules")
NOT_RAISED = (
    "solver.time_limit_s",
    "posterior.time_limit_s",
    "posterior.chains",
    "posterior.warmup",
    "posterior.draws",
    "posterior.thin",
)
MOST_NAMES_LOGGED = 10
_CONFIGURATION = "The <configuration>"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def settings_from_config(settings: Settings, text: str) -> Settings:
    """Lay a configuration that came as text over the settings: XML, JSON parameters or YAML."""
    if is_xml(text):
        return settings_from_xml(settings, text)
    if json_parameters(text) is not None:
        return settings_from_json(settings, text)
    return _with_peer_values(settings, dotted(yaml_values(text), Settings), "The configuration")


def settings_from_xml(settings: Settings, config: str) -> Settings:
    """Lay the properties of a Gadgetron ``<configuration>`` over the settings; other XML changes nothing."""
    properties = xml_properties(config)
    if properties is None:
        logger.warning("The configuration is XML whose root is not <configuration>: not used.")
        return settings
    return _with_peer_values(settings, properties, _CONFIGURATION)


def own_values_from_xml(config: str) -> list[tuple[str, Any]]:
    """Return keys and values for a process that Gadgetron started for a chain (``<execute>``).

    Nothing is forbidden: who wrote the chain has started this process, and named the Python module in it.
    """
    ours, faults = _read(xml_properties(config) or (), _CONFIGURATION)
    _refuse(faults, _CONFIGURATION)
    return list(ours.items())


def settings_from_json(settings: Settings, text: str) -> Settings:
    """Lay the JSON ``parameters`` of a FIRE or OpenRecon client over the settings.

    Values may be texts (``"true"``, ``"5"``), as they often are. Text that is no JSON object with
    ``parameters`` changes nothing.
    """
    parameters = json_parameters(text)
    if parameters is None:
        logger.info("A text of %d characters that is no JSON with parameters came: not used.", len(text))
        return settings
    given = ((_KEYS_BY_LETTERS.get(name.lower(), name), value) for name, value in parameters.items())
    filled_in = {name: value for name, value in given if not (isinstance(value, str) and not value.strip())}
    return _with_peer_values(settings, dotted(filled_in, Settings), "The JSON text")


def has_json_parameters(text: str) -> bool:
    """Whether a text is what a FIRE or OpenRecon client sends: JSON with an object ``parameters``."""
    return json_parameters(text) is not None


_KEYS_BY_LETTERS = {re.sub("[^a-z0-9]", "", key.lower()): key for key, _ in fields_of(Settings)}


def _with_peer_values(settings: Settings, values: Iterable[tuple[str, Any]], source: str) -> Settings:
    ours, faults = _read(values, source)
    faults += [fault for name, value in ours.items() if (fault := _forbidden(settings, name, value))]
    _refuse(faults, source)
    return with_overrides(settings, ours.items(), source) if ours else settings


def _read(values: Iterable[tuple[str, Any]], source: str) -> tuple[dict[str, Any], list[str]]:
    """Return those values that are ours, and what is wrong with them."""
    ours: dict[str, Any] = {}
    foreign, faults = [], []
    n_characters = 0
    for name, value in values:
        n_characters += len(value) if isinstance(value, str) else 0
        if name.partition(".")[0] not in Settings.model_fields:
            foreign.append(name)
        elif n_characters > LARGEST_TEXT:
            faults.append(f"{name}: its text is not read; at most {LARGEST_TEXT} characters in all are.")
        else:
            read = parse_value(name, value, Settings) if isinstance(value, str) else value
            # A whole section as one text must not get past what its keys may not be.
            ours |= dict(dotted({name: read}, Settings))
    _log_foreign([name for name in foreign if name not in NAMES_OF_NAMES], source)
    return ours, faults


def _refuse(faults: list[str], source: str) -> None:
    if faults:
        raise SettingsError(f"{source} may not set:\n" + "\n".join(f"  {fault}" for fault in faults))


def _log_foreign(names: list[str], source: str) -> None:
    if names:
        shown = ", ".join(repr(name[:60]) for name in sorted(names)[:MOST_NAMES_LOGGED])
        more = len(names) - MOST_NAMES_LOGGED
        logger.warning(
            "%s: not known here, not used: %s%s.", source, shown, f" and {more} more" if more > 0 else ""
        )


def _forbidden(settings: Settings, name: str, value: Any) -> str:
    if any(name == own or name.startswith(f"{own}.") for own in SERVERS_OWN):
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
