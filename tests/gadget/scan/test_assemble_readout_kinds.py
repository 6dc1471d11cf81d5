"""What becomes of each kind of readout: calibration, noise, no image data, or refused."""

import numpy as np
import pytest
from scan_assembly import UNWHITENED, assembled, assembler, assert_close, samples_of
from synthetic_scan import Protocol, Spot, lines_of, noise_readout, readout

from gadget.errors import ScanError
from gadget.scan.assemble import AssemblySettings, NoiseSource, SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

# Calibration lines


def accelerated(**changes: object) -> Protocol:
    values = {"acceleration": 2, "calibration_mode": "embedded", **changes}
    return Protocol(**values)  # type: ignore[arg-type]


IMAGING = list(range(0, 45, 2))
CALIBRATION = list(range(17, 28))


def calibration_of(kspace: np.ndarray, **fields: object) -> list[Acquisition]:
    return [readout(kspace[:, row], row, Flag.IS_PARALLEL_CALIBRATION, **fields) for row in CALIBRATION]


def test_calibration_lines_enter_the_data_and_never_replace_imaging_lines() -> None:
    protocol = accelerated()
    kspace = protocol.kspace()
    for order in (1, -1):
        parts = [calibration_of(7 * kspace), lines_of(kspace, IMAGING)][::order]
        (slice_,) = assembled(protocol, [a for part in parts for a in part])
        expected = np.zeros_like(protocol.kept_kspace())
        expected[:, CALIBRATION] = 7 * protocol.kept_kspace()[:, CALIBRATION]
        expected[:, IMAGING] = protocol.kept_kspace()[:, IMAGING]
        assert_close(samples_of(slice_), expected)
        assert slice_.context.n_calibration_lines == 6
        assert slice_.context.n_lines == 23 + 6
        assert "29 of 45 lines measured (6 of them calibration only)" in slice_.context.notes
        assert slice_.context.is_complete


def test_lines_for_calibration_and_imaging_are_imaging_lines() -> None:
    protocol = accelerated()
    kspace = protocol.kspace()
    both = (Flag.IS_PARALLEL_CALIBRATION, Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING)
    readouts = [readout(kspace[:, row], row, *both) for row in range(45)]
    (slice_,) = assembled(protocol, readouts)
    assert slice_.context.n_calibration_lines == 0


def test_announced_calibration_lines_after_the_last_flag_are_waited_for() -> None:
    protocol = accelerated()
    kspace = protocol.kspace()
    sorter = assembler(protocol)
    for acquisition in [*lines_of(kspace, IMAGING), *calibration_of(kspace)]:
        assert sorter.add(acquisition) == ()
    (slice_,) = sorter.finish()
    assert slice_.context.n_lines == 29
    assert slice_.context.is_complete


def test_one_calibration_serves_the_later_repetitions_without_waiting() -> None:
    protocol = accelerated()
    kspace = protocol.kspace()
    sorter = assembler(protocol)
    readouts = [*calibration_of(kspace), *lines_of(kspace, IMAGING), *lines_of(kspace, IMAGING, repetition=1)]
    done = [slice_ for acquisition in readouts for slice_ in sorter.add(acquisition)]
    assert [slice_.context.n_lines for slice_ in done] == [29, 23]


def test_calibration_lines_after_a_slice_was_closed_are_reported() -> None:
    protocol = accelerated(calibration_mode="separate")
    kspace = protocol.kspace()
    sorter = assembler(protocol)
    readouts = [*lines_of(kspace, IMAGING), *calibration_of(kspace)]
    (slice_,) = [slice_ for acquisition in readouts for slice_ in sorter.add(acquisition)]
    assert slice_.context.n_lines == 23
    assert sorter.finish() == ()
    assert "not used: 11 calibration-only readouts after their slice was complete" in sorter.report()


def test_calibration_lines_can_be_left_out() -> None:
    protocol = accelerated()
    kspace = protocol.kspace()
    sorter = assembler(protocol, AssemblySettings(noise=NoiseSource.PREWHITENED, use_calibration_lines=False))
    readouts = [*calibration_of(kspace), *lines_of(kspace, IMAGING)]
    (slice_,) = [slice_ for acquisition in readouts for slice_ in sorter.add(acquisition)]
    assert slice_.context.n_lines == 23
    assert sorter.report() == ("23 image, 11 calibration-only readouts",)
    assert slice_.calibration is not None
    assert slice_.calibration.mask.any(axis=1).sum() == 11


# Readouts that are no image data


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (Flag.IS_NAVIGATION_DATA, "navigator"),
        (Flag.IS_PHASECORR_DATA, "phase correction"),
        (Flag.IS_DUMMYSCAN_DATA, "dummy"),
        (Flag.IS_HPFEEDBACK_DATA, "feedback"),
        (Flag.IS_RTFEEDBACK_DATA, "feedback"),
        (Flag.IS_SURFACECOILCORRECTIONSCAN_DATA, "surface coil correction"),
        (Flag.IS_PHASE_STABILIZATION, "phase stabilisation"),
        (Flag.IS_PHASE_STABILIZATION_REFERENCE, "phase stabilisation"),
    ],
)
def test_other_readouts_are_skipped_whatever_their_shape_and_counted(flag: Flag, words: str) -> None:
    protocol = Protocol()
    odd = [readout(np.full((7, 11), np.nan), 60000, flag, slice=9), readout(np.ones((2, 999)), 0, flag)]
    sorter = assembler(protocol)
    readouts = [odd[0], *lines_of(protocol.kspace()), odd[1]]
    (slice_,) = [s for acquisition in readouts for s in sorter.add(acquisition)]
    assert_close(samples_of(slice_), protocol.kept_kspace())
    assert sorter.finish() == ()
    assert sorter.report() == ("45 image readouts", f"not image data, skipped: 2 {words}")


@pytest.mark.parametrize("flag", [Flag.COMPRESSION1, Flag.COMPRESSION2, Flag.COMPRESSION3, Flag.COMPRESSION4])
def test_compressed_readouts_are_refused_by_name(flag: Flag) -> None:
    with pytest.raises(ScanError, match=rf"compressed \(flag {flag.name}\), which is not supported"):
        assembler(Protocol()).add(readout(np.ones((3, 80)), 0, flag))


# Noise


def test_prewhitened_k_space_has_noise_std_1_where_there_is_only_noise() -> None:
    # The imaging noise has four times the power of the noise scan's: a quarter of its dwell time.
    protocol = Protocol(encoded=(40, 45, 1), encoded_fov=(120.0, 135.0, 5.0))
    rng = np.random.default_rng(4)
    mixing = rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))

    def noise(n: int) -> np.ndarray:
        return mixing @ (rng.normal(size=(3, n)) + 1j * rng.normal(size=(3, n)))

    readouts = [readout(noise(6000), 0, Flag.IS_NOISE_MEASUREMENT, center=0, sample_time_us=20.0)]
    readouts += [readout(2 * noise(40), row, sample_time_us=5.0) for row in range(45)]
    (slice_,) = assembled(protocol, readouts, AssemblySettings())
    assert slice_.kspace.noise_std == 1.0
    assert np.std(samples_of(slice_).real, axis=(1, 2)) == pytest.approx(np.ones(3), abs=0.05)
    assert np.std(samples_of(slice_).imag, axis=(1, 2)) == pytest.approx(np.ones(3), abs=0.05)
    assert slice_.context.is_prewhitened
    assert (
        "dwell times 5 us (data) and 20 us (noise), relative noise bandwidth 1 (from the header)"
        in slice_.context.notes
    )


def test_noise_only_scales_where_coils_are_independent_and_equal() -> None:
    protocol = Protocol()
    (slice_,) = assembled(protocol, [noise_readout(0.25), *lines_of(protocol.kspace())], AssemblySettings())
    # 4,000 noise samples know the noise level to about 1 %.
    expected = 4 * protocol.kept_kspace()
    assert np.abs(samples_of(slice_) - expected).max() < 0.05 * np.abs(expected).max()


def test_a_dead_coil_is_left_out_of_k_space() -> None:
    protocol = Protocol()
    noise = noise_readout()
    data = noise.data.copy()
    data[1] = 0
    noise = Acquisition(noise.header, noise.trajectory, data)
    (slice_,) = assembled(protocol, [noise, *lines_of(protocol.kspace())], AssemblySettings())
    assert slice_.kspace.samples.shape[1] == 2
    assert slice_.context.n_coils == 2
    assert np.isfinite(samples_of(slice_)).all()


def test_without_noise_readouts_the_level_comes_from_the_data_and_is_said() -> None:
    protocol = Protocol(encoded=(80, 96, 1), encoded_fov=(240.0, 288.0, 5.0), limits={})
    rng = np.random.default_rng(6)
    kspace = protocol.kspace()
    kspace += 0.02 * (rng.normal(size=kspace.shape) + 1j * rng.normal(size=kspace.shape))
    (slice_,) = assembled(protocol, lines_of(kspace), AssemblySettings())
    assert slice_.kspace.noise_std == pytest.approx(0.02, rel=0.1)
    assert (
        "noise level estimated from the outermost samples, as there are no usable noise readouts; not "
        "prewhitened" in slice_.context.notes
    )
    assert not slice_.context.is_prewhitened


def test_the_estimated_level_is_that_of_the_mean_where_lines_are_averaged() -> None:
    protocol = Protocol(encoded=(120, 135, 1), encoded_fov=(120.0, 135.0, 5.0), limits={})
    rng = np.random.default_rng(8)
    shape = (4, 135, 3, 120)
    noise = 0.3 * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    readouts = [readout(noise[i, row], row, average=i) for i in range(4) for row in range(135)]
    (slice_,) = assembled(protocol, readouts, AssemblySettings(noise=NoiseSource.DATA))
    assert slice_.kspace.noise_std == pytest.approx(0.15, rel=0.1)


def test_data_without_noise_and_data_without_anything_get_a_level_above_zero() -> None:
    protocol = Protocol()
    narrow = (Spot(x=0.0, y=0.0, width=20.0),)
    (clean,) = assembled(protocol, lines_of(protocol.kspace(narrow)), AssemblySettings())
    assert 0 < clean.kspace.noise_std <= 1.01e-6 * np.abs(samples_of(clean)).max()
    (empty,) = assembled(protocol, lines_of(np.zeros((3, 45, 80))), AssemblySettings())
    assert empty.kspace.noise_std == 1.0
    assert any("all samples are zero" in note for note in empty.context.notes)
    (zero_noise,) = assembled(
        protocol, [noise_readout(0.0), *lines_of(protocol.kspace())], AssemblySettings()
    )
    assert not zero_noise.context.is_prewhitened


def test_noise_readouts_after_the_first_slice_change_nothing_and_are_counted() -> None:
    protocol = Protocol()
    sorter = assembler(protocol, AssemblySettings())
    readouts = [noise_readout(0.5), *lines_of(protocol.kspace()), noise_readout(5.0)]
    readouts += lines_of(protocol.kspace(), slice=1)
    first, second = [s for acquisition in readouts for s in sorter.add(acquisition)]
    assert_close(samples_of(second), samples_of(first))
    assert (
        "not used: 1 noise readouts after the first slice (all slices are whitened alike)" in sorter.report()
    )


# Refusals


@pytest.mark.parametrize(
    ("acquisition", "message"),
    [
        (readout(np.ones((3, 90)), 1), r"has 90 samples .* do not fit the 80 columns"),
        (
            readout(np.ones((4, 80)), 1),
            r"Readout 2 .* has 4 coils, but earlier readouts have 3; all readouts of a scan need the same",
        ),
        (
            readout(np.where(np.arange(80) == 5, np.nan, np.ones((3, 80))), 1, scan_counter=77),
            r"Readout 2 of the stream \(scan_counter 77\) holds 3 NaN or infinite numbers",
        ),
        (readout(np.full((3, 80), np.inf), 1), "holds 240 NaN or infinite numbers"),
        (
            readout(np.ones((3, 80)), 1, encoding_space_ref=2),
            "encoding_space_ref 2, but the scan header has 1",
        ),
        (readout(np.ones((0, 80)), 1), "is empty: 0 coils, 80 samples"),
    ],
)
def test_a_faulty_readout_is_refused(acquisition: Acquisition, message: str) -> None:
    sorter = assembler(Protocol())
    sorter.add(readout(np.ones((3, 80)), 0))
    with pytest.raises(ScanError, match=message):
        sorter.add(acquisition)


@pytest.mark.parametrize("trajectory", ["rosette", "epi"])
def test_a_scan_of_unsupported_encodings_only_is_refused_before_any_readout(trajectory: str) -> None:
    with pytest.raises(ScanError, match=f"trajectory '{trajectory}', which is not supported"):
        assembler(Protocol(trajectory=trajectory))


def test_an_unsupported_second_encoding_is_refused_with_its_first_readout() -> None:
    text = Protocol().xml()
    start, end = text.index("<encoding>"), text.index("</encoding>") + len("</encoding>")
    second = text[start:end].replace("cartesian", "epi")
    sorter = SliceAssembler(parse_scan_header(text[:end] + second + text[end:]), UNWHITENED)
    sorter.add(readout(np.ones((3, 80)), 0))
    sorter.add(readout(np.ones((3, 80)), 0, Flag.IS_PARALLEL_CALIBRATION, encoding_space_ref=1))
    with pytest.raises(ScanError, match=r"encoding\[1\] has the trajectory 'epi', which is not supported"):
        sorter.add(readout(np.ones((3, 80)), 0, encoding_space_ref=1))


def test_slices_beyond_the_memory_limit_are_refused_before_memory_is_taken() -> None:
    protocol = Protocol(encoded=(8192, 8192, 1), limits={})
    with pytest.raises(
        ScanError, match=r"opens a slice of 32 coils x 8192 x 8192 samples \(16.2 GiB\), but only"
    ):
        assembler(protocol).add(readout(np.ones((32, 8192)), 0))
    one = AssemblySettings(noise=NoiseSource.PREWHITENED, max_open_bytes=150_000)
    sorter = assembler(Protocol(), one)
    sorter.add(readout(np.ones((3, 80)), 0))
    with pytest.raises(ScanError, match=r"but only 0.0 GiB are left for slices that are being received"):
        sorter.add(readout(np.ones((3, 80)), 0, slice=1))


def test_calibration_readouts_that_wait_for_ever_are_refused() -> None:
    # Each is held twice: for its own k-space, and for the coil maps of others
    sorter = assembler(Protocol(), AssemblySettings(max_open_bytes=10_000))
    for row in (20, 21):
        sorter.add(readout(np.ones((3, 80)), row, Flag.IS_PARALLEL_CALIBRATION))
    with pytest.raises(ScanError, match=r"calibration-only readouts that wait .* fill the 0.0 GiB"):
        sorter.add(readout(np.ones((3, 80)), 22, Flag.IS_PARALLEL_CALIBRATION))
