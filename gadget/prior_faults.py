"""Faults of priors, told as faults of settings: the user chose the prior."""

from collections.abc import Iterator
from contextlib import contextmanager

from gadget.errors import SettingsError
from reconlib.priors.library import PriorError


@contextmanager
def prior_faults_as_settings_faults() -> Iterator[None]:
    """Raise SettingsError where the block raises PriorError."""
    try:
        yield
    except PriorError as error:
        raise SettingsError(f"prior: {error}") from error
