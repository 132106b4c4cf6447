"""Answers every example of the third seed (2024-10-07) as that document shows it."""

from typing import Any, Literal

from mcp_trio import Server

WEATHER_INPUT = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "City name or zip code"},
        "units": {
            "type": "string",
            "enum": ["metric", "imperial"],
            "default": "metric",
        },
    },
    "required": ["location"],
}
QUERY_INPUT = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "SQL query to execute"},
        "database": {
            "type": "string",
            "enum": ["users", "products", "orders"],
            "default": "users",
        },
    },
    "required": ["query"],
}

server = Server("seed 002")


@server.tool(input_schema=WEATHER_INPUT)
async def get_weather(
    location: str, units: Literal["metric", "imperial"] = "metric"
) -> dict[str, Any]:
    """Get current weather information for a specific location"""
    return {
        "temperature": 72 if units == "imperial" else 22,
        "humidity": 65,
        "description": "Partly cloudy",
    }


@server.tool(input_schema=QUERY_INPUT)
async def query_database(
    query: str, database: Literal["users", "products", "orders"] = "users"
) -> dict[str, Any]:
    """Execute a SQL query on the database"""
    return {
        "error": f"No search results found for query: '{query}'",
        "status": "empty_results",
    }
