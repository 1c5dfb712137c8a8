"""TAB in bash, zsh and fish: scripts that ask disque-cli, and the answers to them.

`disque-cli --completion bash` prints a script. The script runs disque-cli with ASK_VARIABLE in the environment, and
with the words of the line up to the cursor. disque-cli prints the words that may come there, one per line. The commands
are those that come with the program. Queue and directive names come from the node that the line names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from disque_py.cli.shell.candidates import keywords_for, names_for
from disque_py.cli.shell.command_docs import builtin_docs
from disque_py.cli.shell.names import NodeNames
from disque_py.cli.shell.options import FLAGS, VALUES, UsageError, parse_options
from disque_py.shell_scripts import SHELLS, is_plain

ASK_VARIABLE: Final = "_DISQUE_CLI_COMPLETE"

_SCRIPTS: Final = {
    "bash": """\
_disque_cli() {
    local IFS=$'\\n'
    COMPREPLY=($(_DISQUE_CLI_COMPLETE=1 "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _disque_cli disque-cli
""",
    "zsh": """\
#compdef disque-cli
_disque_cli() {
    local -a candidates
    candidates=("${(@f)$(_DISQUE_CLI_COMPLETE=1 "${words[1]}" "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    if [[ -n ${candidates[1]} ]]; then
        compadd -- "${candidates[@]}"
    else
        _files
    fi
}
compdef _disque_cli disque-cli
""",
    "fish": """\
function __disque_cli_candidates
    set -l words (commandline -opc)
    env _DISQUE_CLI_COMPLETE=1 $words[1] $words[2..-1] (commandline -ct | string collect --allow-empty) 2>/dev/null
end
complete -c disque-cli -a '(__disque_cli_candidates)'
""",
}


def script(shell: str) -> str:
    """Return the script that makes TAB complete disque-cli in this shell."""
    return _SCRIPTS[shell]


def answers(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the words that may replace the last one, which is being typed and may be empty."""
    complete, begun = list(words[:-1]), words[-1] if words else ""
    at = 0
    while at < len(complete) and complete[at].startswith("-"):
        at += 2 if complete[at] in VALUES else 1
    if at > len(complete):
        candidates = SHELLS if complete[-1] == "--completion" else ()
        return [word for word in candidates if word.startswith(begun)]
    if at == len(complete) and begun.startswith("-"):
        return sorted(option for option in (*FLAGS, *VALUES) if option.startswith(begun))
    return _command_words(complete[:at], complete[at:], begun, environment)


def _command_words(options: list[str], complete: list[str], begun: str, environment: Mapping[str, str]) -> list[str]:
    docs = builtin_docs()
    found = keywords_for(docs, complete, begun, local=("help",))
    if len(complete) == 1 and complete[0].lower() == "events" and "--follow".startswith(begun):
        found.append("--follow")
    try:
        target = parse_options(options, environment).target()
    except UsageError:
        return found
    names = names_for(docs, complete, begun, NodeNames(lambda: target))
    return found + [name for name in names if is_plain(name)]
