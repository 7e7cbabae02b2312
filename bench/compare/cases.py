"""What is compared: works of `bench broker`, `bench gate` and `bench scopes` over sockets, and the same in process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.broker import works
from bench.gate import contests, rulebook
from bench.harness import work
from bench.harness.servers import Peer, Setting
from bench.harness.work import Figure, Work
from bench.load.job import Job
from bench.scopes import saturated
from bench.scopes.chain import Chain
from bench.scopes.contest import CONTESTS

CONNECTIONS = 2000  # enough to tell their memory, and sooner there than the 10,000 of `bench broker`
PUBLISHERS = 28  # of the rules in process
ESSENTIAL = (
    "broker/qos0-100/5000",
    "broker/qos1-100/5000",
    "broker/qos2-100/5000",
    "broker/fanout-1000/10",
    "gate/everything-100/open",
    "gate/everything-100/everything",
    "scopes/NEW, 5 scopes, QoS 0",
)
"""Over sockets, unless others are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketCase:
    """A load on a node of either checkout."""

    name: str
    title: str
    job: Job
    setting: Setting
    version: int = 4
    figure: Figure = Figure.FLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCase:
    """Messages through the scopes of either checkout, without sockets. `command` is for `worker`."""

    name: str
    title: str
    command: dict[str, Any]


def _from_work(prefix: str, work: Work, version: int = 4) -> SocketCase:
    job = work.job
    if work.figure is Figure.MEMORY:
        job = dataclasses.replace(job, connections=CONNECTIONS)
    return SocketCase(
        name=f"{prefix}/{work.key if prefix == 'broker' else work.name}",
        title=work.title,
        job=job,
        setting=work.setting,
        version=version,
        figure=work.figure,
    )


def _from_chain(chain: Chain, qos: int) -> SocketCase:
    return SocketCase(
        name=f"scopes/{_chain_name(chain)}, QoS {qos}",
        title=chain.configuration.title,
        job=chain.job(qos=qos, window=saturated.WINDOW),
        setting=chain.setting(),
    )


def _chain_name(chain: Chain) -> str:
    return f"{chain.name}, {chain.monitors} monitors" if chain.extra else chain.name


def _chains() -> list[Chain]:
    return list(dict.fromkeys(chain for contest in CONTESTS for chain in (contest.several, contest.one)))


def over_sockets() -> list[SocketCase]:
    """All that can be compared. Latency depends on a rate that is measured first: those works are not here."""
    broker = [_from_work("broker", one) for one in works.WORKS if one.figure is not Figure.LATENCY]
    gate = [
        _from_work("gate", contest.work(one), contest.version)
        for contest in contests.contests()
        for one in contest.contenders
        if one.peer is Peer.TIDEGATE
    ]
    return [*broker, *gate, *(_from_chain(chain, qos) for chain in _chains() for qos in (0, 1))]


def in_process() -> list[ProcessCase]:
    """The paths of the gate's rules and the chains of scopes."""

    def rules(name: str, text: str, *, version: int = 4, copies: int = 1, where: str = "") -> ProcessCase:
        command = {"rules": text, "version": version, "copies": copies, "where": where}
        return ProcessCase(name=f"gate/{name}", title="bytes in to bytes out, QoS 0", command=command)

    alone = rulebook.alone
    return [
        rules("open", rulebook.unrestricted(PUBLISHERS)),
        rules("everything", rulebook.everything(PUBLISHERS)),
        *(rules(name, alone(PUBLISHERS, more=lines)) for name, (_, lines) in rulebook.MONITORS.items()),
        *(rules(name, alone(PUBLISHERS, **conditions)) for name, (_, conditions) in rulebook.MECHANISMS.items()),
        rules("views", alone(PUBLISHERS, more=rulebook.views()), copies=len(rulebook.VIEWS)),
        rules("where", alone(PUBLISHERS), version=5, where=rulebook.PAYLOAD_CONDITION),
        *(
            ProcessCase(
                name=f"scopes/{_chain_name(chain)}, QoS {qos}",
                title=chain.configuration.title,
                command={
                    "chain": {
                        "configuration": chain.configuration.name,
                        "scopes": chain.scopes,
                        "extra": chain.extra,
                    },
                    "qos": qos,
                },
            )
            for chain in _chains()
            for qos in (0, 1)
        ),
    ]


def chosen(wanted: Iterable[str], *, everything: bool) -> tuple[list[SocketCase], list[ProcessCase]]:
    """Those whose name is one of `wanted` or begins so; the essential ones over sockets if nothing is asked for."""
    sockets, processes = over_sockets(), in_process()
    names = list(wanted)
    if everything:
        return sockets, processes
    if not names:
        return [one for one in sockets if one.name in ESSENTIAL], processes
    known = {one.name: one for one in sockets} | {f"in-process/{one.name}": one for one in processes}
    taken = [known[name] for name in work.chosen(names, list(known), _named)]
    return (
        [one for one in taken if isinstance(one, SocketCase)],
        [one for one in taken if isinstance(one, ProcessCase)],
    )


def _named(name: str, text: str) -> bool:
    return name == text or name.startswith((f"{text}/", f"{text},"))
