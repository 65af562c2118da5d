"""A web server for pages with a 3-D scene and controls."""

from __future__ import annotations

import contextlib
import io
import logging
import socket

import viser

from ..errors import AndanteError


class Server(viser.ViserServer):
    """Quiet, and without the tunnel to a public address that a page may ask for."""

    url: str
    """Where it is."""

    def __init__(self, host: str, port: int, title: str) -> None:
        """Serve at `port`, or the next free one; 0 for any.

        Args:
            host: name or address to listen at.
            port: of TCP.
            title: of the page.

        Raises:
            AndanteError: nobody can listen there.
        """
        _require_address(host, port)
        # A connection that asks for nothing, as browsers open them ahead, is no error to tell the operator.
        logging.getLogger("websockets.server").setLevel(logging.CRITICAL)
        with contextlib.redirect_stdout(io.StringIO()):  # it greets
            super().__init__(host, port, title, verbose=False)
        self.url = f"http://{host}:{self.get_port()}"
        self.gui.configure_theme(show_logo=False, show_share_button=False)

    def request_share_url(self, verbose: bool = True) -> None:
        """There is none."""

    def stop(self) -> None:
        """Stop serving."""
        with contextlib.redirect_stdout(io.StringIO()):  # it says goodbye
            super().stop()


def _require_address(host: str, port: int) -> None:
    """Raise unless we can listen at `host`: the server would try a thousand ports."""
    if not 0 <= port < 2**16:
        raise AndanteError(f"port must be 0 to {2**16 - 1}, found {port}")
    try:
        socket.create_server((host, 0)).close()
    except OSError as error:
        raise AndanteError(f"cannot listen at host {host!r}: {error.strerror or error}") from None
