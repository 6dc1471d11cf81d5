"""``simulate --trajectory`` on the command line, and ``replay`` of what it writes."""

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
        (["--phantom"], "--phantom is for radial and spiral scans; give --trajectory, too"),
        (["--trajectory", "golden", "--repetitions", "2"], "leave out --image, --kspace and --repetitions"),
        (["--trajectory", "rosette"], "rosette"),
        (["--trajectory", "radial", "--readouts", "0"], "--readouts"),
    ],
)
def test_a_trajectory_that_cannot_be_ends_with_2(run, tmp_path, options, fault):
    code, _, err = run("simulate", tmp_path / "scan.h5", *options)

    assert code == 2
    assert fault in " ".join(err.split())
    assert not (tmp_path / "scan.h5").exists()
