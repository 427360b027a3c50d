"""What crossed the wire, recorded by the relay, and its judges: frame_check, and tshark where it is installed.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import contextlib
import pathlib
import shutil
import subprocess

from harness.process import Failure, Skip, tail

from .relay import program

PCAP_HEADER_BYTES = 24
TSHARK_LIMIT_S = 300


class Frames:
    """How many frames of each kind there were: counts[(whose, opcode, syndrome, solicited)]."""

    def __init__(self, text):
        self.counts = {}
        for line in text.splitlines():
            words = line.split()
            if len(words) == 5 and words[0] in ('mine', 'theirs'):
                key = (words[0], int(words[1], 16), int(words[2], 16), words[3] == '1')
                self.counts[key] = int(words[4])

    def count(self, whose, opcode, syndrome=None, solicited=None):
        return sum(number for (w, o, y, s), number in self.counts.items()
                   if w == whose and o == opcode and syndrome in (None, y) and solicited in (None, s))

    def naks(self, whose):
        """The syndromes of this side's ACK packets that are RNR NAKs (0x20 to 0x3F) or NAKs (0x60 to 0x7F)."""
        return sorted({y for (w, o, y, _) in self.counts if w == whose and o == 0x11 and y >= 0x20})


class Captures:
    """The captures of one scene. All of them together are kept for tshark, and in `keep` where that is given."""

    def __init__(self, scene, relay, mac, keep=None):
        self.relay = relay
        self.mac = mac
        self.one = scene.directory / 'one.pcap'
        self.all = scene.directory / 'all.pcap'
        self.keep = pathlib.Path(keep) if keep else None
        self.count = 0

    @contextlib.contextmanager
    def recording(self, name, traffic_class=0):
        """Records what crosses the relay within; yields a list to which Frames is added at the end. Whatever our node sent
        that is not as it must be is a failure."""
        found = []
        self.relay.command('record', self.one)
        try:
            yield found
        finally:
            self.relay.command('record', 'off')
            self.append(name)
        done = subprocess.run([program('frame_check'), self.one, self.mac, str(traffic_class)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f'the frames are not as they must be\n{tail(done.stdout + done.stderr)}')
        found.append(Frames(done.stdout))

    def append(self, name):
        with open(self.one, 'rb') as source, open(self.all, 'ab') as target:
            if target.tell() > 0:
                source.seek(PCAP_HEADER_BYTES)
            shutil.copyfileobj(source, target)
        if self.keep:
            self.count += 1
            shutil.copy(self.one, self.keep / f'{self.count:03}-{name}.pcap')

    def judge_with_tshark(self):
        if shutil.which('tshark') is None:
            raise Skip('tshark is not installed')
        # Of ours: what is malformed, and what is not recognised as InfiniBand at all.
        condition = f'eth.src == {self.mac} and (_ws.malformed or not infiniband)'
        done = subprocess.run(['tshark', '-n', '-r', self.all, '-Y', condition, '-T', 'fields', '-e', 'frame.number',
                               '-e', 'frame.protocols'], capture_output=True, text=True, timeout=TSHARK_LIMIT_S)
        if done.returncode != 0:
            raise Failure(f'tshark ends with {done.returncode}\n{tail(done.stderr)}')
        bad = [line for line in done.stdout.splitlines() if not is_guess_at_payload(line)]
        if bad:
            names = '\n'.join(bad)
            raise Failure(f'tshark does not like these frames\n{tail(names)}')


def is_guess_at_payload(line):
    """Whether tshark stumbled over what it took the payload of a good packet for: random bytes look like many a thing."""
    behind = line.partition('infiniband')[2].split(':')
    return bool(set(behind) - {'', 'data', '_ws.malformed'})
