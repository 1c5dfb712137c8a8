"""The access file."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from disque_py.gateway.access_file import hash_of, new_secret, parse_access, read_access_file, token_entry


def entry(**words):
    return token_entry(words.get("name", "t"), "s", words.get("grants", ["read"]), words.get("expires"))


def test_a_printed_entry_can_be_read():
    found = parse_access(entry(grants=["produce:mail-*", "read"])).token("s", 0.0)
    assert (found.name, [str(grant) for grant in found.grants]) == ("t", ["produce:mail-*", "read:*"])


def test_a_token_with_a_wrong_secret_is_refused():
    assert parse_access(entry()).token("S", 0.0) is None


def test_a_token_expires():
    access = parse_access(entry(expires=datetime(2027, 1, 1, tzinfo=UTC)))
    end = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    assert access.token("s", end - 1) is not None
    assert access.token("s", end) is None


def test_the_file_has_no_secret():
    secret = new_secret()
    assert secret not in token_entry("t", secret, ["read"], None)
    assert hash_of(secret) in token_entry("t", secret, ["read"], None)


def test_users_have_grants(tmp_path):
    path = tmp_path / "access.toml"
    path.write_text('[[user]]\nname = "ann"\ngrants = ["operate:a*"]\n')
    assert [str(grant) for grant in read_access_file(str(path)).users["ann"]] == ["operate:a*"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[tokens]]\n", "no field 'tokens'"),
        ("[[token]]\nsha256='0'\n", "needs a name"),
        ("[[token]]\nname='a'\nsha256='xyz'\n", "64 hexadecimal"),
        (f"[[token]]\nname='a'\nsha256='{'0' * 64}'\nexpires='soon'\n", "a time"),
        (f"[[token]]\nname='a'\nsha256='{'0' * 64}'\ngrants='read'\n", "list of texts"),
        (f"[[token]]\nname='a'\nsha256='{'0' * 64}'\ngrants=['root']\n", "no role"),
        (f"[[token]]\nname='a'\nsha256='{'0' * 64}'\nrole='x'\n", "no field 'role'"),
        ("[[user]]\ngrants=[]\n", "needs a name"),
        ("token = 5", "."),
        ("x", "."),
    ],
)
def test_a_mistake_is_named(text, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint):
        parse_access(text)
