"""Frames with a wrong P_Key, ICRC, version or destination QP, sent to a queue pair in use: dropped, and counted by name.
A CNP is taken. The traffic between the two nodes goes on.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from harness.process import check, wait_until
from harness.runner import Group

from scenes.link import IPV4, MAC, urdma_link
from scenes.relay import program

COUNT = 20
COUNTERS = {'pkey': 'bad P_Key', 'icrc': 'bad ICRC', 'version': 'bad version', 'qpn': 'unknown QP'}


def dropped(node):
    result = {}
    for engine in node.status()['engines']:
        for name, value in engine['dropped'].items():
            # What the kernel says over the same interface is not ours.
            if name != 'not RoCE':
                result[name] = result.get(name, 0) + value
    return result


def forged(link, kind):
    node = link.urdma.node
    serving, coming = link.start(True, ['interop_answers', 'steady', '--seconds', 2], '--gid')
    try:
        wait_until(lambda: 'begins' in coming.output() or coming.has_ended(), 20, 'the program does not begin', 0.05)
        qpn = node.status()['qps'][0]['qpn']
        before = dropped(node)
        sender = link.scene.start([program('forge'), 'a', MAC, IPV4[1], IPV4[0], qpn, kind, COUNT], prefix=link.relay.prefix)
        sender.expect_success(10)
        coming.expect_success(30, 'client ')
        serving.expect_success(10, 'server ')
    finally:
        serving.kill()
        coming.kill()
    after = dropped(node)
    seen = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    expected = {COUNTERS[kind]: COUNT} if kind in COUNTERS else {}
    check(seen == expected, f'{seen} were dropped, and not {expected}')


def groups():
    group = Group('urdma/forged', urdma_link)
    for kind in (*COUNTERS, 'cnp'):
        group.add(kind, forged, kind)
    yield group
