"""Prior packages: cards, weights and where they are found."""
