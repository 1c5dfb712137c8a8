"""django-q's own Disque broker, unchanged, with a signed task in it."""

import sys

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="tour",
    USE_TZ=True,
    INSTALLED_APPS=["django_q"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    Q_CLUSTER={"name": "tour", "disque_nodes": [f"127.0.0.1:{sys.argv[1]}"], "retry": 60, "timeout": 30},
)
django.setup()

from django_q.brokers import get_broker  # noqa: E402  (needs the settings)
from django_q.signing import SignedPackage  # noqa: E402
from django_q.tasks import async_task  # noqa: E402

broker = get_broker()
assert type(broker).__name__ == "Disque"
assert broker.ping()
assert broker.info().startswith("Disque ")
task = async_task("math.copysign", 2, -2, broker=broker)
assert broker.queue_size() == 1
[(job_id, package)] = broker.dequeue()
assert SignedPackage.loads(package)["id"] == task
assert broker.acknowledge(job_id) == 1
assert broker.dequeue() is None
job_id = broker.enqueue("failing")
broker.dequeue()
assert broker.fail(job_id) == 1
broker.enqueue("one")
broker.enqueue("two")
assert broker.delete_queue() == 2
assert broker.queue_size() == 0
