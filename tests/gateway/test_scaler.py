"""KEDA's external scaler."""

from __future__ import annotations

import time

import grpc
import pytest

from disque_py.gateway.problems import RefusedError
from disque_py.gateway.rpc.calls import scaler_login
from disque_py.gateway.rpc.descriptors import SCALER, message
from disque_py.gateway.rpc.scaler import trigger_of
from rpc_client import RpcClient


@pytest.fixture(scope="module")
def keda(gateway):
    """A client that calls the scaler as KEDA does."""
    client = RpcClient(gateway, SCALER)
    yield client
    client.close()


def test_the_figure_is_the_number_of_jobs_in_the_queue(gateway, keda, queue):
    words = {"queue": queue, "jobsPerReplica": "2", "activation": "1", "oldestAgeSeconds": "30"}
    assert not keda("IsActive", scalerMetadata=words).result
    for _ in range(3):
        gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b", "meta": {"tenant": "a"}})
    assert keda("IsActive", scalerMetadata=words).result
    specs = keda("GetMetricSpec", scalerMetadata=words).metricSpecs
    assert [(each.metricName, each.targetSize) for each in specs] == [("jobs", 2), ("oldestAgeSeconds", 30)]
    for name in ("jobs", "s0-jobs"):
        [value] = keda("GetMetrics", scaledObjectRef={"scalerMetadata": words}, metricName=name).metricValues
        assert (value.metricName, value.metricValue) == (name, 3)
    filtered = words | {"where": "tenant:b"}
    [value] = keda("GetMetrics", scaledObjectRef={"scalerMetadata": filtered}, metricName="jobs").metricValues
    assert value.metricValue == 0


def test_a_state_that_is_named_twice_counts_once(gateway, keda, queue):
    gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"})
    words = {"queue": queue, "states": "pending, running,pending"}
    [value] = keda("GetMetrics", scaledObjectRef={"scalerMetadata": words}, metricName="jobs").metricValues
    assert value.metricValue == 1


@pytest.mark.parametrize("words", [{"queue": "q"}, {"match": "q*"}])
def test_without_an_answer_of_the_nodes_there_is_no_figure(make_gateway, words):
    """With 0 KEDA would stop all consumers."""
    client = RpcClient(make_gateway(url="disque://127.0.0.1:1/?patience=0.2"), SCALER)
    with pytest.raises(grpc.RpcError) as caught:
        client("IsActive", scalerMetadata=words)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    client.close()


def test_the_jobs_of_all_queues_that_match_are_summed(gateway, keda, queue):
    for name in ("a", "b"):
        gateway.post(f"/v1/queues/{queue}-{name}/jobs", {"body": "b"})
    words = {"match": f"{queue}-*"}
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        [value] = keda("GetMetrics", scaledObjectRef={"scalerMetadata": words}, metricName="jobs").metricValues
        if value.metricValue == 2:
            break
        time.sleep(0.05)
    assert value.metricValue == 2


def test_the_first_state_is_streamed_at_once(keda, queue):
    stream = keda("StreamIsActive", scalerMetadata={"queue": queue})
    assert not next(stream).result
    stream.cancel()


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"queue": "a", "match": "b"},
        {"queue": "a", "states": "pending,done"},
        {"queue": "a", "jobsPerReplica": "0"},
        {"queue": "a", "activation": "x"},
        {"match": "a", "where": "b:c"},
        {"queue": "a", "where": "tenant=b"},
        {"queue": "a", "where": ":b"},
    ],
)
def test_a_wrong_trigger_is_refused(words):
    with pytest.raises(RefusedError):
        trigger_of(message("externalscaler.ScaledObjectRef")(scalerMetadata=words))


def test_a_token_may_stand_in_the_metadata(make_gateway, tmp_path):
    from disque_py.gateway.logins.access_file import token_entry

    path = tmp_path / "access.toml"
    path.write_text(token_entry("keda", "dq_keda", ["read:q*"], None))
    client = RpcClient(make_gateway(access_file=path), SCALER)
    assert not client("IsActive", scalerMetadata={"queue": "q-none", "token": "dq_keda"}).result
    for words, code in (
        ({"queue": "q"}, grpc.StatusCode.UNAUTHENTICATED),
        ({"queue": "other", "token": "dq_keda"}, grpc.StatusCode.PERMISSION_DENIED),
    ):
        with pytest.raises(grpc.RpcError) as error:
            client("IsActive", scalerMetadata=words)
        assert error.value.code() == code
    client.close()


@pytest.mark.parametrize("name", ["token", "tokenFromEnv"])
def test_the_login_of_a_scaler_stands_in_its_metadata(name):
    """For `tokenFromEnv`, KEDA sends the value of the deployment's variable."""
    reference = message("externalscaler.ScaledObjectRef")(scalerMetadata={"queue": "mail", name: "dq_secret"})
    assert scaler_login(reference) == "Bearer dq_secret"
