"""Where the time of a reconstruction goes, and what others need for the same image."""
