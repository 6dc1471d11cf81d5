"""The systemd unit, as systemd's own tools see it, and against the command line that it starts."""

from deployment_files import UNIT, options_of, output_of, tool, unit, unit_command

from gadget.front.service import KEEPING_LINGER_S


def test_systemd_has_no_complaint(tmp_path):
    copy = tmp_path / UNIT.name
    program = unit_command()[0]
    copy.write_text(UNIT.read_text(encoding="utf-8").replace(program, tool("gadgetron-ebm")))

    assert output_of(tool("systemd-analyze"), "verify", "--man=no", copy) == ""


def test_systemd_finds_it_well_protected():
    """Exposure is 0 to 10; systemd calls up to 2 "OK"."""
    found = output_of(
        tool("systemd-analyze"), "security", "--no-pager", "--offline=true", "--threshold=20", UNIT
    )
    assert "Overall exposure level" in found


def test_the_unit_starts_a_command_that_our_program_takes():
    options = options_of(unit_command())

    assert not options["host"]  # this machine only
    assert str(options["spool"]) == "/var/lib/gadgetron-ebm/spool"
    assert "gadgetron-ebm/spool" in unit()["StateDirectory"][0].split()
    assert unit()["StateDirectoryMode"] == ["0700"]


def test_a_running_scan_may_end_before_the_server_is_killed():
    drain = options_of(unit_command())["drain"]
    assert int(unit()["TimeoutStopSec"][0]) >= drain + KEEPING_LINGER_S + 15
    assert unit()["KillMode"] == ["mixed"]


def test_a_reload_reads_the_configuration_again():
    assert unit()["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
