"""Two ends with a relay between them. One end is always a node of urdma, in a network namespace of its own, at a veth
pair; the other one is a guest with rdma_rxe, or a second node. The relay's namespace is the wire.

    urdma: namespace a, veth0 ---- a (wire) relay b (wire) ---- tap of the guest, or veth0 in namespace b

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import os
import subprocess

from cases.applications import ucx_example
from harness.node import Build, Node, Place, ip, make_namespace, require_root
from harness.pairs import PAIR_LIMIT_S, finish, on_tcp, start_server
from harness.process import Failure, Scene, Skip
from harness.tables import devinfo_gids

from vm import packages
from vm.guest import Guest
from vm.image import build

from .capture import Captures
from .relay import Relay, program

MTU = 9000
IPV4 = ('192.0.2.1', '192.0.2.2')  # of urdma's node, and of the peer
IPV6 = ('2001:db8::1', '2001:db8::2')
MAC = '52:54:00:00:00:01'  # of urdma's node
OWN_PROGRAMS = ('interop_traffic', 'interop_answers')


class Options:
    """What interop.py was told."""
    seed = 1
    keep = None
    no_guest = None  # why a guest cannot be had: asked once


class Side:
    """One end: `node` starts programs (a Node or a Guest)."""

    def __init__(self, name, node, number, where=lambda path: path):
        self.name = name
        self.node = node
        self.address = IPV4[number]
        self.gid_texts = {'ipv4': f'::ffff:{IPV4[number]}', 'ipv6': IPV6[number]}
        self.where = where
        self.indexes = {}

    def gid(self, family):
        """The index of this end's GID of a family. The table may change while nothing of ours runs: it is asked once."""
        if family not in self.indexes:
            table = devinfo_gids(self.node.run_to_end('ibv_devinfo', '-v'))
            self.indexes[family] = next((index for index, gid in table if gid == self.gid_texts[family]), None)
            if self.indexes[family] is None:
                raise Failure(f'{self.name} has no GID {self.gid_texts[family]}: {table}')
        return self.indexes[family]


class Link:
    def __init__(self, scene, urdma, peer, relay):
        self.scene = scene
        self.urdma = urdma
        self.peer = peer
        self.relay = relay
        self.captures = Captures(scene, relay, MAC, Options.keep)
        self.ucx_example = None  # compiled, and by the same path in the guest

    def roles(self, urdma_serves):
        """The server and the client."""
        return (self.urdma, self.peer) if urdma_serves else (self.peer, self.urdma)

    def place(self, urdma_serves):
        """The same for cases of the system tests."""
        server, client = self.roles(urdma_serves)
        return Place(self.scene, server.node, client.node, server.address)

    def start(self, urdma_serves, argv, gid_option, family='ipv4'):
        """Starts a pair; the server listens before the client comes. Returns both programs, the server's first."""
        server, client = self.roles(urdma_serves)
        port = self.scene.ports.take()
        common = ['-p', port, *argv[1:]]
        words = [[side.where(argv[0]), gid_option, side.gid(family), *common] for side in (server, client)]
        serving = start_server(server.node, words[0], on_tcp(server.node, port))
        return serving, client.node.run(*words[1], server.address)

    def pair(self, urdma_serves, argv, gid_option, family='ipv4', limit_s=PAIR_LIMIT_S):
        """Runs a pair; returns the client's and the server's output."""
        return finish(*self.start(urdma_serves, argv, gid_option, family), limit_s)


def make_wire(scene):
    """The namespace of the wire, with the end `a` of a veth pair whose other end is urdma's; returns the prefixes of both."""
    require_root()
    names = [f'urdma-{os.getpid()}-{side}' for side in ('a', 'wire')]
    for name in names:
        make_namespace(scene, name)
    # The wire has no addresses, and says nothing of its own.
    subprocess.run(['ip', 'netns', 'exec', names[1], 'sh', '-c', 'echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6'])
    add_end(names[1], 'a', names[0], 0, MAC)
    return [['ip', 'netns', 'exec', name] for name in names]


def add_end(wire, wire_interface, name, number, mac):
    ip('link', 'add', 'name', wire_interface, 'netns', wire, 'mtu', MTU, 'type', 'veth', 'peer', 'name', 'veth0', 'netns', name,
       'mtu', MTU, 'address', mac)
    ip('-n', wire, 'link', 'set', 'dev', wire_interface, 'up')
    ip('-n', name, 'link', 'set', 'lo', 'up')
    ip('-n', name, 'addr', 'add', f'{IPV4[number]}/24', 'dev', 'veth0')
    ip('-n', name, 'addr', 'add', f'{IPV6[number]}/64', 'dev', 'veth0', 'nodad')
    ip('-n', name, 'link', 'set', 'veth0', 'up')


def node_side(scene, name, number, prefix):
    node = Node(scene, f'node-{name}', ['--port', 'af_packet:veth0'], prefix)
    node.up()

    def where(path):
        return program(path) if path in OWN_PROGRAMS else path

    return Side(name, node, number, where)


def make_image(scratch):
    if Options.no_guest is not None:
        raise Skip(Options.no_guest)
    try:
        packages.install()
        example = ucx_example(scratch)
        return build(Build.directory / 'interop', [*(program(name) for name in OWN_PROGRAMS), example], scratch), example
    except Skip as skip:
        Options.no_guest = str(skip)
        raise


@contextlib.contextmanager
def rxe_link():
    """A node of urdma and a guest with rdma_rxe."""
    with Scene() as scene:
        scratch = scene.directory / 'image'
        scratch.mkdir()
        image, example = make_image(scratch)
        near, wire = make_wire(scene)
        ip('-n', wire[-1], 'tuntap', 'add', 'name', 'b', 'mode', 'tap')
        ip('-n', wire[-1], 'link', 'set', 'dev', 'b', 'mtu', MTU, 'up')
        guest = Guest(scene, image, 'b', (f'{IPV4[1]}/24', f'{IPV6[1]}/64'), MTU, wire)
        relay = Relay(scene, wire, Options.seed, 'a', 'b')
        link = Link(scene, node_side(scene, 'urdma', 0, near), Side('rxe', guest, 1), relay)
        link.ucx_example = example
        yield link


@contextlib.contextmanager
def urdma_link():
    """Two nodes of urdma."""
    with Scene() as scene:
        near, wire = make_wire(scene)
        far_name = f'urdma-{os.getpid()}-b'
        make_namespace(scene, far_name)
        add_end(wire[-1], 'b', far_name, 1, '52:54:00:00:00:02')
        relay = Relay(scene, wire, Options.seed, 'a', 'b')
        far = node_side(scene, 'urdma-b', 1, ['ip', 'netns', 'exec', far_name])
        yield Link(scene, node_side(scene, 'urdma', 0, near), far, relay)
