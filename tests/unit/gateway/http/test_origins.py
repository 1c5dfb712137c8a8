"""Sources of requests, as browsers name them."""

from __future__ import annotations

import pytest

from disque_py.gateway.http.origins import is_over_tls, source_of


@pytest.mark.parametrize(
    ("headers", "source"),
    [
        ({"host": "h"}, "unsaid"),
        ({"sec-fetch-site": "same-origin", "origin": "https://outer", "host": "inner"}, "own"),
        ({"sec-fetch-site": "none"}, "user"),
        ({"sec-fetch-site": "same-site"}, "other"),
        ({"sec-fetch-site": "cross-site", "origin": "http://h", "host": "h"}, "other"),
        ({"origin": "http://[::1]:8711", "host": "[::1]:8711"}, "own"),
        ({"origin": "http://h:1", "host": "h:2"}, "other"),
        ({"origin": "http://h:8080", "host": "h"}, "own"),
        ({"origin": "http://[::1]:8080", "host": "[::1]"}, "own"),
        ({"origin": "http://g:8080", "host": "h"}, "other"),
        ({"origin": "http://h", "host": "h:8080"}, "other"),
        ({"origin": "http://h:x", "host": "h"}, "other"),
        ({"origin": "null", "host": "null"}, "other"),
        ({"origin": "", "host": ""}, "other"),
    ],
)
def test_a_request_of_a_browser_has_a_source(headers, source):
    assert source_of(headers) == source


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"host": "mq.example", "origin": "https://mq.example", "sec-fetch-site": "same-origin"}, True),
        ({"host": "mq.example", "sec-fetch-site": "none"}, True),
        ({"host": "mq.example", "origin": "http://mq.example"}, False),
        ({"host": "mq.example"}, False),
        ({"host": "localhost:8711", "sec-fetch-site": "none"}, False),
        ({"host": "127.0.0.1:8711", "origin": "http://127.0.0.1:8711", "sec-fetch-site": "same-origin"}, False),
        ({"host": "[::1]:8711", "sec-fetch-site": "none"}, False),
        ({"host": "mq.localhost", "sec-fetch-site": "none"}, False),
        ({"host": "mq.example", "origin": "null", "sec-fetch-site": "cross-site"}, False),
    ],
)
def test_a_browser_says_whether_it_uses_tls(headers, expected):
    """It sends Sec-Fetch-Site over TLS and to loopback addresses only."""
    assert is_over_tls(headers) is expected
