"""Properties of whole sessions: any interleaving of what users, people, clocks and crashes do."""
