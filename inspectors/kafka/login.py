"""The login of a connection with SASL (KIP-152), by kafka-python's mechanisms."""

from collections.abc import Callable, Mapping
from typing import Any

import kafka.errors
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from rebal.inspectors.connection.auth import OAuth
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.connection.translate import forget, token_of
from rebal.inspectors.errors import ConnectError


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """OAuth token source for kafka-python; requesting a token takes at most `timeout` seconds."""

    def __init__(self, oauth: OAuth, timeout: float) -> None:
        super().__init__()
        self._oauth = oauth
        self._timeout = timeout

    def token(self) -> str:
        """Return the text of an OAuth token, requested anew or still valid."""
        return token_of(self._oauth, self._timeout).value

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions (KIP-342)."""
        return dict(self._oauth.extensions)


def log_in(
    send: Callable[..., Any],
    address: str,
    config: ClusterConfig,
    settings: Mapping[str, Any],
    seconds: float,
) -> None:
    """Log in with SaslHandshake v1 and SaslAuthenticate (brokers since 1.0).

    `send` sends a request to the broker at `address` and returns its response. `settings` are
    kafka-python's login settings, with the broker's `host`. Getting an OAuth token takes at
    most `seconds`.

    Raises:
        ConnectError: the broker does not offer the mechanism, or rejects the login.
    """
    answer = send(SaslHandshakeRequest, min_version=1, mechanism=config.mechanism)
    if answer.error_code:
        raise ConnectError(
            f"{address} does not offer SASL {config.mechanism}, it offers "
            f"{', '.join(answer.mechanisms) or 'nothing'}: set sasl.mechanism.",
            "authentication",
        )
    login = dict(settings)
    if config.oauth is not None:
        login["sasl_oauth_token_provider"] = TokenProvider(config.oauth, seconds)
    mechanism = get_sasl_mechanism(config.mechanism)(**login)
    while not mechanism.is_done():
        reply = send(SaslAuthenticateRequest, auth_bytes=mechanism.auth_bytes())
        if reply.error_code:
            raise ConnectError(_wrong_login(address, config), "authentication")
        try:
            mechanism.receive(reply.auth_bytes)
        except (ValueError, KeyError, kafka.errors.KafkaError):
            raise ConnectError(_wrong_login(address, config), "authentication") from None
    if not mechanism.is_authenticated():
        raise ConnectError(_wrong_login(address, config), "authentication")


def _wrong_login(address: str, config: ClusterConfig) -> str:
    if config.oauth is not None:
        # The next login must not use the same token again.
        forget(config.oauth)
        return (
            f"{address} rejected the token of {config.mechanism} (it expired, or its issuer, "
            "audience or claims are wrong). Check --command-config."
        )
    return (
        f"{address} rejected the login with {config.mechanism} "
        "(wrong user name or password, or not set up for this mechanism). Check --command-config."
    )
