"""Nodes with two engines: the same programs, QPs that are spread, queues that engines share, deaths.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import os

from cases.death import both_killed_are_reaped, running_pair
from cases.perftest import perftest
from cases.pingpong import pingpong
from cases.programs import add_programs, run_case
from cases.services import add_services
from cases.srq import srq_pingpong, xsrq_pingpong
from harness.node import check_reaped, one_node, two_nodes
from harness.process import Skip, check, wait_until
from harness.runner import Group

SPREAD = ('--engines', '2')
KINDS = {
    'one-node': lambda: one_node(*SPREAD),
    'forced-wire': lambda: one_node(*SPREAD, '--force-wire'),
    'no-convert-wire': lambda: one_node(*SPREAD, '--no-convert', '--force-wire'),
    'veth-9000': lambda: two_nodes(9000, *SPREAD),
}
PERFTEST = ('ib_send_lat', 'ib_send_bw', 'ib_write_lat', 'ib_write_bw', 'ib_read_lat', 'ib_read_bw', 'ib_atomic_lat',
            'ib_atomic_bw')


def qps_by_engine(node):
    counts = [engine['qps'] for engine in node.status()['engines']]
    check(len(counts) == 2, f'{len(counts)} engines, of 2')
    return counts


def spread_evenly(place):
    """16 QPs of one program are on both engines while it runs."""
    server, client = running_pair(place, '-q', '16')
    wait_until(lambda: sum(qps_by_engine(place.client)) >= 16, 20, 'the client has no 16 QPs', 0.1)
    counts = qps_by_engine(place.client)
    client.kill()
    server.kill()
    check(min(counts) >= 4, f'QPs by engine: {counts}')
    check_reaped(place.server)
    check(sum(qps_by_engine(place.server)) == 0, 'an engine still counts QPs')


def cores_by_name():
    """--cores starts one engine on each."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise Skip('there is one core only')
    with one_node('--cores', ','.join(map(str, cores))) as place:
        pingpong(place, '-c', iterations=200)
        qps_by_engine(place.server)


def control_goes_on(cores, *up):
    """Engines and copiers that have work without end, on all cores that there are, leave something to others."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    if len(allowed) < cores:
        raise Skip('there is one core only')
    with one_node(*up, prefix=('taskset', '--cpu-list', ','.join(map(str, allowed)))) as place:
        run_case(place, 'busy_test', 'BusyTest.Control_GoesOnMeanwhile')
        check_reaped(place.server)


def killed_again_and_again(place):
    """Clients that are killed under traffic leave nothing on either engine."""
    for _ in range(4):
        server, client = running_pair(place, '-q', '8')
        client.kill()
        server.kill()
    check_reaped(place.server)
    pingpong(place, '-c', iterations=200)


def groups(_large):
    for kind, scene in KINDS.items():
        group = Group(f'engines/{kind}', scene)
        group.add('rc-pingpong', pingpong, '-c')
        group.add('rc-pingpong-events', pingpong, '-c', '-e')
        add_services(group)
        group.add('srq-pingpong', srq_pingpong, '-c', '-e')
        group.add('xsrq-pingpong', xsrq_pingpong)
        for program in PERFTEST:
            group.add(program, perftest, program, ['-n', '100'], 1)
            if program.endswith('_bw') and kind != 'no-convert-wire':
                group.add(f'{program}-16-qps', perftest, program, ['-n', '100', '-q', '16'], 1)
        group.add('spread-evenly', spread_evenly)
        group.add('both-killed-are-reaped', both_killed_are_reaped)
        if kind != 'veth-9000':
            add_programs(group, ('engines_test', 'thread_test', 'srq_test', 'window_test', 'xrc_test', 'datagram_test'))
            group.add('killed-again-and-again', killed_again_and_again)
        group.add('reaped', lambda place: check_reaped(place.server))
        yield group
    alone = Group('engines/cores')
    alone.add('cores-by-name', cores_by_name)
    yield alone
    busy = Group('engines/busy')
    busy.add('two-engines-two-cores', control_goes_on, 2, *SPREAD)
    busy.add('two-engines-two-cores-wire', control_goes_on, 2, *SPREAD, '--force-wire')
    busy.add('one-engine-one-core', control_goes_on, 1)
    yield busy
