"""Which part may include which: the table of docs/architecture.md, as code.

Pure. A part that is not in the table may be included by nobody and must be added here first.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import re

# Directory -> part; the longest that fits counts.
PARTS = {
    'include/urdma/base': 'base',
    'include/urdma/wire': 'wire',
    'include/urdma/abi': 'abi',
    'wire': 'wire',
    'datapath/transport': 'transport',
    'datapath/cm': 'cm',
    'datapath/memory': 'memory',
    'datapath/io': 'io',
    'datapath/engine': 'engine',
    'datapath/control': 'control',
    'datapath/limits.hpp': 'limits',
    'datapath': 'main',
    'provider/ibv': 'provider-ibv',
    'provider': 'provider',
    'kmod-stub': 'kmod-stub',
    'tools': 'tools',
}

# Part -> the parts that it may include besides itself.
MAY_INCLUDE = {
    'base': set(),
    'limits': {'base'},
    'wire': {'base'},
    'abi': {'base'},
    'transport': {'base', 'wire'},
    'cm': {'base', 'wire'},
    'memory': {'base', 'limits'},
    'io': {'base', 'wire', 'limits'},
    'engine': {'base', 'wire', 'abi', 'limits', 'transport', 'memory', 'io'},
    'control': {'base', 'wire', 'abi', 'limits', 'transport', 'cm', 'memory', 'io', 'engine'},
    'main': {'base', 'wire', 'abi', 'limits', 'transport', 'cm', 'memory', 'io', 'engine', 'control'},
    'provider': {'base', 'abi'},
    'provider-ibv': {'base', 'abi', 'provider'},
    'kmod-stub': {'base', 'abi'},
    'tools': {'base', 'abi'},
}

# What neither does I/O nor reads a clock.
PURE = re.compile(r'^(?:rte_.*|sys/.*|netinet/.*|arpa/.*|linux/.*|unistd\.h|fcntl\.h|time\.h|ctime|chrono|'
                  r'thread|mutex|condition_variable|future|pthread\.h|poll\.h|cstdio|iostream|fstream|'
                  r'random|isa-l.*|infiniband/.*|fmt/.*|spdlog/.*)$')

# Headers of the system that a part must do without.
FORBIDDEN_HEADERS = {
    'transport': PURE,
    'cm': PURE,
    'wire': re.compile(r'^(?:rte_.*|sys/.*|infiniband/.*|spdlog/.*|chrono|thread|mutex)$'),
    'base': re.compile(r'^(?:rte_.*|sys/.*|infiniband/.*|spdlog/.*|chrono|thread|mutex)$'),
    'abi': re.compile(r'^(?:rte_.*|infiniband/.*|spdlog/.*)$'),
    'kmod-stub': re.compile(r'^(?:rte_.*|infiniband/driver\.h|spdlog/.*)$'),
    'provider': re.compile(r'^(?:rte_.*|spdlog/.*)$'),
    'provider-ibv': re.compile(r'^(?:rte_.*|spdlog/.*)$'),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
STUB_DIRECTORIES = ('interpose', 'uverbs', 'rdma_cm', 'sysfs')
# The declarations of the private verbs ABI: provider/ibv and the test that measures them.
PRIVATE_ABI = re.compile(r'^provider/ibv/.*(?:private|abi).*\.h(?:pp)?$')
MAY_SEE_PRIVATE_ABI = ('provider/ibv/', 'tests/abi/', 'tests/unit/provider/')


def part_of(path):
    """The part that a file belongs to, or None: tests and benchmarks may include everything."""
    text = str(path)
    for prefix in sorted(PARTS, key=len, reverse=True):
        if text == prefix or text.startswith(prefix + '/'):
            return PARTS[prefix]
    return None


def included_path(path, quoted):
    """A quoted include as a path from the root. A bare file name is one beside the including file."""
    if quoted.startswith('urdma/'):
        return 'include/' + quoted
    if path.parts[0] == 'kmod-stub' and quoted.split('/')[0] in STUB_DIRECTORIES:
        return 'kmod-stub/' + quoted  # the stub's own include directory
    return quoted if '/' in quoted else f'{path.parent}/{quoted}'


def violations(path, text):
    """Yields (place, reason) of each include that goes the wrong way."""
    part = part_of(path)
    for kind, name in INCLUDE.findall(text):
        place = f'{path}:{name}'
        target = included_path(path, name) if kind == '"' or name.startswith('urdma/') else None
        if target is None:
            if part in FORBIDDEN_HEADERS and FORBIDDEN_HEADERS[part].match(name):
                yield place, f'{part} does without this header'
            continue
        if PRIVATE_ABI.match(target) and not str(path).startswith(MAY_SEE_PRIVATE_ABI):
            yield place, 'only provider/ibv includes the private verbs ABI'
        below = part_of(target)
        if part is None or below == part:
            continue
        if below is None:
            yield place, f'{part} includes something that is no part of urdma'
        elif below not in MAY_INCLUDE[part]:
            yield place, f'{part} may not include {below}'
