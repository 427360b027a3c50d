"""Debian's verbs programs and this project's own between urdma and rxe, in both roles, over a good link. Every frame is
recorded and judged.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from harness.process import check, tail
from harness.runner import Group
from harness.tables import perftest_rows, pingpong_figures

from scenes.link import rxe_link

ROLES = {'urdma-serves': True, 'rxe-serves': False}
PINGPONGS = {  # name -> options, GID family, bytes, iterations
    'ipv4': ('-m 1024', 'ipv4', 4096, 100),
    'ipv6': ('-m 1024', 'ipv6', 4096, 100),
    'mtu-256': ('-m 256', 'ipv4', 3001, 50),
    'mtu-512': ('-m 512', 'ipv6', 3001, 50),
    'mtu-2048': ('-m 2048', 'ipv4', 10_003, 50),
    'mtu-4096': ('-m 4096', 'ipv6', 10_003, 50),
    'size-1': ('-m 1024', 'ipv4', 1, 50),
    'size-64k': ('-m 4096', 'ipv4', 65_536, 20),
    'size-1m': ('-m 4096', 'ipv4', 1 << 20, 5),
    'size-1m-mtu-1024': ('-m 1024', 'ipv6', 1 << 20, 3),
}
LATENCY = ('ib_send_lat', 'ib_write_lat', 'ib_read_lat')
BANDWIDTH = ('ib_send_bw', 'ib_write_bw', 'ib_read_bw')
# 0.5 s: a guest without KVM, on a busy machine, stands still for longer than eight times the usual 67 ms.
QP_TIMEOUT = 17
ATOMICS = ('FETCH_AND_ADD', 'CMP_AND_SWAP')


def pingpong(link, urdma_serves, options, family, size, iterations):
    with link.captures.recording('pingpong'):
        argv = ['ibv_rc_pingpong', '-c', '-s', size, '-n', iterations, *options.split()]
        for output in link.pair(urdma_serves, argv, '-g', family):
            _, done = pingpong_figures(output)
            check(done == iterations, f'{done} iterations, of {iterations}')
            check('invalid data' not in output, f'wrong data\n{tail(output)}')


def perftest(link, urdma_serves, *argv):
    with link.captures.recording(argv[0]):
        output, _ = link.pair(urdma_serves, [*argv, '-F', '-u', QP_TIMEOUT], '-x')
        rows = perftest_rows(output)
        check(len(rows) == 1, f'{len(rows)} rows in the table\n{tail(output)}')
        figure = 4  # messages a second; typical latency. 0 where perftest could not tell the clock of a starved guest
        check(rows[0][figure] >= 0, f'a figure below 0: {rows[0]}')


def traffic(link, urdma_serves, *options, family='ipv4'):
    """This project's own: everything RC has, both ways at once, every byte and every sum verified."""
    with link.captures.recording('traffic'):
        link.pair(urdma_serves, ['interop_traffic', *options], '--gid', family)


def perftest_cases():
    """(name, argv)"""
    for program in LATENCY:
        yield program, [program, '-n', 100]
    for program in BANDWIDTH:
        yield program, [program, '-n', 60]
        yield f'{program}-both-ways', [program, '-n', 60, '-b', '-s', 8192]
        yield f'{program}-4-qps', [program, '-n', 60, '-q', 4, '-s', 8192]
    for kind in ATOMICS:
        yield f'ib_atomic_lat-{kind.lower()}', ['ib_atomic_lat', '-n', 100, '-A', kind]
        yield f'ib_atomic_bw-{kind.lower()}', ['ib_atomic_bw', '-n', 100, '-A', kind]
    yield 'ib_atomic_bw-4-qps', ['ib_atomic_bw', '-n', 100, '-q', 4]


def groups():
    group = Group('rxe/programs', rxe_link)
    for role, urdma_serves in ROLES.items():
        for name, options in PINGPONGS.items():
            group.add(f'{role}/pingpong-{name}', pingpong, urdma_serves, *options)
        for name, argv in perftest_cases():
            group.add(f'{role}/{name}', perftest, urdma_serves, *argv)
        group.add(f'{role}/traffic', traffic, urdma_serves, '--count', 400, '--depth', 32)
        group.add(f'{role}/traffic-mtu-4096', traffic, urdma_serves, '--count', 200, '--depth', 16, '--mtu', 4096, '--bytes', 65536)
    group.add('tshark', lambda link: link.captures.judge_with_tshark())
    yield group
