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
