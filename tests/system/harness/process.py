"""Programs that a test starts: output into files, a time limit each, and nothing left behind.

Everything is started through Scene, which belongs to one group of cases, is used by one thread, and ends
what it started by process id. Its directory is the node's URDMA_DIR and scratch space as well.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time


class Failure(Exception):
    """What a test has found: a sentence, with the output that shows it."""


class Skip(Exception):
    """Why a test cannot run here."""


def check(condition, sentence):
    if not condition:
        raise Failure(sentence)


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise Skip(f'{program} is not installed; run scripts/setup')


def wait_until(condition, limit_s, sentence, pause_s=0.02):
    """Waits until `condition()` is true; returns the seconds that took."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > limit_s:
            raise Failure(f'{sentence} within {limit_s} s')
        time.sleep(pause_s)
    return time.monotonic() - started


def patience():
    """How much longer programs may take that the test only expects to end: 1, but where the machine has much to do
    beside the tests, which themselves keep some two programs a core running. Two that poll in turn, each waiting for
    the other to be scheduled, slow down with every program that competes with them."""
    return max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


class Program:
    """A running program, the leader of a process group of its own."""

    def __init__(self, argv, environment, output, stdin=None):
        self.argv = [str(word) for word in argv]
        self.output_file = output
        with open(output, 'wb') as file:
            self.process = subprocess.Popen(self.argv, stdout=file, stderr=subprocess.STDOUT, env=environment,
                                            stdin=stdin or subprocess.DEVNULL, start_new_session=True)
        self.pid = self.process.pid

    def output(self):
        return self.output_file.read_text(errors='replace')

    def has_ended(self):
        return self.process.poll() is not None

    def wait(self, limit_s):
        """The exit status; None if it does not end in time."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def expect_success(self, limit_s, who=''):
        started = time.monotonic()
        status = self.wait(limit_s)
        while status is None and time.monotonic() - started < limit_s * patience():
            status = self.wait(1)
        if status is None:
            self.kill()
            self.wait(5)
            seconds = time.monotonic() - started
            raise Failure(f'{who}{self.line()} did not end within {seconds:.0f} s\n{tail(self.output())}')
        if status != 0:
            raise Failure(f'{who}{self.line()} ended with {status}\n{tail(self.output())}')
        return self.output()

    def line(self):
        return ' '.join(self.argv)


def tail(text, lines=25):
    return '\n'.join('     | ' + line for line in text.splitlines()[-lines:])


def listens(pid, port):
    """Whether somebody in the network namespace of `pid` listens on a TCP port."""
    pattern = f':{port:04X} '
    for table in ('tcp', 'tcp6'):
        with contextlib.suppress(OSError):
            for row in pathlib.Path(f'/proc/{pid}/net/{table}').read_text().splitlines()[1:]:
                fields = row.split()
                if fields[1].endswith(pattern.strip()) and fields[3] == '0A':
                    return True
    return False


class Ports:
    """TCP ports for the programs' own handshakes: each is given once a run, and is free now."""

    def __init__(self):
        self.next = 20000 + os.getpid() % 300 * 40

    def take(self):
        while True:
            self.next = self.next + 1 if self.next < 32000 else 20000
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError):
                    probe.bind(('0.0.0.0', self.next))
                    return self.next


class Scene:
    """A directory, the programs started in it, and what undoes them. Use as a context manager."""

    ports = Ports()

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix='urdma-system-'))
        self.directory.chmod(0o755)
        self.programs = []
        self.undo = contextlib.ExitStack()
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end_programs()
        self.undo.close()
        self.end_strays()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, argv, environment=None, prefix=()):
        """Starts a program in the background. `prefix` goes in front: `ip netns exec NAME`, `setpriv ...`."""
        self.count += 1
        output = self.directory / f'output-{self.count}.txt'
        program = Program([*prefix, *argv], {**os.environ, **(environment or {})}, output)
        self.programs.append(program)
        return program

    def end_programs(self):
        for program in self.programs:
            program.kill()
        for program in self.programs:
            program.wait(5)
        self.programs.clear()

    def strays(self):
        """Processes, daemons too, whose environment names this scene's directory."""
        mine = f'{self.directory}/'.encode()
        for entry in pathlib.Path('/proc').iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mine in (entry / 'environ').read_bytes():
                        yield int(entry.name)

    def end_strays(self):
        for pid in list(self.strays()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(Failure):
            wait_until(lambda: not list(self.strays()), 5, 'stray processes end')
