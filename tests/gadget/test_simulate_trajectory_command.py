"""``simulate --trajectory`` on the command line, and ``replay`` of what it writes."""

import re

import h5py
import numpy as np
import pytest


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--trajectory", "radial", "--readouts", "40"], "40 spokes of 80 samples (76 would be complete)"),
        (["--trajectory", "golden", "--readouts", "34"], "34 spokes of 80 samples (76 would be complete)"),
        (["--trajectory", "spiral", "--readouts", "16", "--phantom"], "16 interleaves of"),
    ],
    ids=["radial", "golden", "spiral"],
)
def test_the_image_of_a_simulated_trajectory_is_its_truth(run, tmp_path, options, words):
    size = ["--matrix", "48", "40", "--coils", "4", "--noise", "0.003"]

    code, out, err = run("simulate", tmp_path / "scan.h5", *size, *options)

    assert (code, err) == (0, "")
    assert words in out
    quick = ["--prior", "tv", "--no-posterior", "--set", "solver.iterations=20"]
    code, out, err = run("replay", tmp_path / "scan.h5", tmp_path / "out.h5", *quick)
    assert code == 0, err
    with h5py.File(tmp_path / "scan.h5") as scan, h5py.File(tmp_path / "out.h5") as images:
        truth = np.abs(scan["truth/image"][0])
        image = images["dataset/image_1/data"][0, 0, 0]
    assert image.shape == truth.shape
    assert np.corrcoef(image.ravel(), truth.ravel())[0, 1] > 0.97


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--phantom"], "--phantom is for radial and spiral scans, --trajectory"),
        (["--readouts", "3"], "--readouts is for radial and spiral scans, --trajectory"),
        (["--readouts", "16"], "--readouts is for radial"),  # what it is by default, but given
        (["--readouts", "3", "--phantom"], "--readouts and --phantom are for radial and spiral scans"),
        (["--trajectory", "golden", "--repetitions", "2"], "--repetitions is for Cartesian scans"),
        (
            ["--trajectory", "radial", "--acceleration", "3", "--pattern", "full"],
            "--pattern and --acceleration are for Cartesian scans; --trajectory radial",
        ),
        (
            ["--trajectory", "spiral", "--calibration", "0.1", "--mask-seed", "1"],
            "--calibration and --mask-seed are for Cartesian scans",
        ),
        (
            ["--trajectory", "radial", "--image", "A.npy", "--kspace", "A.npy"],
            "--image and --kspace are for Cartesian scans",
        ),
        (["--trajectory", "radial", "--kspace", "A.npy"], "--kspace is for Cartesian scans"),
        (["--trajectory", "radial", "--phantom", "--slices", "2"], "--slices is for a head"),
        (["--pattern", "full", "--acceleration", "3"], "--acceleration is for lines that are left out"),
        (["--pattern", "uniform", "--mask-seed", "3"], "--mask-seed is for --pattern random"),
        (["--image", "A.npy", "--matrix", "32", "32", "--contrast", "t2"], "--matrix and --contrast are for"),
        (["--kspace", "A.npy", "--coils", "3", "--noise", "0.1"], "--coils and --noise are for simulated"),
        (["--trajectory", "rosette"], "rosette"),
        (["--trajectory", "radial", "--readouts", "0"], "--readouts"),
    ],
)
def test_options_that_do_not_go_together_end_with_2(run, tmp_path, monkeypatch, options, fault):
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", np.ones((16, 16)))

    code, _, err = run("simulate", tmp_path / "scan.h5", *options)

    assert code == 2
    assert fault in " ".join(err.split())
    assert not (tmp_path / "scan.h5").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--trajectory", "radial", "--readouts", "1"], "1 slice, 1 coil, 1 spoke of 26 samples"),
        (["--trajectory", "spiral", "--readouts", "1"], "1 slice, 1 coil, 1 interleave of"),
        (["--slices", "2", "--pattern", "full"], "2 slices, 1 coil, 16 of 16 lines of 16 samples"),
    ],
)
def test_one_of_a_kind_has_no_plural(run, tmp_path, options, words):
    code, out, err = run("simulate", tmp_path / "scan.h5", "--matrix", "16", "16", "--coils", "1", *options)
    assert (code, err) == (0, "")
    assert words in out

    code, out, err = run("inspect", tmp_path / "scan.h5")

    assert code == 0, err
    assert "from 1 coil" in out
    assert not re.search(
        r"(?<![\d.])1 (coils|spokes|readouts|non-Cartesian readouts|images|dimensions)\b", out
    )
