"""Files of questions: read strictly, with everything that is wrong with one said at once.

    version: 1
    questions:
      - id: sky
        question: Which colour is a clear sky at noon?
        answers: [Red, Blue]
        correct_answers: [Blue]

Nothing is converted: an answer that is a number has to be written as text, or nobody would know whether
1.50 and 1.5 are two answers.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents import read_json_or_yaml
from trioeval.documents.mistakes import Mistake, MistakenError, kind, nearest
from trioeval.documents.paths import DocumentPath, show_path
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import snake
from trioeval.grading import quote
from trioeval.question_eval.answer import normalized
from trioeval.question_eval.model import Question

VERSION = 1

_TOP = ("version", "questions")
_QUESTION = ("id", "question", "answers", "correctAnswers")


def read_question_file(file: Path) -> tuple[Question, ...]:
    """The questions of a file: JSON if it is called so, and else YAML.

    Args:
        file: Absolute, or against the working directory.

    Raises:
        MistakenError: All that is wrong with it, placed in it.
    """
    return structured(read_placed(file, read_json_or_yaml), file, questions_in)


def questions_in(data: Any) -> tuple[Question, ...]:
    """The questions of plain data of the shape of such a file.

    Raises:
        MistakenError: All that is wrong with it.

    Example:
        >>> sky = {"question": "Sky? ", "answers": ["Red", "Blue"], "correctAnswers": ["blue"]}
        >>> questions_in({"version": 1, "questions": [sky]})[0].question
        'Sky?'
    """
    reader = _Reader()
    questions = reader.file(data)
    if reader.mistakes:
        raise MistakenError(*reader.mistakes)
    return questions


@attrs.frozen
class _Said:
    """What stands under a key, and how the key is spelled."""

    key: str
    value: Any


@attrs.define
class _Reader:
    """Reads on after a mistake, to find all of them."""

    mistakes: list[Mistake] = attrs.field(factory=list)
    _ids: dict[str, int] = attrs.field(init=False, factory=dict)
    """Places of the questions that have them."""

    def file(self, data: Any) -> tuple[Question, ...]:
        if not isinstance(data, dict):
            self._tell(f"a file of questions must be an object, got {kind(data)}")
            return ()
        said = self._members(data, _TOP)
        self._check_version(said["version"])
        at = (said["questions"].key,)
        found: list[Question] = []
        for place, entry in enumerate(
            self._entries(said["questions"], at, "there are no questions")
        ):
            question = self._question(entry, place, (*at, place))
            found += [question] if question else []
        return tuple(found)

    def _check_version(self, said: _Said) -> None:
        hint = f'write "version": {VERSION}'
        match said.value:
            case None:
                self._tell("is required", hint, at=(said.key,))
            case bool() | float() | str() | list() | dict():
                self._tell(
                    f"must be the whole number {VERSION}, got {kind(said.value)}", at=(said.key,)
                )
            case 0:
                self._tell("is required", hint, at=(said.key,))
            case number if number != VERSION:
                self._tell(f"unsupported version {number}", hint, at=(said.key,))
            case _:
                pass

    def _question(self, entry: Any, place: int, at: DocumentPath) -> Question | None:
        """A question; None if something that it needs is wrong."""
        if not isinstance(entry, dict):
            self._tell(f"a question must be an object, got {kind(entry)}", at=at)
            return None
        said = self._members(entry, _QUESTION, at)
        name = self._id(said["id"], place, at)
        text = self._text(said["question"].value, (*at, said["question"].key))
        answers = self._answers(said["answers"], at)
        correct = self._correct(said["correctAnswers"], answers, at)
        if not (text and answers and correct):
            return None
        return Question(
            id=name, question=text, answers=tuple(answers.values()), correct_answers=correct
        )

    def _id(self, said: _Said, place: int, at: DocumentPath) -> str | None:
        if said.value is None:
            return None
        if isinstance(said.value, str) and not said.value.strip():
            self._tell(
                "must not be blank", "leave the id out, or name the question", at=(*at, said.key)
            )
            return None
        name = self._text(said.value, (*at, said.key))
        if name in self._ids:
            where = show_path((*at[:-1], self._ids[name]))
            self._tell(f"{where} has the id {quote(name)} as well", at=(*at, said.key))
        elif name:
            self._ids[name] = place
        return name

    def _answers(self, said: _Said, at: DocumentPath) -> dict[str, str]:
        """The choices, by what they are compared by."""
        found: dict[str, str] = {}
        below = (*at, said.key)
        for place, entry in enumerate(self._entries(said, below, "there are no answers")):
            text = self._text(entry, (*below, place))
            if text is None:
                continue
            key = normalized(text)
            if key in found:
                message = f"{quote(text)} is the same answer as {quote(found[key])}"
                self._tell(message, "leave one of them out", at=(*below, place))
            found.setdefault(key, text)
        return found

    def _correct(
        self, said: _Said, answers: Mapping[str, str], at: DocumentPath
    ) -> tuple[str, ...]:
        found: list[str] = []
        below = (*at, said.key)
        for place, entry in enumerate(self._entries(said, below, "there are no correct answers")):
            text = self._text(entry, (*below, place))
            if text is None:
                continue
            found.append(text)
            if answers and normalized(text) not in answers:
                message = f"{quote(text)} is none of the answers"
                self._tell(message, nearest(text, answers.values()), at=(*below, place))
        return tuple(found)

    def _entries(self, said: _Said, at: DocumentPath, empty: str) -> Sequence[Any]:
        """The entries of a list that has some."""
        match said.value:
            case None:
                self._tell("is required", at=at)
            case []:
                self._tell(empty, at=at)
            case list(entries):
                return entries
            case other:
                self._tell(f"must be a list, got {kind(other)}", at=at)
        return ()

    def _text(self, value: Any, at: DocumentPath) -> str | None:
        """A stripped text that is not blank; None if it is none."""
        match value:
            case None:
                self._tell("is required", at=at)
            case str() if stripped := value.strip():
                return stripped
            case str():
                self._tell("must not be blank", at=at)
            case bool() | int() | float():
                self._tell(f"must be text, got {kind(value)}", "write it in quotes", at=at)
            case other:
                self._tell(f"must be text, got {kind(other)}", at=at)
        return None

    def _members(
        self, data: Mapping[str, Any], known: Collection[str], at: DocumentPath = ()
    ) -> Mapping[str, _Said]:
        """What stands under known keys, each in one of its two spellings."""
        found: dict[str, _Said] = {}
        names = {snake(name): name for name in known}
        for key, value in data.items():
            name = names.get(key, key)
            if name not in known:
                message = f"{quote(key)} is not a key here"
                self._tell(message, nearest(key, known), at=(*at, key), key=True)
            elif name in found:
                message = f"{found[name].key} and {key} are the same key: write one of them"
                self._tell(message, at=(*at, key), key=True)
            else:
                found[name] = _Said(key, value)
        return {name: found.get(name, _Said(name, None)) for name in known}

    def _tell(
        self, message: str, hint: str | None = None, *, at: DocumentPath = (), key: bool = False
    ) -> None:
        self.mistakes.append(Mistake(message, hint, at=at, key=key))
