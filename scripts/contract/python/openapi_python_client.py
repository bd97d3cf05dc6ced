"""Publishes, pulls and settles with the client of openapi-python-client."""

import os
import sys
from io import BytesIO

from weir_python_client.api.messages import publish_message
from weir_python_client.api.queues import pull_messages, settle_messages
from weir_python_client.client import Client
from weir_python_client.models import Pull, Published, Settle, SettleOutcome
from weir_python_client.types import File

name = sys.argv[1]
client = Client(base_url=os.environ["WEIR_URL"])
body = File(payload=BytesIO(b"\x00\x01"))
published = publish_message.sync("default", name, client=client, body=body, message_key="k")
assert isinstance(published, Published) and not published.duplicate, published
pulled = pull_messages.sync("default", name, client=client, body=Pull(max_=1, wait_ms=5_000))
[delivery] = pulled.messages
assert (delivery.key, delivery.data_base64) == ("k", "AAE="), delivery
settled = settle_messages.sync("default", name, client=client, body=Settle(ack=[delivery.lease]))
assert settled.results[0].result == SettleOutcome.SETTLE_OUTCOME_OK, settled
