"""`Tunnel`: a TCP forwarder on loopback that can be cut, go silent, and be mended; `Recorder`."""

import contextlib
import socket
import struct
import threading
from collections import Counter
from typing import Self

_RESET = struct.pack("ii", 1, 0)


class Tunnel:
    """Forwards `port` to `target`, which may be set later, until it is closed.

    `cut()`: open connections are reset and new ones refused. `hush()`: connections are accepted
    and nothing is forwarded, as where packets are dropped. `mend()`: all is well for new ones.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.target = 0
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

    def mend(self) -> None:
        """Listen and forward again. What was held back stays lost, and its connections too."""
        self.cut()
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
                if not self._silent.is_set():
                    other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.close()
        with self._lock:
            self._open -= {one, other}


class Recorder(Tunnel):
    """A tunnel to one broker that reads the frames it forwards.

    `requests` counts them by api key, `most` is the greatest number that waited for their answers
    at one time, over all connections. A request counts before the broker has it, and until its
    whole answer is here: never fewer than the broker itself could count.
    """

    def __init__(self, port: int) -> None:
        self.requests: Counter[int] = Counter()
        self.most = 0
        self._waiting = 0
        self._counting = threading.Lock()
        super().__init__(port)

    def reset(self) -> None:
        """Count from nothing; the requests that wait now still do."""
        with self._counting:
            self.requests.clear()
            self.most = self._waiting

    def _pump(self, one: socket.socket, other: socket.socket, back: bool) -> None:
        frames = b""
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                frames += data
                while len(frames) >= 4 and len(frames) >= (size := _size(frames)):
                    self._count(frames, back)
                    frames = frames[size:]
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.close()

    def _count(self, frame: bytes, back: bool) -> None:
        with self._counting:
            self._waiting += -1 if back else 1
            self.most = max(self.most, self._waiting)
            if not back:
                self.requests[struct.unpack(">h", frame[4:6])[0]] += 1


def _size(frames: bytes) -> int:
    return 4 + int(struct.unpack(">i", frames[:4])[0])
