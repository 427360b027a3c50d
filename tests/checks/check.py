#!/usr/bin/env python3
"""Style as a test: what docs/architecture.md promises about the sources, checked.

Prints one PASS, FAIL or SKIP line a check; each check is tried on bad samples first (check_test.py), and
counts as failed when it finds nothing wrong with them. Run by scripts/test unit; alone: tests/checks/check.py.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import directions  # noqa: E402
import field_reports  # noqa: E402
import source  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FUNCTION_LINES = 70
FILE_LINES = 500
SPDX = 'SPDX-License-' + 'Identifier: BSD-2-Clause OR GPL-2.0-only'
SPDX_WITHIN_LINES = 40

# Assembled, so that this file does not name what it forbids.
SKIP_WITHOUT_REASON = re.compile(r'GTEST_SKIP\(\)\s*;|\bDISABLED_\w')
MACHINE_PATHS = re.compile('|'.join(('/wo' + r'rk/', r'\.\./sha' + 'red', '/ho' + r'me/\w+', '/ro' + r'ot/\w',
                                     '/tm' + r'p/(?:b|node)-')))

# What libtransport.a and libcm.a may not ask anybody for: I/O, clocks, threads, allocation outside constructors.
# C++'s own operator new stays allowed, since constructors size their vectors with it.
FORBIDDEN_SYMBOLS = re.compile(
    r'^(?:_?_?rte_\w+|clock_\w+|gettimeofday|time|nanosleep|usleep|sleep|'
    r'_ZNSt6chrono\w*|_ZNSt6thread\w*|_ZNSt5mutex\w*|_ZNSt18condition_variable\w*|'
    r'pthread_\w+|socket|bind|connect|listen|accept4?|send|sendto|sendmsg|sendmmsg|recv|recvfrom|recvmsg|recvmmsg|'
    r'read|write|readv|writev|pread(?:64)?|pwrite(?:64)?|open(?:64)?|openat(?:64)?|close|ioctl|poll|ppoll|select|'
    r'epoll_\w+|eventfd|mmap(?:64)?|munmap|syscall|malloc|calloc|realloc|posix_memalign|aligned_alloc|'
    r'rand|random|getrandom|getenv|printf|fopen(?:64)?|_ZNSt13random_device\w*)$')


def function_length(root, paths):
    """Functions of C++ and Python: 70 lines at most."""
    for path in paths:
        if source.is_cpp(path) or path.suffix == '.py':
            for function in source.functions_of(root, path):
                if function.lines > FUNCTION_LINES:
                    yield f'{path}:{function.name}', f'{function.lines} lines, of {FUNCTION_LINES}'


def file_length(root, paths):
    """Source files: under 500 lines."""
    for path in paths:
        if source.is_cpp(path) or source.is_script(root, path) or path.name == 'meson.build':
            lines = (root / path).read_text().count('\n')
            if lines >= FILE_LINES:
                yield str(path), f'{lines} lines; it must be fewer than {FILE_LINES}'


def include_directions(root, paths):
    """Modules include only what is below them; the transport, no I/O; the private verbs ABI, one place."""
    for path in paths:
        if source.is_cpp(path):
            yield from directions.violations(path, (root / path).read_text())


def licence_line(root, paths):
    """An SPDX line, with nothing else on it, at the top of every source file and script."""
    for path in paths:
        if source.is_cpp(path) or source.is_script(root, path):
            top = (root / path).read_text().split('\n')[:SPDX_WITHIN_LINES]
            if not any(line.strip(' /#*"') == SPDX for line in top):
                yield str(path), f'no line of its own "{SPDX}" at its top'


def machine_paths(root, paths):
    """No path of the machine that somebody wrote it on."""
    for path in paths:
        try:
            text = (root / path).read_text()
        except UnicodeDecodeError:
            continue  # captures and other binary data
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATHS.search(line):
                yield f'{path}:{number}', line.strip()


def skip_reasons(root, paths):
    """A test that is skipped says why."""
    for path in paths:
        if source.is_cpp(path):
            for number, line in enumerate((root / path).read_text().splitlines(), 1):
                if SKIP_WITHOUT_REASON.search(line):
                    yield f'{path}:{number}', 'GTEST_SKIP() without a sentence, or a test that is DISABLED_'


def pure_libraries(root, _):
    """libtransport.a and libcm.a import no clock, I/O, thread or rte_ symbol."""
    for part in ('transport', 'cm'):
        library = root / 'build' / 'datapath' / part / f'lib{part}.a'
        if not library.exists():
            raise Unavailable(f'{library.relative_to(root)} is not built')
        yield from forbidden_symbols(subprocess.run(['nm', '-A', '-u', library], check=True, capture_output=True,
                                                    text=True, cwd=root).stdout)


def forbidden_symbols(nm_output):
    for line in nm_output.splitlines():
        where, _, symbol = line.rpartition(' ')
        if FORBIDDEN_SYMBOLS.match(symbol.split('@')[0]):
            yield f"{where.split(':')[1]}:{symbol}", 'state machines ask for no time, I/O, thread or memory'


def format_of_sources(root, paths):
    """clang-format finds nothing to change."""
    if shutil.which('clang-format') is None:
        raise Unavailable('clang-format is not installed; run scripts/setup')
    for path in paths:
        if source.is_cpp(path):
            done = subprocess.run(['clang-format', '--dry-run', '-Werror', '--style=file', str(path)], cwd=root,
                                  capture_output=True, text=True)
            if done.returncode != 0:
                first = done.stderr.splitlines()[0] if done.stderr else 'it differs'
                yield str(path), f'{first} (clang-format -i {path})'


class Unavailable(Exception):
    """The check cannot run here, and why."""


CHECKS = {
    'function_length': function_length,
    'file_length': file_length,
    'include_directions': include_directions,
    'licence_line': licence_line,
    'machine_paths': machine_paths,
    'skip_reasons': skip_reasons,
    'pure_libraries': pure_libraries,
    'format': format_of_sources,
    'field_reports': field_reports.violations,
}


def run_check(name, root, paths, excepted):
    """Returns (word, reasons). An exception that is not needed any more fails, so that lists only shrink."""
    try:
        found = dict(CHECKS[name](root, paths))
    except Unavailable as why:
        return 'SKIP', [str(why)]
    wrong = [f'{place}: {what}' for place, what in found.items() if place not in excepted]
    wrong += [f'{entry}: it is well now: take it out of tests/checks/{name}.exceptions'
              for entry in sorted(excepted - set(found))]
    return ('FAIL' if wrong else 'PASS'), wrong


def main():
    import check_test  # it needs this module's names
    failed = False
    paths = source.files_of(ROOT)
    for name in CHECKS:
        missed = check_test.samples_not_caught(name)
        word, reasons = run_check(name, ROOT, paths, source.exceptions(name))
        if missed:
            word, reasons = 'FAIL', [f'it does not see what is wrong with {missed}']
        print(f'{word} check/{name}' + (f': {reasons[0]}' if reasons else ''))
        for reason in reasons[1:]:
            print(f'     {reason}')
        failed = failed or word == 'FAIL'
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
