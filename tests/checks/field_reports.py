"""docs/field-reports.md names tests that are there.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import re
import subprocess
import sys

DOCUMENT = 'docs/field-reports.md'
REPORTS = 28
ROW = re.compile(r'^\| (\d+) \| (.*) \| (.*) \|$', re.MULTILINE)
GTEST = re.compile(r'^TEST(?:_F|_P)?\((\w+),\s*(\w+)', re.MULTILINE)
LISTS = {'system': 'tests/system/system.py', 'interop': 'tests/interop/interop.py'}


def gtest_cases(root, paths):
    for path in paths:
        if path.suffix == '.cpp' and path.parts[0] == 'tests':
            yield from (f'{suite}.{case}' for suite, case in GTEST.findall((root / path).read_text()))


def listed_cases(root):
    for suite, script in LISTS.items():
        if (root / script).exists():
            shown = subprocess.run([sys.executable, root / script, '--list'], capture_output=True, text=True, check=True)
            yield from (f'{suite}/{line}' for line in shown.stdout.split())


def violations(root, paths):
    """Each behaviour of docs/field-reports.md has a row, and the tests that a row names are there."""
    rows = {int(number): tests for number, _, tests in ROW.findall((root / DOCUMENT).read_text())}
    for number in range(1, REPORTS + 1):
        if number not in rows:
            yield DOCUMENT, f'no row {number}'
    known = {*gtest_cases(root, paths), *listed_cases(root)}
    for number, tests in rows.items():
        names = re.findall(r'`([\w/.-]+)`', tests)
        if not names and 'not yet' not in tests:
            yield f'{DOCUMENT}:{number}', 'names no test'
        for name in names:
            if name not in known and '.' + name not in known:
                yield f'{DOCUMENT}:{number}', f'there is no test {name}'
