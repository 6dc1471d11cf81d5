"""Where the files that ship with the program lie: priors and configurations."""

from pathlib import Path


def config_folder() -> Path:
    """Return the folder of shipped configurations.

    An installed wheel carries it inside the package; in a checkout it lies beside the package.
    """
    package = Path(__file__).resolve().parent
    installed = package / "config"
    return installed if installed.is_dir() else package.parent / "config"


def prior_folders() -> tuple[Path, ...]:
    """Return the folders in which a prior's name is looked up."""
    return (config_folder() / "priors",)


def default_config() -> Path:
    """Return the documented default configuration."""
    return config_folder() / "recon" / "default.yaml"
