"""`tidegate policy`, `preference`, `client` and `pipeline rule`: documents with the commands that every kind has."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import documents, input_values
from tidegate.cli.administration.http_client import ApiClient, Refused, path
from tidegate.cli.administration.kinds import CLIENTS, PIPELINE_RULES, POLICIES, PREFERENCES, RULE_SECTIONS, Body
from tidegate.cli.administration.options import Preview, Why, with_api
from tidegate.cli.options import Json

policy = terminal.command_group("Administer the access policies of a running node.")
preference = terminal.command_group("Administer the preferences of data owners, or your own.")
client = terminal.command_group("Administer the known clients of a running node.")
pipeline_rule = terminal.command_group("Administer the pipeline rules of a running node.")

documents.add_commands(policy, POLICIES, *documents.ALL_COMMANDS)
documents.add_commands(preference, PREFERENCES, *documents.ALL_COMMANDS)
documents.add_commands(client, CLIENTS, *documents.ALL_COMMANDS)
documents.add_commands(pipeline_rule, PIPELINE_RULES, "list")


@pipeline_rule.command("set")
@with_api
def set_pipeline_rules(
    api: ApiClient,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            help="A file with `sources`, `scores` and `topics`, like a rules file; - for standard input.",
            metavar="FILE",
        ),
    ],
    why: Why = "",
    dry_run: Preview = False,
    json: Json = False,
) -> None:
    """Add or change the rules of a file, one after the other.

    The pipeline tries them on recent data before they are in force: see `tidegate pipeline status`.

    [dim]tidegate pipeline rule set --file more.yaml --dry-run[/dim]
    """

    def put(entry: Body) -> Body:
        target = path(PIPELINE_RULES.path, entry["id"])
        return api.change("PUT", target, dry_run=dry_run, why=why, body=entry, match=_version(api, target))

    documents.each(input_values.rules(file, RULE_SECTIONS), put, PIPELINE_RULES, "set", dry_run=dry_run, json=json)


def _version(api: ApiClient, target: str) -> str | None:
    """The version of a rule; None: there is no such rule yet."""
    try:
        return api.get(target).version or "*"
    except Refused as refused:
        if refused.status != 404:
            raise
        return None


documents.add_commands(pipeline_rule, PIPELINE_RULES, "show", "remove", "history", "revert")
