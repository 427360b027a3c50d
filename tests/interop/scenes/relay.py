"""The relay between two interfaces: see tests/interop/programs/relay.cpp for its commands.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import subprocess

from harness.node import Build
from harness.process import Failure


def program(name):
    return Build.directory / 'tests' / 'interop' / 'programs' / name


class Relay:
    """A relay in a namespace. `a` is where urdma's node is, so that "ab" is what it sends. The scene's end ends it."""

    def __init__(self, scene, prefix, seed, a, b):
        self.prefix = prefix
        words = [*prefix, str(program('relay')), str(seed), a, b]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        scene.undo.callback(self.end)

    def end(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def command(self, *words):
        try:
            self.process.stdin.write(' '.join(str(word) for word in words) + '\n')
            self.process.stdin.flush()
        except OSError as error:
            raise Failure(f'the relay is gone: {self.process.stdout.read()}') from error
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise Failure(f'the relay ended with {self.process.wait(5)}, asked for {words}')
        if answer.startswith(('error', 'relay:')):
            raise Failure(f'the relay says: {answer}')
        return answer

    def impair(self, direction='both', loss=0.0, duplicate=0.0, corrupt=0.0, reorder=0.0):
        self.command('impair', direction, loss, duplicate, corrupt, reorder)

    def stats(self):
        """{'ab': {'seen': 1, ...}, 'ba': {...}}"""
        words, result = self.command('stats').split(), {}
        for word in words:
            if '=' in word:
                name, value = word.split('=')
                result[direction][name] = int(value)
            else:
                direction = word
                result[direction] = {}
        return result
