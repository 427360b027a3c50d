"""Clients that send nonsense lose their own connection, and nothing else happens.

Seeds are fixed, so that a failure comes again.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import array
import contextlib
import os
import random
import socket
import struct

from cases.pingpong import pingpong
from harness.node import Build, check_reaped, one_node
from harness.process import check, listens, tail, wait_until
from harness.runner import Group

HOSTILE = Group('hostile', one_node)
ROUNDS = 400
LARGEST_TYPE = 44  # beyond every message type
CONNECT_LIMIT_S = 10


def sockets_of(place):
    """The node's sockets: control.sock and dev/uverbs0."""
    found = [path for path in place.server.state.rglob('*') if path.is_socket()]
    check(len(found) >= 2, f'{place.server.state} holds {found}')
    return sorted(found)


@contextlib.contextmanager
def connection(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        # A timeout of Python's would make connect() fail at once while the backlog is full.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('@ll', CONNECT_LIMIT_S, 0))
        client.connect(str(path))
        yield client


def send_quietly(client, data, fds=()):
    """False once the daemon has ended the connection."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else []
    try:
        client.sendmsg([data], ancillary, socket.MSG_DONTWAIT)
        return True
    except BlockingIOError:
        return True
    except OSError:
        return False


def still_works(place):
    check(place.server.daemon() > 0, 'the daemon is gone')
    place.client.run_to_end('ibv_devinfo')


@HOSTILE.case
def random_bytes(place):
    dice = random.Random(1)
    for path in sockets_of(place):
        for _ in range(ROUNDS):
            with connection(path) as client:
                for _ in range(dice.randrange(1, 4)):
                    if not send_quietly(client, dice.randbytes(dice.choice((0, 1, 15, 16, 17, 100, 8191, 8192, 9000, 60000)))):
                        break
    still_works(place)


@HOSTILE.case
def every_type_with_random_bodies(place):
    dice = random.Random(2)
    for path in sockets_of(place):
        for kind in range(LARGEST_TYPE):
            for _ in range(20):
                with connection(path) as client:
                    header = struct.pack('=IIQ', kind, 0, dice.getrandbits(64))
                    send_quietly(client, header + dice.randbytes(dice.choice((0, 4, 8, 24, 32, 64, 128, 1000))))
    still_works(place)


@HOSTILE.case
def descriptors_of_every_kind(place):
    """Passed descriptors are closed again, whatever they are: the daemon runs out of none."""
    pid = place.server.daemon()
    before = len(os.listdir(f'/proc/{pid}/fd'))
    dice = random.Random(3)
    with open('/dev/null', 'rb') as null, open('/proc/self/status', 'rb') as proc:
        pipe = os.pipe()
        fds = [null.fileno(), proc.fileno(), *pipe]
        for path in sockets_of(place):
            for kind in range(LARGEST_TYPE):
                for count in (1, 3, 20, 200):
                    with connection(path) as client:
                        header = struct.pack('=IIQ', kind, 0, 1)
                        send_quietly(client, header + dice.randbytes(64), [dice.choice(fds) for _ in range(count)])
        for fd in pipe:
            os.close(fd)
    still_works(place)
    wait_until(lambda: len(os.listdir(f'/proc/{pid}/fd')) <= before, 5, f'the daemon keeps descriptors beyond {before}')


@HOSTILE.case
def many_connections(place):
    """More connections than a client may have; afterwards there is room again."""
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            with contextlib.suppress(OSError):
                stack.enter_context(connection(sockets_of(place)[0]))
    still_works(place)


@HOSTILE.case
def silence_while_others_work(place):
    """Connections that say nothing, or half of something, hold up nobody."""
    with contextlib.ExitStack() as stack:
        for path in sockets_of(place):
            for _ in range(20):
                client = stack.enter_context(connection(path))
                send_quietly(client, b'\x02\0\0\0')
        pingpong(place, '-c', iterations=200)


@HOSTILE.case
def a_reader_that_never_reads(place):
    """Requests without end whose answers nobody takes."""
    for path in sockets_of(place):
        with connection(path) as client:
            for number in range(5000):
                if not send_quietly(client, struct.pack('=IIQ', 22, 0, number)):
                    break
            still_works(place)


@HOSTILE.case
def nonsense_beside_a_good_client(place):
    """A pingpong that runs all the while ends well."""
    port = place.scene.ports.take()
    argv = ['ibv_rc_pingpong', '-g', 0, '-c', '-n', 3000, '-p', port]
    server = place.server.run(*argv)
    wait_until(lambda: server.has_ended() or listens(server.pid, port), 20, 'the server does not listen')
    client = place.client.run(*argv, '127.0.0.1')
    dice = random.Random(4)
    while not client.has_ended():
        for path in sockets_of(place):
            with connection(path) as bad:
                send_quietly(bad, struct.pack('=IIQ', dice.randrange(LARGEST_TYPE), 0, 1) + dice.randbytes(100))
    client.expect_success(60)
    server.expect_success(10)


def scribbled(place, seed):
    """A program that scribbles over everything that it shares with the daemon."""
    program = place.client.run(Build.program('scribble'), seed)
    status = program.wait(30)
    check(status is not None, f'scribble {seed} does not end\n{tail(program.output())}')
    check('scribbling' in program.output(), f'scribble {seed} did not come to it\n{tail(program.output())}')
    still_works(place)


def groups(_large):
    for seed in range(1, 13):
        HOSTILE.add(f'scribble-{seed}', scribbled, seed)
    HOSTILE.add('works-afterwards', pingpong, '-c')
    HOSTILE.add('reaped', lambda place: check_reaped(place.server))
    yield HOSTILE
