"""Parameters by their types: what is taken, how it is bound and shown, and every fault at once with its place."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from haulage.core.catalogue import Dataset, Parameter
from haulage.core.errors import Refused
from haulage.exports.parameters import resolve_parameters

CITIES = (("koln", "Köln"), ("oslo", "Oslo"))


def dataset(*parameters):
    return Dataset("orders", "shop", sql="select 1", parameters=parameters)


def resolve(given, *parameters):
    return resolve_parameters(dataset(*parameters), given)


def faults(given, *parameters):
    """What is refused, as (pointer, sentence)."""
    with pytest.raises(Refused) as refused:
        resolve(given, *parameters)
    assert "invalid" == refused.value.code
    return [(fault.pointer, fault.detail) for fault in refused.value.faults]


@pytest.mark.parametrize(
    ("kind", "given", "value", "bound"),
    [
        ("text", "Jülich 報告", "Jülich 報告", "Jülich 報告"),
        ("text", "", "", ""),
        ("text", "'; drop table orders --", "'; drop table orders --", "'; drop table orders --"),
        ("integer", 42, 42, 42),
        ("integer", "42", 42, 42),
        ("integer", "-007", -7, -7),
        ("integer", 0, 0, 0),
        ("integer", 2**63 - 1, 2**63 - 1, 2**63 - 1),
        ("integer", -(2**63), -(2**63), -(2**63)),
        ("integer", "9223372036854775807", 2**63 - 1, 2**63 - 1),
        ("decimal", "12.50", Decimal("12.50"), "12.50"),
        ("decimal", 12, Decimal(12), "12"),
        ("decimal", 0.1, Decimal("0.1"), "0.1"),
        ("decimal", "1E+3", Decimal("1E+3"), "1000"),
        ("decimal", "0.0000001", Decimal("1E-7"), "0.0000001"),
        ("decimal", "98765432109876543210.5", Decimal("98765432109876543210.5"), "98765432109876543210.5"),
        ("boolean", True, True, True),
        ("boolean", False, False, False),
        ("boolean", "TRUE", True, True),
        ("date", "2026-01-31", date(2026, 1, 31), "2026-01-31"),
        ("date", "2024-02-29", date(2024, 2, 29), "2024-02-29"),
        ("date", date(2026, 1, 31), date(2026, 1, 31), "2026-01-31"),
        (
            "timestamp",
            "2026-01-31T23:30:00Z",
            datetime(2026, 1, 31, 23, 30, tzinfo=UTC),
            "2026-01-31T23:30:00Z",
        ),
        (
            "timestamp",
            "2026-02-01T00:30:00.5+01:00",
            datetime(2026, 1, 31, 23, 30, 0, 500_000, tzinfo=UTC),
            "2026-01-31T23:30:00.500000Z",
        ),
        (
            "timestamp",
            datetime(2026, 2, 1, 0, 30, tzinfo=timezone(timedelta(hours=1))),
            datetime(2026, 1, 31, 23, 30, tzinfo=UTC),
            "2026-01-31T23:30:00Z",
        ),
        ("choice", "koln", "koln", "koln"),
    ],
)
def test_a_value_is_read_by_its_type_and_bound_as_a_source_can_take_it(kind, given, value, bound):
    resolved = resolve({"p": given}, Parameter("p", kind, choices=CITIES))

    assert (value, type(value)) == (resolved.values["p"], type(resolved.values["p"]))
    assert (bound, type(bound)) == (resolved.binds["p"], type(resolved.binds["p"]))
    assert {"p": kind} == resolved.types


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("text", 5),
        ("text", True),
        ("text", "a\0b"),
        ("text", "a\ud800b"),
        ("text", "x" * 10_001),
        ("text", {}),
        ("integer", "4 2"),
        ("integer", "\uff14\uff12"),
        ("integer", "1e3"),
        ("integer", 42.0),
        ("integer", True),
        ("integer", 2**63),
        ("integer", -(2**63) - 1),
        ("integer", "9223372036854775808"),
        ("integer", "9" * 5_000),
        ("decimal", "NaN"),
        ("decimal", "Infinity"),
        ("decimal", float("nan")),
        ("decimal", float("-inf")),
        ("decimal", "1E+1000000"),
        ("decimal", "0E-999999"),
        ("decimal", "twelve"),
        ("decimal", ""),
        ("decimal", True),
        ("boolean", "yes"),
        ("boolean", 1),
        ("date", "2026-02-29"),
        ("date", "2026-1-31"),
        ("date", "20260131"),
        ("date", "2026-01-31T00:00:00Z"),
        ("date", "\uff12026-01-31"),
        ("date", 20260131),
        ("date", "0000-01-01"),
        ("timestamp", "2026-01-31T23:30:00"),
        ("timestamp", "2026-01-31"),
        ("timestamp", "yesterday"),
        ("timestamp", 1_800_000_000),
        ("timestamp", "0001-01-01T00:00:00+14:00"),
        ("timestamp", datetime(2026, 1, 31, 23, 30)),  # noqa: DTZ001 - naive on purpose
        ("choice", "Köln"),
        ("choice", 1),
        ("choice", {}),
        ("choice", ""),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place_and_an_example(kind, given):
    ((pointer, detail),) = faults({"p": given}, Parameter("p", kind, choices=CITIES))

    assert "/parameters/p" == pointer
    assert detail.startswith("is longer") or f"is no {kind}: write " in detail


def test_a_fault_shows_the_beginning_of_a_long_value_and_no_more():
    ((_, detail),) = faults({"p": "9" * 5_000}, Parameter("p", "integer"))

    assert 150 > len(detail)


def test_every_fault_is_told_at_once_and_in_the_order_of_the_dataset():
    since, limit, city = Parameter("since", "date"), Parameter("limit", "integer"), Parameter("city")

    assert [
        ("/parameters/nobody", "orders has no such parameter; it has since, limit, city"),
        ("/parameters/since", '"soon" is no date: write a date such as 2026-01-31'),
        ("/parameters/limit", '"many" is no integer: write a whole number such as 42'),
        ("/parameters/city", "is needed: write text"),
    ] == faults({"since": "soon", "limit": "many", "nobody": 1}, since, limit, city)


def test_the_place_of_a_strange_name_is_a_pointer_all_the_same():
    assert ["/parameters/a~1b~0c"] == [pointer for pointer, _ in faults({"a/b~c": 1})]


def test_a_dataset_without_parameters_says_so():
    assert [("/parameters/p", "orders has no such parameter; it has none")] == faults({"p": 1})


@pytest.mark.parametrize("given", [{}, {"p": None}])
def test_what_is_not_given_has_its_default_or_is_null_or_is_needed(given):
    assert 7 == resolve(given, Parameter("p", "integer", default=7)).values["p"]
    assert None is resolve(given, Parameter("p", "integer", optional=True)).binds["p"]
    assert [("/parameters/p", "is needed: write a whole number such as 42")] == faults(given, Parameter("p", "integer"))


def test_a_default_is_read_like_any_value():
    resolved = resolve({}, Parameter("p", "date", default="2026-01-31"), Parameter("q", "boolean", default=False))

    assert {"p": date(2026, 1, 31), "q": False} == resolved.values


# -- lists --------------------------------------------------------------------------------------------------

MANY = Parameter("p", "integer", many=True)


@pytest.mark.parametrize(
    ("given", "wanted"), [([1, "2", 3], (1, 2, 3)), ((1, 2), (1, 2)), (5, (5,)), ("5", (5,)), ([], ())]
)
def test_a_list_is_read_value_by_value_and_one_value_is_a_list_of_one(given, wanted):
    resolved = resolve({"p": given}, MANY)

    assert wanted == resolved.values["p"]
    assert list(wanted) == resolved.binds["p"] == resolved.shown["p"]


def test_one_wrong_value_spoils_a_list():
    ((pointer, detail),) = faults({"p": [1, "two"]}, MANY)

    assert "/parameters/p" == pointer
    assert '"two" is no integer: write a whole number such as 42 (several are allowed)' == detail


def test_a_list_has_an_end():
    assert 1_000 == len(resolve({"p": [1] * 1_000}, MANY).binds["p"])
    assert [("/parameters/p", "takes at most 1000 values, not 1001")] == faults({"p": [1] * 1_001}, MANY)


@pytest.mark.parametrize("kind", ["text", "integer", "date", "choice"])
def test_one_value_is_not_a_list(kind):
    ((_, detail),) = faults({"p": ["1"]}, Parameter("p", kind, choices=CITIES))

    assert detail.startswith("takes one value, not a list: write ")


def test_a_list_inside_a_list_is_refused():
    assert 1 == len(faults({"p": [[1]]}, MANY))


# -- end dates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "bound"),
    [("2026-08-05", "2026-08-06"), ("2026-12-31", "2027-01-01"), ("2024-02-28", "2024-02-29")],
)
def test_an_end_date_includes_its_day(given, bound):
    """The query compares with ``<``, so the day after is bound; what was asked for is shown."""
    resolved = resolve({"until": given}, Parameter("until", "date", end=True))

    assert bound == resolved.binds["until"]
    assert given == resolved.shown["until"]
    assert date.fromisoformat(given) == resolved.values["until"]


def test_end_dates_in_a_list_include_their_days():
    assert ["2026-08-06", "2026-08-08"] == resolve(
        {"until": ["2026-08-05", "2026-08-07"]}, Parameter("until", "date", many=True, end=True)
    ).binds["until"]


def test_a_date_that_is_no_end_stays_as_it_is():
    assert "2026-08-05" == resolve({"since": "2026-08-05"}, Parameter("since", "date")).binds["since"]


def test_an_open_end_stays_open():
    assert None is resolve({}, Parameter("until", "date", optional=True, end=True)).binds["until"]


@pytest.mark.parametrize(("optional", "or_none"), [(True, ", or leave it out"), (False, "")])
def test_the_last_day_of_the_calendar_is_no_end_as_its_rows_would_be_missing(optional, or_none):
    end = Parameter("p", "date", end=True, optional=optional)
    said = f"9999-12-31 has no day after it, and so cannot be an end; write an earlier day{or_none}"

    assert [("/parameters/p", said)] == faults({"p": "9999-12-31"}, end)
    assert "9999-12-31" == resolve({"p": "9999-12-30"}, end).binds["p"]
    assert "9999-12-31" == resolve({"p": "9999-12-31"}, Parameter("p", "date")).binds["p"]
