#!/usr/bin/env python3
"""The interop tests: urdma and Linux's rdma_rxe, in a guest of its own, over good and bad links.

Prints one PASS, FAIL or SKIP line a case; ends what it started in every case, by process id.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import argparse
import pathlib
import re
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'system')]

from harness.node import Build  # noqa: E402
from harness.runner import Runner  # noqa: E402
from scenes.link import Options  # noqa: E402
from suites import answers, applications, bad_links, connections, forged, programs, services  # noqa: E402

MODULES = (programs, services, connections, applications, answers, bad_links, forged)


def parse_arguments():
    parser = argparse.ArgumentParser(description='Runs the interop tests against build/stage.')
    parser.add_argument('pattern', nargs='?', type=re.compile, metavar='REGEX', help='only cases whose name matches')
    parser.add_argument('--list', action='store_true', help='print the names of the cases, and run none')
    parser.add_argument('--build', type=pathlib.Path, default=Build.directory, metavar='DIR',
                        help='a build directory with a stage (build/ without it)')
    parser.add_argument('--tries', type=int, default=1, metavar='N', help='try a case that fails again, N times in all')
    parser.add_argument('--seed', type=int, default=1, metavar='N', help='of the bad links (1 without it)')
    parser.add_argument('--keep', type=pathlib.Path, metavar='DIR', help='leave the captures there')
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    Build.directory = arguments.build.resolve()
    Options.seed, Options.keep = arguments.seed, arguments.keep
    groups = [group for module in MODULES for group in module.groups()]
    runner = Runner(arguments.pattern, 'interop', arguments.tries)
    if arguments.list:
        for group in groups:
            for case in runner.chosen(group):
                print(f'{group.name}/{case.name}')
        return 0
    if not Build.urdma().exists():
        print(f'FAIL interop/stage: {Build.urdma()} is not there; run scripts/build')
        return 1
    # A termination unwinds the stack like ^C, so that every scene cleans up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for group in groups:
        runner.run(group)
    return runner.exit_status()


if __name__ == '__main__':
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
