"""The extension module, which is private: dunlin/__init__.pyi declares what is public."""

from typing import Any

def __getattr__(name: str) -> Any: ...
