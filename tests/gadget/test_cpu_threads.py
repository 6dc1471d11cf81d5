"""How threads wait, as GCC's OpenMP itself says it where the command line loads torch."""

import os
import subprocess
import sys

import pytest

from gadget.cpu_threads import SPINS


@pytest.mark.parametrize(
    ("environment", "spins"),
    [
        ({}, SPINS),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, "0"),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
    ],
    ids=str,
)
def test_threads_wait_briefly_unless_the_environment_says_how(environment, spins):
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", "from gadget.cli import main; main(['prior', 'show', 'tv']); import torch"],
        env={**ours, **environment, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [line.split("=")[1].strip(" '") for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    assert said, f"torch has another OpenMP than GCC's: {done.stderr}"
    assert set(said) == {spins}
