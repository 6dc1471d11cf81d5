"""``simulate``: scans with a known truth, as a scanner would have recorded them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gadget.commands.options import Group, Overwrite, refuse_outputs
from gadget.commands.simulation_options import refuse_idle_options
from gadget.commands.trajectory_simulation import Trajectory, simulate_trajectory
from gadget.counted import counted

if TYPE_CHECKING:
    from reconlib.simulation.scan import SimulatedScan
    from reconlib.simulation.scan_settings import ScanSettings


def simulate(
    context: typer.Context,
    scan: Annotated[Path, typer.Argument(metavar="SCAN.h5", help="Scan to write, ISMRMRD HDF5.")],
    image: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            help="Scan this image, (y, x) or (slice, y, x), instead of a head.",
            exists=True,
        ),
    ] = None,
    kspace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            help="Leave lines out of this full k-space, (coil, ky, kx) or with slices first. Adds no noise.",
            exists=True,
        ),
    ] = None,
    matrix: Annotated[
        tuple[int, int],
        typer.Option(metavar="LINES SAMPLES", help="Matrix (not with --image or --kspace).", min=8),
    ] = (192, 160),
    slices: Annotated[int, typer.Option(help="Number of slices (simulated heads only).", min=1)] = 1,
    contrast: Annotated[
        Literal["t1", "t2", "flair"], typer.Option(help="Contrast (simulated heads only).")
    ] = "t1",
    coils: Annotated[int, typer.Option(help="Number of coils (not with --kspace).", min=1)] = 8,
    trajectory: Annotated[
        Trajectory, typer.Option(help="Lines, or spokes (evenly or by the golden angle), or spirals.")
    ] = "cartesian",
    readouts: Annotated[
        int, typer.Option(help="Spokes, or interleaves of 32 (not with cartesian).", min=1)
    ] = 16,
    phantom: Annotated[
        bool, typer.Option("--phantom", help="Ellipses of exact k-space, not a head (not with cartesian).")
    ] = False,
    pattern: Annotated[
        Literal["random", "uniform", "full"], typer.Option(help="Which lines are measured (cartesian only).")
    ] = "random",
    acceleration: Annotated[
        float, typer.Option(help="How many times fewer lines (not with --pattern full).", min=1)
    ] = 4.0,
    calibration: Annotated[
        float,
        typer.Option(
            help="Share of lines in the fully measured centre (not with --pattern full).", min=0, max=1
        ),
    ] = 0.08,
    noise: Annotated[
        float,
        typer.Option(help="Noise per real component, as a share of the image's maximum (not with --kspace)."),
    ] = 0.004,
    noise_correlation: Annotated[
        float, typer.Option(help="0: equal, independent coils. Towards 1: unequal, correlated ones.", min=0)
    ] = 0.0,
    noise_readouts: Annotated[int, typer.Option(help="Noise readouts before the scan.", min=0)] = 32,
    oversampling: Annotated[int, typer.Option(help="Readout oversampling.", min=1)] = 2,
    repetitions: Annotated[
        int, typer.Option(help="The same again, with other noise (cartesian only).", min=1)
    ] = 1,
    mask_seed: Annotated[int, typer.Option(help="Seed of the pattern 'random'.")] = 42,
    seed: Annotated[int, typer.Option(help="Seed of head, coils, phase and noise.")] = 0,
    group: Group = "dataset",
    overwrite: Overwrite = False,
) -> None:
    """Simulate a multi-coil scan and store its truth beside it.

    Without --image or --kspace the object is a head that the program draws: skull, folded cortex, deep
    nuclei, vessels. The truth (image and coils) lies in the same file, in the group 'truth'.
    """
    refuse_idle_options(context)
    if image is not None and kspace is not None:
        raise typer.BadParameter("--image and --kspace exclude each other; give one of them.")
    if kspace is not None and repetitions > 1:
        raise typer.BadParameter("--repetitions needs new noise for each, which --kspace never gets.")
    refuse_outputs(None, scan, overwrite=overwrite)

    from dataclasses import replace

    from gadget.scan_writer import write_scan
    from gadget.scan_writer_header import ScanFileSettings
    from reconlib.simulation.scan_settings import ScanSettings

    try:
        settings = ScanSettings(
            matrix=matrix,
            n_slices=slices,
            contrast=contrast,
            n_coils=coils,
            pattern=pattern,
            acceleration=acceleration,
            calibration_fraction=calibration,
            mask_seed=mask_seed,
            noise=noise,
            noise_correlation=noise_correlation,
            seed=seed,
            noise_seed=seed,
        )
        if trajectory != "cartesian":
            simulate_trajectory(
                scan,
                settings,
                trajectory=trajectory,
                readouts=readouts,
                is_phantom=phantom,
                oversampling=oversampling,
                noise_readouts=noise_readouts,
                group=group,
                overwrite=overwrite,
            )
            return
        scans = [
            simulated(replace(settings, noise_seed=seed + number), image=image, kspace=kspace)
            for number in range(repetitions)
        ]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    recording = ScanFileSettings(
        group=group, readout_oversampling=oversampling, n_noise_readouts=noise_readouts, noise_seed=seed + 1
    )
    write_scan(scan, scans, recording, overwrite=overwrite)
    n_slices, n_coils, n_lines, n_samples = scans[0].kspace.samples.shape
    measured = int(scans[0].kspace.mask[0, 0, :, 0].sum())
    typer.echo(
        f"{scan}: {counted(n_slices, 'slice')}, {counted(n_coils, 'coil')}, "
        f"{measured} of {counted(n_lines, 'line')} of {n_samples} samples"
    )


def simulated(settings: "ScanSettings", *, image: Path | None, kspace: Path | None) -> "SimulatedScan":
    """Simulate a scan of a drawn head, of an image, or of full k-space."""
    from reconlib.simulation.scan import scan_from_image, scan_from_kspace, simulate_head_scan

    if image is not None:
        return scan_from_image(_array(image), settings)
    if kspace is not None:
        samples = _array(kspace)
        lines = settings.lines(samples.shape[-2] if samples.ndim > 1 else 0)
        return scan_from_kspace(samples, lines, fov_mm=settings.fov_mm)
    return simulate_head_scan(settings)


def _array(path: Path) -> Any:
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} is no .npy array: {error}") from error
    if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.number):
        raise typer.BadParameter(f"{path} is no array of numbers in the .npy format.")
    return array
