"""TAB completion of the server's command line: scripts for bash, zsh and fish.

A script contains the names of all options, so a shell that completes them starts no program. Other words are names of
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from disque_py.config.directives import DIRECTIVES

OPTION: Final = "--completion"
_OPTIONS: Final = ("--help", "--version", "--test-config", OPTION)
_SCRIPTS: Final = {
    "bash": """\
_disque_server() {{
    if [[ $2 == -* ]]; then
        COMPREPLY=($(compgen -W "{}" -- "$2"))
    fi
}}
complete -o default -F _disque_server disque-server
""",
    "zsh": """\
#compdef disque-server
_disque_server() {{
    if [[ ${{words[CURRENT]}} == -* ]]; then
        compadd -- {}
    else
        _files
    fi
}}
compdef _disque_server disque-server
""",
    "fish": """\
function __disque_server_options
    string split ' ' -- '{}'
end
complete -c disque-server -n 'string match -q -- "-*" (commandline -ct)' -a '(__disque_server_options)'
""",
}


def script(words: Sequence[str]) -> str | None:
    """Return the script for the shell that follows OPTION; None: the words name no shell of `_SCRIPTS`."""
    found = _SCRIPTS.get(words[1]) if len(words) == 2 else None
    names = (*_OPTIONS, *(f"--{directive.name}" for directive in DIRECTIVES))
    return None if found is None else found.format(" ".join(names))
