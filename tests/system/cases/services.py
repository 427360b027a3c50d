"""The services without acknowledgements, UC and UD: Debian's programs unmodified, and our own that compares every
byte and each GRH, on one node, on the forced wire path, and over veth.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from cases.perftest import perftest
from cases.wire import gid_index
from harness.node import Build, check_reaped, one_node, two_nodes
from harness.process import Skip, check
from harness.runner import Group
from harness.tables import devinfo_gids, pingpong_figures

# Fewer than the receives that perftest posts (512) and those that wait: what is lost would end its run.
FEW = ('-n', '400')
PERFTEST = {
    'uc-send': (('ib_send_lat', 'ib_send_bw'), ('-c', 'UC', '-s', '1024')),
    'uc-write': (('ib_write_lat', 'ib_write_bw'), ('-c', 'UC')),
    'ud-send': (('ib_send_lat', 'ib_send_bw'), ('-c', 'UD', '-s', '1024')),
}


def unreliable_pingpong(place, program, size, *options, gid=0):
    argv = [program, '-g', gid, '-s', size, '-n', 300, *options]
    for output in place.pair(argv, limit_s=60):
        moved, done = pingpong_figures(output)
        check(done == 300, f'{done} iterations, of 300')
        check(moved == 2 * size * 300, f'{moved} bytes, of {2 * size * 300}')


def exchange(place, gid):
    place.pair([Build.program('datagram_exchange'), '--gid', gid])


def exchange_by_gid(place, server_gid, client_gid):
    """Between nodes, whose tables need not agree on an index."""
    place.pair([Build.program('datagram_exchange')], server_only=('--gid', gid_index(place.server, server_gid)),
               client_only=('--gid', gid_index(place.client, client_gid)))


def multicast(place):
    """perftest's own group is one of IPv6, and it wants a source address of that kind."""
    gids = devinfo_gids(place.client.run_to_end('ibv_devinfo', '-v'))
    index = next((index for index, gid in gids if '::ffff:' not in gid), None)
    if index is None:
        raise Skip('there is no IPv6 address here')
    perftest(place, 'ib_send_bw', ['-c', 'UD', '-s', '512', '-g', *FEW], 1, gid=index)


def add_services(group):
    for size in (1, 1024):
        group.add(f'ibv_ud_pingpong-{size}', unreliable_pingpong, 'ibv_ud_pingpong', size)
    group.add('ibv_ud_pingpong-events', unreliable_pingpong, 'ibv_ud_pingpong', 1024, '-e')
    for size in (1, 4096, 65536):
        group.add(f'ibv_uc_pingpong-{size}', unreliable_pingpong, 'ibv_uc_pingpong', size)
    group.add('ibv_uc_pingpong-events', unreliable_pingpong, 'ibv_uc_pingpong', 4096, '-e')
    for name, (programs, options) in PERFTEST.items():
        for program in programs:
            group.add(f'{program}-{name}', perftest, program, [*options, *FEW], 1)
    group.add('ib_send_bw-ud-multicast', multicast)


def groups(_large):
    kinds = {'one-node': (), 'forced-wire': ('--force-wire',), 'no-convert': ('--no-convert',),
             'no-convert-wire': ('--no-convert', '--force-wire')}
    for kind, up in kinds.items():
        group = Group(f'{kind}/services', lambda up=up: one_node(*up))
        add_services(group)
        group.add('datagram-exchange', exchange, 0)
        group.add('reaped', lambda place: check_reaped(place.server))
        yield group
    for mtu in (1500, 9000):
        group = Group(f'veth-{mtu}/services', lambda mtu=mtu: two_nodes(mtu))
        add_services(group)
        group.add('datagram-exchange-ipv4', exchange_by_gid, '::ffff:192.0.2.1', '::ffff:192.0.2.2')
        group.add('datagram-exchange-ipv6', exchange_by_gid, '2001:db8::1', '2001:db8::2')
        group.add('reaped-at-both', lambda place: [check_reaped(node) for node in (place.server, place.client)])
        yield group
