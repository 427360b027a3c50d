"""Reads the project's sources for the checks: which files there are, and the functions in a C++ file.

Pure but for reading files. No C++ parser: it relies on the tree being formatted by clang-format, which
another check sees to.
SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""

import ast
import dataclasses
import pathlib
import re

CPP_SUFFIXES = {'.cpp', '.hpp', '.h', '.c'}
SKIPPED_DIRECTORIES = re.compile(r'^(build.*|\.git|__pycache__|third_party|\.cache)$')


@dataclasses.dataclass
class Function:
    name: str
    line: int
    lines: int


def files_of(root):
    """Every file of the project as a path relative to `root`, in order, without build directories."""
    found, pending = [], [root]
    while pending:
        for entry in sorted(pending.pop().iterdir()):
            if entry.is_symlink():
                continue
            if entry.is_dir() and not SKIPPED_DIRECTORIES.match(entry.name):
                pending.append(entry)
            elif entry.is_file() and entry.name != '.git':  # of a work tree
                found.append(entry.relative_to(root))
    return sorted(found)


def is_cpp(path):
    return path.suffix in CPP_SUFFIXES


def is_script(root, path):
    """Python and shell: by suffix, or by a first line that names an interpreter."""
    if path.suffix in {'.py', '.sh'}:
        return True
    if path.suffix:
        return False
    with open(root / path, 'rb') as file:
        return file.read(2) == b'#!'


TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s"]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)


def blank_out(text):
    """The text with comments, literals and preprocessor lines made blank, every line kept."""
    return TOKEN.sub(lambda match: re.sub(r'[^\n]', ' ', match.group(0)), text)


SCOPE = re.compile(r'(?:template\s*<.*>\s*)?(?:inline\s+|typedef\s+)*'
                   r'(?:namespace|class|struct|union|enum|extern)\b', re.DOTALL)
ACCESS_LABELS = re.compile(r'\s*(?:(?:public|private|protected)\s*:\s*)*')
ATTRIBUTES = re.compile(r'\b(?:alignas|requires)\s*\((?:[^()]|\([^()]*\))*\)|\[\[.*?\]\]', re.DOTALL)


def kind_of(head):
    """What the `{` after `head`, outside functions, opens: a `scope` (namespace, type, extern "C"), a
    `function`, or a `value` (an initialiser)."""
    bare = ATTRIBUTES.sub('', head[ACCESS_LABELS.match(head).end():])
    if '(' not in bare:
        return 'scope' if SCOPE.match(bare.strip()) else 'value'
    if not (head[-1].isspace() or head[-1] == ')'):
        return 'value'  # `member_{argument}` of a constructor
    depth = 0
    for character in bare:  # `=` outside parentheses: a variable's initialiser
        depth += {'(': 1, ')': -1, '[': 1, ']': -1}.get(character, 0)
        if character == '=' and depth == 0 and 'operator' not in bare:
            return 'value'
    return 'function' if depth == 0 else 'value'  # a default argument's braces leave a parenthesis open


def cpp_functions(text):
    """The functions of a formatted C++ file; lambdas count with the function around them."""
    text = blank_out(text)
    functions, kinds, head_start = [], [], 0
    for offset in (match.start() for match in re.finditer(r'[{};]', text)):
        inside = kinds[-1] if kinds else 'scope'
        if text[offset] == '{':
            kinds.append(kind_of(text[head_start:offset]) if inside == 'scope' else 'inner')
            if kinds[-1] == 'function':
                function_start = head_start + ACCESS_LABELS.match(text[head_start:]).end()
        elif text[offset] == '}' and kinds:
            if kinds.pop() == 'function':
                first, last = (text.count('\n', 0, place) + 1 for place in (function_start, offset))
                functions.append(Function(name_in(text[function_start:]), first, last - first + 1))
            elif inside == 'value':
                continue  # the head goes on: a constructor's next member, or its body
        if not (kinds and kinds[-1] in ('value', 'inner')):
            head_start = offset + 1
    return functions


def name_in(text):
    """The name of the function that `text` starts with; of a test, its two words."""
    name, arguments = re.search(r'((?:\w+::)*(?:operator[^\w\s(]+|~?\w+))\s*\(([^()]*)', ATTRIBUTES.sub('', text)).groups()
    return f"{name}({' '.join(arguments.split())})" if name.startswith('TEST') else name


def python_functions(text):
    """The functions of a Python file; a nested one counts with the one around it."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(Function(node.name, node.lineno, node.end_lineno - node.lineno + 1))
    return found


def functions_of(root, path):
    text = (root / path).read_text()
    return cpp_functions(text) if is_cpp(path) else python_functions(text)


def exceptions(name):
    """The entries of an exception list: `tests/checks/NAME.exceptions`, one a line, `#` for comments."""
    file = pathlib.Path(__file__).parent / f'{name}.exceptions'
    if not file.exists():
        return set()
    lines = (line.split('#')[0].strip() for line in file.read_text().splitlines())
    return {line for line in lines if line}
