"""What the steps of a task are called as cases, and which of them wait for which.

A case is a test; in each column (a prompt with a provider and a repetition) there is one of it, or several
where its variables are lists. Its name is that of the test, and of several `name#2` and so on. What depends
on a case depends on all of them in its own column.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import attrs

from trioeval.agents.dependencies import Dependent
from trioeval.suite import Expansion, Step

_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 60


@attrs.frozen(kw_only=True)
class CaseNames:
    """The names of all steps, by their indices."""

    names: Sequence[str]
    """Unique in their column."""
    columns: Sequence[str]
    """Of each step its column, as a part of a file name; empty where there is only one."""
    dependents: Mapping[str, Sequence[Dependent]]
    """By column, everything in it; empty where nothing depends on anything."""
    rooms: Sequence[str]
    """What the folder of each is called: unique in its task, also where capitals are no difference."""
    _places: Mapping[tuple[str, str], int] = attrs.field(init=False, repr=False)

    @_places.default
    def _find_places(self) -> Mapping[tuple[str, str], int]:
        pairs = zip(self.columns, self.names, strict=True)
        return {pair: place for place, pair in enumerate(pairs)}

    @classmethod
    def of(cls, steps: Expansion) -> "CaseNames":
        """Those of an expansion all of whose tests are cases."""
        every = [*steps]
        labels = _labels(every, steps)
        prompts = _prompts(every)
        repeats = any(step.repeat_index for step in every)
        columns = [_column(step, labels, prompts, repeats=repeats) for step in every]
        own = [step.test.case.name if step.test.case else "" for step in every]
        several = Counter(zip(columns, own, strict=True))
        seen: Counter[tuple[str, str]] = Counter()
        names = []
        for place in zip(columns, own, strict=True):
            seen[place] += 1
            names.append(f"{place[1]}#{seen[place]}" if several[place] > 1 else place[1])
        return cls(
            names=names,
            columns=columns,
            dependents=_dependents(every, columns, own, names),
            rooms=_rooms(names, columns),
        )

    def room_of(self, column: str, name: str) -> str:
        """What the folder of a case of a column is called."""
        return self.rooms[self._places[column, name]]


def _rooms(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    wanted = [
        ".".join(part for part in (name.replace("#", "-"), column) if part)
        for name, column in zip(names, columns, strict=True)
    ]
    several = Counter(room.lower() for room in wanted)
    taken = {room for room, count in several.items() if count == 1}
    found = []
    for place, room in enumerate(wanted):
        unique = room
        if several[room.lower()] > 1:
            unique = f"{room}-{place}"
            while unique.lower() in taken:
                unique += "-"
            taken.add(unique.lower())
        found.append(unique)
    return found


def _prompts(every: Sequence[Step]) -> dict[int, int]:
    """The number of each prompt, from 1, by what it is; `prompt_idx` counts columns."""
    found: dict[int, int] = {}
    for step in every:
        found.setdefault(id(step.column.prompt), len(found) + 1)
    return found


def _column(
    step: Step, labels: Mapping[int, str], prompts: Mapping[int, int], *, repeats: bool
) -> str:
    parts = [labels[step.column.provider_index]] if len(labels) > 1 else []
    parts += [f"prompt-{prompts[id(step.column.prompt)]}"] if len(prompts) > 1 else []
    parts += [f"repeat-{step.repeat_index + 1}"] if repeats else []
    return ".".join(parts)


def _labels(every: Sequence[Step], steps: Expansion) -> dict[int, str]:
    """What the provider of each column is called in names of folders; all differ.

    A test with a provider of its own stands in the column all the same.
    """
    slugs = {}
    for place in sorted({step.column.provider_index for step in every}):
        entry = steps.providers[place]
        slugs[place] = _OTHER.sub("-", entry.label or entry.id).strip("-.")[:_LONGEST]
    several = Counter(slug.lower() for slug in slugs.values())
    return {
        place: slug if slug and several[slug.lower()] == 1 else f"{slug or 'agent'}-{place + 1}"
        for place, slug in slugs.items()
    }


def _dependents(
    every: Sequence[Step], columns: Sequence[str], own: Sequence[str], names: Sequence[str]
) -> dict[str, Sequence[Dependent]]:
    if not any(step.test.case and step.test.case.depends_on for step in every):
        return {}
    named: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for place, name in zip(zip(columns, own, strict=True), names, strict=True):
        named[place].append(name)
    found: defaultdict[str, list[Dependent]] = defaultdict(list)
    for step, column, name in zip(every, columns, names, strict=True):
        case = step.test.case
        if case is not None:
            # What is not for this column at all is not waited for.
            needs = [one for on in case.depends_on for one in named.get((column, on), ())]
            found[column].append(
                Dependent(name=name, depends_on=tuple(needs), when_failed=case.when_failed)
            )
    return dict(found)
