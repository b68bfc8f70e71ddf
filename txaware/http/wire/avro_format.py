"""The three Avro types, as the server sees them."""

from txaware.http.wire.avro_reading import read
from txaware.http.wire.avro_requests import (
    read_own_poll,
    read_own_publish,
    read_poll,
    read_publish,
    read_response,
    write_receipt,
    write_response,
)
from txaware.http.wire.avro_writing import AvroPage, OwnPage
from txaware.http.wire.columnar import ColumnarWriter
from txaware.http.wire.interfaces import PageWriter
from txaware.http.wire.requests import PollRequest, PublishRequest
from txaware.http.wire.schemas import AVRO_TYPE, COLUMNS_TYPE, OWN_TYPE
from txaware.messages import PublishResponse, Receipt

PUBLISH, ROLLBACK, POLL = "the PublishRequest", "the PublishResponse", "the poll"


class CdapAvro:
    """`avro/binary`: the bodies of CDAP, byte for byte, and nothing more."""

    media_type = AVRO_TYPE

    def publish_request(self, body: bytes) -> PublishRequest:
        """Reads a PublishRequest of pointer and messages."""
        return read(body, read_publish, what=PUBLISH)

    def publish_response(self, response: PublishResponse) -> bytes:
        """Writes a PublishResponse."""
        return write_response(response)

    def receipt(self, receipt: Receipt) -> bytes:
        """Writes nothing: CDAP answers a store with an empty body."""
        return b""

    def rollback_request(self, body: bytes) -> PublishResponse:
        """Reads the PublishResponse of the publish to take back."""
        return read(body, read_response, what=ROLLBACK)

    def poll_request(self, body: bytes) -> PollRequest:
        """Reads a ConsumeRequest."""
        return read(body, read_poll, what=POLL)

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a ConsumeResponse."""
        return AvroPage()


class OwnAvro(CdapAvro):
    """`application/vnd.txaware+avro`: CDAP's bodies, and what they cannot carry."""

    media_type = OWN_TYPE

    def publish_request(self, body: bytes) -> PublishRequest:
        """Reads a PublishRequest with expiry, attempt and receipts."""
        return read(body, read_own_publish, what=PUBLISH)

    def receipt(self, receipt: Receipt) -> bytes:
        """Writes a Receipt."""
        return write_receipt(receipt)

    def poll_request(self, body: bytes) -> PollRequest:
        """Reads a PollRequest."""
        return read(body, read_own_poll, what=POLL)

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a PollResponse."""
        return OwnPage()


class ColumnarAvro(OwnAvro):
    """`application/vnd.txaware.columns+avro`: the same, but for pages of columns."""

    media_type = COLUMNS_TYPE

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a PollResponse of columns."""
        return ColumnarWriter()


AVRO = CdapAvro()
OWN = OwnAvro()
COLUMNS = ColumnarAvro()
