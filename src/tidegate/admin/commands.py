"""The control commands of administration by name: each is read and handed to the part of the node that does it.

Who may send what is decided before: by the mode of the control socket, and by `permissions` for the HTTP process.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Protocol, TypeVar

from tidegate.admin import control_commands as control
from tidegate.admin.administration import AdministeredNode, Administration
from tidegate.admin.certificate_expiry import CertificateExpiry
from tidegate.admin.consumers import Consumers
from tidegate.admin.ingest import Ingest
from tidegate.admin.live.values import Values, ViewingNode
from tidegate.admin.live.view import LiveView, ViewedNode
from tidegate.admin.me.own_data import OwnData
from tidegate.admin.me.people import OwnersNode
from tidegate.admin.monitor_traces import MonitorTraces
from tidegate.admin.replays import Replays
from tidegate.admin.sign_in import PREFIX, SignIns
from tidegate.config import Config
from tidegate.errors import ConfigError, Problem
from tidegate.explain.question import Question, Questions
from tidegate.net.control_command import typed
from tidegate.net.control_socket import Command

_NOWHERE: Final = "nothing can be administered here: set `http` with `node.data`, or `store`, in the file of the node"

T = TypeVar("T")


class CommandedNode(AdministeredNode, ViewedNode, ViewingNode, OwnersNode, Protocol):
    """What is needed of a node."""


def admin_commands(
    node: CommandedNode, administration: Administration | None, ingest: Ingest, sign_ins: SignIns
) -> dict[str, Command]:
    """The commands; without an administration only those that change no documents are answered."""
    consumers = None if administration is None else Consumers(administration)
    tokens = None if administration is None else administration.tokens

    async def checked(credential: str) -> dict[str, Any]:
        if not credential.startswith(PREFIX):
            return _there(tokens).check(credential)
        await sign_ins.refresh(credential)
        return sign_ins.check(credential)

    async def explain(question: Question) -> dict[str, Any]:
        try:
            return await node.run_query(partial(_explained, node.config, question))
        except ConfigError as error:
            raise Problem(str(error), problem="invalid") from None

    values = Values(node)
    documents = dict(
        (
            typed(control.ListDocuments, lambda each: _there(administration).list_documents(each)),
            typed(control.GetDocument, lambda each: _there(administration).get_document(each)),
            typed(control.GetHistory, lambda each: _there(administration).history(each)),
            typed(control.ApplyChanges, lambda each: _there(administration).apply_changes(each)),
            typed(control.RevertChange, lambda each: _there(administration).revert(each)),
            typed(control.DraftPipelineRules, lambda each: _there(administration).draft(each)),
            typed(control.RegisterConsumer, lambda each: _there(consumers).register(each)),
            typed(control.RenewCredentials, lambda each: _there(consumers).renew(each)),
            typed(control.SetPublicKey, lambda each: _there(consumers).set_key(each)),
            typed(control.RemoveApplication, lambda each: _there(consumers).remove_application(each)),
            typed(control.RemoveApplicationUser, lambda each: _there(consumers).remove_user(each)),
            typed(control.MakeToken, lambda each: _there(tokens).make(each)),
            typed(control.ListTokens, lambda _: {"tokens": _there(tokens).list()}),
            typed(control.RevokeToken, lambda each: _there(tokens).revoke(each)),
            typed(control.CheckToken, lambda each: checked(each.token)),
            typed(control.SignIn, sign_ins.sign_in),
            typed(control.SignOut, sign_ins.sign_out),
            typed(control.OpenIdBegin, sign_ins.openid_begin),
            typed(control.OpenIdFinish, sign_ins.openid_finish),
            typed(control.RegisterSource, lambda each: _there(ingest.sources).register(each)),
            typed(control.RemoveSource, lambda each: _there(ingest.sources).remove(each)),
            typed(control.OpenSealed, ingest.open),
            typed(control.AddData, ingest.add),
            typed(control.PutData, ingest.put),
            typed(Question, explain),
            typed(Questions, lambda each: node.run_query(partial(_verdicts, node.config, each))),
        )
    )
    return {
        **documents,
        **LiveView(node).commands(),
        **OwnData(node, values).commands(),
        **values.commands(),
        **MonitorTraces(node).commands(),
        **Replays(node).commands(),
        **CertificateExpiry(node).commands(),
    }


def _there(part: T | None) -> T:
    if part is None:
        raise Problem(_NOWHERE, problem="unavailable")
    return part


def _explained(config: Config, question: Question) -> dict[str, Any]:
    """The answer to a question. Runs in a thread, which also imports what explains."""
    from tidegate.explain.as_json import document
    from tidegate.explain.what_if import WhatIf

    return document(WhatIf(config).explain(question), question, config)


def _verdicts(config: Config, asked: Questions) -> dict[str, Any]:
    """The verdict of each; of what cannot be asked, why not."""
    from tidegate.explain.what_if import WhatIf

    what_if = WhatIf(config)
    rows: list[dict[str, Any]] = []
    for question in asked.questions:
        try:
            told = what_if.explain(question)
        except ConfigError as error:
            rows.append({"verdict": None, "rule": None, "note": str(error)})
        else:
            rows.append({"verdict": "allow" if told.allowed else "deny", "rule": told.rule or None, "note": ""})
    return {"answers": rows}
