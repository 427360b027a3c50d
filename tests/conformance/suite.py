"""The tests of rdma-core's pyverbs suite: where Debian puts them, which are asked for, and how one process runs them.

Run as a program, below `urdma run`, it is that process: `suite.py SCRATCH RESULTS SEED TEST...`, SCRATCH being what
unpack() made. It appends a line of JSON to RESULTS before and after each test, and ends at the first that fails,
since such a test leaves objects behind that the next ones would meet. The suite draws sizes and flags at random: from
SEED and the test's name, so that a failure comes again. Python's standard library and pyverbs.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import gzip
import importlib
import json
import os
import pathlib
import random
import re
import shutil
import sys
import unittest

SOURCE = pathlib.Path('/usr/share/doc/rdma-core/tests')
# Of other vendors' devices, or of GPUs: not loaded at all.
FOREIGN = re.compile(r'^test_(mlx5|efa|cuda)')
# What is not asked of this device, by name, and why.
NOT_ASKED = {
    r'^test_mr\.DmaBuf': "Debian's pyverbs is built without dma-buf allocation",
    r'^test_flow\.|^test_rss_traffic\.|raw_qp_(no_attr|with_attr|ex_no_attr|ex_with_attr)$|\.test_query_raw_qp$':
        'raw packets and flow steering belong to network interfaces, not to this device',
    r'^test_tag_matching\.': 'tag matching is not there',
}


def unpack(scratch):
    """Copies the suite to SCRATCH/tests, gunzipped: the tests themselves stay as they are."""
    target = scratch / 'tests'
    target.mkdir()
    for file in sorted(SOURCE.iterdir()):
        if FOREIGN.match(file.name):
            continue
        if file.suffix == '.gz':
            (target / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copy(file, target)
    return target


def names_in(target):
    """Every test as `module.Class.method`, in the suite's order, read from its text: listing needs no device."""
    names = []
    for file in sorted(target.glob('test_*.py')):
        suite_class = None
        for line in file.read_text().splitlines():
            if found := re.match(r'class (\w+)', line):
                suite_class = found.group(1)
            elif found := re.match(r'    def (test_\w+)', line):
                names.append(f'{file.stem}.{suite_class}.{found.group(1)}')
    return names


def not_asked(name):
    return next((why for pattern, why in NOT_ASKED.items() if re.search(pattern, name)), None)


class Reporter(unittest.TestResult):
    """Writes what becomes of each test, one line a time, so that a hang or a crash has a name."""

    def __init__(self, results):
        super().__init__()
        self.results = results
        self.verdict = None

    def write(self, **values):
        os.write(self.results, (json.dumps(values) + '\n').encode())

    def startTest(self, test):
        super().startTest(test)
        self.verdict = ('PASS', '')

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.verdict = ('SKIP', reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.verdict = ('FAIL', self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.verdict = ('FAIL', self.errors[-1][1])


def load(scratch):
    """Imports the suite as its own run_tests.py does; returns the modules by name."""
    sys.path[:0] = [str(scratch), str(scratch / 'tests')]
    sys.argv = [str(scratch / 'tests' / 'run_tests.py')]
    importlib.import_module('args_parser').parser.parse_args()
    tests = importlib.import_module('tests')
    return {module.__name__.rsplit('.', 1)[-1]: module for module in tests.__test_modules__}


def main():
    scratch, results = pathlib.Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
    seed, names = sys.argv[3], sys.argv[4:]
    modules = load(scratch)
    for name in names:
        module, suite_class, method = name.split('.')
        reporter = Reporter(results)
        reporter.write(begun=name)
        random.seed(f'{seed} {name}')
        getattr(modules[module], suite_class)(method).run(reporter)
        word, reason = reporter.verdict or ('FAIL', 'the test did not start')
        reporter.write(ended=name, word=word, reason=reason)
        if word == 'FAIL':
            return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
