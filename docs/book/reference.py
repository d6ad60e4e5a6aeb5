#!/usr/bin/env python3
"""Preprocessor of mdBook: puts the reference pages of docs/ behind the chapters, so that links to them hold in the
book.

In the repository a chapter links to ../../calls.md; in the book that is reference/calls.md. Links of the pages to files
that are not in the book (sources, ARCHITECTURE.md) become the path of the file.
"""
import json
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]


def chapters(items):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            yield chapter
            yield from chapters(chapter["sub_items"])


def page(file):
    path = file.relative_to(DOCS)
    text = file.read_text(encoding="utf-8")
    beyond = "../" * len(path.parts)
    pattern = r"\[([^\]]*)\]\(" + re.escape(beyond) + r"([^)#]*)[^)]*\)"
    text = re.sub(pattern, r"\1 (`\2`)", text)
    title = text.lstrip().splitlines()[0].lstrip("# ")
    return {
        "Chapter": {
            "name": title.replace("`", ""),
            "content": text,
            "number": None,
            "sub_items": [],
            "path": str(Path("reference") / path),
            "source_path": str(Path("reference") / path),
            "parent_names": [],
        }
    }


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "supports":
        sys.exit(0)
    _, book = json.load(sys.stdin)
    # Called `sections` before mdBook 0.5.
    items = book["items" if "items" in book else "sections"]
    for chapter in chapters(items):
        chapter["content"] = re.sub(r"\]\(\s*\.\./\.\./", "](reference/", chapter["content"])
    items.append({"PartTitle": "Reference"})
    pages = sorted(DOCS.glob("*.md")) + sorted((DOCS / "notes").glob("*.md"))
    items.extend(page(file) for file in pages)
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
