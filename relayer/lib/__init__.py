"""Small parts that every floor may use, one of each: back-off, single flight, deadlines, bounded caches, buckets, the queue of jobs, readers of texts."""
