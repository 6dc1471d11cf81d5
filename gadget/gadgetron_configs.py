"""Put the chains for Gadgetron where it looks for them: ``GADGETRON_HOME/share/gadgetron/config``.

Gadgetron's home is what its environment variable GADGETRON_HOME names, else the folder above that of its
program (``bin``), which for a conda installation is the environment.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from gadget.configs import config_folder
from gadget.errors import FileError
from gadget.whole_file import write_whole_file

HOME_VARIABLE = "GADGETRON_HOME"
TARGET_MODULE = "gadget.gadgetron_entry"
"""What the chains name in ``<execute name="..."/>``."""
_CONNECT = re.compile(r"<connect\b[^>]*/>")


@dataclass(frozen=True, slots=True)
class Installed:
    """What became of a chain."""

    path: Path
    is_new: bool
    """False: it was there already, and alike."""


def gadgetron_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home of the Gadgetron that is installed on this machine.

    Raises
    ------
    FileError
        There is none to be found.
    """
    if named := environment.get(HOME_VARIABLE):
        return Path(named)
    program = shutil.which("gadgetron", path=environment.get("PATH"))
    if program is None:
        raise FileError(
            f"No Gadgetron was found: there is no program 'gadgetron' on the PATH, and {HOME_VARIABLE} is "
            "not set. Name its folder, the one with share/gadgetron in it: --gadgetron-home DIR."
        )
    return Path(program).resolve().parent.parent


def chains(connect: tuple[str, int] | None = None) -> dict[str, str]:
    """Return the shipped chains by the name of their file.

    Parameters
    ----------
    connect
        Address and port of the running server, for the chains that connect to one.
    """
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((config_folder() / "gadgetron").glob("*.xml"))
    }
    if connect is None:
        return texts
    address, port = connect
    element = f'<connect address={quoteattr(address)} port="{port}"/>'
    return {name: _CONNECT.sub(lambda _found: element, text) for name, text in texts.items()}


def install_chains(
    home: Path, *, connect: tuple[str, int] | None = None, overwrite: bool = False
) -> list[Installed]:
    """Write all chains, or none where one of them cannot be written; everybody may read them.

    Raises
    ------
    FileError
        This is no Gadgetron's home, or a chain with other content is there and is not to be replaced.
    """
    folder = home / "share" / "gadgetron" / "config"
    if not folder.is_dir():
        raise FileError(
            f"{home} is not the home of a Gadgetron: it has no folder share/gadgetron/config. For a conda "
            "installation it is the folder of the environment; --gadgetron-home names it."
        )
    texts = {folder / name: text.encode() for name, text in chains(connect).items()}
    new = {path: text for path, text in texts.items() if not (path.is_file() and path.read_bytes() == text)}
    if not overwrite and (others := [path.name for path in new if path.exists()]):
        raise FileError(
            f"{folder} holds other files of these names: {', '.join(others)}. Keep them under other names, "
            "or ask for them to be replaced (--overwrite). Nothing was written."
        )
    for path, text in new.items():
        write_whole_file(path, text, overwrite=overwrite)
        path.chmod(0o644)
    return [Installed(path, path in new) for path in texts]


def why_not_executable(home: Path) -> str:
    """Say why Gadgetron could not start the reconstruction; empty where it can, or nobody can tell from here.

    Gadgetron takes the first of ``python`` and ``python3`` on the PATH of its server, which for a conda
    installation are those beside it.
    """
    pythons = [home / "bin" / name for name in ("python", "python3")]
    python = next((one for one in pythons if os.access(one, os.X_OK)), None)
    if python is None:
        return ""
    command = [str(python), "-c", f"import gadgetron.external.connection, {TARGET_MODULE}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command, env=environment, cwd=home, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} cannot be started ({error})"
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    return f"{python} cannot import {TARGET_MODULE} ({last})"
