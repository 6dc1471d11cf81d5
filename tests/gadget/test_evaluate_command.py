"""``evaluate`` on tiny scans: what it prints and writes, that it repeats, and what it refuses."""

import csv
import math
from functools import partial

import h5py
import numpy as np
import pytest

from gadget.commands.evaluation_cases import CaseOptions
from gadget.evaluation_methods import chosen_time_limit
from gadget.scan_writer import write_scan
from gadget.settings import load_settings
from reconlib.evaluation.bart import Bart
from reconlib.simulation.scan import simulate_head_scan
from reconlib.simulation.scan_settings import ScanSettings

MATRIX = (48, 40)
QUICK = ("--set", "solver.iterations=2", "--device", "cpu")


def simulated(seed, pattern="full"):
    return simulate_head_scan(
        ScanSettings(matrix=MATRIX, fov_mm=(240.0, 200.0), n_coils=3, pattern=pattern, noise=0.01, seed=seed)
    )


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Two fully sampled scans, as k-space and as ISMRMRD, and one that is not."""
    folder = tmp_path_factory.mktemp("scans")
    for name, seed in (("first", 1), ("second", 2)):
        np.save(folder / f"{name}.npy", simulated(seed).kspace.samples[0].numpy())
    write_scan(folder / "recorded.h5", simulated(3))
    write_scan(folder / "accelerated.h5", simulated(3, "random"))
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """An archive whose validating images are marked."""
    rng = np.random.default_rng(0)
    y, x = np.meshgrid(np.linspace(-1, 1, 48), np.linspace(-1, 1, 40), indexing="ij")
    ground = ((x**2 + y**2 < 0.8) * (0.4 + 0.3 * (x > 0.1)))[None] + 0.01 * rng.random((4, 48, 40))
    path = tmp_path_factory.mktemp("images") / "heads.npz"
    np.savez(
        path,
        images=ground.astype(np.float32),
        subject=np.array(["a", "a", "b", "c"]),
        validation=np.array([False, False, True, True]),
    )
    return path


@pytest.fixture
def run(run):
    """Return a function that runs the command and returns exit code, stdout and stderr."""
    return partial(run, "evaluate")


def rows_of(folder):
    with (folder / "table.csv").open() as file:
        return [
            {key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)
        ]


def coil_images(kspace):
    """Images (coil, y, x), shifted by half the field of view: alike for sums over pixels."""
    return np.fft.ifft2(np.fft.ifftshift(kspace, axes=(-2, -1)), norm="ortho")


def root_sum_of_squares(kspace):
    return np.sqrt((np.abs(coil_images(kspace)) ** 2).sum(axis=0))


def noise_in_corners(kspace):
    """Standard deviation per real component in four corners of 12 x 12 pixels."""
    images = np.fft.fftshift(coil_images(kspace), axes=(-2, -1))
    corners = np.roll(images, (12, 12), axis=(-2, -1))[:, :24, :24]
    return np.stack([corners.real, corners.imag]).std()


def numpy_psnr_of_zero_filling(kspace, mask, floor=0.0):
    """PSNR after one scale fit, by numpy alone."""
    image = root_sum_of_squares(kspace * mask)
    reference = np.sqrt(np.maximum(root_sum_of_squares(kspace) ** 2 - floor, 0))
    image = image * (image * reference).sum() / (image**2).sum()
    return 20 * math.log10(reference.max() / np.sqrt(((image - reference) ** 2).mean()))


def cartesian_mask(n_lines, fraction):
    """The lines of the documentation, written out once more."""
    n = round(fraction * n_lines)
    first = (n_lines - n + 1) // 2
    lines = np.random.default_rng(42).uniform(size=n_lines) < (n_lines / 4 - n) / (n_lines - n)
    lines[first : first + n] = True
    return lines


def test_zero_filling_has_the_numbers_that_numpy_gives(run, scans, tmp_path):
    code, out, err = run(
        scans / "first.npy",
        *("--out", tmp_path, "--methods", "zero-filled", "--no-pictures"),
        *("--patterns", "cartesian-4,cartesian-4-swapped,cartesian-4-acl4"),
    )
    assert code == 0
    assert "first: noise level" in err
    assert "| mean of 3 " in out
    kspace = np.load(scans / "first.npy")
    masks = [
        cartesian_mask(48, 0.08)[:, None],
        cartesian_mask(40, 0.08)[None],
        cartesian_mask(48, 0.04)[:, None],
    ]
    found = [float(row["PSNR"]) for row in rows_of(tmp_path)]
    assert found == pytest.approx([numpy_psnr_of_zero_filling(kspace, mask) for mask in masks], abs=1e-3)


def test_two_runs_give_the_same_numbers_and_a_third_reads_them(run, scans, tmp_path):
    arguments = (
        scans / "first.npy",
        *("--methods", "zero-filled,tv,map", "--patterns", "cartesian-4,gaussian-8", "--no-pictures"),
        *QUICK,
    )
    assert run(*arguments, "--out", tmp_path / "a")[0] == 0
    assert run(*arguments, "--out", tmp_path / "b")[0] == 0
    first = rows_of(tmp_path / "a")
    assert first == rows_of(tmp_path / "b")
    kept = (tmp_path / "a" / "rows.jsonl").read_text()
    assert run(*arguments, "--out", tmp_path / "a")[0] == 0
    assert (tmp_path / "a" / "rows.jsonl").read_text() == kept
    assert rows_of(tmp_path / "a") == first
    learned = [row for row in first if row["method"] == "MAP brain-local"]
    assert len(learned) == 2
    for row in learned:
        assert float(row["R per pixel"]) > 0
        assert float(row["R of reference"]) > 0
        assert 0 < float(row["null space %"]) < 100
    assert run(*arguments, "--out", tmp_path / "a", "--set", "seed=7")[0] == 0
    assert len((tmp_path / "a" / "rows.jsonl").read_text().splitlines()) == 6 + 4


def test_a_recorded_scan_is_prewhitened_and_compared_with_its_truth_on_request(run, scans, tmp_path):
    arguments = (scans / "recorded.h5", "--methods", "zero-filled", "--patterns", "radial-45")
    code, _, err = run(*arguments, "--out", tmp_path / "rss")
    assert code == 0
    assert "recorded: noise level 1, from the noise readouts" in err
    assert run(*arguments, "--out", tmp_path / "truth", "--reference", "truth", "--no-pictures")[0] == 0
    by_samples, by_truth = (float(rows_of(tmp_path / name)[0]["PSNR"]) for name in ("rss", "truth"))
    assert by_samples != by_truth
    abouts = [(tmp_path / name / "table.md").read_text() for name in ("rss", "truth")]
    assert "against the root sum of squares of all samples. " in abouts[0]
    assert "against the stored truth. " in abouts[1]
    panels = sorted(path.name for path in (tmp_path / "rss").glob("*.png"))
    assert panels == ["recorded_radial-45.png", "recorded_radial-45_mask.png"]


def test_the_corrected_reference_lacks_the_noise_floor_and_shares_no_row_with_rss(run, scans, tmp_path):
    arguments = (
        scans / "first.npy",
        "--methods",
        "zero-filled",
        "--patterns",
        "cartesian-4",
        "--no-pictures",
    )
    kspace, mask = np.load(scans / "first.npy"), cartesian_mask(48, 0.08)[:, None]
    floors = {"rss": 0.0, "corrected": 2 * 3 * noise_in_corners(kspace) ** 2}
    expected = {name: numpy_psnr_of_zero_filling(kspace, mask, floor) for name, floor in floors.items()}
    assert abs(expected["corrected"] - expected["rss"]) > 0.01
    n_kept = []
    for name in ("rss", "corrected", "rss"):
        code, _, err = run(*arguments, "--out", tmp_path, "--reference", name)
        assert code == 0, err
        (row,) = rows_of(tmp_path)
        assert float(row["PSNR"]) == pytest.approx(expected[name], abs=1e-3)
        n_kept.append(len((tmp_path / "rows.jsonl").read_text().splitlines()))
        about = (tmp_path / "table.md").read_text()
        assert ("less its noise floor, sqrt(max(RSS^2 - 2 N sigma^2, 0))" in about) == (name == "corrected")
    assert n_kept == [1, 2, 2]


def test_noise_that_is_added_does_not_reach_the_corrected_reference(scans):
    options = CaseOptions(
        study="parallel-imaging",
        settings=load_settings(),
        patterns="cartesian-4",
        reference="corrected",
        add_noise=0.1,
    )
    (case,) = options.cases_of([scans / "first.npy"])
    kspace = np.load(scans / "first.npy")
    square = root_sum_of_squares(kspace) ** 2 - 2 * 3 * noise_in_corners(kspace) ** 2
    expected = np.fft.fftshift(np.sqrt(np.maximum(square, 0)))
    assert np.allclose(case.reference[0, 0].numpy(), expected, atol=1e-3 * expected.max())
    assert case.scan.reference_noise_std == pytest.approx(noise_in_corners(kspace), rel=1e-4)
    # the share is of the image as it is, whatever it is compared with
    assert case.scan.noise_std == pytest.approx(0.1 * root_sum_of_squares(kspace).max(), rel=1e-4)


def test_the_single_coil_study_says_what_it_is(run, images, tmp_path):
    code, out, err = run(
        images,
        *("--study", "single-coil", "--out", tmp_path, "--methods", "zero-filled,tv", "--no-pictures"),
        *("--slices", "2", "--noise-factor", "3", *QUICK),
    )
    assert code == 0
    assert "times the image's own" in err
    assert "| mean of 8 " in out
    rows = rows_of(tmp_path)
    assert {row["scan"] for row in rows} == {"heads image 2", "heads image 3"}  # those that validate
    assert {row["pattern"] for row in rows} == {"random-3", "cartesian-4", "spiral-5", "radial-45"}
    about = (tmp_path / "table.md").read_text()
    assert about.startswith("Simulated scans: one coil of sensitivity 1")
    assert "heads image 2: noise level added, 3.0 times" in about


POSTERIOR = ("--set", "posterior.chains=2", "--set", "posterior.warmup=2", "--set", "posterior.draws=4")


def test_simulated_scans_have_several_coils_and_two_parts_that_share_no_image(run, images, tmp_path):
    arguments = ("--study", "simulated", "--methods", "zero-filled", "--no-pictures", "--slices", "1")
    found = {}
    for part in ("all", "even", "odd"):
        code, _, err = run(images, *arguments, "--coils", "3", "--part", part, "--out", tmp_path / part)
        assert code == 0
        assert "3 simulated coils" in err
        found[part] = [row["scan"] for row in rows_of(tmp_path / part)]
    # of two images that validate; the pattern is the one of parallel imaging
    assert found == {"all": ["heads image 2"], "even": ["heads image 2"], "odd": ["heads image 3"]}
    about = (tmp_path / "odd" / "table.md").read_text()
    assert about.startswith("Simulated scans: smooth coils that are not known")
    assert "of the maximum (the image's own is about" in about
    louder = run(images, *arguments, "--add-noise", "0.2", "--out", tmp_path / "loud")
    assert "added, 0.2000 of the maximum" in louder[2]


def test_the_posterior_has_coverage_and_pictures(run, images, tmp_path):
    arguments = (
        "--study",
        "simulated",
        "--methods",
        "zero-filled,posterior",
        "--slices",
        "1",
        "--coils",
        "3",
    )
    code, out, err = run(images, *arguments, "--out", tmp_path, *QUICK, *POSTERIOR)
    assert code == 0, err
    plain, uncertain = rows_of(tmp_path)
    assert (plain["method"], uncertain["method"]) == ("zero-filled", "posterior mean brain-local")
    for name in ("coverage_50", "coverage_90", "coverage_95", "coverage_90_without_factor"):
        assert 0 <= float(uncertain[name]) <= 1
        assert plain[name] == ""
    assert 0 < float(uncertain["mean_std"]) < 1
    assert uncertain["outcome"] != ""
    assert "coverage_90" in out
    assert (tmp_path / "reliability_posterior_mean_brain-local.png").is_file()
    assert len(list(tmp_path.glob("*_uncertainty_posterior_mean_brain-local.png"))) == 1
    kept = (tmp_path / "rows.jsonl").read_text()
    assert run(images, *arguments, "--out", tmp_path, *QUICK, *POSTERIOR, "--no-pictures")[0] == 0
    assert (tmp_path / "rows.jsonl").read_text() == kept


def test_a_time_limit_holds_where_it_is_set_and_says_so(run, images, tmp_path):
    arguments = ("--study", "simulated", "--methods", "posterior", "--slices", "1", "--coils", "3")
    limit = ("--set", "posterior.time_limit_s=1e-6")
    code, _, err = run(images, *arguments, "--out", tmp_path, *QUICK, *POSTERIOR, *limit)
    assert code == 1
    assert "no posterior mean: too short" in err


def test_the_default_time_limit_is_not_one_that_was_set():
    assert load_settings().posterior.time_limit_s is not None
    assert chosen_time_limit(load_settings()) is None
    assert chosen_time_limit(load_settings(None, [("posterior.time_limit_s", 3.0)])) == 3.0
    assert chosen_time_limit(load_settings(None, [("posterior.draws", 3)])) is None


def test_intensities_are_calibrated_on_other_scans_only(run, scans, tmp_path):
    arguments = (
        scans / "first.npy",
        *("--methods", "zero-filled", "--patterns", "radial-45", "--out", tmp_path, "--no-pictures"),
    )
    assert run(*arguments, "--calibrate-on", scans / "second.npy")[0] == 0
    assert [row["method"] for row in rows_of(tmp_path)] == ["zero-filled", "zero-filled, calibrated"]
    plain, corrected = (float(row["PSNR"]) for row in rows_of(tmp_path))
    assert corrected > plain
    code, _, err = run(*arguments, "--calibrate-on", scans / "first.npy")
    assert code == 2
    assert "calibrate on other scans" in err


def test_without_bart_its_rows_are_missing_and_that_is_said(run, scans, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = run(
        scans / "first.npy",
        *(
            "--methods",
            "zero-filled,bart",
            "--patterns",
            "radial-45",
            "--out",
            tmp_path / "out",
            "--no-pictures",
        ),
    )
    assert code == 0
    assert "bart is not on the PATH: its rows are left out." in err
    assert [row["method"] for row in rows_of(tmp_path / "out")] == ["zero-filled"]


@pytest.mark.slow
def test_a_run_in_which_every_method_failed_ends_with_1(run, scans, tmp_path, monkeypatch):
    broken = tmp_path / "bart"
    broken.write_text(
        "#!/bin/sh\n[ $1 = version ] && echo v0.8.00 && exit 0\necho 'no such tool' >&2\nexit 1\n"
    )
    broken.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    arguments = ("--patterns", "cartesian-4", "--no-pictures", *QUICK)

    code, _, err = run(scans / "first.npy", "--methods", "bart", *arguments, "--out", tmp_path / "a")
    assert code == 1
    assert "no such tool" in err

    code, _, err = run(
        scans / "first.npy", "--methods", "zero-filled,bart", *arguments, "--out", tmp_path / "b"
    )
    assert code == 0
    assert "no such tool" in err


@pytest.mark.skipif(Bart.find() is None, reason="bart is not on the PATH")
def test_bart_has_rows_at_its_best_weights_and_a_best(run, scans, tmp_path):
    code, _, _ = run(
        scans / "first.npy",
        *("--methods", "bart", "--patterns", "radial-45", "--out", tmp_path, "--no-pictures"),
    )
    assert code == 0
    rows = {row["method"]: row for row in rows_of(tmp_path)}
    assert list(rows) == [
        "BART ESPIRiT + l1-wavelet (oracle)",
        "BART ESPIRiT + TV (oracle)",
        "BART NLINV (oracle)",
        "BART's best (oracle)",
    ]
    qualities = {name: float(row["PSNR"]) for name, row in rows.items()}
    assert qualities["BART's best (oracle)"] == max(qualities.values())
    assert min(qualities.values()) > 20


def test_an_accelerated_scan_is_refused(run, scans, tmp_path):
    code, _, err = run(scans / "accelerated.h5", "--out", tmp_path, "--methods", "zero-filled")
    assert code == 1
    assert "was measured" in err
    assert "fully sampled scan" in err


def test_a_broken_prior_is_told_in_a_line(run, scans, tmp_path):
    code, _, err = run(
        scans / "first.npy", "--out", tmp_path, "--methods", "map", "--prior", tmp_path / "none"
    )
    assert code == 1
    assert "has no card.yaml" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--patterns", "cartesian-5"), "there is no pattern 'cartesian-5'"),
        (("--patterns", ","), "no pattern is named"),
        (("--methods", "magic"), "there is no method 'magic'"),
        (("--set", "solver.iterations=0"), "iterations"),
        (("--study", "single-coil", "--reference", "truth"), "--reference does not go with --study single"),
        (("--study", "simulated", "--reference", "corrected"), "--reference does not go with --study simul"),
        (
            ("--study", "single-coil", "--add-noise", "0.1"),
            "--add-noise does not go with --study single",
        ),
        (("--coils", "4", "--part", "odd"), "--part, --coils do not go with --study parallel-imaging"),
        (("--add-noise", "0"), "add-noise"),
    ],
)
def test_misuse_is_refused_before_any_work(run, scans, tmp_path, arguments, message):
    code, _, err = run(scans / "first.npy", "--out", tmp_path / "out", *arguments)
    assert code == 2
    assert message in err
    assert not (tmp_path / "out").exists()


def test_k_space_is_no_magnitude_image(run, scans, tmp_path):
    code, _, err = run(scans / "first.npy", "--study", "single-coil", "--out", tmp_path)
    assert code == 1
    assert "complex" in err


def test_fastmri_files_are_read_with_their_readout_along_y(run, tmp_path):
    kspace = simulated(4).kspace.samples.numpy()
    with h5py.File(tmp_path / "knee.h5", "w") as file:
        file["kspace"] = kspace.swapaxes(-1, -2)  # (slice, coil, kx, ky)
    np.save(tmp_path / "same.npy", kspace[0])
    arguments = (
        "--methods",
        "zero-filled",
        "--patterns",
        "cartesian-4",
        "--out",
        tmp_path / "out",
        "--no-pictures",
    )
    assert run(tmp_path / "knee.h5", tmp_path / "same.npy", *arguments)[0] == 0
    knee, same = rows_of(tmp_path / "out")
    assert knee["PSNR"] == same["PSNR"]
