"""disque-admin against a scripted node."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from disque_py.cli.admin.main import main
from scripted_queues import answers


@pytest.fixture
def admin(scripted):
    """Runs a disque-admin command against a node with these answers. The result has the node as `node`."""

    def run(line, stdin=None, **more):
        node = scripted(answers(**more))
        result = CliRunner().invoke(main, ["-p", str(node.port), *line.split()], input=stdin)
        result.node = node
        return result

    return run
