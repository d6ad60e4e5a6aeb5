"""What `.ci/imports` and `.ci/size` know of Rust: which files of a crate are production code, which lines of them, and
which modules they name. Production code is all but what is compiled for tests, conformance or fuzzing alone."""
import re

# Comments, strings and characters: what stands in them is no code. A lifetime has no second quote.
NO_CODE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | b?r(\#*)".*?"\1 | [bc]?"(?:\\.|[^"\\])*" | b?'(?:\\'|\\[^']+|[^\\'])'""", re.S | re.X)
CFG = re.compile(r"#\[cfg\((.*)\)\]", re.S)
TESTS = re.compile(r'\btest\b|feature\s*=\s*"(?:conformance|fuzzing)"')
FILE_MODULE = re.compile(r"\bmod\s+(\w+)\s*;")
WORD = re.compile(r"[A-Za-z_]\w*|::|[{}();,*]")


def blanks(text):
    """Nothing, on as many lines."""
    return re.sub(r"[^\n]", " ", text)


def closing(code, start):
    """Where the bracket at `start` is closed."""
    depth = 0
    for i in range(start, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0:
            return i
    raise ValueError("a bracket is not closed")


def item_end(code, i):
    """The end of the item whose attributes stand before `i`: a block, a semicolon, or the comma after a field."""
    while i < len(code):
        if code[i] == "{":
            return closing(code, i) + 1
        if code[i] in ";,":
            return i + 1
        i = closing(code, i) + 1 if code[i] in "([" else i + 1
    return i


class File:
    """One source file: its path, its module's path, its code without what is for tests, and how many lines that is."""

    def __init__(self, path, module):
        text = path.read_text()
        code = NO_CODE.sub(lambda found: blanks(found[0]), text)
        lines = set(range(len(text.splitlines())))
        for found in re.finditer(r"#\[", code):
            start = found.start()
            end = closing(code, start + 1) + 1
            cfg = CFG.fullmatch(text[start:end])
            # What stands in an item that has gone already is blank.
            if code[start] == "#" and cfg and TESTS.search(re.sub(r"not\([^()]*\)", "", cfg[1])):
                end = item_end(code, end)
                lines -= set(range(text.count("\n", 0, start), text.count("\n", 0, end) + 1))
                code = code[:start] + blanks(code[start:end]) + code[end:]
        self.path, self.module, self.code, self.lines = path, module, code, len(lines)


def files(source, path=None, module=()):
    """The production files below `source`, the directory of a crate: its root, and what it declares as modules."""
    path = path or source / "lib.rs"
    file = File(path, module)
    yield file
    inside = path.parent if path.name in ("lib.rs", "mod.rs") else path.with_suffix("")
    for name in FILE_MODULE.findall(file.code):
        flat = inside / f"{name}.rs"
        yield from files(source, flat if flat.exists() else inside / name / "mod.rs", (*module, name))


def tree(words, i):
    """The paths of a use tree that begins with word `i`, and where it ends."""
    path = []
    while i < len(words):
        if words[i] == "{":
            found, i = [], i + 1
            while words[i] != "}":
                below, i = tree(words, i)
                found += [(*path, *rest) for rest in below]
                while words[i] not in (",", "}"):  # `as name`
                    i += 1
                i += words[i] == ","
            return found, i + 1
        path.append(words[i])
        if i + 1 == len(words) or words[i + 1] != "::":
            return [tuple(path)], i + 1
        i += 2
    return [tuple(path)], i


def paths(file):
    """The paths below the root of its crate that a file names by `crate::`, `super::` or `self::`, in `use` or not."""
    words = WORD.findall(file.code)
    inline, depth = [], 0  # modules with their bodies in this file, and at which depth of braces each begins
    for i, word in enumerate(words):
        if word == "{":
            depth += 1
            if i > 1 and words[i - 2] == "mod":
                inline.append((words[i - 1], depth))
        elif word == "}":
            if inline and inline[-1][1] == depth:
                inline.pop()
            depth -= 1
        elif word in ("crate", "super", "self") and words[i + 1:i + 2] == ["::"] and words[i - 1] != "::":
            here = (*file.module, *(name for name, _ in inline))
            for path in tree(words, i)[0]:
                base = () if path[0] == "crate" else here
                for k, part in enumerate(path):
                    if part == "super":
                        base = base[:-1]
                    elif part not in ("crate", "self"):
                        yield (*base, *path[k:])
                        break


def uses(root):
    """The paths that the root of a crate imports or shows, from its own root or that of another crate."""
    words = WORD.findall(root.code)
    for i, word in enumerate(words):
        if word == "use":
            for path in tree(words, i + 1)[0]:
                yield path[1:] if path[0] in ("crate", "self") else path


def defines(root, name):
    """Whether an item of this name stands in the root of a crate itself."""
    return re.search(rf"\b(?:const|enum|fn|static|struct|trait|type|union)\s+{re.escape(name)}\b", root.code)
