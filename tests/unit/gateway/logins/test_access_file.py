"""The access file."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from disque_py.gateway.logins.access_file import hash_of, new_secret, parse_access, read_access_file, token_entry


def entry(**words):
    return token_entry(words.get("name", "t"), "s", words.get("grants", ["read"]), words.get("expires"))


def test_a_printed_entry_can_be_read():
    found = parse_access(entry(grants=["produce:mail-*", "read"])).token("s", 0.0)
    assert (found.name, [str(grant) for grant in found.grants]) == ("t", ["produce:mail-*", "read:*"])


@pytest.mark.parametrize("text", ['ann "x"', "a\\d", "a\nb", "ünï\x7f\U0001f600"])
def test_a_printed_entry_can_have_any_name_and_pattern(text):
    found = parse_access(entry(name=text, grants=[f"read:{text}"])).token("s", 0.0)
    assert (found.name, [str(grant) for grant in found.grants]) == (text, [f"read:{text}"])


@pytest.mark.parametrize("text", ["token = 3", "user = true", '[token]\nname = "t"', '[claim]\nname = "t"'])
def test_an_entry_needs_two_pairs_of_brackets(text):
    with pytest.raises(ValueError, match=r"\[\["):
        parse_access(text)


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


def of_clusters(kind, name, more=""):
    """Return two entries of one name: `operate` in us, `read` in eu."""
    return "".join(
        f'[[{kind}]]\nname = "{name}"\ngrants = ["{role}"]\nclusters = ["{cluster}"]\n{more}'
        for role, cluster in (("operate", "us"), ("read", "eu"))
    )


@pytest.mark.parametrize(("cluster", "grants"), [("us", ["operate:*"]), ("eu", ["read:*"]), ("asia", [])])
def test_entries_of_one_name_apply_to_their_clusters(cluster, grants):
    """The last entry does not hide the others."""
    users = parse_access(of_clusters("user", "ann"), cluster).users
    certificates = parse_access(of_clusters("certificate", "CN=ann"), cluster).certificates
    tokens = parse_access(of_clusters("token", "ann", f'sha256 = "{hash_of("s")}"\n'), cluster).tokens
    for found in (users["ann"], certificates["CN=ann"], tokens[hash_of("s")].grants):
        assert [str(grant) for grant in found] == grants


def test_entries_of_one_token_in_the_same_cluster_are_combined():
    """The token ends with the first of them."""
    end = datetime(2027, 1, 1, tzinfo=UTC)
    for texts in (
        (entry(), entry(grants=["produce:a"], expires=end)),
        (entry(grants=["produce:a"], expires=end), entry()),
    ):
        found = parse_access("".join(texts)).token("s", 0.0)
        assert {str(grant) for grant in found.grants} == {"read:*", "produce:a"}
        assert found.expires == end.timestamp()


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
