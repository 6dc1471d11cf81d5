"""The error of this package."""


class PriorError(Exception):
    """A prior cannot be used; the text says what is wrong and what to do."""
