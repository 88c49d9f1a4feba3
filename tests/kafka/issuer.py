"""`Issuer`: an OAuth 2 token endpoint on loopback, with tokens that test brokers believe."""

import base64
import json
import ssl
import threading
import time
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
