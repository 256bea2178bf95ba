"""The state of one Flow run and the commands that change it: no I/O, no clock, no randomness.

A command changes a `Run` and notes in its `Delta` what a store must write. What has to be *done* next is never
emitted: it is read off the state (`Run.ready`, `Run.running`, `Run.next_due`, `Run.status`), so that "after a
command" and "after a restart" are the same code. Everything that a command makes possible (met conditions, a closed
Flow) happens inside that command, so no stored state ever needs finishing.
"""
