"""What the files in ``docker/`` say, as far as tests ask."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

ROOT = Path(__file__).parent.parent
DOCKER = ROOT / "docker"
UNIT = DOCKER / "gadgetron-ebm.service"


def dockerfile() -> list[tuple[str, str, str]]:
    """Return (stage, instruction, arguments) of each line of the Dockerfile, joined where it goes on."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    found, stage = [], ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("#"):
            continue
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            stage = arguments.split()[-1]
        found.append((stage, instruction, arguments.strip()))
    return found


def the(instruction: str, stage: str) -> str:
    """Return the arguments of the only such instruction of a stage."""
    (found,) = [arguments for where, what, arguments in dockerfile() if (where, what) == (stage, instruction)]
    return found


def image_command() -> list[str]:
    """Return what a container runs: entry point and arguments."""
    return [*json.loads(the("ENTRYPOINT", "base")), *json.loads(the("CMD", "base"))]


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    """Return a compose file."""
    content = yaml.safe_load((DOCKER / name).read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def unit() -> dict[str, list[str]]:
    """Return the values of each key of the systemd unit, whatever its section."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "[")):
            found.setdefault(key, []).append(value)
    return found


def unit_command() -> list[str]:
    """Return what the unit starts, with the folder of states where systemd has it."""
    return [word.replace("%S", "/var/lib") for word in shlex.split(unit()["ExecStart"][0])]


def options_of(command: list[str]) -> dict[str, Any]:
    """Return the values that our command line takes from a command; raise what it raises for misuse."""
    from gadget.cli import app

    program, name, *arguments = command
    assert program.rpartition("/")[2] == "gadgetron-ebm"
    group = typer.main.get_command(app)
    chosen = group.get_command(None, name)  # type: ignore[attr-defined]  # it is a group
    return dict(chosen.make_context(name, arguments, resilient_parsing=False).params)


def tool(name: str) -> str:
    """Return the path of a program that is installed with the tests, or on the PATH; skip where it is not."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no program {name}")
    return found


def output_of(*command: object) -> str:
    """Run a command in ``docker/``, which must succeed; return what it says."""
    done = subprocess.run(
        [str(part) for part in command], cwd=DOCKER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
