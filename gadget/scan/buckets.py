"""Gadgetron's buckets (1050) as the readouts they were made of."""

from collections.abc import Iterator

from gadget.wire.messages import Acquisition, AcquisitionBucket


def readouts_of_bucket(bucket: AcquisitionBucket) -> Iterator[Acquisition]:
    """Yield each readout of a bucket once: reference lines that are also data stand in both lists.

    Reference lines come first, since the last data line completes a slice.
    """
    data = {readout.header.tobytes() for readout in bucket.data}
    yield from (readout for readout in bucket.reference if readout.header.tobytes() not in data)
    yield from bucket.data
