"""``simulate --trajectory``: radial and spiral scans of a head or of the analytic phantom."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from gadget.counted import counted

if TYPE_CHECKING:
    from reconlib.simulation.scan_settings import ScanSettings

Trajectory = Literal["cartesian", "radial", "golden", "spiral"]
SPIRAL_INTERLEAVES = 32
"""Interleaves that would sample k-space completely."""


def simulate_trajectory(
    path: Path,
    settings: "ScanSettings",
    *,
    trajectory: Trajectory,
    readouts: int,
    is_phantom: bool,
    oversampling: int,
    noise_readouts: int,
    group: str,
    overwrite: bool,
) -> None:
    """Write a scan along spokes or spirals, with its truth, and say what was written."""
    from rich.console import Console

    from gadget.trajectory_scan_writer import TrajectoryFileSettings, write_trajectory_scan
    from reconlib.simulation.nonuniform_scan import simulate_head_nonuniform, simulate_phantom_scan
    from reconlib.simulation.nonuniform_settings import NonuniformSettings

    try:
        spread = NonuniformSettings(
            shape="spiral" if trajectory == "spiral" else "radial",
            order="golden" if trajectory == "golden" else "uniform",
            n_readouts=readouts,
            n_full=SPIRAL_INTERLEAVES,
            oversampling=float(oversampling),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    simulate = simulate_phantom_scan if is_phantom else simulate_head_nonuniform
    # On a terminal only: elsewhere the console draws nothing that moves.
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("simulating"):
            scan = simulate(settings, spread)
    else:
        scan = simulate(settings, spread)
    recording = TrajectoryFileSettings(
        group=group, n_noise_readouts=noise_readouts, noise_seed=settings.seed + 1
    )
    write_trajectory_scan(path, scan, recording, overwrite=overwrite)
    n_slices, n_coils, n_readouts, n_samples = scan.samples.shape
    full = spread.full_readouts(scan.matrix)
    readout = "interleave" if trajectory == "spiral" else "spoke"
    typer.echo(
        f"{path}: {counted(n_slices, 'slice')}, {counted(n_coils, 'coil')}, "
        f"{counted(n_readouts, readout)} of {n_samples} samples "
        f"({full} would be complete)"
    )
