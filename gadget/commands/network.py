"""``serve`` and ``send``: the two ends of a TCP connection."""

import logging
import signal
from contextlib import ExitStack
from functools import partial
from typing import Annotated

import typer

from gadget.commands.host_and_port import host_and_port
from gadget.commands.options import (
    LABELLED,
    Config,
    Configs,
    Device,
    Group,
    NoPosterior,
    Out,
    Overwrite,
    Png,
    Posterior,
    PriorName,
    Scan,
    Seed,
    Set,
    refuse_outputs,
    settings_source_of,
)
from gadget.commands.spooled_scans import SpoolDays, SpoolFolder, SpoolGib, open_spool
from gadget.counted import counted
from gadget.logs import Fact, LogFormat, facts

logger = logging.getLogger(__name__)


def serve(
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. Repeatable. Default: this machine only, 127.0.0.1 and ::1.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free one.")] = 9002,
    config: Config = None,
    configs: Configs = None,
    prior: PriorName = None,
    set_: Set = None,
    device: Device = None,
    posterior: Posterior = None,
    no_posterior: NoPosterior = False,
    seed: Seed = None,
    connections: Annotated[
        int, typer.Option(min=1, max=1000, help="Most connections at once; more are refused in words.")
    ] = 16,
    idle: Annotated[
        float, typer.Option("--idle-s", min=1.0, help="Longest silence of a peer that has not sent CLOSE.")
    ] = 300.0,
    drain: Annotated[
        float,
        typer.Option("--drain-s", min=0.0, help="When stopped: how long running scans may take to finish."),
    ] = 60.0,
    spool: SpoolFolder = None,
    spool_gib: SpoolGib = 100.0,
    spool_days: SpoolDays = 7.0,
    monitor: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of the monitor page, /health and /metrics; 0: a free one."),
    ] = None,
    monitor_host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address that the monitor listens on; it shows pictures of the subject."
        ),
    ] = "127.0.0.1",
    log_format: Annotated[LogFormat, typer.Option(help="Lines of text, or JSON objects.")] = "text",
) -> None:
    """Reconstruct scans that come over TCP, until stopped.

    For MRD, FIRE and OpenRecon clients, and for Gadgetron's chains `ebm_connect*.xml` (port 9003, see
    `install-configs`). Scans that come at once take turns. A client's configuration or JSON parameters change
    settings for its own scan, within limits: it cannot set device, threads, batch_slices, noise.cache, rules
    or a folder as prior, nor raise time limits or sampling.

    SIGTERM and Ctrl-C let running scans finish first; a second one does not. SIGHUP has the configuration
    read again before the next scan, and so has a change of its file.

    Anybody who reaches the port can use it: name an address of the network only where that network is
    trusted.
    """
    source_of = partial(
        settings_source_of,
        config,
        configs,
        prior=prior,
        set_=set_,
        device=device,
        seed=seed,
        posterior=posterior,
        no_posterior=no_posterior,
    )
    source_of()  # so that misuse is told before anything else

    from gadget.connection_options import ConnectionOptions
    from gadget.front.service import Service
    from gadget.logs import setup_logging
    from gadget.operations.journal import Journal
    from gadget.operations.latency import LatencyWatch
    from gadget.operations.monitor import Monitor
    from gadget.server import DEFAULT_HOSTS

    setup_logging(verbose=True, with_time=True, log_format=log_format)
    journal = Journal()
    with ExitStack() as stack:
        kept = None if spool is None else stack.enter_context(open_spool(spool, spool_gib, spool_days))
        service = Service(
            lambda check: source_of(check=check),
            hosts=tuple(host or DEFAULT_HOSTS),
            port=port,
            options=ConnectionOptions(idle_s=idle),
            max_connections=connections,
            keep=None if kept is None else kept.watch,
            watch_factories=[LatencyWatch, *([] if monitor is None else [journal.watch])],
            drain_s=drain,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: service.stop())
        signal.signal(signal.SIGHUP, lambda *_: service.reload())
        for address, its_port in service.server.addresses:
            _say(f"listening on {address} port {its_port}", log_format, address=address, port=its_port)
        if monitor is not None:
            page = stack.enter_context(Monitor(journal, service.status, port=monitor, host=monitor_host))
            _say(f"monitor at {page.address}", log_format, address=page.address)
        service.run()
    logger.info("stopped")


def _say(text: str, log_format: LogFormat, **values: Fact) -> None:
    """Say on stdout where the server is found, or in the log where all is JSON, for machines."""
    if log_format == "json":
        logger.info("%s", text, extra=facts(**values))
    else:
        typer.echo(text)


def send(
    scan: Scan,
    out: Out,
    to: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where a server listens.")],
    config_name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Configuration that the server is asked for: images-only, say; of Gadgetron a chain.",
        ),
    ] = "gadgetron-ebm",
    group: Group = "dataset",
    png: Png = None,
    overwrite: Overwrite = False,
) -> None:
    """Send a recorded scan to a server and keep the images that come back.

    Works with `gadgetron-ebm serve` and with other MRD servers, Gadgetron among them. Exit codes are those
    of `replay`; what the server says in words counts as a label, too.
    """
    host, port = host_and_port(to, "--to")
    refuse_outputs(scan, out, overwrite=overwrite)

    from gadget.commands.progress import progress_on_terminal
    from gadget.scan_file import count_readouts
    from gadget.sending import send_and_keep

    with progress_on_terminal(count_readouts(scan, group)) as progress:
        received = send_and_keep(
            scan,
            out,
            host,
            port,
            config_name=config_name,
            group=group,
            png=png,
            overwrite=overwrite,
            on_readout=progress.readout,
        )
    typer.echo(f"{out}: {counted(received.n_images, 'image')}")
    for line in (*received.labelled, *received.rough):
        typer.echo(f"  {line}")
    if received.labelled:
        raise typer.Exit(LABELLED)
