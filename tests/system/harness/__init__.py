"""What the system tests stand on: processes, nodes, groups of cases. Python's standard library only.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
