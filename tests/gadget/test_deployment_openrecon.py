"""The OpenRecon label: by the rules of its schema 1.1.0, and against what we do with its parameters."""

import json
import re
from importlib.metadata import version

from deployment_files import DOCKER, image_command, options_of

from gadget.config_names import OWN, ConfigNames
from gadget.peer_settings import settings_from_json
from gadget.settings import Settings

LABEL = json.loads((DOCKER / "OpenReconLabel.json").read_text(encoding="utf-8"))


def test_it_names_this_version():
    general = LABEL["general"]

    assert general["version"] == version("gadgetron-ebm")
    assert re.fullmatch(r"\d+\.\d+\.\d+", general["version"])
    assert general["regulatory_information"]["production_identifier"] == general["version"]
    assert general["regulatory_information"]["material_number"].endswith(general["version"])
    assert set(general) == {"name", "version", "vendor", "information", "id", "regulatory_information"}


def test_it_asks_for_raw_data_on_the_port_of_the_image():
    reconstruction = LABEL["reconstruction"]

    assert reconstruction["port"] == options_of(image_command())["port"]
    assert (reconstruction["emitter"], reconstruction["injector"]) == ("raw", "image")
    assert reconstruction["transfer_protocol"] == {"protocol": "ISMRMRD", "version": "1.4.1"}
    assert reconstruction["content_qualification_type"] == "RESEARCH"


def test_parameters_have_the_form_that_openrecon_takes():
    parameters = LABEL["parameters"]

    assert len(parameters) <= 14
    for one in parameters:
        assert re.fullmatch("[A-Za-z0-9]+", one["id"])
        assert one["type"] in ("string", "choice")
        assert set(one) == {"id", "label", "type", "default", "information"} | (
            {"values"} if one["type"] == "choice" else set()
        )
        assert {"en"} == set(one["label"]) == set(one["information"])


def test_the_configurations_that_can_be_chosen_are_there():
    (config,) = [one for one in LABEL["parameters"] if one["id"] == "config"]
    names = [value["id"] for value in config["values"]]

    assert config["default"] == names[0]
    assert names[0] in OWN
    assert set(names[1:]) <= set(ConfigNames().files())


def test_a_panel_that_nobody_touched_changes_nothing():
    untouched = {one["id"]: one["default"] for one in LABEL["parameters"]}

    assert settings_from_json(Settings(), json.dumps({"parameters": untouched})) == Settings()


def test_what_is_filled_in_arrives(caplog):
    filled = {
        "prior": "tv",
        "priorweightfactor": "0.5",
        "solveriterations": "42",
        "posteriortimelimits": "12.5",
    }
    assert {*filled, "config", "customconfig"} == {one["id"] for one in LABEL["parameters"]}

    found = settings_from_json(Settings(), json.dumps({"parameters": {**filled, "config": "default"}}))

    assert found.prior == "tv"
    assert found.prior_weight.factor == 0.5
    assert found.solver.iterations == 42
    assert found.posterior.time_limit_s == 12.5
    assert "not known here" not in caplog.text
