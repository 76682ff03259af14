"""Calls tools of transit-mcp with the official Python client.

The argument is JSON: {"command", "args", "calls": [[tool, arguments], …], "parallel": N}. Prints one JSON line:
{"tools", "results", "parallel"}, as client.mjs does.
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(asked):
    server = StdioServerParameters(command=asked["command"], args=asked["args"], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools

        async def call(name, given):
            try:
                result = await session.call_tool(name, given)
            except Exception as err:  # whatever the client makes of an answer is told
                return {"thrown": repr(err)}
            return result.model_dump(mode="json", by_alias=True, exclude_none=True)

        results = [await call(name, given) for name, given in asked["calls"]]
        all_at_once = await asyncio.gather(*(call("whoami", {}) for _ in range(asked["parallel"])))
        good = sum("thrown" not in result and not result.get("isError") for result in all_at_once)
        print(json.dumps({"tools": [tool.name for tool in tools], "results": results, "parallel": good}))


asyncio.run(main(json.loads(sys.argv[1])))
