"""The Steps of a session, one class a file; `session_flow` lists them."""
