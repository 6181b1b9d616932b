"""Models side by side at one budget: plan, run, statistics, page."""
