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

SECOND_TRY = 'at the second try; the first time:'  # tests/run.py says such cases again at its end
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
    """Runs groups one after another and prints a line a case. One thread.

    With `tries` of 2 a case that fails is tried once more, in a place made anew, and both outcomes are told: what fails for
    want of a processor at the wrong moment passes then, and a fault fails again.
    """

    def __init__(self, pattern=None, suite='system', tries=1):
        self.pattern = pattern
        self.suite = suite
        self.tries = tries
        self.failed = 0
        self.ran = 0
        self.place = None
        self.stack = contextlib.ExitStack()

    def chosen(self, group):
        return [case for case in group.cases
                if self.pattern is None or self.pattern.search(f'{group.name}/{case.name}')]

    def run(self, group):
        cases = self.chosen(group)
        try:
            for case in cases:
                self.run_case(group, case, is_last=case is cases[-1])
        finally:
            self.abandon()

    def run_case(self, group, case, is_last):
        started = time.monotonic()
        word, reason = self.attempt(group, case, is_last)
        for _ in range(1, self.tries):
            if word != 'FAIL':
                break
            first = reason
            word, reason = self.attempt(group, case, is_last)
            reason = f'{reason or "fine"} {SECOND_TRY} {first}'
        self.failed += word == 'FAIL'
        self.report(word, f'{group.name}/{case.name}', reason, time.monotonic() - started)

    def attempt(self, group, case, is_last):
        try:
            if self.place is None and group.place is not None:
                self.place = self.stack.enter_context(group.place())
            case.function(*([] if group.place is None else [self.place]), *case.arguments)
            if is_last:
                self.stack.close()  # whether the node goes down in good order belongs to the last case
        except Exception as error:  # a fault of the test itself is a failure like any other
            word, reason = verdict(error)
            if word == 'FAIL':
                self.abandon()
            return word, reason
        return 'PASS', ''

    def abandon(self):
        with contextlib.suppress(Failure, OSError):
            self.stack.close()
        self.place = None

    def exit_status(self):
        """For the program: NONE_CHOSEN says so on its standard error."""
        if not self.ran:
            print(f'no {self.suite} case has a name that matches; --list shows all', file=sys.stderr)
            return NONE_CHOSEN
        return 1 if self.failed else 0

    def report(self, word, name, reason, seconds):
        self.ran += 1
        first, *more = reason.splitlines() or ['']
        print(f'{word} {self.suite}/{name} ({seconds:.1f} s)' + (f': {first}' if first else ''), flush=True)
        for line in more:
            print(f'     {line}', flush=True)
