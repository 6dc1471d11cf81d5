"""YAML and ``key=value`` texts into a checked pydantic model, with every fault named at once.

A faulty configuration is refused as a whole; each fault is told with the path of its key
(``solver.iterations``), what was found and what is allowed.
"""

import difflib
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import annotated_types
import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gadget.errors import SettingsError

Model = TypeVar("Model", bound=BaseModel)


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
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise SettingsError(
            f"{key}: '{text}' is not a YAML value; quote it if it is meant as text."
        ) from error
    field = dict(fields_of(model)).get(key)
    takes_text = field is not None and (
        field.annotation is str
        or (get_origin(field.annotation) is Literal and str in map(type, get_args(field.annotation)))
    )
    return text.strip() if takes_text and not isinstance(value, str) else value


class _Loader(yaml.SafeLoader):
    """YAML as most people expect it: 1e-4 is a number, and a key that stands twice is an error."""

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


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """Read a configuration file; an empty one is an empty mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"Cannot read the configuration {path}: {error}.") from error
    try:
        values = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(
            f"{path} holds {_found(values)}; a configuration is a list of 'key: value' lines."
        )
    return values


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
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    raise SettingsError(f"{source} has {count}:\n" + "\n".join(f"  {fault}" for fault in faults))


def _describe_fault(fault: Any, model: type[BaseModel]) -> str:
    path = ".".join(str(part) for part in fault["loc"] if part not in ("float", "int", "none"))
    fields = dict(fields_of(model))
    if fault["type"] == "extra_forbidden":
        return f"{path}: unknown key. {_suggestion(path, list(fields))}"
    if fault["type"] == "missing":
        return f"{path}: missing, needs {_allowed(fields[path])}." if path in fields else f"{path}: missing."
    if fault["type"] == "value_error":
        return f"{path}: {fault['ctx']['error']}."
    if path in fields:
        return f"{path}: found {_found(fault['input'])}, needs {_allowed(fields[path])}."
    inside = [key.removeprefix(f"{path}.") for key in fields if key.startswith(f"{path}.")]
    needs = f"needs the keys {', '.join(inside)}" if inside else fault["msg"]
    return f"{path}: found {_found(fault['input'])}, {needs}."


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
        return f"the text '{value}'"
    if isinstance(value, int | float):
        return f"{value}"
    if isinstance(value, dict | list):
        return "a group of keys" if isinstance(value, dict) else "a list"
    return f"a {type(value).__name__}"


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
        text = "a list of any of " + ", ".join(get_args(get_args(annotation)[0]))
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
