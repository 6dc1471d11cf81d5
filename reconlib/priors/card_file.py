"""Read and write ``card.yaml``: plain YAML, checked against the schema of :mod:`reconlib.priors.card`.

A card may come from anywhere, so it is read as a small file of plain values: no tags that make objects, no
aliases (with which a few lines grow into gigabytes), no key twice, no deep nesting.
"""

import os
import secrets
import stat
from collections.abc import Hashable
from pathlib import Path

import yaml
from pydantic import ValidationError

from reconlib.priors.card import PriorCard
from reconlib.priors.errors import PriorError

CARD_FILE = "card.yaml"
LARGEST_CARD_BYTES = 1 << 20
_DEEPEST = 20


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML without aliases, duplicate keys, merges and deep nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call] # PyYAML's stubs leave it untyped
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed in a card")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {_DEEPEST} deep")
        node = super().compose_node(parent, index)  # type: ignore[arg-type] # None at the root
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.YAMLError(f"the key {key.value!r} stands there twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def read_card(folder: Path) -> PriorCard:
    """Read and check a card; all faults are named at once.

    Raises
    ------
    PriorError
        The file cannot be read, is no plain YAML, or is no valid card.
    """
    path = folder / CARD_FILE
    return parse_card(read_limited(path, LARGEST_CARD_BYTES, "that is no card"), str(path))


def parse_card(content: bytes, name: str) -> PriorCard:
    """Check the bytes of a card; ``name`` stands for them in an error."""
    if len(content) > LARGEST_CARD_BYTES:
        raise PriorError(f"{name} is larger than {LARGEST_CARD_BYTES} bytes; that is no card.")
    try:
        # A subclass of the safe loader: it makes plain values only.
        values = yaml.load(content.decode("utf-8"), Loader=_PlainLoader)
    except (ValueError, yaml.YAMLError) as error:  # ValueError: bad UTF-8, a date or number that is none
        raise PriorError(f"{name} cannot be read as YAML: {error}") from error
    return _checked(values, name)


def _checked(values: object, name: str) -> PriorCard:
    try:
        return PriorCard.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'card'}: {fault['msg']}"
            for fault in error.errors()
        )
        raise PriorError(f"{name} is no valid card: {faults}") from error


def card_text(card: PriorCard) -> str:
    """Return a card as YAML; what is absent is left out."""
    values = card.model_dump(mode="json", exclude_none=True)
    return yaml.dump(values, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=100)


def rewrite_card(folder: Path, card: PriorCard) -> None:
    """Replace the card of a package at once: a crash leaves the old card, never half of one.

    Comments in the old file are lost. The weights stay, so the new card has to carry their SHA-256.

    Raises
    ------
    PriorError
        The folder has no valid card, the new one is of other weights, or it cannot be written.
    """
    old = read_card(folder)
    if old.sha256 != card.sha256:
        raise PriorError(
            f"the new card of {folder} names weights with SHA-256 {card.sha256}, but those of the package "
            f"have {old.sha256}; only what the card says of the same weights can be rewritten."
        )
    _checked(card.model_dump(), f"the new card of {folder}")  # model_copy does not check
    write_at_once(folder / CARD_FILE, card_text(card).encode("utf-8"))


def write_at_once(path: Path, content: bytes) -> None:
    """Put the content under the name at once; what was there before stays if that fails."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise PriorError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)


def read_limited(path: Path, largest: int, otherwise: str) -> bytes:
    """Read a regular file of at most so many bytes; ``otherwise`` ends the message about a larger one."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise PriorError(f"{path} is no regular file; a prior is made of regular files.")
        if status.st_size > largest:
            raise PriorError(f"{path} is larger than {largest} bytes; {otherwise}.")
        with path.open("rb") as file:
            return file.read(largest)
    except OSError as error:
        raise PriorError(f"{path} cannot be read: {error.strerror}") from error
