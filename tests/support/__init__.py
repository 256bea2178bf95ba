"""What tests of several packages share; importable as `support` because pytest puts `tests` on the path."""
