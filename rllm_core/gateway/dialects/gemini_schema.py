"""Gemini's schemas (OpenAPI 3.0 in upper case) as JSON schemas."""

from collections.abc import Mapping
from typing import Any

__all__ = ["json_schema"]

_DROPPED = frozenset({"nullable", "propertyOrdering", "property_ordering", "example"})
_LISTS = ("anyOf", "any_of", "oneOf", "allOf", "prefixItems")
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
"""64-bit numbers, which Google's JSON writes as texts."""


def json_schema(schema: Any) -> Any:
    """The same schema in JSON schema's words; what is no object is left as it is."""
    if not isinstance(schema, dict):
        return schema
    return _typed(schema) | {
        _NAMES.get(key, key): _value(key, value)
        for key, value in schema.items()
        if key not in _DROPPED and key != "type"
    }


_NAMES = {"any_of": "anyOf"}


def _typed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The type, in lower case; a nullable one is a choice."""
    kind = schema.get("type")
    if isinstance(kind, list):
        return {"type": [k.lower() if isinstance(k, str) else k for k in kind]}
    if not isinstance(kind, str) or kind == "TYPE_UNSPECIFIED":
        return {}
    return {"type": [kind.lower(), "null"] if schema.get("nullable") is True else kind.lower()}


def _value(key: str, value: Any) -> Any:
    if key in ("items", "additionalProperties"):
        return json_schema(value)
    if key in ("properties", "$defs", "defs") and isinstance(value, dict):
        return {name: json_schema(each) for name, each in value.items()}
    if key in _LISTS and isinstance(value, list):
        return [json_schema(each) for each in value]
    if key in _COUNTS and isinstance(value, str) and value.isdecimal():
        return int(value)
    return value
