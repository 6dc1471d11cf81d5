"""Fixtures and settings that all tests share."""

import logging
import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
# a loaded machine must not turn a slow example into a failure, nor what a run draws one commit into another
settings.register_profile("same everywhere", deadline=None, derandomize=True)
settings.load_profile("same everywhere")


@pytest.fixture
def generator() -> torch.Generator:
    """Return a seeded random number generator."""
    return torch.Generator().manual_seed(20221034)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder with measured data, or skip where there is none."""
    folder = os.environ.get("GADGETRON_EBM_DATA")
    if not folder:
        pytest.skip("GADGETRON_EBM_DATA is not set: no measured data to test on")
    path = Path(folder)
    if not (path / "kspace").is_dir():
        pytest.fail(f"GADGETRON_EBM_DATA={folder} has no folder 'kspace'")
    return path


@pytest.fixture(autouse=True)
def _logging_as_before():
    """Undo what a command sets up."""
    loggers = [logging.getLogger(name) for name in (None, "gadget", "reconlib")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def run(capsys, monkeypatch):
    """Return a function that runs a command and returns exit code, stdout and stderr."""
    from gadget.cli import main  # not with every test of the library

    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("TERM", "dumb")

    def run_command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run_command
