"""Where the ends of an interop test are: their namespaces, the relay between them, and what crossed it.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
