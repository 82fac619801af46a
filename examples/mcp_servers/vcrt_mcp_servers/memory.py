"""The knowledge graph server: ``npm install -g @modelcontextprotocol/server-memory``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from vcrt.environments.mcp import McpEnvironment
from vcrt.hashing import Json
from vcrt.randomness import Generator
from vcrt_mcp_servers.sampling import SampledServer, one_of, schemas


class MemoryServer(McpEnvironment):
    """Keeps a graph of entities, relations and observations in one file, which it reads for each call."""

    name = "memory"
    command = ("mcp-server-memory",)
    env: ClassVar[Mapping[str, str]] = {"MEMORY_FILE_PATH": "{state}/memory.jsonl"}
    restart = False


NAMES = ("Ann", "Bob", "Acme")
FACTS = ("likes tea", "is in Oslo", "is busy")


class Memory(MemoryServer, SampledServer):
    """The server with a sampler."""

    name = "mcp_memory"
    schemas = schemas(
        graph="entities, relations and observations are added and deleted",
        questions="the graph grows and is asked about",
    )
    drawn: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "graph": (
            *("create_entities", "create_entities", "create_relations", "add_observations"),
            *("delete_entities", "delete_observations", "delete_relations"),
        ),
        "questions": (
            *("create_entities", "create_relations", "add_observations", "read_graph"),
            *("search_nodes", "open_nodes", "delete_entities"),
        ),
    }

    def beginning(self, draw: Generator) -> Json:
        """An entity or two."""
        lines = [
            f'{{"type":"entity","name":"{name}","entityType":"node","observations":["{one_of(draw, FACTS)}"]}}'
            for name in NAMES
            if draw.random() < 0.7
        ]
        return {"memory.jsonl": "\n".join(lines)}

    def arguments(self, name: str, draw: Generator) -> dict[str, Json]:
        """Few entities and facts, so that calls meet."""
        one, other, fact = one_of(draw, NAMES), one_of(draw, NAMES), one_of(draw, FACTS)
        relation = {"from": one, "to": other, "relationType": "knows"}
        drawn: dict[str, dict[str, Json]] = {
            "create_entities": {
                "entities": [{"name": one, "entityType": "node", "observations": [fact]}]
            },
            "create_relations": {"relations": [relation]},
            "add_observations": {"observations": [{"entityName": one, "contents": [fact]}]},
            "delete_entities": {"entityNames": [one]},
            "delete_observations": {"deletions": [{"entityName": one, "observations": [fact]}]},
            "delete_relations": {"relations": [relation]},
            "search_nodes": {"query": one_of(draw, (*NAMES, "tea"))},
            "open_nodes": {"names": [one]},
        }
        return drawn.get(name, {})
