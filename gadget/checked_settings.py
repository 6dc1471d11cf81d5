"""YAML and ``key=value`` texts into a checked pydantic model, with every fault named at once.

A faulty configuration is refused as a whole; each fault is told with the path of its key
(``solver.iterations``), what was found and what is allowed.
"""

import difflib
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import annotated_types
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from gadget.errors import SettingsError

Model = TypeVar("Model", bound=BaseModel)

LONGEST_QUOTE = 200
"""Characters of a faulty text that a message repeats."""


class Section(BaseModel):
    """A group of keys: frozen, of exactly the types that are named, without unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield each key that holds a value, with its dotted path."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields_of(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def parse_override(text: str, model: type[BaseModel]) -> tuple[str, Any]:
    """Split ``key.sub=value``; the value is read as YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"'{text}' sets nothing; write key=value, for example solver.iterations=50.")
    return key.strip(), parse_value(key.strip(), value, model)


def parse_value(key: str, text: str, model: type[BaseModel]) -> Any:
    """Read a value from text as YAML does, except that a key that takes text gets the text as it stands."""
    try:
        value = _loaded(text)
    except yaml.YAMLError as error:
        raise SettingsError(
            f"{key}: '{_shortened(text)}' is not a YAML value; quote it if it is meant as text."
        ) from error
    field = dict(fields_of(model)).get(key)
    takes_text = field is not None and (
        field.annotation is str
        or (get_origin(field.annotation) is Literal and str in map(type, get_args(field.annotation)))
    )
    return text.strip() if takes_text and not isinstance(value, str) else value


class _Loader(yaml.SafeLoader):
    """YAML as most people expect it: 1e-4 is a number, and a key that stands twice is an error.

    Aliases are refused: with them a short text stands for one without end.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="an alias (*) stands there; write the value out",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]  # PyYAML has no types
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key}' stands twice", problem_mark=key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _loaded(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        # What PyYAML raises for 2024-13-45, a number of thousands of digits, !!bool x, !!map [x], ((((...
        raise yaml.YAMLError(f"a value cannot be read ({type(error).__name__})") from error


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """Read a configuration file; an empty one is an empty mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"Cannot read the configuration {path}: {error}.") from error
    return read_yaml_text(text, str(path))


def read_yaml_text(text: str, source: str) -> dict[str, Any]:
    """Read the text of a configuration; ``source`` names it in messages."""
    try:
        values = _loaded(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{source} is not YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(
            f"{source} holds {_found(values)}; a configuration is a list of 'key: value' lines."
        )
    return values


def dotted(values: Mapping[str, Any], model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested values with the dotted path of their keys; a mapping that is no section stays whole."""
    for name, value in values.items():
        field = model.model_fields.get(str(name))
        inner = None if field is None else field.annotation
        if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from dotted(value, inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def with_values(values: Mapping[str, Any], overrides: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Lay overrides with dotted keys over nested values; nothing is checked yet."""
    merged = {str(key): dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    for key, value in overrides:
        section, dot, rest = key.partition(".")
        if dot:
            inner = merged.get(section)
            merged[section] = {**(inner if isinstance(inner, dict) else {}), rest: value}
        else:
            merged[key] = value
    return merged


def checked(model: type[Model], values: Mapping[str, Any], source: str) -> Model:
    """Make settings from nested values, or raise with every fault of the source."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = [_describe_fault(fault, model) for fault in error.errors()]
    raise SettingsError(told(faults, source))


def told(faults: Sequence[str], source: str) -> str:
    """Say that a source has faults, and which."""
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return f"{source} has {count}:\n" + "\n".join(f"  {fault}" for fault in faults)


def _describe_fault(fault: Any, model: type[BaseModel]) -> str:
    entry, model, rest = _entry_of(fault["loc"], model)
    fields = dict(fields_of(model))
    path = ".".join(str(part) for part in rest if part not in ("float", "int", "none"))
    where = ".".join(filter(None, (entry, path)))
    what = _what_is_wrong(fault, path, fields)
    return f"{where}: {what}" if where else what


def _entry_of(
    location: Sequence[str | int], model: type[BaseModel]
) -> tuple[str, type[BaseModel], Sequence[str | int]]:
    """Split a fault's place where a list has an entry of keys of its own: its prefix, model, and the rest."""
    if len(location) > 1 and isinstance(location[1], int):
        field = model.model_fields.get(str(location[0]))
        inside = [] if field is None else get_args(field.annotation)
        if inside and isinstance(inside[0], type) and issubclass(inside[0], BaseModel):
            return f"{location[0]}[{location[1]}]", inside[0], location[2:]
    return "", model, location


def _what_is_wrong(fault: Any, path: str, fields: Mapping[str, FieldInfo]) -> str:
    if fault["type"] == "extra_forbidden":
        return f"unknown key. {_suggestion(path, list(fields))}"
    if fault["type"] == "missing":
        return f"missing, needs {_allowed(fields[path])}." if path in fields else "missing."
    if fault["type"] == "value_error":
        return f"{fault['ctx']['error']}."
    if path in fields:
        return f"found {_found(fault['input'])}, needs {_allowed(fields[path])}."
    inside = [key.removeprefix(f"{path}.") for key in fields if not path or key.startswith(f"{path}.")]
    needs = f"needs the keys {', '.join(inside)}" if inside else fault["msg"]
    return f"found {_found(fault['input'])}, {needs}."


def _suggestion(path: str, known: list[str]) -> str:
    section, _, last = path.rpartition(".")
    beside = [key for key in known if section and key.startswith(f"{section}.")] or known
    sections = sorted({key.partition(".")[0] for key in known if "." in key})
    close = difflib.get_close_matches(path, beside if beside is not known else known + sections, n=1)
    close = close or [key for key in known if key.rpartition(".")[2] == last]
    return f"Did you mean {close[0]}?" if close else f"Known: {', '.join(beside)}."


def _found(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text '{_shortened(value)}'"
    if isinstance(value, int | float):
        return f"{value}"
    if isinstance(value, dict | list):
        return "a group of keys" if isinstance(value, dict) else "a list"
    return f"a {type(value).__name__}"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "..."


def _allowed(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    nullable = get_origin(annotation) in (Union, types.UnionType)
    if nullable:
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Literal:
        choices = [
            str(choice).lower() if isinstance(choice, bool) else choice for choice in get_args(annotation)
        ]
        text = choices[0] if len(choices) == 1 else "one of " + ", ".join(choices)
    elif get_origin(annotation) is list:
        inside = get_args(annotation)[0]
        text = (
            "a list of any of " + ", ".join(get_args(inside))
            if get_origin(inside) is Literal
            else "a list, each entry a group of keys"
        )
    elif get_origin(annotation) is dict:
        text = "a group of keys"
    else:
        names: dict[Any, str] = {
            bool: "true or false",
            int: "a whole number",
            float: "a number",
            str: "a text",
        }
        text = names[annotation]
    bounds = " and ".join(filter(None, map(_bound, field.metadata)))
    return text + (f" {bounds}" if bounds else "") + (" or null" if nullable else "")


def _bound(item: Any) -> str:
    match item:
        case annotated_types.Ge(ge=limit):
            return f">= {limit}"
        case annotated_types.Gt(gt=limit):
            return f"> {limit}"
        case annotated_types.Le(le=limit):
            return f"<= {limit}"
        case annotated_types.Lt(lt=limit):
            return f"< {limit}"
        case annotated_types.MinLen():
            return "that is not empty"
        case _:
            return ""
