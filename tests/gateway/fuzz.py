"""schemathesis against the gateway's own OpenAPI: `make fuzz-gateway`.

A cluster of one node and a gateway run during the tests. A run fails if an answer has a status that OpenAPI does not
name, or a 5xx that the table of errors does not have (fuzz_checks.py). Streams and batches are left out, because they
are not JSON. The program's arguments are passed to schemathesis, which runs in a temporary folder and has its cache
there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

from disque_py import testing  # noqa: E402  # behind the path
from gateways import RunningGateway  # noqa: E402

LEFT_OUT = ("--exclude-path", "/v1/events", "--exclude-path", "/v1/queues/{queue}/jobs:batch")
CHECKS = "only_server_errors_of_the_table,status_code_conformance,content_type_conformance,response_schema_conformance"


def main() -> int:
    """Run schemathesis."""
    with testing.cluster(1) as cluster, tempfile.TemporaryDirectory() as folder:
        with cluster.client() as client:  # Without voters, locks are refused with 503.
            client.cluster_voters_init(client.hello().id)
        gateway = RunningGateway(cluster.url, wait_max_ms=200, audit_log=Path(folder) / "audit.log")
        words = [sys.executable, "-m", "schemathesis.cli", "run", f"{gateway.address}/v1/openapi.json"]
        words += ["--url", gateway.address, "--checks", CHECKS, *LEFT_OUT, *sys.argv[1:]]
        paths = os.pathsep.join([str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"SCHEMATHESIS_HOOKS": "fuzz_checks", "PYTHONPATH": paths}
        try:
            return subprocess.run(words, check=False, cwd=folder, env=environment).returncode
        finally:
            gateway.close()


if __name__ == "__main__":
    sys.exit(main())
