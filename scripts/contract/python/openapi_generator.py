"""Publishes, pulls and settles with the client of openapi-generator's python."""

import os
import sys

from weir_openapi_generator import ApiClient, Configuration, MessagesApi, Pull, QueuesApi, Settle, SettleOutcome

name = sys.argv[1]
client = ApiClient(Configuration(host=os.environ["WEIR_URL"]))
published = MessagesApi(client).publish_message("default", name, {"order": 7}, message_key="k")
assert not published.duplicate
queues = QueuesApi(client)
[delivery] = queues.pull_messages("default", name, pull=Pull(max=1, wait_ms=5_000)).messages
assert (delivery.key, delivery.data) == ("k", {"order": 7}), delivery
[settled] = queues.settle_messages("default", name, settle=Settle(ack=[delivery.lease])).results
assert settled.result == SettleOutcome.SETTLE_OUTCOME_OK, settled
