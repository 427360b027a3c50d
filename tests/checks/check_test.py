"""Bad samples for each check: a check that lets one of them pass is no check.

SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import pathlib
import shutil
import tempfile

import check
import field_reports
import source

HEADER = f'// A sample.\n// {check.SPDX}\n'
LONG_BODY = '  step();\n' * check.FUNCTION_LINES


def in_class(body):
    return f'{HEADER}namespace a {{\nclass B {{\n public:\n  B() : c_{{1}} {{\n{body}  }}\n  int c_;\n}};\n}}\n'


def field_report_rows(others, first):
    return ''.join(f'| {number} | a | {first if number == 1 else others} |\n'
                   for number in range(1, field_reports.REPORTS + 1))


# Check -> (path, text) pairs, each of which must fail it.
BAD = {
    'function_length': [
        ('wire/long.cpp', f'{HEADER}void long_one(int x) {{\n{LONG_BODY}}}\n'),
        ('wire/member.hpp', in_class(LONG_BODY)),
        ('wire/lambda.cpp', f'{HEADER}int f() {{\n  auto g = [](int) {{\n{LONG_BODY}  }};\n}}\n'),
        ('wire/braces.cpp', f'{HEADER}const char* k = "}} {{";\nvoid f() {{\n  // }}\n{LONG_BODY}}}\n'),
        ('tests/long.py', 'def f():\n' + '    x = 1\n' * check.FUNCTION_LINES),
    ],
    'file_length': [
        ('wire/long.cpp', HEADER + '\n' * check.FILE_LINES),
        ('scripts/long', '#!/bin/sh\n' + ':\n' * check.FILE_LINES),
    ],
    'include_directions': [
        ('wire/a.cpp', '#include "datapath/engine/engine.hpp"\n'),
        ('include/urdma/base/a.hpp', '#include "urdma/wire/headers.hpp"\n'),
        ('datapath/transport/a.cpp', '#include "urdma/abi/queues.hpp"\n'),
        ('datapath/transport/b.cpp', '#include <rte_mbuf.h>\n'),
        ('datapath/transport/c.cpp', '#include <chrono>\n'),
        ('datapath/transport/d.cpp', '#include "datapath/io/port.hpp"\n'),
        ('datapath/cm/a.cpp', '#include "datapath/control/netlink.hpp"\n'),
        ('datapath/cm/b.cpp', '#include <chrono>\n'),
        ('datapath/io/a.cpp', '#include "datapath/engine/engine.hpp"\n'),
        ('datapath/engine/a.cpp', '#include "datapath/control/netlink.hpp"\n'),
        ('kmod-stub/a.cpp', '#include "provider/control/client.hpp"\n'),
        ('provider/queue/a.cpp', '#include "datapath/limits.hpp"\n'),
        ('provider/queue/b.cpp', '#include "provider/ibv/private_abi.hpp"\n'),
        ('tools/a.cpp', '#include "provider/ibv/private_abi.hpp"\n'),
    ],
    'licence_line': [
        ('wire/a.cpp', '// A sample.\nint x;\n'),
        ('wire/b.cpp', f'// A sample. {check.SPDX}\n'),
        ('scripts/a', '#!/bin/sh\n:\n'),
        ('tests/a.py', '"""A sample."""\n'),
    ],
    'machine_paths': [
        ('wire/a.cpp', f'{HEADER}// see /wo' + 'rk/notes\n'),
        ('docs/a.md', 'see ../sha' + 'red/design\n'),
    ],
    'skip_reasons': [
        ('tests/unit/a.cpp', f'{HEADER}TEST(A, B) {{ GTEST_SKIP(); }}\n'),
        ('tests/unit/b.cpp', f'{HEADER}TEST(A, DISABLED_' + 'B) {}\n'),
    ],
    'field_reports': [
        ('docs/field-reports.md', field_report_rows('not yet', '`Suite.Case`')),
        ('docs/field-reports.md', field_report_rows('not yet', 'none')),
        ('docs/field-reports.md', field_report_rows('not yet', 'not yet')[10:]),
    ],
    'format': [('wire/a.cpp', f'{HEADER}int   f( ){{return 1;}}\n')],
}

# What nm prints, and must be refused.
BAD_SYMBOLS = ['libtransport.a:requester.cpp.o:                 U clock_gettime',
               'libtransport.a:requester.cpp.o:                 U clock_gettime@GLIBC_2.17',
               'libtransport.a:requester.cpp.o:                 U rte_pktmbuf_alloc',
               'libtransport.a:responder.cpp.o:                 U malloc',
               'libtransport.a:responder.cpp.o:                 U pthread_mutex_lock',
               'libtransport.a:responder.cpp.o:                 U socket',
               'libtransport.a:responder.cpp.o:                 U _ZNSt6chrono3_V212system_clock3nowEv',
               'libtransport.a:responder.cpp.o:                 U write']


def samples_not_caught(name):
    """The first bad sample that the check finds nothing wrong with, or None."""
    if name == 'pure_libraries':
        return next((line for line in BAD_SYMBOLS if not list(check.forbidden_symbols(line))), None)
    for path, text in BAD[name]:
        with tempfile.TemporaryDirectory(prefix='urdma-check-') as directory:
            root = pathlib.Path(directory)
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text(text)
            shutil.copy(check.ROOT / '.clang-format', root)
            word, _ = check.run_check(name, root, source.files_of(root), set())
        if word == 'PASS':
            return path
    # An exception that nothing needs is a fault, too.
    if check.run_check(name, check.ROOT, [], {'nowhere'})[0] == 'PASS':
        return 'a list of exceptions that does not shrink'
    return None
