#!/usr/bin/env python3
"""An agent that performs its arguments one after the other: `python agent.py say:Hello 1?done`.

Each is a verb, a colon and an object; with a number and a question mark in front, it is performed in the
attempt with that number only.

say:TEXT          print a line                     hang            wait for ever
warn:TEXT         print a line on standard error   ignore          ignore requests to terminate
spam:BYTES        print so many bytes              kill:NUMBER     send a signal to itself
write:FILE=TEXT   write a file                     exit:CODE       end with an exit code
done              create the file DONE             open:PIPE       wait for a reader of the pipe
report:JSON       write the report                 read            print the standard input
env:NAME          print a variable                 echo:PIPE=TEXT  start a process that prints a line
leave:KIND        start a process that stays alive                 when the pipe has a reader

KIND contains any of the words session, orphan, stubborn, bare: the process opens its own session, has no
parent any more, ignores requests to terminate, has an empty environment.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path


def leave(kind: str) -> None:
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        if "orphan" in kind:
            os.wait()
        os.read(ready, 1)  # the object of the verb
        os.close(ready)
        return
    if "session" in kind:
        os.setsid()
    if "orphan" in kind and os.fork():
        os._exit(0)
    if "stubborn" in kind:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(ready)
    if "bare" in kind:
        os.set_inheritable(tell, True)  # noqa: FBT003 - it has no name
        words = [sys.executable, "-I", "-S", "-c", BARE, str(tell)]
        os.execve(sys.executable, words, {})  # noqa: S606 - no shell is wanted
    os.write(tell, b"!")
    os.close(tell)
    while True:
        signal.pause()


BARE = "import os, signal, sys; os.write(int(sys.argv[1]), b'!'); os.close(int(sys.argv[1])); signal.pause()"


def echo(pipe: str, text: str) -> None:
    if os.fork() == 0:
        Path(pipe).write_text("ready")
        print(text, flush=True)
        os._exit(0)


def write(path: str, text: str) -> None:
    Path(path).write_text(text)


def spam(count: str) -> None:
    sys.stdout.write("x" * int(count))
    sys.stdout.flush()


def hang(_nothing: str) -> None:
    while True:
        signal.pause()


VERBS: dict[str, Callable[[str], object]] = {
    "say": lambda text: print(text, flush=True),
    "warn": lambda text: print(text, file=sys.stderr, flush=True),
    "spam": spam,
    "write": lambda about: write(*about.split("=", 1)),
    "done": lambda _: Path(os.environ["TRIOEVAL_DONE"]).touch(),
    "report": lambda text: write(os.environ["TRIOEVAL_REPORT"], text),
    "env": lambda name: print(os.environ[name], flush=True),
    "read": lambda _: print(sys.stdin.read(), flush=True),
    "leave": leave,
    "echo": lambda about: echo(*about.split("=", 1)),
    "open": lambda pipe: write(pipe, "here"),
    "ignore": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "hang": hang,
    "kill": lambda number: os.kill(os.getpid(), int(number)),
    "exit": lambda code: sys.exit(int(code)),
}


if __name__ == "__main__":
    for step in sys.argv[1:]:
        verb, _, about = step.partition(":")
        number, asked, rest = verb.rpartition("?")
        if not asked or number == os.environ["TRIOEVAL_ATTEMPT"]:
            VERBS[rest](about)
