"""A prior package as one ``.zip`` file, to hand on and to install.

The archive holds ``card.yaml`` and, where there are weights, ``prior.safetensors``, and nothing else. It is
written without compression and without times or owners, so the same package always gives the same bytes.
"""

import io
import os
import shutil
import stat
import zipfile
from pathlib import Path

from reconlib.priors.card import PriorCard
from reconlib.priors.card_file import CARD_FILE, LARGEST_CARD_BYTES, parse_card, read_limited, write_at_once
from reconlib.priors.errors import PriorError
from reconlib.priors.library import write_package
from reconlib.priors.verification import check_package
from reconlib.priors.weights_file import LARGEST_WEIGHTS_BYTES, WEIGHTS_FILE

_LIMITS = {CARD_FILE: LARGEST_CARD_BYTES, WEIGHTS_FILE: LARGEST_WEIGHTS_BYTES}
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The first date that a zip file can hold."""
_OVERHEAD_BYTES = 1 << 16


def pack_prior(folder: Path, out: Path) -> PriorCard:
    """Verify a package and write its archive; return the card.

    Raises
    ------
    PriorError
        The package is faulty, one of its files is a link, or ``out`` exists or cannot be written.
    """
    if os.path.lexists(out):
        raise PriorError(f"{out} exists; name a new file for the archive.")
    for name in _LIMITS:
        if (folder / name).is_symlink():
            raise PriorError(
                f"{folder / name} is a link; put the file itself in its place before you pack it."
            )
    report = check_package(folder)
    if report.card is None or report.faults:
        raise PriorError(f"{folder} is not packed, it is faulty: {' '.join(report.faults)}")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, limit in _LIMITS.items():
            if name == WEIGHTS_FILE and report.card.sha256 is None:
                continue
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.create_system = 3  # Unix, on every system
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, read_limited(folder / name, limit, "it is not packed"))
    write_at_once(out, buffer.getvalue())
    return report.card


def install_prior(archive: Path, into: Path, *, replace: bool = False) -> tuple[Path, PriorCard]:
    """Unpack an archive into a folder of priors, verify it, and give it the name in its card.

    Nothing appears under the name before the package was found good.

    Raises
    ------
    PriorError
        The file is no archive of a prior, the prior is faulty, or the name is taken and ``replace`` is not
        set.
    """
    contents = _read_archive(archive)
    card = parse_card(contents[CARD_FILE], f"{CARD_FILE} in {archive}")
    folder = into / card.name
    if os.path.lexists(folder) and not replace:
        raise PriorError(
            f"there is a prior {card.name!r} in {into} already; remove it, or ask for it to be replaced."
        )
    try:
        into.mkdir(parents=True, exist_ok=True)
        trial = into / f".{card.name}.new"
        shutil.rmtree(trial, ignore_errors=True)
        write_package(trial, contents[CARD_FILE], contents.get(WEIGHTS_FILE))
        try:
            faults = check_package(trial).faults
            if faults:
                told = " ".join(faults).replace(str(trial), str(archive))
                raise PriorError(f"{archive} is not installed, it is faulty: {told}")
            _take_name(trial, folder)
        finally:
            shutil.rmtree(trial, ignore_errors=True)
    except OSError as error:
        raise PriorError(f"{archive} cannot be installed in {into}: {error.strerror}.") from error
    return folder, card


def _take_name(trial: Path, folder: Path) -> None:
    """Give the folder its name; one that has it is put aside first and comes back if that fails."""
    if not os.path.lexists(folder):
        trial.rename(folder)
        return
    aside = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    try:
        trial.rename(folder)
    except OSError:
        aside.rename(folder)
        raise
    if aside.is_symlink():
        aside.unlink()
    else:
        shutil.rmtree(aside, ignore_errors=True)


def _read_archive(path: Path) -> dict[str, bytes]:
    """Return the files of an archive by name, after everything about it was looked at.

    Names are compared with the two that there are, so none leads out of the folder; sizes are limited while
    they are read, whatever the archive says of them.
    """
    blob = read_limited(path, sum(_LIMITS.values()) + _OVERHEAD_BYTES, "no archive of a prior is that large")
    try:
        with zipfile.ZipFile(io.BytesIO(blob)) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            strange = [name for name in names if name not in _LIMITS]
            if strange or len(set(names)) != len(names) or CARD_FILE not in names:
                raise PriorError(
                    f"{path} is no archive of a prior: it holds {_listed(names)}; needed are {CARD_FILE} "
                    f"and, for a prior with weights, {WEIGHTS_FILE}, nothing else."
                )
            return {entry.filename: _read_entry(archive, entry, path) for entry in entries}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        # RuntimeError: encrypted; NotImplementedError: a compression that zipfile does not know
        raise PriorError(f"{path} cannot be read as a zip file: {error}") from error


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> bytes:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise PriorError(f"{entry.filename} in {path} is a link or a device; it has to be a file.")
    limit = _LIMITS[entry.filename]
    with archive.open(entry) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise PriorError(f"{entry.filename} in {path} is larger than {limit} bytes; it is not unpacked.")
    return content


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return (shown or "nothing") + (f" and {len(names) - 5} more" if len(names) > 5 else "")
