"""Whether a folder holds a whole model: what its index names is there, and no file is cut short."""

import json
import struct
from pathlib import Path
from typing import Final

INDEXES: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLE: Final = ("model.safetensors", "pytorch_model.bin", "consolidated.safetensors")
MOST_HEADER_BYTES: Final = 100_000_000
"""The format's own limit."""


def complaint(folder: Path) -> str:
    """What is wrong with the folder, '' where nothing is."""
    if not folder.is_dir():
        return f"{folder} is no folder: nothing is mounted there, or the path is another one"
    try:
        if not (folder / "config.json").is_file():
            return f"{folder} has no config.json: it holds no model, or the model lies in a folder below"
        json.loads((folder / "config.json").read_text())
        return _weights(folder)
    except (OSError, ValueError) as error:
        return f"{folder}: {error}"


def _weights(folder: Path) -> str:
    index = next((folder / name for name in INDEXES if (folder / name).is_file()), None)
    if index is not None:
        named = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        missing = [name for name in named if not (folder / name).is_file()]
        if missing:
            return f"{len(missing)} of {len(named)} files that {index.name} names are missing, such as {missing[0]}"
    else:
        named = [name for name in SINGLE if (folder / name).is_file()]
        if not named:
            return f"{folder} has no weights: neither {INDEXES[0]} nor {SINGLE[0]}"
    for name in named:
        if name.endswith(".safetensors") and (wrong := _cut(folder / name)):
            return wrong
        if (folder / name).stat().st_size == 0:
            return f"{name} is empty"
    return ""


def _cut(path: Path) -> str:
    """A safetensors file says how long it is: 8 bytes of header length, the header, and data to the last offset."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= min(MOST_HEADER_BYTES, size):
            return f"{path.name} is no safetensors file (a download that failed, or a Git LFS pointer)"
        try:
            header = json.loads(file.read(length))
        except ValueError:
            return f"{path.name} has a header that can't be read"
    data = max(
        (entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0
    )
    whole = 8 + length + data
    if size == whole:
        return ""
    return f"{path.name} has {size} bytes, and {whole} by its own header: it was not copied to its end"
