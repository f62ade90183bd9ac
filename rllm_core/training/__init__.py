"""Training: one loop from graded episodes to new weights, synchronous or not."""
