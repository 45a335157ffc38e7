"""Bound names are found where SQL has them and nowhere else."""

from __future__ import annotations

import pytest

from haulage.core.binds import bound_names, rewrite_names, statements


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select 1", set()),
        ("select :a", {"a"}),
        ("select :a, :b_2, :A from t where x = :a", {"a", "b_2", "A"}),
        ("select ':a'", set()),
        ("select 'it''s :a', :b", {"b"}),
        ('select ":a", ":""b", :c', {"c"}),
        ("select `:a`, [:b], :c", {"c"}),
        ("select 1 -- :a\n, :b", {"b"}),
        ("select 1 -- it's :a\n, :b", {"b"}),
        ("select 1 /* :a\n :b */, :c", {"c"}),
        ("select 1 /* it's */, :a, '*/ :b'", {"a"}),
        ("select 1 /* :a never closed", set()),
        ("select x::text, :a", {"a"}),
        ("select x::text::date, :a::int", {"a"}),
        ("select '12:30', x || ':' || :a", {"a"}),
        ("select :1, :2a", set()),
        ("where name in (:names)", {"names"}),
        ("select json_extract(x, '$:a')", set()),
        ("", set()),
        ("select :ä", set()),
        (r"select e'it\'s :a', E'\\', :b", {"b"}),
        (r"select 'a\', :b, ':c'", {"b"}),
        ("select $$ it's :a $$, :b, $tag$ $$ :c $tag$, :d", {"b", "d"}),
        ("select x from t where x = any(array[:a, :b]) and y[1] = :c and (z)[:d] = 1", {"a", "b", "c", "d"}),
    ],
)
def test_bound_names(sql, names):
    assert names == bound_names(sql)


def test_only_bound_names_are_rewritten():
    sql = "select ':a', \":a\", x::a, :a -- :a\n, :b /* :a */ from t where c = :a"

    assert "select ':a', \":a\", x::a, <a> -- :a\n, <b> /* :a */ from t where c = <a>" == rewrite_names(
        sql, lambda name: f"<{name}>"
    )


def test_a_statement_without_names_stays_as_it_is():
    sql = "select 'é', \"ü\" /* ; */ -- ;"

    assert sql == rewrite_names(sql, lambda name: name)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        ("select 1; -- done", ["select 1"]),
        ("  select 1 ; ; select 2 ;\n", ["select 1", "select 2"]),
        ("select ';' ; select \";\"", ["select ';'", 'select ";"']),
        ("select 1 -- one; two\n; select 2", ["select 1 -- one; two", "select 2"]),
        ("-- nothing\n/* ; */ ;", []),
        (r"select e'\';', $$;$$, array[';']; select 2", [r"select e'\';', $$;$$, array[';']", "select 2"]),
        ("", []),
    ],
)
def test_statements_are_told_apart(text, wanted):
    assert wanted == statements(text)
