"""Whether a browser asks for us, or for a name that somebody else made point to us (DNS rebinding).

A page from elsewhere may not read what other hosts answer; but its owner can let the name it came from point
to 127.0.0.1 afterwards. Then the browser takes us for that page's own host, and names it in ``Host``. So only
names that are ours are answered. Addresses are, too: a page that came from an address came from that machine.
"""

import ipaddress
import re
import socket
from collections.abc import Collection

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?")


def own_names(*also: str) -> frozenset[str]:
    """Return the names that this machine goes by, and others that the user has given it."""
    return frozenset(name.lower().rstrip(".") for name in ("localhost", socket.gethostname(), *also))


def is_trusted(host: str | None, names: Collection[str]) -> bool:
    """Whether a ``Host`` header names one of ``names``, or an address."""
    match = _HOST.fullmatch(host or "")
    if match is None:
        return False
    name = match[1].lower().rstrip(".").strip("[]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names
    return True
