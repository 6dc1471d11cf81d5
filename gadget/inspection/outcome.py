"""What ``replay`` would do with a scan: its readouts go through the assembly, nothing is reconstructed."""

from gadget.assembly_settings import assembly_settings
from gadget.configs import prior_folders
from gadget.errors import GadgetError
from gadget.inspection.content import ExpectedImages, Outcome
from gadget.prior_faults import prior_faults_as_settings_faults
from gadget.prior_suitability import mismatches
from gadget.scan.assemble import AssembledSlice, SliceAssembler
from gadget.scan.header import ScanDescription
from gadget.scan.volume import AssembledVolume
from gadget.scan.volume_partitions import complete_axis, partition_contexts
from gadget.settings import Settings
from gadget.wire.messages import Acquisition
from reconlib.priors.card import PriorCard
from reconlib.priors.card_file import read_card
from reconlib.priors.library import find_prior


class DryRun:
    """The assembly with the default settings, and what comes out of it."""

    def __init__(self, description: ScanDescription | None, refusal: str | None) -> None:
        """Begin, unless there is already a ``refusal``: then nothing is assembled."""
        self.refusal = refusal
        self._images: list[ExpectedImages] = []
        self._assembler: SliceAssembler | None = None
        self._card = _card_of(Settings())
        if description is None or refusal is not None:
            return
        try:
            self._assembler = SliceAssembler(description, assembly_settings(Settings()))
        except GadgetError as error:
            self.refusal = str(error)

    def add(self, acquisition: Acquisition) -> None:
        """Take a readout, as long as none was refused."""
        if self._assembler is None or self.refusal is not None:
            return
        try:
            for assembled in self._assembler.add(acquisition):
                self._images.append(_expected(assembled, self._card))
        except GadgetError as error:
            self.refusal = str(error)

    def refuse(self, reason: str) -> None:
        """Stop here, for a reason that the assembly never gets to see."""
        self.refusal = self.refusal or reason

    def outcome(self) -> Outcome:
        """Return what came of the readouts, at the end of the scan."""
        report: tuple[str, ...] = ()
        if self._assembler is not None and self.refusal is None:
            try:
                self._images += [_expected(assembled, self._card) for assembled in self._assembler.finish()]
            except GadgetError as error:
                self.refusal = str(error)
        if self._assembler is not None and self._assembler.counts:
            report = self._assembler.report()
        n_images = sum(images.n_images for images in self._images)
        if n_images == 0 and self.refusal is None:
            self.refusal = "There are no imaging readouts, only noise, calibration or others."
        return Outcome(n_images=n_images, images=tuple(self._images), report=report, refusal=self.refusal)


def _expected(assembled: AssembledSlice | AssembledVolume, card: PriorCard | None) -> ExpectedImages:
    """Describe the image of a slice, or those of a slab; a slab that cannot be taken apart is refused."""
    context, n_images = assembled.context, 1
    if isinstance(assembled, AssembledVolume):
        axis = complete_axis(assembled)
        partitions = partition_contexts(context, f"transformed along {axis.name.lower()}, which is complete")
        context, n_images, noise_std = partitions[0], len(partitions), assembled.noise_std
    else:
        noise_std = assembled.kspace.noise_std
    return ExpectedImages(
        label=assembled.context.label(),
        encoding=context.encoding_index,
        n_images=n_images,
        matrix=context.recon_matrix[:2],
        fov_mm=context.recon_fov_mm[:2],
        n_coils=context.n_coils,
        n_lines=context.n_lines,
        n_lines_announced=context.n_lines_announced,
        is_complete=context.is_complete,
        noise_std=float(noise_std),
        notes=context.notes,
        prior_mismatches=() if card is None else tuple(one.sentence for one in mismatches(card, context)),
    )


def _card_of(settings: Settings) -> PriorCard | None:
    """Return the card of the settings' prior; None where it cannot be read, which replay would say."""
    if settings.prior == "tv":
        return None
    try:
        with prior_faults_as_settings_faults():
            return read_card(find_prior(settings.prior, prior_folders()))
    except GadgetError:
        return None
