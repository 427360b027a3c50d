"""A private node, and where two programs meet: on one node, or on two in network namespaces.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess

from .pairs import PAIR_LIMIT_S, finish, on_tcp, start_server
from .process import Failure, Scene, Skip, check, listens, tail, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[3]
UP_LIMIT_S = 20


class Build:
    """Where the programs under test are; system.py sets `directory`."""
    directory = ROOT / 'build'

    @classmethod
    def urdma(cls):
        return cls.directory / 'stage' / 'bin' / 'urdma'

    @classmethod
    def program(cls, name):
        return cls.directory / 'tests' / 'system' / 'programs' / name


class Node:
    """One daemon with a state directory of its own. `prefix` puts it into a namespace or another user."""

    def __init__(self, scene, name='node', up=(), prefix=()):
        self.scene = scene
        self.state = scene.directory / name
        self.scratch = scene.directory  # where programs may leave files
        self.up_arguments = list(up)
        self.prefix = list(prefix)
        self.environment = {'URDMA_DIR': str(self.state)}

    def urdma(self, *arguments, environment=None):
        return self.scene.start([Build.urdma(), *arguments], {**self.environment, **(environment or {})}, self.prefix)

    def up(self):
        self.urdma('up', *self.up_arguments).expect_success(UP_LIMIT_S)
        return self

    def down(self):
        self.urdma('down').expect_success(10)

    def run(self, *program, environment=None):
        """Starts a program with the device there."""
        return self.urdma('run', '--', *program, environment=environment)

    def run_to_end(self, *program, limit_s=30, environment=None):
        return self.run(*program, environment=environment).expect_success(limit_s)

    def status(self):
        text = self.urdma('status', '--json').expect_success(10)
        try:
            return json.loads(text)
        except ValueError as error:
            raise Failure(f'urdma status --json prints no JSON: {error}\n{tail(text)}') from error

    def connection_manager(self):
        return self.status()['connection_manager']

    def listeners(self):
        """How many listen in the connection manager."""
        return self.connection_manager()['listeners']

    def queue_pairs(self):
        """How many programs have."""
        return len(self.status()['qps'])

    @staticmethod
    def listens(program, port):
        """Whether somebody listens on a TCP port where a program of this node runs."""
        return listens(program.pid, port)

    def daemon(self):
        """The daemon's process id, found by its name and environment."""
        for pid in self.scene.strays():
            with contextlib.suppress(OSError):
                argv0 = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().split(b'\0')[0]
                in_environment = f'URDMA_DIR={self.state}\0'.encode() in pathlib.Path(f'/proc/{pid}/environ').read_bytes()
                if pathlib.Path(os.fsdecode(argv0)).name == 'urdmad' and in_environment:
                    return pid
        raise Failure('no urdmad runs for this node')


class Place:
    """Where a server and a client run, and the host name under which the client finds the server."""

    def __init__(self, scene, server, client, host):
        self.scene = scene
        self.server = server
        self.client = client
        self.host = host

    def pair(self, argv, client_only=(), server_only=(), limit_s=PAIR_LIMIT_S, port_option='-p'):
        """Runs `argv` as a server and, with the host's name behind it, as a client; returns the client's
        and the server's output."""
        port = self.scene.ports.take()
        common = [argv[0], port_option, port, *argv[1:]]
        server = start_server(self.server, [*common, *server_only], on_tcp(self.server, port))
        return finish(server, self.client.run(*common, *client_only, self.host), limit_s)


@contextlib.contextmanager
def one_node(*up, prefix=(), environment=None):
    """A node on the embedded default, with both programs on it."""
    with Scene() as scene:
        node = Node(scene, up=up, prefix=prefix)
        node.environment.update(environment or {})
        node.up()
        yield Place(scene, node, node, '127.0.0.1')
        node.down()


def require_root():
    if os.geteuid() != 0:
        raise Skip('only root can do this')


def ip(*words):
    done = subprocess.run(['ip', *[str(word) for word in words]], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"ip {' '.join(str(word) for word in words)}: {done.stderr.strip()}")


def make_namespace(scene, name):
    done = subprocess.run(['ip', 'netns', 'add', name], capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip(f'no network namespace can be made here: {done.stderr.strip()}')
    scene.undo.callback(subprocess.run, ['ip', 'netns', 'del', name], capture_output=True)


def make_veth(scene, mtu):
    """Two namespaces joined by a veth pair; returns their names. The addresses are those for documentation."""
    require_root()
    if shutil.which('ip') is None:
        raise Skip('iproute2 is not installed; run scripts/setup')
    names = [f'urdma-{os.getpid()}-{side}' for side in 'ab']
    for name in names:
        make_namespace(scene, name)
        ip('-n', name, 'link', 'set', 'lo', 'up')
    join_by_veth(names, mtu)
    return names


def join_by_veth(names, mtu):
    """A wire between two namespaces; may be called again once it was taken away."""
    ip('link', 'add', 'veth0', 'netns', names[0], 'mtu', mtu, 'type', 'veth', 'peer', 'name', 'veth0', 'netns', names[1],
       'mtu', mtu)
    for number, name in enumerate(names, 1):
        ip('-n', name, 'addr', 'add', f'192.0.2.{number}/24', 'dev', 'veth0')
        ip('-n', name, 'addr', 'add', f'2001:db8::{number}/64', 'dev', 'veth0', 'nodad')
        ip('-n', name, 'link', 'set', 'veth0', 'up')


@contextlib.contextmanager
def two_nodes(mtu, *up):
    """Two daemons in two namespaces over veth: what two machines are to one another."""
    with Scene() as scene:
        names = make_veth(scene, mtu)
        nodes = [Node(scene, f'node-{side}', ['--port', 'af_packet:veth0', *up], ['ip', 'netns', 'exec', name])
                 for side, name in zip('ab', names)]
        for node in nodes:
            node.up()
        yield Place(scene, nodes[0], nodes[1], '192.0.2.1')
        for node in nodes:
            node.down()


def check_reaped(node):
    """No session is left a second after its program's end, and the daemon lives."""
    wait_until(lambda: not node.status().get('sessions'), 3, 'urdma status still shows sessions', 0.1)
    check(node.daemon() > 0, 'the daemon is gone')
