#!/usr/bin/env python3
"""The system tests: unmodified Debian programs, and this project's own, over real nodes.

Prints one PASS, FAIL or SKIP line a case; ends what it started in every case, by process id.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import argparse
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from cases import (applications, command, death, devices, engines, hostile, limits, mpi, neighbours, network,  # noqa: E402
                   perftest, pingpong, programs, rdma_cm, services, srq, users, wire)
from harness.node import Build  # noqa: E402
from harness.runner import Runner  # noqa: E402

MODULES = (devices, command, hostile, pingpong, perftest, programs, services, srq, users, death, limits, wire, network,
           neighbours, rdma_cm, engines, applications, mpi)


def parse_arguments():
    parser = argparse.ArgumentParser(description='Runs the system tests against build/stage.')
    parser.add_argument('pattern', nargs='?', type=re.compile, metavar='REGEX', help='only cases whose name matches')
    parser.add_argument('--list', action='store_true', help='print the names of the cases, and run none')
    parser.add_argument('--large', action='store_true', help='also those that move 2 GiB messages')
    parser.add_argument('--build', type=pathlib.Path, default=Build.directory, metavar='DIR',
                        help='a build directory with a stage (build/ without it)')
    parser.add_argument('--tries', type=int, default=1, metavar='N', help='try a case that fails again, N times in all')
    parser.add_argument('--times', type=int, default=1, metavar='N', help='run everything N times')
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    Build.directory = arguments.build.resolve()
    groups = [group for module in MODULES for group in module.groups(arguments.large)]
    runner = Runner(arguments.pattern, tries=arguments.tries)
    if arguments.list:
        for group in groups:
            for case in runner.chosen(group):
                print(f'{group.name}/{case.name}')
        return 0
    if not Build.urdma().exists():
        print(f'FAIL system/stage: {Build.urdma()} is not there; run scripts/build')
        return 1
    # A termination unwinds the stack like ^C, so that every scene cleans up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for _ in range(arguments.times):
        for group in groups:
            runner.run(group)
    return runner.exit_status()


if __name__ == '__main__':
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
