"""Noise on disk: what is written, who may read it, and what is not believed."""

import hashlib
import json
import logging
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

import gadget.noise_cache
from gadget.noise_cache import MAX_AGE_S, NoiseCache
from gadget.scan.noise import NoiseCovariance

MEASUREMENT = "45387_1079885_1079904_343"


def noise_of(n_coils: int = 3, seed: int = 1) -> NoiseCovariance:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_coils, n_coils)) + 1j * rng.normal(size=(n_coils, n_coils))
    return NoiseCovariance(
        matrix=root @ root.conj().T * 1e-11,
        n_samples=768,
        n_readouts=2,
        dwell_us=20.0,
        bandwidth=0.793,
        coil_names=tuple(f"Spine:{number}" for number in range(n_coils)),
    )


@pytest.fixture
def cache(tmp_path: Path) -> NoiseCache:
    return NoiseCache(tmp_path / "state" / "noise")


def only_file(cache: NoiseCache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


def test_noise_comes_back_exactly(cache: NoiseCache) -> None:
    noise = noise_of()
    cache.keep(MEASUREMENT, noise)
    found = cache.find(MEASUREMENT)
    assert found is not None
    np.testing.assert_array_equal(found.matrix, noise.matrix)
    for name in ("n_samples", "n_readouts", "dwell_us", "bandwidth", "coil_names"):
        assert getattr(found, name) == getattr(noise, name)


def test_a_second_process_finds_it_and_an_unknown_one_is_not_there(cache: NoiseCache) -> None:
    cache.keep(MEASUREMENT, noise_of())
    assert NoiseCache(cache.folder).find(MEASUREMENT) is not None
    assert cache.find("another") is None
    assert NoiseCache(cache.folder / "missing").find(MEASUREMENT) is None


def test_the_latest_noise_of_a_measurement_counts(cache: NoiseCache) -> None:
    cache.keep(MEASUREMENT, noise_of(seed=1))
    cache.keep(MEASUREMENT, noise_of(seed=2))
    found = cache.find(MEASUREMENT)
    assert found is not None
    np.testing.assert_array_equal(found.matrix, noise_of(seed=2).matrix)
    only_file(cache)


def test_folder_and_files_are_the_owner_s_alone_whatever_the_umask(cache: NoiseCache) -> None:
    before = os.umask(0)
    try:
        cache.keep(MEASUREMENT, noise_of())
    finally:
        os.umask(before)
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert only_file(cache).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("measurement", ["../../etc/passwd", "/etc/passwd", "a/b", "", ".", "x" * 9999, "ü"])
def test_the_id_is_no_path_and_is_not_in_the_file(cache: NoiseCache, measurement: str) -> None:
    cache.keep(measurement, noise_of())
    path = only_file(cache)
    assert re.fullmatch("[0-9a-f]{64}", path.stem)
    assert len(measurement) < 2 or measurement not in path.read_text(encoding="utf-8")
    assert cache.find(measurement) is not None


def damaged(text: str) -> list[str]:
    whole = json.loads(text)
    inner = json.loads(whole["content"])
    negative = json.dumps(inner | {"real": [[-1.0]], "imaginary": [[0.0]], "coil_names": []})
    return [
        "",
        text[:-40],
        "[]",
        "null",
        json.dumps(whole | {"format": "other"}),
        text.replace("768", "769"),
        json.dumps(whole | {"content": 5}),
        json.dumps(whole | {"content": negative}),
        "[" * 100_000,
    ]


@pytest.mark.parametrize("number", range(9))
def test_a_damaged_file_is_reported_and_not_used(
    cache: NoiseCache, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    cache.keep(MEASUREMENT, noise_of())
    path = only_file(cache)
    path.write_text(damaged(path.read_text(encoding="utf-8"))[number], encoding="utf-8")
    assert cache.find(MEASUREMENT) is None
    assert "is not used: " in caplog.text
    assert MEASUREMENT not in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"real": [[-1.0]], "imaginary": [[0.0]], "coil_names": []},
        {"real": [[1.0, 2.0]], "imaginary": [[0.0, 0.0]]},
        {"real": [[float("nan")]], "imaginary": [[0.0]], "coil_names": []},
        {"n_samples": 0},
        {"dwell_us": -1.0},
        {"bandwidth": 7.0},
        {"coil_names": ["A"]},
        {"real": [[1.0, 2.0], [3.0, 4.0]], "imaginary": [[0.0, 0.0], [0.0, 0.0]], "coil_names": []},
        {"real": [], "imaginary": [], "coil_names": []},
    ],
)
def test_numbers_that_are_no_covariance_are_not_used(
    cache: NoiseCache, change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    # The checksum is right, the numbers are not.
    cache.keep(MEASUREMENT, noise_of())
    path = only_file(cache)
    whole = json.loads(path.read_text(encoding="utf-8"))
    content = json.dumps(json.loads(whole["content"]) | change)
    whole |= {"content": content, "sha256": hashlib.sha256(content.encode()).hexdigest()}
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert cache.find(MEASUREMENT) is None
    assert "it is damaged: its numbers are no noise covariance" in caplog.text


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    cache = NoiseCache(tmp_path)
    cache.keep(MEASUREMENT, noise_of())
    assert list(tmp_path.iterdir()) == []
    assert "(mode 0755) must belong to the user of this program and be closed to others" in caplog.text


def test_a_file_that_others_may_write_or_a_link_is_not_used(
    cache: NoiseCache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.keep(MEASUREMENT, noise_of())
    path = only_file(cache)
    path.chmod(0o620)
    assert cache.find(MEASUREMENT) is None
    assert "it is not a file of mode 0600 of the user of this program" in caplog.text
    path.chmod(0o600)
    elsewhere = tmp_path / "elsewhere.json"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert cache.find(MEASUREMENT) is None


def test_a_folder_that_cannot_be_made_costs_a_warning_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    cache = NoiseCache(tmp_path / "file" / "noise")
    cache.keep(MEASUREMENT, noise_of())
    assert "the noise of this scan could not be kept" in caplog.text
    assert cache.find(MEASUREMENT) is None
    file_for_a_folder = NoiseCache(tmp_path / "file")
    file_for_a_folder.keep(MEASUREMENT, noise_of())
    assert file_for_a_folder.find(MEASUREMENT) is None


def test_old_noise_is_not_used_and_is_removed(cache: NoiseCache) -> None:
    cache.keep(MEASUREMENT, noise_of())
    path = only_file(cache)
    left_over = cache.folder / ".new-abc"
    left_over.write_text("half", encoding="utf-8")
    past = time.time() - MAX_AGE_S - 60
    for old in (path, left_over):
        os.utime(old, (past, past))
    assert cache.find(MEASUREMENT) is None
    cache.keep("newer", noise_of())
    assert path not in set(cache.folder.iterdir())
    assert not left_over.exists()


def test_the_number_of_files_is_bounded(cache: NoiseCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gadget.noise_cache, "MAX_FILES", 3)
    now = time.time()
    for number in range(6):
        cache.keep(f"m{number}", noise_of())
        os.utime(cache._path(f"m{number}"), (now - 100 + number, now - 100 + number))
    kept = [number for number in range(6) if cache.find(f"m{number}") is not None]
    assert kept == [3, 4, 5]


def test_a_file_that_is_too_large_is_not_read(
    cache: NoiseCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.keep(MEASUREMENT, noise_of())
    monkeypatch.setattr(gadget.noise_cache, "MAX_FILE_BYTES", 100)
    assert cache.find(MEASUREMENT) is None
    assert "at most 100 are read" in caplog.text


def test_what_is_kept_is_said_without_the_id(cache: NoiseCache, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cache.keep(MEASUREMENT, noise_of())
    assert "the noise of this measurement was kept for later scans" in caplog.text
    assert MEASUREMENT not in caplog.text
