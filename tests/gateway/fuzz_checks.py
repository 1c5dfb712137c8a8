"""The check of fuzz.py: a 5xx has a code of the table of errors, and the status of that code. FAULT is a failure."""

from __future__ import annotations

from typing import Any

import schemathesis

from disque_py.gateway.problems import BY_CODE


@schemathesis.check
def only_server_errors_of_the_table(ctx: Any, response: Any, case: Any) -> None:
    """Fail for an answer with a status of 500 or above that has the code FAULT, or that the table does not have."""
    if response.status_code >= 500:
        code = response.json().get("code")
        assert code != "FAULT", response.text
        assert code in BY_CODE, response.text
        assert BY_CODE[code].http == response.status_code, response.text
