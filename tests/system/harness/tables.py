"""Reads what Debian's verbs programs print.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import re

from .process import Failure, tail

NUMBER_ROW = re.compile(r'^\s*\d+(?:\s+[\d.]+|\s+inf|\s+-?nan)+\s*$')


def perftest_rows(output):
    """The rows of a perftest table, as lists of numbers: bytes, iterations, figures."""
    rows = [[float(word) for word in line.split()] for line in output.splitlines() if NUMBER_ROW.match(line)]
    if not rows:
        raise Failure(f'no table in the output\n{tail(output)}')
    return rows


def pingpong_figures(output):
    """ibv_rc_pingpong's two lines: bytes moved, iterations."""
    moved = re.search(r'^(\d+) bytes in [\d.]+ seconds', output, re.MULTILINE)
    iterations = re.search(r'^(\d+) iters in [\d.]+ seconds', output, re.MULTILINE)
    if not moved or not iterations:
        raise Failure(f'no figures in the output\n{tail(output)}')
    return int(moved.group(1)), int(iterations.group(1))


def devinfo_value(output, key):
    """The value of `key:` in ibv_devinfo -v."""
    found = re.search(rf'^\s*{re.escape(key)}:\s*(.*)$', output, re.MULTILINE)
    if not found:
        raise Failure(f'ibv_devinfo -v names no {key}\n{tail(output)}')
    return found.group(1).strip()


def devinfo_gids(output):
    """(index, gid) of each GID that ibv_devinfo -v lists."""
    return [(int(index), gid) for index, gid in re.findall(r'GID\[\s*(\d+)\]:\s*([0-9A-Fa-f:.]+)', output)]
