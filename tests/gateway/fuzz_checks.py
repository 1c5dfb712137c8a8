"""The check of fuzz.py: a 5xx is a problem with a code of the table, at its status, and no fault of the gateway."""

from __future__ import annotations

from typing import Any

import schemathesis

from disque_py.gateway.problems import BY_CODE


@schemathesis.check
def only_server_errors_of_the_table(ctx: Any, response: Any, case: Any) -> None:
    """Fail for FAULT, and for an answer from 500 on that the table does not have."""
    if response.status_code >= 500:
        code = response.json().get("code")
        assert code != "FAULT", response.text
        assert code in BY_CODE, response.text
        assert BY_CODE[code].http == response.status_code, response.text
