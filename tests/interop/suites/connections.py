"""Connecting by IP address between urdma and Linux's connection manager, in both roles, and between two nodes of urdma
over a link that loses frames. rping and the others verify what they receive.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import re

from cases import rdma_cm
from harness.node import Build
from harness.pairs import PAIR_LIMIT_S, by_address, finish, start_server
from harness.process import Failure, check, tail, wait_until
from harness.runner import Group

from scenes.link import rxe_link, urdma_link
from suites.programs import ROLES

STORM = ['--count', 800, '--rate', 200, '--threads', 32]  # 4 s of it
STORM_SLOWEST_S = 10.0
UD_SEND_ONLY = 0x64
CASES = (  # name, case of the system tests, options: little data, since the guest is slow
    ('rping-persistent', rdma_cm.rping_persistent),
    ('ucmatose', rdma_cm.compared, 'ucmatose', '-c', 5, '-C', 10, '-S', 4096),
    ('udaddy', rdma_cm.compared, 'udaddy', '-c', 2, '-C', 10, '-S', 1000),
    ('mckey', rdma_cm.mckey),
    ('rdma_server', rdma_cm.rdma_server),
    ('rdma_xserver', rdma_cm.rdma_xserver, 'r'),
    ('cmtime', rdma_cm.cmtime, 10),
    *((f'{program}-R', rdma_cm.perftest, program, '-n', 50) for program in ('ib_send_bw', 'ib_write_lat', 'ib_read_bw')),
)


def pair(link, urdma_serves, server_argv, client_argv):
    """Runs a server, and a client that is told the server's address; returns both outputs, the client's first."""
    server_side, client_side = link.roles(urdma_serves)
    server = start_server(server_side.node, server_argv, by_address(server_side.node))
    words = [word.format(host=server_side.address, host6=server_side.gid_texts['ipv6']) if isinstance(word, str) else word
             for word in client_argv]
    return finish(server, client_side.node.run(*words))


def rping(link, urdma_serves, wildcard, host, *options):
    """Its ends may close their channel while another of their threads is about to ask on it: after all has been done."""
    port = link.scene.ports.take()
    common = ['-p', port, '-C', 10, '-V', *options]
    with link.captures.recording('rping'):
        try:
            pair(link, urdma_serves, ['rping', '-s', '-a', wildcard, '-v', *common], ['rping', '-c', '-a', host, '-v', *common])
        except Failure as failure:
            if 'rdma_get_cm_event: Bad file descriptor' not in str(failure):
                raise


def system_case(link, urdma_serves, case, *options):
    """A case of the system tests. Every frame is recorded and judged."""
    with link.captures.recording(case.__name__):
        case(link.place(urdma_serves), *options)


def refused(link, urdma_serves):
    """Nobody listens, and the peer says so at once."""
    server_side, client_side = link.roles(urdma_serves)
    client = client_side.node.run('rping', '-c', '-a', server_side.address, '-p', link.scene.ports.take(), '-C', 1)
    client.wait(PAIR_LIMIT_S)
    check('RDMA_CM_EVENT_REJECTED, error 8' in client.output(), tail(client.output()))


def lost_messages(link, urdma_serves, direction):
    """The next three datagrams of one direction are lost: the connection is made all the same."""
    port = link.scene.ports.take()
    link.relay.command('drop', direction, UD_SEND_ONLY, 3)
    outputs = pair(link, urdma_serves, ['ucmatose', '-p', port, '-c', 1], ['ucmatose', '-s', '{host}', '-p', port, '-c', 1])
    for output in outputs:
        check('return status 0' in output, f'no success\n{tail(output)}')


def storm(link):
    """200 connections a second over a link that loses one frame of a hundred: none fails, and nothing is left."""
    port = link.scene.ports.take()
    program = Build.program('connections')
    link.relay.impair('both', loss=0.01)
    try:
        output, _ = pair(link, True, [program, '-p', port, *STORM[:2]], [program, '-p', port, *STORM, '{host}'])
    finally:
        link.relay.impair('both')
    slowest_s = float(re.search(r'the slowest in ([0-9.]+) s', output).group(1))
    print(f'     {output.strip()}', flush=True)
    check(slowest_s < STORM_SLOWEST_S, f'one took {slowest_s} s')
    for side in (link.urdma, link.peer):
        wait_until(lambda node=side.node: node.connection_manager()['ids'] == 0 and not node.status()['qps'], 10,
                   'IDs or queue pairs are left', 0.1)


def groups():
    group = Group('rxe/rdma_cm', rxe_link)
    for role, urdma_serves in ROLES.items():
        group.add(f'{role}/rping', rping, urdma_serves, '0.0.0.0', '{host}')
        group.add(f'{role}/rping-ipv6', rping, urdma_serves, '::', '{host6}')
        for name, case, *options in CASES:
            group.add(f'{role}/{name}', system_case, urdma_serves, case, *options)
        group.add(f'{role}/refused', refused, urdma_serves)
        for direction in ('ab', 'ba'):
            group.add(f'{role}/lost-messages-{direction}', lost_messages, urdma_serves, direction)
    group.add('tshark', lambda link: link.captures.judge_with_tshark())
    yield group
    group = Group('urdma/rdma_cm', urdma_link)
    group.add('storm-loss-1-percent', storm)
    yield group
