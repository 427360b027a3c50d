"""Interfaces of the kernel that change under a running node: addresses, MTU, MAC, carrier, and the interface itself.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import ipaddress
import os

from cases.pingpong import pingpong
from cases.wire import gid_index, too_large_path_mtu
from harness.node import Build, Node, Place, ip, join_by_veth, make_namespace, require_root, two_nodes
from harness.process import Failure, Scene, check, listens, tail, wait_until
from harness.runner import Group
from harness.tables import devinfo_gids, devinfo_value

LIMIT_S = 5  # until a change is seen; it is a matter of milliseconds on a quiet machine
TRAFFIC_LIMIT_S = 60
LATE_TIMEOUT = ['--qp-timeout', '18']  # 1.07 s, seven times: long enough for the network to change meanwhile


def namespace(node):
    return node.prefix[-1]


def ip_at(node, *words):
    ip('-n', namespace(node), *words)


def devinfo(node):
    return node.run_to_end('ibv_devinfo', '-v')


def gids(node):
    return dict(devinfo_gids(devinfo(node)))


def port_value(node, key):
    return devinfo_value(devinfo(node), key).split()[0]


@contextlib.contextmanager
def watching(node):
    """Debian's ibv_asyncwatch on a node; yields its output as a function."""
    watch = node.run('stdbuf', '-oL', 'ibv_asyncwatch')
    wait_until(lambda: 'async event FD' in watch.output(), 10, 'ibv_asyncwatch does not begin')
    try:
        yield watch.output
    finally:
        watch.kill()


def await_event(output, text):
    wait_until(lambda: text in output(), LIMIT_S, f'no event "{text}"; there are:\n{tail(output())}\n     and none comes')


def restore_ipv6(node, number):
    """What Linux takes from an interface that goes down."""
    with contextlib.suppress(Failure):
        ip_at(node, 'addr', 'add', f'2001:db8::{number}/64', 'dev', 'veth0', 'nodad')


def await_active(place):
    for node in (place.server, place.client):
        wait_until(lambda node=node: port_value(node, 'state') == 'PORT_ACTIVE', LIMIT_S, 'a port does not come back')


def gid_comes_and_goes(place, address, length):
    """Field report 16: a removed address leaves the table, with an event; the others keep their places."""
    wait_until(lambda: any(gid.startswith('fe80') for gid in gids(place.client).values()), LIMIT_S,
               'Linux does not finish with the link-local address')
    before = gids(place.client)
    gid = str(ipaddress.ip_address(address)) if ':' in address else f'::ffff:{address}'
    with watching(place.client) as output:
        ip_at(place.client, 'addr', 'add', f'{address}/{length}', 'dev', 'veth0', *(['nodad'] if ':' in address else []))
        wait_until(lambda: gid in gids(place.client).values(), LIMIT_S, f'{gid} is not in the table')
        await_event(output, 'IBV_EVENT_GID_CHANGE')
        index = gid_index(place.client, gid)
        check(before.items() <= gids(place.client).items(), 'other GIDs have moved')
        shown = place.client.run_to_end('cat', f'/sys/class/infiniband/urdma0/ports/1/gids/{index}').strip()
        expected = f'{int(ipaddress.IPv6Address(gid)):032x}'
        check(shown.replace(':', '') == expected, f'sysfs has {shown}')
        count = output().count('IBV_EVENT_GID_CHANGE')
        ip_at(place.client, 'addr', 'del', f'{address}/{length}', 'dev', 'veth0')
        wait_until(lambda: gid not in gids(place.client).values(), LIMIT_S, f'{gid} is still in the table')
        wait_until(lambda: output().count('IBV_EVENT_GID_CHANGE') > count, LIMIT_S, 'no event tells that it has gone')
    check(gids(place.client) == before, 'other GIDs have moved')


def removed_gid_is_refused(place):
    """An index whose address has gone names nothing."""
    ip_at(place.client, 'addr', 'add', '192.0.2.66/24', 'dev', 'veth0')
    wait_until(lambda: '::ffff:192.0.2.66' in gids(place.client).values(), LIMIT_S, 'the address is no GID')
    index = gid_index(place.client, '::ffff:192.0.2.66')
    check(place.client.run_to_end(Build.program('reach'), index, '192.0.2.1') == 'reached\n', 'the address cannot be used')
    ip_at(place.client, 'addr', 'del', '192.0.2.66/24', 'dev', 'veth0')
    wait_until(lambda: '::ffff:192.0.2.66' not in gids(place.client).values(), LIMIT_S, 'it is still there')
    output = place.client.run_to_end(Build.program('reach'), index, '192.0.2.1')
    check(output.startswith('EINVAL'), f'a GID that has gone: {output}')


def absent_neighbour(place):
    """Field report 17: found, or an error in a few seconds; never a hang."""
    for index, address in ((gid_index(place.client, '::ffff:192.0.2.2'), '192.0.2.99'),
                           (gid_index(place.client, '2001:db8::2'), '2001:db8::99')):
        output = place.client.run_to_end(Build.program('reach'), index, address, limit_s=10)
        check(output.split()[0] in ('ETIMEDOUT', 'EHOSTUNREACH'), f'connecting to {address} comes to: {output}')


def link_goes_and_comes(place):
    """PORT_ERR and PORT_ACTIVE at both ends of the wire, and the state that verbs tell."""
    with watching(place.server) as server, watching(place.client) as client:
        ip_at(place.server, 'link', 'set', 'veth0', 'down')
        for node, output in ((place.server, server), (place.client, client)):
            await_event(output, 'IBV_EVENT_PORT_ERR')
            check(port_value(node, 'state') == 'PORT_DOWN', 'the port is not down')
        ip_at(place.server, 'link', 'set', 'veth0', 'up')
        restore_ipv6(place.server, 1)
        for output in (server, client):
            await_event(output, 'IBV_EVENT_PORT_ACTIVE')
    await_active(place)
    pingpong(place, '-c', gid=gid_index(place.server, '::ffff:192.0.2.1'), iterations=100)


def set_mtu(place, mtu):
    for node in (place.server, place.client):
        ip_at(node, 'link', 'set', 'veth0', 'mtu', mtu)


def await_mtu(place, active):
    for node in (place.server, place.client):
        wait_until(lambda node=node: port_value(node, 'active_mtu') == str(active), LIMIT_S, f'active_mtu is not {active}')


def mtu_follows(place):
    """Field report 12: active_mtu is the interface's, also when that grows beyond what it was at the start."""
    gid = gid_index(place.server, '::ffff:192.0.2.1')
    set_mtu(place, 9000)
    await_mtu(place, 4096)
    pingpong(place, '-c', '-m', 4096, gid=gid, iterations=100, size=65536)
    set_mtu(place, 1500)
    await_mtu(place, 1024)
    too_large_path_mtu(place, 2048)
    pingpong(place, '-c', gid=gid, iterations=100)


class Traffic:
    """ib_write_bw from the client to the server for some seconds, in the background."""

    def __init__(self, place, seconds, client_gid, options=()):
        self.place = place
        port = place.scene.ports.take()
        common = ['ib_write_bw', '-F', '-p', port, '-D', seconds, '-s', 65536, *options]
        server_gid = gid_index(place.server, '::ffff:192.0.2.1' if '.' in client_gid else '2001:db8::1')
        self.server = place.server.run(*common, '-x', server_gid)
        wait_until(lambda: listens(self.server.pid, port), 20, 'ib_write_bw does not listen')
        self.client = place.client.run(*common, '-x', gid_index(place.client, client_gid), place.host)
        wait_until(self.is_moving, 20, 'no traffic moves')

    def is_moving(self):
        if self.client.has_ended():
            raise Failure(f'the client ended\n{tail(self.client.output())}')
        return any(qp['counters']['packets_sent'] > 1000 for qp in self.place.client.status()['qps'])

    def expect_success(self):
        try:
            self.client.expect_success(TRAFFIC_LIMIT_S, 'client ')
            self.server.expect_success(10, 'server ')
        finally:
            self.end()

    def expect_failure(self, reason):
        """The client's requests fail, and `urdma status` says why."""
        check(self.client.wait(TRAFFIC_LIMIT_S) not in (0, None), f'the client goes on\n{tail(self.client.output())}')
        self.end()
        said = [failure['reason'] for failure in self.place.client.status()['failures']]
        check(any(reason in words for words in said), f'urdma status says {said}')

    def end(self):
        self.server.kill()
        self.client.kill()


def mac_changes_under_traffic(place, node_name, gid):
    """The other side learns the new address by itself, and nothing fails."""
    traffic = Traffic(place, 3, gid, LATE_TIMEOUT)
    mac = {'server': '02:00:5e:00:00:a1', 'client': '02:00:5e:00:00:b1'}[node_name]
    ip_at(getattr(place, node_name), 'link', 'set', 'veth0', 'address', mac)
    traffic.expect_success()
    wait_until(lambda: getattr(place, node_name).status()['devices'][0]['port']['mac'] == mac, LIMIT_S,
               'the device has another MAC than its interface')


def address_goes_and_returns_under_traffic(place):
    """A connection outlives its source address if that is back within the retries."""
    ip_at(place.client, 'addr', 'add', '192.0.2.78/24', 'dev', 'veth0')
    wait_until(lambda: '::ffff:192.0.2.78' in gids(place.client).values(), LIMIT_S, 'the address is no GID')
    traffic = Traffic(place, 4, '::ffff:192.0.2.78', LATE_TIMEOUT)
    ip_at(place.client, 'addr', 'del', '192.0.2.78/24', 'dev', 'veth0')
    wait_until(lambda: unsent(place.client, 'no source address') > 0, LIMIT_S, 'it is still sent from')
    ip_at(place.client, 'addr', 'add', '192.0.2.78/24', 'dev', 'veth0')
    traffic.expect_success()
    ip_at(place.client, 'addr', 'del', '192.0.2.78/24', 'dev', 'veth0')


def unsent(node, why):
    return node.status()['engines'][0]['unsent'][why]


def address_goes_for_good(place):
    """Nothing is sent from an address that the host has no more, and the failure says so (field report 27)."""
    ip_at(place.client, 'addr', 'add', '192.0.2.79/24', 'dev', 'veth0')
    wait_until(lambda: '::ffff:192.0.2.79' in gids(place.client).values(), LIMIT_S, 'the address is no GID')
    traffic = Traffic(place, 20, '::ffff:192.0.2.79')
    ip_at(place.client, 'addr', 'del', '192.0.2.79/24', 'dev', 'veth0')
    traffic.expect_failure('source address')


def mtu_shrinks_under_traffic(place):
    """Field report 12: a packet that does not fit any more is counted, and the failure says so."""
    set_mtu(place, 9000)
    await_mtu(place, 4096)
    traffic = Traffic(place, 20, '::ffff:192.0.2.2', ['-m', '4096'])
    set_mtu(place, 1500)
    traffic.expect_failure('too large for the interface now')
    check(unsent(place.client, 'too long') > 0, 'the packets are not counted')


def interface_removed_and_added(place):
    """The port goes down with it, and works on the new one of its name."""
    names = [namespace(node) for node in (place.server, place.client)]
    with watching(place.server) as server, watching(place.client) as client:
        ip_at(place.server, 'link', 'del', 'veth0')
        for node, output in ((place.server, server), (place.client, client)):
            await_event(output, 'IBV_EVENT_PORT_ERR')
            check(port_value(node, 'state') == 'PORT_DOWN', 'the port is not down')
            check(not gids(node), f'there are still GIDs: {gids(node)}')
        join_by_veth(names, 9000)
        for output in (server, client):
            await_event(output, 'IBV_EVENT_PORT_ACTIVE')
            await_event(output, 'IBV_EVENT_GID_CHANGE')
    await_active(place)
    await_mtu(place, 4096)
    for address in '::ffff:192.0.2.1', '2001:db8::1':
        wait_until(lambda address=address: address in gids(place.server).values(), LIMIT_S, f'{address} is no GID')
        pingpong(place, '-c', gid=gid_index(place.server, address), iterations=100)
    set_mtu(place, 1500)
    await_mtu(place, 1024)


@contextlib.contextmanager
def embedded_default():
    """A node on the embedded default in a namespace whose addresses are the test's."""
    require_root()
    with Scene() as scene:
        name = f'urdma-{os.getpid()}-e'
        make_namespace(scene, name)
        ip('-n', name, 'link', 'add', 'veth0', 'type', 'veth', 'peer', 'name', 'veth1')
        ip('-n', name, 'link', 'set', 'veth1', 'addrgenmode', 'none')  # so that its address comes into nobody's way
        for interface in 'lo', 'veth0', 'veth1':
            ip('-n', name, 'link', 'set', interface, 'up')
        ip('-n', name, 'addr', 'add', '192.0.2.1/24', 'dev', 'veth0')
        node = Node(scene, prefix=['ip', 'netns', 'exec', name]).up()
        yield Place(scene, node, node, '192.0.2.1')
        node.down()


def groups(_large):
    embedded = Group('network-embedded', embedded_default)
    embedded.add('ipv4-gid-comes-and-goes', gid_comes_and_goes, '192.0.2.77', 24)
    embedded.add('ipv6-gid-comes-and-goes', gid_comes_and_goes, '2001:db8::77', 64)
    yield embedded
    group = Group('network', lambda: two_nodes(1500))
    group.add('ipv4-gid-comes-and-goes', gid_comes_and_goes, '192.0.2.77', 24)
    group.add('ipv6-gid-comes-and-goes', gid_comes_and_goes, '2001:db8::77', 64)
    group.add('removed-gid-is-refused', removed_gid_is_refused)
    group.add('absent-neighbour', absent_neighbour)
    group.add('link-goes-and-comes', link_goes_and_comes)
    group.add('mtu-follows', mtu_follows)
    group.add('server-mac-changes-under-traffic', mac_changes_under_traffic, 'server', '::ffff:192.0.2.2')
    group.add('client-mac-changes-under-traffic', mac_changes_under_traffic, 'client', '2001:db8::2')
    group.add('address-goes-and-returns-under-traffic', address_goes_and_returns_under_traffic)
    group.add('address-goes-for-good', address_goes_for_good)
    group.add('mtu-shrinks-under-traffic', mtu_shrinks_under_traffic)
    group.add('interface-removed-and-added', interface_removed_and_added)
    yield group
