"""What schemathesis cannot know of Weir: where its requests find something, which refusals no schema can foresee, and
two forms of bodies. scripts/contract/run.sh names it in SCHEMATHESIS_HOOKS, and the product in WEIR_URL."""

import json
import os
import re
import zlib

import requests
import schemathesis
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.core.parameters import ParameterLocation
from schemathesis.openapi.checks import ContentDeserializationError, MalformedMediaType, RejectedPositiveData

URL = os.environ["WEIR_URL"]

# Refusals of requests that the document allows, as far as a schema can say it: code and field of the problem, and why.
# What is said of a field is matched from its name on. Nothing else is let pass.
BEYOND_A_SCHEMA = [
    ("invalid_cursor", "", "cursors, receipts and leases are made by the service: a pattern can only say their letters"),
    ("invalid_parameter", "filter|fair_by", "an expression has a grammar, which docs/api.md describes"),
    ("invalid_config", "filter|fair_by", "likewise"),
    ("invalid_config", "cors_origins", "addresses and ports have bounds, and a scheme's own port is left out"),
    ("invalid_config", "topics", "a pattern stands alone, and no topic is named twice"),
    ("invalid_config", "dlq", "it is none of the topics that are consumed"),
    ("invalid_config", "start", "`tail:` and offsets are for streams"),
    ("invalid_config", "default_confirm|min_confirm", "the default is not below the least"),
    ("not_supported", "", "of a stream some fields say nothing, and what a subscription keeps for life is not changed"),
    ("version_mismatch", "", "a condition that does not hold"),
    ("tail_mismatch", "", "a condition that does not hold"),
    ("exists", "", "a condition that does not hold"),
    ("snapshot_gone", "", "nothing from that time is kept"),
    ("offset_trimmed", "", "a position before the oldest message"),
    ("beyond_tail", "", "a position behind the newest message"),
    ("incarnation_gone", "", "another life of the topic"),
    ("compacted", "", "a message that compaction has dropped"),
    ("digest_mismatch", "", "the digest of another body"),
    ("unsupported_media_type", "", "a body that is encoded is not looked into"),
    ("invalid_header", "if-match|if-none-match", "given together, or tags of several partitions"),
    ("invalid_header", "producer-|idempotency-key", "a producer has three headers, and no key beside it"),
    ("invalid_header", "deliver-", "given together, more than a year ahead, or on February 30"),
    ("invalid_parameter", "partition|from|cursor|topic", "a position, a partition and a topic belong together"),
    ("invalid_parameter", "until|to|before|as_of|at: ", "an offset belongs to one partition; and February has no 30th"),
    ("invalid_parameter", "ids?: ", "16 digits may be more than 2^53 - 1"),
    ("invalid_parameter", "undo|name", "`undo` goes with `\"to\": \"undo\"`, and a fork is not called as what it forks"),
    ("invalid_parameter", "holder", "of a stream it is required"),
    ("malformed", ": the body holds no message", "a batch has at least one, and its lines are no array"),
    ("too_large", ": [0-9]+ leases", "the bound is that of all lists of a settle together"),
    ("malformed", "ack: nothing is settled", "messages are published with leases, not alone"),
    ("malformed", "data: |data_base64: |.*deliver_at", "one of the two; and February has no 30th"),
    ("malformed", "[a-z0-9]*: .*not a text, number or boolean", "an attribute of an event, whose type generators lack"),
]
# JSON Schema takes 1.0 for a whole number; Weir asks for 1, and says so at the top of the document.
FRACTION = re.compile(r"floating point `-?[0-9]+\.0`|floating point `[0-9.]+e[0-9]+`")


def problem_of(response):
    try:
        return json.loads(response.content)
    except ValueError:
        return {}


def is_as_said(case, name):
    """Whether a header is what the document says of it. In the phase of coverage some are not, as `0` for a tag."""
    for parameter in case.operation.definition.raw.get("parameters", []):
        pattern = parameter.get("schema", {}).get("pattern")
        if pattern and parameter["in"] == "header" and parameter["name"].lower() == name and name in case.headers:
            return re.search(pattern, str(case.headers[name])) is not None
    return True


@schemathesis.hook
def filter_failure(context, failure, case, response):
    if isinstance(failure, AcceptedNegativeData):
        if case.operation.definition.raw.get("operationId") == "publishMessage" and case.media_type == "application/json":
            return False  # any JSON value is a payload; the schema says an object for generators, and the text the rest
        # Any request may have headers that nobody reads.
        return "x-schemathesis-unknown-property" not in case.headers
    if isinstance(failure, (ContentDeserializationError, MalformedMediaType)):
        # A message is told as it was published, with the type that its publisher said, whatever that is.
        return case.operation.definition.raw.get("operationId") != "readMessage"
    if not isinstance(failure, RejectedPositiveData):
        return True
    if case.operation.label == "GET /v1/ws":
        return False  # an HTTP client does not ask for an upgrade
    problem = problem_of(response)
    code, detail = problem.get("code"), problem.get("detail", "")
    if FRACTION.search(detail):
        return False
    if not is_as_said(case, problem.get("field", "")):
        return False
    said = f"{problem.get('field', '')}: {detail}"
    return not any(code == known and re.match(fields, said) for known, fields, _ in BEYOND_A_SCHEMA)


def ask(method, path, body=None, **kwargs):
    answer = requests.request(method, URL + path, json=body, timeout=10, **kwargs)
    answer.raise_for_status()
    return answer


def prepare():
    """Something of everything, so that requests have something to do; the receipt of a message."""
    ask("PUT", "/v1/ns/shop", {"auto_create": True})
    for topic in ["orders", "scratch", "dead"]:
        ask("PUT", f"/v1/topics/{topic}", {"partitions": 2 if topic == "orders" else 1})
    for subscription in ["billing", "scratch"]:
        ask("PUT", f"/v1/subscriptions/{subscription}", {"topics": ["orders"], "dlq": "dead", "lease_ms": 1000})
    for number in range(200):
        answer = ask("POST", "/v1/topics/orders/messages", {"order": number}, headers={"Message-Key": f"k{number % 7}"})
    return answer.headers["Confirm-Receipt"]


RECEIPT = prepare()
FILTERS = ["key == 'k1'", "not header.region == 'eu*'", "content_type == 'application/json'"]
MANAGED = {"PUT", "PATCH", "DELETE"}


def is_fine(case, location):
    """Whether this part of a request is as the document says: only then it may be exchanged for another such."""
    component = case.meta.components.get(location) if case.meta else None
    return component is not None and component.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    """Three of four requests go to what is there; and none waits for long."""
    draw = zlib.crc32(repr((case.path_parameters, case.query, case.operation.label)).encode())
    if is_fine(case, ParameterLocation.PATH) and draw % 4:
        path, is_managed = case.path_parameters, case.operation.method.upper() in MANAGED
        is_of_topic = {"topic", "subscription"} & path.keys()
        there = {
            "ns": "default" if is_of_topic or case.operation.method.upper() == "GET" else "shop",
            "topic": "scratch" if is_managed or "trim" in case.operation.path else "orders",
            "subscription": "scratch" if is_managed else "billing",
            "partition": draw // 4 % 2,
            "offset": draw // 8 % 60,
            "receipt": RECEIPT,
        }
        for name in path.keys() & there.keys():
            path[name] = there[name]
    if case.query and is_fine(case, ParameterLocation.QUERY):
        if "filter" in case.query and draw % 3:
            case.query["filter"] = FILTERS[draw % len(FILTERS)]
        if "cursor" in case.query and draw % 3:
            del case.query["cursor"]
        if "wait" in case.query:
            case.query["wait"] = min(int(case.query["wait"]), 1)
        if "topic" in case.query and case.operation.path.endswith("/events"):
            case.query["topic"] = ["orders"]
        if "id" in case.query:
            case.query["id"] = f"{draw // 4 % 2}:{draw // 8 % 60}"
    body = case.body
    if isinstance(body, dict) and is_fine(case, ParameterLocation.BODY):
        if isinstance(body.get("wait_ms"), int):
            body["wait_ms"] = min(body["wait_ms"], 50)
        if isinstance(body.get("rate"), int):
            body["rate"] = max(body["rate"], 1_000)
        if isinstance(body.get("filter"), str) and draw % 3:
            body["filter"] = FILTERS[draw % len(FILTERS)]
        if isinstance(body.get("fair_by"), str) and draw % 3:
            body["fair_by"] = "header.tenant"


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    """The schema is that of a line."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@schemathesis.deserializer("application/x-ndjson")
def first_line(context, response):
    return json.loads(response.content.split(b"\n", 1)[0] or b"null")


# An event stream does not end: what has come by then is its answer.
STREAM_SECONDS = 0.2
STREAM_BYTES = 65_536
send = requests.adapters.HTTPAdapter.send


def send_and_look(self, request, stream=False, **kwargs):
    response = send(self, request, stream=True, **kwargs)
    if response.headers.get("Content-Type", "").startswith("text/event-stream"):
        response._content, response._content_consumed = beginning_of(response.raw), True
        response.close()
    elif not stream:
        response.content
    return response


def beginning_of(stream):
    connection = stream.connection
    if connection is not None and connection.sock is not None:
        connection.sock.settimeout(STREAM_SECONDS)
    seen = b""
    try:
        while len(seen) < STREAM_BYTES and (more := stream.read1(4_096)):
            seen += more
    except OSError:
        pass
    except requests.packages.urllib3.exceptions.HTTPError:
        pass
    return seen


requests.adapters.HTTPAdapter.send = send_and_look
