"""`Tunnel`: a TCP forwarder on loopback that can be cut, go silent, and be mended."""

import contextlib
import socket
import struct
import threading
from typing import Self

_RESET = struct.pack("ii", 1, 0)


class Tunnel:
    """Forwards `port` to `target`, which may be set later, until it is closed.

    `cut()`: open connections are reset and new ones refused. `hush()`: connections are accepted
    and nothing is forwarded, as where packets are dropped. `mend()`: all is well for new ones.
    `forwarded` are the bytes that have come back so far.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.target = 0
        self.forwarded = 0
        self._left: int | None = None
        self._silent = threading.Event()
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.mend()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Reset every connection, and listen no more."""
        with self._lock:
            # Two connections may come to their end at once, each in a thread of its own.
            listener, self._listener = self._listener, None
        if listener is not None:
            # Closing alone would leave a thread in accept().
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def hush(self) -> None:
        """Forward nothing more, of any connection; accept new ones all the same."""
        self._silent.set()

    def cut_after(self, count: int) -> None:
        """Cut once so many more bytes have come back, in the middle of whatever they belong to."""
        self._left = count

    def mend(self) -> None:
        """Listen and forward again. What was held back stays lost, and its connections too."""
        self.cut()
        self._left = None
        self._silent.clear()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            ends = [near]
            if not self._silent.is_set():
                try:
                    ends.append(socket.create_connection(("127.0.0.1", self.target)))
                except OSError:
                    near.close()
                    continue
            with self._lock:
                self._open.update(ends)
            for one, other in zip(ends, reversed(ends), strict=True):
                arguments = (one, other, one is not near)
                threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket, back: bool) -> None:
        """What `one` says, to `other`; nothing while silent, when a new one has no other end."""
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if back and self._left is not None:
                    data = data[: self._left]
                    self._left -= len(data)
                if not self._silent.is_set():
                    other.sendall(data)
                    self.forwarded += len(data) * back
                if self._left == 0:
                    self.cut()
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.close()
        with self._lock:
            self._open -= {one, other}
