"""``replay``: the pipeline on a recorded scan."""

from pathlib import Path
from typing import Annotated

import typer

from gadget.commands.options import (
    LABELLED,
    Config,
    Device,
    Group,
    NoPosterior,
    Out,
    Overwrite,
    Png,
    Posterior,
    PriorName,
    Scan,
    Seed,
    Set,
    refuse_outputs,
    settings_of,
    use_threads,
)


def replay(
    scan: Scan,
    out: Out,
    group: Group = "dataset",
    config: Config = None,
    prior: PriorName = None,
    set_: Set = None,
    device: Device = None,
    png: Png = None,
    coils: Annotated[
        Path | None,
        typer.Option(metavar="FILE.h5", help="Also keep the estimated coil maps, complex, for each image."),
    ] = None,
    posterior: Posterior = None,
    no_posterior: NoPosterior = False,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Reconstruct a recorded scan.

    OUT.h5 gets the scan's header and one magnitude image per slice (and contrast, repetition, ...), in the
    group 'dataset' as 'image_1'. Beside it, unless --no-posterior is given, 'image_2' holds the posterior
    mean and 'image_3' the standard deviation of each pixel, in the same units. The file appears when it is
    complete, not before.

    Exit code: 0 done; 1 failed; 2 misuse; 3 done, but at least one image is a fallback, all zero, or was
    stopped by its time limit, or its uncertainty is missing. Uncertainty that is too roughly known to be
    relied on is printed, logged, and said in the images' comments; the exit code stays 0.
    """
    settings = settings_of(
        config,
        prior=prior,
        set_=set_,
        device=device,
        seed=seed,
        posterior=posterior,
        no_posterior=no_posterior,
    )
    refuse_outputs(scan, out, coils, overwrite=overwrite)

    from gadget.commands.progress import progress_on_terminal
    from gadget.commands.results import print_summary
    from gadget.reconstructor import Reconstructor
    from gadget.replay import replay as replay_scan
    from gadget.scan_file import count_readouts

    use_threads(settings)
    with progress_on_terminal(count_readouts(scan, group)) as progress:
        summary = replay_scan(
            scan,
            out,
            settings,
            group=group,
            coils=coils,
            png=png,
            overwrite=overwrite,
            reconstructor=Reconstructor(
                settings.device, on_iteration=progress.iteration, on_step=progress.step
            ),
            on_readout=progress.readout,
            on_slice=lambda _finished: progress.image(),
        )
    print_summary(out, summary)
    if summary.labelled:
        raise typer.Exit(LABELLED)
