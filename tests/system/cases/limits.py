"""Limits and crowds: what ibv_query_device says is what works, 10,000 queue pairs, 128 processes, users who share.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import os
import pathlib
import re
import signal

from cases.programs import add_programs
from cases.users import NOBODY, copied_build
from harness.node import Build, Node, check_reaped, one_node, require_root
from harness.process import Scene, check, listens, tail, wait_until
from harness.runner import Group

LIMITS = Group('limits', one_node)
CROWD = Group('crowd', one_node)
SHARES = Group('shares')
PAIRS, QPS_OF_A_PROCESS = 4, 1250
PINGPONGS = 64
# What the daemon may keep beyond what it had: the allocator's leftovers. 10,000 queue pairs are more than 100 MB.
SLACK = {'descriptors': 0, 'threads': 0, 'mappings': 16, 'memory': 8 * 1024}
GROUP, GROUP_NUMBER = 'nogroup', 65534
USERS = (NOBODY, NOBODY - 1)


def resources(pid):
    """Descriptors, mappings and memory (KiB) of a process."""
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    return {'descriptors': len(os.listdir(f'/proc/{pid}/fd')),
            'mappings': len(pathlib.Path(f'/proc/{pid}/maps').read_text().splitlines()),
            'threads': int(re.search(r'^Threads:\s+(\d+)', status, re.MULTILINE).group(1)),
            'memory': int(re.search(r'^VmRSS:\s+(\d+)', status, re.MULTILINE).group(1))}


def await_back(node, before):
    """The daemon has no more of anything than it had `before`, once all programs are gone."""
    def is_back():
        now = resources(node.daemon())
        return all(now[what] <= before[what] + slack for what, slack in SLACK.items())
    check_reaped(node)
    wait_until(is_back, 3, f'the daemon keeps {resources(node.daemon())}, of {before} before, and not less', 0.1)


def start_servers(place, count, argv):
    """`count` servers that listen, each with its port."""
    servers = [(place.server.run(*argv, '-p', port), port) for port in (place.scene.ports.take() for _ in range(count))]
    for server, port in servers:
        wait_until(lambda server=server, port=port: server.has_ended() or listens(server.pid, port), 30,
                   f'{argv[0]} does not listen')
    return servers


def start_crowd(place):
    """10,000 queue pairs at once, each with traffic."""
    argv = [Build.program('crowd'), '--qps', QPS_OF_A_PROCESS]
    servers = start_servers(place, PAIRS, argv)
    programs = [server for server, _ in servers]
    programs += [place.client.run(*argv, '-p', port, '127.0.0.1') for _, port in servers]
    for program in programs:
        wait_until(lambda program=program: program.has_ended() or 'ready' in program.output(), 30,
                   f'{program.line()} is not ready')
        check(not program.has_ended(), f'{program.line()} has ended\n{tail(program.output())}')
    sessions = place.server.status()['sessions']
    check(sum(session['qps'] for session in sessions) == 2 * PAIRS * QPS_OF_A_PROCESS, f'the node has {sessions}')
    return programs


@CROWD.case
def queue_pairs_10000(place):
    """They come and go, and the daemon is what it was."""
    before = resources(place.server.daemon())
    programs = start_crowd(place)
    meanwhile = resources(place.server.daemon())
    check(meanwhile['mappings'] > before['mappings'] + 2 * PAIRS * QPS_OF_A_PROCESS, f'it had {meanwhile}')
    for program in programs:
        program.kill(signal.SIGTERM)
    for program in programs:
        program.expect_success(30)
    await_back(place.server, before)


@CROWD.case
def queue_pairs_10000_killed(place):
    """The same when their owners are killed."""
    before = resources(place.server.daemon())
    for program in start_crowd(place):
        program.kill()
    await_back(place.server, before)


@CROWD.case
def processes_128(place):
    """64 pingpongs at once, every byte compared."""
    before = resources(place.server.daemon())
    argv = ['ibv_rc_pingpong', '-g', 0, '-c', '-n', 200]
    servers = start_servers(place, PINGPONGS, argv)
    clients = [place.client.run(*argv, '-p', port, '127.0.0.1') for _, port in servers]
    for program in [*clients, *[server for server, _ in servers]]:
        output = program.expect_success(60)
        check('invalid data' not in output, f'wrong data\n{tail(output)}')
    await_back(place.server, before)


@contextlib.contextmanager
def hoarding(node):
    """A program that takes all it gets; yields how many protection domains that is."""
    program = node.run(Build.program('hoard'))
    wait_until(lambda: program.has_ended() or program.output().endswith('\n'), 30, 'hoard does not come to its end')
    check(not program.has_ended(), f'hoard has ended\n{tail(program.output())}')
    yield int(program.output())
    program.kill(signal.SIGTERM)
    program.expect_success(10)


@SHARES.case
def nobody_takes_all():
    """Of a node of a group, the first user gets half, the next half of the rest, and who runs it what is left."""
    require_root()
    with Scene() as scene, copied_build(scene):
        owner = Node(scene, up=['--group', GROUP]).up()
        users = [Node(scene, prefix=['setpriv', f'--reuid={user}', f'--regid={GROUP_NUMBER}', '--clear-groups'])
                 for user in USERS]
        with hoarding(users[0]) as first, hoarding(users[1]) as second, hoarding(owner) as rest:
            check(first > 0 and second == first // 2 and rest == first // 2, f'they have {first}, {second} and {rest}')
        check_reaped(owner)
        owner.down()


def groups(_large):
    add_programs(LIMITS, ('limits_test',))
    LIMITS.add('reaped', lambda place: check_reaped(place.server))
    yield LIMITS
    yield CROWD
    yield SHARES
