"""A server and its client: the client comes when the server listens, and both are to end well.

For nodes of either kind (harness.node.Node, and the interop tests' guests). One thread.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

from .process import Failure, need, tail, wait_until

LISTENING_LIMIT_S = 20
SERVER_ENDS_LIMIT_S = 10  # after its client
PAIR_LIMIT_S = 60


def start_server(node, argv, is_ready, environment=None):
    """Starts a server, and waits until `is_ready(program)`."""
    server = node.run(*argv, environment=environment)
    wait_until(lambda: server.has_ended() or is_ready(server), LISTENING_LIMIT_S, f'{server.line()} does not listen', 0.05)
    if server.has_ended():
        raise Failure(f'the server {server.line()} ended with {server.wait(0)} before its client came\n{tail(server.output())}')
    return server


def on_tcp(node, port):
    """Ready, once it listens on a TCP port."""
    return lambda server: node.listens(server, port)


def by_address(node):
    """Ready, once one more than now listens in the node's connection manager."""
    before = node.listeners()
    return lambda _: node.listeners() > before


def finish(server, client, limit_s=PAIR_LIMIT_S, server_ends=True):
    """Waits for both ends; returns the client's and the server's output. A failure shows what each has said. A server that
    does not end by itself is killed."""
    try:
        client_output = client.expect_success(limit_s, 'client ')
        return client_output, server.expect_success(SERVER_ENDS_LIMIT_S, 'server ') if server_ends else server.output()
    except Failure as failure:
        raise Failure(f'{failure}\n     the server said:\n{tail(server.output())}') from failure
    finally:
        server.kill()
        client.kill()


def connect(place, server_argv, client_argv, tcp_port=None, environment=None, server_ends=True):
    """A pair that meets by IP address, or, where `tcp_port` is given, on that port; returns what `finish` does."""
    need(server_argv[0], client_argv[0])
    is_ready = by_address(place.server) if tcp_port is None else on_tcp(place.server, tcp_port)
    server = start_server(place.server, server_argv, is_ready, environment)
    return finish(server, place.client.run(*client_argv, environment=environment), server_ends=server_ends)
