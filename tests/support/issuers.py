"""An issuer of tokens on loopback, and authorities that sign certificates, for tests of logins."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Issuer:
    """An OpenID provider whose user is always logged in. `claims` are those of its ID tokens."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.asked: list[str] = []
        self.claims: dict[str, Any] = {"sub": "ann", "groups": ["team"]}
        self.codes: dict[str, dict[str, str]] = {}
        self.new_key("k1")
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.get(self)

            def do_POST(self) -> None:
                owner.post(self)

            def log_message(self, *words: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()

    def new_key(self, kid: str) -> None:
        """Sign with a new key from now on. The old keys are no longer published."""
        self.keys = {kid: ec.generate_private_key(ec.SECP256R1())}

    def token(self, **claims: Any) -> str:
        """Return a token of five minutes for the audience `disque`. A claim that is None is left out."""
        [(kid, key)] = self.keys.items()
        found = {"iss": self.url, "aud": "disque", "exp": int(time.time()) + 300, **self.claims, **claims}
        kept = {name: value for name, value in found.items() if value is not None}
        return jwt.encode(kept, key, "ES256", {"kid": kid})

    def get(self, handler: Any) -> None:
        """Answer discovery, keys and the page where people log in."""
        parts = urlsplit(handler.path)
        self.asked.append(parts.path)
        if parts.path == "/authorize":
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            code = hashlib.sha256(parts.query.encode()).hexdigest()
            self.codes[code] = query
            handler.send_response(302)
            words = urlencode({"code": code, "state": query["state"]})
            handler.send_header("Location", f"{query['redirect_uri']}?{words}")
            handler.end_headers()
            return
        found: dict[str, Any] = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        found |= {"authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token"}
        if parts.path == "/keys":
            algorithm = jwt.algorithms.ECAlgorithm(hashes.SHA256)
            listed = [json.loads(algorithm.to_jwk(key.public_key())) | {"kid": kid} for kid, key in self.keys.items()]
            found = {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}, *listed]}
        self._answer(handler, 200, found)

    def post(self, handler: Any) -> None:
        """Exchange a code for an ID token, once, and only for the right verifier."""
        body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        query = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if query is None or query["code_challenge"] != challenge or query["redirect_uri"] != form["redirect_uri"]:
            self._answer(handler, 400, {"error": "invalid_grant"})
            return
        token = self.token(aud=query["client_id"], nonce=query["nonce"])
        self._answer(handler, 200, {"id_token": token, "token_type": "Bearer", "access_token": "x"})

    @staticmethod
    def _answer(handler: Any, status: int, found: Any) -> None:
        body = json.dumps(found).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


class Authority:
    """An authority that signs certificates into a folder."""

    def __init__(self, folder: Any, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        found = self._builder(self._name, self._key, 10).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(found.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: Any, days: float) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=20))
            .not_valid_after(now + datetime.timedelta(days=days))
        )

    def sign(self, name: str, *others: x509.GeneralName, days: float = 5) -> tuple[Any, Any]:
        """Return the files of a new certificate and its key. It also names localhost and 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *others]
        found = self._builder(subject, key, days).add_extension(x509.SubjectAlternativeName(names), critical=False)
        cert, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert.write_bytes(found.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert, secret
