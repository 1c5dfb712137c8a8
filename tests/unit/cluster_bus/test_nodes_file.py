"""cluster_bus/nodes_file.py: a saved table can be loaded, and damage is reported with its line."""

from __future__ import annotations

import pytest

from cluster_bus.node import FAIL, HANDSHAKE, LEAVING, MYSELF, PFAIL, Node
from cluster_bus.nodes_file import NodeLine, NodesFileError, Notes, dump, parse, parse_notes, six_fields

ME, OTHER = b"\x01" * 20, b"\x02" * 20
ORIGINAL = (
    "8a3f8d7ceab710e27f0c54c3b1f3a052425b7e96 127.0.0.1:7900 myself 0 0 connected\n"
    "f19ba51cdbff77ef1b3e33d1760c750eabf7e3cb 127.0.0.1:7902 leaving 0 1795226405644 connected\n"
    "\n"
    "vars currentEpoch 0\n"
    "f3c944571be6dd5db5c2d784ab242d18da5406bf ::1:7919 fail?,noaddr 1795226850577 0 disconnected\n"
)


def nodes() -> list[Node]:
    other = Node(OTHER, "fe80::1", 7712, 27712, PFAIL | LEAVING)
    other.ping_sent_wall_ms, other.pong_received_wall_ms = 1_795_000_000_000, 1_794_000_000_000
    return [Node(ME, "10.0.0.1", 7711, 17711, MYSELF), other, Node(b"\x03" * 20, "h", 1, 2, HANDSHAKE)]


def test_the_text_of_a_nodes_file_is_fixed():
    """Spec N6."""
    assert dump(nodes()).splitlines()[:-1] == [
        "version 1",
        f"{'01' * 20} 10.0.0.1:7711 myself 0 0 connected bus-port=17711",
        f"{'02' * 20} fe80::1:7712 fail?,leaving 1795000000000 1794000000000 disconnected bus-port=27712",
    ]


def test_a_dumped_table_is_parsed_back_without_handshakes():
    assert parse(dump(nodes())) == [
        NodeLine(ME, "10.0.0.1", 7711, 17711, MYSELF, 0, 0),
        NodeLine(OTHER, "fe80::1", 7712, 27712, PFAIL | LEAVING, 1_795_000_000_000, 1_794_000_000_000),
    ]


def test_a_tls_port_is_kept():
    mine, other, _ = nodes()
    other.tls_port = 7800
    assert [line.tls_port for line in parse(dump([mine, other]))] == [0, 7800]
    with pytest.raises(NodesFileError, match="tls-port is not a port"):
        parse(ORIGINAL.replace("myself 0 0 connected", "myself 0 0 connected tls-port=x"))


def test_a_file_of_the_original_is_read_its_bus_ports_are_known():
    mine, leaving, failing = parse(ORIGINAL)
    assert (mine.host, mine.port, mine.bus_port, mine.flags) == ("127.0.0.1", 7900, 17900, MYSELF)
    assert leaving.flags == LEAVING
    assert (failing.host, failing.port, failing.ping_sent_ms) == ("::1", 7919, 1_795_226_850_577)


def test_a_fresh_node_has_no_host_yet():
    assert six_fields(Node(ME, port=7711, flags=MYSELF)) == f"{'01' * 20} :7711 myself 0 0 connected"


def test_the_node_itself_comes_first_wherever_its_line_is():
    first, second, *rest = ORIGINAL.splitlines(keepends=True)
    assert parse(second + "".join(rest) + first)[0].flags == MYSELF


def test_fields_of_a_newer_version_are_ignored():
    text = ORIGINAL.replace("myself 0 0 connected", "myself 0 0 connected zone=b bus-port=5000")
    assert parse(text)[0].bus_port == 5000


def test_a_file_cut_off_anywhere_is_reported():
    text = dump(nodes())
    assert parse(text[:-1]) == parse(text)  # Only the last line feed is missing.
    for end in range(len(text) - 1):
        with pytest.raises(NodesFileError):
            parse(text[:end])


def test_one_changed_byte_is_reported():
    text = dump(nodes())
    for at in range(len(text) - 1):
        with pytest.raises(NodesFileError):
            parse(text[:at] + "~" + text[at + 1 :])


def test_a_file_ending_in_zero_bytes_is_reported():
    """Files of the original looked like this after a power cut (spec Q36)."""
    with pytest.raises(NodesFileError, match="line 6"):
        parse(ORIGINAL + "\0" * 100)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("myself 0 0 connected", "myself 0 0", 1, "6 fields"),
        ("8a3f", "xx3f", 1, "40 hexadecimal"),
        ("8a3f", "8a", 1, "40 hexadecimal"),
        (":7900", ":79000", 1, "host:port"),
        ("127.0.0.1:7902", "127.0.0.1", 2, "host:port"),
        ("leaving", "sleeping", 2, "unknown flag"),
        ("0 1795226405644", "0 soon", 2, "milliseconds"),
        ("connected\nf19", "connected bus-port\nf19", 1, "key=value"),
        ("connected\nf19", "connected bus-port=x\nf19", 1, "not a port"),
        ("f3c944571be6dd5db5c2d784ab242d18da5406bf", "8a3f8d7ceab710e27f0c54c3b1f3a052425b7e96", 5, "earlier line"),
        ("myself", "noflags", 0, "0 nodes are flagged"),
        ("leaving", "myself", 0, "2 nodes are flagged"),
    ],
)
def test_a_malformed_line_is_reported_with_its_number(old: str, new: str, line: int, reason: str):
    with pytest.raises(NodesFileError, match=reason) as caught:
        parse(ORIGINAL.replace(old, new))
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "0 nodes are flagged"),
        ("version\n", "a number expected"),
        ("version 2\n", "newer version"),
        ("version 1\n", "cut off"),
        ("version 1\nchecksum 00000000\n", "does not match"),
    ],
)
def test_a_bad_frame_around_the_lines_is_reported(text: str, reason: str):
    with pytest.raises(NodesFileError, match=reason):
        parse(text)


def test_failed_nodes_and_bytes_that_are_not_text_reach_the_parser():
    failed = [nodes()[0], Node(OTHER, "h", 1, 2, FAIL)]
    assert parse(dump(failed))[1].flags == FAIL
    with pytest.raises(NodesFileError):
        parse(b"\xff\xfe\n".decode(errors="surrogateescape"))


def test_notes_in_the_file_are_read_back():
    me = Node(b"m" * 20, "10.0.0.1", 7711, 17711, MYSELF)
    notes = Notes([("10.0.0.2", 7711, 17711)], [(b"f" * 20, 60_000), (b"g" * 20, -1)], True)
    text = dump([me], notes)
    assert len(parse(text)) == 1
    assert parse_notes(text, 1_010_000) == notes


def test_nodes_that_an_older_release_forgot_within_the_minute_stay_forgotten():
    """Spec N5. Nodes that were forgotten earlier were allowed to come back."""
    text = f"vars forgot {'66' * 20} 60000 1000000\nvars forgot {'67' * 20} 500 1000000\n"
    assert parse_notes(text, 1_010_000).forgotten == [(b"f" * 20, 0)]


def test_the_incarnation_of_a_node_and_the_wish_of_an_operator_are_kept():
    """Spec N10."""
    mine, other, _ = nodes()
    mine.incarnation, other.must_meet, other.is_asked = 77, True, True
    first, second = parse(dump([mine, other]))
    assert (first.incarnation, first.is_asked, second.incarnation, second.is_asked) == (77, False, 0, True)
    with pytest.raises(NodesFileError, match="incarnation"):
        parse(dump([mine]).replace("=77", "=x").split("\n", 1)[1].rsplit("checksum", 1)[0])


def test_notes_of_other_versions_are_ignored():
    assert parse_notes("vars currentEpoch 0\nvars meet x\nvars forgot zz 1 2\nvars forgotten zz 1\n", 0) == Notes(
        [], [], False
    )


def test_places_are_kept_and_unknown_ones_stay_unknown():
    """Spec ZN1."""
    mine, other, third = nodes()
    third.flags = 0
    other.datacenter, other.zone, other.is_placed = "eu west", "a/b=ü", True
    assert [line.place for line in parse(dump([mine, other, third]))] == [None, ("eu west", "a/b=ü"), None]
