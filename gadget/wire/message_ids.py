"""The numbers that name messages on the wire."""

from enum import IntEnum


class MessageId(IntEnum):
    """The uint16 that starts every message."""

    CONFIG_FILE = 1
    CONFIG_TEXT = 2
    HEADER = 3
    CLOSE = 4
    TEXT = 5
    QUERY = 6
    RESPONSE = 7
    ERROR = 8
    ACQUISITION = 1008
    IMAGE = 1022
    RECON_DATA = 1023
    IMAGE_ARRAY = 1024
    WAVEFORM = 1026
    ACQUISITION_BUCKET = 1050
