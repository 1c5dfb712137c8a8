"""Tokens of an issuer: the valid ones, and changes of the issuer's keys."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import threading
import time

import jwt
import pytest

from disque_py.client.options import make_options
from disque_py.gateway.logins import authentication, oidc
from disque_py.gateway.logins.authentication import Logins
from disque_py.gateway.logins.oidc import fetch_json, keys_of
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.settings import Settings
from issuers import Issuer


@pytest.fixture
def issuer():
    """An issuer."""
    found = Issuer()
    yield found
    found.close()


@pytest.fixture
def ours(issuer):
    """The gateway's view of it."""
    words = {"oidc-issuer": issuer.url, "oidc-audience": "disque", "access-file": "a", "oidc-leeway": "5"}
    return oidc.Issuer(Settings(words))


def claims(ours, token, audience="disque"):
    return asyncio.run(ours.claims(token, (audience,)))


def refusal(ours, token):
    with pytest.raises(RefusedError) as refused:
        claims(ours, token)
    return refused.value


def test_a_token_of_the_issuer_is_accepted(issuer, ours):
    assert claims(ours, issuer.token(sub="bob"))["sub"] == "bob"
    assert claims(ours, issuer.token(aud=["other", "disque"]))["sub"] == "ann"


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"exp": 1},
        {"exp": None},
        {"nbf": 9999999999},
        {"exp": "soon"},
    ],
    ids=str,
)
def test_a_token_for_another_audience_or_outside_its_time_is_refused(issuer, ours, wrong):
    assert refusal(ours, issuer.token(**wrong)).code == "WRONGPASS"


def test_the_clock_of_the_issuer_may_differ_by_the_leeway(issuer, ours):
    assert claims(ours, issuer.token(exp=int(time.time()) - 3))
    assert refusal(ours, issuer.token(exp=int(time.time()) - 8)).code == "WRONGPASS"


def test_a_token_without_a_signature_or_signed_with_a_shared_secret_is_refused(issuer, ours):
    body = {"iss": issuer.url, "aud": "disque", "exp": int(time.time()) + 60}
    public = json.dumps(body).encode()
    for token in (
        jwt.encode(body, None, "none"),
        jwt.encode(body, "secret" * 8, "HS256", {"kid": "shared"}),
        "a.b.c",
        "",
        issuer.token()[:-4] + "AAAA",
        f"{base64.urlsafe_b64encode(public).decode()}.e30.AA",
    ):
        assert refusal(ours, token).code == "WRONGPASS"


@pytest.mark.parametrize("algorithm", [{}, [], None, 5])
def test_a_token_whose_algorithm_is_no_text_is_refused(ours, algorithm):
    head = base64.urlsafe_b64encode(json.dumps({"alg": algorithm}).encode()).decode().rstrip("=")
    assert refusal(ours, f"{head}.e30.AAAA").code == "WRONGPASS"


def test_a_token_signed_by_another_key_of_the_same_name_is_refused(issuer, ours):
    assert claims(ours, issuer.token())
    issuer.new_key("k1")
    assert refusal(ours, issuer.token()).code == "WRONGPASS"


def test_a_new_key_is_fetched_and_bad_tokens_make_no_load(issuer, ours, monkeypatch):
    claims(ours, issuer.token())
    issuer.new_key("k2")
    refusal(ours, issuer.token())
    refusal(ours, issuer.token())
    assert issuer.asked.count("/keys") == 1
    monkeypatch.setattr(oidc, "AGAIN_S", 0)
    assert claims(ours, issuer.token())
    assert issuer.asked.count("/keys") == 2


def test_the_last_keys_stay_in_force_while_the_issuer_is_away(issuer, ours, monkeypatch):
    token = issuer.token()
    claims(ours, token)
    issuer.close()
    monkeypatch.setattr(oidc, "KEYS_S", 0)
    monkeypatch.setattr(oidc, "AGAIN_S", 0)
    assert claims(ours, token)
    monkeypatch.setattr(oidc, "KEYS_KEPT_S", 0)
    assert refusal(ours, token).code == "ISSUER"


def test_a_token_with_a_known_key_does_not_wait_for_an_issuer_that_hangs(issuer, monkeypatch):
    monkeypatch.setattr(oidc, "KNOWN_S", 0.05, raising=False)
    hangs, ends = threading.Event(), threading.Event()

    def fetch(*words):
        if hangs.is_set() and ends.wait(3):
            raise TimeoutError
        return fetch_json(*words)

    async def run():
        words = {"oidc-issuer": issuer.url, "oidc-audience": "disque", "access-file": "a"}
        ours = oidc.Issuer(Settings(words), fetch)
        await ours.claims(issuer.token(), ("disque",))
        monkeypatch.setattr(oidc, "KEYS_S", 0)
        monkeypatch.setattr(oidc, "AGAIN_S", 0)
        hangs.set()
        began = time.monotonic()
        await ours.claims(issuer.token(), ("disque",))
        ends.set()
        return time.monotonic() - began

    assert asyncio.run(run()) < 2


def test_logins_at_an_issuer_that_hangs_hold_up_neither_tokens_nor_other_threads(issuer):
    """Anyone may begin a login, so there may be many."""
    hangs = threading.Event()

    def fetch(url, form, headers):
        if form is not None:
            hangs.wait(30)
        return fetch_json(url, form, headers)

    async def run():
        words = {"oidc-issuer": issuer.url, "oidc-audience": "disque", "access-file": "a"}
        ours = oidc.Issuer(Settings(words), fetch)
        logins = [asyncio.create_task(ours.exchanged({})) for _ in range(40)]
        await asyncio.sleep(0.2)
        try:
            async with asyncio.timeout(10):
                assert (await ours.claims(issuer.token(), ("disque",)))["sub"] == "ann"
                assert await asyncio.to_thread(lambda: "free") == "free"
        finally:
            hangs.set()
            await asyncio.gather(*logins, return_exceptions=True)
            ours.close()

    asyncio.run(run())


def test_grants_that_are_removed_while_a_token_is_checked_are_not_given(issuer, tmp_path, monkeypatch):
    """The issuer may take seconds, and the result of a check is kept for a minute."""
    monkeypatch.setattr(authentication, "FILE_CHECK_S", 0)
    path = tmp_path / "access.toml"
    path.write_text('[[claim]]\nname = "groups"\nvalue = "team"\ngrants = ["admin"]\n')
    words = {"oidc-issuer": issuer.url, "oidc-audience": "disque", "access-file": str(path)}
    settings = Settings(words)

    def fetch(*request):
        path.write_text('[[claim]]\nname = "groups"\nvalue = "team"\ngrants = ["read"]\n')
        return fetch_json(*request)

    async def run():
        ours = Logins(settings, make_options(("127.0.0.1:1",), {}), issuer=oidc.Issuer(settings, fetch))
        ours.access()
        try:
            return await ours.principal(f"Bearer {issuer.token()}", "127.0.0.1")
        finally:
            await ours.close()

    principal = asyncio.run(run())
    assert (principal.may_somewhere("read"), principal.may_somewhere("admin")) == (True, False)


def test_an_answer_that_comes_byte_by_byte_is_given_up(monkeypatch):
    monkeypatch.setattr(oidc, "FETCH_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with listener.accept()[0] as connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(1000):
                    connection.sendall(b" ")
                    time.sleep(0.02)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(TimeoutError):
            fetch_json(f"http://127.0.0.1:{listener.getsockname()[1]}/", None, {})


def test_an_unreachable_issuer_is_not_reported_as_a_wrong_password(ours, issuer):
    token = issuer.token()
    issuer.close()
    assert refusal(ours, token).row.http == 503


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_an_answer_that_is_not_http_is_no_answer(answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises((OSError, ValueError)):
            fetch_json(f"http://127.0.0.1:{listener.getsockname()[1]}/", None, {})


def test_only_public_keys_for_signatures_are_taken():
    found = keys_of({"keys": [{"kty": "oct", "k": "AA"}, {"kty": "RSA", "use": "enc"}, {"kty": "XX", "kid": "x"}, 7]})
    assert found == {}
    for wrong in ({}, [], {"keys": 1}):
        with pytest.raises(ValueError, match="no keys"):
            keys_of(wrong)
