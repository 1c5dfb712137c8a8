"""A listener for Spark's streaming queries: one line per batch, and Prometheus text in a file or over HTTP.

    spark.streams.addListener(ProgressListener(path="/data/index", metrics_port=9464))

progress_text.py makes the line, and progress_metrics.py the text for Prometheus.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from disque_py.spark.delta_store import Store
from disque_py.spark.progress_file import last_note
from disque_py.spark.progress_metrics import CONTENT_TYPE, prometheus_of
from disque_py.spark.progress_text import figures_of, line_of, rows_of


class ProgressListener(StreamingQueryListener):
    """A listener that reports the progress of streaming queries.

    path           path of the index (string). The notes of its sink add figures. By default empty: no notes are read
    metrics_file   file that is replaced after every batch, for node_exporter's textfile collector. By default empty: no
                   file is written
    metrics_port   port on 127.0.0.1 that serves /metrics; 0 takes a free port. By default None: nothing is served
    quiet          true: no line per batch on stderr. By default false
    """

    def __init__(
        self, path: str = "", *, metrics_file: str = "", metrics_port: int | None = None, quiet: bool = False
    ) -> None:
        self._store = Store(path) if path else None
        self._file = Path(metrics_file) if metrics_file else None
        self._quiet = quiet
        self._totals: dict[str, tuple[int, int]] = {}
        self._figures: dict[str, dict[str, float]] = {}
        self._noted: dict[str, dict[str, float]] = {}
        # Spark's thread reports batches, and the pipeline's thread the nodes.
        self._lock = threading.Lock()
        self._is_old = False  # The file of metrics could not be written.
        self._server: ThreadingHTTPServer | None = None
        if metrics_port is not None:
            self._server = self._serve(metrics_port)

    @property
    def port(self) -> int:
        """Return the port that serves metrics; 0 if none does."""
        return 0 if self._server is None else int(self._server.server_address[1])

    def text(self) -> str:
        """Return all figures as Prometheus text."""
        return self._exposition().decode()

    def report_batch(self, progress: dict[str, Any]) -> None:
        """Report one batch. `progress` is Spark's StreamingQueryProgress as a dict."""
        name = progress.get("name") or str(progress.get("id", ""))[:8]
        note = last_note(self._store) if self._store is not None else {}
        now_ms = time.time_ns() // 1_000_000
        rows, batches = self._totals.get(name, (0, 0))
        rows, batches = self._totals[name] = rows + rows_of(progress, note), batches + 1
        self._figures[name] = figures_of(progress, note, rows, batches, now_ms)
        if not self._quiet:
            print(line_of(name, progress, note, now_ms), file=sys.stderr, flush=True)
        self._write()

    def note(self, name: str, figure: str, value: float) -> None:
        """Set a figure of query `name` that Spark does not report."""
        self._noted.setdefault(name, {})[figure] = value
        self._write()

    def _exposition(self) -> bytes:
        names = {*self._figures, *self._noted}
        return prometheus_of({name: self._figures.get(name, {}) | self._noted.get(name, {}) for name in names})

    def _write(self) -> None:
        """Replace the file of metrics. If it can't be written, print the reason once; the query goes on."""
        if self._file is None:
            return
        fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with self._lock:
            try:
                fresh.write_bytes(self._exposition())
                fresh.replace(self._file)
                self._is_old = False
            except OSError as error:
                if not self._is_old:
                    print(f"disque: warning: the file of metrics is out of date: {error}", file=sys.stderr, flush=True)
                self._is_old = True

    def close(self) -> None:
        """Stop serving metrics."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 — Spark's name
        """Do nothing: the first batch is the first report."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 — Spark's name
        """Report a batch that is over."""
        self.report_batch(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 — Spark's name
        """Do nothing: an idle query has no new figures."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 — Spark's name
        """Do nothing: Spark tells the caller of the query."""

    def _serve(self, port: int) -> ThreadingHTTPServer:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            """GET /metrics."""

            def do_GET(self) -> None:
                """Answer a request."""
                body = listener._exposition()
                self.send_response(200 if self.path.startswith("/metrics") else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: lines on stderr are for batches."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, name="disque metrics", daemon=True).start()
        return server
