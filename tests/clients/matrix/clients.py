"""The clients of the matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Client:
    """A client from another project, and the results that are expected."""

    name: str
    title: str
    language: str
    packages: tuple[str, ...]
    """What is installed, with versions. The first is the client itself."""
    driver: str
    """The file or the folder of the driver, in `drivers`."""
    runs: Mapping[str, tuple[str, ...]] = field(hash=False)
    """The revisions that it uses on each transport."""
    is_core: bool = False
    """Whether CI runs it."""
    faults: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What fails by the client's own fault, and why.

    The key is a feature, or a feature and where it fails: `feature transport/revision`,
    `feature transport` or `feature revision`.
    """
    sometimes: frozenset[str] = frozenset()
    """The keys of the faults that do not always show."""


HANDSHAKE = ("2025-11-25",)
NEWEST = ("2026-07-28",)
BOTH = ("2025-11-25", "2026-07-28")
FIRST_PAGE = "reads only the first page of a list"
NO_CANCELLATION = "does not tell the server that a call was cancelled"
NO_QUESTIONS = "does not answer requests of the server on this transport"

CLIENTS = [
    Client(
        "python-1",
        "Python SDK 1.x",
        "Python",
        ("mcp[ws]==1.30.0",),
        "python_sdk_1.py",
        {"stdio": HANDSHAKE, "http": HANDSHAKE, "sse": HANDSHAKE, "ws": HANDSHAKE},
        is_core=True,
        faults={
            "cancellation": NO_CANCELLATION,
        },
    ),
    Client(
        "python-2",
        "Python SDK 2.x",
        "Python",
        ("mcp==2.3.0",),
        "python_sdk_2.py",
        {"stdio": BOTH, "http": BOTH, "sse": HANDSHAKE},
        is_core=True,
    ),
    Client(
        "typescript-1",
        "TypeScript SDK 1.x",
        "TypeScript",
        ("@modelcontextprotocol/sdk@1.32.2",),
        "sdk_1.mjs",
        {"stdio": HANDSHAKE, "http": HANDSHAKE, "sse": HANDSHAKE, "ws": HANDSHAKE},
        is_core=True,
    ),
    Client(
        "typescript-2",
        "TypeScript SDK 2.x",
        "TypeScript",
        ("@modelcontextprotocol/client@2.4.0",),
        "sdk_2.mjs",
        {"stdio": BOTH, "http": BOTH, "sse": HANDSHAKE},
        is_core=True,
    ),
    Client(
        "go-sdk",
        "Go SDK",
        "Go",
        ("github.com/modelcontextprotocol/go-sdk@v1.8.0",),
        "go_sdk",
        {"stdio": BOTH, "http": BOTH, "sse": HANDSHAKE},
        is_core=True,
    ),
    Client(
        "mcp-go",
        "mcp-go",
        "Go",
        ("github.com/mark3labs/mcp-go@v1.2.1",),
        "mcp_go",
        {"stdio": BOTH, "http": BOTH, "sse": HANDSHAKE},
        faults={
            "cancellation http/2025-11-25": NO_CANCELLATION,
            "cancellation sse": NO_CANCELLATION,
            "elicitation sse": NO_QUESTIONS,
            "sampling sse": NO_QUESTIONS,
            "roots sse": NO_QUESTIONS,
        },
    ),
    Client(
        "rmcp",
        "Rust SDK",
        "Rust",
        ("rmcp@3.8.0",),
        "rmcp",
        {"stdio": BOTH, "http": BOTH},
        is_core=True,
    ),
    Client(
        "java",
        "Java SDK",
        "Java",
        ("io.modelcontextprotocol.sdk:mcp:2.1.0",),
        "java",
        {"stdio": HANDSHAKE, "http": HANDSHAKE, "sse": ("2024-11-05",)},
        faults={
            "parallel_calls stdio": "sometimes fails to send requests at the same time: `Failed to enqueue message`",
            "resumption": "does not come back after the server has closed the stream of a call",
        },
        sometimes=frozenset({"parallel_calls stdio"}),
    ),
    Client(
        "fastmcp",
        "FastMCP",
        "Python",
        ("fastmcp-slim[client]==4.1.6", "mcp==2.3.0"),
        "fastmcp_driver.py",
        {"stdio": BOTH, "http": BOTH, "sse": HANDSHAKE},
    ),
    Client(
        "langchain",
        "LangChain",
        "Python",
        ("langchain-mcp-adapters==0.3.2", "mcp[ws]==1.30.0"),
        "langchain_driver.py",
        {"stdio": HANDSHAKE, "http": HANDSHAKE},
        faults={
            "content_types": "refuses audio in results: it raises NotImplementedError",
        },
    ),
    Client(
        "pydantic-ai",
        "Pydantic AI",
        "Python",
        ("pydantic-ai-slim[mcp]==2.66.0", "mcp==2.3.0"),
        "pydantic_ai_driver.py",
        {"stdio": NEWEST, "http": NEWEST},
    ),
    Client(
        "openai-agents",
        "OpenAI Agents",
        "Python",
        ("openai-agents==0.24.0", "mcp==2.3.0"),
        "openai_agents_driver.py",
        {"http": NEWEST},
    ),
    Client(
        "ai-sdk",
        "AI SDK",
        "TypeScript",
        ("@ai-sdk/mcp@2.0.99", "ai@7.0.173"),
        "ai_sdk.mjs",
        {"stdio": NEWEST, "http": NEWEST, "sse": HANDSHAKE},
    ),
    Client(
        "openai-agents-js",
        "OpenAI Agents",
        "TypeScript",
        ("@openai/agents@0.20.0", "zod"),
        "openai_agents.mjs",
        {"stdio": NEWEST, "http": NEWEST, "sse": HANDSHAKE},
    ),
    Client(
        "mastra",
        "Mastra",
        "TypeScript",
        ("@mastra/mcp@2.0.0", "@mastra/core", "zod"),
        "mastra.mjs",
        {"stdio": NEWEST, "http": NEWEST},
    ),
    Client(
        "mcporter",
        "mcporter",
        "TypeScript",
        ("mcporter@0.12.3",),
        "mcporter.mjs",
        {"stdio": HANDSHAKE, "http": HANDSHAKE},
    ),
    Client(
        "mcp-remote",
        "mcp-remote",
        "TypeScript",
        ("mcp-remote@0.15.1", "@modelcontextprotocol/sdk@1.32.2"),
        "mcp_remote.mjs",
        {"http": HANDSHAKE, "sse": HANDSHAKE},
    ),
    Client(
        "inspector",
        "Inspector",
        "TypeScript",
        ("@modelcontextprotocol/inspector@2.12.0",),
        "inspector.mjs",
        {"stdio": HANDSHAKE, "http": HANDSHAKE},
    ),
    Client(
        "llama-index",
        "LlamaIndex",
        "Python",
        ("llama-index-tools-mcp==0.6.0", "mcp==2.3.0"),
        "llama_index_driver.py",
        {"http": HANDSHAKE},
        faults={
            "pagination": FIRST_PAGE,
        },
    ),
    Client(
        "smolagents",
        "smolagents",
        "Python",
        ("smolagents[mcp]==1.26.0", "mcpadapt==0.1.19", "mcp[ws]==1.30.0"),
        "smolagents_driver.py",
        {"http": HANDSHAKE},
        faults={
            "pagination": FIRST_PAGE,
        },
    ),
    Client(
        "strands",
        "Strands Agents",
        "Python",
        ("strands-agents==1.62.0", "mcp==2.1.1"),
        "strands_driver.py",
        {"http": NEWEST},
    ),
    Client(
        "mcp-use",
        "mcp-use",
        "Python",
        ("mcp-use==1.7.1", "mcp==1.30.0"),
        "mcp_use_driver.py",
        {"http": HANDSHAKE},
        faults={
            "pagination": FIRST_PAGE,
        },
    ),
    Client(
        "haystack",
        "Haystack",
        "Python",
        ("mcp-haystack==2.1.1", "mcp==2.3.0"),
        "haystack_driver.py",
        {"http": HANDSHAKE},
        faults={
            "pagination": FIRST_PAGE,
        },
    ),
    Client(
        "autogen",
        "AutoGen",
        "Python",
        ("autogen-ext[mcp]==0.7.5", "mcp==1.30.0"),
        "autogen_driver.py",
        {"http": HANDSHAKE},
        faults={
            "pagination": FIRST_PAGE,
        },
    ),
    Client(
        "agno",
        "Agno",
        "Python",
        ("agno==3.1.10", "fastmcp-slim[client]==4.1.6", "mcp==2.3.0"),
        "agno_driver.py",
        {"http": HANDSHAKE},
    ),
    Client(
        "semantic-kernel",
        "Semantic Kernel",
        "Python",
        ("semantic-kernel[mcp]==1.45.0", "mcp==1.30.0"),
        "semantic_kernel_driver.py",
        {"http": HANDSHAKE},
        faults={
            "pagination": FIRST_PAGE,
            "content_types": "fails when a result has a resource link",
        },
    ),
    Client(
        "google-adk",
        "Google ADK",
        "Python",
        ("google-adk[mcp]==2.13.0", "mcp==2.3.0"),
        "google_adk_driver.py",
        {"http": HANDSHAKE},
        faults={
            "pagination": FIRST_PAGE,
        },
    ),
    Client(
        "crewai",
        "CrewAI",
        "Python",
        ("crewai-tools[mcp]==1.15.30", "mcpadapt==0.1.19", "mcp==1.30.0"),
        "crewai_driver.py",
        {"http": HANDSHAKE},
        faults={
            "pagination": FIRST_PAGE,
        },
    ),
]
