"""``demo``: see what the program does, without a scanner."""

from pathlib import Path
from typing import Annotated

import typer

from gadget.commands.options import LABELLED, Config, Device, PriorName, Set, settings_of, use_threads


def demo(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where the files go.")] = Path("demo"),
    slices: Annotated[int, typer.Option(help="Number of slices.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of head, coils, phase and noise.")] = 0,
    config: Config = None,
    prior: PriorName = None,
    set_: Set = None,
    device: Device = None,
) -> None:
    """Simulate a scan, reconstruct it with total variation and a learned prior, and compare with the truth.

    Prints a table; the folder gets the scan, the images, the table and pictures side by side.
    """
    settings = settings_of(config, prior=prior, set_=set_, device=device)

    from gadget.commands.progress import progress_on_terminal
    from gadget.demo import DIGITS, run_demo
    from gadget.reconstructor import Reconstructor
    from reconlib.simulation.scan_settings import ScanSettings

    use_threads(settings)
    scan = ScanSettings(n_slices=slices, seed=seed, noise_seed=seed)
    with progress_on_terminal() as progress:
        result = run_demo(
            folder,
            settings,
            scan,
            reconstructor=Reconstructor(settings.device, on_iteration=progress.iteration),
            say=lambda text: typer.echo(text, err=True),
            on_slice=progress.image,
        )
    typer.echo(result.table.markdown(DIGITS), nl=False)
    typer.echo(f"Pictures and images are in {folder}.")
    labelled = [line for summary in result.summaries for line in summary.labelled]
    for line in labelled:
        typer.echo(f"  {line}")
    if labelled:
        raise typer.Exit(LABELLED)
