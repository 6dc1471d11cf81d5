"""Meta attributes of images, for those who look on: they need no torch."""

import xml.etree.ElementTree as ElementTree

from gadget.wire.messages import Image

KIND = "EBM_Image"
"""What an image of ours is; others, that were passed on, have none."""
FALLBACK = "FALLBACK"
"""The kind of one that stands in the place of a reconstruction."""
COMPLETED_BY = "EBM_CompletedBy"
"""Number of the data message, from 1, that completed the slice."""


def read_meta(image: Image) -> dict[str, str]:
    """Return the attributes of an image, the first value of each; none where they cannot be read."""
    try:
        root = ElementTree.fromstring(image.meta.partition("\0")[0])
    except (ElementTree.ParseError, ValueError):
        return {}
    return {node.findtext("name", ""): node.findtext("value", "") for node in root.iter("meta")}
