"""This project's own verbs programs: data, errors, threads and memory, each GoogleTest case a case here.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import os
import pathlib
import re
import subprocess

from harness.node import Build, check_reaped, one_node
from harness.process import Failure, Skip, check, tail
from harness.runner import Group

PROGRAMS = ('data_test', 'error_test', 'thread_test', 'memory_test', 'srq_test', 'xrc_test', 'datagram_test', 'region_test',
            'window_test', 'import_test', 'events_test')
HUGE_PAGES = pathlib.Path('/proc/sys/vm/nr_hugepages')
HUGE_PAGES_WANTED = 16
CASE_LIMIT_S = 90
ROUNDS = 'URDMA_TEST_ROUNDS'  # how often thread_test looks for a lost wake-up
# Kind of node -> its options, and those rounds; without the fences about one wake-up in 2,000 is lost.
KINDS = {
    'one-node': (['--idle', 'adaptive'], '60000'),
    'forced-wire': (['--force-wire'], '60000'),
    'no-convert': (['--no-convert'], '20000'),
    'no-convert-wire': (['--no-convert', '--force-wire'], '5000'),
}


def cases_of(program):
    """`Suite.Case` of every case that a GoogleTest program lists; none where it is not built."""
    path = Build.program(program)
    if not path.exists():
        return []
    output = subprocess.run([path, '--gtest_list_tests'], check=True, capture_output=True, text=True).stdout
    names, suite = [], ''
    for line in output.splitlines():
        word = line.split('#')[0].rstrip()
        if word.endswith('.') and not word.startswith(' '):
            suite = word
        elif word.startswith('  '):
            names.append(suite + word.strip())
    return names


@contextlib.contextmanager
def huge_pages():
    """Root sets some aside, and gives them back."""
    before = None
    if os.geteuid() == 0 and os.access(HUGE_PAGES, os.W_OK):
        with contextlib.suppress(OSError):
            before = HUGE_PAGES.read_text()
            HUGE_PAGES.write_text(str(max(HUGE_PAGES_WANTED, int(before))))
    try:
        yield
    finally:
        if before is not None:
            with contextlib.suppress(OSError):
                HUGE_PAGES.write_text(before)


def run_case(place, program, name, limit_s=CASE_LIMIT_S):
    with huge_pages() if 'HugePages_' in name else contextlib.nullcontext():
        output = place.client.run_to_end(Build.program(program), f'--gtest_filter={name}', limit_s=limit_s)
    if '[  SKIPPED ]' in output:
        reason = re.search(r': Skipped\n(.*)', output)
        raise Skip(reason.group(1) if reason else 'no reason given')
    if '[  PASSED  ] 1 test' not in output:
        raise Failure(f'the program ran no test\n{tail(output)}')


def not_built(_place, program):
    raise Failure(f'{Build.program(program)} is not built')


def add_programs(group, programs=PROGRAMS, limit_s=CASE_LIMIT_S):
    for program in programs:
        names = cases_of(program)
        for name in names:
            group.add(name, run_case, program, name, limit_s)
        if not names:
            group.add(program, not_built, program)


def exchange(place, sizes):
    place.pair([Build.program('exchange'), '--sizes', sizes])


def copied_bytes(node):
    engines = node.status()['engines']
    return (sum(engine['bytes_copied_mapped'] for engine in engines),
            sum(engine['bytes_copied_by_copier'] for engine in engines))


def mapped_or_not(place, converts):
    """The switch does what it says: with conversion most bytes go through mapped pages, without none."""
    mapped_before, copied_before = copied_bytes(place.server)
    run_case(place, 'memory_test', 'MemoryTest.Private_ManyRounds')
    mapped, copied = copied_bytes(place.server)
    mapped, copied = mapped - mapped_before, copied - copied_before
    if converts:
        check(mapped > copied, f'{mapped} bytes through mapped pages, and {copied} through copiers')
    else:
        check(mapped == 0 and copied > 0, f'{mapped} bytes through mapped pages, and {copied} through copiers')


def groups(large):
    for kind, (up, rounds) in KINDS.items():
        group = Group(f'{kind}/programs', lambda up=up, rounds=rounds: one_node(*up, environment={ROUNDS: rounds}))
        add_programs(group)
        group.add('mapped-or-not', mapped_or_not, '--no-convert' not in up)
        group.add('exchange-small', exchange, 'small')
        group.add('exchange-large', exchange, 'large')
        if large:
            add_programs(group, ('large_test',), 300)
        group.add('reaped', lambda place: check_reaped(place.server))
        yield group
