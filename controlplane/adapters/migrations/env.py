"""Alembic's entry: runs in the transaction of the caller, who holds the write lock."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=False)
context.run_migrations()
