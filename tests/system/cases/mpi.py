"""Open MPI and MPICH, as Debian ships them: four ranks on one node, and two on each of two. That the messages went
through the nodes is seen in their counters. docs/programs/mpi.md has the commands.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import pathlib

from cases.applications import compiled, moved_bytes
from harness.node import Build, check_reaped, one_node, two_nodes
from harness.process import check, need, tail
from harness.runner import Group

SOURCE = pathlib.Path(__file__).resolve().parents[1] / 'programs' / 'mpi_exchange.c'
RANKS = 4
# Each rank sends 4 MiB around the ring, and 1 MiB all to all, three times.
LEAST_BYTES = RANKS * 3 * (4 << 20)
LAUNCHERS = {
    'openmpi': ['mpirun.openmpi', '--oversubscribe', '--mca', 'pml', 'ucx', '-np', RANKS],
    'mpich': ['mpiexec.mpich', '-np', RANKS],
}
HOSTS = ('192.0.2.1', '192.0.2.2')
SPREAD = ','.join(f'{host}:{RANKS // 2}' for host in HOSTS)
# What mpiexec does with the host that it is not on: it starts `AGENT HOST COMMAND`, as ssh would be. MPICH would hand its
# own environment on, and with it the node that it sees.
LAUNCHERS_OF_TWO = {
    'openmpi': lambda agent: ['mpirun.openmpi', '--mca', 'plm_rsh_agent', agent, '--mca', 'pml', 'ucx', '-H', SPREAD],
    'mpich': lambda agent: ['mpiexec.mpich', '-genvnone', '-launcher', 'ssh', '-launcher-exec', agent, '-localhost',
                            HOSTS[0], '-iface', 'veth0', '-hosts', SPREAD],
}
# The ring crosses from node to node with 4 MiB, three times, in frames of 1024 bytes of payload.
LEAST_FRAMES = 3 * (4 << 10)
ENVIRONMENT = {
    'OMPI_ALLOW_RUN_AS_ROOT': '1',
    'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
    'UCX_TLS': 'self,rc_verbs,ud_verbs:aux',  # and no shared memory, no TCP
}


def exchange(place, kind):
    need(LAUNCHERS[kind][0])
    program = compiled(place.scene.directory, f'mpicc.{kind}', SOURCE)
    before = moved_bytes(place.client)
    output = place.client.run_to_end(*LAUNCHERS[kind], program, environment=ENVIRONMENT, limit_s=60)
    check(f'{RANKS} ranks have exchanged everything' in output, tail(output))
    moved = moved_bytes(place.client) - before
    check(moved >= LEAST_BYTES, f'{moved} bytes went through the node, of {LEAST_BYTES}\n{tail(output)}')


def agent(place):
    """A script that stands for ssh to the second node."""
    path = place.scene.directory / 'agent'
    enter = ' '.join(place.client.prefix)
    path.write_text(f'''#!/bin/sh
while [ "$1" != {HOSTS[1]} ]; do shift; done
shift
exec {enter} env URDMA_DIR={place.client.state} {Build.urdma()} run -- sh -c "$*"
''')
    path.chmod(0o755)
    return path


def frames_sent(node):
    return sum(engine['frames_sent'] for engine in node.status()['engines'])


def exchange_of_two(place, kind):
    need(LAUNCHERS[kind][0])
    program = compiled(place.scene.directory, f'mpicc.{kind}', SOURCE)
    nodes = (place.server, place.client)
    before = [frames_sent(node) for node in nodes]
    output = place.server.run_to_end(*LAUNCHERS_OF_TWO[kind](agent(place)), '-np', RANKS, program,
                                     environment=ENVIRONMENT, limit_s=60)
    check(f'{RANKS} ranks have exchanged everything' in output, tail(output))
    for node, sent_before in zip(nodes, before):
        sent = frames_sent(node) - sent_before
        check(sent >= LEAST_FRAMES, f'{sent} frames went out, of {LEAST_FRAMES}')


def groups(_large):
    for name, up in {'one-node': (), 'forced-wire': ('--force-wire',)}.items():
        group = Group(f'{name}/mpi', lambda up=up: one_node(*up))
        for kind in LAUNCHERS:
            group.add(kind, exchange, kind)
        group.add('reaped', lambda place: check_reaped(place.client))
        yield group
    group = Group('veth-1500/mpi', lambda: two_nodes(1500))
    for kind in LAUNCHERS:
        group.add(kind, exchange_of_two, kind)
    group.add('reaped', lambda place: [check_reaped(node) for node in (place.server, place.client)])
    yield group
