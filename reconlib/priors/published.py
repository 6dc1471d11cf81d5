r"""Make a prior package of the weights that Zach, Knoll and Pock publish.

Their checkpoint holds the weights of :class:`reconlib.energies.paper.PaperNetwork` as ``convs.0.weight`` to
``convs.12.weight``, beside constant ``convs.N.mask`` buffers that play no part. What else has to be known to
use them:

* they were trained with :math:`x \leftarrow x - \nabla R(x) + \epsilon n`, :math:`\epsilon = 7.5 \cdot
  10^{-3}`, so the density is :math:`\exp(-R / T)` with :math:`T = \epsilon^2 / 2`, and with noise on the
  images, so R is evaluated with noise of :math:`\epsilon` on the image;
* the images are 320 x 320 pixels with a maximum of 1, and turned by 180 degrees against the arrays in
  fastMRI's files (``reconstruction_rss``).

The published data weights (on the data term, R with weight 1) are linear in half the squared residual of the
authors' start. That start explains Cartesian data exactly, so in exact arithmetic the residual is zero, and
the numbers they fitted, about 1e-9, are the rounding error of float32 transforms: they say nothing about a
scan and depend on library and hardware. The package therefore takes the rule ``noise``, lambda = sigma^2 / T,
which needs no fit; the published coefficients stand in the card for the reader.
"""

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from reconlib.energies.paper import SIDE, PaperNetwork
from reconlib.priors.card import (
    InputCard,
    PaperArchitecture,
    PriorCard,
    PriorWeightCard,
    PublishedDataWeight,
    TrainingCard,
    TrainingData,
)
from reconlib.priors.card_file import read_limited
from reconlib.priors.errors import PriorError
from reconlib.priors.library import write_prior
from reconlib.priors.weights_file import LARGEST_WEIGHTS_BYTES

NOISE_STD = 7.5e-3
"""epsilon of the training iteration."""
TEMPERATURE = NOISE_STD**2 / 2
Contrast = Literal["CORPD", "CORPD-FS"]
ArrayOrder = Literal["fastmri", "stream"]
DATA_WEIGHTS: Mapping[Contrast, tuple[float, float]] = {
    "CORPD": (0.547736, -2.71084e8),
    "CORPD-FS": (0.07383, -3.57541e7),
}
"""Intercept and slope of the published data weight."""
_MASK = re.compile(r"convs\.\d+\.mask")
_FIRST = "convs.0.weight"
_DEEPEST = 4


def import_published(
    checkpoint: Path,
    folder: Path,
    *,
    name: str = "paper-knee",
    contrast: Contrast = "CORPD",
    array_order: ArrayOrder = "fastmri",
    key: str | None = None,
    licence: str = "as published by the authors (their repository is under the GPL-3)",
) -> PriorCard:
    """Read a published checkpoint and write a package to a new folder; return its card.

    Parameters
    ----------
    contrast
        Whose published data weight the card documents.
    array_order
        What images the prior will be used on. ``fastmri``: arrays in the order of fastMRI's files, readout
        along y; the network sees them turned by 180 degrees. ``stream``: images of ISMRMRD readouts as this
        program lays them out, readout along x; x and y are exchanged first.
    key
        Where in the checkpoint the state dict lies; by default it is searched for.

    Raises
    ------
    PriorError
        The file holds something else than tensors, or not this network.
    FileExistsError
        The folder exists.
    """
    weights = published_weights(read_checkpoint(checkpoint), str(checkpoint), key)
    intercept, slope = DATA_WEIGHTS[contrast]
    card = PriorCard(
        name=name,
        version="1.0",
        description="Global energy of knee images, the weights published by Zach, Knoll and Pock",
        architecture=PaperArchitecture(kind="paper"),
        temperature=TEMPERATURE,
        gradient_noise_std=NOISE_STD,
        image_phase="real",
        input=InputCard(
            matrix=(SIDE, SIDE),
            transpose=array_order == "stream",
            rotation_degrees=180,
            orientation="coronal knees; "
            + (
                "for images with the readout along y, as in fastMRI's files"
                if array_order == "fastmri"
                else "for images with the readout along x, as this program makes them of ISMRMRD readouts"
            ),
            scaling="maximum",
            pixel_spacing_mm=(0.5, 0.5),
        ),
        prior_weight=PriorWeightCard(
            rule="noise",
            published=PublishedDataWeight(
                contrast=contrast,
                smallest=0.01,
                intercept=intercept,
                slope=slope,
                coil_smoothness_slope=3e9,
                note="r0 is zero for Cartesian data in exact arithmetic, and float32 rounding (about 1e-9) "
                "in the published runs; so it is not used, see the rule",
            ),
        ),
        anatomy="knee, coronal",
        contrasts=("proton density", "proton density with fat suppression"),
        licence=licence,
        training=TrainingCard(
            data=(TrainingData(source="fastMRI knees", licence="fastMRI data sharing agreement"),),
            objective="maximum-likelihood",
            n_updates=27_000,
            hardware="one RTX 8000, one month",
            note="Zach, Knoll, Pock, IEEE Trans Med Imaging 2023; imported from the authors' checkpoint",
        ),
    )
    return write_prior(folder, card, weights)


def read_checkpoint(path: Path) -> object:
    """Return what a torch checkpoint holds: tensors, numbers, texts and containers of them, nothing else."""
    blob = read_limited(path, LARGEST_WEIGHTS_BYTES, "no such checkpoint is that large")
    try:
        return torch.load(io.BytesIO(blob), map_location="cpu", weights_only=True)
    except Exception as error:  # foreign bytes: torch.load raises whatever they lead it to
        reason = (str(error).strip().splitlines() or [""])[0] or type(error).__name__
        raise PriorError(
            f"{path} is no torch checkpoint of tensors alone ({reason}). Objects of other kinds are never "
            "loaded; where you trust the file, save its state dict by itself."
        ) from error


def published_weights(checkpoint: object, name: str, key: str | None = None) -> dict[str, Tensor]:
    """Return the thirteen weights, float32, from the state dict in a checkpoint, wherever it lies.

    A prefix that all names share (``module.``) is taken off. ``name`` stands for the checkpoint in an error.
    """
    found = dict(_state_dicts(checkpoint, ""))
    if key is not None:
        found = {where: value for where, value in found.items() if where == key}
    if len(found) != 1:
        where = ", ".join(repr(one) for one in found) or "none"
        raise PriorError(
            f"{name} needs to hold one state dict with the name {_FIRST}"
            + (f" under the key {key!r}" if key is not None else "")
            + f", it holds {len(found)} ({where}); "
            + ("choose one by its key." if found else f"at the top are {_names(checkpoint)}.")
        )
    (state,) = found.values()
    prefix = next(one for one in state if one.endswith(_FIRST))[: -len(_FIRST)]
    weights = {
        one.removeprefix(prefix): value
        for one, value in state.items()
        if not _MASK.fullmatch(one.removeprefix(prefix))
    }
    with torch.device("meta"):
        network: nn.Module = PaperNetwork()
    needed = {one: tuple(value.shape) for one, value in network.state_dict().items()}
    has = {
        one: tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        for one, value in weights.items()
    }
    wrong = sorted(one for one in needed.keys() | has.keys() if needed.get(one) != has.get(one))
    if wrong:
        told = "; ".join(
            f"{one}: found {has.get(one, 'none')}, needed {needed.get(one, 'none')}" for one in wrong[:5]
        )
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise PriorError(f"{name} does not hold the published network: {told}{more}.")
    result = {one: value.detach().float() for one, value in weights.items() if isinstance(value, Tensor)}
    bad = [one for one, value in result.items() if not bool(torch.isfinite(value).all())]
    if bad:
        raise PriorError(f"{name} holds infinities or NaNs, in {bad[0]}.")
    return result


def _state_dicts(value: object, where: str, depth: int = 0) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each mapping with the first weight's name in it, with the keys that lead to it."""
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return
    names = {one: item for one, item in value.items() if isinstance(one, str)}
    if any(one.endswith(_FIRST) for one in names):
        yield where, names
        return
    for one, item in names.items():
        yield from _state_dicts(item, f"{where}.{one}" if where else one, depth + 1)


def _names(value: object) -> str:
    if not isinstance(value, Mapping):
        return f"not names, but a {type(value).__name__}"
    shown = ", ".join(repr(one) for one in list(value)[:5])
    return (shown or "no names") + (f" and {len(value) - 5} more" if len(value) > 5 else "")
