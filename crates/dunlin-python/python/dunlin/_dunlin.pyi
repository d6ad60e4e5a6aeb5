"""The extension module, which is private: dunlin/__init__.pyi has what is shown of it."""

from typing import Any

def __getattr__(name: str) -> Any: ...
