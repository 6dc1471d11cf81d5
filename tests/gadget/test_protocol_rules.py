"""Rules by protocol: which one fits a scan's header, and what then holds."""

import logging

import pytest
import yaml

from gadget.configs import config_folder
from gadget.errors import ScanError, SettingsError
from gadget.protocol_rules import facts_of, facts_of_scan, judged, with_fitting_rule
from gadget.scan.header import parse_scan_header
from gadget.settings import Settings, load_settings, with_overrides

HEADER = """<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
  <studyInformation><bodyPartExamined>Brain</bodyPartExamined></studyInformation>
  <measurementInformation>
    <patientPosition>HFS</patientPosition>
    <protocolName>T2_TSE_Mustermann</protocolName>
    <sequenceName>tse2d1_15</sequenceName>
  </measurementInformation>
  <acquisitionSystemInformation>
    <systemFieldStrength_T>2.89362</systemFieldStrength_T>
    <receiverChannels>20</receiverChannels>
  </acquisitionSystemInformation>
  <experimentalConditions><H1resonanceFrequency_Hz>123194000</H1resonanceFrequency_Hz></experimentalConditions>
  <encoding>
    <encodedSpace>
      <matrixSize><x>512</x><y>208</y><z>1</z></matrixSize>
      <fieldOfView_mm><x>460.8</x><y>187.2</y><z>5</z></fieldOfView_mm>
    </encodedSpace>
    <reconSpace>
      <matrixSize><x>256</x><y>208</y><z>1</z></matrixSize>
      <fieldOfView_mm><x>230.4</x><y>187.2</y><z>5</z></fieldOfView_mm>
    </reconSpace>
    <trajectory>cartesian</trajectory>
    <encodingLimits/>
  </encoding>
  <sequenceParameters><TR>4000</TR><TE>95</TE><TE>190</TE><TI>120.5</TI></sequenceParameters>
</ismrmrdHeader>"""
NAMES = ("Mustermann", "T2_TSE", "tse2d1", "Brain")


def facts(header: str = HEADER, n_channels: int | None = None):
    return facts_of(parse_scan_header(header), n_channels)


def settings_with(tmp_path, rules: list[dict], overrides=()) -> Settings:
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump({"prior": "tv", "rules": rules}), encoding="utf-8")
    return load_settings(path, overrides)


def rule(name: str = "one", when: dict | None = None, **settings: object) -> dict:
    return {"name": name, "when": when or {}, "settings": settings or {"prior": "brain-local"}}


@pytest.mark.parametrize(
    ("condition", "wanted", "failure"),
    [
        ("protocol_name", "t2_*", ""),
        ("protocol_name", ["*flair*", "*TSE*"], ""),
        ("protocol_name", "t2", "the header's is not 't2'"),
        ("protocol_name", ["a*", "b*"], "the header's is not 'a*' or 'b*'"),
        ("sequence_name", "tse2d*", ""),
        ("body_part", ["HEAD", "BRAIN"], ""),
        ("body_part", "KNEE", "the header's is not 'KNEE'"),
        ("field_strength_t", [2.5, 3.5], ""),
        ("field_strength_t", 3, "2.894 is not 3"),
        ("field_strength_t", [None, 1.5], "2.894 is not at most 1.5"),
        ("coils", 20, ""),
        ("coils", [21, None], "20 is not at least 21"),
        ("matrix", [208, 256], ""),
        ("matrix", [210, 256], "256 x 208 is not 210 to 256"),
        ("matrix", [128, 250], "256 x 208 is not 128 to 250"),
        ("pixel_spacing_mm", [0.5, 0.9], ""),
        ("pixel_spacing_mm", [0.91, 2], "0.9 x 0.9 is not 0.91 to 2"),
        ("echo_time_ms", [90, 100], ""),
        ("echo_time_ms", [180, 200], "95 is not 180 to 200"),
        ("repetition_time_ms", [3000, None], ""),
        ("inversion_time_ms", [2000, 3000], "120.5 is not 2000 to 3000"),
    ],
)
def test_a_condition_holds_or_says_why_not(tmp_path, condition, wanted, failure):
    (verdict,) = judged(settings_with(tmp_path, [rule(when={condition: wanted})]).rules, facts())

    assert verdict.failed == ((f"{condition}: {failure}",) if failure else ())


@pytest.mark.parametrize(
    ("condition", "wanted", "element"),
    [
        ("protocol_name", "*", "<protocolName>T2_TSE_Mustermann</protocolName>"),
        ("body_part", "*", "<bodyPartExamined>Brain</bodyPartExamined>"),
        ("inversion_time_ms", [0, None], "<TI>120.5</TI>"),
        ("field_strength_t", [0, None], "<systemFieldStrength_T>2.89362</systemFieldStrength_T>"),
        ("coils", [0, None], "<receiverChannels>20</receiverChannels>"),
    ],
)
def test_what_the_header_does_not_say_fits_no_condition(tmp_path, condition, wanted, element):
    rules = settings_with(tmp_path, [rule(when={condition: wanted})]).rules
    assert element in HEADER

    (verdict,) = judged(rules, facts(HEADER.replace(element, "")))

    assert verdict.failed == (f"{condition}: the header does not say it",)


def test_the_first_readout_tells_the_coils_where_the_header_does_not(tmp_path):
    rules = settings_with(tmp_path, [rule(when={"coils": 12})]).rules
    silent = HEADER.replace("<receiverChannels>20</receiverChannels>", "")

    assert judged(rules, facts(silent, n_channels=12))[0].fits
    assert not judged(rules, facts(HEADER, n_channels=12))[0].fits


def test_all_conditions_have_to_hold(tmp_path):
    when = {"body_part": "brain", "coils": [32, 64], "matrix": [300, 400]}

    (verdict,) = judged(settings_with(tmp_path, [rule(when=when)]).rules, facts())

    assert verdict.failed == ("matrix: 256 x 208 is not 300 to 400", "coils: 20 is not 32 to 64")


def test_the_first_rule_that_fits_sets_what_it_says_and_no_other_does(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    settings = settings_with(
        tmp_path,
        [
            rule("knee", {"body_part": "knee"}, seed=1),
            rule("brain", {"body_part": "brain"}, **{"seed": 2, "solver": {"iterations": 9}}),
            rule("rest", None, **{"seed": 3, "prior_weight.factor": 2.0}),
        ],
    )

    found, name = with_fitting_rule(settings, facts())

    assert name == "brain"
    assert found == load_settings(None, [("prior", "tv"), ("seed", 2), ("solver.iterations", 9)])
    assert "The rule brain fits this scan and sets: seed 2, solver.iterations 9." in caplog.text


def test_where_no_rule_fits_the_log_says_why_without_the_header_s_texts(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    settings = settings_with(
        tmp_path, [rule("knee", {"body_part": "knee", "protocol_name": "a*"}), rule("far", {"coils": 4})]
    )

    found, name = with_fitting_rule(settings, facts())

    assert (found, name) == (load_settings(None, [("prior", "tv")]), None)
    assert "None of 2 rule(s) fits this scan" in caplog.text
    assert (
        "knee: protocol_name: the header's is not 'a*'; body_part: the header's is not 'knee'." in caplog.text
    )
    assert "far: coils: 20 is not 4." in caplog.text
    assert not any(one in caplog.text for one in NAMES)


def test_what_the_command_line_sets_holds_whatever_a_rule_says(tmp_path):
    settings = settings_with(
        tmp_path, [rule("all", None, prior="brain-local", seed=5)], overrides=[("prior", "tv")]
    )

    found, _ = with_fitting_rule(settings, facts())

    assert (found.prior, found.seed) == ("tv", 5)


def test_a_rule_of_which_the_command_line_leaves_nothing_still_fits(tmp_path):
    settings = settings_with(tmp_path, [rule("all", None, seed=5)], overrides=[("seed", 1)])

    assert with_fitting_rule(with_overrides(settings, [("solver.iterations", 4)]), facts())[1] == "all"


def test_settings_with_rules_come_through_json_as_they_are(tmp_path):
    settings = settings_with(
        tmp_path, [rule("one", {"coils": [8, None], "body_part": ["a", "b"]}, **{"solver.tolerance": 1e-4})]
    )

    assert Settings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        (5, r"rules: found 5, needs a list, each entry a group of keys"),
        ([3], r"rules\[0\]: found 3, needs the keys name, when\.protocol_name"),
        ([{"name": "a"}], r"rules\[0\]\.settings: missing, needs a group of keys"),
        ([{"settings": {"seed": 1}}], r"rules\[0\]\.name: missing, needs a text"),
        ([rule("a/b")], r"rules\[0\]\.name: needs 1 to 40 letters, digits"),
        (
            [rule(when={"body_prt": "a"})],
            r"rules\[0\]\.when\.body_prt: unknown key\. Did you mean when\.body_part",
        ),
        ([rule(when={"body_part": []})], r"when\.body_part: needs a text, or a list of texts"),
        ([rule(when={"body_part": 3})], r"when\.body_part: needs a text, or a list of texts"),
        ([rule(when={"coils": [8, 4]})], r"when\.coils: needs a number, or \[lowest, highest\]"),
        ([rule(when={"coils": [None, None]})], r"when\.coils: needs a number, or \[lowest, highest\]"),
        ([rule(when={"coils": [1, 2, 3]})], r"when\.coils: needs a number"),
        ([rule(when={"coils": float("nan")})], r"when\.coils: needs a number"),
        ([rule(when={"coils": True})], r"when\.coils: needs a number"),
        (
            [rule() | {"settings": "prior"}],
            r"settings: needs the keys that the rule sets, for example prior: NAME",
        ),
        ([rule(device="cpu")], r"rules\[0\] \(one\)\.settings\.device: it cannot be set here"),
        ([rule(rules=[])], r"rules\[0\] \(one\)\.settings\.rules: it cannot be set here"),
        (
            [rule(iterations=3)],
            r"rules\[0\] \(one\)\.settings\.iterations: unknown key\. Did you mean solver\.iterations",
        ),
        (
            [rule(**{"prior_weight.rule": "fixed"})],
            r"rules\[0\] \(one\)\.settings\.prior_weight: the rule 'fixed' needs a value",
        ),
        ([rule("a", {"coils": 1}), rule("a")], r"  rules: the name a stands twice; give each rule a name"),
        (
            [rule("a"), rule("b")],
            r"  rules: the rule a has no conditions, so it fits every scan; put it last",
        ),
    ],
)
def test_a_faulty_rule_is_named_with_its_place(tmp_path, rules, fault):
    with pytest.raises(SettingsError, match=fault):
        settings_with(tmp_path, rules)


def test_faults_of_all_rules_are_named_at_once(tmp_path):
    with pytest.raises(SettingsError) as caught:
        settings_with(tmp_path, [rule("a", {"coils": 1}, seed=-1), rule("b", None, threads=2)])

    assert str(caught.value).splitlines()[0].endswith("has 2 faults:")


def test_the_shipped_rules_give_heads_the_learned_prior_and_everything_else_total_variation():
    settings = load_settings(config_folder() / "recon" / "by-body-part.yaml")
    knee = HEADER.replace("Brain", "KNEE").replace("T2_TSE_Mustermann", "pd_tse")

    assert with_fitting_rule(settings, facts())[0].prior == "brain-local"
    assert (
        with_fitting_rule(settings, facts(knee.replace("pd_tse", "Head_localizer")))[0].prior == "brain-local"
    )
    assert with_fitting_rule(settings, facts(knee))[0].prior == "tv"


def test_a_recording_without_a_header_is_refused():
    with pytest.raises(ScanError, match="The scan has no header; which rule fits is told by it"):
        facts_of_scan([])


def test_a_pixel_of_86_4_mm_by_288_is_one_of_0_3_mm(tmp_path):
    header = HEADER.replace("230.4", "86.4").replace("<x>256</x>", "<x>288</x>").replace("187.2", "62.4")
    (rule_,) = settings_with(tmp_path, [rule(when={"pixel_spacing_mm": [0.2, 0.3]})]).rules

    assert 86.4 / 288 > 0.3
    assert judged([rule_], facts(header))[0].fits
