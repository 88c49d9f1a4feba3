"""`Recorder`: a forwarder that counts Kafka's requests, and how many wait for their answer."""

import contextlib
import socket
import struct
import threading
from collections import Counter

from tests.kafka.tunnel import Tunnel


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
