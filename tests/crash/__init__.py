"""Kills Workers and engines at every point of a session, and compares with the session that nobody disturbed."""
