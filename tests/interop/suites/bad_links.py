"""Bad links: loss, duplication, reordering and damage, to rxe and between two nodes of urdma. Programs finish, bytes are
right, sums are exact; the goodput is printed beside what the link did.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import re

from harness.process import check
from harness.runner import Group

from scenes.link import rxe_link, urdma_link

LIMIT_S = 150
LINKS = {  # name -> direction, what happens per frame
    'good': ('both', {}),
    'loss-0.1-percent': ('both', {'loss': 0.001}),
    'loss-1-percent': ('both', {'loss': 0.01}),
    'loss-1-percent-to-peer': ('ab', {'loss': 0.01}),
    'loss-1-percent-from-peer': ('ba', {'loss': 0.01}),
    'loss-5-percent': ('both', {'loss': 0.05}),
    'duplication': ('both', {'duplicate': 0.05}),
    'reordering': ('both', {'reorder': 0.02}),
    'corruption': ('both', {'corrupt': 0.01}),
    'everything': ('both', {'loss': 0.005, 'duplicate': 0.005, 'reorder': 0.005, 'corrupt': 0.005}),
}


def bad(link, name, argv, gid_option):
    """Runs a pair over a link of this kind; returns the client's output."""
    direction, what = LINKS[name]
    before = link.relay.stats()
    link.relay.impair(direction, **what)
    try:
        output, _ = link.pair(True, argv, gid_option, limit_s=LIMIT_S)
    finally:
        link.relay.impair('both')
    after = link.relay.stats()
    done = {way: {key: after[way][key] - before[way][key] for key in after[way]} for way in after}
    total = sum(way['seen'] for way in done.values())
    harm = {key: sum(way[key] for way in done.values()) for key in ('dropped', 'duplicated', 'corrupted', 'reordered')}
    print(f"     {name}: {total} frames, " + ', '.join(f'{number} {key}' for key, number in harm.items()), flush=True)
    check(not what or sum(harm.values()) > 0, 'the link did no harm: too few frames')
    return output


def traffic(link, name, *options):
    # A guest without KVM, on a busy machine, may not answer for a while: eight time-outs of 67 ms at least.
    output = bad(link, name, ['interop_traffic', '--timeout', 14, *options], '--gid')
    print(f"     goodput {re.search(r'[0-9.]+ MB/s', output).group(0)} each way", flush=True)


def perftest(link, name, *argv):
    bad(link, name, [*argv, '-F'], '-x')


def groups():
    for kind, place, count in (('rxe', rxe_link, 300), ('urdma', urdma_link, 4000)):
        group = Group(f'{kind}/bad-link', place)
        for name in LINKS:
            group.add(f'traffic-{name}', traffic, name, '--count', count)
        group.add('ib_send_bw-loss-1-percent', perftest, 'loss-1-percent', 'ib_send_bw', '-n', 200)
        group.add('ib_read_bw-loss-1-percent', perftest, 'loss-1-percent', 'ib_read_bw', '-n', 200)
        group.add('ib_atomic_bw-loss-1-percent', perftest, 'loss-1-percent', 'ib_atomic_bw', '-n', 1000)
        yield group
