"""Makes what the guest boots: Debian's kernel, and an initial file system with its RDMA modules, busybox, the verbs
programs and the agent. The kernel package is only downloaded and unpacked, and kept below the build directory.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import os
import pathlib
import re
import shutil
import subprocess

from harness.process import Failure, Skip

from . import packages

HERE = pathlib.Path(__file__).resolve().parent
# rxe asks the crypto layer for crc32 by name when a link is added: no dependency shows it.
MODULES = ('crc32_generic', 'virtio_pci', 'virtio_net', 'virtio_console', 'rdma_rxe', 'ib_uverbs', 'rdma_ucm')
PROGRAMS = ('rdma', 'ibv_devinfo', 'ibv_rc_pingpong', 'ibv_uc_pingpong', 'ibv_ud_pingpong', 'ibv_srq_pingpong',
            'ib_send_lat', 'ib_send_bw', 'ib_write_lat', 'ib_write_bw', 'ib_read_lat', 'ib_read_bw', 'ib_atomic_lat',
            'ib_atomic_bw', 'rping', 'ucmatose', 'udaddy', 'rdma_server', 'rdma_client', 'rdma_xserver', 'rdma_xclient', 'cmtime',
            'mckey', 'rstream', 'riostream', 'rcopy', 'nc.traditional', 'fio', 'qperf', 'fi_pingpong', 'ucx_perftest')
LIBRARIES = '/usr/lib/x86_64-linux-gnu'
# Found by name at run time, so that ldd does not show them.
EXTRA_PROGRAMS = (f'{LIBRARIES}/libibverbs/librxe-rdmav34.so', f'{LIBRARIES}/rsocket/librspreload.so', f'{LIBRARIES}/ucx/libuct_ib.so.0',
                  f'{LIBRARIES}/ucx/libuct_rdmacm.so.0', '/lib/x86_64-linux-gnu/libgcc_s.so.1')
EXTRA_FILES = ('/etc/libibverbs.d/rxe.driver',)


def run(*words, directory=None, **options):
    done = subprocess.run([str(word) for word in words], cwd=directory, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(str(word) for word in words)}: {done.stderr.strip()}")
    return done.stdout


def fetch_kernel(directory):
    """Debian's kernel, unpacked; returns the directory."""
    unpacked = directory / 'kernel'
    if unpacked.is_dir():
        return unpacked
    found = re.search(r'Depends: (linux-image-\S+)', run('apt-cache', 'depends', 'linux-image-amd64'))
    if not found:
        raise Skip('no package linux-image-amd64 is known to apt')
    directory.mkdir(parents=True, exist_ok=True)
    done = packages.apt_get('download', found.group(1), directory=directory)
    if done.returncode != 0:
        packages.apt_get('update')
        done = packages.apt_get('download', found.group(1), directory=directory)
    archives = list(directory.glob('linux-image-*.deb'))
    if done.returncode != 0 or not archives:
        raise Skip(f'{found.group(1)} cannot be downloaded: {done.stderr.strip()}')
    half = directory / 'kernel.half'
    run('dpkg', '-x', archives[0], half)
    run('depmod', '-b', half, version_of(half))
    half.rename(unpacked)
    for archive in archives:
        archive.unlink()
    return unpacked


def version_of(kernel):
    return next((kernel / 'lib' / 'modules').iterdir()).name


def copy_modules(kernel, root):
    """The modules in the order in which they have to be loaded, and the script that does it."""
    lines = []
    for module in MODULES:
        shown = run('modprobe', '-d', kernel, '-S', version_of(kernel), '--show-depends', module)
        lines += [line.split()[1] for line in shown.splitlines() if line.startswith('insmod')]
    (root / 'modules').mkdir()
    with open(root / 'load-modules', 'w', encoding='ascii') as script:
        for file in dict.fromkeys(lines):
            shutil.copy(file, root / 'modules')
            script.write(f'insmod /modules/{pathlib.Path(file).name}\n')


def copy_file(source, root):
    target = root / str(source).lstrip('/')
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(os.path.realpath(source), target)


def copy_program(path, root):
    copy_file(path, root)
    for library in re.findall(r'(/\S+) \(0x', run('ldd', path)):
        copy_file(library, root)


def build(directory, own_programs, scratch):
    """Makes vmlinuz and initrd; returns their paths. `own_programs` are there by their paths, and by their names in /bin."""
    kernel = fetch_kernel(directory)
    root = scratch / 'root'
    for name in ('bin', 'proc', 'sys', 'dev', 'etc', 'tmp', 'run'):
        (root / name).mkdir(parents=True)
    copy_modules(kernel, root)
    shutil.copy('/usr/bin/busybox', root / 'bin' / 'busybox')
    for name in PROGRAMS:
        path = shutil.which(name)
        if path is None:
            raise Skip(f'{name} is not installed')
        copy_program(path, root)
    for program in own_programs:
        copy_program(program, root)
        shutil.copy(program, root / 'bin' / program.name)
    for file in EXTRA_PROGRAMS:
        copy_program(file, root)
    for file in EXTRA_FILES:
        copy_file(file, root)
    (root / 'etc' / 'hosts').write_text('127.0.0.1 localhost\n')
    (root / 'etc' / 'passwd').write_text('root:x:0:0::/:/bin/sh\n')
    shutil.copy(HERE / 'init.sh', root / 'init')
    (root / 'init').chmod(0o755)
    initrd = scratch / 'initrd'
    with open(initrd, 'wb') as output:
        subprocess.run('find . | cpio --quiet -o -H newc', shell=True, cwd=root, stdout=output, check=True)
    shutil.rmtree(root)
    return kernel / 'boot' / f'vmlinuz-{version_of(kernel)}', initrd
