"""Non-Cartesian scans to evaluate on: an image of some of their readouts, against one of all of them.

The pattern ``every-K`` keeps every K-th imaging readout of each slice, and of a stack of each partition, from
the first one on; noise readouts stay. The scan is then assembled anew, as if no more had been measured:
density weights, delays and noise levels are those of what is left.

The reference is CG-SENSE of all readouts (:mod:`reconlib.evaluation.cg_sense`) after 12 iterations, or the
truth that ``simulate`` stores. CG-SENSE has noise and faults of its own: that a method is far from it is not
always the method's fault.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from gadget.errors import ScanError
from gadget.evaluation_assembly import assembled_slices, middle, noise_words, truth_of_slice
from gadget.scan.assembled import AssembledSlice
from gadget.scan.readout_kinds import ReadoutKind, kind_of_readout
from gadget.settings import Settings
from gadget.wire.messages import Acquisition
from reconlib.evaluation.cg_sense import cg_sense_image
from reconlib.evaluation.study import Case, FullScan
from reconlib.kspace import NonuniformKSpace
from reconlib.operators.fourier import fft2c
from reconlib.operators.nonuniform import NonuniformFourier

DEFAULT_PATTERNS = ("every-3",)
REFERENCE_ITERATIONS = 12
WELL_COVERED = 0.5
"""Share of the cells of k-space from which on nothing is said of the reference."""
_EVERY = re.compile(r"every-([2-9]|[1-9][0-9]+)")
_COUNTERS = ("kspace_encode_step_2", "average", "slice", "contrast", "phase", "repetition", "set")


def kept_of(pattern: str) -> int | None:
    """Return K of a pattern ``every-K``, at least 2; None for other names."""
    match = _EVERY.fullmatch(pattern)
    return None if match is None else int(match[1])


def read_shot_cases(
    path: Path,
    settings: Settings,
    patterns: Sequence[str],
    *,
    n_slices: int | None = None,
    use_truth: bool = False,
) -> list[tuple[FullScan, list[Case]]]:
    """Read every slice of a non-Cartesian scan, or the ``n_slices`` in the middle, with a case per pattern.

    Raises
    ------
    GadgetError
        The file cannot be read, there is no truth in it, or what is left of the readouts is too little.
    """
    if settings.coils == "fixed":
        raise ScanError(f"{path} is not Cartesian: its coil maps cannot be held fixed. Set coils to joint.")
    whole = assembled_slices(path, settings)
    if not whole:
        raise ScanError(f"{path} holds no slice.")
    chosen = middle(len(whole), n_slices)
    full = [_full_scan(path, index, whole, use_truth=use_truth) for index in chosen]
    cases: list[list[Case]] = [[] for _ in chosen]
    for pattern in patterns:
        step = kept_of(pattern)
        if step is None:
            raise ScanError(
                f"{path} is not Cartesian: it is thinned by every-K, such as every-3, not by {pattern}."
            )
        part = assembled_slices(path, settings, every_nth(step))
        if len(part) != len(whole):
            raise ScanError(
                f"{path}: all readouts make {len(whole)} images, every {step}. of them {len(part)}. Set "
                "trajectory.window to null, or keep more."
            )
        for index, scan, made in zip(chosen, full, cases, strict=True):
            kspace = _nonuniform(path, part[index])
            made.append(Case(scan=scan, pattern=pattern, at_points=kspace))
    return list(zip(full, cases, strict=True))


def every_nth(step: int) -> Callable[[Acquisition], bool]:
    """Return what says of readouts, in order, whether they stay: every ``step``-th imaging one of a slice."""
    seen: Counter[tuple[int, ...]] = Counter()

    def stays(readout: Acquisition) -> bool:
        header = readout.header
        if kind_of_readout(int(header["flags"])) is not ReadoutKind.IMAGE:
            return True
        place = int(header["encoding_space_ref"]), *(int(header["idx"][name]) for name in _COUNTERS)
        seen[place] += 1
        return (seen[place] - 1) % step == 0

    return stays


def reference_noise(kspace: NonuniformKSpace) -> float:
    r"""Return the noise per real component of :math:`\sum_c \bar e_c (A^H W z)_c`, which CG-SENSE has about.

    A pixel is the sum of W z over points, each with a phase, over the root of the number of pixels.
    """
    power = float(kspace.weights[0].double().square().sum())
    return kspace.noise_std * math.sqrt(power / math.prod(kspace.shape))


def _full_scan(path: Path, index: int, whole: Sequence[AssembledSlice], *, use_truth: bool) -> FullScan:
    one = whole[index]
    kspace = _nonuniform(path, one)
    n_y, n_x = view = _view(one)

    def in_view(image: Tensor) -> Tensor:
        top, left = (wide // 2 - n // 2 for wide, n in zip(image.shape[-2:], view, strict=True))
        return image[..., top : top + n_y, left : left + n_x]

    fourier = NonuniformFourier.plan(kspace.trajectory, kspace.shape)
    gridded = in_view(fourier.adjoint(kspace.samples * kspace.weights[:, None]))
    if use_truth:
        reference, noise = truth_of_slice(path, one), 0.0
        if tuple(reference.shape[-2:]) != view:
            raise ScanError(f"{path}: the truth has {tuple(reference.shape[-2:])} pixels, the image {view}.")
        caution = ""
    else:
        reference = in_view(cg_sense_image(kspace, REFERENCE_ITERATIONS)).contiguous()
        noise, caution = reference_noise(kspace), _caution(one.context.coverage)
    return FullScan(
        name=path.stem if len(whole) == 1 else f"{path.stem} slice {index}",
        samples=fft2c(gridded),
        noise_std=kspace.noise_std,
        noise_source=noise_words(one),
        reference=reference,
        reference_noise_std=noise,
        caution=caution,
    )


def _caution(coverage: float | None) -> str:
    if coverage is None or coverage >= WELL_COVERED:
        return ""
    return (
        f"the reference is CG-SENSE of readouts that lie in {100 * coverage:.0f} % of the cells of k-space "
        "only, and has artefacts of its own; give a scan of more readouts, or one by simulate and "
        "--reference truth"
    )


def _view(one: AssembledSlice) -> tuple[int, int]:
    """Return the pixels (y, x) of the grid that lie in the image's field of view."""
    context = one.context
    n_x, n_y = (
        min(n, round(n * wanted / own))
        for n, own, wanted in zip(
            context.grid_matrix, context.grid_fov_mm, context.recon_fov_mm[:2], strict=True
        )
    )
    return n_y, n_x


def _nonuniform(path: Path, one: AssembledSlice) -> NonuniformKSpace:
    if not isinstance(one.kspace, NonuniformKSpace):
        raise ScanError(f"{path} has Cartesian and other slices; give a scan of one kind.")
    return one.kspace
