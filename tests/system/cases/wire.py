"""Two daemons in two network namespaces over veth, as two machines: perftest and ibv_rc_pingpong at two MTUs.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from cases.perftest import add_perftest
from cases.pingpong import pingpong
from harness.node import Build, check_reaped, two_nodes
from harness.process import Failure, check
from harness.runner import Group
from harness.tables import devinfo_gids, devinfo_value

INTERFACES = {1500: 1024, 9000: 4096}  # interface MTU -> the largest path MTU that fits


def port_of_interface(place, mtu):
    output = place.client.run_to_end('ibv_devinfo', '-v')
    active = int(devinfo_value(output, 'active_mtu').split()[0])
    check(active == INTERFACES[mtu], f'active_mtu is {active} at interface MTU {mtu}')
    gids = [gid for _, gid in devinfo_gids(output)]
    check('::ffff:192.0.2.2' in gids, f'the interface address is no GID: {gids}')
    check('2001:db8::2' in gids, f'the IPv6 address is no GID: {gids}')


def gid_index(node, wanted):
    for index, gid in devinfo_gids(node.run_to_end('ibv_devinfo', '-v')):
        if gid == wanted:
            return index
    raise Failure(f'there is no GID {wanted}')


def ipv4_gid(place):
    pingpong(place, '-c', gid=gid_index(place.server, '::ffff:192.0.2.1'), iterations=100)


def ipv6_gid(place):
    pingpong(place, '-c', gid=gid_index(place.server, '2001:db8::1'), iterations=100)


def too_large_path_mtu(place, mtu):
    """A path MTU that cannot fit is refused at RTR, and no packet vanishes."""
    try:
        pingpong(place, '-m', mtu, limit_s=20)
    except Failure as failure:
        check('Failed to modify QP to RTR' in str(failure), f'it fails elsewhere\n{failure}')
        return
    raise Failure(f'path MTU {mtu} is accepted')


def verified_data(place, size_class):
    """The project's own exchange across nodes: every kind of request, every byte compared."""
    place.pair([Build.program('exchange'), '--sizes', size_class], limit_s=60)


def groups(_large):
    for mtu, path_mtu in INTERFACES.items():
        group = Group(f'veth-{mtu}', lambda mtu=mtu: two_nodes(mtu))
        group.add('port', port_of_interface, mtu)
        group.add('pingpong-ipv4', ipv4_gid)
        group.add('pingpong-ipv6', ipv6_gid)
        group.add('pingpong-largest-path-mtu', pingpong, '-c', '-m', path_mtu)
        group.add('pingpong-smallest-path-mtu', pingpong, '-c', '-m', 256)
        if path_mtu < 4096:
            group.add('path-mtu-2048-refused', too_large_path_mtu, 2048)
        group.add('verified-small', verified_data, 'small')
        group.add('verified-large', verified_data, 'large')
        add_perftest(group, ('-n', '100'), ('-n', '100'))
        group.add('reaped-at-both', lambda place: [check_reaped(node) for node in (place.server, place.client)])
        yield group
