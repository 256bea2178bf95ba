"""The columns of the table, one module an adapter."""
