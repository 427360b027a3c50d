#!/usr/bin/env python3
"""rdma-core's own test-suite (pyverbs), as Debian ships it and unmodified, over a node: inside the node, again with
both ends exchanging frames, and both with two engines.

Prints one PASS, FAIL or SKIP line a test; ends what it started in every case, by process id. A test that the suite
skips is a failure unless suite.py has it, or the machine has no huge pages.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import argparse
import contextlib
import json
import pathlib
import re
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'system')]

import suite  # noqa: E402
from cases.programs import huge_pages  # noqa: E402
from harness.node import Build, Node  # noqa: E402
from harness.process import Failure, Scene, tail  # noqa: E402

PYTHON = '/usr/bin/python3'  # Debian's, which pyverbs belongs to
PLACES = {
    'one-node': [],
    'forced-wire': ['--force-wire'],
    'two-engines': ['--engines', '2'],
    'two-engines-wire': ['--engines', '2', '--force-wire'],
}
TEST_LIMIT_S = 30
START_LIMIT_S = 30
NONE_CHOSEN = 3  # the exit status when no test's name matches
OF_THE_MACHINE = re.compile('huge pages|Huge pages')


class Run:
    """The tests of one place: a node, and one process after another that goes through what is left."""

    def __init__(self, scene, scratch, place, seed):
        self.scene = scene
        self.seed = seed
        self.scratch = scratch
        self.place = place
        self.node = None
        self.tally = {'PASS': 0, 'FAIL': 0, 'SKIP': 0}
        self.begun_at = time.monotonic()

    def report(self, name, word, reason):
        seconds, self.begun_at = time.monotonic() - self.begun_at, time.monotonic()
        word, reason = judge(word, reason)
        self.tally[word] += 1
        first, *more = reason.strip().splitlines() or ['']
        print(f'{word} conformance/{self.place}/{name} ({seconds:.1f} s)' + (f': {first}' if first else ''), flush=True)
        for line in more:
            print(f'     {line}', flush=True)

    def run(self, names):
        left = list(names)
        while left:
            done, fatal = self.run_process(left)
            left = left[done:]
            if fatal:
                self.end_node()
        self.end_node()

    def ensure_node(self):
        """A daemon that a test has killed is that test's failure; the next test has a new one."""
        if self.node is not None:
            with contextlib.suppress(Failure):
                self.node.daemon()
                return
        self.node = Node(self.scene, f'node-{self.place}-{self.scene.count}', PLACES[self.place]).up()

    def end_node(self):
        node, self.node = self.node, None
        if node is not None:
            node.down()

    def run_process(self, names):
        """Returns how many tests were dealt with, and whether the node has to be made anew."""
        self.ensure_node()
        results = self.scene.directory / f'results-{self.scene.count}'
        results.touch()
        self.begun_at = time.monotonic()
        program = self.node.run(PYTHON, HERE / 'suite.py', self.scratch, results, self.seed, *names)
        try:
            done, stuck = self.follow(program, results, names)
        finally:
            program.kill()
            program.wait(5)
        if stuck is None:
            return done, False
        self.report(names[done], 'FAIL', f'{stuck}\n{tail(program.output())}')
        return done + 1, True

    def follow(self, program, results, names):
        """Reports what ends. Returns how many have, and None or what became of the one behind them."""
        done, begun, read = 0, 0, 0
        while True:
            has_ended = program.has_ended()
            lines = results.read_text().splitlines()
            for line in lines[read:]:
                event = json.loads(line)
                if 'begun' in event:
                    begun, self.begun_at = begun + 1, time.monotonic()
                else:
                    self.report(event['ended'], event['word'], event['reason'])
                    done += 1
                    if done == len(names) or event['word'] == 'FAIL':
                        return done, None
            read = len(lines)
            if has_ended:
                return done, f'the process ended with {program.wait(0)} in the middle of the test'
            limit_s = START_LIMIT_S if begun == done else TEST_LIMIT_S
            if time.monotonic() - self.begun_at > limit_s:
                return done, f'no end after {limit_s} s'
            time.sleep(0.01)


def judge(word, reason):
    """What a test's outcome counts as."""
    if word == 'SKIP' and not OF_THE_MACHINE.search(reason):
        return 'FAIL', f'the suite skips it: {reason}'
    return word, reason


def parse_arguments():
    parser = argparse.ArgumentParser(description="Runs rdma-core's pyverbs suite against build/stage.")
    parser.add_argument('pattern', nargs='?', type=re.compile, metavar='REGEX',
                        help='only tests whose PLACE/NAME matches')
    parser.add_argument('--list', action='store_true', help='print the names of the tests, and run none')
    parser.add_argument('--build', type=pathlib.Path, default=Build.directory, metavar='DIR',
                        help='a build directory with a stage (build/ without it)')
    parser.add_argument('--times', type=int, default=1, metavar='N', help='run everything N times, each with a seed')
    parser.add_argument('--seed', type=int, default=1, metavar='N', help='of what the suite draws at random (1)')
    return parser.parse_args()


def chosen(names, place, pattern):
    return [name for name in names if pattern is None or pattern.search(f'{place}/{name}')]


def run_place(scene, place, seed, names):
    run = Run(scene, scene.directory, place, seed)
    wanted = []
    for name in names:
        if why := suite.not_asked(name):
            print(f'SKIP conformance/{place}/{name}: {why}', flush=True)
        else:
            wanted.append(name)
    run.run(wanted)
    if wanted:
        print(f"---- conformance/{place}: {run.tally['PASS']} passed, {run.tally['FAIL']} failed, {run.tally['SKIP']} "
              f'skipped of {len(wanted)} that are asked for', flush=True)
    return run.tally


def main():
    arguments = parse_arguments()
    Build.directory = arguments.build.resolve()
    for needed in (Build.urdma(), suite.SOURCE):
        if not needed.exists():
            print(f'FAIL conformance/setup: {needed} is not there; run scripts/setup and scripts/build')
            return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Scene() as scene, huge_pages():
        names = suite.names_in(suite.unpack(scene.directory))
        if arguments.list:
            print(*(f'{place}/{name}' for place in PLACES for name in chosen(names, place, arguments.pattern)), sep='\n')
            return 0
        tallies = [run_place(scene, place, arguments.seed + turn, chosen(names, place, arguments.pattern))
                   for turn in range(arguments.times) for place in PLACES]
    if not any(sum(tally.values()) for tally in tallies):
        return NONE_CHOSEN
    return 1 if any(tally['FAIL'] for tally in tallies) else 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
