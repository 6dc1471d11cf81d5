"""The errors that users of the gadget meet. Anything else that escapes is a bug."""


class GadgetError(Exception):
    """Base of all errors whose text is meant for a user."""


class ScanError(GadgetError):
    """The scan (header or readouts) is faulty, or something that is not supported."""


class SettingsError(GadgetError):
    """A configuration is faulty."""


class FileError(GadgetError):
    """A file cannot be read or written as asked."""


class PeerProtocolError(GadgetError):
    """The peer's bytes break the protocol."""


class OwnProtocolError(GadgetError):
    """We tried to send what may not be sent now: a fault of this program."""
