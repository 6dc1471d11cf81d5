"""The errors that users of the gadget meet. Anything else that escapes is a bug."""


class GadgetError(Exception):
    """Base of all errors whose text is meant for a user."""


class ScanError(GadgetError):
    """The scan (header or readouts) is faulty, or something that is not supported."""


class SettingsError(GadgetError):
    """A configuration is faulty."""


class FileError(GadgetError):
    """A file cannot be read or written as asked."""


class NobodyWaitsError(GadgetError):
    """Work was stopped since its result is not wanted any more; why, those know who said so."""

    def __init__(self) -> None:
        super().__init__("Nobody waits for the images any more.")


class WorkerGoneError(GadgetError):
    """The process that reconstructs died over something that it was asked, or of something else meanwhile."""


class PeerProtocolError(GadgetError):
    """The peer's bytes break the protocol."""


class PeerReportedError(PeerProtocolError):
    """The peer says in an ERROR that it failed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The peer reports a failure: {reason}")
        self.reason = reason


class OwnProtocolError(GadgetError):
    """We tried to send what may not be sent now: a fault of this program."""
