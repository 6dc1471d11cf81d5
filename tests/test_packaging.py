"""The built wheel, installed into an environment of its own and run from another folder."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: object, cwd: Path) -> str:
    """Run a command without this project on the path; return its stdout."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Install the wheel into an empty environment; return its folder of programs.

    The dependencies are those of the environment that runs the tests: a .pth file adds its packages behind
    the new environment's own. The editable install of this project there stays out: its .pth file is not run.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    packages = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "venv" / "bin"


def test_the_wheel_holds_packages_configurations_and_priors(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())

    assert {
        "gadget/cli.py",
        "gadget/py.typed",
        "reconlib/py.typed",
        "gadget/config/recon/default.yaml",
    } <= names
    assert any(name.startswith("gadget/config/priors/") and name.endswith(".safetensors") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "config/")) or name.endswith(".h5")]


def test_the_installed_package_is_not_the_checkout(installed, tmp_path):
    where = run(installed / "python", "-c", "import gadget, reconlib; print(gadget.__file__)", cwd=tmp_path)

    assert str(installed.parent) in where
    assert str(ROOT) not in where


def test_priors_are_found_from_another_folder(installed, tmp_path):
    listed = run(installed / "gadgetron-ebm", "prior", "list", cwd=tmp_path)

    assert {line.split()[0] for line in listed.splitlines()} >= {"brain-local", "total-variation"}
    assert run(installed / "gadgetron-ebm", "prior", "verify", "brain-local", cwd=tmp_path).endswith(
        ": good\n"
    )


def test_the_demonstration_runs_from_another_folder(installed, tmp_path):
    out = run(installed / "gadgetron-ebm", "demo", "--set", "solver.iterations=5", cwd=tmp_path)

    assert "| learned prior" in out
    assert (tmp_path / "demo" / "comparison_slice_0.png").is_file()


def test_gadgetrons_target_can_be_imported(installed, tmp_path):
    run(installed / "python", "-c", "from gadget.gadgetron_entry import reconstruct", cwd=tmp_path)
