"""The demo server: one of everything, working offline.

Read it as an example of a server. The weather and the databases are sample data.
"""

from __future__ import annotations

import math
import struct
import zlib
from datetime import UTC, datetime
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal

import trio
from msgspec import Meta, Struct

from . import (
    Audio,
    Context,
    EmbeddedResource,
    Image,
    InvalidParams,
    PromptMessage,
    ResourceLink,
    ResourceNotFound,
    Server,
    Text,
    TextContents,
    ToolAnnotations,
    ToolError,
)

if TYPE_CHECKING:
    import sqlite3

# The demo's own version, which the golden traces contain. It does not follow the
# package's.
VERSION = "0.1.0"

server = Server(
    "mcp_trio demo",
    VERSION,
    title="mcp_trio demo",
    instructions=(
        "Everything here is sample data that is built in. "
        "Nothing is looked up, and nothing can be changed."
    ),
)

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
JSON = "application/json"

# Cities


class Weather(Struct):
    """What the sample says of one city's weather."""

    temperature: Annotated[float, Meta(description="Temperature in celsius")]
    conditions: Annotated[str, Meta(description="Weather conditions description")]
    humidity: Annotated[float, Meta(description="Humidity percentage")]


class City(Struct):
    """One city of the sample."""

    name: str
    zip_code: str
    country: str
    weather: Weather


SAMPLE = {
    city.name: city
    for city in [
        City("New York", "10001", "United States", Weather(22.5, "Partly cloudy", 65)),
        City("San Francisco", "94103", "United States", Weather(16.0, "Fog", 82)),
        City("London", "SW1A 1AA", "United Kingdom", Weather(14.5, "Light rain", 78)),
        City("Berlin", "10115", "Germany", Weather(19.0, "Clear", 48)),
        City("Nairobi", "00100", "Kenya", Weather(24.0, "Sunny", 41)),
        City("Tokyo", "100-0001", "Japan", Weather(27.5, "Thunderstorms", 88)),
    ]
}


def find_city(location: str, failure: type[Exception] = ToolError) -> City:
    """Return the city with a name or zip code, ignoring case.

    Raises `failure`, with a message that names the cities of the sample.
    """
    folded = location.strip().casefold()
    for city in SAMPLE.values():
        if folded in (city.name.casefold(), city.zip_code.casefold()):
            return city
    known = ", ".join(f"{city.name} ({city.zip_code})" for city in SAMPLE.values())
    raise failure(f"There is no {location!r} in the sample; it has {known}")


# Without `description`, clients are shown the first part of the docstring.
@server.tool(
    title="Weather Information Provider",
    description=(
        "Get current weather information for a location. "
        "It comes from a small built-in sample of cities."
    ),
    annotations=READS,
)
async def get_weather(
    location: str, units: Literal["metric", "imperial"] = "imperial"
) -> str:
    """Get current weather information for a location, as text.

    Args:
        location: City name or zip code
        units: Celsius (metric) or Fahrenheit (imperial)
    """
    city = find_city(location)
    celsius = city.weather.temperature
    if units == "metric":
        temperature = f"{celsius:g}°C"
    else:
        temperature = f"{celsius * 9 / 5 + 32:.0f}°F"
    lines = [
        f"Current weather in {city.name}:",
        f"Temperature: {temperature}",
        f"Conditions: {city.weather.conditions}",
    ]
    return "\n".join(lines)


@server.tool(
    title="Weather Data Retriever",
    description=(
        "Get current weather data for a location. "
        "It comes from a small built-in sample of cities."
    ),
    annotations=READS,
)
async def get_weather_data(location: str) -> Weather:
    """Get current weather data for a location, as structured content.

    Args:
        location: City name or zip code
    """
    return find_city(location).weather


@server.tool(annotations=READS)
async def link_city(location: str) -> ResourceLink:
    """Get a link to all that the sample has about a city.

    Args:
        location: City name or zip code
    """
    city = find_city(location)
    return ResourceLink(
        city_uri(city),
        city.name,
        description=f"{city.name}, {city.country}",
        mime_type=JSON,
    )


@server.tool(annotations=READS)
async def embed_city(location: str) -> EmbeddedResource:
    """Get all that the sample has about a city, as an embedded resource.

    Args:
        location: City name or zip code
    """
    city = find_city(location)
    contents = TextContents(city_uri(city), describe(city), mime_type="text/plain")
    return EmbeddedResource(contents)


def city_uri(city: City) -> str:
    """Return the URI of a city's resource."""
    return "cities://" + city.name.replace(" ", "%20")


def describe(city: City) -> str:
    """Describe a city in words."""
    weather = city.weather
    facts = [
        f"{weather.temperature:g}°C",
        weather.conditions,
        f"humidity {weather.humidity:g}%",
    ]
    return f"{city.name}, {city.country}: {', '.join(facts)}"


@server.resource("cities://{name}", mime_type=JSON)
async def city(name: str) -> City:
    """All that the sample has about one city."""
    if name not in SAMPLE:
        raise ResourceNotFound(f"cities://{name}")
    return SAMPLE[name]


# Databases

DATABASES = {
    "users": """
        CREATE TABLE users (
            id INTEGER PRIMARY KEY,
            name TEXT,
            city TEXT
        );
        INSERT INTO users (name, city) VALUES
            ('Ada', 'London'),
            ('Grace', 'New York'),
            ('Edsger', 'Berlin'),
            ('Barbara', 'San Francisco'),
            ('Wangari', 'Nairobi');
    """,
    "products": """
        CREATE TABLE products (
            id INTEGER PRIMARY KEY,
            name TEXT,
            price REAL,
            stock INTEGER
        );
        INSERT INTO products (name, price, stock) VALUES
            ('Umbrella', 19.9, 120),
            ('Sun hat', 24.5, 40),
            ('Rain boots', 39.0, 0),
            ('Barometer', 89.0, 7);
    """,
    "orders": """
        CREATE TABLE orders (
            id INTEGER PRIMARY KEY,
            user_id INTEGER,
            product_id INTEGER,
            quantity INTEGER
        );
        INSERT INTO orders (user_id, product_id, quantity) VALUES
            (1, 1, 2),
            (2, 2, 1),
            (1, 4, 1),
            (4, 1, 1),
            (5, 2, 3);
    """,
}

# Limits on queries. Steps are those of SQLite's virtual machine: all of them take a few
# milliseconds, unless they call expensive functions. The limits on steps and on the
# size of a value, in bytes, also limit the memory of a query.
MAX_ROWS = 100
MAX_STEPS = 200_000
MAX_SECONDS = 0.5
MAX_VALUE = 4_000
# The number of steps between two checks of the limits.
STEPS_PER_CHECK = 200


class Rows(Struct):
    """What a query has found."""

    columns: list[str]
    rows: list[list[str | int | float | None]]
    truncated: Annotated[
        bool,
        Meta(description=f"Whether there are more than the {MAX_ROWS} rows given"),
    ]


@server.tool(
    description=(
        "Execute a SQL query on the database. "
        "It can only read: one SELECT, on built-in sample data.\n\n"
        "Each database has one table, named like it: users (id, name, city), "
        "products (id, name, price, stock),\n"
        "orders (id, user_id, product_id, quantity)."
    ),
    annotations=READS,
)
def query_database(
    query: str, database: Literal["users", "products", "orders"] = "users"
) -> Rows:
    """Execute a SQL query on one of the databases.

    This blocks, so it is not `async`: the server runs it in a worker thread.

    Args:
        query: SQL query to execute
        database: The database to execute it on
    """
    # Imported here because it is heavy, and most clients do not query.
    import sqlite3

    connection = open_database(database)
    try:
        cursor = connection.execute(query)
        if cursor.description is None:
            raise ToolError("The query is empty; expected a SELECT statement")
        found = cursor.fetchmany(MAX_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as problem:
        raise ToolError(explain(str(problem))) from None
    finally:
        connection.close()
    return Rows(
        columns=[column[0] for column in cursor.description],
        rows=[as_json(row) for row in found[:MAX_ROWS]],
        truncated=len(found) > MAX_ROWS,
    )


def as_json(
    row: tuple[str | int | float | bytes | None, ...],
) -> list[str | int | float | None]:
    """Return a row's values as JSON. Bytes become hexadecimal digits."""
    return [value.hex() if isinstance(value, bytes) else value for value in row]


def open_database(name: str) -> sqlite3.Connection:
    """Open a new copy of a database, for reading, with limits."""
    import sqlite3

    allowed = {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
    deadline = monotonic() + MAX_SECONDS
    checks = count(1)

    def authorize(action: int, *details: str | None) -> int:
        return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY

    def must_stop() -> bool:
        steps = next(checks) * STEPS_PER_CHECK
        return steps > MAX_STEPS or monotonic() > deadline

    connection = sqlite3.connect(":memory:")
    connection.executescript(DATABASES[name])
    connection.execute("PRAGMA query_only = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    connection.set_authorizer(authorize)
    connection.set_progress_handler(must_stop, STEPS_PER_CHECK)
    return connection


def explain(problem: str) -> str:
    """Rephrase an SQLite message that would not be understood on its own."""
    if problem == "interrupted":
        return "The query takes too long; ask for less"
    if "authoriz" in problem:
        return "The query does more than read; only SELECT is allowed here"
    return f"The query failed: {problem}"


# Sums and times


@server.tool(annotations=READS)
async def calculate_sum(a: float, b: float) -> float:
    """Add two numbers."""
    if not math.isfinite(a + b):
        raise ToolError("The sum is too large for a number")
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def get_current_time() -> str:
    """Returns the current server time (UTC, ISO 8601)."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@server.tool(annotations=READS)
async def count_slowly(
    ctx: Context,
    steps: Annotated[int, Meta(ge=1, le=100)] = 5,
    seconds: Annotated[float, Meta(ge=0, le=10)] = 1.0,
) -> str:
    """Count, telling the progress at each step. It can be cancelled.

    Args:
        steps: How far to count
        seconds: How long each step takes
    """
    for step in range(1, steps + 1):
        await trio.sleep(seconds)
        await ctx.progress(step, steps, f"step {step} of {steps}")
    return f"Counted to {steps}"


# Pictures and sounds


@server.tool(annotations=READS)
async def draw_gradient(size: Annotated[int, Meta(ge=1, le=256)] = 32) -> Image:
    """Draw a square that goes from blue to orange.

    Args:
        size: Its width and height in pixels
    """
    return Image(png(size), "image/png")


@server.tool(annotations=READS)
async def play_tone(hertz: Annotated[float, Meta(ge=50, le=3000)] = 440.0) -> Audio:
    """Play a tone for a fifth of a second.

    Args:
        hertz: How high it is
    """
    return Audio(wav(hertz), "audio/wav")


def png(size: int) -> bytes:
    """Return a square picture as a PNG file."""
    line = bytearray([0])  # Each line begins with the number of its filter: none.
    for x in range(size):
        shade = 255 * x // size
        line += bytes([shade, 96 + shade // 4, 255 - shade])
    depth = 8
    rgb = 2
    header = struct.pack(">IIBBBBB", size, size, depth, rgb, 0, 0, 0)
    pixels = zlib.compress(bytes(line) * size)
    signature = b"\x89PNG\r\n\x1a\n"
    return b"".join(
        [
            signature,
            png_chunk(b"IHDR", header),
            png_chunk(b"IDAT", pixels),
            png_chunk(b"IEND", b""),
        ]
    )


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """Return a part of a PNG file, with its length and its checksum."""
    length = struct.pack(">I", len(data))
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return length + kind + data + checksum


def wav(hertz: float, rate: int = 8000) -> bytes:
    """Return a short tone as a WAV file: one channel, with 8 bits per sample."""
    samples = bytearray()
    for at in range(rate // 5):
        level = math.sin(2 * math.pi * hertz * at / rate)
        samples.append(round(128 + 60 * level))
    pcm = 1
    channels = 1
    sample_size = 1
    header = struct.pack(
        "<4sIHHIIHH4sI",
        b"fmt ",
        16,
        pcm,
        channels,
        rate,
        rate * sample_size,
        sample_size,
        8 * sample_size,
        b"data",
        len(samples),
    )
    contents = b"WAVE" + header + samples
    return b"RIFF" + struct.pack("<I", len(contents)) + contents


# Asking the user


class Trip(Struct):
    """The form of plan_trip."""

    city: Annotated[str, Meta(description="Where to, of the sample's cities")]
    days: Annotated[int, Meta(description="For how many days", ge=1, le=30)] = 3


@server.tool(annotations=READS)
async def plan_trip(ctx: Context) -> str:
    """Ask the user where to travel, and say what to pack."""
    answer = await ctx.elicit("Where would you like to travel?", Trip)
    if answer.content is None:
        return "No trip, then."
    trip = answer.content
    weather = find_city(trip.city).weather
    clothes = "a coat" if weather.temperature < 18 else "light clothes"
    plan = f"{trip.days} days in {trip.city}: {weather.conditions}."
    return f"{plan} Pack {clothes}."


# Resources and prompts


@server.resource("demo://about", mime_type="text/markdown")
async def about() -> str:
    """What this server is."""
    heading = "# mcp_trio demo\n\nOne of everything, on sample data.\n\n"
    items = [f"- {describe(city)}\n" for city in SAMPLE.values()]
    return heading + "".join(items)


@server.resource("demo://logo.png", mime_type="image/png")
async def logo() -> bytes:
    """A square that goes from blue to orange."""
    return png(32)


@server.prompt(title="Write a postcard")
async def write_postcard(
    city: str, mood: Literal["cheerful", "homesick", "poetic"] = "cheerful"
) -> str:
    """Have a postcard written from one of the cities.

    Args:
        city: From where
        mood: In which mood
    """
    weather = describe(find_city(city, InvalidParams))
    return (
        f"Write a {mood} postcard from {city}, of at most fifty words. "
        f"Mention the weather: {weather}."
    )


@server.prompt(title="Compare the weather")
async def compare_weather(first: str, second: str) -> list[PromptMessage]:
    """Have the weather of two cities compared.

    Args:
        first: One city
        second: Another city
    """
    question = f"Which has the better weather, {first} or {second}?"
    cities = [find_city(name, InvalidParams) for name in (first, second)]
    weather = "\n".join(describe(city) for city in cities)
    return [
        PromptMessage("user", Text(question)),
        PromptMessage("assistant", Text(weather)),
        PromptMessage("user", Text("So, which one?")),
    ]


@server.complete("cities://{name}", "name")
@server.complete("write_postcard", "city")
@server.complete("compare_weather", "first")
async def complete_city(value: str) -> list[str]:
    """Return the cities whose names begin with a value."""
    return [name for name in SAMPLE if name.casefold().startswith(value.casefold())]


@server.complete("compare_weather", "second")
async def complete_second(value: str, others: dict[str, str]) -> list[str]:
    """Return the cities whose names begin with a value, except the first city."""
    names = await complete_city(value)
    return [name for name in names if name != others.get("first")]
