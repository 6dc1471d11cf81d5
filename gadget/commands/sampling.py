"""``sample`` and ``prior landscape``: what a prior holds likely, without any scan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gadget.commands.inspection import Name
from gadget.commands.options import Device, Overwrite, refuse_outputs

if TYPE_CHECKING:
    import torch

    from reconlib.priors.library import Prior

Matrix = Annotated[
    tuple[int, int] | None,
    typer.Option(
        metavar="ROWS COLUMNS",
        help="Matrix. Default: that of the training images, or 128 128.",
        min=8,
        max=1024,
    ),
]
SampleSeed = Annotated[int, typer.Option(help="Seed of start and noise.", min=0)]


def sample(
    prior: Name,
    out: Annotated[
        list[Path],
        typer.Option(metavar="FILE.png|FILE.npy", help="PNG grid, or float32 (image, y, x). Repeatable."),
    ],
    n: Annotated[int, typer.Option("--n", help="Number of images; one chain each.", min=1, max=1024)] = 9,
    matrix: Matrix = None,
    steps: Annotated[int, typer.Option(help="Steps of each chain.", min=1)] = 600,
    sampler: Annotated[
        Literal["langevin", "kinetic", "mala", "sk-rock"],
        typer.Option(help="How chains move; kinetic moves farthest in a step."),
    ] = "langevin",
    step_scale: Annotated[float, typer.Option(help="Multiplies the step size.", min=1e-6, max=100)] = 1.0,
    seed: SampleSeed = 0,
    device: Device = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw images from a prior alone, without any scan.

    Priors that know noise levels go from a high one down to their own; others stay at theirs. Few steps give
    images that depend on the start: compare runs of different length.
    """
    for one in out:
        if one.suffix.lower() not in (".png", ".npy"):
            raise typer.BadParameter(f"{one} is neither .png nor .npy; name a file of one of these kinds.")
    refuse_outputs(None, *out, overwrite=overwrite)

    import io

    import numpy as np

    from gadget.commands.step_progress import steps_on_terminal
    from gadget.prior_faults import prior_faults_as_settings_faults
    from gadget.prior_figures import save_grid
    from gadget.whole_file import write_whole_file
    from reconlib.priors.sampling import default_matrix, sample_prior

    loaded, generator = _load(prior, device, seed)
    with prior_faults_as_settings_faults(), steps_on_terminal("steps", steps) as advance:
        draws = sample_prior(
            loaded,
            n_images=n,
            matrix=matrix or default_matrix(loaded),
            n_steps=steps,
            generator=generator,
            step_scale=step_scale,
            sampler=sampler,
            on_step=advance,
        )
    images = draws[:, 0].cpu().numpy()
    for one in out:
        shown = ""
        if one.suffix.lower() == ".png":
            shown = f", white is {save_grid(one, images, overwrite=overwrite):.3g}"
        else:
            buffer = io.BytesIO()
            np.save(buffer, images, allow_pickle=False)
            write_whole_file(one, buffer.getbuffer(), overwrite=overwrite)
        drawn = f"{n} draws from {loaded.card.name} {loaded.card.version}"
        typer.echo(f"{one}: {drawn}, {steps} steps, seed {seed}{shown}")


def landscape(
    prior: Name,
    out: Annotated[Path, typer.Option(metavar="FILE.png", help="Picture to write.")],
    matrix: Matrix = None,
    steps: Annotated[int, typer.Option(help="Langevin steps that make the plane.", min=10)] = 400,
    points: Annotated[int, typer.Option(help="Points along each direction.", min=3, max=500)] = 41,
    seed: SampleSeed = 0,
    device: Device = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw the density over the plane of the two principal directions of a Langevin run.

    Shows exp(-(R - min R) / T~); T~ is chosen so that the picture can be read, and stands above it.
    """
    if out.suffix.lower() != ".png":
        raise typer.BadParameter(f"{out} is no .png file; name one.")
    refuse_outputs(None, out, overwrite=overwrite)

    from gadget.commands.step_progress import steps_on_terminal
    from gadget.prior_faults import prior_faults_as_settings_faults
    from gadget.prior_figures import save_landscape
    from reconlib.priors.landscape import prior_landscape
    from reconlib.priors.sampling import default_matrix

    loaded, generator = _load(prior, device, seed)
    with (
        prior_faults_as_settings_faults(),
        steps_on_terminal("steps and rows", 2 * steps + points) as advance,
    ):
        found = prior_landscape(
            loaded,
            matrix=matrix or default_matrix(loaded),
            n_steps=steps,
            n_points=points,
            generator=generator,
            on_step=advance,
        )
    save_landscape(out, found, name=f"{loaded.card.name} {loaded.card.version}", overwrite=overwrite)
    typer.echo(f"{out}: {loaded.card.name} {loaded.card.version}, T~ = {found.shown_temperature:.3g}")


def _load(
    name: str, device: Literal["auto", "cpu", "cuda"] | None, seed: int
) -> "tuple[Prior, torch.Generator]":
    """Return the prior, and random numbers, on the device."""
    import torch

    from gadget.configs import prior_folders
    from gadget.prior_faults import prior_faults_as_settings_faults
    from gadget.reconstructor import find_device
    from reconlib.priors.library import find_prior, load_prior

    chosen = find_device(device or "auto")
    with prior_faults_as_settings_faults():
        prior = load_prior(find_prior(name, prior_folders()), chosen)
    return prior, torch.Generator(chosen).manual_seed(seed)
