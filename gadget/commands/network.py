"""``serve`` and ``send``: the two ends of a TCP connection."""

import signal
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from gadget.commands.options import (
    LABELLED,
    Config,
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
    settings_of,
    use_threads,
)


def serve(
    host: Annotated[
        list[str] | None,
        typer.Option(help="Address to listen on; repeatable. Default: this machine only, 127.0.0.1 and ::1."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free one.")] = 9002,
    config: Config = None,
    prior: PriorName = None,
    set_: Set = None,
    device: Device = None,
    posterior: Posterior = None,
    no_posterior: NoPosterior = False,
    seed: Seed = None,
) -> None:
    """Reconstruct scans that come over TCP, until stopped.

    For MRD and FIRE clients, and for Gadgetron's <connect port="..."/>. One connection after another is
    served. A client's configuration or JSON parameters change settings for its own scan; it cannot set
    device, threads, batch_slices or a folder as prior, nor lengthen time limits or sampling.

    Anybody who reaches the port can use it: name an address of the network only where that network is
    trusted.
    """
    settings = settings_of(
        config,
        prior=prior,
        set_=set_,
        device=device,
        seed=seed,
        posterior=posterior,
        no_posterior=no_posterior,
    )

    from gadget.answering import Peer
    from gadget.logs import setup_logging
    from gadget.pipeline import reconstruct_stream
    from gadget.reconstructor import Reconstructor
    from gadget.server import DEFAULT_HOSTS, Server
    from gadget.server import serve as serve_until_stopped
    from gadget.wire.messages import Message

    setup_logging(verbose=True, with_time=True)
    use_threads(settings)
    reconstructor = Reconstructor(settings.device)
    reconstructor.load(settings)

    def handle(messages: Iterator[Message], peer: Peer) -> Iterable[Message]:
        return reconstruct_stream(
            messages,
            settings,
            reconstructor=reconstructor,
            cancelled=peer.cancelled,
            silent=peer.silent,
        )

    def announce(server: Server) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: server.stop())
        for address, its_port in server.addresses:
            typer.echo(f"listening on {address} port {its_port}")

    serve_until_stopped(handle, hosts=tuple(host or DEFAULT_HOSTS), port=port, on_listening=announce)


def send(
    scan: Scan,
    out: Out,
    to: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where a server listens.")],
    config_name: Annotated[
        str, typer.Option(metavar="NAME", help="Configuration that the server is asked for.")
    ] = "gadgetron-ebm",
    group: Group = "dataset",
    png: Png = None,
    overwrite: Overwrite = False,
) -> None:
    """Send a recorded scan to a server and keep the images that come back.

    Works with `gadgetron-ebm serve` and with other MRD servers, Gadgetron among them. Exit codes are those
    of `replay`; what the server says in words counts as a label, too.
    """
    host, port = _host_and_port(to)
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
    typer.echo(f"{out}: {received.n_images} image{'' if received.n_images == 1 else 's'}")
    for line in (*received.labelled, *received.rough):
        typer.echo(f"  {line}")
    if received.labelled:
        raise typer.Exit(LABELLED)


def _host_and_port(to: str) -> tuple[str, int]:
    host, colon, port = to.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"'{to}' is no HOST:PORT; write for example --to localhost:9002.")
    return host, int(port)
