#!/usr/bin/env python3
"""A folder of src/ includes only itself and the folders named here (the table of docs/TOUR.md)."""
import pathlib
import re
import sys

MAY = {
    "base": "",
    "gguf": "base",
    "kernels": "base",
    "cache": "base",
    "text": "base gguf",
    "model": "base gguf kernels",
    "decode": "base text",
    "engine": "base gguf kernels cache text model decode",
    "server": "base text engine",
    "app": "base gguf kernels cache text model decode engine server",
}
root = pathlib.Path(__file__).resolve().parent.parent / "src"
bad = []
for path in sorted(root.rglob("*")):
    if path.suffix not in (".h", ".cpp", ".inc"):
        continue
    folder = path.relative_to(root).parts[0]
    if folder not in MAY:
        bad.append(f"{path}: folder {folder} is not in the layer table")
        continue
    allowed = set(MAY[folder].split()) | {folder}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match and match[1].split("/")[0] not in allowed:
            bad.append(f'{path}:{number}: {folder} may not include "{match[1]}"')
print("\n".join(bad) if bad else "layers: ok")
sys.exit(1 if bad else 0)
