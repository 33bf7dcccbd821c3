"""An identity provider for tests: it signs tokens, and answers OpenID Connect's request for client credentials."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "kafka"
CLIENT, SECRET = "super-client", 'sec"ret=\\x'
_KEY_ID = "1"
_SECONDS = 3600


class TokenIssuer:
    """Issues tokens that the brokers verify with the keys in ``keys_file``."""

    def __init__(self, directory: Path) -> None:
        self.keys_file = directory / "jwks.json"
        self._key: RSAPrivateKey = generate_private_key(65537, 2048)
        public = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.keys_file.write_text(json.dumps({"keys": [{**public, "kid": _KEY_ID, "use": "sig", "alg": "RS256"}]}))

    def server_properties(self) -> dict[str, str]:
        """What a broker needs in order to accept the tokens on its listener for passwords."""
        listener = "listener.name.sasl_ssl.oauthbearer"
        package = "org.apache.kafka.common.security.oauthbearer"
        return {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            f"{listener}.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            f"{listener}.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
            f"{listener}.sasl.oauthbearer.jwks.endpoint.url": self.keys_file.as_uri(),
            f"{listener}.sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    def java_options(self) -> Mapping[str, str]:
        """The environment in which Kafka's Java reads the keys."""
        return {"JDK_JAVA_OPTIONS": f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.keys_file.as_uri()}"}

    def token(self, user: str) -> tuple[str, float]:
        """A token for a user, and the time at which it expires."""
        now = time.time()
        claims = {"sub": user, "aud": AUDIENCE, "iat": int(now) - 60, "exp": int(now) + _SECONDS, "scope": "kafka"}
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": _KEY_ID}), now + _SECONDS

    @contextmanager
    def endpoint(self, user: str) -> Iterator[str]:
        """Serve tokens for one user to the client that knows :data:`SECRET`; yields the address."""
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                permitted = self.headers["Authorization"] == f"Basic {expected}"
                content = {"access_token": issuer.token(user)[0], "token_type": "Bearer", "expires_in": _SECONDS}
                assert "grant_type=client_credentials" in form
                body = json.dumps(content if permitted else {"error": "invalid_client"}).encode()
                self.send_response(200 if permitted else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/token"
        finally:
            server.shutdown()
            server.server_close()
