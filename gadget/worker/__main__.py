"""``python -m gadget.worker OPTIONS``: started by the front only, with OPTIONS as JSON."""

import faulthandler
import json
import signal
import socket
import sys

from gadget.worker.channel import Channel
from gadget.worker.log_lines import log_to_front
from gadget.worker.process import Reconstruction, Worker


def main() -> None:
    """Serve the front until it is gone."""
    options = json.loads(sys.argv[1])
    # What ends a server is for the front to handle; systemd and terminals signal all processes of a service.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    channel = Channel(socket.socket(fileno=options["channel"]))
    log_to_front(channel)
    reconstruction = Reconstruction()
    Worker(channel, reconstruct=reconstruction.reconstruct, load=reconstruction.load).run()


if __name__ == "__main__":
    main()
