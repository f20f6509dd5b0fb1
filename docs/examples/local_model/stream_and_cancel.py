"""Makes three calls to the model at LOCAL_MODEL_URL: a timed one, a cancelled one, and another."""

import math

import trio

import trioeval
from trioeval import Row


async def ask(question: str, max_tokens: int) -> Row:
    """Send one question, and stream the reply."""
    suite = trioeval.parse_suite(
        {
            "providers": [
                {
                    "id": "openai:chat:smollm2",
                    "config": {
                        "apiBaseUrl": "{{env.LOCAL_MODEL_URL}}",
                        "max_tokens": max_tokens,
                        "metrics": ["ttft"],
                    },
                }
            ],
            "prompts": [question],
        }
    )
    [row] = await trioeval.collect(suite)
    return row


async def main() -> None:
    row = await ask("Write about the sea.", max_tokens=100)
    assert row.reply is not None, row.error
    first, whole = row.reply.first_token or math.nan, (row.latency_ms or math.nan) / 1000
    print(f"first token after {first:.2f} s, complete after {whole:.2f} s")

    started_at = trio.current_time()
    with trio.move_on_after(0.5):
        row = await ask("Write a very long story about a fox.", max_tokens=1500)
        print("completed before it was cancelled:", row.output)
    print(f"cancelled after {trio.current_time() - started_at:.2f} s")

    row = await ask("What is the capital of Italy? Answer in a few words.", max_tokens=32)
    print("next call:", row.output)


if __name__ == "__main__":
    trio.run(main)
