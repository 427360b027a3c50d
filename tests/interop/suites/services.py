"""The other services and shared receive queues between urdma and rxe, in both roles, over a good link. The pingpongs
verify what they receive. rxe has no XRC.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from harness.process import check, tail
from harness.runner import Group
from harness.tables import pingpong_figures

from scenes.link import rxe_link
from suites.programs import ROLES, perftest

# Few at a time and not too large: a guest without KVM drops what it is too slow for, and nothing repairs that.
PINGPONGS = {  # name -> program, options, GID family, iterations
    'uc-ipv4': ('ibv_uc_pingpong', '-m 1024 -s 4096', 'ipv4', 50),
    'uc-ipv6': ('ibv_uc_pingpong', '-m 1024 -s 4096', 'ipv6', 50),
    'uc-mtu-256': ('ibv_uc_pingpong', '-m 256 -s 3001', 'ipv4', 50),
    'uc-mtu-4096': ('ibv_uc_pingpong', '-m 4096 -s 10003', 'ipv6', 50),
    'uc-size-1': ('ibv_uc_pingpong', '-m 1024 -s 1', 'ipv4', 50),
    'uc-size-64k': ('ibv_uc_pingpong', '-m 4096 -s 65536', 'ipv4', 10),
    'ud-ipv4': ('ibv_ud_pingpong', '-s 2048', 'ipv4', 50),
    'ud-ipv6': ('ibv_ud_pingpong', '-s 2048', 'ipv6', 50),
    'ud-size-1': ('ibv_ud_pingpong', '-s 1', 'ipv4', 50),
    'ud-size-4096': ('ibv_ud_pingpong', '-s 4096', 'ipv6', 50),
    'srq-ipv4': ('ibv_srq_pingpong', '-m 1024 -s 4096 -q 4', 'ipv4', 60),
    'srq-ipv6': ('ibv_srq_pingpong', '-m 4096 -s 10003 -q 4', 'ipv6', 60),
}
PERFTESTS = {  # name -> argv
    'ib_send_lat-uc': ('ib_send_lat', '-c', 'UC', '-n', 100),
    'ib_write_lat-uc': ('ib_write_lat', '-c', 'UC', '-n', 100),
    'ib_send_bw-uc': ('ib_send_bw', '-c', 'UC', '-n', 60, '-s', 1024),
    'ib_write_bw-uc': ('ib_write_bw', '-c', 'UC', '-n', 60, '-s', 1024),
    'ib_send_lat-ud': ('ib_send_lat', '-c', 'UD', '-n', 100),
    'ib_send_bw-ud': ('ib_send_bw', '-c', 'UD', '-n', 60, '-s', 1024),
    'ib_send_bw-srq': ('ib_send_bw', '--use-srq', '-n', 60, '-q', 4, '-s', 8192),
    'ib_send_lat-srq': ('ib_send_lat', '--use-srq', '-n', 100),
}


def pingpong(link, urdma_serves, program, options, family, iterations):
    with link.captures.recording(program):
        argv = [program, '-c', '-n', iterations, *options.split()]
        for output in link.pair(urdma_serves, argv, '-g', family):
            _, done = pingpong_figures(output)
            check(done >= iterations, f'{done} iterations, of {iterations}')
            check('invalid data' not in output, f'wrong data\n{tail(output)}')


def groups():
    group = Group('rxe/services', rxe_link)
    for role, urdma_serves in ROLES.items():
        for name, options in PINGPONGS.items():
            group.add(f'{role}/pingpong-{name}', pingpong, urdma_serves, *options)
        for name, argv in PERFTESTS.items():
            group.add(f'{role}/{name}', perftest, urdma_serves, *argv)
    group.add('tshark', lambda link: link.captures.judge_with_tshark())
    yield group
