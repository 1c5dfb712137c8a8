"""Cookies, and the check of forms."""

from __future__ import annotations

import pytest

from disque_py.gateway.console.sessions import LOGIN, WORD, Session, cookie
from disque_py.gateway.problems import RefusedError

WORDS = f"{WORD}=abc"
TOKEN = Session(WORDS).form_token


def test_a_login_is_kept_in_a_cookie_that_no_script_can_read():
    name, header = cookie(LOGIN, "Bearer dq_x", "/console/", is_secure=True)
    assert name == "set-cookie"
    assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/console/"} <= set(header.split("; "))
    assert Session(header.partition(";")[0]).authorization == "Bearer dq_x"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin", "origin": "https://outer", "host": "inner"},
        {"origin": "http://h:1", "host": "H:1"},
        {"origin": "https://h", "host": "h:443"},
    ],
)
def test_a_form_of_the_console_is_accepted(headers):
    Session(WORDS).check_form(TOKEN, headers)


@pytest.mark.parametrize(
    ("cookies", "token", "headers"),
    [
        ("", TOKEN, {"sec-fetch-site": "same-origin"}),
        (WORDS, "", {"sec-fetch-site": "same-origin"}),
        (WORDS, "é", {"sec-fetch-site": "same-origin"}),
        (f"{WORD}=other", TOKEN, {"sec-fetch-site": "same-origin"}),
        (WORDS, TOKEN, {"sec-fetch-site": "cross-site"}),
        (WORDS, TOKEN, {"sec-fetch-site": "same-site"}),
        (WORDS, TOKEN, {"sec-fetch-site": "none", "origin": "http://h", "host": "h"}),
        (WORDS, TOKEN, {"origin": "http://evil", "host": "h"}),
        (WORDS, TOKEN, {"origin": "null", "host": "h"}),
        (WORDS, TOKEN, {"origin": "null", "host": ""}),
        (WORDS, TOKEN, {"origin": "http://[", "host": "h"}),
        (WORDS, TOKEN, {"host": "h"}),
    ],
)
def test_any_other_form_is_refused(cookies, token, headers):
    with pytest.raises(RefusedError) as caught:
        Session(cookies).check_form(token, headers)
    assert caught.value.code == "NOPERM"


@pytest.mark.parametrize("header", ["disque-login=\xff", "a=b; =", ";;;", "disque-login=!!!"])
def test_a_cookie_that_cannot_be_read_is_ignored(header):
    assert Session(header).authorization == ""


@pytest.mark.parametrize("other", ['seen={"a": 1}', "a=b c", "a,b=1", "a=\xfc", "a"])
def test_the_cookie_of_another_program_on_the_host_hides_no_login(other):
    _, header = cookie(LOGIN, "Bearer dq_x", "/", is_secure=False)
    assert Session(f"{other}; {header.partition(';')[0]}").authorization == "Bearer dq_x"
