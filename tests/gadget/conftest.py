"""Being here puts this folder on the path: tests in the folders below share its modules, too."""

import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    yield folder
    # -l: also where a failed test left a file open
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def start_server():
    """Return a function that starts a server, which is closed in the end."""
    from running_server import running_servers  # not with every test of the wire

    with running_servers() as start:
        yield start


@pytest.fixture
def scan(tmp_path):
    """Return the file of a small scan of two slices."""
    from simulated_scans import make_scan

    return make_scan(tmp_path / "scan.h5", n_slices=2)


@pytest.fixture
def joint(monkeypatch):
    """Put a stand-in in the place of the joint reconstruction; return a function that prepares it."""
    from simulated_scans import StandIn

    return _put_in_place("joint", StandIn, monkeypatch)


@pytest.fixture
def sampling(monkeypatch):
    """Put a script in the place of the sampling; return a function that prepares it."""
    from scripted_sampling import ScriptedSampling

    return _put_in_place("sampling", ScriptedSampling, monkeypatch)


def _put_in_place(part, stand_in, monkeypatch):
    from gadget.reconstructor import Reconstructor

    def prepare(**how):
        made = stand_in(**how)
        monkeypatch.setitem(Reconstructor.__init__.__kwdefaults__, part, made)
        return made

    return prepare
