"""``tests/benchmarks/gpu.sh``, with a stand-in for Python that behaves as on a machine with a CUDA device."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.sh"
STAND_IN = """\
#!/usr/bin/env bash
echo "$@" >> "$CALLS"
case "$*" in
  *"import bench"*) exit "${IMPORTS:-0}" ;;
  "- "*) cat > /dev/null; echo "NVIDIA H200" ;;
  "-m pytest"*) echo "some lines"; echo "${TESTS:-2 passed in 3.00s}"; exit "${TESTS_CODE:-0}" ;;
  *main*)
    while [ "$1" != --out ]; do shift; done
    sleep "${BENCH_TAKES:-0}"
    printf '# Benchmark, sizes: GPU\\n\\n* device: NVIDIA H200\\n' > "$2/results.md"
    echo "out of memory"; exit "${BENCH_CODE:-0}" ;;
esac
"""


@pytest.fixture
def gpu_sh(tmp_path):
    """Return a function that runs the script and returns exit code, what it said, and the results file."""
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)

    def run(*arguments, **variables):
        environment = os.environ | {
            "PYTHON": str(python),
            "CALLS": str(tmp_path / "calls"),
            **{name: str(value) for name, value in variables.items()},
        }
        done = subprocess.run(
            ["bash", str(SCRIPT), str(tmp_path / "found"), *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=280,
            check=False,
        )
        found = tmp_path / "found" / "NVIDIA-H200.md"
        return done.returncode, done.stderr, found.read_text() if found.is_file() else ""

    run.calls = lambda: (tmp_path / "calls").read_text()
    return run


def test_one_file_has_the_name_of_the_card_tests_and_tables(gpu_sh):
    code, said, found = gpu_sh(BENCH_OPTIONS="--case paper --peers")

    assert code == 0, said
    assert found.startswith("# NVIDIA H200\n")
    assert "* GPU tests: 2 passed in 3.00s" in found
    assert "## Benchmark, sizes: GPU" in found
    assert "-m pytest tests -m gpu" in gpu_sh.calls()
    assert "--device cuda" in gpu_sh.calls()
    assert gpu_sh.calls().rstrip().endswith("--case paper --peers")


def test_a_failed_test_does_not_cost_the_benchmark(gpu_sh):
    code, said, found = gpu_sh(TESTS="1 failed, 1 passed", TESTS_CODE=1)

    assert code == 1
    assert "tests: 1 failed, 1 passed" in said
    assert "## Benchmark" in found


def test_no_tests_are_a_failure(gpu_sh):
    code, _, found = gpu_sh(TESTS_CODE=5)

    assert code == 1
    assert "* GPU tests: there are none" in found


def test_a_benchmark_that_fails_says_why(gpu_sh):
    code, said, found = gpu_sh(BENCH_CODE=1)

    assert code == 1
    assert "benchmark: it failed (1): out of memory" in said
    assert "* benchmark: it failed (1): out of memory" in found


def test_a_benchmark_without_time_leaves_word(gpu_sh):
    code, _, found = gpu_sh(BENCH_TAKES=30, BENCH_SECONDS=1)

    assert code == 1
    assert "it was stopped after 1 s; run gpu.sh again with the same folder, and it goes on" in found


def test_packages_that_are_missing_are_told_before_anything_runs(gpu_sh):
    code, said, found = gpu_sh(IMPORTS=1)

    assert (code, found) == (2, "")
    assert "lacks packages that pyproject.toml names; install them, or set PYTHON" in said


def test_a_scan_that_is_not_there_is_told(gpu_sh, tmp_path):
    code, said, _ = gpu_sh(tmp_path / "none.npy")

    assert code == 2
    assert f"there is no scan {tmp_path / 'none.npy'}" in said


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_device_it_says_so_and_how_to_try_it(gpu_sh):
    code, said, found = gpu_sh(PYTHON=sys.executable)

    assert (code, found) == (2, "")
    assert "torch sees no CUDA device here; DRY_RUN=1 tries the script on the CPU" in said


@pytest.mark.slow
def test_a_dry_run_measures_on_the_cpu(gpu_sh, tmp_path):
    code, said, _ = gpu_sh(
        PYTHON=sys.executable, DRY_RUN=1, OMP_NUM_THREADS=1, BENCH_OPTIONS="--case brain --prior tv"
    )

    assert code == 0, said
    found = (tmp_path / "found" / "dry-run-on-the-CPU.md").read_text()
    assert "* GPU tests: not run: a dry run" in found
    assert "### Solvers: a slice alone" in found


def test_its_syntax():
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    if shutil.which("shellcheck") is not None:
        subprocess.run(["shellcheck", str(SCRIPT)], check=True)
