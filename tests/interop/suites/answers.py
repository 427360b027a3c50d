"""What each side answers to requests that are wrong, early or special, and what it makes of such answers; and a link
that goes away, for good or for a while. Statuses are those of ibv_wc_status_str.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import re
import time

from harness.process import check, tail, wait_until
from harness.runner import Group

from scenes.link import rxe_link
from suites.programs import ROLES

SUCCESS = 'success'
ACCESS = 'remote access error'
INVALID = 'remote invalid request error'
OPERATION = 'remote operation error'
RNR = 'RNR retry counter exceeded'
TIMEOUT = 'transport retry counter exceeded'
# Syndromes of NAKs; those of RNR NAKs are 0x20 and the timer's code.
NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS, NAK_OPERATION, RNR_CODE_14 = 0x60, 0x61, 0x62, 0x63, 0x2E
# Scenario -> status at the requester, at the responder (None: no completion there), the responder's NAKs.
EXPECTED = {
    'wrong-key-write': (ACCESS, None, [NAK_ACCESS]),
    'wrong-key-read': (ACCESS, None, [NAK_ACCESS]),
    'wrong-key-atomic': (ACCESS, None, [NAK_ACCESS]),
    'out-of-bounds': (ACCESS, None, [NAK_ACCESS]),
    'read-only-region': (ACCESS, None, [NAK_ACCESS]),
    'misaligned-atomic': (INVALID, None, [NAK_INVALID]),
    'forbidden-read': (INVALID, None, [NAK_INVALID]),
    'long-send': (INVALID, 'local length error', [NAK_INVALID]),
    'receive-protection': (OPERATION, 'local protection error', [NAK_OPERATION]),
    'late-receive': (SUCCESS, SUCCESS, [RNR_CODE_14]),
    'no-receive': (RNR, None, [RNR_CODE_14]),
    'solicited': (SUCCESS, SUCCESS, []),
}
# Where rxe as the responder does something else: see docs/wire.md.
OF_RXE = {
    'long-send': (OPERATION, 'local QP operation error', [NAK_OPERATION]),
    'receive-protection': (OPERATION, 'local QP operation error', [NAK_OPERATION]),
    # The packets behind the one that found no receive are answered, too.
    'late-receive': (SUCCESS, SUCCESS, [RNR_CODE_14, NAK_SEQUENCE]),
}
# rxe refuses to post it.
NOT_FROM_RXE = ('misaligned-atomic',)
# How long the guest's link is down, and the status of a WRITE meanwhile: six retries of 0.27 s at least.
DOWN_FOR_GOOD_S = 8
DOWN_FOR_A_WHILE_S = 0.7


def statuses(output, who):
    return re.findall(rf'^{who}: (.*)$', output, re.MULTILINE)


def answer(link, urdma_serves, scenario):
    expected = EXPECTED[scenario] if urdma_serves else OF_RXE.get(scenario, EXPECTED[scenario])
    with link.captures.recording(scenario) as frames:
        client, server = link.pair(urdma_serves, ['interop_answers', scenario], '--gid')
    responder = 'mine' if urdma_serves else 'theirs'
    seen = (statuses(client, 'requester'), statuses(server, 'responder'), frames[0].naks(responder))
    wanted = ([expected[0]], [] if expected[1] is None else [expected[1]], expected[2])
    for what, one, other in zip(('the requester', 'the responder', 'NAKs'), seen, wanted):
        check(set(one) == set(other), f'{what}: {one}, and not {other}\n{tail(client)}\n{tail(server)}')


def down_and_up(link, urdma_serves, seconds, status):
    """The guest's interface goes down under a program, and comes back. Where the guest is the requester the wire is cut
    instead: rxe ends requests at once, with a local QP operation error, when its own interface is down."""
    guest = link.peer.node
    away, back = [(lambda word=word: link.relay.command(word)) if urdma_serves else
                  (lambda word=word: guest.shell(f'ip link set eth0 {word}')) for word in ('down', 'up')]
    argv = ['interop_answers', 'steady', '--seconds', seconds + 2]
    serving, coming = link.start(urdma_serves, argv, '--gid')
    try:
        wait_until(lambda: 'begins' in coming.output(), 20, 'the program does not begin', 0.1)
        time.sleep(0.3)
        away()
        time.sleep(seconds)
        back()
        output = coming.expect_success(60, 'client ')
        serving.expect_success(20, 'server ')
    finally:
        serving.kill()
        coming.kill()
    check(statuses(output, 'requester') == [status], f'it is not "{status}"\n{tail(output)}')
    longest = float(re.search(r'longest: ([\d.]+) s', output).group(1))
    check(longest > seconds / 2 or status == TIMEOUT, f'the link was not down: no WRITE took longer than {longest} s')


LOST = {
    # The responder has done it already: the answer is given again, and nothing is done twice.
    'lost-answers': (0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12),
    'lost-requests': (0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x08, 0x0A, 0x0B, 0x0C, 0x13, 0x14),
}


def lost_frames(link, name, direction):
    opcodes = LOST[name]
    for opcode in opcodes:
        link.relay.command('drop', direction, opcode, 2)
    before = link.relay.stats()[direction]['dropped']
    with link.captures.recording(f'{name}-{direction}') as frames:
        link.pair(True, ['interop_traffic', '--count', 300, '--depth', 16], '--gid')
    dropped = link.relay.stats()[direction]['dropped'] - before
    check(dropped > len(opcodes), f'only {dropped} frames were lost')
    for opcode in opcodes:
        link.relay.command('drop', direction, opcode, 0)
    if 0x00 in opcodes:
        whose = 'theirs' if direction == 'ab' else 'mine'
        check(NAK_SEQUENCE in frames[0].naks(whose), f'no PSN sequence error was answered: {frames[0].naks(whose)}')


def groups():
    group = Group('rxe/answers', rxe_link)
    for role, urdma_serves in ROLES.items():
        for scenario in EXPECTED:
            if urdma_serves and scenario in NOT_FROM_RXE:
                continue
            group.add(f'{role}/{scenario}', answer, urdma_serves, scenario)
    for name in LOST:
        group.add(f'{name}-of-urdma', lost_frames, name, 'ab')
        group.add(f'{name}-of-rxe', lost_frames, name, 'ba')
    for role, urdma_serves in ROLES.items():
        group.add(f'{role}/link-comes-back', down_and_up, urdma_serves, DOWN_FOR_A_WHILE_S, SUCCESS)
        group.add(f'{role}/link-stays-away', down_and_up, urdma_serves, DOWN_FOR_GOOD_S, TIMEOUT)
    group.add('tshark', lambda link: link.captures.judge_with_tshark())
    yield group
