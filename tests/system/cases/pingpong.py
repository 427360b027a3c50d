"""ibv_rc_pingpong between two processes of a node: every GID, sizes, path MTUs, events, verified data.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from harness.node import check_reaped, one_node
from harness.process import check
from harness.runner import Group
from harness.tables import devinfo_gids, pingpong_figures

MTUS = (256, 512, 1024, 2048, 4096)
SIZES = (1, 2, 63, 1023, 1024, 1025, 4096, 65536, 1 << 20)


def pingpong(place, *options, size=4096, iterations=1000, gid=0, limit_s=60):
    argv = ['ibv_rc_pingpong', '-g', gid, '-s', size, '-n', iterations, *options]
    for output in place.pair(argv, limit_s=limit_s):
        moved, done = pingpong_figures(output)
        check(done == iterations, f'{done} iterations, of {iterations}')
        # Both directions; the program counts in 32 bits in some versions, and may wrap.
        check(moved % 2**32 == 2 * size * iterations % 2**32, f'{moved} bytes, of {2 * size * iterations}')
        check('invalid data' not in output, f'wrong data\n{output}')


def every_gid(place):
    gids = devinfo_gids(place.client.run_to_end('ibv_devinfo', '-v'))
    check(gids, 'there is no GID')
    for index, _ in gids:
        pingpong(place, gid=index, iterations=200)


def groups(_large):
    for kind, up in (('one-node', ()), ('forced-wire', ('--force-wire',)), ('no-convert', ('--no-convert',))):
        group = Group(f'{kind}/pingpong', lambda up=up: one_node(*up))
        group.add('every-gid', every_gid)
        group.add('events', pingpong, '-e')
        group.add('checked', pingpong, '-c')
        group.add('checked-events', pingpong, '-c', '-e')
        for mtu in MTUS:
            group.add(f'mtu-{mtu}', pingpong, '-c', '-m', mtu)
        for size in SIZES:
            group.cases.append(sized(size))
        group.add('reaped', lambda place: check_reaped(place.server))
        yield group


def sized(size):
    from harness.runner import Case
    iterations = 200 if size > 65536 else 500
    return Case(f'size-{size}', lambda place: pingpong(place, '-c', size=size, iterations=iterations))
