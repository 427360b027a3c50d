"""The `urdma` command: what it does, and that bad input gets one sentence and a status that is not 0.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import pathlib
import time

from harness.node import Build, Node, one_node
from harness.process import Scene, check, tail, wait_until
from harness.runner import Group

COMMAND = Group('command')
RUNNING = Group('command-with-node', one_node)
TICKS_A_SECOND = 100


def refused(program, lines=1):
    """It ends soon, not with 0 and not by a signal, with a sentence for a person."""
    status, output = program.wait(20), program.output()
    check(status is not None, f'{program.line()} does not end\n{tail(output)}')
    check(status > 0, f'{program.line()} ends with {status}\n{tail(output)}')
    said = [line for line in output.splitlines() if line.strip()]
    check(1 <= len(said) <= lines, f'{program.line()} says {len(said)} lines, of {lines}\n{tail(output)}')
    return output


def refused_alone(*words, lines=1, needs=()):
    with Scene() as scene:
        node = Node(scene)
        output = refused(node.urdma(*words), lines)
        for word in needs:
            check(word in output, f'it does not name {word!r}: {output.strip()}')


# Name -> words of the command, and what its sentence must name.
BAD_INPUT = {
    'up-unknown-port-kind': (['up', '--port', 'carrier-pigeon:3'], ['carrier-pigeon']),
    'up-empty-port': (['up', '--port', ''], []),
    'up-port-without-interface': (['up', '--port', 'af_packet:'], []),
    'up-missing-interface': (['up', '--port', 'af_packet:nosuch0'], ['nosuch0']),
    'up-bad-address': (['up', '--port', 'vdev:net_null0,ip=300.1.2.3/24'], ['300.1.2.3']),
    'up-bad-vdev': (['up', '--port', 'vdev:net_nonsense0,ip=192.0.2.9/24'], []),
    'up-unknown-idle-mode': (['up', '--idle', 'sometimes'], ['sometimes']),
    'up-bad-cores': (['up', '--cores', '0,x'], []),
    'up-core-that-is-not-there': (['up', '--cores', '4095'], ['4095']),
    'up-bad-name': (['up', '--name', '../escape'], []),
    'run-without-a-node': (['run', '--', 'ibv_devices'], ['urdma up']),
    'run-nothing': (['run'], []),
    'status-without-a-node': (['status'], ['urdma up']),
    'status-json-without-a-node': (['status', '--json'], ['urdma up']),
    'down-without-a-node': (['down'], []),
    'unknown-subcommand': (['fly'], ['fly']),
}
for case_name, (case_words, case_needs) in BAD_INPUT.items():
    # Where the command line itself is wrong, a second line may point at --help.
    COMMAND.add(case_name, lambda w=case_words, n=case_needs: refused_alone(*w, lines=2, needs=n))


@COMMAND.case
def help_everywhere():
    with Scene() as scene:
        node = Node(scene)
        for words in ([], ['up'], ['down'], ['run'], ['status'], ['doctor']):
            output = node.urdma(*words, '--help').expect_success(10)
            check('sage' in output or 'SAGE' in output, f"urdma {' '.join(words)} --help shows no usage")


@COMMAND.case
def up_in_an_impossible_directory():
    with Scene() as scene:
        node = Node(scene)
        node.environment['URDMA_DIR'] = '/proc/no-directory'
        refused(node.urdma('up'), 1)


@COMMAND.case
def up_down_five_times():
    with Scene() as scene:
        node = Node(scene)
        for _ in range(5):
            node.up()
            node.run_to_end('ibv_devinfo')
            node.down()
        check(not list(scene.strays()), 'a process is left')


@COMMAND.case
def two_names_at_once():
    with Scene() as scene:
        node = Node(scene)
        for name in ('one', 'two'):
            node.urdma('up', '--name', name).expect_success(20)
        for name in ('one', 'two'):
            node.urdma('run', '--name', name, '--', 'ibv_devinfo').expect_success(20)
        for name in ('one', 'two'):
            node.urdma('down', '--name', name).expect_success(20)


def ticks(pid):
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return int(fields[11]) + int(fields[12])


@RUNNING.case
def an_idle_node_uses_no_cpu(place):
    pid = place.server.daemon()
    time.sleep(0.5)
    before = ticks(pid)
    time.sleep(3)
    used = ticks(pid) - before
    check(used <= 3 * TICKS_A_SECOND // 100, f'{used} ticks of 10 ms in 3 s')


@RUNNING.case
def up_when_it_already_runs(place):
    output = refused(place.server.urdma('up'))
    check('already' in output or 'runs' in output, f'it does not say so: {output.strip()}')


@RUNNING.case
def run_a_program_that_is_not_there(place):
    refused(place.client.run('/no/such/program'))


@RUNNING.case
def run_passes_the_exit_status(place):
    check(place.client.run('sh', '-c', 'exit 42').wait(10) == 42, 'not 42')
    check(place.client.run('sh', '-c', 'kill -TERM $$').wait(10) in (-15, 143), 'the signal is lost')


@RUNNING.case
def run_passes_arguments_unchanged(place):
    output = place.client.run_to_end('printf', '%s|', 'a b', '', '--name', '*')
    check(output == 'a b||--name|*|', f'it prints {output!r}')


@RUNNING.case
def run_keeps_what_a_person_has_set(place):
    output = place.client.run_to_end('sh', '-c', 'echo "$IBV_DRIVERS$RDMAV_DRIVERS"',
                                     environment={'IBV_DRIVERS': '/nowhere/libother'})
    check('/nowhere/libother' in output, f'IBV_DRIVERS is lost: {output.strip()}')


@RUNNING.case
def status_for_people(place):
    output = place.server.urdma('status').expect_success(10)
    check(len(output.splitlines()) >= 3, f'it says little\n{tail(output)}')


@RUNNING.case
def status_json_names_what_there_is(place):
    status = place.server.status()
    for key in ('devices', 'sessions'):
        check(key in status, f'no {key} in {sorted(status)}')
    watcher = place.client.run(Build.program('death_watch'), 'polling')
    wait_until(lambda: 'ready' in watcher.output() or watcher.has_ended(), 20, 'death_watch is not ready')
    sessions = place.server.status()['sessions']
    check(len(sessions) == 1, f'{len(sessions)} sessions, of 1: {sessions}')
    check(str(watcher.pid) in str(sessions) or 'death_watch' in str(sessions), f'who it is, is not said: {sessions}')
    watcher.kill()


@RUNNING.case
def doctor(place):
    output = place.server.urdma('doctor').expect_success(20)
    check(len(output.splitlines()) >= 3, f'it says little\n{tail(output)}')


def groups(_large):
    yield COMMAND
    yield RUNNING
