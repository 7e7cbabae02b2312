"""XACML 2.0 policies and policy sets, and those of XACML 1.0 as far as they are alike.

The whole tree becomes one list of policies with `combining: first-applicable`: see `combining` for the algorithms,
`expressions` for targets and conditions, `document` for what makes reading the XML safe. A request of XACML here: who
connects, the topic of one message, and whether it is written (published) or read (delivered).

Invariants
- Permit becomes allow. Deny, NotApplicable and Indeterminate become deny: as of a PEP that denies unless permitted.
- What has no equivalent is listed, and denies.
- A refusal without a resource also reaches those topics that begin with `$` of which the file permits some. A
  permission without a resource reaches none of them.
"""

from __future__ import annotations

from typing import Final

from tidegate.importing import formula as f
from tidegate.importing.imported_policies import Imported, ImportedPolicy
from tidegate.importing.xacml.combining import Effect, Entry, entries
from tidegate.importing.xacml.document import parsed
from tidegate.importing.xacml.expressions import TOPIC_FILTER, ExpressionReader

__all__ = ["TOPIC_FILTER", "read"]

MAX_ID: Final = 150
_RESERVED: Final = ("builtin:", "rule:")
_DOLLAR: Final = (
    "A permission without a resource does not reach topics that begin with `$`. Whoever shall have those needs a "
    "policy that names them, such as `$SYS/#`."
)


def read(text: str, source: str) -> Imported:
    """The policies of a file; ConfigError says where it is wrong."""
    reader = ExpressionReader(source)
    ways = [(entry, _flat(entry, reader)) for entry in entries(parsed(text, source), reader)]
    permitted = [flat.topic for entry, flats in ways if entry.effect is Effect.PERMIT for _, flat in flats]
    roots = sorted({topic.partition("/")[0] for topic in permitted if topic is not None and topic.startswith("$")})
    used: dict[str, int] = {}
    policies = [policy for entry, flats in ways for policy in _policies(entry, flats, roots, used)]
    notes: list[str] = []
    if reader.named:
        notes.append(f"The directory and the environment have to give: {', '.join(sorted(reader.named))}.")
    if any(policy.effect == "allow" and policy.topic == "#" for policy in policies):
        notes.append(_DOLLAR)
    return Imported(
        policies=tuple(policies), combining="first-applicable", notes=tuple(notes), left=tuple(reader.report.left)
    )


def _flat(entry: Entry, reader: ExpressionReader) -> list[tuple[tuple[str, ...], f.Flat]]:
    permits = entry.effect is Effect.PERMIT

    def too_large() -> None:
        why = "it permits nothing" if permits else "it denies whatever the condition says"
        reader.leave(entry.element, f"`{entry.name}`", f"too large for one condition; {why}")

    ways = f.flat_by_action(entry.asked, allows=permits, too_large=too_large)
    return [(actions, flat) for actions, flats in ways for flat in flats]


def _policies(
    entry: Entry, flats: list[tuple[tuple[str, ...], f.Flat]], roots: list[str], used: dict[str, int]
) -> list[ImportedPolicy]:
    policies: list[ImportedPolicy] = []
    permits = entry.effect is Effect.PERMIT
    everywhere = ["#"] if permits else ["#", *(f"{root}/#" for root in roots)]
    for actions, flat in flats:
        for topic in everywhere if flat.topic is None else [flat.topic]:
            policies.append(
                ImportedPolicy(
                    id=_unique(entry.name, used),
                    subject=flat.subject,
                    topic=topic,
                    action=actions,
                    effect="allow" if permits else "deny",
                    when=flat.when,
                    origin="" if policies else f"line {entry.element.line}: {entry.name}",
                )
            )
    return policies


def _unique(name: str, used: dict[str, int]) -> str:
    """An id for the next policy of this name."""
    id = "".join(character for character in name if character.isprintable())[-MAX_ID:]
    if id.startswith(_RESERVED):
        id = f"xacml-{id}"
    count = used.get(id, 0) + 1
    while (unique := id if count == 1 else f"{id}#{count}") in used:
        count += 1
    used[unique], used[id] = 1, count
    return unique
