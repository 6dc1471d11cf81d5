"""The command line: every command but ``replay``, what it prints where, and its exit codes."""

import os
import re
import socket
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest
from simulated_scans import QUICK

from gadget.spool.spool import Spool


def test_help_answers_at_once_without_torch():
    started = time.monotonic()
    program = (
        "import sys; from gadget.cli import main\n"
        "try: main(['--help'])\n"
        "finally: assert 'torch' not in sys.modules"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 20  # a bound for a busy machine; torch alone is told by the assertion
    for command in ("demo", "replay", "serve", "send", "simulate", "check-config", "prior", "train"):
        assert command in done.stdout


@pytest.mark.parametrize(
    "command", ["demo", "replay", "serve", "send", "simulate", "check-config", "prior", "prior show", "train"]
)
def test_every_command_explains_itself(run, command):
    code, out, _ = run(*command.split(), "--help")

    assert code == 0
    assert "Usage" in out


def test_the_version_is_printed(run):
    code, out, _ = run("--version")

    assert code == 0
    assert re.fullmatch(r"gadgetron-ebm \S+\n", out)


@pytest.mark.parametrize(
    "arguments", [["no-such-command"], ["replay"], ["replay", "--no-such-option"], ["prior", "x"]]
)
def test_misuse_ends_with_2(run, arguments):
    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert err


def test_simulate_writes_a_scan_that_replay_reads(run, joint, tmp_path):
    joint()
    options = (
        "--matrix",
        "32",
        "24",
        "--slices",
        "2",
        "--coils",
        "3",
        "--repetitions",
        "2",
        "--acceleration",
        "2",
    )

    code, out, err = run("simulate", tmp_path / "scan.h5", *options, "--seed", "3")

    assert code == 0, err
    assert re.fullmatch(rf"{tmp_path}/scan\.h5: 2 slices, 3 coils, \d+ of 32 lines of 24 samples\n", out)
    code, out, _ = run("replay", tmp_path / "scan.h5", tmp_path / "out.h5", *QUICK)
    assert code == 0
    assert "4 images" in out


def test_simulate_takes_an_image_or_kspace(run, tmp_path):
    np.save(tmp_path / "image.npy", np.hypot(*np.mgrid[-1:1:30j, -1:1:28j]))
    np.save(tmp_path / "kspace.npy", np.random.default_rng(1).normal(size=(2, 30, 28)) + 0j)

    code, out, err = run(
        "simulate", tmp_path / "a.h5", "--image", tmp_path / "image.npy", "--pattern", "full"
    )
    assert (code, err) == (0, "")
    assert "1 slice, 8 coils, 30 of 30 lines of 28 samples" in out

    code, out, err = run(
        "simulate", tmp_path / "b.h5", "--kspace", tmp_path / "kspace.npy", "--acceleration", "2"
    )
    assert (code, err) == (0, "")
    assert re.search(r"1 slice, 2 coils, \d+ of 30 lines of 28 samples", out)


def test_simulate_is_repeatable(run, tmp_path):
    options = ("--matrix", "24", "20", "--coils", "2", "--seed", "7")
    for name in ("a.h5", "b.h5"):
        assert run("simulate", tmp_path / name, *options)[0] == 0

    with h5py.File(tmp_path / "a.h5") as one, h5py.File(tmp_path / "b.h5") as other:
        for first, second in zip(one["dataset/data"], other["dataset/data"], strict=True):
            np.testing.assert_array_equal(first["data"], second["data"])


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--image", "A", "--kspace", "A"], "exclude each other"),
        (["--kspace", "A", "--repetitions", "2"], "--repetitions needs new noise"),
        (["--image", "TEXT"], "is no .npy array"),
        (["--image", "WORDS"], "is no array of numbers"),
        (["--kspace", "A"], "must be (coil, ky, kx)"),
        (["--noise", "0"], "noise is 0.0, needs to be positive"),
        (["--acceleration", "0.5"], "--acceleration"),
        (["--pattern", "uniform", "--acceleration", "2.5"], "needs a whole number"),
        (["--calibration", "0.9"], "calibration lines are more than"),
    ],
)
def test_a_simulation_that_cannot_be_ends_with_2(run, tmp_path, options, fault):
    np.save(tmp_path / "A", np.ones((8, 8)))
    (tmp_path / "A.npy").rename(tmp_path / "A")
    np.save(tmp_path / "WORDS", np.array(["a"]))
    (tmp_path / "WORDS.npy").rename(tmp_path / "WORDS")
    (tmp_path / "TEXT").write_text("text")
    files = [str(tmp_path / option) if option in ("A", "TEXT", "WORDS") else option for option in options]

    code, _, err = run("simulate", tmp_path / "scan.h5", *files)

    assert code == 2
    assert fault in " ".join(err.split())
    assert not (tmp_path / "scan.h5").exists()


def test_check_config_finds_a_good_file_good(run, tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text("prior: tv\n")

    assert run("check-config", config) == (0, f"{config}: good (prior tv)\n", "")


def test_check_config_names_every_fault(run, tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text("prio: tv\nseed: x\n")

    code, out, err = run("check-config", config)

    assert (code, out) == (1, "")
    assert "has 2 faults" in err


def test_check_config_looks_the_prior_up(run, tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text("prior: no-such-prior\n")

    code, _, err = run("check-config", config)

    assert code == 1
    assert "no-such-prior" in err


def test_priors_are_listed_shown_and_verified(run):
    code, out, err = run("prior", "list")
    assert code == 0, err
    assert any(line.split()[0] == "total-variation" for line in out.splitlines())

    code, out, _ = run("prior", "show", "tv")
    assert code == 0
    assert "total-variation" in out

    code, out, _ = run("prior", "verify", "tv")
    assert code == 0
    assert out.endswith(": good\n")


@pytest.mark.parametrize("command", ["show", "verify"])
def test_an_unknown_prior_to_look_at_ends_with_1(run, command):
    code, _, err = run("prior", command, "no-such-prior")

    assert code == 1
    assert "no-such-prior" in err


@pytest.mark.parametrize(
    "to", ["localhost", "localhost:", ":9002", "localhost:port", "localhost:0", "localhost:70000"]
)
def test_send_needs_host_and_port(run, scan, tmp_path, to):
    code, _, err = run("send", scan, tmp_path / "out.h5", "--to", to)

    assert code == 2
    assert "is no HOST:PORT" in err


def test_send_to_nobody_ends_with_1(run, scan, tmp_path):
    code, _, err = run("send", scan, tmp_path / "out.h5", "--to", "127.0.0.1:1")

    assert code == 1
    assert "Cannot connect to 127.0.0.1 port 1" in err
    assert not (tmp_path / "out.h5").exists()


def test_serve_and_send_give_the_images_of_replay(run, scan, tmp_path):
    """The real commands, joint reconstruction included, in processes of their own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from gadget.cli import main; main()"]
    serving = subprocess.Popen(
        [*command, "serve", "--host", "127.0.0.1", "--port", "0", *QUICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        port = serving.stdout.readline().split()[-1]
        assert run("replay", scan, tmp_path / "replay.h5", *QUICK)[0] == 0

        code, out, err = run("send", scan, tmp_path / "sent.h5", "--to", f"127.0.0.1:{port}")

        assert (code, out, err) == (0, f"{tmp_path}/sent.h5: 2 images\n", "")
    finally:
        serving.terminate()
        _, log = serving.communicate(timeout=60)
    assert serving.returncode == 0
    assert len(re.findall(r"INFO [\d.:]+: slice [01]: joint reconstruction", log)) == 2
    with h5py.File(tmp_path / "replay.h5") as one, h5py.File(tmp_path / "sent.h5") as other:
        np.testing.assert_array_equal(one["dataset/image_1/data"], other["dataset/image_1/data"])


def test_a_second_server_on_the_same_port_ends_with_1(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run("serve", "--host", "127.0.0.1", "--port", port, "--prior", "tv")

    assert code == 1
    assert f"Cannot listen on 127.0.0.1 port {port}" in err


def test_a_server_that_cannot_listen_has_no_spool_any_more(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, _ = run(
            "serve", "--host", "127.0.0.1", "--port", port, "--prior", "tv", "--spool", tmp_path / "spool"
        )
        assert code == 1
        assert not [thread for thread in threading.enumerate() if thread.name == "spool"]
        with Spool(tmp_path / "spool"):
            pass


def test_demo_compares_three_methods(run, joint, tmp_path):
    joint()

    code, out, err = run("demo", tmp_path / "demo", "--prior", "tv", "--device", "cpu")

    assert code == 0, err
    for method in ("zero-filled", "total variation", "learned prior"):
        assert f"| {method}" in out
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert names == {"scan.h5", "total_variation.h5", "learned.h5", "table.md", "comparison_slice_0.png"}


def test_a_demo_can_be_repeated_in_its_folder(run, joint, tmp_path):
    joint()

    codes = [run("demo", tmp_path / "demo", "--prior", "tv", "--device", "cpu")[0] for _ in range(2)]

    assert codes == [0, 0]


def test_a_demo_in_a_file_ends_with_1(run, tmp_path):
    (tmp_path / "demo").write_text("a file")

    code, _, err = run("demo", tmp_path / "demo", "--prior", "tv")

    assert code == 1
    assert "Cannot make the folder" in err


def test_a_trained_prior_can_be_used_at_once(run, scan, tmp_path):
    """A run of two updates: a bad prior, but a complete one."""
    config, data, out = tmp_path / "train.yaml", tmp_path / "images.npz", tmp_path / "small"
    config.write_text("name: small\nn_updates: 50\nnetwork: {widths: [4, 8]}\n")
    images = np.random.default_rng(2).integers(0, 255, size=(6, 64, 64), dtype=np.uint8)
    np.savez(data, image_sqrt_u8=images, validation=np.arange(6) == 5)
    changes = (
        "--set",
        "n_updates=2",
        "--set",
        "batch=2",
        "--set",
        "data.patch=32",
        "--set",
        "data.resolutions=[1.0]",
        "--set",
        "bookkeeping.picture_every=null",
    )

    code, _, err = run("train", config, "--data", data, "--out", out, "--device", "cpu", *changes)

    assert code == 0, err
    assert run("prior", "verify", out)[0] == 0
    assert "n_updates: 2" in run("prior", "show", out)[1]
    code, printed, err = run(
        "replay", scan, tmp_path / "out.h5", *QUICK[:1], "--prior", out, *QUICK[3:],
    )  # fmt: skip
    assert code == 0, printed + err
    weights = out / "prior.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    code, _, err = run("replay", scan, tmp_path / "other.h5", "--prior", out, "--device", "cpu")
    assert code == 1
    assert "have SHA-256" in err
    assert not (tmp_path / "other.h5").exists()
