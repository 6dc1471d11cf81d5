"""Image files: the layout that the ismrmrd package writes, and never half a file."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import ismrmrd
import numpy as np
import pytest

from gadget.errors import FileError
from gadget.image_file import new_image_file
from gadget.wire.headers import IMAGE_HEADER
from gadget.wire.messages import Image

META = '<?xml version="1.0"?><ismrmrdMeta><meta><name>Say</name><value>5 é</value></meta></ismrmrdMeta>'


def image(index: int, *, dtype: str = "<f4", width: int = 7, series: int = 1) -> Image:
    """Make an image (5, width) whose values and slice tell which one it is."""
    codes = {"<f4": 5, "<u2": 1, "<i2": 2, "<c8": 7}
    header = np.zeros((), IMAGE_HEADER)
    header["version"] = 1
    header["data_type"] = codes[dtype]
    header["matrix_size"] = (width, 5, 1)
    header["field_of_view"] = (70, 50, 3)
    header["channels"] = 1
    header["slice"] = index
    header["image_index"] = index + 1
    header["image_series_index"] = series
    header["attribute_string_len"] = 999
    pixels = (np.arange(5 * width).reshape(1, 1, 5, width) + index).astype(dtype)
    return Image(header=header[()], meta=META + "\0", data=pixels)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_then_fail(path: Path, *, overwrite: bool = False) -> None:
    before = path.read_bytes() if overwrite else None
    with new_image_file(path, overwrite=overwrite) as file:
        file.append_image(image(0))
        assert (path.read_bytes() if path.exists() else None) == before
        raise ZeroDivisionError


def test_images_are_read_back_by_the_ismrmrd_package(tmp_path):
    path = tmp_path / "out.h5"
    with new_image_file(path) as file:
        file.write_header("<ismrmrdHeader>é</ismrmrdHeader>")
        file.append_image(image(0))
        file.append_image(image(1))

    with ismrmrd.Dataset(str(path), mode="r") as dataset:
        assert dataset.read_xml_header() == "<ismrmrdHeader>é</ismrmrdHeader>".encode()
        assert dataset.number_of_images("image_1") == 2
        read = dataset.read_image("image_1", 1)
    np.testing.assert_array_equal(read.data, image(1).data)
    assert (read.slice, read.image_index, list(read.matrix_size)) == (1, 2, [7, 5, 1])
    assert read.meta["Say"] == "5 é"


def test_the_other_reader_of_the_ismrmrd_package_agrees(tmp_path):
    path = tmp_path / "out.h5"
    with new_image_file(path) as file:
        file.append_image(image(0))

    with ismrmrd.File(str(path), "r") as file:
        read = file["dataset/image_1"].images[0]
        np.testing.assert_array_equal(read.data, image(0).data)
        assert read.meta["Say"] == "5 é"


@pytest.mark.parametrize("dtype", ["<f4", "<u2", "<i2", "<c8"])
def test_the_layout_is_that_of_append_image(tmp_path, dtype):
    ours, theirs = tmp_path / "ours.h5", tmp_path / "theirs.h5"
    with new_image_file(ours) as file:
        file.write_header("<x/>")
        for index in range(3):
            file.append_image(image(index, dtype=dtype))
    with ismrmrd.Dataset(str(theirs), mode="w") as dataset:
        dataset.write_xml_header(b"<x/>")
        for index in range(3):
            one = image(index, dtype=dtype)
            plain = ismrmrd.Image(one.header.copy(), META)
            plain.data[:] = one.data
            dataset.append_image("image_1", plain)

    def layout(path: Path) -> dict:
        found = {}
        with h5py.File(path, "r") as file:
            file.visititems(
                lambda name, item: found.update(
                    {
                        name: (item.shape, item.maxshape, item.dtype)
                        if isinstance(item, h5py.Dataset)
                        else "group"
                    }
                )
            )
        return found

    def pixels(path: Path) -> bytes:
        with h5py.File(path, "r") as file:
            return file["dataset/image_1/data"][()].tobytes()

    assert layout(ours) == layout(theirs)
    assert pixels(ours) == pixels(theirs)


def test_the_header_counts_the_attributes_that_are_stored(tmp_path):
    path = tmp_path / "out.h5"
    with new_image_file(path) as file:
        file.append_image(image(0))

    with h5py.File(path, "r") as file:
        stored = file["dataset/image_1/attributes"][0]
        assert len(stored) == file["dataset/image_1/header"][0]["attribute_string_len"]
        assert stored.isascii()


def test_series_and_sizes_are_kept_apart(tmp_path):
    path = tmp_path / "out.h5"
    with new_image_file(path) as file:
        for one in (image(0), image(1, width=9), image(2), image(3, width=9), image(4, series=2)):
            file.append_image(one)

    with h5py.File(path, "r") as file:
        slices = {name: list(item["header"]["slice"]) for name, item in file["dataset"].items()}
    assert slices == {"image_1": [0, 2], "image_1_2": [1, 3], "image_2": [4]}


def test_coils_are_read_back_with_the_counters_of_their_image(tmp_path):
    path = tmp_path / "coils.h5"
    coils = (np.arange(3 * 5 * 7).reshape(3, 5, 7) * (1 + 2j)).astype(np.complex64)
    with new_image_file(path) as file:
        file.append_coils(coils, image(6).header)
        file.append_coils(coils[:2], image(7).header)

    with ismrmrd.Dataset(str(path), mode="r") as dataset:
        np.testing.assert_array_equal(dataset.read_array("coils", 0), coils)
        np.testing.assert_array_equal(dataset.read_array("coils_2", 0), coils[:2])
    with h5py.File(path, "r") as file:
        counters = file["dataset/coils_counters"][0]
        assert (counters["slice"], counters["image_index"], counters["contrast"]) == (6, 7, 0)


def test_only_the_owner_can_read_the_file(tmp_path):
    path = tmp_path / "out.h5"
    with new_image_file(path) as file:
        file.write_header("<x/>")

    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_stays_after_a_failure(tmp_path):
    path = tmp_path / "out.h5"

    with pytest.raises(ZeroDivisionError):
        write_then_fail(path)

    assert names(tmp_path) == []


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "out.h5"
    path.write_text("old")

    with pytest.raises(ZeroDivisionError):
        write_then_fail(path, overwrite=True)

    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.h5"]
    with new_image_file(path, overwrite=True) as file:
        file.append_image(image(0))
    assert h5py.is_hdf5(path)


def test_an_existing_file_is_not_replaced_unasked(tmp_path):
    path = tmp_path / "out.h5"
    path.write_text("old")

    with pytest.raises(FileError, match=r"out\.h5 exists; choose another name, or ask for it to be replaced"):
        new_image_file(path).__enter__()

    assert path.read_text() == "old"


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(FileError, match="is a folder; the name of a file is needed"):
        new_image_file(tmp_path, overwrite=True).__enter__()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileError, match=r"there is no folder .*absent\. Make it first"):
        new_image_file(tmp_path / "absent" / "out.h5").__enter__()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)

    with pytest.raises(FileError, match=r"Cannot write .*Permission denied"):
        new_image_file(tmp_path / "out.h5").__enter__()


@contextlib.contextmanager
def files_limited_to(n_bytes: int) -> Iterator[None]:
    """Let writes past a size fail, as they do on a full disk."""
    old_limit, old_handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, old_limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)


def fill_disk(path: Path, n_images: int = 20, n_bytes: int = 100_000) -> None:
    with files_limited_to(n_bytes), new_image_file(path) as file:
        for index in range(n_images):
            file.append_image(image(index, width=1000))


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    path = tmp_path / "out.h5"

    with pytest.raises(FileError, match=r"Cannot write .*out\.h5: .*File too large"):
        fill_disk(path)

    assert names(tmp_path) == []


def test_a_disk_that_is_full_at_the_very_end_is_an_error_and_leaves_nothing(tmp_path):
    # An empty file is written when it is closed, not before.
    with pytest.raises(FileError, match=r"Cannot write .*out\.h5: .*File too large"):
        fill_disk(tmp_path / "out.h5", n_images=0, n_bytes=50)

    assert names(tmp_path) == []


def test_a_full_disk_does_not_crash_the_interpreter(tmp_path):
    program = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent)]!r}
from test_image_file import *
fill_disk(Path({str(tmp_path / "out.h5")!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 1
    assert "gadget.errors.FileError: Cannot write" in done.stderr
