"""requests and httpx against the REST proxy over TLS: HTTP/1.1 and HTTP/2, compressed both ways.

usage: http_clients.py URL CA
"""

import asyncio
import gzip
import json
import ssl
import sys

import httpx
import requests

url, ca = sys.argv[1:]
media = "application/vnd.kafka.json.v2+json"
plain = {"Content-Type": "application/vnd.kafka.v2+json"}
body = json.dumps({"records": [{"value": {"n": n}} for n in range(2_000)]}).encode()
packed = {"Content-Type": media, "Content-Encoding": "gzip"}


def by_requests():
    # requests asks for gzip by itself.
    session = requests.Session()
    session.verify = ca
    # Otherwise a variable of whoever runs this says whom to believe.
    session.trust_env = False
    answer = session.post(f"{url}/topics/python", data=gzip.compress(body), headers=packed)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Encoding"] == "gzip", answer.headers
    assert len(answer.json()["offsets"]) == 2_000


async def many_at_once(client):
    async def call():
        answer = await client.post(
            f"{url}/topics/python", content=gzip.compress(body), headers=packed
        )
        assert answer.http_version == "HTTP/2", answer.http_version
        assert answer.status_code == 200, answer.text
        return [offset["offset"] for offset in answer.json()["offsets"]]

    answers = await asyncio.gather(*(call() for _ in range(50)))
    offsets = [offset for answer in answers for offset in answer]
    assert sorted(offsets) == list(range(2_000, 102_000)), len(offsets)


async def large_both_ways(client):
    """A large body and a large answer pass the windows."""
    large = {"records": [{"value": "x" * 1_000_000} for _ in range(12)]}
    answer = await client.post(f"{url}/topics/large", json=large, headers={"Content-Type": media})
    assert answer.status_code == 200, answer.text
    settings = {"format": "json", "auto.offset.reset": "earliest"}
    made = await client.post(f"{url}/consumers/g", content=json.dumps(settings), headers=plain)
    instance = made.json()["base_uri"]
    topics = json.dumps({"topics": ["large"]})
    await client.post(f"{instance}/subscription", content=topics, headers=plain)
    read = 0
    while read < 12:
        answer = await client.get(
            f"{instance}/records?max_bytes=20000000&timeout=10000", headers={"Accept": media}
        )
        assert answer.status_code == 200, answer.text
        assert answer.headers.get("Content-Encoding") == "gzip" or not answer.json()
        for record in answer.json():
            assert record["value"] == "x" * 1_000_000
            read += 1
    await client.delete(instance)


async def by_httpx():
    context = ssl.create_default_context(cafile=ca)
    async with httpx.AsyncClient(
        http2=True, verify=context, timeout=30, trust_env=False
    ) as client:
        await many_at_once(client)
        await large_both_ways(client)


by_requests()
asyncio.run(by_httpx())
