"""Programs that connect by IP address: Debian's rdmacm-utils, and perftest with -R, on one node, on the forced wire
path, with librdmacm's older commands (no AF_IB), and between two nodes over veth.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import re
import time

from harness.node import Build, Node, check_reaped, one_node, two_nodes
from harness.pairs import PAIR_LIMIT_S, by_address, connect, finish, start_server
from harness.process import Failure, Skip, check, tail, wait_until
from harness.runner import Group
from harness.tables import devinfo_gids, perftest_rows

GROUP_ADDRESS = '239.77.1.2'


def listening(node, argv):
    return start_server(node, argv, by_address(node))


def ipv6_gid(node):
    """Index and GID of an address that is not link-local."""
    gids = devinfo_gids(node.run_to_end('ibv_devinfo', '-v'))
    found = next((entry for entry in gids if '::ffff:' not in entry[1] and not entry[1].startswith('fe80')), None)
    if found is None:
        raise Skip('there is no IPv6 address here')
    return found


def own_ipv4(node):
    gids = [gid for _, gid in devinfo_gids(node.run_to_end('ibv_devinfo', '-v'))]
    return next(gid.split(':')[-1] for gid in gids if '::ffff:' in gid)


def expect_rping(client):
    """Success of an rping client. It closes its channel while another of its threads is about to ask on it, which says
    so and ends the program; that is after all has been done."""
    try:
        client.expect_success(PAIR_LIMIT_S, 'client ')
    except Failure:
        if 'rdma_get_cm_event: Bad file descriptor' not in client.output():
            raise


def rping(place, *options, host=None, wildcard='0.0.0.0'):
    port = place.scene.ports.take()
    common = ['-p', port, '-C', 20, '-V', *options]
    server = listening(place.server, ['rping', '-s', '-a', wildcard, *common])
    expect_rping(place.client.run('rping', '-c', '-a', host or place.host, *common))
    server.kill()


def rping_ipv6(place):
    rping(place, host=ipv6_gid(place.server)[1], wildcard='::')


def rping_specific(place):
    """A server that listens on one address alone."""
    rping(place, host=own_ipv4(place.server), wildcard=own_ipv4(place.server))


def rping_persistent(place):
    """One server, and clients one after another: when two come at once it takes one request for the other."""
    port = place.scene.ports.take()
    server = listening(place.server, ['rping', '-s', '-P', '-p', port])
    argv = ['rping', '-c', '-a', place.host, '-p', port, '-C', 10, '-V']
    for _ in range(5):
        expect_rping(place.client.run(*argv))
    check(not server.has_ended(), 'the server has ended')
    server.kill()


def compared(place, program, *options):
    """ucmatose and udaddy: as many connections, messages and bytes as they are told."""
    if program == 'ucmatose':  # the other has a port of its own
        options = [*options, '-p', place.scene.ports.take()]
    for output in connect(place, [program, *options], [program, '-s', place.host, *options]):
        check('return status 0' in output, f'no success\n{tail(output)}')


def rdma_server(place):
    port = place.scene.ports.take()
    outputs = connect(place, ['rdma_server', '-p', port], ['rdma_client', '-s', place.host, '-p', port])
    for output in outputs:
        check('end 0' in output, tail(output))


def rdma_xserver(place, kind):
    port = place.scene.ports.take()
    outputs = connect(place, ['rdma_xserver', '-p', port, '-c', kind],
                      ['rdma_xclient', '-s', place.host, '-p', port, '-c', kind])
    for output in outputs:
        check('end 0' in output, tail(output))


def cmtime(place, connections):
    port = place.scene.ports.take()
    output, _ = connect(place, ['cmtime', '-p', port, '-c', connections],
                        ['cmtime', '-s', place.host, '-p', port, '-c', connections], server_ends=False)
    check('disconnect' in output, tail(output))


def mckey(place):
    common = ['mckey', '-m', GROUP_ADDRESS, '-C', 10]
    before = place.server.queue_pairs()
    receiver = place.server.run(*common, '-b', own_ipv4(place.server))
    # It says nothing when it is ready; what comes before that is lost, as it is with datagrams.
    wait_until(lambda: receiver.has_ended() or place.server.queue_pairs() > before, 20, 'mckey makes no queue pair', 0.1)
    time.sleep(1)
    sender = place.client.run(*common, '-s', '-b', own_ipv4(place.client))
    sender.expect_success(PAIR_LIMIT_S, 'sender ')
    check('return status 0' in receiver.expect_success(PAIR_LIMIT_S, 'receiver '), 'no success')


def perftest(place, program, *options):
    """It makes two connections one after another, and listens for each: a client that is quick finds nobody there the
    second time, and ends. So those on this machine are made slower."""
    is_here = isinstance(place.client, Node)
    environment = {'LD_PRELOAD': str(Build.program('late_connect.so'))} if is_here else None
    for attempt in range(3):
        port = place.scene.ports.take()
        common = [program, '-F', '-R', '-p', port, '-n', 200, *options]
        try:
            server = listening(place.server, common)
            client_output, _ = finish(server, place.client.run(*common, place.host, environment=environment))
            break
        except Failure as failure:
            nobody = 'RDMA_CM_EVENT_REJECTED; error: 8', 'RDMA_CM_EVENT_UNREACHABLE; error: 1'  # the latter of datagrams
            if attempt == 2 or not any(words in str(failure) for words in nobody):
                raise
    check(len(perftest_rows(client_output)) == 1, f'no figures\n{tail(client_output)}')


def refused(place):
    """Nobody listens: the peer says so at once, and the program hears it as Linux tells it."""
    port = place.scene.ports.take()
    client = place.client.run('rping', '-c', '-a', place.host, '-p', port, '-C', 1)
    client.wait(PAIR_LIMIT_S)
    check('RDMA_CM_EVENT_REJECTED, error 8' in client.output(), tail(client.output()))


def told_at(client):
    """When it heard of the end of its connection, on the clock of time.monotonic()."""
    return float(re.search(r'^told at ([0-9.]+)$', client.expect_success(PAIR_LIMIT_S, 'client '), re.MULTILINE).group(1))


def killed(place, clients=50):
    """A server that is killed: its clients are told within a second, and its port is free at once."""
    port = place.scene.ports.take()
    argv = [Build.program('connections'), '-p', port, '--count', clients + 1]
    server = listening(place.server, argv)
    all_clients = [place.client.run(*argv, '--hold', place.host) for _ in range(clients)]
    wait_until(lambda: all('held' in client.output() for client in all_clients), PAIR_LIMIT_S, 'they do not connect', 0.1)
    killed_at = time.monotonic()
    server.kill()
    again = listening(place.server, ['rping', '-s', '-P', '-p', port])
    expect_rping(place.client.run('rping', '-c', '-a', place.host, '-p', port, '-C', 5))
    again.kill()
    took_s = max(told_at(client) for client in all_clients) - killed_at
    check(took_s < 1, f'they were told after {took_s:.2f} s')


def killed_busy(place, clients=5):
    """The same of rping, which READs and WRITEs all the time. Its clients come in turn, as in rping_persistent."""
    port = place.scene.ports.take()
    server = listening(place.server, ['rping', '-s', '-P', '-p', port])
    all_clients = []
    for count in range(1, clients + 1):
        all_clients.append(place.client.run('stdbuf', '-oL', 'rping', '-c', '-a', place.host, '-p', port, '-C', 100000000))
        ends = count * (2 if place.client is place.server else 1)
        wait_until(lambda ends=ends: sum(qp['state'] == 'RTS' for qp in place.client.status()['qps']) >= ends, PAIR_LIMIT_S,
                   'it does not connect', 0.05)
    server.kill()

    def untold():  # of those whose READ or WRITE did not fail just then, upon which they end
        return [client for client in all_clients if not client.has_ended() and 'DISCONNECT EVENT' not in client.output()]

    try:
        wait_until(lambda: not untold(), 3, 'clients are not told', 0.05)
    except Failure as failure:
        raise Failure(f'{failure}: {len(untold())} of them; one says\n{tail(untold()[0].output())}') from failure
    finally:
        for client in all_clients:
            client.kill()


def many(place, *options):
    """Connections one after another, or at once; each carries a message. nothing_left sees that they leave nothing."""
    port = place.scene.ports.take()
    program = Build.program('connections')
    connect(place, [program, '-p', port, *options[:2]], [program, '-p', port, *options, place.host])


# Makes an ID, has it look for an address that nobody has, and destroys it at once, so many times; commands as in
# <rdma/rdma_user_cm.h>.
RESOLVE_STORM = """
import ctypes, os, socket, struct, sys
channel = os.open('/dev/infiniband/rdma_cm', os.O_RDWR)
answer = ctypes.create_string_buffer(4)
def command(number, body, room=0):
    os.write(channel, struct.pack('=IHH', number, len(body), room) + body)
def address(text):
    return struct.pack('=H2x4s20x', socket.AF_INET, socket.inet_aton(text))
for i in range(int(sys.argv[1])):
    command(0, struct.pack('=QQHB5x', i + 1, ctypes.addressof(answer), 0x0106, 2), 4)
    number = struct.unpack('=I', answer.raw)[0]
    command(3, bytes(28) + address(sys.argv[2]) + struct.pack('=II', number, 60000))
    command(1, struct.pack('=QI4x', ctypes.addressof(answer), number), 4)
"""


def resident_kib(pid):
    with open(f'/proc/{pid}/status', encoding='ascii') as status:
        return int(re.search(r'^VmRSS:\s+(\d+) kB$', status.read(), re.MULTILINE).group(1))


def resolve_storm(place, count=5000):
    """Resolutions go with their IDs, and cost one question however many there are: the daemon neither grows nor halts."""
    daemon = place.client.daemon()
    place.client.run('python3', '-c', RESOLVE_STORM, 100, '192.0.2.77').expect_success(PAIR_LIMIT_S, 'first ')
    before = resident_kib(daemon)
    asked_before = place.client.connection_manager()['ways_asked']
    storm = place.client.run('python3', '-c', RESOLVE_STORM, count, '192.0.2.77')
    slowest_s = 0
    end_s = time.monotonic() + PAIR_LIMIT_S
    while not storm.has_ended() and time.monotonic() < end_s:
        asked_at = time.monotonic()
        place.client.status()
        slowest_s = max(slowest_s, time.monotonic() - asked_at)
        time.sleep(0.1)
    storm.expect_success(PAIR_LIMIT_S, 'storm ')
    grown = resident_kib(daemon) - before
    check(grown < 2048, f'the daemon has grown by {grown} KiB')
    asked = place.client.connection_manager()['ways_asked'] - asked_before
    check(asked < count / 100, f'{asked} questions for one way')
    check(slowest_s < 1, f'a status took {slowest_s:.2f} s')


def nothing_left(place):
    """Neither IDs nor channels outlive their programs."""
    for node in {place.server, place.client}:
        check_reaped(node)
        wait_until(lambda node=node: node.connection_manager()['ids'] == 0 and node.connection_manager()['channels'] == 0, 3,
                   'IDs or channels are left', 0.1)


def add_cases(group):
    group.add('rping', rping)
    group.add('rping-specific', rping_specific)
    group.add('rping-ipv6', rping_ipv6)
    group.add('rping-persistent', rping_persistent)
    group.add('ucmatose', compared, 'ucmatose', '-c', 10, '-C', 20, '-S', 4096)
    group.add('ucmatose-100', compared, 'ucmatose', '-c', 100)
    group.add('ucmatose-migrate', compared, 'ucmatose', '-c', 5, '-m')
    group.add('udaddy', compared, 'udaddy', '-c', 5, '-C', 10, '-S', 1000)
    group.add('rdma_server', rdma_server)
    group.add('rdma_xserver-rc', rdma_xserver, 'r')
    group.add('rdma_xserver-xrc', rdma_xserver, 'x')
    group.add('cmtime', cmtime, 50)
    group.add('mckey', mckey)
    for program in ('ib_send_bw', 'ib_write_lat', 'ib_read_bw', 'ib_atomic_bw'):
        group.add(f'{program}-R', perftest, program)
    group.add('ib_send_lat-R-ud', perftest, 'ib_send_lat', '-c', 'UD', '-s', 512)
    group.add('refused', refused)
    group.add('killed', killed)
    group.add('killed-busy', killed_busy)
    group.add('nothing-left', nothing_left)


def groups(_large):
    kinds = {'one-node': (), 'forced-wire': ('--force-wire',), 'no-af-ib': ('--no-af-ib',)}
    for kind, up in kinds.items():
        group = Group(f'{kind}/rdma_cm', lambda up=up: one_node(*up))
        add_cases(group)
        if kind == 'one-node':
            group.add('2000-in-turn', many, '--count', 2000)
            group.add('1000-at-once', many, '--count', 1000, '--threads', 200)
            group.add('nothing-left-of-many', nothing_left)
        yield group
    group = Group('veth-1500/rdma_cm', lambda: two_nodes(1500))
    group.add('resolve-storm', resolve_storm)
    add_cases(group)
    yield group
