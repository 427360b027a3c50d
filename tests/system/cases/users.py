"""Ordinary users: a node of one's own without any privilege, and other people's nodes.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import os
import shutil

from cases.pingpong import pingpong
from cases.perftest import perftest
from cases.programs import run_case
from harness.node import Build, Node, Place, check_reaped, require_root
from harness.process import Scene, Skip, check, tail
from harness.runner import Group

NOBODY = 65534
AS_NOBODY = ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups']


@contextlib.contextmanager
def copied_build(scene):
    """A copy of the stage and the programs in the scene's directory: the stage must work anywhere, and the
    build directory may be out of the user's reach."""
    before = Build.directory
    copy = scene.directory / 'copy'
    shutil.copytree(before / 'stage', copy / 'stage')
    shutil.copytree(before / 'tests' / 'system' / 'programs', copy / 'tests' / 'system' / 'programs',
                    ignore=shutil.ignore_patterns('*.p', '*.a'))
    Build.directory = copy
    try:
        yield
    finally:
        Build.directory = before


@contextlib.contextmanager
def node_of_an_ordinary_user():
    """Without capabilities, with 64 KiB to lock, as `nobody`; where the tests are not root, as oneself."""
    with Scene() as scene, copied_build(scene):
        prefix = ['prlimit', '--memlock=65536:65536']
        if os.geteuid() == 0:
            if shutil.which('setpriv') is None:
                raise Skip('setpriv of util-linux is not there')
            os.chown(scene.directory, NOBODY, NOBODY)
            prefix += [*AS_NOBODY, '--bounding-set=-all', '--no-new-privs']
        node = Node(scene, prefix=prefix)
        node.up()
        yield Place(scene, node, node, '127.0.0.1')
        node.down()


ORDINARY = Group('ordinary-user', node_of_an_ordinary_user)


@ORDINARY.case
def ibv_devices(place):
    check(len(place.client.run_to_end('ibv_devices').strip().splitlines()) == 3, 'it does not list one device')


@ORDINARY.case
def ibv_devinfo(place):
    place.client.run_to_end('ibv_devinfo', '-v')


@ORDINARY.case
def the_node_is_private(place):
    mode = (place.server.state / 'default').stat().st_mode & 0o777
    check(mode & 0o007 == 0, f'others may look into its directory: mode {mode:o}')


ORDINARY.add('pingpong', pingpong, '-c')
ORDINARY.add('pingpong-events', pingpong, '-c', '-e')
for tool in ('ib_write_lat', 'ib_send_bw', 'ib_read_bw', 'ib_atomic_bw'):
    ORDINARY.add(tool, perftest, tool, [], 1)
for wanted in ('Memlock_64KibIsEnough', 'Private_ManyRounds', 'Fork_ChildWritesItsOwnCopy',
               'Threads_WritesDuringRegistrationAreKept', 'Contents_SurviveDeregistration', 'Stack_Memory'):
    ORDINARY.add(wanted, run_case, 'memory_test', f'MemoryTest.{wanted}')
ORDINARY.add('reaped', lambda place: check_reaped(place.server))

STRANGERS = Group('strangers')


@STRANGERS.case
def roots_node_is_not_for_everybody():
    """A user whom root's node is not for gets a sentence and no device."""
    require_root()
    with Scene() as scene, copied_build(scene):
        node = Node(scene).up()
        stranger = Node(scene, prefix=AS_NOBODY)
        program = stranger.run('ibv_devinfo')
        status, output = program.wait(10), program.output()
        check(status not in (0, None), f'it ends with {status}\n{tail(output)}')
        check(len(output.strip().splitlines()) == 1, f'not one sentence\n{tail(output)}')
        node.down()


@STRANGERS.case
def a_directory_of_somebody_else_is_refused():
    """Where no directory is named, one that another user has prepared is not trusted."""
    require_root()
    with Scene() as scene, copied_build(scene):
        node = Node(scene, prefix=['env', '-u', 'URDMA_DIR', *AS_NOBODY])
        node.environment['XDG_RUNTIME_DIR'] = str(scene.directory)
        (scene.directory / 'urdma').mkdir(mode=0o777)
        program = node.urdma('up')
        status, output = program.wait(20), program.output()
        check(status not in (0, None), f'it ends with {status}\n{tail(output)}')
        check(len(output.strip().splitlines()) == 1, f'not one sentence\n{tail(output)}')


def groups(_large):
    yield ORDINARY
    yield STRANGERS
