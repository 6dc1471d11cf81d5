"""Who may import whom: read from the source, so that imports inside functions count, too."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def imports_of(source: str, package: str) -> Iterator[str]:
    """Yield the full dotted name of each import, relative ones resolved."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield ast.literal_eval(node.args[0]) if isinstance(node.args[0], ast.Constant) else "?"


def modules_of(package: str) -> list[Path]:
    return sorted((ROOT / package.replace(".", "/")).rglob("*.py"))


def offences(package: str, forbidden: tuple[str, ...], allowed: tuple[str, ...] = ()) -> list[str]:
    """Return 'file: import' for each import inside a forbidden package."""
    found = []
    for path in modules_of(package):
        inside = ".".join(path.relative_to(ROOT).parent.parts)
        for name in imports_of(path.read_text(encoding="utf-8"), inside):
            if within(name, forbidden) and not within(name, allowed):
                found.append(f"{path.relative_to(ROOT)}: {name}")
    return found


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_the_packages_are_found():
    assert len(modules_of("reconlib")) > 10
    assert len(modules_of("gadget.wire")) > 3
    assert len(modules_of("gadget.scan")) > 3


def test_reconlib_knows_no_stream_no_file_format_and_no_command_line():
    forbidden = (
        "ismrmrd",
        "gadgetron",
        "h5py",
        "gadget",
        "typer",
        "rich",
        "socket",
        "socketserver",
        "asyncio",
        "?",
    )

    found = offences("reconlib", forbidden)
    # What a site's training images come in is the business of their readers, and of nobody else.
    readers = [entry for entry in found if entry.startswith("reconlib/training/images/")]
    assert {entry.split(": ")[1].split(".")[0] for entry in readers} <= {"h5py"}
    assert [entry for entry in found if entry not in readers] == []


def test_the_wire_knows_no_torch_no_socket_and_nobody_above_it():
    forbidden = (
        "torch",
        "socket",
        "socketserver",
        "asyncio",
        "threading",
        "logging",
        "ismrmrd",
        "reconlib",
        "?",
    )

    assert offences("gadget.wire", forbidden) == []
    # A 'from gadget import x' yields 'gadget' itself, too.
    assert offences("gadget.wire", ("gadget",), allowed=("gadget.wire", "gadget.errors")) == []


def test_the_assembly_knows_no_pipeline_no_file_and_no_socket():
    forbidden = ("socket", "h5py", "typer", "gadgetron", "ismrmrd")
    above = ("gadget",)

    assert offences("gadget.scan", forbidden) == []
    assert offences("gadget.scan", above, allowed=("gadget.scan", "gadget.wire", "gadget.errors")) == []


def test_the_pipeline_opens_no_socket_and_no_file():
    source = (ROOT / "gadget" / "pipeline.py").read_text(encoding="utf-8")

    names = list(imports_of(source, "gadget"))

    assert "gadget.scan.assemble" in names
    assert not [
        name for name in names if within(name, ("socket", "h5py", "pathlib", "gadget.server", "typer"))
    ]


def test_no_module_is_named_for_nothing():
    vague = {"utils", "helpers", "common", "base", "misc", "types"}

    assert [
        path for package in ("gadget", "reconlib") for path in modules_of(package) if path.stem in vague
    ] == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import socket", "socket"),
        ("import torch.nn as nn", "torch.nn"),
        ("from os import path", "os.path"),
        ("def f():\n    from torch import nn", "torch.nn"),
        ("from . import codec", "gadget.wire.codec"),
        ("from .. import server", "gadget.server"),
        ("from ..server import serve", "gadget.server"),
        ("import importlib\nimportlib.import_module('socket')", "socket"),
        ("__import__('socket')", "socket"),
        ("if True:\n    import h5py", "h5py"),
    ],
)
def test_no_way_of_importing_is_overlooked(source, name):
    assert name in list(imports_of(source, "gadget.wire"))
