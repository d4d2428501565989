"""Run by the engine's own Python: vLLM's server, in which every process says that it is a release from the future.

python unknown_release.py ARGUMENTS OF THE SERVER
"""

import runpy

import vllm.version

vllm.version.__version__ = "0.99.0+cpu"  # in the children too: they run this file again

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=False)
