from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.request

from disque_py.loopback_ports import free_port


def test_the_console_shows_the_load_after_a_few_seconds():
    words = [sys.executable, "-m", "disque_py.cli.demo_console", "--port", str(free_port())]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        found = next(filter(None, (re.search(r"http://\S+/console/", line) for line in program.stderr)))
        address = found[0]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            text = urllib.request.urlopen(address + "queues", timeout=10).read().decode()
            if "orders" in text and "newsletter" in text:
                break
            time.sleep(0.2)
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 130
    assert "orders" in text
