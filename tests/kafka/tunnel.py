"""`Tunnel`: a TCP forwarder on loopback that can be cut, go silent, and be mended; `Recorder`.

An issuer of OAuth tokens too: `Issuer`.
"""

import base64
import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs


def token(life: float, **claims: str) -> str:
    """An unsigned JWT that is good for `life` seconds from now on."""
    now = time.time()
    parts = [{"alg": "none"}, {"iat": now, "exp": now + life, **claims}]
    plain = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join([*(part.rstrip("=") for part in plain), ""])


class Issuer:
    """Answers client credentials grants (RFC 6749, section 4.4) until it is closed.

    `life` is that of its tokens in seconds, `claims` stand in them. `status` other than 200 refuses
    everybody; `asked` are the forms that came, each with the Authorization header.
    """

    def __init__(self, life: float, tls: ssl.SSLContext | None = None, **claims: str) -> None:
        self.life = life
        self.claims = claims
        self.status = 200
        self.body: bytes | None = None
        self.location: str | None = None
        self.asked: list[dict[str, str]] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                issuer._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}/token"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        form = parse_qs(request.rfile.read(int(request.headers["Content-Length"])).decode())
        asked = {name: values[0] for name, values in form.items()}
        self.asked.append({**asked, "authorization": request.headers["Authorization"]})
        answer = {"access_token": token(self.life, **self.claims), "expires_in": self.life}
        body = json.dumps(answer if self.status == 200 else {"error": "invalid_client"}).encode()
        request.send_response(self.status)
        if self.location is not None:
            request.send_header("Location", self.location)
        request.end_headers()
        request.wfile.write(self.body if self.body is not None else body)


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
