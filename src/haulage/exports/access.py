"""Who may: at the request, at the run, at the file. Objects are reached only through these functions."""

from __future__ import annotations

from collections.abc import Callable, Collection

from haulage.core.catalogue import Catalogue, Dataset
from haulage.core.errors import BuildFailed, Refused
from haulage.core.patience import Overdue
from haulage.core.requester import OPERATOR, Requester
from haulage.exports.life import ExportRun
from haulage.exports.plan import asking_binds, code_of, session_of
from haulage.exports.stored import unreadable

# Gives a requester as it is today: with its grants of now, or banned. Where nobody can know, the frozen one.
Standing = Callable[[Requester], Requester]
# Gives the accounts that the parent of a run belongs to now; None when it is not there. Asked only where there is one.
Owners = Callable[[ExportRun], Collection[str] | None]


def nobody(_run: ExportRun) -> None:
    """Where no parents are known, what belongs to one is nobody's."""


def access_dataset(catalogue: Catalogue, name: str, requester: Requester) -> Dataset:
    """A dataset that the requester may export.

    Raises:
        Refused: ``not_found`` for a name that is not declared, ``forbidden`` without its grant.
    """
    dataset = catalogue.find(name)
    if dataset is None:
        raise Refused("not_found", f"There is no dataset {name[:63]!r}. GET /datasets lists them.")
    if not requester.holds(dataset.permission):
        raise Refused("forbidden", f"Exporting {name!r} needs a grant that you do not hold.")
    return dataset


def access_run(run: ExportRun | None, requester: Requester, owners: Owners = nobody) -> ExportRun:
    """A run of the requester's own account, or of a parent that is theirs now; the operator sees every run.

    Raises:
        Refused: ``not_found``, one and the same for a foreign and an unknown run; ``host_silent`` where nobody can say
            whose its parent is.
    """
    if run is None or requester.banned:
        raise Refused("not_found")
    if requester.holds(OPERATOR):
        return run
    if run.tenant != requester.tenant:
        raise Refused("not_found")
    if requester.account not in ((run.account,) if run.parent is None else owners(run) or ()):
        raise Refused("not_found")
    return run


def access_file(
    run: ExportRun | None, requester: Requester, catalogue: Catalogue, now: int, owners: Owners = nobody
) -> ExportRun:
    """A run whose file the requester may have at this instant: live grants decide, not the frozen ones.

    Raises:
        Refused: ``not_found``; ``not_ready``; why the file is gone; ``policy_changed`` for another owner of its parent
            who may see other rows.
    """
    run = access_run(run, requester, owners)
    dataset = catalogue.find(run.dataset)
    if dataset is None or not requester.holds(dataset.permission):
        raise Refused("not_found")
    if run.state in ("queued", "running"):
        raise Refused("not_ready", state=run.state)
    if run.state == "failed":
        raise Refused("artifact_lost" if run.failure_code == "artifact_lost" else "failed", state=run.state)
    if run.state == "cancelled":
        raise Refused("cancelled", state=run.state)
    if run.state == "expired" or (run.expires_at is not None and run.expires_at <= now):
        raise Refused("expired", state="expired")
    if (
        run.account != requester.account
        and not requester.holds(OPERATOR)
        and not _shows_the_same(run, dataset, requester)
    ):
        raise Refused("policy_changed", "The file was made for somebody who may see other rows. Export again.")
    return run


def _shows_the_same(run: ExportRun, dataset: Dataset, requester: Requester) -> bool:
    """Say whether the same would be bound for this requester: the owners of a parent may have other grants."""
    if unreadable(run):
        return False
    theirs, plan = asking_binds(requester), run.plan
    asked = {name: value for name, value in plan["binds"].items() if name in theirs}
    set_before = {
        key: plan.get("session", {}).get(key) for key, value in dataset.session.items() if value[1:] in theirs
    }
    today = session_of(dataset, theirs)
    return all(value == theirs[name] for name, value in asked.items()) and all(
        value == today[key] for key, value in set_before.items()
    )


def access_at_run(run: ExportRun, catalogue: Catalogue, standing: Standing, owners: Owners = nobody) -> None:
    """See, before the first byte is read, that the requester still may.

    Raises:
        BuildFailed: ``permission_lost``, or ``host_silent`` when nobody could say in time; ``source_gone`` for code of
            the host that is not what this process has declared.
    """
    dataset = catalogue.find(run.dataset)
    frozen = {name: run.plan[name] for name in ("pages", "command") if name in run.plan}
    declared = {} if dataset is None or run.format not in dataset.formats else code_of(dataset, run.format)
    if frozen and frozen != declared:  # A row of the store decides what is read, never which program is run.
        raise BuildFailed("source_gone", cause="this worker has not declared that command or page function so")
    # A worker may know fewer datasets than the web does: then the frozen query decides, but nobody who is banned.
    permission = None if dataset is None else dataset.permission
    try:
        today = standing(Requester.thawed(dict(run.requester)))
    except Overdue as overdue:
        raise BuildFailed("host_silent", cause=str(overdue)) from overdue
    if not today.holds(permission):
        raise BuildFailed("permission_lost")
    if run.parent is None:
        return
    try:
        whose = owners(run)
    except Refused as refused:
        raise BuildFailed("host_silent", cause=str(refused.__cause__ or refused.detail)) from refused
    if whose is None or not (today.account in whose or today.holds(OPERATOR)):
        raise BuildFailed("permission_lost", cause="its parent is not there, or another's")
