"""Consumers, the positions of their groups, and the loop that feeds a handler."""

from txaware.consume.consumer import Consumer, consumer_of
from txaware.consume.inbox import Inbox
from txaware.consume.loop_plan import subscribe
from txaware.consume.member import Member
from txaware.consume.subscribe_options import Delivery, SubscriberMetrics
from txaware.consume.subscriber import Subscriber

__all__ = [
    "Consumer",
    "Delivery",
    "Inbox",
    "Member",
    "Subscriber",
    "SubscriberMetrics",
    "consumer_of",
    "subscribe",
]
