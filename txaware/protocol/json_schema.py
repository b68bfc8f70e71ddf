"""JSON Schema in few words: the pieces that all bodies are described with."""

from typing import Any

from coordinator.transaction import LONGEST_TIMEOUT_S

Schema = dict[str, Any]

LONG_MIN, LONG_MAX, INT_MAX = -(2**63), 2**63 - 1, 2**31 - 1
TOPIC, NAMESPACE, GROUP = "^[A-Za-z0-9_-]+$", "^[A-Za-z0-9_]+$", "^[A-Za-z0-9_.-]+$"
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
FULL_NAME: Schema = {
    "type": "string",
    "pattern": "^([A-Za-z0-9_]+:)?[A-Za-z0-9_-]+$",
}
BYTES: Schema = {"type": "string", "format": "binary"}
HEX_ID: Schema = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{40}$",
    "description": "A message id: 20 bytes as hex digits.",
}
LATIN_1: Schema = {
    "type": "string",
    "pattern": "^[\\u0000-\\u00ff]*$",
    "description": "Bytes by Avro's rule: one character for each, up to U+00FF.",
}
BASE64: Schema = {
    "type": "string",
    "contentEncoding": "base64",
    "pattern": ("^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"),
}

# A time-out of a transaction.
TIMEOUT_S: Schema = {
    "type": "number",
    "exclusiveMinimum": 0,
    "maximum": LONGEST_TIMEOUT_S,
}


def whole(least: int = LONG_MIN, most: int = LONG_MAX) -> Schema:
    """Describes a whole number in that range."""
    return {"type": "integer", "minimum": least, "maximum": most}


POINTER = whole(1)


def tagged(kind: str, schema: Schema) -> Schema:
    """Describes a branch of Avro's unions, plain or as {kind: it}."""
    return any_of(schema, fields({kind: schema}))


def any_of(*schemas: Schema) -> Schema:
    """Describes one of these schemas, or several."""
    return {"anyOf": list(schemas)}


def or_null(schema: Schema) -> Schema:
    """Describes a value of this schema, or null."""
    return any_of(schema, NULL)


def array(items: Schema, **more: Any) -> Schema:
    """Describes an array."""
    return {"type": "array", "items": items, **more}


def fields(
    required: dict[str, Schema],
    optional: dict[str, Schema] | None = None,
    *,
    others: bool | Schema = False,
) -> Schema:
    """Describes an object; unnamed fields are refused unless `others` has them."""
    found: Schema = {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "additionalProperties": others,
    }
    if required:
        found["required"] = list(required)
    return found


def ref(name: str) -> Schema:
    """Refers to a schema that has a name in the document."""
    return {"$ref": f"#/components/schemas/{name}"}
