"""Runs a program of this checkout without installing it.

The scripts beside this file call `run`. If a dependency is missing, the script starts again with the Python of the
checkout's virtual environment. bin/prepare makes that environment if it is missing or too old. Any Python 3 must be
able to parse this file, so that an old one prints a clear message instead of a syntax error.
"""

import importlib.util
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV_PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
PREPARE = os.path.join(ROOT, "bin", "prepare")
# Set in a process that was started again, so that each way is tried once. FOUND: in the existing environment.
# PREPARED: in the environment that bin/prepare has made or updated.
AGAIN = "DISQUE_CHECKOUT_AGAIN"
FOUND, PREPARED = "found", "prepared"
OURS = ("disque_py", "cluster_bus", "persistence")
# The dependencies in pyproject.toml. Some are imported only on demand, which is too late to start again.
NEEDED = ("click", "hiredis", "librt", "msgpack", "mypy_extensions", "prompt_toolkit", "rich", "tzdata", "uvloop")


def run(module):
    """Import disque_py.<module> and exit with the status that its main() returns."""
    if sys.version_info < (3, 11):
        start_again("Python 3.11 or newer is needed, this is {}.{}".format(*sys.version_info[:2]))
    # First in the path, so that this checkout wins. Nothing may be imported from the folder of the scripts.
    sys.path[0] = ROOT
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            start_again("the package {} is missing".format(name))
    try:
        main = __import__("disque_py." + module, fromlist=["main"]).main
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OURS:
            raise
        start_again("the package {} is missing".format(error.name))
    os.environ.pop(AGAIN, None)
    sys.exit(main())


def start_again(reason):
    """Start again with the virtual environment's Python. Make the environment if needed, or print what is missing."""
    tried = os.environ.get(AGAIN)
    if not tried and not os.environ.get("DISQUE_VENV") and os.access(VENV_PYTHON, os.X_OK):
        go_on_with(VENV_PYTHON, FOUND)
    program = os.path.basename(sys.argv[0])
    if tried != PREPARED and os.access(PREPARE, os.X_OK):
        sys.stderr.write("{}: {}, so bin/prepare makes an environment.\n".format(program, reason))
        sys.stderr.flush()
        done = subprocess.run([PREPARE], stdout=subprocess.PIPE, check=False)
        python = done.stdout.decode().strip()
        if done.returncode == 0 and os.access(python, os.X_OK):
            go_on_with(python, PREPARED)
    sys.exit("{}: {}. Run bin/prepare, which makes .venv, or: pip install {}".format(program, reason, ROOT))


def go_on_with(python, how):
    """Replace this process by the same program in another interpreter."""
    os.environ[AGAIN] = how
    os.execv(python, [python, os.path.abspath(sys.argv[0]), *sys.argv[1:]])
