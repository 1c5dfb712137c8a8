"""Sources of requests, as browsers name them."""

from __future__ import annotations

import pytest

from disque_py.gateway.http.origins import source_of


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
