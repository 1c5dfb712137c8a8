"""Django's tasks on Disque: `django.tasks` of Django 6, or the package django-tasks on older ones.

    INSTALLED_APPS = [..., "disque_py.integrations.django"]
    TASKS = {
        "default": {
            "BACKEND": "disque_py.integrations.django.backend.DisqueBackend",
            "OPTIONS": {"url": "disque://127.0.0.1:7711"},
        }
    }

docs/integrations/django.md has the options. backend.py adds tasks and reads results, worker.py runs them, records.py
has their formats, and framework.py names the parts of Django. `manage.py disque_worker` starts a worker.
"""
