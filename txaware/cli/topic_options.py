"""What the verbs of `txaware topic` share: options, names, and how a topic reads."""

import click

from txaware.cli.show import NOTHING
from txaware.topics import DEFAULT_NAMESPACE, Topic, TopicName

namespace_option = click.option(
    "--namespace",
    help="The namespace of names without one; as `namespace:name`.",
    default=DEFAULT_NAMESPACE,
    show_default=True,
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line."
)


def full_name(name: str, namespace: str) -> str:
    """With its namespace, where it names none."""
    return name if ":" in name else str(TopicName(name, namespace))


def topic_json(topic: Topic) -> dict[str, object]:
    """A topic as `--json` prints it."""
    return {
        "topic": str(topic.topic),
        "generation": topic.generation,
        "ttl_s": topic.ttl_s,
        "properties": dict(topic.properties),
    }


def properties_text(topic: Topic) -> str:
    """`a=1, b=2`."""
    pairs = sorted(topic.properties.items())
    return ", ".join(f"{key}={value}" for key, value in pairs) or NOTHING
