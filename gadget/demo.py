"""The demonstration: one simulated scan, reconstructed in three ways, compared with its truth."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gadget.errors import FileError
from gadget.figures import save_comparison
from gadget.finished_slice import FinishedSlice
from gadget.image_labels import StreamSummary
from gadget.recon_grid import to_recon_grid
from gadget.reconstructor import Reconstructor
from gadget.replay import replay
from gadget.scan_writer import read_truth, write_scan
from gadget.settings import Settings, with_overrides
from reconlib.evaluation.metrics import fit_scale, nmse, psnr, ssim
from reconlib.evaluation.tables import ResultTable
from reconlib.reconstruction import zero_filled
from reconlib.simulation.scan import simulate_head_scan
from reconlib.simulation.scan_settings import ScanSettings

ZERO_FILLED, TOTAL_VARIATION, LEARNED = "zero-filled", "total variation", "learned prior"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demonstration made."""

    table: ResultTable
    summaries: tuple[StreamSummary, ...]
    files: tuple[Path, ...]


def run_demo(
    folder: Path,
    settings: Settings,
    scan: ScanSettings,
    *,
    reconstructor: Reconstructor | None = None,
    say: Callable[[str], None] = lambda _text: None,
    on_slice: Callable[[], None] = lambda: None,
) -> DemoResult:
    """Simulate a scan, reconstruct it with total variation and with the settings' prior, and compare.

    Files of an earlier demonstration in the folder are replaced. The metrics are those after one scale fit
    per slice, averaged over slices. It compares reconstructions; their uncertainty is not sampled.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"Cannot make the folder {folder}: {error}.") from error
    scan_path = folder / "scan.h5"
    say(f"simulating {scan_path}")
    write_scan(scan_path, simulate_head_scan(scan), overwrite=True)
    truth = read_truth(scan_path)
    if truth is None:
        raise FileError(f"{scan_path} has no truth to compare with.")
    reconstructor = Reconstructor(settings.device) if reconstructor is None else reconstructor
    images: dict[str, list[NDArray[np.float32]]] = {ZERO_FILLED: [], TOTAL_VARIATION: [], LEARNED: []}
    seconds: dict[str, float] = {}
    summaries = []
    paths = {TOTAL_VARIATION: folder / "total_variation.h5", LEARNED: folder / "learned.h5"}
    for method, path in paths.items():
        own = [("prior", "tv")] if method == TOTAL_VARIATION else []
        chosen = with_overrides(settings, [*own, ("posterior.enabled", False)])
        say(f"reconstructing with {'' if method == TOTAL_VARIATION else 'the '}{method}: {path}")

        def keep(finished: FinishedSlice, method: str = method) -> None:
            on_slice()
            images[method].append(finished.image.data[0, 0])
            if method == TOTAL_VARIATION:
                start = zero_filled(finished.kspace).numpy()[0, 0]
                images[ZERO_FILLED].append(np.abs(to_recon_grid(start, finished.slice.context)))

        summary = replay(scan_path, path, chosen, overwrite=True, reconstructor=reconstructor, on_slice=keep)
        summaries.append(summary)
        seconds[method] = summary.seconds / summary.n_images
    table = ResultTable.from_rows(
        "method",
        {
            method: _metrics(np.stack(slices), truth.magnitude) | {"seconds per slice": seconds.get(method)}
            for method, slices in images.items()
        },
    )
    (folder / "table.md").write_text(table.markdown(DIGITS), encoding="utf-8")
    pictures = []
    pixel_mm = (scan.fov_mm[0] / scan.matrix[0], scan.fov_mm[1] / scan.matrix[1])
    for index, reference in enumerate(truth.magnitude):
        picture = folder / f"comparison_slice_{index}.png"
        save_comparison(
            picture, {name: slices[index] for name, slices in images.items()}, reference, pixel_mm=pixel_mm
        )
        pictures.append(picture)
    files = (scan_path, *paths.values(), folder / "table.md", *pictures)
    return DemoResult(table, tuple(summaries), files)


DIGITS = {"PSNR (dB)": 2, "NMSE": 5, "SSIM": 4, "seconds per slice": 1}


def _metrics(images: NDArray[np.float32], truth: NDArray[np.float32]) -> dict[str, float | None]:
    image, reference = torch.from_numpy(images)[:, None], torch.from_numpy(truth)[:, None]
    image = image.double() * fit_scale(image, reference)
    return {
        "PSNR (dB)": float(psnr(image, reference).mean()),
        "NMSE": float(nmse(image, reference).mean()),
        "SSIM": float(ssim(image, reference).mean()),
    }
