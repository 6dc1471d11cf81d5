"""Settings: defaults, YAML, command-line overrides, and every fault named."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from gadget.checked_settings import fields_of, parse_override
from gadget.configs import default_config, prior_folders
from gadget.errors import SettingsError
from gadget.settings import Settings, load_settings, with_overrides
from reconlib.posterior.settings import PosteriorSettings as SamplingSettings


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def flat(values: dict, prefix: str = "") -> dict:
    found = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def test_the_documented_configuration_lists_every_key_with_its_default():
    documented = yaml.safe_load(default_config().read_text(encoding="utf-8"))

    assert flat(documented) == flat(Settings().model_dump())


def test_every_documented_key_has_a_comment_of_its_own():
    lines = default_config().read_text(encoding="utf-8").splitlines()
    commented, section = [], ""

    for before, line in pairwise(["", *lines]):
        if found := re.fullmatch(r"( *)(\w+):( .*)?", line):
            indent, name, value = found.groups()
            section = section if indent else ""
            if value is None:
                section = f"{name}."
            elif before.lstrip().startswith("#"):
                commented.append(f"{section}{name}")

    assert sorted(commented) == sorted(key for key, _ in fields_of(Settings))


def test_the_defaults_of_sampling_are_those_of_the_sampling():
    chosen, defaults = Settings().posterior, SamplingSettings()

    for name in ("sampler", "chains", "warmup", "draws", "thin"):
        assert getattr(chosen, name) == getattr(defaults, name)


def test_the_documented_configuration_changes_nothing():
    assert load_settings(default_config()) == Settings()


def test_an_empty_configuration_is_the_defaults(tmp_path):
    assert load_settings(written(tmp_path, "# nothing\n")) == Settings()


def test_the_default_prior_ships():
    assert (prior_folders()[0] / Settings().prior / "card.yaml").is_file()


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().seed = 3


def test_a_file_is_read_and_overrides_win(tmp_path):
    path = written(tmp_path, "prior: tv\nsolver: {iterations: 7, tolerance: 1e-4}\n")

    settings = load_settings(path, [parse_override("solver.iterations=9", Settings), ("seed", 5)])

    assert (settings.prior, settings.seed) == ("tv", 5)
    assert (settings.solver.iterations, settings.solver.tolerance) == (9, 1e-4)


def test_all_faults_are_named_at_once(tmp_path):
    path = written(
        tmp_path,
        """
        solver: {iteration: 3, iterations: -3, time_limit_s: soon}
        image_phase: softt
        scan: {keep_averages: 1}
        noise: 5
        prior: 3
        seed: .nan
        batch_slices: true
        posterior: {enabled: 1, sampler: nuts, draws: 1}
        wholly_unknown: 1
        """,
    )

    with pytest.raises(SettingsError) as caught:
        load_settings(path)

    assert str(caught.value).splitlines() == [
        f"{path} has 13 faults:",
        "  prior: found 3, needs a text that is not empty.",
        "  image_phase: found the text 'softt', needs one of prior, real, soft, free.",
        "  solver.iterations: found -3, needs a whole number >= 1 and <= 10000 or null.",
        "  solver.time_limit_s: found the text 'soon', needs a number > 0 or null.",
        "  solver.iteration: unknown key. Did you mean solver.iterations?",
        "  noise: found 5, needs the keys source, cache.",
        "  scan.keep_averages: found 1, needs true or false.",
        "  posterior.enabled: found 1, needs true or false.",
        "  posterior.sampler: found the text 'nuts', needs one of kinetic, langevin, mala, sk-rock.",
        "  posterior.draws: found 1, needs a whole number >= 2 and <= 100000.",
        "  batch_slices: found true, needs a whole number >= 1 and <= 1024.",
        "  seed: found nan, needs a whole number >= 0 and < 9223372036854775808.",
        "  wholly_unknown: unknown key. Known: " + ", ".join(key for key, _ in fields_of(Settings)) + ".",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("solver: {iterations: 10.0}", r"solver\.iterations: found 10\.0, needs a whole number"),
        ("solver: {iterations: '10'}", r"solver\.iterations: found the text '10', needs a whole number"),
        ("solver: {iterations: 10001}", r"found 10001, needs a whole number >= 1 and <= 10000"),
        ("solver: {imaginary_weight: null}", r"solver\.imaginary_weight: found null"),
        ("solver: {method: quick}", r"solver\.method: found the text 'quick', needs one of fast, paper"),
        ("solver: {coil_smoothness: 0}", r"coil_smoothness: found 0, needs a number > 0"),
        ("solver: {coil_smoothness: .inf}", r"coil_smoothness: found inf"),
        ("solver: {time_limit_s: 0}", r"time_limit_s: found 0, needs a number > 0 or null"),
        ("solver: [1]", r"solver: found a list, needs the keys method, iterations, coil_smoothness"),
        ("prior: ''", r"prior: found the text '', needs a text that is not empty"),
        ("prior: [tv]", r"prior: found a list, needs a text"),
        ("output: {pixel_type: float64}", r"pixel_type: .*needs one of auto, float, uint16, int16"),
        ("prior_weight: {rule: fixed}", r"rule 'fixed' needs a value: set prior_weight\.value"),
        ("prior_weight: {rule: noise, value: 2}", r"rule 'noise' takes no value: remove it"),
        ("iterations: 5", r"iterations: unknown key\. Did you mean solver\.iterations\?"),
        ("nois: {source: data}", r"nois: unknown key\. Did you mean noise\?"),
        ("noise: {qqqqqqqqq: true}", r"noise\.q+: unknown key\. Known: noise\.source, noise\.cache\."),
        ("- 1", r"holds a list; a configuration is a list of 'key: value' lines"),
        ("prior: tv\nprior: brain", r"not YAML: the key 'prior' stands twice"),
        ("prior: {", "is not YAML"),
        ("1: 2", "1: unknown key"),
    ],
)
def test_a_fault_says_what_was_found_and_what_is_allowed(tmp_path, text, fault):
    with pytest.raises(SettingsError, match=fault):
        load_settings(written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"Cannot read the configuration .*nothing\.yaml"):
        load_settings(tmp_path / "nothing.yaml")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_bytes(b"\xff\xfe\x00\x81")

    with pytest.raises(SettingsError, match="Cannot read the configuration"):
        load_settings(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("solver.iterations=50", ("solver.iterations", 50)),
        ("solver.tolerance = 1e-3", ("solver.tolerance", 1e-3)),
        ("solver.time_limit_s=null", ("solver.time_limit_s", None)),
        ("scan.keep_averages=false", ("scan.keep_averages", False)),
        ("prior=2024", ("prior", "2024")),
        ("prior=my=prior", ("prior", "my=prior")),
        ("image_phase=real", ("image_phase", "real")),
        ("unknown=1", ("unknown", 1)),
    ],
)
def test_an_override_is_read_as_yaml(text, expected):
    assert parse_override(text, Settings) == expected


@pytest.mark.parametrize("text", ["solver.iterations", "=5", " =5"])
def test_an_override_needs_a_key_and_a_value(text):
    with pytest.raises(SettingsError, match="sets nothing; write key=value"):
        parse_override(text, Settings)


def test_an_override_that_is_no_yaml_is_refused():
    with pytest.raises(SettingsError, match=r"solver\.iterations: '\[' is not a YAML value"):
        parse_override("solver.iterations=[", Settings)


@pytest.mark.parametrize("key", ["solver.iterations.deep", "solver", "iterations"])
def test_an_override_of_an_unknown_key_is_refused(key):
    with pytest.raises(SettingsError, match=re.escape(key)):
        with_overrides(Settings(), [(key, 5)])


def test_overrides_leave_the_settings_they_start_from_alone():
    before = Settings()

    after = with_overrides(before, [("solver.iterations", 5)])

    assert (before.solver.iterations, after.solver.iterations) == (None, 5)
