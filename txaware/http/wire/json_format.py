"""`application/json`, as the server sees it."""

import json

from txaware.http.formats.json_page import JsonArray, JsonPage
from txaware.http.formats.json_poll import read_poll
from txaware.http.formats.json_publish import (
    read_publish,
    read_response,
    receipt_fields,
    response_fields,
)
from txaware.http.wire.interfaces import PageWriter
from txaware.http.wire.requests import PollRequest, PublishRequest
from txaware.messages import PublishResponse, Receipt

JSON_TYPE = "application/json"


class JsonFormat:
    """The seeds' records as JSON, and what their Avro bodies cannot carry."""

    media_type = JSON_TYPE

    def publish_request(self, body: bytes) -> PublishRequest:
        """A PublishRequest; messages by Avro's rule, as UTF-8 or as base64."""
        return read_publish(body)

    def publish_response(self, response: PublishResponse) -> bytes:
        """A PublishResponse."""
        return json.dumps(response_fields(response)).encode()

    def receipt(self, receipt: Receipt) -> bytes:
        """A Receipt, as `publish_request` takes it."""
        return json.dumps(receipt_fields(receipt)).encode()

    def rollback_request(self, body: bytes) -> PublishResponse:
        """The PublishResponse of the publish to take back, flat or nested."""
        return read_response(body)

    def poll_request(self, body: bytes) -> PollRequest:
        """A ConsumeRequest."""
        return read_poll(body)

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Writes an array, or the whole page where it is asked for."""
        writer = JsonPage if request.page else JsonArray
        return writer(request.payload_as)


JSON = JsonFormat()
