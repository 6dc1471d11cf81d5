"""How the sampling of a slice ended."""

from enum import Enum


class PosteriorOutcome(Enum):
    """Each value is a sentence for logs and image headers."""

    DONE = "all draws made, the chains agree"
    OUT_OF_TIME = "stopped at the time limit with enough draws, the chains agree"
    TOO_SHORT = "too short: stopped early with too few effective draws; mean and width are not reliable"
    NOT_MIXED = "not mixed: all draws made, but the chains disagree or hold too few effective draws"
    NOT_FINITE = "a chain has infinities or NaNs"
    ALL_ZERO = "the k-space is all zero"
