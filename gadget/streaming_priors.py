"""Priors in memory, and what becomes of them when their files change.

The files are looked at when a scan starts. New ones that are good take the place of the old ones, for that
scan and later ones; new ones that are broken are told in the log, and the prior in memory stays in use.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from gadget.prior_faults import prior_faults_as_settings_faults
from reconlib.priors.card_file import CARD_FILE
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.priors.weights_file import WEIGHTS_FILE

logger = logging.getLogger(__name__)

_Files = tuple[Path, tuple[tuple[int, int, int] | None, ...]]
"""A folder, and time of change, size and inode of its files."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    prior: Prior
    files: _Files


class LoadedPriors:
    """Loads each prior once, and again where its files have changed; safe from any thread.

    Parameters
    ----------
    search
        Folders in which the names of priors are looked up.
    """

    def __init__(self, search: Sequence[Path], device: torch.device) -> None:
        self._search = search
        self._device = device
        self._lock = threading.Lock()
        self._loaded: dict[str, _Loaded] = {}

    def get(self, name: str) -> Prior:
        """Return a prior by name or folder.

        Raises
        ------
        SettingsError
            It cannot be loaded, and never could.
        """
        with self._lock:
            known = self._loaded.get(name)
            try:
                with prior_faults_as_settings_faults():
                    files = _files_of(find_prior(name, self._search))
                    if known is not None and known.files == files:
                        return known.prior
                    prior = load_prior(files[0], self._device)
            except Exception as error:  # whatever is wrong with new files, the old prior is good
                if known is None:
                    raise
                card = known.prior.card
                logger.warning(
                    "The files of the prior %s have changed and cannot be used: %s What was loaded before, "
                    "version %s, stays in use.",
                    card.name,
                    error,
                    card.version,
                )
                return known.prior
            if known is not None:
                logger.info(
                    "The files of the prior %s have changed: version %s was loaded in place of %s.",
                    prior.card.name,
                    prior.card.version,
                    known.prior.card.version,
                )
            self._loaded[name] = _Loaded(prior, files)
            return prior


def _files_of(folder: Path) -> _Files:
    return folder, tuple(_state_of(folder / name) for name in (CARD_FILE, WEIGHTS_FILE))


def _state_of(file: Path) -> tuple[int, int, int] | None:
    try:
        state = file.stat()
    except OSError:
        return None  # not there, or hidden: loading says which
    return state.st_mtime_ns, state.st_size, state.st_ino
