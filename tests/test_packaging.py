"""The built wheel, installed into an environment of its own and run from another folder."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment_files import image_command, the

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def environment() -> dict[str, str]:
    """Return the environment variables without those that put this project on the path."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def run(*command: object, cwd: Path) -> str:
    """Run a command without this project on the path; return its stdout."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
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
        "gadget/operations/page/index.html",
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


@contextlib.contextmanager
def started(*command: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a command without this project on the path; it must end by itself."""
    with (
        (cwd / "stderr").open("w") as log,
        subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process
            assert process.wait(60) == 0, (cwd / "stderr").read_text()
        finally:
            process.kill()


def test_what_the_docker_image_runs_serves_a_scan_in_a_bare_environment(installed, tmp_path):
    spool = tmp_path / "spool"
    in_test = {"0.0.0.0": "127.0.0.1", "9002": "0", "9080": "0", "/var/lib/gadgetron-ebm/spool": str(spool)}
    program, *arguments = image_command()
    command = [installed / program, *(in_test.get(word, word) for word in arguments), "--prior", "tv"]
    run(installed / program, "simulate", "scan.h5", "--matrix", 32, 32, "--coils", 2, cwd=tmp_path)

    with started(*command, "--no-posterior", cwd=tmp_path) as server:
        words = server.stdout.readline() + server.stdout.readline()
        port, monitor = re.search(r"port (\d+)\n", words)[1], re.search(r"http://127.0.0.1:(\d+)", words)[1]
        run(installed / program, "send", "scan.h5", "images.h5", "--to", f"127.0.0.1:{port}", cwd=tmp_path)
        check = json.loads(the("HEALTHCHECK", "base").partition("CMD ")[2])
        assert check[2].count(":9080/") == 1
        run(installed / check[0], check[1], check[2].replace(":9080/", f":{monitor}/"), cwd=tmp_path)
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/health", timeout=5) as health:
            assert json.load(health)["status"] == "ok"
        server.send_signal(signal.SIGTERM)

    assert (tmp_path / "images.h5").is_file()
    assert list(spool.glob("scan-*"))


def test_the_chains_are_installed_from_the_wheel(installed, tmp_path):
    (tmp_path / "share" / "gadgetron" / "config").mkdir(parents=True)

    out = run(installed / "gadgetron-ebm", "install-configs", "--gadgetron-home", tmp_path, cwd=tmp_path)

    assert len(out.splitlines()) == 12
    assert (tmp_path / "share" / "gadgetron" / "config" / "ebm_execute.xml").is_file()
