"""The runs on disk: one SQLite file with normalized rows that are updated in place.

One delta of one run is written in one transaction; the deltas of many runs share a commit. Attribute values live here
only.
"""
