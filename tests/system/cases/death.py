"""Deaths: of the daemon, of a client, of a peer. Nobody polls for ever, and nothing stays behind.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import os
import pathlib
import signal
import time

from cases.network import watching
from harness.node import Build, Node, check_reaped, one_node
from harness.pairs import by_address, start_server
from harness.process import Scene, check, listens, tail, wait_until
from harness.runner import Group

DAEMON = Group('daemon-death')
CLIENT = Group('client-death', one_node)
SEEN_WITHIN_S = 1.0


def kill_daemon_under(mode, number=signal.SIGKILL):
    """death_watch sees the daemon die, and a new node comes up at once."""
    with Scene() as scene:
        node = Node(scene).up()
        watcher = node.run(Build.program('death_watch'), mode)
        wait_until(lambda: 'ready' in watcher.output() or watcher.has_ended(), 20, 'death_watch is not ready')
        time.sleep(0.2)
        daemon = node.daemon()
        os.kill(daemon, number)
        seconds = wait_until(lambda: 'device fatal' in watcher.output() or watcher.has_ended(), 10,
                             'death_watch sees nothing')
        watcher.expect_success(20)
        check(seconds <= SEEN_WITHIN_S, f'it took {seconds:.2f} s until the client saw it')
        node.up()
        node.run_to_end('ibv_devinfo')
        node.down()


for watched in ('polling', 'sleeping', 'busy'):
    DAEMON.add(f'killed-under-{watched}', lambda watched=watched: kill_daemon_under(watched))
DAEMON.add('terminated-under-polling', lambda: kill_daemon_under('polling', signal.SIGTERM))


@DAEMON.case
def killed_under_asyncwatch():
    """Debian's ibv_asyncwatch shows the end of the device."""
    with Scene() as scene:
        node = Node(scene).up()
        with watching(node) as output:
            os.kill(node.daemon(), signal.SIGKILL)
            wait_until(lambda: 'IBV_EVENT_DEVICE_FATAL' in output(), SEEN_WITHIN_S, 'it shows no end of the device')


@DAEMON.case
def down_under_polling():
    """`urdma down` says the same to clients as a death does."""
    with Scene() as scene:
        node = Node(scene).up()
        watcher = node.run(Build.program('death_watch'), 'polling')
        wait_until(lambda: 'ready' in watcher.output() or watcher.has_ended(), 20, 'death_watch is not ready')
        node.down()
        watcher.expect_success(20)


@DAEMON.case
def killed_under_pingpong():
    """An unmodified program ends, too, and says why."""
    with Scene() as scene:
        node = Node(scene).up()
        port = scene.ports.take()
        argv = ['ibv_rc_pingpong', '-g', 0, '-n', 100_000_000, '-p', port]
        server = node.run(*argv)
        wait_until(lambda: server.has_ended() or listens(server.pid, port), 20, 'the server does not listen')
        client = node.run(*argv, '127.0.0.1')
        time.sleep(1)
        check(not client.has_ended(), f'it has ended before\n{tail(client.output())}')
        os.kill(node.daemon(), signal.SIGKILL)
        for program in (client, server):
            status = program.wait(5)
            check(status not in (None, 0), f'{program.line()} ended with {status}\n{tail(program.output())}')
        node.up()
        node.down()


def killed_with(server_argv, client_argv=None):
    """The daemon dies under programs that connect by IP address. Yields them, the server first."""
    with Scene() as scene:
        node = Node(scene).up()
        programs = [start_server(node, server_argv, by_address(node))]
        if client_argv is not None:
            programs.append(node.run(*client_argv))
            wait_until(lambda: sum(qp['state'] == 'RTS' for qp in node.status()['qps']) >= 2, 20, 'they do not connect', 0.05)
        os.kill(node.daemon(), signal.SIGKILL)
        yield from programs


def expect_ends(program, words):
    status = program.wait(SEEN_WITHIN_S)
    check(status not in (None, 0), f'{program.line()} ended with {status}\n{tail(program.output())}')
    check(words in program.output(), f'{program.line()} does not say "{words}"\n{tail(program.output())}')


@DAEMON.case
def killed_under_connections():
    """As Linux tells them of a device that is taken out."""
    for program in killed_with(['rping', '-s', '-P'], ['rping', '-c', '-a', '127.0.0.1', '-C', 100_000_000]):
        expect_ends(program, 'device removal')


@DAEMON.case
def killed_under_a_listener():
    """Who listens on every address has no device that could be removed."""
    for program in killed_with(['ucmatose']):
        expect_ends(program, 'Input/output error')


@DAEMON.case
def killed_under_a_listening_rsocket():
    """Its accept() waits for ever, as it would in Linux; but the person is told, and it takes no core."""
    def cpu_s(pid):
        fields = pathlib.Path(f'/proc/{pid}/stat').read_text(encoding='ascii').rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    for program in killed_with(['rstream', '-T', 'b']):
        wait_until(lambda program=program: 'the daemon has ended' in program.output(), SEEN_WITHIN_S, 'it says nothing')
        before = cpu_s(program.pid)
        time.sleep(1)
        check(cpu_s(program.pid) - before < 0.3, 'it is busy with waiting')


@DAEMON.case
def killed_ten_times():
    """`urdma up` works at once after each SIGKILL: nothing stale is in its way."""
    with Scene() as scene:
        node = Node(scene)
        for _ in range(10):
            node.up()
            os.kill(node.daemon(), signal.SIGKILL)
        node.up()
        node.run_to_end('ibv_devinfo')
        node.down()


def running_pair(place, *options):
    port = place.scene.ports.take()
    argv = ['ib_write_bw', '-F', '-x', 0, '-D', 60, '-p', port, *options]
    server = place.server.run(*argv)
    wait_until(lambda: server.has_ended() or listens(server.pid, port), 20, 'the server does not listen')
    client = place.client.run(*argv, place.host)
    time.sleep(1.5)
    check(not client.has_ended(), f'the client has ended early\n{tail(client.output())}')
    return server, client


@CLIENT.case
def both_killed_are_reaped(place):
    server, client = running_pair(place)
    client.kill()
    server.kill()
    check_reaped(place.server)


@CLIENT.case
def a_killed_peer_is_noticed(place):
    """The other side gets an error completion, and can be connected to again."""
    server, client = running_pair(place)
    server.kill()
    status = client.wait(20)
    check(status not in (None, 0), f'the client ended with {status}\n{tail(client.output())}')
    place.pair(['ib_write_bw', '-F', '-x', 0, '-n', 100])
    check_reaped(place.server)


@CLIENT.case
def killed_while_it_registers(place):
    """Clients that are killed anywhere in their set-up leave nothing behind."""
    for tenths in range(1, 12):
        program = place.client.run(Build.program('memory_test'), '--gtest_filter=*Overlapping*')
        time.sleep(0.03 * tenths)
        program.kill()
    check_reaped(place.server)
    place.client.run_to_end('ibv_devinfo')


@CLIENT.case
def stopped_client_stops_nobody_else(place):
    """A client under SIGSTOP, with traffic outstanding, holds up no other client."""
    server, client = running_pair(place)
    client.kill(signal.SIGSTOP)
    server.kill(signal.SIGSTOP)
    place.pair(['ibv_rc_pingpong', '-g', 0, '-c', '-n', 200])
    client.kill()
    server.kill()
    check_reaped(place.server)


def groups(_large):
    yield DAEMON
    yield CLIENT
