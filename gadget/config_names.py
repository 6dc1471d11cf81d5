"""Configurations by name: which names a peer may ask for, and which YAML files they stand for.

A name is looked up among the names of files, and is never a path itself. There are the shipped files of
``config/recon`` and those of one folder that is named where the server is started; of two files of one name
that of the folder counts. ``default`` and ``gadgetron-ebm`` stand for the settings that the server was
started with.

Where a peer puts a name: in the message CONFIG_FILE; FIRE and OpenRecon clients also in the JSON parameters
``customconfig`` and ``config``, which count before the message, in this order, unless they are empty; a
Gadgetron chain in a ``<property name="config" .../>``. Clients put all sorts of names there ('simplefft',
'default.xml'), so that one that is not known is no fault.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gadget.configs import config_folder
from gadget.errors import SettingsError
from gadget.peer_text import named_by_json, named_by_xml
from gadget.wire.messages import ConfigFile, ConfigText, Message, Text

OWN = ("default", "gadgetron-ebm")
"""Stand for the settings that the server was started with."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENDINGS = (".yaml", ".xml")
"""Clients may write the name with the ending of a file; those of Gadgetron name their chains so."""


@dataclass(frozen=True, slots=True)
class ConfigNames:
    """The names that a peer may ask for."""

    folder: Path | None = None
    """The site's own configurations; None: only the shipped ones."""
    shipped: Path = field(default_factory=lambda: config_folder() / "recon")

    def files(self) -> dict[str, Path]:
        """Return the YAML file of each name, as the folders are now.

        Raises
        ------
        SettingsError
            The folder cannot be read, or a file in it has a name that cannot be asked for.
        """
        found = {path.stem: path for path in sorted(self.shipped.glob("*.yaml")) if path.stem not in OWN}
        if self.folder is None:
            return found
        try:
            own = sorted(path for path in self.folder.iterdir() if path.suffix == ".yaml")
        except OSError as error:
            raise SettingsError(
                f"Cannot read the folder of configurations {self.folder}: {error}."
            ) from error
        for path in own:
            if path.stem in OWN:
                raise SettingsError(
                    f"{path}: the name '{path.stem}' stands for the settings that the server was started "
                    "with; rename the file, or start the server with it (--config)."
                )
            if not _PLAIN_NAME.fullmatch(path.stem):
                raise SettingsError(
                    f"{path}: a configuration that is asked for by its name needs one of letters, digits, "
                    "'.', '_' and '-'; rename the file."
                )
            found[path.stem] = path
        return found


def asked_for(messages: Iterable[Message]) -> str | None:
    """Return the name of the configuration that the messages before the first data ask for; None: none.

    The ending of a file is left away. What is faulty in the messages is not told here: whoever reads the
    settings in them does that.
    """
    by_message = by_parameter = None
    for message in messages:
        match message:
            case ConfigFile():
                by_message = message.text.strip()
            case ConfigText() if message.text.lstrip().startswith("<"):
                by_message = named_by_xml(message.text)
            case ConfigText() | Text():
                by_parameter = named_by_json(message.text) or by_parameter
    name = by_parameter or by_message
    if not name:
        return None
    return next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)
