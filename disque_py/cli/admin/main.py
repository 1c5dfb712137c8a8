"""disque-admin: commands for people who manage queues, jobs, tasks and schedules.

    disque-admin queue set mail attempts=5 dead-letter=failed
    disque-admin job cancel D-…

It is a separate program because the first word of disque-cli is always a command of the broker. There, `queue set x …`
is the command QUEUE SET, whose reply is `OK` (spec X5). This module has the options, and the modules named after their
objects (queue_commands.py …) have the commands. Exit status: 0 done, 1 not done or only in part, 2 bad usage.
"""

from __future__ import annotations

from typing import Any

import click

from disque_py import __version__
from disque_py.cli.address import HOST_DEFAULT, PORT_DEFAULT
from disque_py.cli.admin.access import Program, target_of
from disque_py.cli.admin.job_commands import job
from disque_py.cli.admin.queue_commands import queue
from disque_py.cli.admin.schedule_commands import schedule
from disque_py.cli.admin.task_commands import task
from disque_py.shell_scripts import SHELLS, completion_script


@click.group(cls=Program)
@click.version_option(__version__, message="disque-admin %(version)s")
@click.option("-h", "--host", default=HOST_DEFAULT, show_default=True, help="A node of the cluster.")
@click.option("-p", "--port", type=click.IntRange(1, 65535), default=PORT_DEFAULT, show_default=True, help="Its port.")
@click.option("-u", "--url", default="", help="disque://[user:password@]host:port, disques:// for TLS.")
@click.option("-a", "--password", envvar="DISQUECLI_AUTH", default="", help="Password (or DISQUECLI_AUTH).")
@click.option("--user", default="", help="User name to log in with.")
@click.option(
    "-t", "--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait for a connection (3)."
)
@click.option("--tls", is_flag=True, help="Use TLS for the connection.")
@click.option("--cacert", default="", help="File of the certificate authority to trust.")
@click.option("--cert", default="", help="File of this program's certificate.")
@click.option("--key", default="", help="File of this program's private key.")
@click.option("--insecure", is_flag=True, help="Don't check the node's certificate.")
@click.pass_context
def main(ctx: click.Context, /, **words: Any) -> None:
    """Manage queues, jobs, tasks and schedules. Name one node; every command works on its whole cluster.

    `disque-cli` sends raw commands to a node. `disque-cluster` manages nodes.
    """
    ctx.obj = target_of(words)


@main.command(short_help="Print a script for TAB completion.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for TAB completion of disque-admin, including names of queues.

    For bash: `eval "$(disque-admin completion bash)"` in ~/.bashrc.
    """
    click.echo(completion_script(main, "disque-admin", shell))


main.add_command(queue)
main.add_command(job)
main.add_command(task)
main.add_command(schedule)

if __name__ == "__main__":
    main(prog_name="disque-admin")
