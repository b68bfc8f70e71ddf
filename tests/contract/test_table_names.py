"""The names of all tables, of every namespace."""

from typing import Any

from tests.support.messagings import Site


def test_all_tables_that_have_rows_are_named(site: Site) -> None:
    tables: Any = site.embedded._parts.tables
    assert tables.all_tables() == []
    with site.embedded.transaction():
        site.embedded.table("shop:prices").put(b"a:b", b"1")
        for key in (b"apples", b"\xff\xfe"):
            site.embedded.table("stock").put(key, b"1")
    assert tables.all_tables() == ["stock", "shop:prices"]
    assert site.embedded.tables() == ["stock"]
