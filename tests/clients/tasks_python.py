"""The official Python SDK's client, 2.x, with the tasks extension.

python tasks_python.py URL TOOL

The SDK has no such extension yet, but an interface for the extensions of clients, which
this uses: it polls the task and answers its questions. Prints the states that it saw
and the result, as one JSON object. Run it with an interpreter that has the package
`mcp`: see install.py.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any, Literal

import mcp
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, ElicitResult, Request, RequestParams, Result
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

SECONDS = 30
ANSWER = {"action": "accept", "content": {"in_color": True}}


class CreatedTask(Result):
    """The result of a call that became a task."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    result_type: Literal["task"]
    task_id: str
    status: str
    poll_interval_ms: int


class TaskParams(RequestParams):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(Request[TaskParams, str]):
    """A request of the extension, named by the task."""

    method: str
    params: TaskParams

    name_param = "taskId"


class AnyResult(Result):
    model_config = ConfigDict(extra="allow")


class Tasks(ClientExtension):
    """Waits for tasks. `states` are the distinct states that it saw."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.states: list[str] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [
            ResultClaim(result_type="task", model=CreatedTask, resolve=self.resolve)
        ]

    async def resolve(self, task: CreatedTask, context: ClaimContext) -> CallToolResult:
        answered: set[str] = set()
        while True:
            state = await self.send(context, "tasks/get", task.task_id)
            if state["status"] not in self.states:
                self.states.append(state["status"])
            if state["status"] == "completed":
                return CallToolResult.model_validate(state["result"])
            if state["status"] in ("failed", "cancelled"):
                raise RuntimeError(state)
            new = state.get("inputRequests", {}).keys() - answered
            if new:
                answered |= new
                responses = dict.fromkeys(new, ANSWER)
                await self.send(context, "tasks/update", task.task_id, responses)
            await asyncio.sleep(task.poll_interval_ms / 1000)

    async def send(
        self,
        context: ClaimContext,
        method: str,
        id: str,
        responses: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        params = TaskParams(task_id=id, input_responses=responses)
        request = TaskRequest(method=method, params=params)
        result = await context.session.send_request(request, AnyResult)
        fields: dict[str, Any] = result.model_dump(mode="json", by_alias=True)
        return fields


async def answer(context: Any, params: Any) -> ElicitResult:
    """Declare that the client answers questions. The extension answers them."""
    raise AssertionError("a task does not ask by a request")


async def call(url: str, tool: str) -> dict[str, Any]:
    tasks = Tasks()
    async with mcp.Client(
        streamable_http_client(url), extensions=[tasks], elicitation_callback=answer
    ) as client:
        result = await client.call_tool(tool, {"pages": 3})
        return {
            "revision": client.protocol_version,
            "text": result.content[0].text,
            "states": tasks.states,
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(call(*sys.argv[1:]), SECONDS))))
