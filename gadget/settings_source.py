"""The settings that each scan starts with: from files that may change while a server runs.

A server is started with a configuration, changes of it on the command line, and the configurations that peers
may ask for by name (:mod:`gadget.config_names`). A named one is laid over the server's own: its keys
hold before the server's rules, and its own rules, where it has any, take their place. What the command line
sets holds before all of that.

When a file changed, or on request (SIGHUP), everything is read again before the next scan. It is taken as a
whole or not at all: with a fault in one file, what held before goes on to hold, and the log says why. A scan
that runs keeps what it started with.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gadget.config_names import OWN, ConfigNames, asked_for
from gadget.errors import GadgetError, SettingsError, WorkerGoneError
from gadget.settings import HELD_FROM_START, Settings, settings_from_files, with_overrides, with_rule
from gadget.wire.messages import Message

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Read:
    """What the files said when they were read."""

    own: Settings
    named: Mapping[str, Settings]

    def all(self) -> list[Settings]:
        """Return each settings that a scan may get, rules included, once."""
        found: list[Settings] = []
        for settings in (self.own, *self.named.values()):
            found += [one for one in _with_each_rule(settings) if one not in found]
        return found


class SettingsSource:
    """Gives each scan its settings.

    Parameters
    ----------
    path
        The server's own configuration; None: the defaults.
    overrides
        Keys and values that were set where the server was started; they hold whatever a file or rule says.
    configs
        What peers may ask for by name.
    check
        Called with each settings that a scan may get, before settings that were read again are taken;
        raises GadgetError where they cannot be used (a prior that does not load, say). Not called for those
        that the server starts with: :meth:`verify` does that.

    Raises
    ------
    SettingsError
        A file is faulty.
    """

    def __init__(
        self,
        path: Path | None,
        overrides: Iterable[tuple[str, Any]] = (),
        *,
        configs: ConfigNames | None = None,
        check: Callable[[Settings], None] = lambda _settings: None,
    ) -> None:
        self._path = path
        self._overrides = tuple(overrides)
        self._configs = ConfigNames() if configs is None else configs
        self._check = check
        self._state = self._state_of_files()
        self._read = self._read_files()
        self._is_asked = False
        self._is_second_try = False
        self._reloading = threading.Lock()

    @property
    def settings(self) -> Settings:
        """What holds for a scan that asks for no configuration."""
        return self._read.own

    def for_scan(self, *head: Message | None) -> Settings:
        """Return the settings that a scan starts with, read again first where that is due.

        Parameters
        ----------
        head
            What came before the first data. A configuration that is asked for by name is taken here; values
            that the peer sets itself are laid over the result by the pipeline.
        """
        self.refresh()
        read = self._read
        name = asked_for(message for message in head if message is not None)
        if name is None or name in OWN:
            return read.own
        if name not in read.named:
            logger.info(
                "The peer asks for the configuration %r; there are %s: the server's own settings hold.",
                name[:60],
                ", ".join([OWN[0], *read.named]),
            )
            return read.own
        logger.info("Configuration %s, as the peer asks.", name)
        return read.named[name]

    def request_reload(self) -> None:
        """Have everything read again before the next scan. May be called from a signal handler."""
        self._is_asked = True

    def refresh(self) -> None:
        """Read everything again if that was requested or a file changed; a fault is logged, never raised.

        While another thread does that already, nothing is done: what held before holds a little longer.
        """
        if not self._reloading.acquire(blocking=False):
            return
        try:
            state = self._state_of_files()
            if not self._is_asked and state == self._state:
                return
            self._is_second_try &= state == self._state
            self._is_asked, self._state = False, state
            self._take(self._read_files())
            self._is_second_try = False
        except GadgetError as error:
            # a worker may have died of a scan that ran: once more, before the next scan
            self._is_second_try = isinstance(error, WorkerGoneError) and not self._is_second_try
            self._is_asked = self._is_second_try
            logger.error("The new configuration is not used; the one before goes on to hold. %s", error)
        finally:
            self._reloading.release()

    def verify(self) -> None:
        """Check each settings that a scan may get.

        What a peer may ask for by name and cannot be used is a warning: no other scan needs it.

        Raises
        ------
        GadgetError
            What ``check`` raises of the server's own.
        """
        own = _with_each_rule(self._read.own)
        for settings in own:
            self._check(settings)
        for name, settings in self._read.named.items():
            try:
                for one in _with_each_rule(settings):
                    if one not in own:
                        self._check(one)
            except GadgetError as error:
                logger.warning(
                    "The configuration %s cannot be used by peers that ask for it: %s", name, error
                )

    def _take(self, new: _Read) -> None:
        """Check new settings and let them hold."""
        started = {key: getattr(self._read.own, key) for key in HELD_FROM_START}
        changed = [key for key, value in started.items() if getattr(new.own, key) != value]
        new = _Read(
            with_overrides(new.own, started.items()),
            {name: with_overrides(settings, started.items()) for name, settings in new.named.items()},
        )
        for settings in new.all():
            self._check(settings)
        self._read = new
        logger.info("The configuration was read again and holds from the next scan on.")
        if changed:
            logger.warning("What changed in %s holds after a restart only.", " and ".join(changed))

    def _read_files(self) -> _Read:
        own = [] if self._path is None else [self._path]
        return _Read(
            settings_from_files(own, self._overrides),
            {
                name: settings_from_files([*own, path], self._overrides, held=HELD_FROM_START)
                for name, path in self._configs.files().items()
            },
        )

    def _state_of_files(self) -> tuple[object, ...]:
        """Return what changes when a file does, or one comes or goes."""
        try:
            named = self._configs.files()
        except SettingsError as error:
            return (str(error),)
        paths = [*named.values(), *([] if self._path is None else [self._path])]
        return tuple((path, _state_of(path)) for path in paths)


def _with_each_rule(settings: Settings) -> list[Settings]:
    return [settings, *(with_rule(settings, rule) for rule in settings.rules)]


def _state_of(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
