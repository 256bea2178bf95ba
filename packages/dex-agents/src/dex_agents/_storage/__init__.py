"""The durable state of a session: documents, their names, and how they are read and written."""
