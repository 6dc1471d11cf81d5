"""What the front asks the worker for, beside the scan itself."""

from dataclasses import dataclass
from typing import Any

from gadget.checked_settings import checked
from gadget.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """How a scan is to be reconstructed."""

    address: str
    """The peer's, for the log."""
    settings: Settings
    fallback_only: str = ""
    """Why there are to be fallback images only; empty: there are not."""
    n_images_sent: int = 0
    """Images of ours that the peer has had of this scan."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "address": self.address,
            "settings": values_of(self.settings),
            "fallback_only": self.fallback_only,
            "n_images_sent": self.n_images_sent,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "ScanRequest":
        """Return the request that :meth:`to_json` made these values of."""
        return cls(**content | {"settings": settings_of(content["settings"])})


def values_of(settings: Settings) -> dict[str, Any]:
    """Return settings as JSON values."""
    return settings.model_dump(mode="json", exclude_defaults=True)


def settings_of(values: dict[str, Any]) -> Settings:
    """Return the settings that :func:`values_of` made these values of."""
    return checked(Settings, values, "the front's settings")
