"""The version of this program, for images and for people."""

from importlib.metadata import PackageNotFoundError, version


def software() -> str:
    """Return name and version; a checkout that is only on the path, not installed, has none."""
    try:
        return f"gadgetron-ebm {version('gadgetron-ebm')}"
    except PackageNotFoundError:
        return "gadgetron-ebm (not installed)"
