"""A running guest. It offers what a node of the system tests does, `run`, so that a test can have either at either end.

One thread. The guest is spoken to through a port of its own, which stays when its network does not.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import re
import shlex
import socket
import time

from harness.process import Failure, tail

BOOT_LIMIT_S = 90  # without KVM, on a busy machine
ANSWER_LIMIT_S = 20
POLL_PAUSE_S = 0.05


class GuestProgram:
    """A program in the guest; the same methods as harness.process.Program."""

    def __init__(self, guest, number, argv):
        self.guest = guest
        self.number = number
        self.argv = [str(word) for word in argv]
        job = f'/tmp/jobs/{number}'
        # A session of its own, so that all of it can be killed.
        script = f"{shlex.join(self.argv)} >{job}.out 2>&1; echo $? >{job}.rc"
        self.pid = int(guest.shell(f'setsid sh -c {shlex.quote(script)} </dev/null >/dev/null 2>&1 & echo $!').split()[-1])
        self.status = None

    def output(self):
        return self.guest.shell(f'cat /tmp/jobs/{self.number}.out 2>/dev/null; true')

    def has_ended(self):
        if self.status is None:
            text = self.guest.shell(f'cat /tmp/jobs/{self.number}.rc 2>/dev/null; true').strip()
            self.status = int(text) if text else None
        return self.status is not None

    def wait(self, limit_s):
        limit = time.monotonic() + limit_s
        while not self.has_ended():
            if time.monotonic() > limit:
                return None
            time.sleep(POLL_PAUSE_S)
        return self.status

    def kill(self):
        if not self.has_ended():
            self.guest.shell(f'kill -9 -{self.pid}; true')

    def expect_success(self, limit_s, who=''):
        status = self.wait(limit_s)
        if status is None:
            self.kill()
            raise Failure(f'{who}{self.line()} did not end within {limit_s} s\n{tail(self.output())}')
        if status != 0:
            raise Failure(f'{who}{self.line()} ended with {status}\n{tail(self.output())}')
        return self.output()

    def line(self):
        return 'guest: ' + ' '.join(self.argv)


class Guest:
    """Boots on `tap`, which is in the namespace of `prefix`. The scene ends it."""

    def __init__(self, scene, image, tap, addresses, mtu, prefix=()):
        kernel, initrd = image
        self.count = 0
        self.scratch = '/tmp'  # where programs may leave files
        self.console = scene.directory / 'console.txt'
        control = scene.directory / 'agent'
        append = (f'console=ttyS0 quiet panic=-1 mitigations=off guest_mtu={mtu} guest_ipv4={addresses[0]} '
                  f'guest_ipv6={addresses[1]} ')
        self.qemu = scene.start(
            ['qemu-system-x86_64', '-M', 'q35', '-accel', 'tcg', '-cpu', 'max', '-m', '512', '-display', 'none', '-monitor',
             'none', '-no-reboot', '-kernel', kernel, '-initrd', initrd, '-append', append,
             '-netdev', f'tap,id=n0,ifname={tap},script=no,downscript=no',
             '-device', f'virtio-net-pci,netdev=n0,host_mtu={mtu},mac=52:54:00:00:00:02',
             '-serial', f'file:{self.console}', '-device', 'virtio-serial-pci', '-device', 'virtserialport,chardev=agent',
             '-chardev', f'socket,id=agent,path={control},server=on,wait=on'],
            {'URDMA_DIR': f'{scene.directory}/guest'}, prefix)
        self.agent = self.connect(control)
        self.pending = b''
        self.read_answer(BOOT_LIMIT_S)

    def connect(self, path):
        limit = time.monotonic() + ANSWER_LIMIT_S
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(path))
                return connection
            except OSError as error:
                connection.close()
                if self.qemu.has_ended() or time.monotonic() > limit:
                    raise Failure(f'qemu does not run: {error}\n{tail(self.qemu.output())}') from error
                time.sleep(POLL_PAUSE_S)

    def read_answer(self, limit_s=ANSWER_LIMIT_S):
        """What stands in front of the next @@END line, and its status."""
        limit = time.monotonic() + limit_s
        while True:
            found = re.search(rb'@@END (\d+)\n', self.pending)
            if found:
                text, self.pending = self.pending[:found.start()], self.pending[found.end():]
                return text.decode(errors='replace'), int(found.group(1))
            self.agent.settimeout(max(0.01, limit - time.monotonic()))
            try:
                received = self.agent.recv(65536)
            except TimeoutError:
                received = b''
            if not received:
                console = self.console.read_text(errors='replace') if self.console.exists() else ''
                raise Failure(f'the guest does not answer within {limit_s} s\n{tail(console, 100)}')
            self.pending += received

    def shell(self, line):
        """Runs a line of shell; returns what it prints."""
        self.agent.sendall(line.encode() + b'\n')
        text, status = self.read_answer()
        if status != 0:
            raise Failure(f'guest: {line} ended with {status}\n{tail(text)}')
        return text

    def listeners(self):
        """How many listen in the connection manager."""
        return self.shell('rdma resource show cm_id; true').count('LISTEN')

    def queue_pairs(self):
        """How many programs have."""
        return self.shell('rdma resource show qp; true').count(' pid ')

    def run(self, *argv, environment=None):
        self.count += 1
        if environment:
            argv = ('env', *(f'{name}={value}' for name, value in environment.items()), *argv)
        return GuestProgram(self, self.count, argv)

    def run_to_end(self, *argv, limit_s=30):
        return self.run(*argv).expect_success(limit_s)

    def listens(self, _program, port):
        return self.shell(f"grep -c ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6 | grep -v ':0$'; true").strip() != ''
