"""Groups of cases: a group's place is made once, and made anew after a failure, so that one fault is one failure.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import dataclasses
import sys
import time
import traceback
import typing

from .process import Failure, Skip

NONE_CHOSEN = 3  # the exit status when no case was to run; tests/run.py knows it


@dataclasses.dataclass
class Case:
    name: str
    function: typing.Callable  # takes the group's place, then `arguments`
    arguments: tuple = ()


@dataclasses.dataclass
class Group:
    """`place` makes a context manager; None where the cases need nothing."""
    name: str
    place: typing.Callable | None = None
    cases: list = dataclasses.field(default_factory=list)

    def case(self, function):
        """Decorator: the function's name, with dashes, is the case's."""
        self.cases.append(Case(function.__name__.replace('_', '-'), function))
        return function

    def add(self, name, function, *arguments):
        self.cases.append(Case(name, function, arguments))


def verdict(error):
    if isinstance(error, Skip):
        return 'SKIP', str(error)
    return 'FAIL', str(error) if isinstance(error, Failure) else traceback.format_exc()


class Runner:
    """Runs groups one after another and prints a line a case. One thread."""

    def __init__(self, pattern=None, suite='system'):
        self.pattern = pattern
        self.suite = suite
        self.failed = 0
        self.ran = 0

    def chosen(self, group):
        return [case for case in group.cases
                if self.pattern is None or self.pattern.search(f'{group.name}/{case.name}')]

    def run(self, group):
        place, stack = None, contextlib.ExitStack()
        cases = self.chosen(group)
        try:
            for index, case in enumerate(cases):
                started = time.monotonic()
                word, reason = 'PASS', ''
                try:
                    if place is None and group.place is not None:
                        place = stack.enter_context(group.place())
                    case.function(*([] if group.place is None else [place]), *case.arguments)
                    if index + 1 == len(cases):
                        stack.close()  # whether the node goes down in good order belongs to the last case
                except Exception as error:  # a fault of the test itself is a failure like any other
                    word, reason = verdict(error)
                if word == 'FAIL':
                    self.failed += 1
                    place = self.abandon(stack)
                self.report(word, f'{group.name}/{case.name}', reason, time.monotonic() - started)
        finally:
            self.abandon(stack)

    def exit_status(self):
        """For the program: NONE_CHOSEN says so on its standard error."""
        if not self.ran:
            print(f'no {self.suite} case has a name that matches; --list shows all', file=sys.stderr)
            return NONE_CHOSEN
        return 1 if self.failed else 0

    @staticmethod
    def abandon(stack):
        with contextlib.suppress(Failure, OSError):
            stack.close()

    def report(self, word, name, reason, seconds):
        self.ran += 1
        first, *more = reason.splitlines() or ['']
        print(f'{word} {self.suite}/{name} ({seconds:.1f} s)' + (f': {first}' if first else ''), flush=True)
        for line in more:
            print(f'     {line}', flush=True)
