"""Runs a program of this checkout without installing it.

The scripts beside this file call `run`. If a dependency is missing and the checkout has a virtual
environment, the script starts again with its Python. This file must be readable to any Python 3, so that
an old one gets a sentence instead of a syntax error.
"""

import importlib.util
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV_PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
# Set in a process that was started again, so that it happens once.
AGAIN = "DISQUE_CHECKOUT_AGAIN"
OURS = ("disque_py", "cluster_bus", "persistence")
# What pyproject.toml depends on. Some of it is imported only when it is needed, which is too late to start again.
NEEDED = ("click", "hiredis", "librt", "msgpack", "mypy_extensions", "prompt_toolkit", "rich", "uvloop")


def run(module):
    """Import disque_py.<module> and exit with what its main() returns."""
    if sys.version_info < (3, 11):
        start_again("Python 3.11 or newer is needed, this is {}.{}".format(*sys.version_info[:2]))
    # In front, so that this checkout wins; the folder of the scripts is no place to import from.
    sys.path[0] = ROOT
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            start_again("the package {} is missing".format(name))
    try:
        main = __import__("disque_py." + module, fromlist=["main"]).main
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OURS:
            raise
        start_again(f"the package {error.name} is missing")
    os.environ.pop(AGAIN, None)
    sys.exit(main())


def start_again(reason):
    """Go on with the virtual environment's Python; without one, say what to do."""
    if AGAIN not in os.environ and os.access(VENV_PYTHON, os.X_OK):
        os.environ[AGAIN] = "1"
        os.execv(VENV_PYTHON, [VENV_PYTHON, os.path.abspath(sys.argv[0]), *sys.argv[1:]])
    program = os.path.basename(sys.argv[0])
    sys.exit(f"{program}: {reason}. Run bin/test once, which makes .venv, or: pip install {ROOT}")
