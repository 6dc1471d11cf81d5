"""Where files that are used by name lie: shipped configurations and priors, and priors of the user."""

import os
from collections.abc import Mapping
from pathlib import Path

PRIORS_VARIABLE = "GADGETRON_EBM_PRIORS"
"""Environment variable: folders that hold prior packages, separated as in PATH."""


def config_folder() -> Path:
    """Return the folder of shipped configurations.

    An installed wheel carries it inside the package; in a checkout it lies beside the package.
    """
    package = Path(__file__).resolve().parent
    installed = package / "config"
    return installed if installed.is_dir() else package.parent / "config"


def user_prior_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which a user's own priors are installed; it need not be there.

    ``$XDG_DATA_HOME/gadgetron-ebm/priors``, by default ``~/.local/share/gadgetron-ebm/priors`` (XDG Base
    Directory Specification, which also says that a relative path is to be ignored).
    """
    data_home = Path(environment.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():
        data_home = Path(os.path.expanduser("~/.local/share"))  # noqa: PTH111 - does not fail without a home
    return data_home / "gadgetron-ebm" / "priors"


def prior_folders(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the folders in which a prior's name is looked up, in order.

    Those of the environment variable, the user's own, the shipped ones. The user's is left out where there is
    none.
    """
    named = [
        Path(os.path.expanduser(entry))  # noqa: PTH111 - as above
        for entry in environment.get(PRIORS_VARIABLE, "").split(os.pathsep)
        if entry
    ]
    own = user_prior_folder(environment)
    there = [own] if os.path.isdir(own) else []  # noqa: PTH112 - never raises, also without permission
    return (*named, *there, config_folder() / "priors")


def default_config() -> Path:
    """Return the documented default configuration."""
    return config_folder() / "recon" / "default.yaml"
