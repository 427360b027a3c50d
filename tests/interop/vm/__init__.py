"""A small virtual machine whose Linux kernel, Debian's own, runs rdma_rxe: the peer that nobody here wrote.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
