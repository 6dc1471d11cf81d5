"""From the settings to those of the assembly: the one place where its noise cache gets its folder."""

from pathlib import Path

from gadget.noise_cache import NoiseCache
from gadget.scan.assemble import AssemblySettings, NoiseSource
from gadget.scan.coil_compression import CompressionChoice, CompressionUse
from gadget.scan.trajectory_choice import TrajectoryChoice
from gadget.scan.trajectory_units import TrajectoryUnits
from gadget.settings import Settings


def assembly_settings(settings: Settings) -> AssemblySettings:
    """Return the part of the settings that says how readouts become k-space."""
    cache = settings.noise.cache
    return AssemblySettings(
        noise=NoiseSource(settings.noise.source),
        noise_store=None if cache is None else NoiseCache(Path(cache).expanduser()),
        coil_compression=CompressionChoice(
            use=CompressionUse(settings.coil_compression.use),
            energy=settings.coil_compression.energy,
            n_virtual=settings.coil_compression.virtual_coils,
        ),
        trajectory=TrajectoryChoice(
            units=TrajectoryUnits(settings.trajectory.units),
            delay_correction=settings.trajectory.delay_correction,
            window=settings.trajectory.window,
            window_step=settings.trajectory.window_step,
        ),
        use_calibration_lines=settings.scan.calibration_in_data,
        keep_averages=settings.scan.keep_averages,
    )
