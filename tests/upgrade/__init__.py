"""Sessions that earlier releases recorded go on with today's code."""
