"""Shared receive queues and XRC with Debian's own programs, over each kind of port, with conversion and without.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from cases.perftest import perftest
from harness.node import check_reaped, one_node, two_nodes
from harness.process import check
from harness.runner import Group
from harness.tables import pingpong_figures

PERFTEST = ('ib_send_lat', 'ib_send_bw')
KINDS = {
    'one-node': lambda: one_node(),
    'forced-wire': lambda: one_node('--force-wire'),
    'no-convert': lambda: one_node('--no-convert'),
    'no-convert-wire': lambda: one_node('--no-convert', '--force-wire'),
    'veth-1500': lambda: two_nodes(1500),
    'veth-9000': lambda: two_nodes(9000),
}


def srq_pingpong(place, *options, size=4096, iterations=200, qps=16):
    argv = ['ibv_srq_pingpong', '-g', 0, '-m', 1024, '-s', size, '-n', iterations, '-q', qps, *options]
    for output in place.pair(argv, limit_s=60):
        moved, done = pingpong_figures(output)
        check(done == iterations, f'{done} iterations, of {iterations}')
        check(moved == 2 * size * iterations, f'{moved} bytes, of {2 * size * iterations}')
        check('invalid data' not in output, f'wrong data\n{output}')


def xsrq_pingpong(place, *options, tests=20):
    """A server whose one XRC SRQ takes the messages of all clients; here one client."""
    place.pair(['ibv_xsrq_pingpong', '-g', 0, '-m', 1024, '-n', tests, *options], limit_s=60)


def send(place, program, *options):
    perftest(place, program, ['-n', '100', *options], 1)


def groups(_large):
    for kind, scene in KINDS.items():
        group = Group(f'{kind}/srq', scene)
        group.add('srq-pingpong', srq_pingpong)
        group.add('srq-pingpong-checked', srq_pingpong, '-c')
        group.add('srq-pingpong-events', srq_pingpong, '-c', '-e')
        group.add('xsrq-pingpong', xsrq_pingpong)
        group.add('xsrq-pingpong-events', xsrq_pingpong, '-e')
        for program in PERFTEST:
            group.add(f'{program}-srq', send, program, '--use-srq')
            group.add(f'{program}-xrc', send, program, '-c', 'XRC')
        group.add('ib_send_bw-srq-8-qps', send, 'ib_send_bw', '--use-srq', '-q', '8')
        group.add('ib_send_bw-xrc-8-qps', send, 'ib_send_bw', '-c', 'XRC', '-q', '8')
        group.add('reaped-at-both', lambda place: [check_reaped(node) for node in {place.server, place.client}])
        yield group
