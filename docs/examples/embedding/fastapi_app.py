"""A web service that evaluates prompts: one session for all requests, rows streamed as they are known.

MODEL_URL=http://127.0.0.1:8080 uvicorn fastapi_app:app
"""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import trioeval
import trioeval.asyncio


class Evaluation(BaseModel):
    """The body of a request: a prompt, and the words that are inserted and expected in replies."""

    prompt: str
    words: list[str]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Open a session until the server shuts down. The provider is a function of this program."""
    async with aiohttp.ClientSession(os.environ["MODEL_URL"]) as client:

        async def ask(request: trioeval.Request) -> str:
            async with client.post("/", data=request.prompt, raise_for_status=True) as response:
                return await response.text()

        lanes = [trioeval.LaneSpec("model", 2)]  # calls in flight, over all requests
        async with trioeval.asyncio.open_session(
            store="results.db", providers={"model": ask}, lanes=lanes
        ) as app.state.session:
            yield


app = FastAPI(lifespan=lifespan)


@app.put("/evaluations/{name}")
async def evaluate(name: str, evaluation: Evaluation) -> StreamingResponse:
    """Run an evaluation, or continue it: the run ends early when the client disconnects."""
    tests = [
        {"vars": {"word": word}, "assert": [{"type": "icontains", "value": word}]}
        for word in evaluation.words
    ]
    document = {"providers": ["model"], "prompts": [evaluation.prompt], "tests": tests}
    try:
        lines = run_lines(name, trioeval.parse_suite(document, trusted=False))
        await anext(lines)  # the run has begun
    except trioeval.SuiteError as error:
        raise HTTPException(422, str(error)) from error
    except trioeval.UsageError as error:  # it is in progress
        raise HTTPException(409, str(error)) from error
    return StreamingResponse(lines, media_type="application/jsonl")


async def run_lines(name: str, suite: trioeval.Suite) -> AsyncGenerator[str]:
    """Yield an empty text once the run has begun, a line for each row in order, and one for the run."""
    async with app.state.session.run(suite, id=name, resume=True) as run:
        yield ""
        async for row in run.rows():
            yield json.dumps({"row": row.index, "status": row.status.value}) + "\n"
    yield json.dumps({"ended": run.summary.ended, "passed": run.summary.passed}) + "\n"
