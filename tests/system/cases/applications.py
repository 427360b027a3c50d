"""Applications that people run over verbs and the connection manager, unmodified, as Debian ships them: rsockets, fio,
qperf, libfabric, UCX. docs/programs/ has the commands.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import pathlib
import re
import socket
import subprocess

from cases.rdma_cm import ipv6_gid, own_ipv4
from harness.node import check_reaped, one_node, two_nodes
from harness.pairs import connect
from harness.process import Failure, Skip, check, need, tail
from harness.runner import Group

# Shows sockets to a program where rsockets are: by the name that the linker finds everywhere in Debian.
RSOCKETS = {'LD_PRELOAD': '/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so'}
FILE_BYTES = 3_000_000

QPERF_VERIFIED = ('ver_rc_compare_swap', 'ver_rc_fetch_add')
QPERF_TESTS = ('rc_bi_bw', 'rc_lat', 'rc_rdma_read_bw', 'rc_rdma_write_poll_lat', 'rc_compare_swap_mr', 'rc_fetch_add_mr',
               *QPERF_VERIFIED)
QPERF_ATTEMPTS = 5
FABRICS = {'msg': 'verbs', 'rdm': 'verbs;ofi_rxm'}
UCX_EXAMPLE = pathlib.Path('/usr/share/doc/libucx-dev/examples/ucp_client_server.c')
# UCX wires up RC over UD, which it takes only if the list has it.
UCX_TRANSPORTS = {'rc_verbs': 'rc_verbs,ud_verbs:aux', 'ud_verbs': 'ud_verbs'}


def compiled(directory, compiler, source, *libraries):
    """A program in C that the project's build leaves alone."""
    need(compiler)
    program = directory / f'{source.stem}-{compiler}'
    done = subprocess.run([compiler, '-O1', '-w', '-o', program, source, *libraries], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f'{compiler} fails\n{tail(done.stderr)}')
    return program


def moved_bytes(node):
    engines = node.status()['engines']
    return sum(engine['bytes_copied_mapped'] + engine['bytes_copied_by_copier'] + 1024 * engine['frames_sent']
               for engine in engines)


def sent_and_received(place, size):
    """Where the client has a file of random bytes, and where the server puts what comes."""
    sent, received = f'{place.client.scratch}/sent', f'{place.server.scratch}/received'
    place.client.run_to_end('dd', 'if=/dev/urandom', f'of={sent}', f'bs={size}', 'count=1', 'iflag=fullblock')
    place.server.run_to_end('rm', '-f', received)
    return sent, received


def check_same(place, sent, received, size):
    sums = [node.run_to_end('sh', '-c', f'sha256sum < {file}; wc -c < {file}').split()
            for node, file in ((place.client, sent), (place.server, received))]
    check(sums[0] == sums[1] and sums[1][-1] == str(size), f'the file that arrives is another: {sums}')


# ---- rsockets ----

def preload_order(place):
    """librspreload asks the next library in line for the functions that it replaces: urdma's stand-in is to be that."""
    libraries = place.client.run_to_end('printenv', 'LD_PRELOAD', environment=RSOCKETS).strip().split(':')
    check(len(libraries) == 2 and 'librspreload' in libraries[0] and 'kstub' in libraries[1], f'it is {libraries}')


def rcopy(place, size=FILE_BYTES):
    (sent, received), port = sent_and_received(place, size), place.scene.ports.take()
    connect(place, ['rcopy', '-p', port], ['rcopy', sent, f'{place.host}:{received}', '-p', port], server_ends=False)
    check_same(place, sent, received, size)


def verified_stream(place, program, *options):
    port = place.scene.ports.take()
    common = [program, '-p', port, '-T', 'v', *options]
    connect(place, common, [*common, '-s', place.host])


def file_sent(place, client, size=FILE_BYTES):
    """To the traditional nc, by a client that waits in select() as it does."""
    need('nc.traditional', client.split()[0])
    (sent, received), port = sent_and_received(place, size), place.scene.ports.take()
    connect(place, ['sh', '-c', f'exec nc.traditional -l -p {port} > {received}'],
            ['sh', '-c', f'exec {client.format(host=place.host, port=port)} < {sent}'], environment=RSOCKETS)
    check_same(place, sent, received, size)


def file_sent_by_rdma(place, client):
    before = moved_bytes(place.client)
    file_sent(place, client)
    moved = moved_bytes(place.client) - before
    check(moved >= FILE_BYTES, f'{moved} bytes of {FILE_BYTES} went through the node')


def iperf(place):
    port = place.scene.ports.take()
    before = moved_bytes(place.client)
    output, _ = connect(place, ['iperf', '-s', '-P', 1, '-p', port],
                        ['iperf', '-c', place.host, '-p', port, '-n', '4M'], environment=RSOCKETS)
    check('4.00 MBytes' in output, tail(output))
    moved = moved_bytes(place.client) - before
    check(moved >= 4 << 20, f'{moved} bytes of 4 MiB went through the node')


def add_rsockets(group):
    group.add('preload-order', preload_order)
    group.add('rcopy', rcopy)
    group.add('rstream-blocking', verified_stream, 'rstream', '-T', 'b', '-S', 65536, '-C', 20, '-I', 2)
    group.add('riostream', verified_stream, 'riostream', '-S', 4096, '-C', 10, '-I', 10)
    group.add('nc', file_sent_by_rdma, 'nc.traditional -q 0 {host} {port}')
    group.add('socat', file_sent_by_rdma, 'socat -u STDIN TCP:{host}:{port}')
    group.add('iperf', iperf)


# ---- fio, qperf ----

def fio(place, verb):
    """fio's server takes what a client sends, and judges the checksums in it. What RDMA WRITE and READ move it does not
    look at. It asks for no RNR retries, so that all receives must be there before the first send."""
    port = place.scene.ports.take()
    common = ['fio', '--thread', '--ioengine=rdma', f'--port={port}', '--bs=64k', '--size=2m', '--verify_state_save=0']
    server = [*common, '--name=server', '--rw=read', '--iodepth=32']
    client = [*common, '--name=client', f'--hostname={place.host}', f'--verb={verb}', '--rw=write']
    if verb == 'send':
        server += ['--verb=recv', '--verify=crc32c']
        client += ['--verify=crc32c', '--do_verify=0']
    client_output, server_output = connect(place, server, client)
    for output in client_output, server_output:
        check('err= 0' in output, tail(output))
    check('issued rwts: total=0,32,0,0' in client_output, f'not 32 blocks\n{tail(client_output)}')
    if verb == 'send':
        check('issued rwts: total=32,0,0,0' in server_output, f'not 32 blocks\n{tail(server_output)}')


def run_qperf(place, test):
    port = place.scene.ports.take()
    return connect(place, ['qperf', '-lp', port], ['qperf', '-lp', port, '-cm', 1, '-t', 1, place.host, test],
                   tcp_port=port, server_ends=False)[0]


def qperf(place, test):
    """Connected by the connection manager: without it qperf knows LIDs alone, which RoCE does not have. Its server tells
    the client a port, and listens on it then: a client that is quick is refused, and tries again."""
    for attempt in range(QPERF_ATTEMPTS):
        try:
            output = run_qperf(place, test)
            break
        except Failure as failure:
            if 'Event rejected' not in str(failure) or attempt + 1 == QPERF_ATTEMPTS:
                raise
    figure = re.search(r'(?:bw|latency|msg_rate)\s+=\s+([\d.]+) ', output)
    check(figure and float(figure.group(1)) > 0, f'no figure\n{tail(output)}')


def add_tools(group, qperf_tests=QPERF_TESTS):
    for verb in 'write', 'read', 'send':
        group.add(f'fio-{verb}', fio, verb)
    for test in qperf_tests:
        group.add(f'qperf-{test}', qperf, test)


# ---- libfabric, UCX ----

def fi_info(place):
    need('fi_info')
    output = place.client.run_to_end('fi_info', '-p', 'verbs')
    for kind in 'FI_EP_MSG', 'FI_EP_DGRAM', 'FI_EP_RDM':
        check(f'type: {kind}' in output, f'no endpoints of {kind}\n{tail(output)}')


def need_localhost():
    try:
        socket.getaddrinfo('localhost', None)
    except OSError as error:
        raise Skip(f'the name localhost, which fi_pingpong binds, is none here (/etc/hosts): {error}') from error


def fi_pingpong(place, endpoint, count=20, environment=None):
    """-c compares what arrives with what was sent. The server binds 127.0.0.1, which is no device's, and tells its client
    an address of the first device."""
    need('fi_pingpong')
    need_localhost()
    port = place.scene.ports.take()
    common = ['fi_pingpong', '-p', FABRICS[endpoint], '-e', endpoint, '-c', '-I', count]
    output, _ = connect(place, [*common, '-B', port], [*common, '-P', port, place.host], tcp_port=port,
                        environment=environment)
    rows = re.findall(rf'^\S+\s+{count}\s+={count}\s', output, re.MULTILINE)
    check(len(rows) >= 5, f'{len(rows)} sizes\n{tail(output)}')


def ucx_over(node, transport, is_ipv6):
    """The command in front of a program that is to use a transport, and GIDs of IPv6 where they are asked for."""
    device = node.run_to_end('ls', '/sys/class/infiniband').strip()
    settings = [f'UCX_TLS={UCX_TRANSPORTS[transport]}', f'UCX_NET_DEVICES={device}:1']
    return ['env', *settings, *([f'UCX_IB_GID_INDEX={ipv6_gid(node)[0]}'] if is_ipv6 else [])]


def ucx_perftest(place, transport, test, size, is_ipv6=False):
    need('ucx_perftest')
    port = place.scene.ports.take()
    server, client = ([*ucx_over(node, transport, is_ipv6), 'ucx_perftest', '-p', port] for node in (place.server, place.client))
    output, _ = connect(place, server, [*client, '-t', test, '-n', 100, '-s', size, place.host], tcp_port=port)
    check(re.search(r'^Final:\s+100 ', output, re.MULTILINE), f'no figures\n{tail(output)}')


def ucx_example(directory):
    if not UCX_EXAMPLE.exists():
        raise Skip('libucx-dev is not installed; run scripts/setup')
    return compiled(directory, 'gcc', UCX_EXAMPLE, '-lucp', '-lucs')


def ucx_client_server(place, program=None, settings=None):
    """UCX's own example, compiled here or before: its connections are made by the connection manager."""
    host = own_ipv4(place.server)
    common = [program or ucx_example(place.scene.directory), '-p', place.scene.ports.take(), '-c', 'tag', '-s', 10000]
    output, _ = connect(place, common, [*common, '-a', host], server_ends=False,
                        environment={'UCX_TLS': 'rc_verbs', 'UCX_SOCKADDR_TLS_PRIORITY': 'rdmacm', **(settings or {})})
    check('ABCDEFGHIJ' in output, tail(output))


def add_libraries(group):
    group.add('fi_info', fi_info)
    for endpoint in FABRICS:
        group.add(f'fi_pingpong-{endpoint}', fi_pingpong, endpoint)
    group.add('ucx_client_server', ucx_client_server)
    for transport in UCX_TRANSPORTS:
        group.add(f'ucx_perftest-{transport}-lat', ucx_perftest, transport, 'tag_lat', 1024)
        group.add(f'ucx_perftest-{transport}-bw', ucx_perftest, transport, 'tag_bw', 65536)


def add_all(group, qperf_tests=QPERF_TESTS):
    add_rsockets(group)
    add_tools(group, qperf_tests)
    add_libraries(group)
    group.add('reaped', lambda place: [check_reaped(node) for node in {place.server, place.client}])


def groups(_large):
    group = Group('one-node/applications', one_node)
    add_all(group)
    yield group
    group = Group('forced-wire/applications', lambda: one_node('--force-wire'))
    add_all(group, QPERF_VERIFIED)
    yield group
    group = Group('veth-1500/applications', lambda: two_nodes(1500))
    add_all(group, QPERF_VERIFIED)
    yield group
