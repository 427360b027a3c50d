"""The Debian packages that only this suite needs: installed when they are missing, and skipped with a reason when
that cannot be.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import os
import subprocess

from harness.process import Skip

NEEDED = ('qemu-system-x86', 'busybox-static', 'cpio', 'kmod', 'iproute2', 'ibverbs-utils', 'ibverbs-providers', 'perftest',
          'rdma-core', 'rdmacm-utils', 'librdmacm1', 'netcat-traditional', 'fio', 'qperf', 'libfabric-bin', 'ucx-utils', 'libucx-dev', 'tshark')
INSTALL_LIMIT_S = 600


def apt_get(*words, directory=None):
    environment = {**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}
    # What is downloaded belongs to this directory, which apt's own user may not be able to write.
    return subprocess.run(['apt-get', '-q', '-o', 'APT::Sandbox::User=root', *words], cwd=directory, env=environment,
                          capture_output=True, text=True, timeout=INSTALL_LIMIT_S)


def missing():
    shown = subprocess.run(['dpkg-query', '-W', '-f', '${Package} ${db:Status-Status}\\n', *NEEDED], capture_output=True, text=True)
    installed = {line.split()[0] for line in shown.stdout.splitlines() if line.endswith(' installed')}
    return [name for name in NEEDED if name not in installed]


def install():
    """Everything is there afterwards, or Skip says what is not, and why."""
    wanted = missing()
    if not wanted:
        return
    if os.geteuid() != 0:
        raise Skip(f"only root can install {' '.join(wanted)}")
    try:
        done = apt_get('-y', '--no-install-recommends', 'install', *wanted)
        if done.returncode != 0:
            apt_get('update')
            done = apt_get('-y', '--no-install-recommends', 'install', *wanted)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Skip(f"{' '.join(wanted)} cannot be installed: {error}") from error
    if missing():
        reason = (done.stderr.strip().splitlines() or ['no reason given'])[-1]
        raise Skip(f"{' '.join(missing())} cannot be installed: {reason}")
