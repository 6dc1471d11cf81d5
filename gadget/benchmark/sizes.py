"""How large the cases are: for a quick look, for a machine of a few cores, for a GPU."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Matrices (y, x), coils, and how much is measured of them."""

    name: str
    paper: tuple[int, int, int]
    """(y, x, coil)"""
    brain: tuple[int, int, int]
    radial: tuple[int, int, int]
    n_spokes: int
    iterations: int | None
    """Of all cases but ``paper``; None: the solver's own number."""
    paper_iterations: int | None
    repeats: int
    """Of whole reconstructions; of their parts ten times as many."""
    batches: tuple[int, ...]
    """Slices at once."""
    batch_iterations: int
    """Of these, and of what shows how cost grows; 0: as many as for a slice alone."""
    matrices: tuple[int, ...]
    coils: tuple[int, ...]
    spokes: tuple[int, ...]
    slices: tuple[int, ...]
    """Of a scan that is reconstructed in batches of ``scan_batch``."""
    scan_batch: int
    posterior_limit_s: float


QUICK = Sizes(
    name="quick",
    paper=(96, 72, 4),
    brain=(96, 96, 4),
    radial=(96, 96, 4),
    n_spokes=24,
    iterations=None,
    paper_iterations=2,
    repeats=1,
    batches=(1, 2),
    batch_iterations=3,
    matrices=(64, 96),
    coils=(2, 4),
    spokes=(16, 32),
    slices=(1, 2, 4),
    scan_batch=1,
    posterior_limit_s=2.0,
)
CPU = Sizes(
    name="CPU",
    paper=(640, 372, 15),
    brain=(256, 256, 8),
    radial=(256, 256, 8),
    n_spokes=45,
    iterations=None,
    paper_iterations=10,
    repeats=1,
    batches=(1, 4),
    batch_iterations=5,
    matrices=(128, 192, 256, 384),
    coils=(4, 8, 16, 32),
    spokes=(32, 64, 128, 256),
    slices=(1, 4, 16, 64),
    scan_batch=1,
    posterior_limit_s=180.0,
)
GPU = Sizes(
    name="GPU",
    paper=(640, 372, 15),
    brain=(256, 256, 8),
    radial=(256, 256, 8),
    n_spokes=45,
    iterations=None,
    paper_iterations=None,
    repeats=3,
    batches=(1, 4, 16),
    batch_iterations=0,
    matrices=(128, 256, 384, 512),
    coils=(4, 8, 16, 32),
    spokes=(32, 64, 128, 256),
    slices=(1, 4, 16, 64),
    scan_batch=16,
    posterior_limit_s=60.0,
)
