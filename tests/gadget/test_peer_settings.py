"""What a peer may set over a connection, and what it may not."""

import json
import logging

import pytest

from gadget.checked_settings import fields_of
from gadget.errors import SettingsError
from gadget.peer_settings import (
    LARGEST_TEXT,
    has_json_parameters,
    settings_from_config,
    settings_from_json,
    settings_from_xml,
)
from gadget.settings import Settings, load_settings

DECLARATION = '<?xml version="1.0"?>'


def parameters(**values: object) -> str:
    return json.dumps({"parameters": values})


def test_properties_of_a_gadgetron_chain_are_used_in_both_spellings(caplog):
    config = f"""{DECLARATION}
    <configuration>
        <property name="solver.iterations" value="12"/>
        <property><name>image_phase</name><value> real </value></property>
        <property name="alpha" value="1.5"/>
        <anything attr="x">free text &amp; more <property name="seed" value="9"/></anything>
    </configuration>"""

    settings = settings_from_xml(Settings(), config)

    assert (settings.solver.iterations, settings.image_phase, settings.seed) == (12, "real", 0)
    assert "not known here, not used: 'alpha'" in caplog.text


def test_a_namespace_does_not_hide_a_property():
    config = '<configuration xmlns="urn:x"><property name="seed" value="9"/></configuration>'

    assert settings_from_xml(Settings(), config).seed == 9


@pytest.mark.parametrize("config", ["", "  \n", DECLARATION, f"{DECLARATION}\n", "<configuration/>"])
def test_a_configuration_without_properties_changes_nothing(config):
    assert settings_from_xml(load_settings(None, [("seed", 4)]), config).seed == 4


def test_a_whole_chain_as_configuration_changes_nothing(caplog):
    config = '<gadgetronStreamConfiguration><property name="seed" value="9"/></gadgetronStreamConfiguration>'

    assert settings_from_xml(Settings(), config) == Settings()
    assert "XML whose root is not <configuration>: not used" in caplog.text


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("<configuration>", "is not XML"),
        ("just text", "is not XML"),
        ("<configuration>\udcff</configuration>", "is not XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><configuration/>', "document type declaration"),
        ('<configuration><property name="seed"/></configuration>', "a <property> with name only"),
        ("<configuration><property/></configuration>", "a <property> with nothing only"),
        (
            '<configuration><property name="solver.iteration" value="5"/></configuration>',
            r"solver\.iteration: unknown key\. Did you mean solver\.iterations",
        ),
        (
            '<configuration><property name="scan.keep_averages" value="maybe"/></configuration>',
            r"scan\.keep_averages: found the text 'maybe', needs true or false",
        ),
    ],
)
def test_a_faulty_gadgetron_configuration_is_refused(config, fault):
    with pytest.raises(SettingsError, match=fault):
        settings_from_xml(Settings(), config)


def test_json_parameters_may_be_texts_nested_or_plain(caplog):
    text = parameters(
        **{
            "solver.iterations": "5",
            "solverMethod": "paper",
            "scan": {"keep_averages": "true"},
            "seed": 3,
            "prior": "tv",
            "sendoriginal": "1",
        }
    )

    settings = settings_from_json(Settings(), text)

    assert (settings.solver.iterations, settings.solver.method) == (5, "paper")
    assert settings.scan.keep_averages is True
    assert (settings.seed, settings.prior) == (3, "tv")
    assert "not known here, not used: 'sendoriginal'" in caplog.text


@pytest.mark.parametrize("text", ["free text", "5", "[]", "{}", '{"parameters": 3}'])
def test_other_texts_change_nothing(text):
    assert settings_from_json(Settings(), text) == Settings()
    assert not has_json_parameters(text)


def test_a_text_from_a_peer_is_never_logged(caplog):
    caplog.set_level(logging.DEBUG)
    settings_from_json(Settings(), "Mustermann^Max")

    assert "Mustermann" not in caplog.text


def test_json_parameters_are_recognised():
    assert has_json_parameters(parameters(anything="1"))


@pytest.mark.parametrize("key", ["device", "threads", "batch_slices", "noise.cache", "rules", "rules.0"])
def test_a_peer_may_not_set_what_is_the_servers(key):
    with pytest.raises(SettingsError, match=rf"may not set:\n  {key}: it is the server's own"):
        settings_from_json(Settings(), parameters(**{key: "1"}))


@pytest.mark.parametrize("name", ["/etc", "../x", "a/b", "..", "a\\b", "a b", ".hidden"])
def test_a_peer_may_not_name_a_folder_as_prior(name):
    with pytest.raises(SettingsError, match="is not a plain name"):
        settings_from_json(Settings(), parameters(prior=name))


@pytest.mark.parametrize("value", ["60", "null", "soon"])
def test_a_peer_may_not_lengthen_the_time_limit(value):
    server = load_settings(None, [("solver.time_limit_s", 30)])

    with pytest.raises(SettingsError, match="the server allows at most 30"):
        settings_from_json(server, parameters(**{"solver.time_limit_s": value}))


def test_a_peer_may_shorten_the_time_limit_or_set_one():
    server = load_settings(None, [("solver.time_limit_s", 30)])
    limit = parameters(**{"solver.time_limit_s": "20"})

    assert settings_from_json(server, limit).solver.time_limit_s == 20
    assert settings_from_json(Settings(), limit).solver.time_limit_s == 20


@pytest.mark.parametrize(
    ("key", "allowed", "too_much", "limit"),
    [
        ("time_limit_s", "30", "31", "30 s per slice"),
        ("time_limit_s", "1.5", "null", "30 s per slice"),
        ("chains", "1", "3", "2"),
        ("warmup", "0", "41", "40"),
        ("draws", "100", "1001", "1000"),
        ("thin", "1", "2", "1"),
    ],
)
def test_a_peer_may_ask_for_less_sampling_and_not_for_more(key, allowed, too_much, limit):
    fewer = settings_from_json(Settings(), parameters(**{f"posterior.{key}": allowed}))

    assert getattr(fewer.posterior, key) == float(allowed)
    with pytest.raises(SettingsError, match=rf"posterior\.{key}: .* the server allows at most {limit}\.$"):
        settings_from_json(Settings(), parameters(**{f"posterior.{key}": too_much}))


def test_a_peer_may_do_without_uncertainty_and_not_ask_for_it():
    without = load_settings(None, [("posterior.enabled", False)])

    assert not settings_from_json(Settings(), parameters(**{"posterior.enabled": "false"})).posterior.enabled
    with pytest.raises(SettingsError, match="the server sends no uncertainty series"):
        settings_from_json(without, parameters(**{"posterior.enabled": "true"}))


@pytest.mark.parametrize("section", ["{draws: 100000}", "{enabled: true, draws: 100000}"])
def test_limits_hold_for_a_section_that_comes_as_one_text(section):
    config = f'<configuration><property name="posterior" value="{section}"/></configuration>'

    for change in (
        lambda: settings_from_xml(Settings(), config),
        lambda: settings_from_json(Settings(), parameters(posterior=section)),
    ):
        with pytest.raises(SettingsError, match=r"posterior\.draws: found 100000, but the server allows"):
            change()


def test_a_section_that_comes_as_one_text_leaves_its_other_keys_alone():
    config = '<configuration><property name="posterior" value="{draws: 50}"/></configuration>'
    started_with = load_settings(None, [("posterior.warmup", 7)])

    settings = settings_from_xml(started_with, config)

    assert (settings.posterior.draws, settings.posterior.warmup) == (50, 7)


def test_every_forbidden_key_is_named_at_once():
    with pytest.raises(SettingsError, match=r"device: .*\n.*threads: .*"):
        settings_from_json(Settings(), parameters(device="cpu", threads="2"))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("solverIterations", "5", ("solver", "iterations", 5)),
        ("priorweightfactor", "1.5", ("prior_weight", "factor", 1.5)),
        ("posteriorEnabled", "False", ("posterior", "enabled", False)),
        ("SCANKEEPAVERAGES", "True", ("scan", "keep_averages", True)),
        ("outputPixelType", "uint16", ("output", "pixel_type", "uint16")),
    ],
)
def test_openrecon_names_a_key_by_its_letters_and_digits(name, value, expected):
    section, key, wanted = expected

    settings = settings_from_json(Settings(), parameters(**{name: value}))

    assert getattr(getattr(settings, section), key) == wanted


def test_no_two_keys_have_the_same_letters_and_digits():
    letters = ["".join(filter(str.isalnum, key)).lower() for key, _ in fields_of(Settings)]

    assert len(set(letters)) == len(letters)


@pytest.mark.parametrize("name", ["noisecache", "batchSlices", "Threads"])
def test_what_is_the_servers_stays_so_by_its_letters(name):
    with pytest.raises(SettingsError, match="it is the server's own"):
        settings_from_json(Settings(), parameters(**{name: "1"}))


def test_an_empty_field_of_a_panel_sets_nothing():
    server = load_settings(None, [("prior", "tv"), ("solver.iterations", 7)])

    assert settings_from_json(server, parameters(prior="", solverIterations=" ")) == server


def test_names_of_configurations_are_no_foreign_names(caplog):
    settings_from_json(Settings(), parameters(config="simplefft", customconfig=""))

    assert caplog.text == ""


def test_a_configuration_file_of_ours_may_come_as_text(caplog):
    settings = settings_from_config(Settings(), "solver:\n  iterations: 12\nprior: tv\nfoo: 3\n")

    assert (settings.solver.iterations, settings.prior) == (12, "tv")
    assert "not known here, not used: 'foo'" in caplog.text


def test_a_configuration_text_may_be_the_json_of_a_fire_client():
    # As client.py of python-ismrmrd-server sends it with --config-local: a file as it is, with tabs.
    text = '{\n\t"version": "1.1.0",\n\t"parameters": {\n\t\t"solver.iterations": "9"\n\t}\n}\n'

    assert settings_from_config(Settings(), text).solver.iterations == 9


def test_a_configuration_text_may_be_json_without_parameters():
    assert settings_from_config(Settings(), '{"solver": {"iterations": 9}}').solver.iterations == 9


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("just text", r"The configuration holds the text 'just text'; a configuration is a list of"),
        ("prior: [", "The configuration is not YAML"),
        ("a: &a [*a]", r"The configuration is not YAML: an alias \(\*\) stands there; write the value out"),
        ("seed: 2024-13-45", "The configuration is not YAML: a value cannot be read"),
        ("noise: {cache: /tmp}", r"may not set:\n  noise\.cache: it is the server's own"),
        ("solver: {iterations: 0}", r"The configuration has 1 fault:\n  solver\.iterations: found 0"),
        (
            "prior: tv\n" * (LARGEST_TEXT // 10 + 1),
            "a text of 32770 characters that is not XML; at most 32768",
        ),
    ],
)
def test_a_faulty_configuration_text_is_refused(text, fault):
    with pytest.raises(SettingsError, match=fault):
        settings_from_config(Settings(), text)


def test_a_value_that_is_too_long_to_be_read_is_refused():
    with pytest.raises(
        SettingsError, match="prior: its text is not read; at most 32768 characters in all are"
    ):
        settings_from_json(Settings(), parameters(prior="a" * (LARGEST_TEXT + 1)))


def test_a_message_repeats_a_long_text_in_part_only():
    with pytest.raises(SettingsError, match="is not a YAML value") as caught:
        settings_from_json(Settings(), parameters(seed="[" * 1000))

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["[" * 100_000, '{"parameters": {"seed": ' + "9" * 5000 + "}}"])
def test_json_that_cannot_be_read_is_a_text_like_any_other(text):
    assert settings_from_json(Settings(), text) == Settings()


def test_of_very_many_unknown_names_few_are_logged(caplog):
    settings_from_json(Settings(), parameters(**{f"x{number:03}": 1 for number in range(500)}))

    assert "'x009' and 490 more" in caplog.text
    assert "x010" not in caplog.text
