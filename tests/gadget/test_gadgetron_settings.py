"""Which settings the properties of a chain reach: all where it starts the process, else those of a peer."""

import pytest

from gadget.checked_settings import fields_of
from gadget.errors import SettingsError
from gadget.gadgetron_entry import settings_of_chain
from gadget.peer_settings import SERVERS_OWN, settings_from_xml
from gadget.settings import Settings, load_settings
from gadget.wire.messages import ConfigText

OTHER = {
    "prior": "tv",
    "device": "cpu",
    "image_phase": "free",
    "coils": "fixed",
    "solver.method": "paper",
    "solver.iterations": "7",
    "solver.coil_smoothness": "0.5",
    "solver.imaginary_weight": "0.4",
    "solver.tolerance": "1e-4",
    "solver.time_limit_s": "3.5",
    "prior_weight.rule": "noise",
    "prior_weight.value": "null",
    "prior_weight.factor": "2",
    "noise.source": "data",
    "noise.cache": "kept",
    "coil_compression.use": "never",
    "coil_compression.energy": "0.9",
    "coil_compression.virtual_coils": "6",
    "scan.calibration_in_data": "false",
    "scan.keep_averages": "true",
    "trajectory.units": "rad_per_m",
    "trajectory.delay_correction": "no",
    "trajectory.window": "34",
    "trajectory.window_step": "13",
    "output.images": "[magnitude, phase]",
    "output.pixel_type": "uint16",
    "posterior.enabled": "false",
    "posterior.sampler": "mala",
    "posterior.chains": "1",
    "posterior.warmup": "5",
    "posterior.draws": "11",
    "posterior.thin": "1",
    "posterior.time_limit_s": "2",
    "batch_slices": "4",
    "threads": "2",
    "seed": "9",
    "rules": "[{name: knees, when: {body_part: KNEE}, settings: {seed: 5}}]",
}
"""A value of each key, as a property has it, that is not the default where another is allowed."""
NEEDS = {"trajectory.window_step": "trajectory.window"}


def configuration(*keys: str) -> str:
    lines = "".join(f'<property name="{key}" value="{OTHER[key]}"/>' for key in keys)
    return f'<?xml version="1.0"?>\n<configuration>{lines}</configuration>\n'


def own(config: str) -> Settings:
    return settings_of_chain(ConfigText(config))


def read(settings: Settings, key: str) -> object:
    section, _, name = key.partition(".")
    value = getattr(settings, section)
    return getattr(value, name) if name else value


def test_every_key_is_tried_here():
    assert set(OTHER) == {key for key, _ in fields_of(Settings)}


@pytest.mark.parametrize("key", OTHER)
def test_a_chain_that_starts_the_process_reaches_every_setting(key):
    settings = own(configuration(key, *filter(None, [NEEDS.get(key)])))

    value = read(settings, key)
    if key == "rules":
        assert [rule.name for rule in settings.rules] == ["knees"]
    elif key in ("prior_weight.value", "posterior.thin"):
        assert value == read(Settings(), key)
    else:
        assert value != read(Settings(), key)
        as_file = load_settings(None, [(NEEDS[key], 34)] if key in NEEDS else [])
        assert type(value) is type(read(as_file, key)) or read(as_file, key) is None


@pytest.mark.parametrize("key", OTHER)
def test_a_chain_that_connects_reaches_what_is_not_the_servers_own(key):
    config = configuration(key, *filter(None, [NEEDS.get(key)]))
    if key in SERVERS_OWN:
        with pytest.raises(SettingsError, match=f"{key}.*: it is the server's own"):
            settings_from_xml(Settings(), config)
    else:
        assert read(settings_from_xml(Settings(), config), key) == read(own(config), key)


def test_what_a_chain_sets_holds_whatever_its_rule_says():
    settings = own(configuration("rules", "seed"))

    assert settings.seed == 9
    assert not settings.rules[0].settings


def test_all_faults_of_a_chain_are_told_at_once():
    config = configuration("seed").replace('"9"', '"x"')
    config = config.replace("</", '<property name="solver.iterations" value="0"/></', 1)

    with pytest.raises(SettingsError, match=r"(?s)seed.*solver\.iterations|solver\.iterations.*seed"):
        own(config)


def test_a_chain_may_name_a_configuration_and_lay_its_own_over_it():
    config = configuration("seed").replace("</", '<property name="config" value="total-variation"/></', 1)

    assert (own(config).prior, own(config).seed) == ("tv", 9)
    assert own(config.replace("</", '<property name="prior" value="mine"/></', 1)).prior == "mine"


def test_no_configuration_at_all_gives_the_defaults():
    assert own('<?xml version="1.0"?>\n') == Settings()
    assert own("<stuff/>") == Settings()
