"""``check-config`` and ``prior list | show | verify``: look before you scan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gadget.commands.options import Group, recorded
from gadget.configs import prior_folders

if TYPE_CHECKING:
    from gadget.settings import Settings

Name = Annotated[
    str, typer.Argument(metavar="NAME|FOLDER", help="Name of an installed prior, or its folder (./FOLDER).")
]


def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="Settings to check.", exists=True)],
    scan: Annotated[
        Path | None,
        typer.Option(
            "--for",
            metavar="SCAN.h5",
            help="Also say which of the file's rules fits this recorded scan, and why the others do not.",
            callback=lambda scan: None if scan is None else recorded(scan),
        ),
    ] = None,
    group: Group = "dataset",
) -> None:
    """Check a settings file: every fault is named at once, and each prior is looked up and verified.

    Of the scan's header only numbers are printed; `inspect --patient` shows its texts.
    """
    from gadget.prior_faults import prior_faults_as_settings_faults
    from gadget.settings import load_settings, with_rule
    from reconlib.priors.library import find_prior, verify_prior

    settings = load_settings(file)
    names = [settings.prior, *(with_rule(settings, rule).prior for rule in settings.rules)]
    priors = list(dict.fromkeys(names))
    for name in priors:
        with prior_faults_as_settings_faults():
            verify_prior(find_prior(name, prior_folders()))
    typer.echo(f"{file}: good (prior{'s' * (len(priors) > 1)} {', '.join(priors)})")
    if scan is not None:
        _say_which_rule_fits(settings, scan, group)


def _say_which_rule_fits(settings: "Settings", scan: Path, group: str) -> None:
    from gadget.protocol_rules import facts_of_scan, judged
    from gadget.scan_file import read_scan
    from gadget.settings import with_rule

    verdicts = judged(settings.rules, facts_of_scan(read_scan(scan, group)))
    chosen = next((verdict.rule for verdict in verdicts if verdict.fits), None)
    if chosen is None:
        reason = "none of its rules fits" if verdicts else "it has no rules"
        typer.echo(f"{scan}: {reason}, prior {settings.prior}")
    else:
        typer.echo(f"{scan}: rule {chosen.name}, prior {with_rule(settings, chosen).prior}")
    for verdict in verdicts:
        what = "; ".join(verdict.failed) or ("fits" if verdict.rule is chosen else "fits, but comes later")
        typer.echo(f"  {verdict.rule.name}: {what}")


def list_priors() -> None:
    """List the priors that can be used by name: name, version, anatomy, and where they lie.

    A name is looked up in the folders of $GADGETRON_EBM_PRIORS (separated as in PATH), among the priors that
    were installed, and among the shipped ones; the first of each name counts.
    """
    from reconlib.priors import library

    rows = [("NAME", "VERSION", "ANATOMY", "WHERE")]
    broken = []
    for one in library.list_priors(prior_folders()):
        if one.card is None:
            rows.append((one.name, "-", "BROKEN, see below", str(one.folder)))
            broken.append(one)
        else:
            rows.append((one.name, one.card.version, _printable(one.card.anatomy), str(one.folder)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        typer.echo(
            "  ".join([*(f"{text:<{width}}" for text, width in zip(row, widths, strict=False)), row[3]])
        )
    for one in broken:
        typer.echo(f"{one.name} is broken: {one.fault}")


def show_prior(name: Name) -> None:
    """Print what a prior is: what follows from its files, then its card."""
    from gadget.prior_faults import prior_faults_as_settings_faults
    from reconlib.priors.card_file import card_text, read_card
    from reconlib.priors.library import find_prior
    from reconlib.priors.verification import prior_facts

    with prior_faults_as_settings_faults():
        folder = find_prior(name, prior_folders())
        card = read_card(folder)
    facts = {"where": str(folder), **prior_facts(folder, card)}
    width = max(len(what) for what in facts)
    for what, fact in facts.items():
        typer.echo(f"# {what + ':':<{width + 1}} {fact}")
    typer.echo(card_text(card).rstrip())


def verify_prior(name: Name) -> None:
    """Check a prior from end to end and print what was checked; exit code 1 where something is wrong.

    The card; the weights against the card's SHA-256 and architecture; the energy on a test image.
    """
    from gadget.prior_faults import prior_faults_as_settings_faults
    from reconlib.priors.library import find_prior
    from reconlib.priors.verification import check_package

    with prior_faults_as_settings_faults():
        folder = find_prior(name, prior_folders())
    report = check_package(folder)
    for check in report.checks:
        state = "skipped" if check.skipped else "good" if check.fault is None else "FAULT"
        typer.echo(f"  {state:<7}  {check.what}")
        if check.fault is not None:
            typer.echo(f"           {check.fault}")
    n_faults = len(report.faults)
    if n_faults:
        typer.echo(f"{folder}: {n_faults} fault{'s' * (n_faults > 1)}")
        raise typer.Exit(1)
    typer.echo(f"{folder}: good")


def _printable(text: str) -> str:
    """Return a text of a stranger's card as one line that cannot steer the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
