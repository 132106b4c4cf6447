"""The weather, from wherever you have it: by default from a small sample, so that it works offline.

    python -m mcp_trio run examples/weather.py

A provider is an async function from a location to a Report, or to None where it knows of no such place. PROVIDER names
another one than the sample: PROVIDER=my_weather:look_up, with my_weather.py in the folder where the server is started.
"""

import os
import pkgutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from mcp_trio import Server, ToolAnnotations, ToolError


@dataclass
class Report:
    """The weather at a place."""

    temperature: Annotated[float, Meta(description="Temperature in celsius")]
    conditions: Annotated[str, Meta(description="Weather conditions description")]
    humidity: Annotated[float, Meta(description="Humidity percentage", ge=0, le=100)]


Provider = Callable[[str], Awaitable[Report | None]]

SAMPLE = {
    "New York": Report(22.5, "Partly cloudy", 65),
    "London": Report(14.5, "Light rain", 78),
    "Nairobi": Report(24.0, "Sunny", 41),
}


async def sample(location: str) -> Report | None:
    """What the sample has."""
    return SAMPLE.get(location.strip().title())


def chosen() -> Provider:
    """The provider that PROVIDER names."""
    if not (name := os.environ.get("PROVIDER")):
        return sample
    sys.path.append(os.getcwd())
    try:
        provider: Provider = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as problem:
        sys.exit(f"PROVIDER={name}: module:function is wanted: {problem}")
    return provider


server = Server("weather", instructions="Weather as it is now. There are no forecasts.")
provider = chosen()


async def report_of(location: str) -> Report:
    """What the provider says of a place; where it knows nothing, the model is told so."""
    if (report := await provider(location)) is None:
        raise ToolError(
            f"There is no weather for {location!r}; try the name of a large city"
        )
    return report


@server.tool(
    title="Weather Information Provider",
    annotations=ToolAnnotations(read_only_hint=True),
)
async def get_weather(
    location: str, units: Literal["metric", "imperial"] = "imperial"
) -> str:
    """Get current weather information for a location.

    Args:
        location: City name or zip code
        units: Celsius (metric) or Fahrenheit (imperial)
    """
    report = await report_of(location)
    celsius = report.temperature
    temperature = (
        f"{celsius:g}°C" if units == "metric" else f"{celsius * 9 / 5 + 32:.0f}°F"
    )
    return f"Current weather in {location}:\nTemperature: {temperature}\nConditions: {report.conditions}"


@server.tool(
    title="Weather Data Retriever", annotations=ToolAnnotations(read_only_hint=True)
)
async def get_weather_data(location: str) -> Report:
    """Get current weather data for a location.

    Args:
        location: City name or zip code
    """
    return await report_of(location)


if __name__ == "__main__":
    server.run()
