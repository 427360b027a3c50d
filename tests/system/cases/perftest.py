"""Debian's perftest: every RC program, one option at a time, on one node and on the forced wire path.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from harness.node import check_reaped, one_node
from harness.process import check, tail
from harness.runner import Group
from harness.tables import perftest_rows

# Program -> the options that it has, of those looked at here.
PROGRAMS = {
    'ib_send_lat': '-a -e -I', 'ib_send_bw': '-a -b -e -q -I', 'ib_write_lat': '-a -I', 'ib_write_bw': '-a -b -q -I',
    'ib_read_lat': '-a -e', 'ib_read_bw': '-a -b -e -q', 'ib_atomic_lat': '-e', 'ib_atomic_bw': '-b -e -q',
}
INLINE_BYTES = (0, 32, 236, 512, 912)  # perftest itself takes no more than 912
SIZES_OF_ALL = 23  # -a: 2^1 to 2^23


def variants(program, sizes_iterations):
    """(name, options, rows expected) for a program: default, then one option at a time."""
    has = PROGRAMS[program].split()
    yield 'default', [], 1
    if '-a' in has:
        yield 'all-sizes', ['-a', *sizes_iterations], SIZES_OF_ALL
    if '-b' in has:
        yield 'both-ways', ['-b'], 1
    if '-e' in has:
        yield 'events', ['-e'], 1
    if '-q' in has:
        yield '16-qps', ['-q', '16'], 1
    if '-I' in has:
        for size in INLINE_BYTES:
            yield f'inline-{size}', ['-I', size, '-s', max(size, 1)], 1
    if program.startswith('ib_atomic'):
        yield 'compare-and-swap', ['-A', 'CMP_AND_SWAP'], 1


def perftest(place, program, options, rows_expected, gid=0):
    """Runs a pair; both ends must succeed, and the client's table must be whole."""
    client_output, _ = place.pair([program, '-F', '-x', gid, *options], limit_s=120)
    rows = perftest_rows(client_output)
    check(len(rows) == rows_expected, f'{len(rows)} rows, of {rows_expected}\n{tail(client_output, 40)}')
    figure = 3 if program.endswith('_bw') else 4  # average bandwidth; typical latency
    for row in rows:
        check(row[figure] > 0, f'a figure that is not above 0: {row}')


def add_perftest(group, common=(), sizes_iterations=('-n', '200')):
    """`common` goes with every variant; `sizes_iterations` with -a."""
    for program in PROGRAMS:
        for name, options, rows in variants(program, sizes_iterations):
            extra = [] if '-n' in options else list(common)
            group.add(f'{program}-{name}', perftest, program, options + extra, rows)


# Kind of node -> its options, what goes with every variant, what goes with -a.
KINDS = {
    'one-node': ((), (), ('-n', '200')),
    'forced-wire': (('--force-wire',), ('-n', '100'), ('-n', '100')),
    'no-convert': (('--no-convert',), ('-n', '100'), ('-n', '20')),
}


def groups(_large):
    for kind, (up, common, sizes_iterations) in KINDS.items():
        group = Group(f'{kind}/perftest', lambda up=up: one_node(*up))
        add_perftest(group, common, sizes_iterations)
        group.add('reaped', lambda place: check_reaped(place.server))
        yield group
