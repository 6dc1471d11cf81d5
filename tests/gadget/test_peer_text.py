"""Texts of peers, whatever is in them: read, or refused in words."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gadget.checked_settings import fields_of
from gadget.config_names import asked_for
from gadget.errors import SettingsError
from gadget.peer_settings import (
    NOT_RAISED,
    SERVERS_OWN,
    has_json_parameters,
    settings_from_config,
    settings_from_json,
)
from gadget.peer_text import json_parameters, xml_properties, yaml_values
from gadget.settings import Settings
from gadget.wire.messages import ConfigText, Text

KEYS = [key for key, _ in fields_of(Settings)]
SECTIONS = sorted({key.partition(".")[0] for key in KEYS})
ODD = [
    "!!map [x]",
    "!!bool x",
    "!!int ''",
    "2024-13-45",
    "9" * 5000,
    "&a [*a]",
    "<<: 3",
    "? [1]",
    "0x",
    "{1: 2}",
]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(ODD),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS, *SECTIONS, "x"]) | st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
named = st.dictionaries(st.sampled_from([*KEYS, *SECTIONS]) | st.text(max_size=12), values, max_size=5)
texts = st.one_of(
    st.text(max_size=200),
    named.map(json.dumps),
    named.map(lambda one: json.dumps({"parameters": one})),
    st.tuples(st.sampled_from(KEYS), st.sampled_from(ODD) | st.text(max_size=30)).map(": ".join),
    st.tuples(st.sampled_from(KEYS), st.sampled_from(ODD) | st.text("<>&'ab\"{}[]:*!", max_size=30)).map(
        lambda one: f'<configuration><property name="{one[0]}" value="{one[1]}"/></configuration>'
    ),
)


@settings(max_examples=100, deadline=None)
@given(text=texts)
@example(text="[" * 2_000)
@example(text="{" * 50_000)
@example(text="<a>" * 50_000)
@example(text='{"parameters": ' * 50_000)
@example(text="seed: !!timestamp foo")
def test_any_text_is_read_or_refused_in_words_and_never_gets_past_what_a_peer_may_set(text):
    server = Settings()
    asked_for([ConfigText(text), Text(text)])
    has_json_parameters(text)

    for read in (settings_from_config, settings_from_json):
        try:
            found = read(server, text)
        except SettingsError:
            continue
        for key in (*SERVERS_OWN, *NOT_RAISED):
            section, _, rest = key.partition(".")
            before, after = getattr(server, section), getattr(found, section)
            if rest:
                before, after = getattr(before, rest), getattr(after, rest)
            if key in NOT_RAISED:
                assert before is None or after <= before
            else:
                assert after == before


def test_properties_are_read_in_order_and_other_xml_is_told_apart():
    text = '<configuration><property name="b" value="1"/><x/><property name="a" value=""/></configuration>'

    assert xml_properties(text) == [("b", "1"), ("a", "")]
    assert xml_properties('<?xml version="1.0"?>') == []
    assert xml_properties("<stream/>") is None


def test_parameters_are_an_object_in_an_object():
    assert json_parameters('{"version": "1.1.0", "parameters": {"a": "1"}}') == {"a": "1"}
    for other in ('{"parameters": [1]}', "[]", "3", "{", ""):
        assert json_parameters(other) is None


def test_yaml_that_is_empty_sets_nothing():
    assert yaml_values("# nothing\n") == {}


def test_an_anchor_alone_is_no_alias():
    assert yaml_values("seed: &here 3\n") == {"seed": 3}
    with pytest.raises(SettingsError, match=r"an alias \(\*\) stands there; write the value out"):
        yaml_values("seed: &here 3\nbatch_slices: *here\n")
