"""Applications over verbs and the connection manager, unmodified, between urdma and rxe in both roles: the cases of the
system tests, with little data. Every frame is recorded and judged.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from cases import applications
from harness.runner import Group

from scenes.link import rxe_link
from suites.connections import system_case
from suites.programs import ROLES

FILE_BYTES = 200_000
# libfabric makes completion queues for so many peers. Those for 256, as it does without this, are longer than rxe's may be.
FEW_PEERS = {'FI_UNIVERSE_SIZE': '4'}
UCX_TRAFFIC_CLASS = 106  # which it asks for on RoCEv2
CASES = (  # name, case of the system tests, options
    ('rcopy', applications.rcopy, FILE_BYTES),
    ('rstream', applications.verified_stream, 'rstream', '-T', 'b', '-S', 16384, '-C', 5, '-I', 2),
    ('riostream', applications.verified_stream, 'riostream', '-S', 4096, '-C', 5, '-I', 5),
    ('nc', applications.file_sent, 'nc.traditional -q 0 {host} {port}', FILE_BYTES),
    *((f'fio-{verb}', applications.fio, verb) for verb in ('write', 'read', 'send')),
    *((f'qperf-{test}', applications.qperf, test) for test in applications.QPERF_VERIFIED),
    *((f'fi_pingpong-{endpoint}', applications.fi_pingpong, endpoint, 4, FEW_PEERS) for endpoint in applications.FABRICS),
)


def ucx_perftest(link, urdma_serves, transport):
    """Over IPv6: UCX takes a GRH of IPv4 from devices only that tell the kind of network header, which rxe does not."""
    with link.captures.recording(transport, UCX_TRAFFIC_CLASS):
        applications.ucx_perftest(link.place(urdma_serves), transport, 'tag_lat', 1024, True)


def ucx_client_server(link, urdma_serves):
    """UCX's server may close its queue pair while the client's last WRITE is under way, and rxe takes the 7 retries that
    UCX asks for as retries without end."""
    with link.captures.recording('ucx_client_server', UCX_TRAFFIC_CLASS):
        applications.ucx_client_server(link.place(urdma_serves), link.ucx_example, {'UCX_RC_VERBS_RETRY_COUNT': '3'})


def groups():
    group = Group('rxe/applications', rxe_link)
    for role, urdma_serves in ROLES.items():
        for name, case, *options in CASES:
            group.add(f'{role}/{name}', system_case, urdma_serves, case, *options)
        for transport in applications.UCX_TRANSPORTS:
            group.add(f'{role}/ucx_perftest-{transport}', ucx_perftest, urdma_serves, transport)
        group.add(f'{role}/ucx_client_server', ucx_client_server, urdma_serves)
    group.add('tshark', lambda link: link.captures.judge_with_tshark())
    yield group
