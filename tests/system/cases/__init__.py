"""The cases, by what they look at. Each module has groups(large), which yields its groups.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
