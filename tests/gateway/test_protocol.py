"""Connections: their writes, and the certificate that their requests see."""

from __future__ import annotations

import ssl

from disque_py.gateway.http.protocol import Writer
from issuers import Authority


class Transport:
    """A transport that records its writes."""

    def __init__(self):
        self.written = []

    def write(self, data):
        self.written.append(bytes(data))

    def close(self):
        self.written.append(b"closed")

    def is_closing(self):
        return self.written[-1:] == [b"closed"]


def test_a_held_write_goes_together_with_the_next_one():
    writer = Writer(transport := Transport())
    writer.hold()
    writer.write(b"head ")
    assert transport.written == []
    writer.write(b"body")
    writer.write(b"next")
    writer.release()
    assert transport.written == [b"head body", b"next"]


def test_a_held_write_is_never_lost():
    """An answer to HEAD has no body, and a connection may close after the head."""
    for end in (Writer.release, Writer.close):
        writer = Writer(transport := Transport())
        writer.hold()
        writer.write(b"head")
        end(writer)
        assert transport.written[0] == b"head"
    assert writer.is_closing()


def test_answers_without_a_body_are_complete(gateway):
    assert (gateway.request("HEAD", "/livez").status, gateway.request("HEAD", "/livez").text) == (200, "")


def test_each_request_of_a_connection_knows_the_certificate(make_gateway, tmp_path):
    authority = Authority(tmp_path)
    cert, key = authority.sign("localhost")
    access = tmp_path / "access.toml"
    access.write_text('[[certificate]]\nname = "CN=robot"\ngrants = ["read"]\n')
    gateway = make_gateway(tls_cert=cert, tls_key=key, tls_client_ca=authority.path, access_file=access)
    context = ssl.create_default_context(cafile=str(authority.path))
    assert gateway.get("/v1/queues", tls=context).status == 401
    context.load_cert_chain(*authority.sign("robot"))
    assert [gateway.get("/v1/queues", tls=context).status for _ in range(2)] == [200, 200]
    context.load_cert_chain(*authority.sign("other"))
    assert gateway.get("/v1/queues", tls=context).status == 401
