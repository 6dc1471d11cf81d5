"""Settings for one scan after another: names that peers ask for, files that change while a server runs."""

import json
import logging
import os
import threading
from pathlib import Path

import pytest

from gadget.config_names import ConfigNames, asked_for
from gadget.configs import config_folder
from gadget.errors import FileError, SettingsError, WorkerGoneError
from gadget.settings import Settings, load_settings, with_rule
from gadget.settings_source import SettingsSource
from gadget.wire.messages import ConfigFile, ConfigText, ScanHeader, Text

HEADER = ScanHeader("<ismrmrdHeader/>")


@pytest.fixture
def own(tmp_path) -> Path:
    return written(tmp_path / "own.yaml", "prior: tv\nseed: 1\nsolver: {iterations: 7}\n")


@pytest.fixture
def configs(tmp_path) -> Path:
    folder = tmp_path / "configs"
    folder.mkdir()
    written(folder / "knee.yaml", "seed: 2\nsolver: {tolerance: 0.5}\n")
    return folder


def written(path: Path, text: str) -> Path:
    """Write a file so that it is seen to have changed, however coarse the file system's clock."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text, encoding="utf-8")
    if path.stat().st_mtime_ns <= before:
        os.utime(path, ns=(before + 1, before + 1))
    return path


def json_text(**parameters: str) -> Text:
    return Text(json.dumps({"version": "1.1.0", "parameters": parameters}))


def test_a_named_configuration_is_laid_over_the_servers_own_and_the_command_line_over_both(own, configs):
    source = SettingsSource(own, [("solver.iterations", 9)], configs=ConfigNames(configs))

    assert source.for_scan(ConfigFile("knee")) == load_settings(
        None, [("prior", "tv"), ("seed", 2), ("solver.iterations", 9), ("solver.tolerance", 0.5)]
    )


@pytest.mark.parametrize(
    "name", ["simplefft", "Knee", "../own", "configs/knee", "/etc/passwd", "os", "knee.yml", "a\nb", "\udcff"]
)
def test_an_unknown_name_leaves_the_servers_own_settings_and_is_said_in_the_log(own, configs, name, caplog):
    caplog.set_level(logging.INFO)
    source = SettingsSource(own, configs=ConfigNames(configs))

    assert source.for_scan(ConfigFile(name), HEADER) == load_settings(own)
    assert f"asks for the configuration {name!r}; there are default, " in caplog.text
    assert "knee" in caplog.text


@pytest.mark.parametrize(
    "head", [(), (None,), (HEADER,), (ConfigFile("default.xml"),), (ConfigFile("gadgetron-ebm"),)]
)
def test_the_servers_own_settings_hold_where_no_other_is_asked_for(own, configs, head, caplog):
    caplog.set_level(logging.INFO)
    source = SettingsSource(own, configs=ConfigNames(configs))

    assert source.for_scan(*head) == source.settings == load_settings(own)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ([ConfigFile("knee")], "knee"),
        ([ConfigFile(" knee.yaml\0\0rest")], "knee"),
        ([ConfigFile("knee.xml")], "knee"),
        ([ConfigFile("")], None),
        ([ConfigFile("openrecon"), HEADER, json_text(config="knee")], "knee"),
        ([ConfigFile("openrecon"), HEADER, json_text(config="knee", customconfig="head")], "head"),
        ([ConfigFile("openrecon"), HEADER, json_text(config="knee", customconfig="")], "knee"),
        ([ConfigFile("openrecon"), HEADER, json_text(customconfig=" ")], "openrecon"),
        ([ConfigFile("openrecon"), HEADER, Text("[" * 100_000)], "openrecon"),
        ([ConfigFile("openrecon"), HEADER, Text('{"parameters": {"config": 5}}')], "openrecon"),
        ([ConfigText('{"parameters": {"config": "knee"}}')], "knee"),
        ([ConfigText('<configuration><property name="config" value="knee"/></configuration>')], "knee"),
        ([ConfigText('<configuration><property name="config"/></configuration>')], None),
        ([ConfigText("<configuration/>")], None),
        ([ConfigText("<broken")], None),
        ([ConfigText("")], None),
    ],
)
def test_where_a_peer_puts_the_name_of_a_configuration(head, name):
    assert asked_for(head) == name


def test_what_a_named_configuration_sets_holds_before_the_servers_rules(own, configs):
    rules = "rules: [{name: all, settings: {seed: 5, solver.iterations: 8, prior: brain-local}}]\n"
    written(own, "prior: tv\n" + rules)
    source = SettingsSource(own, [("prior", "tv")], configs=ConfigNames(configs))

    def with_its_rule(settings: Settings) -> tuple[int, int, str]:
        ruled = with_rule(settings, settings.rules[0])
        return ruled.seed, ruled.solver.iterations, ruled.prior

    assert with_its_rule(source.for_scan(None)) == (5, 8, "tv")
    assert with_its_rule(source.for_scan(ConfigFile("knee"))) == (2, 8, "tv")


def test_the_rules_of_a_named_configuration_take_the_place_of_the_servers(own, configs):
    written(own, "rules: [{name: all, settings: {seed: 5}}]\n")
    written(configs / "knee.yaml", "seed: 2\nrules: [{name: other, settings: {seed: 3}}]\n")
    (rule,) = SettingsSource(own, configs=ConfigNames(configs)).for_scan(ConfigFile("knee")).rules

    assert (rule.name, rule.settings) == ("other", {"seed": 3})


def test_a_file_of_the_site_counts_before_a_shipped_one_of_its_name(own, configs):
    written(configs / "images-only.yaml", "seed: 3\n")

    assert SettingsSource(own, configs=ConfigNames(configs)).for_scan(ConfigFile("images-only")).seed == 3


def test_every_shipped_configuration_can_be_asked_for_and_changes_something():
    source = SettingsSource(None)
    names = {path.stem for path in (config_folder() / "recon").glob("*.yaml")} - {"default"}

    assert {"total-variation", "images-only", "phase-images", "by-body-part"} <= names
    for name in names:
        assert source.for_scan(ConfigFile(name)) != Settings()
    assert source.for_scan(ConfigFile("total-variation")).prior == "tv"
    assert not source.for_scan(ConfigFile("images-only")).posterior.enabled
    assert source.for_scan(ConfigFile("phase-images")).output.images == ["magnitude", "phase"]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("knee", "seed: -1", r"knee\.yaml has 1 fault:\n  seed: found -1"),
        ("knee", "device: cpu\nthreads: 1", r"knee\.yaml has 2 faults:\n  device: it cannot be set here"),
        ("default", "seed: 1", r"default\.yaml: the name 'default' stands for the settings that the server"),
        ("a b", "seed: 1", r"a b\.yaml: a configuration that is asked for by its name needs one of letters"),
    ],
)
def test_a_fault_in_what_can_be_asked_for_is_told_at_the_start(own, configs, name, text, fault):
    written(configs / f"{name}.yaml", text)

    with pytest.raises(SettingsError, match=fault):
        SettingsSource(own, configs=ConfigNames(configs))


def test_a_folder_that_is_not_there_is_told_at_the_start(own, tmp_path):
    with pytest.raises(SettingsError, match=r"Cannot read the folder of configurations .*nowhere"):
        SettingsSource(own, configs=ConfigNames(tmp_path / "nowhere"))


def test_a_changed_file_holds_from_the_next_scan_on(own, configs, caplog):
    caplog.set_level(logging.INFO)
    source = SettingsSource(own, configs=ConfigNames(configs))
    running = source.for_scan(None)

    written(own, "prior: tv\nseed: 11\n")
    written(configs / "knee.yaml", "solver: {iterations: 3}\n")
    written(configs / "head.yaml", "seed: 5\n")

    assert running.seed == 1
    assert source.for_scan(None).seed == 11
    assert source.for_scan(ConfigFile("knee")).solver.iterations == 3
    assert source.for_scan(ConfigFile("head")).seed == 5
    assert caplog.text.count("was read again and holds from the next scan on") == 1


def test_a_file_that_is_replaced_by_one_of_the_same_time_and_size_is_seen(own, tmp_path):
    source = SettingsSource(own)
    other = tmp_path / "other.yaml"
    other.write_text(own.read_text(encoding="utf-8").replace("seed: 1", "seed: 9"), encoding="utf-8")
    found = own.stat()
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(own)

    assert source.for_scan(None).seed == 9


def test_a_bad_new_configuration_keeps_the_old_one_says_so_once_and_a_good_one_ends_that(
    own, configs, caplog
):
    source = SettingsSource(own, configs=ConfigNames(configs))

    written(own, "seed: 12\n")
    written(configs / "knee.yaml", "sead: 3\n")
    for _ in range(3):
        assert source.for_scan(None) == load_settings(
            None, [("prior", "tv"), ("seed", 1), ("solver.iterations", 7)]
        )
    assert source.for_scan(ConfigFile("knee")).seed == 2
    assert caplog.text.count("is not used; the one before goes on to hold") == 1
    assert "knee.yaml has 1 fault:\n  sead: unknown key. Did you mean seed?" in caplog.text

    written(configs / "knee.yaml", "seed: 3\n")
    assert source.for_scan(None).seed == 12
    assert source.for_scan(ConfigFile("knee")).seed == 3


def test_a_file_that_is_gone_keeps_what_it_said(own, caplog):
    source = SettingsSource(own)
    own.unlink()

    assert source.for_scan(None).seed == 1
    assert "Cannot read the configuration" in caplog.text


def test_a_request_reads_again_though_no_file_changed(own, caplog):
    caplog.set_level(logging.INFO)
    checked = []
    source = SettingsSource(own, check=checked.append)

    source.for_scan(None)
    assert checked == []
    source.request_reload()
    source.for_scan(None)
    source.for_scan(None)

    assert checked[0] == source.settings
    assert checked.count(source.settings) == 1
    assert caplog.text.count("was read again") == 1


def test_what_the_check_refuses_is_not_taken(own, caplog):
    def check(settings: Settings) -> None:
        if settings.prior == "broken":
            raise FileError("the weights are not those of the card")

    source = SettingsSource(own, check=check)
    written(own, "prior: broken\n")

    assert source.for_scan(None).prior == "tv"
    assert "goes on to hold. the weights are not those of the card" in caplog.text


@pytest.mark.parametrize(("n_deaths", "seed"), [(1, 22), (2, 1)])
def test_what_a_worker_died_over_is_tried_once_more_with_the_next_scan(own, n_deaths, seed):
    """It may have died of a scan that ran; where it dies again, the settings are not tried any more."""
    checked = []

    def check(settings: Settings) -> None:
        checked.append(settings.seed)
        if len(checked) <= n_deaths:
            raise WorkerGoneError("It died.")

    source = SettingsSource(own, check=check)
    written(own, "prior: tv\nseed: 22\n")
    assert source.for_scan().seed == 1
    assert source.for_scan().seed == seed
    n_checked = len(checked)
    assert source.for_scan().seed == seed
    assert len(checked) == n_checked


def test_the_prior_of_each_rule_and_name_is_checked(own, configs):
    rules = (
        "rules: [{name: a, when: {coils: 1}, settings: {prior: one}}, {name: b, settings: {prior: two}}]\n"
    )
    written(configs / "knee.yaml", rules)
    checked: list[Settings] = []

    SettingsSource(own, configs=ConfigNames(configs), check=checked.append).verify()

    assert {one.prior for one in checked} == {"tv", "brain-local", "one", "two"}
    with pytest.raises(FileError, match="no such prior"):
        SettingsSource(own, check=_refuse).verify()


def test_what_can_be_asked_for_and_not_be_used_is_a_warning(own, configs, caplog):
    written(configs / "knee.yaml", "prior: broken\n")

    def check(settings: Settings) -> None:
        if settings.prior == "broken":
            raise FileError("the weights are not those of the card")

    SettingsSource(own, configs=ConfigNames(configs), check=check).verify()

    (told,) = caplog.messages
    assert "configuration knee cannot be used by peers that ask for it: the weights are not those" in told


def _refuse(_settings: Settings) -> None:
    raise FileError("no such prior")


def test_device_and_threads_hold_until_a_restart(own, caplog):
    source = SettingsSource(own)
    written(own, "seed: 4\ndevice: cpu\nthreads: 3\n")

    found = source.for_scan(None)

    assert (found.seed, found.device, found.threads) == (4, "auto", None)
    assert "What changed in device and threads holds after a restart only." in caplog.text


def test_a_scan_does_not_wait_for_a_reload_that_another_one_does(own):
    entered, go_on = threading.Event(), threading.Event()

    def check(_settings: Settings) -> None:
        entered.set()
        assert go_on.wait(5)

    source = SettingsSource(own, check=check)
    written(own, "seed: 4\n")
    slow = threading.Thread(target=source.for_scan)
    slow.start()
    try:
        assert entered.wait(5)
        assert source.for_scan(None).seed == 1
    finally:
        go_on.set()
        slow.join(5)
    assert source.for_scan(None).seed == 4
