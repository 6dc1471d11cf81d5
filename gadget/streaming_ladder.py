"""What is tried next where a reconstruction failed, so that its slices still get a good image.

1. **Smaller batches**: after running out of memory, halves; after anything else, slice by slice, so that one
   bad slice does not cost the others.
2. **The CPU**: for a slice that does not fit onto the accelerator even alone.
3. Nothing: that slice gets the fallback image.

Every scan starts at the top again: what filled the memory may be gone.
"""

import logging
from dataclasses import dataclass

import torch

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")

_WORDS_OF_FULL_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "ALLOC_FAILED",  # cuFFT, cuBLAS and cuDNN allocate by themselves
)


@dataclass(frozen=True, slots=True)
class Rung:
    """Slices that are reconstructed together, and where."""

    rows: range
    device: torch.device

    def next(self, reason: str, *, is_memory: bool) -> tuple["Rung", ...]:
        """Say what to try after this one failed, in order, and log it; nothing: a fallback.

        Parameters
        ----------
        reason
            Why it failed: words without patient data.
        is_memory
            Whether memory ran out.
        """
        n = len(self.rows)
        if n > 1:
            size = (n + 1) // 2 if is_memory else 1
            how = "one by one" if size == 1 else f"at most {size} together"
            logger.warning("A batch of %d slices failed (%s): %s now.", n, reason, how)
            return tuple(Rung(self.rows[start : start + size], self.device) for start in range(0, n, size))
        if is_memory and self.device != CPU:
            logger.warning("A slice failed on %s (%s): on the CPU now.", self.device, reason)
            return (Rung(self.rows, CPU),)
        return ()


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; torch says so in several ways."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS_OF_FULL_MEMORY)
