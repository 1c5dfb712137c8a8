"""schemathesis against the gateway's own OpenAPI: `make fuzz-gateway`.

A cluster of one node and a gateway run as long as the tests. An answer with a status that OpenAPI does not name is a
failure, as is any 5xx. Streams and batches have no JSON, so they are left out. Arguments go to schemathesis.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from disque_py import testing
from gateways import RunningGateway

LEFT_OUT = ("--exclude-path", "/v1/events", "--exclude-path", "/v1/queues/{queue}/jobs:batch")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def main() -> int:
    """Run schemathesis."""
    with testing.cluster(1) as cluster:
        with cluster.client() as client:  # Without voters, locks are refused with 503.
            client.cluster_voters_init(client.hello().id)
        gateway = RunningGateway(cluster.url, wait_max_ms=200)
        words = [sys.executable, "-m", "schemathesis.cli", "run", f"{gateway.address}/v1/openapi.json"]
        words += ["--url", gateway.address, "--checks", CHECKS, *LEFT_OUT, *sys.argv[1:]]
        try:
            return subprocess.run(words, check=False).returncode
        finally:
            gateway.close()


if __name__ == "__main__":
    sys.exit(main())
