"""The certificate of a connection, as its requests see it."""

from __future__ import annotations

import ssl

from issuers import Authority


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
