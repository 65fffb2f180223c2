"""The SQL that makes a declared table or view: what the migrations must add up to."""

from schemas.tables import StoredColumn, Table
from schemas.views import View


def create_table(table: Table) -> str:
    """The statement that makes a table as it is declared."""
    columns = ",\n".join(f"    {_column(column)}" for column in table.columns)
    settings = ", ".join(f"{name} = {value}" for name, value in table.settings.items())
    clauses = [
        f"ENGINE = {table.engine}",
        *([f"PARTITION BY {table.partition_by}"] if table.partition_by else []),
        f"ORDER BY ({', '.join(table.order_by)})",
        f"TTL {table.ttl}",
        f"SETTINGS {settings}",
    ]
    return f"CREATE TABLE IF NOT EXISTS {table.name}\n(\n{columns}\n)\n" + "\n".join(clauses)


def create_view(view: View) -> str:
    """The statement that makes a view as it is declared."""
    return f"CREATE OR REPLACE VIEW {view.name} AS\n{view.sql.strip()}"


def _column(column: StoredColumn) -> str:
    computed = f" MATERIALIZED {column.materialized}" if column.materialized else ""
    return f"`{column.name}` {column.type}{computed}"
