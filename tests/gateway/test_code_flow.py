"""Logins of people to the console through an issuer."""

from __future__ import annotations

import urllib.request
from urllib.parse import parse_qs, urlsplit

import pytest

from console_forms import Visitor
from disque_py.gateway.logins.oidc import _NoRedirects
from issuers import Issuer


@pytest.fixture
def issuer():
    """An issuer."""
    found = Issuer()
    yield found
    found.close()


@pytest.fixture
def settings(issuer, tmp_path):
    """The settings of a gateway whose console is a client of the issuer."""
    path = tmp_path / "access.toml"
    path.write_text('[[claim]]\nname = "groups"\nvalue = "team"\ngrants = ["read"]\n')
    return {"access_file": path, "oidc_issuer": issuer.url, "oidc_client_id": "console"}


@pytest.fixture
def visitor(make_gateway, settings):
    """A visitor of such a gateway."""
    return Visitor(make_gateway(**settings))


def way_back(reply):
    """Go to the issuer, as the browser does. Return the address on the gateway to which it sends the browser back."""
    opener = urllib.request.build_opener(_NoRedirects)
    with pytest.raises(urllib.error.HTTPError) as sent:
        opener.open(reply.headers["location"])
    sent.value.close()
    parts = urlsplit(sent.value.headers["Location"])
    return f"{parts.path.removeprefix('/console/')}?{parts.query}"


def test_a_person_logs_in_at_the_issuer(visitor, issuer):
    assert visitor.get("").headers["location"].endswith("/console/login")
    assert f"Log in at {issuer.url}" in visitor.get("login").text
    begun = visitor.get("oidc")
    query = parse_qs(urlsplit(begun.headers["location"]).query)
    assert (query["code_challenge_method"], query["response_type"]) == (["S256"], ["code"])
    assert "SameSite=Lax" in begun.cookies[0]
    back = visitor.get(way_back(begun))
    assert back.status == 200
    assert any("disque-login=" in each and "SameSite=Strict" in each and "HttpOnly" in each for each in back.cookies)
    page = visitor.get("queues")
    assert (page.status, "oidc:ann" in page.text) == (200, True)
    assert visitor.get("audit").status == 403


def test_an_issuer_that_fails_during_a_login_is_not_reported_as_a_wrong_one(visitor, issuer):
    address = way_back(visitor.get("oidc"))
    issuer.close()
    reply = visitor.get(address)
    assert (reply.status, "does not answer" in reply.text) == (503, True)


def test_a_login_is_completed_once_and_only_in_the_browser_that_began_it(visitor, issuer):
    address = way_back(visitor.get("oidc"))
    assert Visitor(visitor.gateway).get(address).status == 403
    assert visitor.get(address.replace("state=", "state=x")).status == 403
    assert visitor.get(address.replace("state=", "state=%ff")).status == 400
    assert visitor.get(address).status == 200
    visitor.get("oidc")
    assert visitor.get(address).status == 403


@pytest.mark.parametrize("path", ["/v1/queues", "/v1/events", "/metrics", "/dyno/q/size"])
def test_an_id_token_is_a_login_of_the_console_only(visitor, issuer, path):
    login = f"Id-Token {issuer.token(aud='console')}"
    assert visitor.gateway.get("/console/queues", login=login).status == 200
    assert visitor.gateway.get(path, login=login).status == 401


def test_a_refusal_of_the_issuer_is_shown(visitor):
    state = parse_qs(urlsplit(visitor.get("oidc").headers["location"]).query)["state"][0]
    reply = visitor.get(f"oidc/back?state={state}&error=<script>")
    assert (reply.status, "&lt;script&gt;" in reply.text) == (401, True)


def test_a_refused_login_at_the_issuer_is_audited(make_gateway, settings, tmp_path):
    visitor = Visitor(make_gateway(audit_log=tmp_path / "audit.log", **settings))
    assert visitor.get("oidc/back?state=x&code=y").status == 403
    assert '"login"' in (tmp_path / "audit.log").read_text()


def test_strangers_cannot_make_the_gateway_ask_the_issuer_as_often_as_they_like(make_gateway, settings):
    visitor = Visitor(make_gateway(address_rate=1, **settings))
    assert 429 in [visitor.get("oidc").status for _ in range(10)]


def test_without_an_issuer_there_is_no_login_page_for_it(gateway):
    assert Visitor(gateway).get("oidc").status == 404
