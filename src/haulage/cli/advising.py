"""``haulage datasets check --advise``: which indexes each dataset lacks, to review; nothing is applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haulage.cli.opening import Declared
from haulage.cli.terminal import printable, tell
from haulage.core.catalogue import Dataset
from haulage.core.clock import now_ms
from haulage.core.errors import BuildFailed, Refused
from haulage.core.parents import BIND, ParentRef
from haulage.core.reading import Reading
from haulage.exports.parameters import resolve_parameters
from haulage.exports.parents import reading_of as owners_reading
from haulage.exports.plan import freeze, query_of
from haulage.exports.reading import reading_of
from haulage.exports.revision import reading_of as policy_reading
from haulage.sources.advice import Advice, advice_of


@dataclass(frozen=True, slots=True)
class Advised:
    """What is to be said of one dataset, statement by statement."""

    explained_with: Mapping[str, Any]  # values that stood in for what has no default
    found: tuple[tuple[str, Advice], ...]  # what it is about, and the advice

    def document(self) -> dict[str, Any]:
        """As JSON."""
        found = [{"about": about, **advice._asdict()} for about, advice in self.found]
        return {"explained_with": dict(self.explained_with), "advice": found}

    def tell(self, dataset: str, told: dict[str, str]) -> None:
        """For people: a sentence, and below it a statement that can be copied as it is.

        Args:
            told: statements that were told, and of which dataset: whoever copies all of them makes each once.
        """
        if self.explained_with and self.found:
            values = ", ".join(f"{name} = {value}" for name, value in self.explained_with.items())
            tell(f"      explained with {printable(values)}: an example where there is no default")
        for about, advice in self.found:
            where = [*([] if about == "query" else [about]), *([advice.table] if advice.table else [])]
            tell(f"      {printable(': '.join([*where, advice.reason]))}")
            if advice.statement in told:
                tell(f"        review: the statement of {told[advice.statement]} above")
            elif advice.statement:
                told[advice.statement] = dataset
                tell(f"        review: {printable(advice.statement)};")


def advise(all_of_them: Declared, dataset: Dataset, stand_ins: Mapping[str, Any]) -> Advised:
    """Ask the source of each statement of a dataset; what it does not answer is a sentence, too.

    Args:
        stand_ins: values of the parameters that a request has to give. One that may be left out is left out.
    """
    if not dataset.of_source:
        nothing = Advice(None, None, "its rows come from code of your own, not from a query: no index is advised")
        return Advised({}, (("query", nothing),))
    examples = dict(stand_ins)
    found: list[tuple[str, Advice]] = []
    try:
        for about, source, reading in statements(all_of_them, dataset, examples):
            try:
                found += [(about, advice) for advice in advice_of(all_of_them.source(source), reading)]
            except BuildFailed as failed:
                found.append((about, Advice(None, None, f"passed over: {failed.cause or failed.detail}")))
    except Refused as refused:
        found.append(("query", Advice(None, None, f"passed over: {refused.detail}")))
    return Advised(examples, tuple(found))


def statements(all_of_them: Declared, dataset: Dataset, examples: dict[str, Any]) -> Iterator[tuple[str, str, Reading]]:
    """What a dataset asks of sources: a name for it, the source, and the statement as a source gets it.

    A further one needs a line here. What stands in for a value that only a request knows is added to the examples.
    """
    settings = all_of_them.settings
    parent = all_of_them.catalogue.find_parent(dataset.parent) if dataset.parent else None
    if parent is not None:
        examples[BIND] = 0 if parent.type == "integer" else "0"
    resolved = resolve_parameters(dataset, {name: value for name, value in examples.items() if name != BIND})
    sql = query_of(dataset, resolved, settings.doors.evaluate_seconds)
    of = None if parent is None else ParentRef(parent.kind, str(examples[BIND]), parent.type)
    plan = freeze(dataset, sql, resolved, settings.operator, now_ms(), None, of)
    yield "query", dataset.source, reading_of(plan)
    if "sql" in plan.get("policy", {}):
        yield "policy_revision", dataset.source, policy_reading(plan["policy"], plan.get("session", {}))
    if parent is not None and parent.function is None:
        reading = owners_reading(parent, settings.operator.tenant, examples[BIND])
        yield f"parents.{parent.kind}", parent.source, reading
