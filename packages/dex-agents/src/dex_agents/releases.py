"""Releases of frameworks in their order, for adapters that must tell who wrote a state."""


def release_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, which compare as releases do: `1.10` is behind `1.9`.

    Args:
        version: As a distribution's metadata has it; parts that are no plain number are left out.
    """
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
