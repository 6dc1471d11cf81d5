"""How a reconstruction ended."""

from enum import Enum


class Outcome(Enum):
    """Each value is a sentence for logs and image headers."""

    CONVERGED = "converged"
    OUT_OF_ITERATIONS = "ran its full number of iterations"
    OUT_OF_TIME = "stopped at its time limit"
    NOT_FINITE = "the iterate has infinities or NaNs"
    ALL_ZERO = "the k-space is all zero"
