"""What the people who run a server look at: latency, metrics, the monitor page. Looks on; changes nothing."""
