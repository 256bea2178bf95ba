"""What changed in the overloads of a public API, which griffe reads but does not compare."""

from __future__ import annotations

from collections.abc import Iterator

import griffe


def changed_overloads(old: griffe.Module, new: griffe.Module) -> Iterator[tuple[str, str]]:
    """Find the overloads that no overload of the new API stands in for.

    One stands in for another when griffe finds no break between them (names, kinds, defaults and order of parameters,
    and what is returned), and the parameters that both have are annotated alike. Whether another annotation accepts
    what the old one accepted is a question for a type checker: any other text counts as a change here.

    Args:
        old: The package as users know it.
        new: The package as it is.

    Yields:
        The dotted name of a function, and the parameters of an overload of it that is gone.
    """
    now = dict(_functions(new, ()))
    seen: set[str] = set()
    for names, function in _functions(old, ()):
        # A function that is gone is a break of its own, which griffe reports; one that has several names is told once.
        if names in now and function.overloads and function.path not in seen:
            seen.add(function.path)
            kept = now[names].overloads or [now[names]]
            for overload in function.overloads:
                if not any(_stands_in(each, overload) for each in kept):
                    yield ".".join((old.name, *names)), _text(overload)


def _functions(
    of: griffe.Object | griffe.Alias, names: tuple[str, ...], seen: frozenset[str] = frozenset()
) -> Iterator[tuple[tuple[str, ...], griffe.Function]]:
    """List the public functions of a module or class, under the names by which users reach them."""
    for name, member in of.all_members.items():
        if not member.is_public:
            continue
        try:
            target = member.final_target if isinstance(member, griffe.Alias) else member
        except griffe.AliasResolutionError:
            # A name of another distribution, which is not loaded.
            continue
        if isinstance(target, griffe.Function):
            yield (*names, name), target
        elif isinstance(target, griffe.Module | griffe.Class) and target.path not in seen:
            yield from _functions(target, (*names, name), seen | {target.path})


def _stands_in(new: griffe.Function, old: griffe.Function) -> bool:
    """Tell whether who called the old one can call the new one."""
    annotations = {each.name: str(each.annotation) for each in new.parameters}
    if any(annotations.get(each.name, str(each.annotation)) != str(each.annotation) for each in old.parameters):
        return False
    # Griffe compares the members of two objects.
    before, after = griffe.Module("before"), griffe.Module("after")
    before.members["function"], after.members["function"] = old, new
    return not any(griffe.find_breaking_changes(before, after))


def _text(overload: griffe.Function) -> str:
    """Write an overload's parameters."""
    return ", ".join(
        each.name if each.annotation is None else f"{each.name}: {each.annotation}" for each in overload.parameters
    )
