"""Rules and configurations by name, from a scan's messages to the images that come back."""

import json
import logging
from pathlib import Path

import pytest
import yaml
from scripted_sampling import ScriptedSampling
from simulated_scans import StandIn, make_scan, meta_of, reconstructor, scan_messages

from gadget.config_names import ConfigNames
from gadget.errors import SettingsError
from gadget.pipeline import reconstruct_stream
from gadget.settings import Settings, load_settings
from gadget.settings_source import SettingsSource
from gadget.wire.messages import ConfigFile, ConfigText, Image, Text

OTHER = {"name": "other", "settings": {"seed": 2}}
ALL_OF_IT = {
    "name": "three-coils",
    "when": {"coils": 3, "matrix": [20, 26], "pixel_spacing_mm": 10},
    "settings": {"solver.iterations": 4, "posterior.draws": 50, "prior_weight.factor": 3.0},
}


def written(path: Path, **content: object) -> Path:
    base = {"prior": "tv", "device": "cpu", "posterior": {"enabled": False}}
    path.write_text(yaml.safe_dump(base | content), encoding="utf-8")
    return path


def ruled(tmp_path: Path, *rules: dict, **content: object) -> Settings:
    return load_settings(written(tmp_path / "settings.yaml", rules=list(rules), **content))


def reconstructed(messages, chosen: Settings, **others):
    """Return the images, and what the joint reconstruction was called with."""
    joint = StandIn()
    made = reconstructor(joint, **others)
    answers = list(reconstruct_stream(messages, chosen, reconstructor=made))
    return [one for one in answers if isinstance(one, Image)], joint.calls


def parameters(**values: object) -> Text:
    return Text(json.dumps({"parameters": values}))


def test_the_rule_that_fits_chooses_settings_and_stands_in_meta_and_log(tmp_path, caplog):
    caplog.set_level(logging.INFO)

    images, calls = reconstructed(scan_messages(tmp_path, n_slices=2), ruled(tmp_path, ALL_OF_IT, OTHER))

    assert {(one["settings"].iterations, one["settings"].prior_weight_factor) for one in calls} == {(4, 3.0)}
    assert [meta_of(image)["EBM_Rule"] for image in images] == ["three-coils"] * 2
    assert "The rule three-coils fits this scan and sets: posterior.draws 50" in caplog.text


def test_images_of_the_posterior_name_the_rule_too(tmp_path):
    chosen = ruled(tmp_path, ALL_OF_IT, posterior={"enabled": True})

    images, _ = reconstructed(scan_messages(tmp_path, n_slices=1), chosen, sampling=ScriptedSampling())

    assert [meta_of(image)["EBM_Rule"] for image in images] == ["three-coils"] * 3


def test_where_no_rule_fits_nothing_is_changed_and_no_rule_is_named(tmp_path):
    far = ALL_OF_IT | {"when": {"coils": 64}}

    images, calls = reconstructed(scan_messages(tmp_path, n_slices=1), ruled(tmp_path, far))

    assert calls[0]["settings"].iterations == Settings().solver.iterations
    assert "EBM_Rule" not in meta_of(images[0])


def test_a_peer_s_own_values_count_before_a_rule_within_what_the_rule_allows(tmp_path):
    chosen = ruled(tmp_path, ALL_OF_IT)
    messages = scan_messages(tmp_path, n_slices=1)

    _, calls = reconstructed([*messages[:1], parameters(solverIterations="6"), *messages[1:]], chosen)

    assert calls[0]["settings"].iterations == 6
    with pytest.raises(SettingsError, match=r"posterior\.draws: found 51, but the server allows at most 50"):
        reconstructed([*messages[:1], parameters(posteriorDraws="51"), *messages[1:]], chosen)


def test_a_peer_may_not_set_rules(tmp_path):
    messages = scan_messages(tmp_path, n_slices=1)

    for asked in (
        parameters(rules=[OTHER]),
        ConfigText(yaml.safe_dump({"rules": [OTHER]})),
        ConfigText('<configuration><property name="rules" value="[]"/></configuration>'),
    ):
        with pytest.raises(SettingsError, match="rules: it is the server's own"):
            reconstructed([asked, *messages], ruled(tmp_path, ALL_OF_IT))


def test_the_rules_of_a_configuration_that_fire_asks_for_by_name_hold(tmp_path):
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "thorax.yaml").write_text(yaml.safe_dump({"rules": [ALL_OF_IT]}), encoding="utf-8")
    source = SettingsSource(written(tmp_path / "own.yaml"), configs=ConfigNames(folder))
    header, *data = scan_messages(tmp_path, n_slices=1)
    head = [ConfigFile("openrecon"), header, parameters(config="thorax", solverTolerance="0.5")]

    images, calls = reconstructed([*head, *data], source.for_scan(*head))

    assert (calls[0]["settings"].iterations, calls[0]["settings"].tolerance) == (4, 0.5)
    assert meta_of(images[0])["EBM_Rule"] == "three-coils"


def test_a_configuration_text_of_a_fire_client_makes_it_one_for_the_pixel_type(tmp_path):
    config = ConfigText('{"parameters": {"solverIterations": "5"}}')

    images, calls = reconstructed([config, *scan_messages(tmp_path, n_slices=1)], ruled(tmp_path))

    assert calls[0]["settings"].iterations == 5
    assert images[0].data.dtype == "int16"


def test_check_config_says_which_rule_fits_a_recorded_scan_and_why_the_others_do_not(run, tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=1)
    near = {"name": "near", "when": {"coils": [4, None], "body_part": "HEAD"}, "settings": {"seed": 1}}
    config = written(tmp_path / "settings.yaml", rules=[near, ALL_OF_IT, OTHER])

    code, out, err = run("check-config", config, "--for", scan)

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{config}: good (prior tv)",
        f"{scan}: rule three-coils, prior tv",
        "  near: body_part: the header does not say it; coils: 3 is not at least 4",
        "  three-coils: fits",
        "  other: fits, but comes later",
    ]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([], "it has no rules, prior tv"),
        ([ALL_OF_IT | {"when": {"coils": 9}}], "none of its rules fits, prior"),
    ],
)
def test_check_config_says_where_no_rule_fits(run, tmp_path, rules, words):
    scan = make_scan(tmp_path / "scan.h5", n_slices=1)
    config = written(tmp_path / "settings.yaml", rules=rules)

    code, out, _ = run("check-config", config, "--for", scan)

    assert code == 0
    assert f"{scan}: {words}" in out


def test_check_config_verifies_the_prior_of_each_rule(run, tmp_path):
    wrong = {"name": "wrong", "settings": {"prior": "no-such-prior"}}

    code, _, err = run("check-config", written(tmp_path / "settings.yaml", rules=[wrong]))

    assert code == 1
    assert "no-such-prior" in err
