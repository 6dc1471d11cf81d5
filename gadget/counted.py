"""Numbers of things in messages."""


def counted(n: int, thing: str) -> str:
    """Say how many there are: '1 coil', '2 coils', '0 coils'; ``thing`` takes an s."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"
