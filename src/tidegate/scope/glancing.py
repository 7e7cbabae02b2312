"""Monitors of a publisher's link that can tell at a glance that a message passes unchanged: `rate`, named states.

It does what `Monitoring.enter` does for such a message, and nothing if one of the monitors has to look closer, or if
what passes would have to carry the contexts that its state comes from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.gate import Asked
from tidegate.monitor import ASK, Instance, Machine, State
from tidegate.session import Message, Session

if TYPE_CHECKING:
    from tidegate.scope.monitors import Monitoring

Move = tuple[Instance, State]


def let_pass(monitoring: Monitoring, asked: Asked, message: Message, source: Session) -> bool:
    """Whether all monitors let a QoS 0 message pass as it is; their states are then those after it."""
    # hot: one look-up per monitor, and the note of another state
    entering, steady = source.entering, monitoring.site.steady
    first: Move | None = None
    others: list[Move] | None = None
    for position, glance, passing in asked.glances:
        instance: Instance = entering[position]
        state = glance(instance.state, steady)
        if state is ASK or (instance.laden and not passing):
            return False
        if first is None:
            first = instance, state
        elif others is None:
            others = [(instance, state)]
        else:
            others.append((instance, state))
    if first is not None:
        _move(monitoring, *first, message)
        for instance, state in others or ():
            _move(monitoring, instance, state, message)
    return True


def _move(monitoring: Monitoring, instance: Instance, state: State, message: Message) -> None:
    attachment = instance.attachment
    states = monitoring.states
    states.tallies[attachment.id].seen += 1
    before, sources = instance.state, instance.sources
    if state is before:
        return
    machine: Machine = attachment.monitor
    if machine.remembers and (sources or state != before):
        sources = monitoring.remembered(instance, state, message, message.link)
    states.move(instance, state, sources, at_once=False)
