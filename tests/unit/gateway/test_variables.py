"""gateway/variables.py: environment variables that name no setting."""

from __future__ import annotations

import pytest

from disque_py.gateway.variables import unknown_variables


def warnings(environment):
    return unknown_variables(environment, "DISQUE_GATEWAY_", ["DISQUE_GATEWAY_RATE", "DISQUE_GATEWAY_POLL_MS"])


@pytest.mark.parametrize(
    ("variable", "value", "warning"),
    [
        ("DISQUE_GATEWAY_POLLMS", "100", "names no setting and is ignored; did you mean DISQUE_GATEWAY_POLL_MS?"),
        ("DISQUE_GATEWAY_XYZZY", "1", "names no setting and is ignored"),
        ("DISQUE_GATEWAY_PORT", "8711", "names no setting and is ignored"),
    ],
)
def test_a_variable_that_names_no_setting_is_reported(variable, value, warning):
    [found] = warnings({variable: value, "DISQUE_GATEWAY_RATE": "1", "HOME": "/"})
    assert found.startswith(f"the environment variable {variable} {warning}")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DISQUE_GATEWAY_PORT", "tcp://10.0.0.1:8711"),
        ("DISQUE_GATEWAY_SERVICE_HOST", "10.0.0.1"),
        ("DISQUE_GATEWAY_SERVICE_PORT_HTTP", "8711"),
        ("DISQUE_GATEWAY_PORT_8711_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_the_variables_of_a_service_of_kubernetes_are_no_settings(variable, value):
    """Each container gets them if a service is called disque-gateway."""
    assert warnings({variable: value}) == []
