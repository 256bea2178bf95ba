"""What the Steps of a turn have in common."""
