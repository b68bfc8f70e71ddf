"""Producers belong to who opened them, and transactional ids to who may use them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.http_access import TOPIC, Answer, Guarded, guarded
from txaware.errors import NotAuthorized, ProducerFenced
from txaware.model.producers import ProducerIdentity

PRODUCERS = "/v1/producers"
FORGET = PRODUCERS + "/forget"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path, max_producers_per_principal=2) as found:
        yield found


def opens(site: Guarded, name: str, transactional_id: str | None = None) -> Answer:
    body = {"transactionalId": transactional_id}
    return site.caller(name).ask("POST", PRODUCERS, body)


def publishes(site: Guarded, name: str, opened: Any, *, epoch: int = 0) -> Answer:
    body = {
        **{"producerId": opened["producerId"], "epoch": epoch, "sequence": 0},
        "messages": [name],
    }
    return site.caller(name).ask("POST", TOPIC + "/publish-once", body)


def stored(site: Guarded) -> list[bytes]:
    return [message.payload for message in site.messaging.poll("orders")]


def test_a_producer_of_somebody_else_is_as_one_that_nobody_opened(
    site: Guarded,
) -> None:
    opened = opens(site, "writer").json
    unknown = publishes(site, "rival", {"producerId": 5})
    for epoch in (0, 1):
        taken = publishes(site, "rival", opened, epoch=epoch)
        assert (taken.status, taken.json["error"]) == (409, "ProducerFenced")
        own = taken.json["message"].replace(str(opened["producerId"]), "5")
        assert own == unknown.json["message"]
    stolen = ProducerIdentity(opened["producerId"], by_client=True)
    url, token = site.server.url, site.tokens["rival"]
    with txaware.connect(url, token=token) as rival, pytest.raises(ProducerFenced):
        rival._producers.publish_once("orders", [b"r"], producer=stolen, sequence=0)
    assert stored(site) == []
    assert publishes(site, "writer", opened).status == 200
    assert stored(site) == [b"writer"]


def test_the_producer_of_an_id_is_for_those_that_may_use_the_id(site: Guarded) -> None:
    opened = opens(site, "loader", "loader-7").json
    assert publishes(site, "writer", opened).json["error"] == "ProducerFenced"
    url, token = site.server.url, site.tokens["writer"]
    with txaware.connect(url, token=token) as writer:
        for name in ("loader-7", "writer-1"):
            with pytest.raises(NotAuthorized, match="transactional id"):
                writer.producer(name)
        with pytest.raises(NotAuthorized, match="transactional id 'loader-7'"):
            writer.forget_producer(opened["producerId"])
    assert stored(site) == []
    assert site.messaging.producer("loader-7").epoch == 1


def test_an_id_is_forgotten_by_who_may_use_it_and_not_by_who_used_it_first(
    site: Guarded,
) -> None:
    opened = opens(site, "loader", "loader-7").json
    other = {"loader": "holder", "holder": "loader"}  # who has whose rules from now on
    rules = re.sub(
        r"principals\.(loader|holder)(?=[].])",
        lambda found: f"principals.{other[found[1]]}",
        site.tokens_file.read_text(),
    )
    site.tokens_file.write_text(rules)
    site.server.reload()
    named = {"producerId": opened["producerId"]}
    refused = site.caller("holder").ask("POST", FORGET, named)
    assert refused.status == 403
    assert "transactional id 'loader-7'" in refused.json["message"]
    assert site.messaging.producer("loader-7").epoch == 1
    assert site.caller("loader").ask("POST", FORGET, named).status == 200
    assert site.messaging.producers() == []


def test_a_principal_has_so_many_producers_and_ids_at_most(site: Guarded) -> None:
    first = opens(site, "loader").json["producerId"]
    assert opens(site, "loader", "loader-1").status == 200
    for name in (None, "loader-2"):
        refused = opens(site, "loader", name)
        assert refused.status == 403
        assert "max_producers_per_principal" in refused.json["message"]
    assert opens(site, "loader", "loader-1").json["epoch"] == 1  # it has that one
    assert opens(site, "writer").status == 200  # others have their own
    body = {"producerId": first}
    assert site.caller("writer").ask("POST", FORGET, body).status == 403
    assert site.caller("loader").ask("POST", FORGET, body).status == 200
    assert opens(site, "loader", "loader-2").status == 200
