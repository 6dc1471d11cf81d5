"""What others make of the same k-space: BART and sigpy, each at its best weight, timed at that weight.

The weight is chosen with the truth in hand ("oracle"), which flatters them; the choice is not in the time.
BART and sigpy get as many threads as torch has, and BART's do not spin while they wait.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch

from gadget.benchmark.machine import load_now
from gadget.benchmark.timing import Spent, spent_on
from reconlib.evaluation.bart import Bart, BartError
from reconlib.evaluation.best_weight import at_best_weight, bart_methods
from reconlib.evaluation.metrics import fit_scale, psnr_after_scale_fit, ssim
from reconlib.evaluation.study import Case, Method, MethodError, MethodImage
from reconlib.evaluation.summary import Row

CPU = torch.device("cpu")
THREADS = "OMP_NUM_THREADS"


class PeerError(Exception):
    """A peer has no image; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A program and a way to use it."""

    name: str
    choose: Method
    """The image at the best weight, which stands in its facts."""
    again: Callable[[Case, Mapping[str, float | str]], Callable[[], MethodImage]]
    """The whole reconstruction at that weight, to be timed."""
    identity: str
    """Changes with the version."""


def measure_peer(peer: Peer, case: Case, *, repeats: int) -> Row:
    """Choose the weight, then time the reconstruction at it; the least time of the repeats."""
    try:
        with _as_many_threads():
            chosen = peer.choose(case)
            run = peer.again(case, chosen.facts)
            image: list[MethodImage] = []
            times: list[Spent] = []
            for _ in range(repeats):
                times.append(spent_on(lambda: image.append(run()), CPU))
    except (BartError, MethodError, PeerError) as error:
        return {"failed": str(error)}
    reference = case.reference
    shown = image[-1].image
    facts: Row = {"setting": _setting(chosen.facts), "best inside the grid": chosen.facts["inside grid"]}
    least = reduce(Spent.least, times)
    return {
        "PSNR": float(psnr_after_scale_fit(shown, reference)),
        "SSIM": float(ssim(shown.double() * fit_scale(shown, reference), reference)),
        "seconds": least.seconds,
        "CPU seconds": least.cpu_seconds,
        **facts,
        "load": load_now(),
    }


def bart_peers(bart: Bart) -> list[Peer]:
    """Return BART's ESPIRiT with l1-wavelet and with total variation, and NLINV."""
    methods = bart_methods(bart)
    wavelet, variation, nlinv = methods.values()
    version = bart.version()

    def espirit(regulariser: str) -> Callable[[Case, Mapping[str, float | str]], Callable[[], MethodImage]]:
        def again(case: Case, facts: Mapping[str, float | str]) -> Callable[[], MethodImage]:
            samples = case.on_grid.samples

            def run() -> MethodImage:
                maps = bart.espirit_maps(samples)
                found = bart.pics(samples, maps, regulariser.format(f"{float(facts['weight']):g}"))
                return MethodImage(image=found.image, coils=found.coils)

            return run

        return again

    def newton(case: Case, facts: Mapping[str, float | str]) -> Callable[[], MethodImage]:
        samples, steps = case.on_grid.samples, int(facts["Newton steps"])

        def run() -> MethodImage:
            found = bart.nlinv(samples, steps)
            return MethodImage(image=found.image, coils=found.coils)

        return run

    names = ("BART ecalib + pics, l1-wavelet", "BART ecalib + pics, TV", "BART nlinv")
    ways = ((wavelet, espirit("W:3:0:{}")), (variation, espirit("T:3:0:{}")), (nlinv, newton))
    return [
        Peer(name=name, choose=method, again=again, identity=version)
        for name, (method, again) in zip(names, ways, strict=True)
    ]


SIGPY_WEIGHT = 0.01
SIGPY_ITERATIONS = 100


def sigpy_peers() -> list[Peer]:
    """Return sigpy's JSENSE with total variation; none where sigpy is not installed."""
    try:
        import sigpy
    except ImportError:
        return []
    return [
        Peer(
            name="sigpy JSENSE + TV",
            choose=at_best_weight(lambda factor: lambda case: _sigpy(case, SIGPY_WEIGHT * factor)),
            again=lambda case, facts: lambda: _sigpy(case, float(facts["weight"])),
            identity=str(sigpy.__version__),
        )
    ]


def _sigpy(case: Case, weight: float) -> MethodImage:
    """Maps by JSENSE, then total variation (primal-dual), as sigpy.mri.app has them."""
    from sigpy.mri import app

    samples = case.on_grid.samples[0].numpy()
    scale = np.abs(np.fft.ifft2(samples)).max() * np.sqrt(samples[0].size)
    kspace = np.ascontiguousarray(samples / scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy's, about what sigpy does
        maps = app.JsenseRecon(kspace, show_pbar=False).run()
        image = app.TotalVariationRecon(
            kspace, maps, weight, max_iter=SIGPY_ITERATIONS, show_pbar=False
        ).run()
    if not np.isfinite(image).all():
        raise PeerError("sigpy's image has infinities or NaNs")
    # JSENSE leaves the maps' magnitude open: the image is that of their root sum of squares.
    shown = np.abs(image) * np.sqrt((np.abs(maps) ** 2).sum(axis=0))
    found = torch.from_numpy(np.ascontiguousarray(shown, np.float32))[None, None]
    return MethodImage(image=found, facts={"weight": weight})


def missing_peers(bart: Bart | None, sigpy: Sequence[Peer]) -> list[str]:
    """Say which programs are left out, and how to have them."""
    words = []
    if bart is None:
        words.append("BART is left out: bart is not on the PATH.")
    if not sigpy:
        words.append("sigpy is left out: it is not installed (pip install sigpy).")
    return words


def _setting(facts: Mapping[str, float | str]) -> str:
    if "Newton steps" in facts:
        return f"{float(facts['Newton steps']):.0f} Newton steps"
    return f"weight {float(facts['weight']):.4g}"


@contextmanager
def _as_many_threads() -> Iterator[None]:
    """Give programs that are started as many threads as torch has."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(torch.get_num_threads())
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before
