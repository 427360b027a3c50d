#!/usr/bin/env python3
"""Runs the test suites and counts what they say: what scripts/test ends in.

One process, single-threaded but for running the programs of a suite side by side. It builds the
sanitized variants itself; the ordinary build is there before. A suite is either a set of meson tests
(GoogleTest programs are counted by case) or a script that prints one line a test:
`PASS name ...`, `FAIL name: reason` or `SKIP name: reason`.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / 'tests'
WORDS = {'PASS': 'passed', 'FAIL': 'failed', 'SKIP': 'skipped'}

TRIES = ['--tries', '2']  # of what depends on when its programs get a processor
SECOND_TRY = 'at the second try;'
NONE_CHOSEN = 3  # the exit status of a script that has no test whose name matches
SANITIZED_FACTOR = 12  # how much longer a program may take with a sanitizer
# Programs that share rings or control state between threads: built with TSan as well.
THREADED = re.compile(r'control|engine|memory|provider|abi|ring')


@dataclasses.dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def count(self, word):
        setattr(self, WORDS[word], getattr(self, WORDS[word]) + 1)

    def total(self):
        return self.passed + self.failed + self.skipped

    def __str__(self):
        return f'{self.passed} passed, {self.failed} failed, {self.skipped} skipped'


class Failures:
    """What is said again at the end: each line that begins with FAIL, or that says of a second try, with as much as
    DETAIL_LINES of what follows it."""

    DETAIL_LINES = 30

    def __init__(self):
        self.lines = []
        self.room = 0

    def note(self, line):
        word = line.split(' ', 1)[0]
        if word == 'FAIL' or SECOND_TRY in line:
            self.lines.append(line)
            self.room = self.DETAIL_LINES
        elif word in WORDS or word in ('====', '----'):
            self.room = 0
        elif self.room > 0:
            self.lines.append('     ' + line)
            self.room -= 1


FAILURES = Failures()


def say(line):
    FAILURES.note(line)
    print(line, flush=True)


def report(tally, word, name, detail=''):
    tally.count(word)
    say(f'{word} {name}{detail}')


# ---- meson tests ----


def meson_tests(build, suite, name_filter=None):
    """The tests of one suite, as meson's introspection describes them."""
    output = subprocess.run(['meson', 'introspect', '--tests', str(build)], check=True,
                            capture_output=True, text=True).stdout
    chosen = [test for test in json.loads(output) if any(s.split(':')[-1] == suite for s in test['suite'])]
    return [test for test in chosen if name_filter is None or name_filter.search(test['name'])]


def build_only(build, tests):
    """Builds what these tests run, and nothing else."""
    words = {os.path.normpath(word) for test in tests for word in test['cmd'] if os.path.isabs(word)}
    programs = {os.path.relpath(word, build) for word in words if pathlib.Path(word).is_relative_to(build)}
    return subprocess.run(['ninja', '-C', str(build), *sorted(programs)]).returncode == 0


def cases_of(report_file):
    """Yields (word, name, reason) of each case in a GoogleTest XML report; the JSON one lacks the reasons of skips."""
    for case in xml.etree.ElementTree.parse(report_file).iter('testcase'):
        name = f"{case.get('classname')}.{case.get('name')}"
        failure, skipped = case.find('failure'), case.find('skipped')
        if failure is not None:
            yield 'FAIL', name, failure.get('message', '')
        elif skipped is not None:
            yield 'SKIP', name, skipped.get('message', '').partition('\n')[2] or 'no reason given'
        elif case.get('status') == 'notrun':
            yield 'SKIP', name, 'disabled in the source'
        else:
            yield 'PASS', name, ''


def run_program(test, variant):
    """Runs one meson test; returns its tally and what to print."""
    label = variant + test['name']
    with tempfile.TemporaryDirectory(prefix='urdma-test-') as scratch:
        report_file = pathlib.Path(scratch) / 'report.xml'
        environment = {**os.environ, **test['env'], 'GTEST_OUTPUT': f'xml:{report_file}'}
        started = time.monotonic()
        limit_s = (test['timeout'] or 600) * (SANITIZED_FACTOR if variant else 1)
        try:
            done = subprocess.run(test['cmd'], cwd=test['workdir'] or scratch, env=environment, timeout=limit_s,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as expired:
            status, output = f'no end after {limit_s} s', expired.stdout or b''
        except OSError as error:
            status, output = str(error), b''
        seconds = time.monotonic() - started
        cases = list(cases_of(report_file)) if report_file.exists() else []
    return summarise(label, status, output.decode(errors='replace'), cases, seconds)


def telling_lines(output):
    """The last of what a program said, without GoogleTest's account of what went well."""
    quiet = re.compile(r'^\[( RUN      |       OK |----------|==========)\]|^$')
    return [line for line in output.splitlines() if not quiet.match(line)][-60:]


def summarise(label, status, output, cases, seconds):
    """A program's tally and lines. Exit status 77 is meson's word for skipped."""
    tally, lines = Tally(), []
    for word, name, reason in cases:
        tally.count(word)
        if word != 'PASS':
            lines.append(f"{word} {label}: {name}: {' '.join(reason.split())}")
    if status == 77 and not cases:
        tally.skipped += 1
        last_line = (output.strip().splitlines() or ['no reason given'])[-1]
        lines.append(f'SKIP {label}: {last_line}')
    elif status != 0 and tally.failed == 0:
        tally.failed += 1
        lines += [f'FAIL {label}: it ended with {status} after {len(cases)} cases', *telling_lines(output)]
    elif status == 0 and not cases:
        tally.passed += 1
    elif status != 0:
        lines += telling_lines(output)
    lines.append(f'---- {label}: {tally} ({seconds:.1f} s)')
    return tally, lines


def run_meson_suite(suite, arguments, build=ROOT / 'build', variant='', only=None):
    tally = Tally()
    tests = [test for test in meson_tests(build, suite, arguments.filter)
             if only is None or only.search(test['name'])]
    if variant and not build_only(build, tests):
        report(tally, 'FAIL', f'{variant}build', ': it does not build')
        return tally
    # A simulation or a stress test needs its core: parallel only as far as there are cores.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for of_program, lines in pool.map(lambda test: run_program(test, variant), tests):
            tally.add(of_program)
            for line in lines:
                say(line)
    return tally


def run_sanitized(suite, arguments, kind, only=None):
    done = subprocess.run([str(ROOT / 'scripts' / 'build'), '--sanitize', kind, '--configure'],
                          capture_output=True, text=True)
    if done.returncode != 0:
        say(done.stdout + done.stderr)
        return Tally(failed=1)
    return run_meson_suite(suite, arguments, ROOT / f'build-{kind}', f'{kind}/', only)


# ---- script suites ----


def run_script(command, filtered=False):
    """Runs a program that prints PASS, FAIL and SKIP lines, and counts them as they come."""
    tally = Tally()
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                          errors='replace') as process:
        try:
            for line in process.stdout:
                say(line.rstrip('\n'))
                word = line.split(' ', 1)[0]
                if word in WORDS:
                    tally.count(word)
        except KeyboardInterrupt:
            process.wait()
            raise
    expected = (0, NONE_CHOSEN) if filtered else (0,)
    if process.returncode not in expected and tally.failed == 0:
        report(tally, 'FAIL', command[1].name, f': it ended with status {process.returncode}')
    return tally


def run_unit(arguments):
    tally = Tally()
    if arguments.filter is None:
        tally.add(run_script([sys.executable, TESTS / 'checks' / 'check.py']))
    tally.add(run_meson_suite('unit', arguments))
    if not arguments.no_sanitizers:
        tally.add(run_sanitized('unit', arguments, 'address'))
        tally.add(run_sanitized('unit', arguments, 'thread', THREADED))
    return tally


def run_sim(arguments):
    tally = run_meson_suite('sim', arguments)
    if not arguments.no_sanitizers:
        tally.add(run_sanitized('sim', arguments, 'address'))
    return tally


def run_system(arguments):
    command = [sys.executable, TESTS / 'system' / 'system.py', *TRIES, *(['--large'] if arguments.large else [])]
    return run_script(command + ([arguments.filter.pattern] if arguments.filter else []), bool(arguments.filter))


def run_interop(arguments):
    command = [sys.executable, TESTS / 'interop' / 'interop.py', *TRIES]
    return run_script(command + ([arguments.filter.pattern] if arguments.filter else []), bool(arguments.filter))


def run_conformance(arguments):
    command = [sys.executable, TESTS / 'conformance' / 'conformance.py']
    return run_script(command + ([arguments.filter.pattern] if arguments.filter else []), bool(arguments.filter))


SUITES = {
    'unit': run_unit,
    'sim': run_sim,
    'abi': lambda arguments: run_meson_suite('abi', arguments),
    'fuzz': lambda arguments: run_meson_suite('fuzz', arguments),
    'system': run_system,
    'conformance': run_conformance,
    'interop': run_interop,
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog='scripts/test',
        description='Installs what is missing, builds, and runs test suites. The last line is '
                    '"N passed, N failed, N skipped"; the exit status is not 0 when a test fails or none ran.',
        epilog='docs/testing.md says what each suite is for, what it may take, and how to reproduce a failure.')
    parser.add_argument('suite', nargs='*', choices=[[], *SUITES, 'all'], default=[], metavar='SUITE',
                        help=f"{', '.join(SUITES)} or all (the default)")
    parser.add_argument('--filter', type=re.compile, metavar='REGEX', help='only tests whose name matches')
    parser.add_argument('--no-sanitizers', action='store_true', help='leave the ASan, UBSan and TSan variants out')
    parser.add_argument('--large', action='store_true', help='also the tests that move 2 GiB messages')
    return parser.parse_args()


def run_suite(name, arguments):
    say(f'==== {name}')
    started = time.monotonic()
    tally = SUITES[name](arguments)
    if tally.total() == 0:
        say(f'==== {name}: no test ran')
    return tally, time.monotonic() - started


def main():
    arguments = parse_arguments()
    names = arguments.suite or ['all']
    if 'all' in names:
        names = list(SUITES)
    total, rows = Tally(), []
    for name in dict.fromkeys(names):
        tally, seconds = run_suite(name, arguments)
        total.add(tally)
        rows.append(f'{name:<12} {tally} in {seconds:.0f} s')
    say('====')
    for line in [*FAILURES.lines, *rows]:
        print(line)
    say(str(total))
    return 1 if total.failed or total.passed == 0 else 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
