"""Options that name a host and a port."""

import typer


def host_and_port(value: str, option: str) -> tuple[str, int]:
    """Read ``HOST:PORT``; an IPv6 address may stand in brackets.

    Raises
    ------
    typer.BadParameter
        It is something else; the text names the option.
    """
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"'{value}' is no HOST:PORT; write for example {option} localhost:9002.")
    return host, int(port)
