"""The command line of disque-worker."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from disque_py import __version__
from disque_py.tasks.command import main


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return lambda *words: CliRunner().invoke(main, words)


def test_the_version_and_the_script_for_tab_are_printed(invoke):
    assert invoke("--version").output == f"disque-worker {__version__}\n"
    assert "_DISQUE_WORKER_COMPLETE=bash_complete" in invoke("--completion", "bash").output


def test_each_option_has_a_help(invoke):
    text = invoke("--help").output
    for option in ("--concurrency", "--processes", "--queue", "--grace", "--reload", "--prune", "--no-schedules"):
        assert option in text


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (
            "",
            "no_such_module_1",
            "on the Python path. Start the worker in the folder of the program",
        ),
        ("", "no_such_package_1.tasks", "there is no module no_such_package_1 in "),
        ("1 / 0", "broken_1", "division by zero"),
        ("app = 1", "other_1:app", "no App called 'app'"),
        ("", "other_2:shop.app", "no App called 'shop.app'"),
        ("from disque_py.tasks import App\napp = App()", "empty_1", "the app has no tasks"),
    ],
)
def test_a_program_without_an_app_is_a_usage_error(invoke, tmp_path, source, target, words):
    if "no_such" not in target:
        (tmp_path / f"{target.partition(':')[0]}.py").write_text(source)
    found = invoke(target)
    assert found.exit_code == 2
    assert words in found.output


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ("shop_1.py", "Write shop_1"),
        ("./shop_1.py:app", "Write shop_1:app"),
        ("shops/shop_1.py", "Write shops.shop_1"),
        ("./shop_1", "Write shop_1"),
        ("../shop_1", "Start it in the folder of the program"),
    ],
)
def test_a_file_instead_of_a_module_gets_advice(invoke, tmp_path, target, advice):
    (tmp_path / "shop_1.py").write_text("")
    found = invoke(target)
    assert found.exit_code == 2
    assert found.output.endswith(f": it is a path, and no name of a module. {advice}\n")


def test_a_queue_needs_a_name(invoke):
    found = invoke("json:app", "-q", "")
    assert (found.exit_code, "-q needs the name of a queue" in found.output) == (2, True)


def test_an_app_of_another_name_is_named(invoke, tmp_path):
    (tmp_path / "shop_4.py").write_text("from disque_py.tasks import App\nfirst = App()\nsecond = App()\n")
    found = invoke("shop_4")
    assert (found.exit_code, found.output) == (
        2,
        "Error: shop_4 has no App called 'app'. Write shop_4:first or shop_4:second\n",
    )


def test_a_program_that_ends_while_it_is_imported_is_a_usage_error(invoke, tmp_path):
    (tmp_path / "script_1.py").write_text("import sys\nsys.exit(3)\n")
    found = invoke("script_1")
    assert (found.exit_code, found.output) == (2, "Error: script_1 can't be imported: it calls sys.exit(3)\n")


@pytest.mark.parametrize("words", [[], ["--processes", "2"]])
def test_a_wrong_url_is_a_usage_error(invoke, tmp_path, words):
    found = invoke("shop_2", "--url", "http://:secret@10.0.0.1", *words)
    assert (found.exit_code, "--url: a URL starts with disque://" in found.output) == (2, True)
    assert "secret" not in found.output


def test_a_wrong_url_of_the_app_is_a_usage_error(invoke, tmp_path):
    (tmp_path / "shop_3.py").write_text("from disque_py.tasks import App\napp = App(url='disque://:secret@x/?a=1')\n")
    found = invoke("shop_3")
    assert (found.exit_code, "The URL of the app: unknown option" in found.output) == (2, True)
    assert "secret" not in found.output


def test_a_folder_needs_reload(invoke):
    assert "--reload-dir needs --reload" in invoke("shop:app", "--reload-dir", ".").output
