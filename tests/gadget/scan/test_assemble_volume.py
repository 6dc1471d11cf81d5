"""3-D readouts to slabs of k-space: Gaussian spots whose k-space is known in closed form."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scan_assembly import UNWHITENED, assembler, mask_of
from synthetic_scan import Protocol, noise_readout, readout
from synthetic_slab import OBJECT, slab_kspace

from gadget.errors import ScanError
from gadget.scan.assemble import AssembledSlice, AssemblySettings, SliceAssembler
from gadget.scan.volume import AssembledVolume
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

NX, NY, NZ = 26, 18, 13
FOV = (208.0, 180.0, 91.0)
FULL = slab_kspace(OBJECT, (2 * NX, NY, NZ), (2 * FOV[0], *FOV[1:]))
KEPT = slab_kspace(OBJECT, (NX, NY, NZ), FOV)
BOTH = {"kspace_encoding_step_1": (0, NY - 1, NY // 2), "kspace_encoding_step_2": (0, NZ - 1, NZ // 2)}
ONCE = {**BOTH, "average": (0, 0, 0)}
EVERYWHERE = [(z, y) for z in range(NZ) for y in range(NY)]


def protocol(**changes: Any) -> Protocol:
    values = {
        "encoded": (2 * NX, NY, NZ),
        "encoded_fov": (2 * FOV[0], *FOV[1:]),
        "recon": (NX, NY, NZ - 2),
        "recon_fov": (FOV[0], FOV[1], 77.0),
        "limits": BOTH,
    }
    return Protocol(**{**values, **changes})


def lines(places: list[tuple[int, int]], shift: tuple[int, int] = (0, 0), **fields: Any) -> list[Acquisition]:
    """Readouts of rows (kz, ky), their counters less the shift; the last one is LAST_IN_SLICE."""
    return [
        readout(
            FULL[:, z, y],
            y - shift[1],
            *([Flag.LAST_IN_SLICE] if (z, y) == places[-1] else []),
            kspace_encode_step_2=z - shift[0],
            scan_counter=z * NY + y,
            **fields,
        )
        for z, y in places
    ]


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    """Compare to 5 millionths of the largest value: the object's tails reach out of the field of view."""
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=5e-6 * np.abs(expected).max())


def volumes(
    scan: Protocol | str, readouts: list[Acquisition], settings: AssemblySettings = UNWHITENED
) -> list[AssembledVolume]:
    sorter = assembler(scan, settings)
    found = [one for acquisition in readouts for one in sorter.add(acquisition)]
    found += sorter.finish()
    assert all(isinstance(one, AssembledVolume) for one in found)
    return found  # type: ignore[return-value]  # as just checked


def test_a_full_3d_scan_is_the_object_s_k_space() -> None:
    (volume,) = volumes(protocol(), lines(EVERYWHERE, position=(1.0, 2.0, 3.0), slice=4))
    assert_close(volume.samples, KEPT)
    assert volume.mask.shape == (NZ, NY, NX)
    assert volume.mask.all()
    context = volume.context
    assert context.is_complete
    assert (context.slice, context.position) == (4, (1.0, 2.0, 3.0))
    assert (context.recon_matrix, context.recon_fov_mm) == ((NX, NY, NZ - 2), (208.0, 180.0, 77.0))
    assert (context.grid_matrix, context.grid_fov_mm) == ((NX, NY), (208.0, 180.0))
    assert (context.n_partitions, context.slab_fov_mm) == (NZ, 91.0)
    assert (context.n_lines, context.n_lines_announced) == (NZ * NY, NZ * NY)
    assert "234 of 13 x 18 lines measured" in context.notes
    assert context.warnings == ()


def test_the_order_of_the_lines_does_not_matter_and_the_header_is_that_of_the_middle() -> None:
    readouts = [noise_readout(0.25), *lines(EVERYWHERE)]
    (in_order,) = volumes(protocol(), readouts, AssemblySettings())
    assert in_order.noise_std == 1
    rng = np.random.default_rng(2)
    for order in (np.arange(len(readouts))[::-1], rng.permutation(len(readouts))):
        shuffled = [readouts[i] for i in order if readouts[i].header["flags"] != Flag.LAST_IN_SLICE.bit]
        last = [a for a in readouts if a.header["flags"] == Flag.LAST_IN_SLICE.bit]
        (other,) = volumes(protocol(), [*shuffled, *last], AssemblySettings())
        np.testing.assert_array_equal(other.samples, in_order.samples)
        assert other.context == in_order.context


def test_partial_fourier_in_both_directions_leaves_rows_unmeasured() -> None:
    # 9 of 13 partitions from row 4 on, 14 of 18 lines up to row 13
    limits = {"kspace_encoding_step_1": (0, 13, 9), "kspace_encoding_step_2": (0, 8, 2)}
    places = [(z, y) for z in range(4, NZ) for y in range(14)]
    (volume,) = volumes(protocol(limits=limits), lines(places, shift=(4, 0)))
    expected = np.zeros_like(KEPT)
    expected[:, 4:, :14] = KEPT[:, 4:, :14]
    assert_close(volume.samples, expected)
    assert volume.context.n_lines_announced == 9 * 14
    assert volume.context.is_complete


def test_an_asymmetric_echo_keeps_all_columns() -> None:
    readouts = [readout(FULL[:, z, y, 12:], y, kspace_encode_step_2=z, center=NX - 12) for z, y in EVERYWHERE]
    (volume,) = volumes(protocol(), readouts)
    assert_close(volume.samples[..., 12:], FULL[..., 12:])
    assert not volume.samples[..., :12].any()
    assert volume.mask[3, 5].tolist() == [False] * 12 + [True] * (2 * NX - 12)


def test_averages_are_the_mean_and_calibration_lines_enter_the_data() -> None:
    limits = {**BOTH, "average": (0, 1, 0)}
    text = protocol(limits=limits, acceleration=2, calibration_mode="embedded").xml()
    sampled = [(z, y) for z, y in EVERYWHERE if y % 2 == 0]
    readouts = [*lines(sampled), *lines(sampled, average=1)]
    readouts = [
        Acquisition(a.header, a.trajectory, a.data * (1 + 2 * (i >= len(sampled))))
        for i, a in enumerate(readouts)
    ]
    calibration = [
        readout(FULL[:, z, y], y, Flag.IS_PARALLEL_CALIBRATION, kspace_encode_step_2=z)
        for z in range(4, 9)
        for y in range(6, 12)
    ]
    (volume,) = volumes(text, [*calibration, *readouts])
    expected = np.zeros_like(KEPT)
    expected[:, 4:9, 6:12] = KEPT[:, 4:9, 6:12]
    expected[:, :, ::2] = 2 * KEPT[:, :, ::2]
    assert_close(volume.samples, expected)
    assert volume.context.n_calibration_lines == 5 * 3
    assert volume.calibration is None
    measured = np.full((NZ, NY), np.nan)
    measured[:, ::2] = 2
    measured[4:9, 7:12:2] = 1
    assert volume.noise_std == pytest.approx(np.sqrt(np.nanmean(1 / measured)))


# Completeness


def test_a_slab_leaves_with_its_last_announced_line() -> None:
    sorter = assembler(protocol(limits=ONCE))
    *before, last = lines(EVERYWHERE)
    last.header["flags"] = 0
    assert [sorter.add(a) for a in before] == [()] * len(before)
    assert len(sorter.add(last)) == 1


@pytest.mark.parametrize("shear", [0, 1])
def test_a_slab_accelerated_in_both_directions_leaves_with_its_last_line(shear: int) -> None:
    text = protocol(limits=ONCE, acceleration=3, calibration_mode="interleaved").xml()
    text = text.replace("<kspace_encoding_step_2>1<", "<kspace_encoding_step_2>2<")
    places = [(z, y) for z in range(0, NZ, 2) for y in range((z // 2 * shear) % 3, NY, 3)]
    sorter = assembler(text)
    left = [n for n, a in enumerate(lines(places), start=1) for _ in sorter.add(a)]
    assert left == [7 * 6]


def test_an_elliptical_shutter_is_complete_with_a_flag_and_without() -> None:
    inside = [(z, y) for z, y in EVERYWHERE if ((z - 6) / 6.5) ** 2 + ((y - 9) / 9) ** 2 <= 1]
    assert len(inside) < 0.8 * len(EVERYWHERE)
    sorter = assembler(protocol(limits=ONCE))
    *before, last = lines(inside)
    assert [sorter.add(a) for a in before] == [()] * len(before)
    (volume,) = sorter.add(last)
    assert volume.context.is_complete
    assert int(mask_of(volume).any(axis=2).sum()) == len(inside)
    last.header["flags"] = 0
    (volume,) = volumes(protocol(limits=ONCE), [*before, last])
    assert volume.context.is_complete


def test_half_a_slab_is_incomplete_and_says_so() -> None:
    (volume,) = volumes(protocol(), lines(EVERYWHERE[:100])[:-1])
    assert not volume.context.is_complete
    assert any(
        "incomplete: 99 imaging lines where the header announces 234" in n for n in volume.context.notes
    )


# Headers that do not say that a scan is 3-D


@pytest.mark.parametrize("limit", [None, (0, 0, 0)], ids=["no limits", "limits of 0"])
def test_a_second_phase_encoding_direction_that_the_header_does_not_announce_is_seen(
    limit: tuple[int, int, int] | None,
) -> None:
    limits = {key: value for key, value in ONCE.items() if key != "kspace_encoding_step_2"}
    if limit is not None:
        limits["kspace_encoding_step_2"] = limit
    readouts = lines(EVERYWHERE)
    # From the last partition on: with partition 0 first a header with limits of 0 has all of a slice in it
    (volume,) = volumes(protocol(limits=limits), [*readouts[NY:-1], *readouts[:NY], readouts[-1]])
    assert_close(volume.samples, KEPT)
    assert volume.context.warnings == (
        "readouts have kspace_encode_step_2 above 0, where the header announces no second phase-encoding "
        "direction: taken as a 3-D scan of 13 partitions",
    )


def test_a_header_that_leaves_open_whether_a_scan_is_3d_closes_nothing_by_number() -> None:
    limits = {key: value for key, value in ONCE.items() if key != "kspace_encoding_step_2"}
    sorter = assembler(protocol(limits=limits))
    *readouts, last = lines(EVERYWHERE)
    assert [sorter.add(a) for a in readouts] == [()] * len(readouts)
    (volume,) = sorter.add(last)
    assert_close(volume.samples, KEPT)


def test_slices_whose_header_has_partitions_stay_slices() -> None:
    limits = {"kspace_encoding_step_1": BOTH["kspace_encoding_step_1"]}
    sorter = assembler(protocol(limits=limits))
    (one,) = [one for a in lines(EVERYWHERE[:NY]) for one in sorter.add(a)]
    assert isinstance(one, AssembledSlice)
    assert one.kspace.samples.shape == (1, 3, NY, NX)
    assert "13 partitions in the header, none encoded: taken as a 2-D slice" in one.context.notes


def test_partitions_outside_the_matrix_are_left_out_and_said() -> None:
    strange = [readout(FULL[:, 0, y], y, kspace_encode_step_2=13) for y in range(3)]
    (volume,) = volumes(protocol(), [*strange, *lines(EVERYWHERE)])
    assert_close(volume.samples, KEPT)
    assert volume.context.warnings[0].startswith(
        "3 readouts of lines outside the matrix left out: 18 rows with line 9 at row 9 hold the lines 0 to "
        "17 of kspace_encode_step_1, 13 rows with line 6 at row 6 hold the lines 0 to 12 of kspace_encode_st"
    )


# Memory


def test_a_slab_beyond_the_memory_limit_is_refused_with_its_size() -> None:
    big = protocol(encoded=(1024, 512, 512), limits={**BOTH, "kspace_encoding_step_2": (0, 511, 256)})
    with pytest.raises(
        ScanError,
        match=r"opens a slice of 16 coils x 512 x 512 x 1024 samples \(33.0 GiB\), but only 16.0 GiB",
    ):
        assembler(big).add(readout(np.ones((16, 1024)), 0))


def test_the_pages_of_a_slab_are_given_up_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finished k-space grows while the readouts go: no more than a page of both at a time."""
    from gadget.scan.slice_buffer import SliceBuffer

    held = []
    fill = SliceBuffer._fill

    def watched(self: SliceBuffer, samples: np.ndarray, partition: int, *args: Any, **kwargs: Any) -> None:
        held.append(sum(page is not None for page in self._pages))
        fill(self, samples, partition, *args, **kwargs)

    monkeypatch.setattr(SliceBuffer, "_fill", watched)
    volumes(protocol(), lines(EVERYWHERE))
    assert held[0] == NZ
    assert all(after == before - 1 for before, after in pairwise(held))


def test_two_slabs_and_their_contrasts_are_kept_apart() -> None:
    sorter: SliceAssembler = assembler(protocol(limits=ONCE))
    readouts = [
        readout(
            (1 + slab + 10 * contrast) * FULL[:, z, y],
            y,
            kspace_encode_step_2=z,
            slice=slab,
            contrast=contrast,
        )
        for z, y in EVERYWHERE
        for slab in (0, 1)
        for contrast in (0, 1)
    ]
    found = [one for a in readouts for one in sorter.add(a)]
    assert len(found) == 4
    for one in found:
        assert isinstance(one, AssembledVolume)
        assert_close(one.samples, (1 + one.context.slice + 10 * one.context.contrast) * KEPT)
