"""A model of the runs in plain words, and a machine that drives store and model side by side.

The model knows no SQL and no table of moves: what may follow what stands here once more, literally, so that a
wrong table is found. After every step the store must say what the model says, and the database's own record of
every change of state must obey the invariants (I1, I2, I3, I6, I10).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from tests.conformance.cases import NOW

from haulage.core.lease import CancelWanted, Held, LeaseLost, Pulse
from haulage.core.ports import Query
from haulage.core.progress import Progress

SLOTS = 2
LEASE = 15_000
FOLLOWS = {
    ("queued", "running"),
    ("queued", "cancelled"),
    ("queued", "failed"),
    ("running", "ready"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("running", "queued"),
    ("ready", "expired"),
    ("ready", "failed"),
}
SETTLES = {  # move -> the state it ends in, and what it wants of a cancel
    "finish": ("ready", False),
    "fail": ("failed", False),
    "stop": ("cancelled", True),
    "lose": ("failed", False),
    "overrun": ("failed", False),
    "rerun": ("queued", False),
    "bury": ("cancelled", True),
    "halt": ("cancelled", True),
}
FENCES = {
    "lose": "lease_until",
    "rerun": "lease_until",
    "bury": "lease_until",
    "overrun": "finish_by",
    "halt": "finish_by",
}
FALLS = {"starve": ("queued", "failed", "claim_by"), "expire": ("ready", "expired", "expires_at")}


TENANTS = st.sampled_from(["north", "south", "east"])


@dataclass
class Known:
    """What the model knows of one run."""

    tenant: str
    requested_at: int
    claim_by: int
    key: str | None
    state: str = "queued"
    claim_no: int = 0
    cancelled: bool = False
    lease_until: int | None = None
    finish_by: int | None = None
    expires_at: int | None = None

    def end(self, state):
        self.state = state
        self.lease_until = None
        if state != "queued":
            self.key = None


def broken_invariants(transitions, slots=SLOTS):
    """What is wrong with a history of changes of state, as sentences."""
    found, ends, fences = [], Counter(), {}
    for run, source, target, claim_no, running, cancelled in transitions:
        if (source, target) not in FOLLOWS:
            found.append(f"I1: {source} -> {target}")
        if target in ("ready", "failed", "cancelled") and source != "ready":
            ends[run] += 1
            if ends[run] > 1:
                found.append("I1: a run ended twice")
        if target == "ready" and cancelled:
            found.append("I6: a cancelled run became ready")
        if target == "running":
            if claim_no <= fences.get(run, 0):
                found.append("I10: a claim without a new fence")
            if running > slots:
                found.append(f"I10: {running} runs in {slots} slots")
            fences[run] = claim_no
    return found


class RunsMachine(RuleBasedStateMachine):
    """Workers, requesters and sweeps in any order, over one store that is emptied before each history."""

    case = None  # set by `machine_over`
    leases = Bundle("leases")

    def __init__(self):
        super().__init__()
        self.now = NOW
        self.known = {}
        self.case.opener.empty(self.case)

    @property
    def runs(self):
        return self.case.runs

    def live(self, lease):
        known = self.known[lease.id]
        return known.state == "running" and known.claim_no == lease.claim_no

    # -- requesters ---------------------------------------------------------------------------------

    @initialize(tenants=st.lists(TENANTS, min_size=2, max_size=5))
    def begin_with_a_queue(self, tenants):
        for tenant in tenants:
            self.now += 1_000
            self.request(tenant, None)

    @rule(tenant=TENANTS, key=st.sampled_from([None, "k1", "k2"]))
    def request(self, tenant, key):
        taken = key is not None and any(known.key == key for known in self.known.values())
        assert taken == (key is not None and self.runs.find_active(key) is not None)
        if not taken:
            run_id, claim_by = f"run-{len(self.known)}", self.now + 150_000  # a history can be played again
            run = self.case.kit.new(id=run_id, tenant=tenant, requested_at=self.now, claim_by=claim_by, active_key=key)
            self.runs.add(run)
            self.known[run.id] = Known(tenant, self.now, claim_by, key)

    @rule(data=st.data())
    def cancel(self, data):
        if not self.known:
            return
        run_id = data.draw(st.sampled_from(sorted(self.known)))
        known = self.known[run_id]
        answered = self.runs.request_cancel(run_id, now=self.now)
        if known.state in ("queued", "running"):
            known.cancelled, known.key = True, None
        if known.state == "queued":
            known.end("cancelled")
        assert (known.state, known.cancelled) == (answered.state, answered.cancel_requested_at is not None)

    # -- workers --------------------------------------------------------------------------------------

    @rule(target=leases, worker=st.sampled_from(["w1", "w2", "w3"]), tenant_running=st.integers(1, 2))
    def claim(self, worker, tenant_running):
        busy = Counter(known.tenant for known in self.known.values() if known.state == "running")
        waiting = [
            (busy[known.tenant], known.requested_at, run_id)
            for run_id, known in self.known.items()
            if known.state == "queued" and busy[known.tenant] < tenant_running
        ]
        wanted = min(waiting)[2] if waiting and busy.total() < SLOTS else None
        terms = self.case.terms(worker, slots=SLOTS, tenant_running=tenant_running)
        claimed = self.runs.claim(terms, now=self.now)
        assert wanted == (claimed and claimed[0].id)
        if claimed is None:
            return multiple()
        known = self.known[wanted]
        known.state = "running"
        known.claim_no += 1
        known.lease_until, known.finish_by = self.now + LEASE, self.now + 130_000
        assert known.claim_no == claimed[0].claim_no
        return claimed[0]

    @rule(lease=leases, rows=st.one_of(st.none(), st.integers(0, 9)))
    def beat(self, lease, rows):
        live, before = self.live(lease), self.runs.get(lease.id)
        progress = None if rows is None else Progress("writing", rows, None)
        pulse = self.case.beat(lease, progress, now=self.now)
        assert Pulse(live, live and self.known[lease.id].cancelled) == pulse
        if live:
            self.known[lease.id].lease_until = self.now + LEASE
        else:
            assert before == self.runs.get(lease.id), "I3: a stale lease moved something"

    @rule(lease=leases, name=st.sampled_from(sorted(SETTLES)))
    def settle(self, lease, name):
        target, wants_cancel = SETTLES[name]
        known, live, before = self.known[lease.id], self.live(lease), self.runs.get(lease.id)
        if live:
            wanted = "made" if wants_cancel == known.cancelled else "AssertionError" if wants_cancel else "CancelWanted"
        else:
            again = known.claim_no == lease.claim_no and known.state == target
            wanted = "found" if again else "LeaseLost"
        values = {"claim_by": self.now + 150_000} if name == "rerun" else {}
        try:
            self.case.settle(lease, self.case.life.moves[name], now=self.now, **values)
            outcome = "made" if self.runs.get(lease.id) != before else "found"
        except (LeaseLost, CancelWanted, AssertionError) as refused:
            outcome = type(refused).__name__
        assert wanted == outcome, "I2: another settle counted than the one that holds the run"
        if wanted != "made":
            assert before == self.runs.get(lease.id)
            return
        known.end(target)
        if target == "ready":
            known.expires_at = self.now + 600_000
        if target == "queued":
            known.claim_by = self.now + 150_000

    # -- sweeps and time --------------------------------------------------------------------------------

    @rule(target=leases, name=st.sampled_from(sorted(FENCES)), seconds=st.sampled_from([0, 14, 15, 130]))
    def take_fences(self, name, seconds):
        self.now += seconds * 1_000
        due = [
            run_id
            for run_id, known in self.known.items()
            if known.state == "running"
            and known.cancelled == SETTLES[name][1]
            and getattr(known, FENCES[name]) <= self.now
        ]
        swept = self.runs.sweep(self.case.life.moves[name], {}, worker="sweeper", now=self.now)
        assert sorted(due) == sorted(run.id for run in swept)
        for run_id in due:
            known = self.known[run_id]
            known.claim_no += 1
            known.lease_until = known.finish_by = self.now + LEASE
        return multiple(*(Held(run.id, run.tenant, run.claim_no, "sweeper") for run in swept))

    @rule(name=st.sampled_from(sorted(FALLS)), seconds=st.sampled_from([0, 1, 149, 600]))
    def sweep(self, name, seconds):
        self.now += seconds * 1_000
        source, target, deadline = FALLS[name]
        due = [
            run_id
            for run_id, known in self.known.items()
            if known.state == source and getattr(known, deadline) <= self.now
        ]
        move = self.case.life.moves[name]
        swept = self.runs.sweep(move, self.case.kit.values(move), worker="sweeper", now=self.now)
        assert sorted(due) == sorted(run.id for run in swept)
        for run_id in due:
            self.known[run_id].end(target)

    @rule(data=st.data(), name=st.sampled_from(["mislay", "expire", "abandon"]))
    def move(self, data, name):
        if not self.known:
            return
        run_id = data.draw(st.sampled_from(sorted(self.known)))
        source, target = {
            "mislay": ("ready", "failed"),
            "expire": ("ready", "expired"),
            "abandon": ("queued", "failed"),
        }[name]
        made = self.runs.move(run_id, self.case.life.moves[name], {}, now=self.now)
        assert (self.known[run_id].state == source) == (made is not None)
        if made is not None:
            self.known[run_id].end(target)

    # -- what must hold ---------------------------------------------------------------------------------

    @invariant()
    def the_store_says_what_the_model_says(self):
        rows = self.runs.list(Query(limit=1_000))
        said = {row.id: (row.state, row.claim_no, row.cancel_requested_at is not None, row.active_key) for row in rows}
        assert {
            run_id: (known.state, known.claim_no, known.cancelled, known.key) for run_id, known in self.known.items()
        } == said
        slots = [row.slot for row in rows if row.state == "running"]
        assert len(set(slots)) == len(slots) <= SLOTS, "I10"

    def teardown(self):
        """The history as the database wrote it down; what was wrong in it once stays wrong."""
        assert [] == broken_invariants(self.case.opener.transitions(self.case.url))


def machine_over(case):
    """The machine bound to a case in which every change of state is written down."""
    case.moves("claim", *SETTLES, *FALLS, "mislay", "abandon")
    case.opener.write_down_transitions(case.url, case.flow.name)
    return type("BoundMachine", (RunsMachine,), {"case": case})
