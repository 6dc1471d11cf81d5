"""How the CPU threads that share an operation wait for the next one."""

import os

SPINS = "2000"
"""Some 50 to 100 us: more than what lies between two operations on an image."""


def let_threads_wait_briefly() -> None:
    """Let OpenMP's threads spin for a moment after an operation, then sleep; to be called before torch loads.

    GCC's OpenMP, which torch brings, has them spin for milliseconds, on cores that other processes may need.
    With OMP_WAIT_POLICY=PASSIVE they sleep at once, and to wake up takes longer than many an operation: two
    threads are then slower than one. What the environment says stays.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS
