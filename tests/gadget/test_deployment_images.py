"""Dockerfile and compose files, as far as they can be checked without a Docker engine."""

import json
import re

import yaml
from deployment_files import (
    DOCKER,
    ROOT,
    compose,
    dockerfile,
    image_command,
    options_of,
    output_of,
    the,
    tool,
)

from gadget.front.service import KEEPING_LINGER_S
from gadget.gadgetron_configs import chains

METADATA = "com.siemens-healthineers.magneticresonance.openrecon.metadata:1.1.0"


def test_the_linter_has_no_complaint_about_the_dockerfile():
    assert output_of(tool("hadolint"), "Dockerfile") == ""


def test_there_is_a_stage_for_cpu_one_for_cuda_and_one_for_openrecon():
    parents = {stage: arguments.split()[0] for stage, what, arguments in dockerfile() if what == "FROM"}

    assert (parents["cpu"], parents["cuda"], parents["openrecon"]) == ("base", "base", "cuda")
    assert parents["wheel"] == parents["base"]


def test_only_a_user_without_rights_runs_it():
    for stage in ("cpu", "cuda"):
        assert the("USER", stage) == "10001"
        assert [what for where, what, _ in dockerfile() if where == stage][-1] == "USER"
    assert "--uid 10001" in the("RUN", "base")


def test_the_image_runs_a_command_that_our_program_takes():
    options = options_of(image_command())

    assert options["host"] == ["0.0.0.0"]
    ports = the("EXPOSE", "base").split()
    assert [str(options["port"]), str(options["monitor"])] == ports
    assert str(options["spool"]) in json.loads(the("VOLUME", "base"))


def test_health_is_asked_of_the_monitor():
    check = the("HEALTHCHECK", "base")

    assert f"http://127.0.0.1:{options_of(image_command())['monitor']}/health" in check
    (command,) = re.findall(r"CMD (\[.*\])", check)
    python, flag, code = json.loads(command)
    assert (python, flag) == ("python", "-c")
    compile(code, "HEALTHCHECK", "exec")


def test_what_is_copied_is_there_and_not_ignored():
    kept = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    names = {line[1:] for line in kept if line.startswith("!")}

    assert "*" in kept
    assert all((ROOT / name).exists() for name in names)
    # What hatchling needs for the wheel, by pyproject.toml; and the pins.
    assert names == {
        *("config", "constraints.txt", "gadget", "LICENSE", "pyproject.toml", "README.md", "reconlib"),
    }
    for _, what, arguments in dockerfile():
        if what == "COPY" and "--from" not in arguments:
            assert arguments.split()[0] in {".", *names}


def test_packages_are_those_of_the_tested_versions():
    for stage in ("cpu", "cuda"):
        commands = the("RUN", stage)
        assert commands.count("pip install") == commands.count("--constraint /tmp/constraints.txt") > 0
    assert "[cuda]" in the("RUN", "cuda")


def test_the_label_has_openrecons_name():
    assert the("LABEL", "openrecon") == f'"{METADATA}"="${{OPENRECON_LABEL}}"'


def mounts(service: str) -> dict[str, str]:
    return dict(one.split(":", 1) for one in compose()["services"][service]["volumes"])


def test_docker_compose_takes_the_files():
    program = tool("docker-compose")
    output_of(program, "-f", "compose.yaml", "config", "--quiet")
    merged = output_of(program, "-f", "compose.yaml", "-f", "compose.cuda.yaml", "config")

    services = yaml.safe_load(merged)["services"]
    assert services["ebm"]["build"]["target"] == "cuda"
    assert services["ebm"]["deploy"]["resources"]["reservations"]["devices"][0]["driver"] == "nvidia"


def test_images_and_stages_fit_the_dockerfile():
    stages = {stage for stage, _, _ in dockerfile()}
    for name in ("compose.yaml", "compose.cuda.yaml"):
        services = compose(name)["services"]
        target = services["ebm"]["build"]["target"]
        assert target in stages
        assert services["ebm"]["image"] == services["install-chains"]["image"] == f"gadgetron-ebm:{target}"
    build = compose()["services"]["ebm"]["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve() == (DOCKER / "Dockerfile").resolve()


def test_gadgetrons_chains_connect_to_the_server_of_the_file():
    services = compose()["services"]
    options = options_of(["gadgetron-ebm", *services["install-chains"]["command"]])
    host, port = options["connect"].split(":")

    assert host in services
    assert int(port) == options_of(image_command())["port"]
    assert "ebm_connect.xml" in chains()
    assert f"{options['gadgetron_home']}/share/gadgetron/config" in mounts("install-chains")["chains"]
    assert mounts("gadgetron")["chains"].endswith("/share/gadgetron/config")


def test_volumes_are_the_folders_of_the_image():
    folders = json.loads(the("VOLUME", "base"))

    assert set(mounts("ebm").values()) == set(folders)
    assert set(compose()["volumes"]) == {"chains", "priors", "spool"}


def test_nothing_is_open_to_the_network_by_default():
    published = {name: one.get("ports", []) for name, one in compose()["services"].items()}

    assert published == {
        "ebm": ["127.0.0.1:9080:9080"],
        "gadgetron": ["${EBM_ADDRESS:-127.0.0.1}:9002:9002"],
        "install-chains": [],
    }


def test_a_running_scan_may_end_before_its_container_is_killed():
    drain = options_of(image_command())["drain"]

    grace = compose()["services"]["ebm"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) >= drain + KEEPING_LINGER_S + 15
