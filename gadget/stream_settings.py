"""The settings of one stream: what it starts with, the rule that fits its header, and what its peer asks for.

They are settled once, at the first readout. A rule is part of the server's configuration, so it comes first;
what the peer sets itself is laid over that, within what a peer may set.
"""

import logging
from dataclasses import dataclass

from gadget.peer_settings import has_json_parameters, settings_from_config, settings_from_json
from gadget.protocol_rules import facts_of, with_fitting_rule
from gadget.scan.header import ScanDescription
from gadget.settings import Settings
from gadget.wire.messages import Acquisition, ConfigFile, ConfigText, Text
from gadget.wire.session import Dialect, dialect_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SettledSettings:
    """What holds for a whole scan."""

    settings: Settings
    rule: str | None
    """Name of the rule that fits; None: none does, or there are none."""
    dialect: Dialect
    has_parameters: bool
    """Whether the peer sent JSON parameters, as FIRE and OpenRecon do."""

    def about(self) -> dict[str, str]:
        """Return the attributes that say in each image how its settings were chosen."""
        return {} if self.rule is None else {"EBM_Rule": self.rule}


class StreamSettings:
    """Collects what comes before the first readout and bears on the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._messages: list[ConfigText | Text] = []

    def take(self, message: ConfigFile | ConfigText | Text) -> None:
        """Take note of a message; a configuration by name is chosen before a stream begins."""
        if not isinstance(message, ConfigFile):
            self._messages.append(message)

    def settle(self, description: ScanDescription, readout: Acquisition) -> SettledSettings:
        """Return what holds for the scan that begins with a readout.

        Raises
        ------
        SettingsError
            What the peer asks for is faulty, or may not be set by a peer.
        """
        facts = facts_of(description, n_channels=int(readout.header["active_channels"]))
        settings, rule = with_fitting_rule(self._settings, facts)
        dialect, has_parameters = Dialect.MRD, False
        for message in self._messages:
            if isinstance(message, ConfigText):
                dialect = dialect_of(message)
                settings = settings_from_config(settings, message.text)
            else:
                settings = settings_from_json(settings, message.text)
            has_parameters |= has_json_parameters(message.text)
        return SettledSettings(settings, rule, dialect, has_parameters)
