"""Ports that the kernel has no interface for: two nodes over memif, and one over a TAP toward Linux itself.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import json
import os
import pathlib
import re
import time

from cases.perftest import PROGRAMS, perftest
from cases.pingpong import pingpong
from cases.rdma_cm import expect_rping
from cases.wire import gid_index, too_large_path_mtu, verified_data
from harness.node import Build, Node, Place, check_reaped, ip, make_namespace, require_root
from harness.pairs import by_address, start_server
from harness.process import Scene, Skip, check, wait_until
from harness.runner import Group
from harness.tables import devinfo_gids, devinfo_value

ANSWER_LIMIT_MS = (2500, 6000)  # of a neighbour that is not there


def memif_spec(scene, number):
    role = 'server' if number == 1 else 'client'
    return (f'vdev:net_memif0,role={role},socket={scene.directory}/memif.sock,socket-abstract=no,'
            f'ip=192.0.2.{number}/24,ip=2001:db8::{number}/64')


def port_state(node):
    return node.status()['devices'][0]['port']['state']


def neighbours(node):
    return node.status()['devices'][0]['port']['neighbours']


@contextlib.contextmanager
def memif_nodes():
    """Two nodes of this machine, joined by shared memory; nothing of it is known to the kernel."""
    with Scene() as scene:
        nodes = [Node(scene, f'node-{side}', ['--port', memif_spec(scene, number)])
                 for number, side in enumerate('ab', 1)]
        for node in nodes:
            node.up()
        for node in nodes:
            wait_until(lambda node=node: port_state(node) == 'active', 5, 'the memif does not connect')
        yield Place(scene, nodes[0], nodes[1], '127.0.0.1')
        for node in nodes:
            node.down()


MEMIF = Group('memif', memif_nodes)


@MEMIF.case
def port(place):
    output = place.client.run_to_end('ibv_devinfo', '-v')
    gids = [gid for _, gid in devinfo_gids(output)]
    check(gids == ['::ffff:192.0.2.2', '2001:db8::2'], f'the GIDs are {gids}')
    check(devinfo_value(output, 'active_mtu').startswith('1024'), 'active_mtu does not fit the memif')


@MEMIF.case
def neighbours_are_asked_for(place):
    pingpong(place, '-c', gid=0, iterations=10)
    pingpong(place, '-c', gid=1, iterations=10)
    known = neighbours(place.client)
    check(known['known'] == 2, f'after two connections {known} is known')
    check(known['answered'] >= 2 and known['asked'] >= 2, f'nobody was asked, or answered: {known}')


@MEMIF.case
def absent_neighbour(place):
    """Field report 17: found, or ETIMEDOUT; never a hang."""
    for index, address in ((0, '192.0.2.99'), (1, '2001:db8::99')):
        output = place.client.run_to_end(Build.program('reach'), index, address)
        took = re.match(r'ETIMEDOUT after (\d+) ms', output)
        check(took, f'connecting to {address} comes to: {output}')
        check(ANSWER_LIMIT_MS[0] <= int(took.group(1)) <= ANSWER_LIMIT_MS[1], f'{address}: {output}')


@MEMIF.case
def other_network(place):
    output = place.client.run_to_end(Build.program('reach'), 0, '198.51.100.1')
    check(output.startswith('ENETUNREACH'), f'connecting to another network comes to: {output}')


@MEMIF.case
def peer_that_restarts(place):
    """Its link address is another one then: it is found again at once, and programs see the link go and come."""
    watch = place.client.run('stdbuf', '-oL', 'ibv_asyncwatch')
    wait_until(lambda: 'async event FD' in watch.output(), 10, 'ibv_asyncwatch does not begin')
    place.server.down()
    wait_until(lambda: port_state(place.client) == 'down', 5, 'the port does not go down')
    place.server.up()
    wait_until(lambda: port_state(place.client) == 'active', 5, 'the port does not come back')
    wait_until(lambda: 'IBV_EVENT_PORT_ACTIVE' in watch.output(), 5, 'there is no event')
    check('IBV_EVENT_PORT_ERR' in watch.output(), f'the events are\n{watch.output()}')
    watch.kill()
    for index in 0, 1:
        pingpong(place, '-c', gid=index, iterations=100)


@MEMIF.case
def rping_by_address(place):
    """rdma_cm where the kernel knows neither address."""
    for host in ('192.0.2.1', '2001:db8::1'):
        port = place.scene.ports.take()
        common = ['-p', port, '-C', 10, '-V']
        server = start_server(place.server, ['rping', '-s', '-a', host, *common], by_address(place.server))
        expect_rping(place.client.run('rping', '-c', '-a', host, *common))
        server.kill()


def add_traffic(group):
    group.add('pingpong-ipv4', pingpong, '-c')
    group.add('pingpong-ipv6', lambda place: pingpong(place, '-c', gid=gid_index(place.server, '2001:db8::1')))
    group.add('pingpong-events', pingpong, '-e', '-c')
    group.add('pingpong-smallest-path-mtu', pingpong, '-c', '-m', 256)
    group.add('path-mtu-2048-refused', too_large_path_mtu, 2048)
    group.add('verified-small', verified_data, 'small')
    group.add('verified-large', verified_data, 'large')
    for program in PROGRAMS:
        group.add(f'{program}-default', perftest, program, ['-n', '100'], 1)
    group.add('ib_write_bw-16-qps', perftest, 'ib_write_bw', ['-q', '16', '-n', '100'], 1)
    group.add('reaped-at-both', lambda place: [check_reaped(node) for node in (place.server, place.client)])


# ---- Toward Linux ----

class TapPlace:
    """A node whose port is one end of a wire, and Linux, 192.0.2.2 and 2001:db8::2, at the other."""

    def __init__(self, node, namespace):
        self.node = node
        self.namespace = namespace

    def python(self, program, limit_s=30):
        """Runs a Python program in the namespace, on Linux's side."""
        return self.node.scene.start(['python3', '-c', program], prefix=self.node.prefix).expect_success(limit_s)

    def neighbour(self, address):
        """(link address, state) of what Linux knows of a neighbour."""
        rows = self.node.scene.start(['ip', '-j', 'neigh', 'show', address], prefix=self.node.prefix).expect_success(10)
        entries = json.loads(rows or '[]')
        return (entries[0].get('lladdr'), entries[0]['state'][0]) if entries else (None, None)


@contextlib.contextmanager
def toward_linux():
    require_root()
    if not pathlib.Path('/dev/net/tun').exists():
        raise Skip('this kernel has no /dev/net/tun')
    with Scene() as scene:
        namespace = f'urdma-{os.getpid()}-tap'
        make_namespace(scene, namespace)
        spec = 'vdev:net_tap0,iface=wire0,ip=192.0.2.1/24,gw=192.0.2.2,ip=2001:db8::1/64'
        node = Node(scene, 'node', ['--port', spec], ['ip', 'netns', 'exec', namespace]).up()
        # DPDK gives both ends of its wire the same link address.
        ip('-n', namespace, 'link', 'set', 'wire0', 'address', '02:00:00:00:00:02')
        ip('-n', namespace, 'addr', 'add', '192.0.2.2/24', 'dev', 'wire0')
        ip('-n', namespace, 'addr', 'add', '2001:db8::2/64', 'dev', 'wire0', 'nodad')
        ip('-n', namespace, 'link', 'set', 'wire0', 'up')
        yield TapPlace(node, namespace)
        node.down()


TAP = Group('toward-linux', toward_linux)
SEND_TO = 'import socket; socket.socket(socket.{}, socket.SOCK_DGRAM).sendto(b"x", ("{}", 9))'


@TAP.case
def linux_finds_the_port(place):
    """It answers ARP and neighbour solicitations as Linux wants them."""
    mac = place.node.status()['devices'][0]['port']['mac']
    for family, address in (('AF_INET', '192.0.2.1'), ('AF_INET6', '2001:db8::1')):
        place.python(SEND_TO.format(family, address))
        wait_until(lambda address=address: place.neighbour(address) == (mac, 'REACHABLE'), 5,
                   f'Linux does not find {address} at {mac}: {place.neighbour(address)}')


@TAP.case
def the_port_finds_linux(place):
    for index, address in ((0, '192.0.2.2'), (1, '2001:db8::2')):
        output = place.node.run_to_end(Build.program('reach'), index, address)
        check(output == 'reached\n', f'connecting to {address} comes to: {output}')


@TAP.case
def by_way_of_the_gateway(place):
    output = place.node.run_to_end(Build.program('reach'), 0, '198.51.100.1')
    check(output == 'reached\n', f'connecting by way of the gateway comes to: {output}')


@TAP.case
def probe_for_duplicates(place):
    """Linux finds that an address is taken before it uses it."""
    ip('-n', place.namespace, 'addr', 'add', '2001:db8::1/64', 'dev', 'wire0')
    command = ['ip', '-n', place.namespace, 'addr', 'show', 'dev', 'wire0', 'to', '2001:db8::1']
    wait_until(lambda: 'dadfailed' in place.node.scene.start(command).expect_success(5), 10,
               'Linux uses the address of the port as its own')
    ip('-n', place.namespace, 'addr', 'del', '2001:db8::1/64', 'dev', 'wire0')


FLOOD = '''
import socket, time
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("wire0", 0))
until = time.monotonic() + 2
count = 0
while time.monotonic() < until:
    asker = bytes([192, 0, 2, 3 + count % 250])
    mac = bytes([2, 0, 1]) + count.to_bytes(3, "big")
    try:
        wire.send(b"\\xff" * 6 + mac + bytes.fromhex("08060001080006040001") + mac + asker + bytes(6)
                  + bytes([192, 0, 2, 1]))
        count += 1
    except OSError:
        pass
print(count)
'''


@TAP.case
def flood(place):
    """Thousands of ARP requests a second: the daemon answers its clients and, in the end, everybody else."""
    before = place.node.status()
    flooding = place.node.scene.start(['python3', '-c', FLOOD], prefix=place.node.prefix)
    slowest = 0
    while not flooding.has_ended():
        started = time.monotonic()
        place.node.status()
        slowest = max(slowest, time.monotonic() - started)
    sent = int(flooding.expect_success(10))
    after = place.node.status()
    heard, dropped = (after['engines'][0][key] - before['engines'][0][key]
                      for key in ('resolution_heard', 'resolution_dropped'))
    check(sent > 5000, f'that was no flood: {sent}')
    check(0 < heard < 6000, f'the control thread heard {heard} of {sent}')
    check(dropped > 0, 'nothing was held back')
    check(slowest < 2, f'a status took {slowest:.1f} s')
    the_port_finds_linux(place)


GROUPS = {'239.77.1.2': '192.0.2.1', 'ff0e::4d01': '2001:db8::1'}  # and the address of the port to join on


def members(place, group):
    """What Linux's bridge knows of a group: which of its ports are in it."""
    rows = place.node.scene.start(['bridge', 'mdb', 'show', 'dev', 'br0'], prefix=place.node.prefix).expect_success(10)
    return [row for row in rows.splitlines() if f'grp {group} ' in row and 'port wire0' in row]


@TAP.case
def groups_are_told(place):
    """A switch that snoops, here Linux's bridge, learns of a group by IGMP and MLD, and of its end."""
    def link(*words):
        ip('-n', place.namespace, 'link', *words)

    link('add', 'br0', 'type', 'bridge', 'mcast_snooping', 1, 'mcast_querier', 1, 'mcast_igmp_version', 3, 'mcast_mld_version', 2)
    link('set', 'wire0', 'master', 'br0')
    link('set', 'br0', 'up')
    for group, own in GROUPS.items():
        check(not members(place, group), f'the bridge knows of {group} before')
        program = place.node.run('mckey', '-m', group, '-b', own, '-C', 1)
        wait_until(lambda group=group: members(place, group), 10, f'the bridge does not learn of {group}', 0.1)
        program.kill()
        # It waits after a leave whether somebody else answers for the group.
        wait_until(lambda group=group: not members(place, group), 10, f'the bridge is not told of the end of {group}', 0.1)
    link('set', 'wire0', 'nomaster')
    link('del', 'br0')


@TAP.case
def event_of_the_link(place):
    """The last case: who takes the wire away sees the port go down."""
    ip('-n', place.namespace, 'link', 'set', 'wire0', 'down')
    wait_until(lambda: port_state(place.node) == 'down', 5, 'the port stays active')
    ip('-n', place.namespace, 'link', 'set', 'wire0', 'up')
    wait_until(lambda: port_state(place.node) == 'active', 5, 'the port stays down')


def groups(_large):
    add_traffic(MEMIF)
    yield MEMIF
    yield TAP
