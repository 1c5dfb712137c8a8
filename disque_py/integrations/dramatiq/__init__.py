"""Dramatiq on Disque: broker, result backend, rate limiter backend.

    import dramatiq
    from disque_py.integrations.dramatiq import DisqueBroker

    dramatiq.set_broker(DisqueBroker(url="disque://127.0.0.1:7711"))

docs/integrations/dramatiq.md has the options. broker.py adds and fetches messages, and Dramatiq's middleware uses
results.py and rate_limits.py.
"""

from disque_py.integrations.dramatiq.broker import DisqueBroker
from disque_py.integrations.dramatiq.rate_limits import DisqueRateLimiterBackend
from disque_py.integrations.dramatiq.results import DisqueBackend

__all__ = ["DisqueBackend", "DisqueBroker", "DisqueRateLimiterBackend"]
