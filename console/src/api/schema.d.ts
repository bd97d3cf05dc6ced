// Written by `npm run gen` from openapi/openapi.json. Do not edit.
export interface paths {
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Whether the process answers
         * @description Needs the grant `status`.
         */
        get: operations["readHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Metrics in the Prometheus text format
         * @description Needs the grant `metrics`.
         */
        get: operations["readMetrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * This document
         * @description Needs the grant `status`.
         */
        get: operations["readOpenapi"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Whether requests would be served: storage is reachable and the gateway is not draining
         * @description Needs the grant `status`.
         */
        get: operations["readReadiness"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Version, limits, levels
         * @description Needs the grant `status`.
         */
        get: operations["describeService"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List namespaces
         * @description Needs the grant `list`.
         */
        get: operations["listNamespaces"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a namespace
         * @description Needs the grant `describe`.
         */
        get: operations["readNamespace"];
        /**
         * Create a namespace
         * @description Idempotent. If the namespace exists with other settings the answer is 409 `config_mismatch`; with `If-Match` its settings are replaced instead.
         *
         *     Needs the grant `manage`.
         */
        put: operations["createNamespace"];
        post?: never;
        /**
         * Delete a namespace that has no topics and no subscriptions
         * @description Needs the grant `manage`.
         */
        delete: operations["deleteNamespace"];
        options?: never;
        head?: never;
        /**
         * Change a namespace
         * @description Needs the grant `manage`.
         */
        patch: operations["updateNamespace"];
        trace?: never;
    };
    "/v1/ns/{ns}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow several topics as server-sent events
         * @description The events are `message` (a record with its `topic`), `caught-up`, `looked` (with a filter: everything below was looked at), `gap`, `firm`, `retract`, `goaway` and `end`. The `id` of an event is an opaque cursor over all topics. A message that is not committed yet has `final: false` and a `term`. A comment is sent every 15 s.
         *
         *     Needs the grant `subscribe`.
         */
        get: operations["followEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List subscriptions
         * @description Errors: `namespace_not_found`, `invalid_cursor`.
         *
         *     Needs the grant `list`.
         */
        get: operations["listSubscriptions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a subscription: configuration, and what is ready, leased, delayed and dead
         * @description Errors: `subscription_not_found`.
         *
         *     Needs the grant `describe`.
         */
        get: operations["readSubscription"];
        /**
         * Create a subscription: topics as a work queue
         * @description Idempotent. If the subscription exists with another configuration the answer is 409 `config_mismatch`; with `If-Match` its configuration is replaced instead, except `mode`, `topics`, `start` and `order`, which cannot change.
         *
         *     Also needs the grant `subscribe` on the topics (on every topic that a pattern can match) and `publish` on the dead letter topic. A dead letter topic that does not exist is created if the namespace has `auto_create`.
         *
         *     Errors: `topic_not_found`, `invalid_config`, `invalid_name`, `unknown_field`, `not_supported`, `config_mismatch`, `version_mismatch`.
         *
         *     Needs the grant `manage`.
         */
        put: operations["createSubscription"];
        post?: never;
        /**
         * Delete a subscription with its leases; the topic's messages stay
         * @description Errors: `subscription_not_found`, `version_mismatch`, `incarnation_gone`.
         *
         *     Needs the grant `manage`.
         */
        delete: operations["deleteSubscription"];
        options?: never;
        head?: never;
        /**
         * Change a subscription's configuration
         * @description Fields that are left out keep their values. Leases that are held keep their deadlines.
         *
         *     Errors: `subscription_not_found`, `invalid_config`, `invalid_name`, `unknown_field`, `version_mismatch`, `incarnation_gone`, `not_supported` for another mode, start or order, or other topics.
         *
         *     Needs the grant `manage`.
         */
        patch: operations["updateSubscription"];
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}/dlq": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the dead letters that were not redriven
         * @description In the order of partition and offset in the topic that the subscription consumes, whether or not there is a dead letter topic.
         *
         *     Errors: `subscription_not_found`, `partition_not_found`, `incarnation_gone` if the topic was deleted, `invalid_cursor`, `unavailable`.
         *
         *     Needs the grant `describe`.
         */
        get: operations["listDeadLetters"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}/explain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Say where one message stands, and why
         * @description Changes nothing.
         *
         *     Errors: `subscription_not_found`, `partition_not_found`, `incarnation_gone` if the topic was deleted, `invalid_parameter`, `unavailable`.
         *
         *     Needs the grant `describe`.
         */
        get: operations["explainMessage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}/leases": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List what is leased and what waits for its time
         * @description In the order of partition and offset. Listing leases nothing.
         *
         *     Errors: `subscription_not_found`, `partition_not_found`, `incarnation_gone` if the topic was deleted, `invalid_cursor`, `unavailable`.
         *
         *     Needs the grant `describe`.
         */
        get: operations["listLeases"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}/state": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the messages that are ready, leased, delayed, blocked or dead
         * @description In the order of partition and offset. Listing leases and changes nothing. One page looks at no more than 65,536 messages of a partition, so it may contain fewer items than the limit, or none, and still have a `next`.
         *
         *     Errors: `subscription_not_found`, `partition_not_found`, `incarnation_gone` if the topic was deleted, `invalid_cursor`, `invalid_parameter`, `unavailable`.
         *
         *     Needs the grant `describe`.
         */
        get: operations["listMessagesOfState"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}:fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fork a subscription: another that begins as this one stands, or stood
         * @description The fork consumes the same topics in the same mode. It begins with what was settled, dead and attempted in the original at that instant; messages leased in the original are ready in the fork. Nothing is copied, and from then on the two are independent. Messages that retention has removed since do not come back.
         *
         *     Idempotent: an existing subscription that began differently, or has another configuration, is 409 `config_mismatch`. If a partition no longer keeps the state of that instant the answer is 410 `snapshot_gone`, and no fork is left behind; a partition that a topic pattern added later never had such a state.
         *
         *     Needs the grant `manage` on both subscriptions, and otherwise the same grants as creating one.
         *
         *     Errors: `subscription_not_found`, `incarnation_gone` if the topic was deleted, `version_mismatch`, `snapshot_gone`, `config_mismatch`, `not_supported` for another mode, other topics, another start or order, `invalid_parameter`, `invalid_config`, `invalid_name`, `unknown_field`, `topic_not_found`, `unavailable`. With the outcome `unknown` the fork may or may not exist: send the request again.
         *
         *     Needs the grant `manage`.
         */
        post: operations["forkSubscription"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}:pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Lease no more messages
         * @description Messages that are leased can still be settled. The same as setting `"paused": true` in the configuration.
         *
         *     Errors: `subscription_not_found`, `version_mismatch`, `incarnation_gone`.
         *
         *     Needs the grant `manage`.
         */
        post: operations["pauseSubscription"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}:pull": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Lease messages
         * @description Leases messages to the caller. A message that is not settled before its lease ends is delivered again.
         *
         *     `wait_ms` waits for the first message. If none comes the answer is 200 with an empty list. With `scope` set to `partition` all messages come from one partition, which a settle that publishes requires.
         *
         *     On a stream, `holder` is required. The holder receives, in order, what follows its last acknowledged message, from the partitions that no other holder reads.
         *
         *     Errors: `subscription_not_found`, `incarnation_gone` if the topic was deleted, `invalid_parameter`, `unknown_field`, `unavailable`.
         *
         *     Needs the grant `consume`.
         */
        post: operations["pullMessages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}:purge": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Settle everything that waits, without delivering it
         * @description Settles everything published so far that is ready, leased, delayed or blocked, forgets the dead letters, and ends all leases. With `what` set to `dead` only the dead letters are forgotten, and no lease ends.
         *
         *     The messages stay in their topic and in other subscriptions. Dead letters that are on their way to the dead letter topic still arrive there.
         *
         *     The answer contains `undo`, to be sent in a seek with `to` set to `undo`. That ends leases even if only dead letters come back, and it does not restore messages that retention by `until_settled` has removed since.
         *
         *     Errors: `subscription_not_found`, `incarnation_gone` if the topic was deleted, `version_mismatch`, `not_supported` for dead letters of a stream, `invalid_parameter`, `unknown_field`, `busy` during another seek or purge (never for dead letters alone), `unavailable`. With the outcome `unknown` some partitions may have been purged: purge again, or undo those with the problem's `undo`.
         *
         *     Needs the grant `manage`.
         */
        post: operations["purgeSubscription"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}:redrive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Deliver dead letters once more
         * @description Makes dead letters ready again where they are, in the topic that this subscription consumes and for this subscription alone; attempts are counted from zero. Copies in the dead letter topic stay there. Redriving a letter twice has no further effect.
         *
         *     Errors: `subscription_not_found`, `partition_not_found`, `incarnation_gone` if the topic was deleted, `version_mismatch`, `invalid_cursor`, `invalid_parameter`, `unknown_field`, `unavailable`. With the outcome `unknown` some may have been redriven.
         *
         *     Needs the grant `manage`.
         */
        post: operations["redriveDeadLetters"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}:resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Lease messages again
         * @description Errors: `subscription_not_found`, `version_mismatch`, `incarnation_gone`.
         *
         *     Needs the grant `manage`.
         */
        post: operations["resumeSubscription"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}:seek": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Move a subscription: deliver again, or skip
         * @description Moves the subscription to a position. Everything from there on is delivered again, including what was settled or dead; everything before it is settled. Leases end, and attempts are counted from zero.
         *
         *     The answer contains `undo`. A seek with `to` set to `undo` and that value restores what stood before, together with what was settled since the latest seek or purge, but not what was settled between earlier ones; after an undo, only what was settled of messages published later. Repeating an undo delivers again what was settled before the first. Each partition keeps its latest four seeks and purges; a purge of dead letters alone can be undone until the next seek or other purge.
         *
         *     Errors: `subscription_not_found`, `incarnation_gone` if the topic was deleted, `version_mismatch`, `invalid_parameter`, `snapshot_gone` if what is to be undone is no longer kept, `busy` during another seek or purge, `unavailable`. With the outcome `unknown` some partitions may have moved; the problem contains an `undo` for those.
         *
         *     Needs the grant `manage`.
         */
        post: operations["seekSubscription"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/subscriptions/{subscription}:settle": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Settle leases: ack, nack, extend, dead; publish what came of them
         * @description Settles up to 10,000 leases. The answer comes once the result is durable; sending the same request again has no further effect. A lease that has ended can still be settled until its message is delivered to somebody else.
         *
         *     On a stream, an ack acknowledges everything up to its message; any other action is `not_supported`.
         *
         *     With `publish`, the leases are settled and the messages are published in one atomic step, exactly once: either both happen, or neither does and the problem has the outcome `none`. All leases must be of one partition and still be held (otherwise `lease_lost`), and none may be extended. The messages go to topics of the same namespace, and each topic needs the grant `publish`. At most 1,000 messages and 3 MiB.
         *
         *     The answer waits until the messages are confirmed, at most for `Confirm-Deadline-Ms`. With 202 some have not arrived yet, and their receipts tell when they have. After `outcome_unknown`, send the request again: `lease_lost` then means that the messages were settled, and it shows what was published by whoever settled them.
         *
         *     Errors: `subscription_not_found`, `incarnation_gone` if the topic was deleted, `invalid_cursor` for something that is no lease, `invalid_parameter`, `unknown_field`, `too_large`, `unavailable`; with `publish` also `topic_not_found`, `topic_closed`, `not_supported` for leases of several partitions, `busy` while too much is on its way, `journal_full`.
         *
         *     Needs the grant `consume`.
         */
        post: operations["settleMessages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/topics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List topics
         * @description Needs the grant `list`.
         */
        get: operations["listTopics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/topics/{topic}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a topic: configuration, partitions, rates
         * @description Needs the grant `describe`.
         */
        get: operations["readTopic"];
        /**
         * Create a topic
         * @description Idempotent. If the topic exists with another configuration the answer is 409 `config_mismatch`; with `If-Match` its configuration is replaced instead.
         *
         *     Needs the grant `manage`.
         */
        put: operations["createTopic"];
        post?: never;
        /**
         * Delete a topic with all its messages
         * @description Needs the grant `manage`.
         */
        delete: operations["deleteTopic"];
        options?: never;
        head?: never;
        /**
         * Change a topic's configuration
         * @description Fields that are left out keep their values; `null` removes a limit.
         *
         *     Needs the grant `manage`.
         */
        patch: operations["updateTopic"];
        trace?: never;
    };
    "/v1/ns/{ns}/topics/{topic}/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read messages, or follow them as server-sent events
         * @description `Accept` chooses the form. Reading at the end of the topic gives an empty page, reading beyond it 416, and reading below the oldest message 410.
         *
         *     With `Accept: text/event-stream` the answer does not end. Its events are `message`, `caught-up`, `looked`, `gap`, `firm`, `retract`, `goaway` and `end`. The parameters `limit`, `max_bytes`, `wait`, `until`, `clamp` and `incarnation` do not apply; a start below the oldest message is told as a `gap`.
         *
         *     Needs the grant `subscribe`.
         */
        get: operations["readMessages"];
        put?: never;
        /**
         * Publish one message
         * @description The body is the payload, of any type; its schema says an object where it is JSON, but any JSON value is taken. Of a length of 0 it is an empty message. It is stored unchanged, with its `Content-Type` and `Content-Encoding`. `Message-Header-X: y` stores the user header `x: y`.
         *
         *     CloudEvents: `ce-*` headers are stored as attributes; a body of `application/cloudevents+json` is one event in structured mode.
         *
         *     Needs the grant `publish`.
         */
        post: operations["publishMessage"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/topics/{topic}/messages/{partition}/{offset}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read one message
         * @description The body is the payload as it was published, with its `Content-Type` and `Content-Encoding`. Payloads of up to 16 MiB in gzip or zstd are decoded for clients that do not accept that encoding. The key and the user headers are in `Message-Key` and `Message-Header-*`; `Message-Left-Out` names those that no header can tell. With `Accept: application/cloudevents+json` it is one structured CloudEvent.
         *
         *     Needs the grant `subscribe`.
         */
        get: operations["readMessage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/topics/{topic}/messages:batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Publish many messages
         * @description Each line of NDJSON is one `BatchLine`: the schema is that of a line. Results are in the order of the input. A batch without a message is refused. Headers that describe a single message (`Message-Key`, `Message-Header-*`, `Message-TTL-Ms`, `Deliver-*`) are refused by name, because each message carries its own.
         *
         *     Errors: `unsupported_media_type` for any other form, and for a `Content-Encoding`; `not_supported` for `Idempotency-Key`, `If-Match` and `If-None-Match`, which are about one message.
         *
         *     Needs the grant `publish`.
         */
        post: operations["publishBatch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/topics/{topic}/producers/{producer}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What the topic knows of a producer
         * @description `{producer}` is the id, percent-encoded.
         *
         *     Needs the grant `publish`.
         */
        get: operations["readProducer"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/topics/{topic}/receipts/{receipt}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Resolve or upgrade a confirm
         * @description Needs the grant `publish`.
         */
        get: operations["readReceipt"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ns/{ns}/topics/{topic}:trim": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Remove a topic's oldest messages for good
         * @description Removes them for all readers and subscriptions, on disk and in the object store. Offsets do not change. This cannot be undone. Trimming what is already gone is not an error.
         *
         *     `If-Match`, and whether the topic is closed, are checked before the trim begins: a change made at that very moment may be missed.
         *
         *     Errors: `topic_not_found`, `partition_not_found`, `beyond_tail` for an offset beyond the end, `topic_closed`, `invalid_parameter`, `unknown_field`, `unavailable`; with `If-Match` also `version_mismatch` and `incarnation_gone`. With the outcome `unknown` some partitions may have been trimmed: trim again.
         *
         *     Needs the grant `manage`.
         */
        post: operations["trimTopic"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ws": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Publish, follow and consume over one WebSocket
         * @description The subprotocol is `weir.v1.json` or `weir.v1.bin`. Every `open` and `sub` on the connection is authorised separately.
         *
         *     Needs the grant `connect`.
         */
        get: operations["openWebSocket"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description One line of an NDJSON batch. Exactly one of `data` and `data_base64`. */
        BatchLine: {
            /** @description Key. */
            key?: string | null;
            /** @description User headers. */
            headers?: {
                [key: string]: string;
            };
            /**
             * @description Content type; the topic's by default. If it has none: `application/json` with `data` (also if the topic's is
             *     neither JSON nor text), `application/octet-stream` with `data_base64`.
             */
            content_type?: string | null;
            /**
             * @description The payload as a JSON value; with the content type of a text (`text/*`, XML and others, as in a page) it is a
             *     string, which means its text.
             */
            data?: unknown;
            /** @description The payload in Base64. */
            data_base64?: string | null;
            /** @description Not to be delivered by queue subscriptions before this time (RFC 3339). */
            deliver_at?: string | null;
            /**
             * Format: int64
             * @description Time to live for queue subscriptions, in milliseconds.
             */
            ttl_ms?: number | null;
            /** @description W3C trace context; the request's by default. */
            traceparent?: string | null;
            /** @description W3C trace context, vendor part; the request's by default, unless `traceparent` is given. */
            tracestate?: string | null;
        };
        /** @description The answer to a batch, one result per message in input order. */
        BatchPublished: {
            /** @description What became of each message. */
            results: components["schemas"]["BatchResult"][];
            /** @description The level that all accepted messages have reached. */
            level: components["schemas"]["Level"];
        };
        /** @description What became of one message of a batch. */
        BatchResult: {
            /**
             * Format: int64
             * @description Partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Its offset; absent at level `none`, and of a repeat of so long ago that its place is forgotten.
             */
            offset?: number;
            /** @description It had been accepted before; nothing was added. */
            duplicate?: boolean;
        } | {
            /** @description Why. */
            problem: components["schemas"]["Problem"];
        };
        /**
         * @description Which caches may keep what never changes.
         * @enum {string}
         */
        Cache: "private" | "public";
        /**
         * @description An event in the JSON format of CloudEvents 1.0. What else it has are extension attributes: texts, numbers
         *     and booleans with names of `a`–`z` and `0`–`9`. At most one of `data` and `data_base64`; `null` is as if
         *     it were left out, except for `data`.
         * @example {
         *       "data": {
         *         "total": 10
         *       },
         *       "datacontenttype": "application/json",
         *       "id": "7",
         *       "source": "/shop",
         *       "specversion": "1.0",
         *       "type": "order.placed"
         *     }
         */
        CloudEvent: {
            /** @description `1.0`. */
            specversion: string;
            /** @description Unique for the source. */
            id: string;
            /** @description Where it happened, a URI reference. */
            source: string;
            /** @description What happened. */
            type: string;
            /** @description What of the source it is about. */
            subject?: string | null;
            /** @description When it happened (RFC 3339). */
            time?: string | null;
            /** @description Media type of the data; `application/json` if there is none. */
            datacontenttype?: string | null;
            /** @description Schema of the data, a URI. */
            dataschema?: string | null;
            /** @description The message's key. */
            partitionkey?: string | null;
            /** @description The payload, if it is JSON or a text. */
            data?: unknown;
            /** @description Any other payload in Base64. */
            data_base64?: string | null;
        } & {
            [key: string]: unknown;
        };
        /**
         * @description Whether older records of a key are dropped.
         * @enum {string}
         */
        Compaction: "none" | "key";
        /** @description What a day like the last one costs, at the gateway's prices. */
        CostPerDay: {
            /**
             * Format: double
             * @description Keeping what there is now.
             */
            stored: number;
            /**
             * Format: double
             * @description Writing.
             */
            puts: number;
            /**
             * Format: double
             * @description Reading and comparing.
             */
            gets: number;
            /**
             * Format: double
             * @description All three.
             */
            total: number;
            /** @description The prices. */
            prices: components["schemas"]["StoragePrices"];
        };
        /** @description How things stand. Only what belongs to the code is present. */
        Current: {
            /**
             * Format: int64
             * @description Partition that the positions below are of.
             */
            partition?: number;
            /**
             * Format: int64
             * @description End of the partition (`beyond_tail`, `tail_mismatch`).
             */
            tail?: number;
            /** @description Tail tag for `If-Match` (`tail_mismatch`), or the tag of the configuration (`version_mismatch`). */
            etag?: string;
            /**
             * Format: int64
             * @description Earliest offset that still exists (`offset_trimmed`).
             */
            earliest?: number;
            /**
             * Format: int64
             * @description No message before it exists; mostly it is the next that does, or the end (`compacted`).
             */
            next?: number;
            /**
             * Format: int64
             * @description Sequence number the producer was expected to send (`producer_gap`).
             */
            expected_seq?: number;
            /**
             * Format: int64
             * @description Highest sequence number accepted (`seq_overlap`, `seq_too_old`).
             */
            last_seq?: number;
            /**
             * Format: int64
             * @description The producer's current epoch (`stale_epoch`).
             */
            epoch?: number;
            /**
             * Format: int64
             * @description Current incarnation of the topic (`incarnation_gone`).
             */
            incarnation?: number;
            /**
             * Format: int64
             * @description Current version of the configuration (`version_mismatch`).
             */
            config_version?: number;
            /**
             * Format: int64
             * @description Delivery that took a lost lease's place, its number among those of the message (`lease_lost`).
             */
            attempt?: number;
            /**
             * Format: int64
             * @description Its fence (`lease_lost`).
             */
            fence?: number;
        };
        /**
         * @description An object that messages of a partition could not be read from: it is gone, or not what was written. Told
         *     from a read that failed until one of the same messages works, none of them is needed any more, or the
         *     storage node is restarted.
         */
        DamagedObject: {
            /** @description Its name in the store, below the prefix of `--object-store`. */
            object: string;
            /** @description What happened. */
            why: string;
            /**
             * Format: int64
             * @description The partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Offset of the first message that cannot be read.
             */
            from: number;
            /**
             * Format: int64
             * @description One past the last.
             */
            to: number;
            /**
             * Format: int64
             * @description How often reading failed.
             */
            times: number;
            /**
             * Format: int64
             * @description When it failed first, milliseconds since the epoch.
             */
            first_ms: number;
            /**
             * Format: int64
             * @description When it failed last.
             */
            last_ms: number;
        };
        /** @description How long idempotency keys are remembered. */
        Dedupe: {
            /**
             * Format: int64
             * @description Milliseconds. 600,000 by default.
             * @default 600000
             */
            window_ms: number;
        };
        /** @description How long idempotency keys are remembered. */
        DedupeSettings: {
            /**
             * Format: int64
             * @description Milliseconds. 600,000 by default.
             * @default 600000
             */
            window_ms: number | null;
        };
        /**
         * @description The levels from which a message may be delivered. Others are refused by name where a configuration is checked.
         * @enum {string}
         */
        DeliverFrom: "memory" | "quorum";
        /** @description A message that was leased. */
        Delivery: components["schemas"]["Record"] & {
            /**
             * @description Partition and offset; of a subscription to several topics the topic before them: `orders:0:76531`.
             * @example 0:76531
             */
            id: string;
            /** @description Settle it with this. */
            lease: string;
            /**
             * Format: int64
             * @description Grows with every delivery: what a database compares, so that an older delivery cannot undo a newer one.
             */
            fence: number;
            /**
             * Format: int64
             * @description Deliveries of this message so far, this one included.
             */
            attempt: number;
            /**
             * Format: int64
             * @description How long it is leased from now on, milliseconds.
             */
            lease_expires_in_ms: number;
        };
        /** @description A message that is given up. */
        Dismissal: {
            /** @description The lease. */
            lease: string;
            /** @description Why, stored with the dead letter; at most 1 KiB. */
            reason?: string;
        };
        /**
         * @description Where one message stands, and why. Asking changes nothing.
         * @example {
         *       "ahead": 12,
         *       "attempts": 2,
         *       "end": 80000,
         *       "id": "0:76531",
         *       "offset": 76531,
         *       "partition": 0,
         *       "pulled_ms_ago": 250,
         *       "reasons": [
         *         "window_full"
         *       ],
         *       "start": 0,
         *       "state": "ready"
         *     }
         */
        Explained: components["schemas"]["LeasedRecord"] & {
            /** @description What keeps it from being leased; none if nobody has asked for it yet, or somebody has it. */
            reasons: components["schemas"]["Hindrance"][];
            /**
             * Format: int64
             * @description Unsettled messages before it in its partition.
             */
            ahead: number;
            /**
             * Format: int64
             * @description How long ago somebody pulled, milliseconds; `null`: not since the partition's leader began.
             */
            pulled_ms_ago?: number | null;
            /**
             * Format: int64
             * @description The partition's oldest offset.
             */
            start: number;
            /**
             * Format: int64
             * @description One past its newest.
             */
            end: number;
        };
        /** @description A delivery that takes longer. */
        Extension: {
            /** @description The lease. */
            lease: string;
            /**
             * Format: int64
             * @description How long it is held, milliseconds from now; the subscription's `lease_ms` by default.
             */
            ms?: number;
        };
        /**
         * @description Forks a subscription.
         * @example {
         *       "at": "snap_6f2c9d1e00a47b35",
         *       "config": {
         *         "paused": true
         *       },
         *       "name": "billing-replay"
         *     }
         */
        ForkSubscription: {
            /** @description Name of the new subscription, in the same namespace. */
            name: string;
            /**
             * @description As it stood when: `now`; the `undo` of a seek: right before that; or `ts:` and RFC 3339 or
             *     milliseconds: then, or at the newest instant before that each partition keeps (`forked_at_ms` of the
             *     answer's `parts`).
             * @default now
             */
            at: string | null;
            /**
             * @description What is configured otherwise than the subscription that is forked. `mode`, `topics`, `start` and
             *     `order` are its own.
             */
            config?: components["schemas"]["SubscriptionPatch"];
        };
        /** @description What a subscription began as. */
        ForkedFrom: {
            /** @description The subscription's name then. */
            name: string;
            /**
             * Format: int64
             * @description Its life.
             */
            id: number;
            /** @description As it was asked for: `now`, when the fork was made, the `undo` of a seek, or a time. */
            at: string;
        };
        /**
         * @description What keeps a message from being leased.
         * @enum {string}
         */
        Hindrance: "paused" | "window_full" | "no_consumer" | "comes_again_full" | "look_ahead_full" | "filtered" | "expired" | "scheduled" | "in_line" | "seeking" | "compacted" | "exhausted";
        /**
         * @description A page of what is leased and what waits for its time, by partition and offset.
         * @example {
         *       "items": [
         *         {
         *           "age_ms": 17956,
         *           "attempts": 1,
         *           "fence": 981,
         *           "holder": "worker-7",
         *           "id": "0:76531",
         *           "lease_expires_in_ms": 12044,
         *           "offset": 76531,
         *           "partition": 0,
         *           "state": "leased"
         *         }
         *       ],
         *       "next": null
         *     }
         */
        LeasePage: {
            /** @description The messages. */
            items: components["schemas"]["LeasedRecord"][];
            /** @description Pass as `cursor` for the next page; `null` on the last. */
            next?: string | null;
            /**
             * Format: int64
             * @description With `as_of`: the instant of which the page tells, milliseconds since the epoch, the earliest where
             *     its partitions differ. The newest that is kept and not after what was asked for; absent where it is
             *     not known.
             */
            as_of_ms?: number;
        };
        /** @description A message that is leased, or that waits for its time. */
        LeasedRecord: {
            /** @description Partition and offset; of a subscription to several topics the topic before them. */
            id: string;
            /** @description Its topic, of a subscription to several. */
            topic?: string;
            /**
             * Format: int64
             * @description Partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Offset.
             */
            offset: number;
            /**
             * Format: int64
             * @description Deliveries so far; 0 of a message that is settled or dead. A dead letter has its number in `weir-dead-attempts`.
             */
            attempts: number;
            /** @description Who holds it, if they said so. */
            holder?: string;
            /**
             * Format: int64
             * @description Fence of the delivery that holds it.
             */
            fence?: number;
            /**
             * Format: int64
             * @description How long it is held from now on, milliseconds.
             */
            lease_expires_in_ms?: number;
            /**
             * Format: int64
             * @description How long it has been held, milliseconds.
             */
            age_ms?: number;
            /**
             * Format: int64
             * @description It is not leased, and waits this much longer, milliseconds.
             */
            delayed_ms?: number;
            /** @description Where it stands. */
            state: components["schemas"]["MessageState"];
            /** @description The message that holds its key. */
            blocked_by?: string;
        };
        /**
         * @description How safe a record is. Ordered: each level includes those before it.
         * @enum {string}
         */
        Level: "none" | "memory" | "durable" | "quorum" | "archived";
        /** @description Sizes in bytes, times in milliseconds. */
        Limits: {
            /**
             * Format: int64
             * @description Largest payload of one message.
             */
            record_bytes: number;
            /**
             * Format: int64
             * @description Largest body of a batch.
             */
            batch_bytes: number;
            /**
             * Format: int64
             * @description Most messages of a batch.
             */
            batch_records: number;
            /**
             * Format: int64
             * @description What the record batches of one request come to when they are decoded.
             */
            batch_decoded_bytes: number;
            /**
             * Format: int64
             * @description Largest atomic batch.
             */
            atomic_batch_bytes: number;
            /**
             * Format: int64
             * @description Longest key.
             */
            key_bytes: number;
            /**
             * Format: int64
             * @description Most user headers of a message.
             */
            headers: number;
            /**
             * Format: int64
             * @description User headers of a message, names and values together.
             */
            headers_bytes: number;
            /**
             * Format: int64
             * @description Longest producer id or idempotency key.
             */
            client_id_bytes: number;
            /**
             * Format: int64
             * @description Most messages of one read.
             */
            read_records: number;
            /**
             * Format: int64
             * @description Most bytes of one read.
             */
            read_bytes: number;
            /**
             * Format: int64
             * @description Longest wait of a read.
             */
            wait_ms: number;
            /**
             * Format: int64
             * @description Longest delivery delay.
             */
            delay_ms: number;
            /**
             * Format: int64
             * @description Most topics of one event stream.
             */
            sse_topics: number;
            /**
             * Format: int64
             * @description Most channels of one WebSocket.
             */
            ws_channels: number;
            /**
             * Format: int64
             * @description Largest WebSocket message a client may send.
             */
            ws_message_bytes: number;
            /**
             * Format: int64
             * @description Most partitions of a topic.
             */
            partitions: number;
            /**
             * Format: int64
             * @description How long idempotency keys are remembered unless the topic says otherwise.
             */
            dedupe_window_ms: number;
            /**
             * Format: int64
             * @description How long an idle producer is remembered.
             */
            producer_idle_ms: number;
            /**
             * Format: int64
             * @description Longest `Confirm-Deadline-Ms`.
             */
            confirm_deadline_ms: number;
            /**
             * Format: int64
             * @description Most header fields of one request.
             */
            request_headers: number;
            /**
             * Format: int64
             * @description Header fields of one request, names and values together.
             */
            request_headers_bytes: number;
            /**
             * Format: int64
             * @description Most connections to this gateway at once.
             */
            connections: number;
            /**
             * Format: int64
             * @description Largest JSON body of a topic's, namespace's or subscription's configuration.
             */
            config_bytes: number;
            /**
             * Format: int64
             * @description Shortest lease.
             */
            lease_ms_min: number;
            /**
             * Format: int64
             * @description Longest lease.
             */
            lease_ms: number;
            /**
             * Format: int64
             * @description Most messages of one pull.
             */
            pull_records: number;
            /**
             * Format: int64
             * @description Most bytes of one pull.
             */
            pull_bytes: number;
            /**
             * Format: int64
             * @description Most leases of one settle.
             */
            settle_leases: number;
            /**
             * Format: int64
             * @description Largest body of a settle, and of a redrive.
             */
            settle_bytes: number;
            /**
             * Format: int64
             * @description Most messages that one settle publishes.
             */
            settle_outputs: number;
            /**
             * Format: int64
             * @description Most bytes of the messages that one settle publishes, as record batches, with the reasons of its leases.
             */
            settle_output_bytes: number;
            /**
             * Format: int64
             * @description Largest body of a settle that publishes.
             */
            settle_publish_bytes: number;
            /**
             * Format: int64
             * @description Longest reason of a nack or a dead letter.
             */
            settle_reason_bytes: number;
            /**
             * Format: int64
             * @description Longest `holder` of a pull.
             */
            holder_bytes: number;
            /**
             * Format: int64
             * @description Most messages that a subscription may have leased at once.
             */
            unacked: number;
            /**
             * Format: int64
             * @description Most delays of a subscription's `backoff_ms`.
             */
            backoff_steps: number;
            /**
             * Format: int64
             * @description Most topics that a subscription names.
             */
            subscription_topics: number;
            /**
             * Format: int64
             * @description Most partitions of the topics that a subscription names; of one with a pattern, in each shard.
             */
            subscription_partitions: number;
            /**
             * Format: int64
             * @description Most subscriptions with a pattern in one namespace, of those at home in one shard.
             */
            subscription_patterns: number;
            /**
             * Format: int64
             * @description Longest filter.
             */
            filter_bytes: number;
            /**
             * Format: int64
             * @description Most levels of parentheses and `not` in a filter.
             */
            filter_depth: number;
            /**
             * Format: int64
             * @description Most messages that one redrive takes.
             */
            redrive_records: number;
        };
        /**
         * @description Where a message stands for a subscription.
         * @enum {string}
         */
        MessageState: "ready" | "leased" | "delayed" | "blocked" | "settling" | "filtered" | "settled" | "dead" | "trimmed" | "absent" | "unknown";
        /**
         * @description How the messages of a topic reach those who take them.
         * @enum {string}
         */
        Mode: "queue" | "stream";
        /** @description A namespace: a set of topics with common settings. */
        Namespace: {
            /** @description Name. `default` always exists. */
            name: string;
            /** @description Publishing to a topic that does not exist creates it with the defaults. */
            auto_create: boolean;
            /** @description Browser origins that may use it, exact (`https://app.example`). */
            cors_origins: string[];
            /** @description `cache` of topics that are made in it and say nothing. */
            cache: components["schemas"]["Cache"];
            /**
             * Format: int64
             * @description From 1, raised by every change. Also in the `ETag`.
             */
            version: number;
        };
        /** @description A page of namespaces, in name order. */
        NamespacePage: {
            /** @description The namespaces. */
            items: components["schemas"]["Namespace"][];
            /** @description Pass as `cursor` for the next page; `null` on the last. */
            next?: string | null;
        };
        /** @description Changes to a namespace. Fields that are left out stay. */
        NamespacePatch: {
            /** @description Publishing to a topic that does not exist creates it with the defaults. */
            auto_create?: boolean | null;
            /** @description Browser origins that may use it, as browsers send them. */
            cors_origins?: string[] | null;
            /** @description `cache` of topics that are made in it from now on and say nothing. */
            cache?: components["schemas"]["Cache"] | null;
        };
        /** @description What an administrator sets. Fields that are left out take their default. */
        NamespaceSettings: {
            /**
             * @description Publishing to a topic that does not exist creates it with the defaults.
             * @default false
             */
            auto_create: boolean | null;
            /**
             * @description Browser origins that may use it, as browsers send them: `https://app.example`, `http://10.0.0.7:8080`.
             *     There is no wildcard.
             */
            cors_origins?: string[] | null;
            /**
             * @description `cache` of topics that are made in it and say nothing; it changes none that is there. `private` by default.
             * @default private
             */
            cache: components["schemas"]["Cache"] | null;
        };
        /** @description Where to read on. */
        Next: number | string;
        /**
         * @description In which order messages are leased.
         * @enum {string}
         */
        Order: "none" | "key";
        /**
         * @description A message that a settle publishes. Exactly one of `data` and `data_base64`.
         * @example {
         *       "data": {
         *         "order": 7,
         *         "total": 10
         *       },
         *       "key": "cust-42",
         *       "topic": "invoices"
         *     }
         */
        OutputMessage: {
            /** @description Topic in the subscription's namespace. */
            topic: string;
            /** @description Key. */
            key?: string | null;
            /** @description User headers. */
            headers?: {
                [key: string]: string;
            };
            /** @description Content type; by default as in a batch line. */
            content_type?: string | null;
            /**
             * @description The payload as a JSON value; with the content type of a text (`text/*`, XML and others, as in a page) it is a
             *     string, which means its text.
             */
            data?: unknown;
            /** @description The payload in Base64. */
            data_base64?: string | null;
            /** @description Not to be delivered by queue subscriptions before this time (RFC 3339). */
            deliver_at?: string | null;
            /**
             * Format: int64
             * @description Time to live for queue subscriptions, in milliseconds.
             */
            ttl_ms?: number | null;
            /** @description W3C trace context. */
            traceparent?: string | null;
            /** @description W3C trace context, vendor part. */
            tracestate?: string | null;
        };
        /** @description A partition. Its records are `[start, end)`. */
        Partition: {
            /**
             * Format: int64
             * @description Its number, from 0.
             */
            partition: number;
            /**
             * Format: int64
             * @description Oldest offset that exists; `null` while its shard cannot be reached.
             */
            start?: number | null;
            /**
             * Format: int64
             * @description End of what is committed, exclusive; `null` while its shard cannot be reached.
             */
            end?: number | null;
            /**
             * Format: int64
             * @description Encoded bytes between the two; `null` while its shard cannot be reached.
             */
            bytes?: number | null;
            /**
             * Format: int64
             * @description The shard that holds it.
             */
            shard: number;
            /** @description Where its messages are; absent in lists, without an object store, and while its shard cannot be reached. */
            storage?: components["schemas"]["PartitionStorage"];
        };
        /** @description Where the messages of a partition are. In offset order: cold, archived, uploading, local. */
        PartitionStorage: {
            /**
             * Format: int64
             * @description One past the last offset that is only in the object store.
             */
            cold_to: number;
            /**
             * Format: int64
             * @description One past the last offset that is in the object store.
             */
            archived_to: number;
            /**
             * Format: int64
             * @description One past the last offset that is on its way there.
             */
            uploading_to: number;
            /**
             * Format: int64
             * @description Encoded bytes that are only in the object store.
             */
            cold_bytes: number;
            /**
             * Format: int64
             * @description Encoded bytes that are in the object store and still on the node's disk.
             */
            archived_bytes: number;
            /**
             * Format: int64
             * @description Encoded bytes that are on their way to the object store.
             */
            uploading_bytes: number;
            /**
             * Format: int64
             * @description Encoded bytes that are only on the node's disk.
             */
            local_bytes: number;
            /**
             * Format: int64
             * @description Age of the oldest committed message that is not in the object store, in milliseconds; 0 if all are.
             */
            upload_lag_ms: number;
        };
        /**
         * @description Why a request was refused or failed, whether it had an effect, and what the client needs to go on.
         *     Sent with every error answer, in WebSocket `err` and `reject` frames, and per item of a mixed batch.
         */
        Problem: {
            /**
             * @description URI that identifies the kind: `urn:weir:problem:…`, or an IANA-registered one for 429 and 503.
             * @example urn:weir:problem:topic-not-found
             */
            type: string;
            /** @description One line for people, the same for every occurrence of the code. */
            title: string;
            /**
             * Format: int64
             * @description The HTTP status.
             */
            status: number;
            /**
             * @description The stable text to match on.
             * @example topic_not_found
             */
            code: string;
            /** @description What exactly was wrong this time. */
            detail: string;
            /** @description `none`: provably no effect. `applied`: it took effect. `unknown`: ask the receipt or the producer. */
            outcome: components["schemas"]["ProblemOutcome"];
            /** @description True if the same request may succeed later without being changed. */
            retryable: boolean;
            /**
             * Format: int64
             * @description When a retry makes sense, in milliseconds from now.
             */
            retry_after_ms?: number | null;
            /**
             * @description Identifies the request in logs; also in the header `X-Request-Id`. In WebSocket frames the connection,
             *     as `sid` of its `welcome`. Empty for items of a batch.
             */
            request_id: string;
            /** @description How things stand, where that helps to go on. */
            current?: components["schemas"]["Current"];
            /** @description The field, parameter or header that was refused; a header in lower case. */
            field?: string;
            /**
             * Format: int64
             * @description The limit that was exceeded, in the unit that `detail` names.
             */
            limit?: number;
            /** @description The grant that is missing, as `operation resource`. */
            missing_grant?: string;
            /**
             * @description Of a seek or purge that may have had an effect: what undoes it where it has, as `undo` of a seek.
             * @example snap_6f2c9d1e00a47b35
             */
            undo?: string;
            /**
             * @description With 429: what was exceeded. `pub`: the publish budget, as in `RateLimit-Policy`; `concurrency`: how many of a
             *     kind may be open or waiting at once; `dedupe`: memory for producers and idempotency keys.
             */
            "violated-policies"?: string[];
        };
        /**
         * @description Whether a refused or failed request had an effect.
         * @enum {string}
         */
        ProblemOutcome: "none" | "applied" | "unknown";
        /** @description A producer as the partitions know it. */
        Producer: {
            /** @description Its id. */
            id: string;
            /** @description Its state on every partition that has seen it. */
            partitions: components["schemas"]["ProducerPartition"][];
        };
        /** @description A producer as one partition knows it. */
        ProducerPartition: {
            /**
             * Format: int64
             * @description Partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Its epoch.
             */
            epoch: number;
            /**
             * Format: int64
             * @description Highest sequence number accepted.
             */
            last_seq: number;
            /**
             * Format: int64
             * @description Offset of the record with that number.
             */
            last_offset: number;
        };
        /** @description A published message. */
        Published: {
            /**
             * Format: int64
             * @description Partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Its offset; absent at level `none`, and of a repeat of so long ago that its place is forgotten.
             */
            offset?: number;
            /**
             * Format: int64
             * @description When it was accepted, milliseconds since the epoch; absent where `offset` is.
             */
            ts?: number;
            /** @description The level reached. */
            level: components["schemas"]["Level"];
            /** @description The offset cannot change any more. */
            final: boolean;
            /**
             * Format: int64
             * @description Term in which the offset was given, while it is not final.
             */
            term?: number;
            /** @description It had been accepted before; nothing was added. */
            duplicate: boolean;
        };
        /** @description A message that a settle has published: it cannot be lost, and is in its partition once. */
        PublishedMessage: {
            /** @description Its topic. */
            topic: string;
            /**
             * Format: int64
             * @description Its partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Its offset; absent while it is on its way.
             */
            offset?: number;
            /**
             * Format: int64
             * @description When it arrived, milliseconds since the epoch.
             */
            ts?: number;
            /** @description Resolves to `quorum` once it has arrived. */
            receipt: string;
            /** @description Why it will never arrive: its topic was deleted while it was on its way. */
            problem?: components["schemas"]["Problem"];
        };
        /**
         * @description Asks for messages. Fields that are left out take their default.
         * @example {
         *       "holder": "worker-7",
         *       "lease_ms": 30000,
         *       "max": 32,
         *       "wait_ms": 20000
         *     }
         */
        Pull: {
            /**
             * Format: int64
             * @description Most messages; 32 by default.
             */
            max?: number | null;
            /**
             * Format: int64
             * @description Stop at this many encoded bytes; 1 MiB by default. One message is always given.
             */
            max_bytes?: number | null;
            /**
             * Format: int64
             * @description With nothing to lease, wait up to this many milliseconds; 0 by default.
             */
            wait_ms?: number | null;
            /**
             * Format: int64
             * @description How long the messages are leased, milliseconds; as the subscription says by default.
             */
            lease_ms?: number | null;
            /**
             * @description Who takes them, shown in the list of leases; at most 255 bytes. Of a stream it must be given, and be
             *     nobody else's.
             */
            holder?: string | null;
            /** @description `partition`: only messages of one partition, which a settle that publishes needs. `any` by default. */
            scope?: components["schemas"]["PullScope"] | null;
        };
        /**
         * @description Where the messages of one pull may come from.
         * @enum {string}
         */
        PullScope: "any" | "partition";
        /**
         * @description What was leased.
         * @example {
         *       "messages": [
         *         {
         *           "attempt": 1,
         *           "content_type": "application/json",
         *           "data": {
         *             "total": 10
         *           },
         *           "fence": 981,
         *           "headers": {},
         *           "id": "0:76531",
         *           "key": "cust-42",
         *           "lease": "l_AYKAgICAIIGAgICAgAEAAIGAgIAQiHsRUw",
         *           "lease_expires_in_ms": 29988,
         *           "offset": 76531,
         *           "partition": 0,
         *           "ts": 1787654321123
         *         }
         *       ]
         *     }
         */
        Pulled: {
            /** @description The messages; none if there was nothing to lease. */
            messages: components["schemas"]["Delivery"][];
        };
        /**
         * @description What a subscription has not settled, to be settled without being delivered.
         * @example {
         *       "what": "all"
         *     }
         */
        Purge: {
            /** @description `all` by default. */
            what?: components["schemas"]["PurgeWhat"] | null;
        };
        /**
         * @description What a purge takes.
         * @enum {string}
         */
        PurgeWhat: "all" | "dead";
        /**
         * @description What a purge did, or would do.
         * @example {
         *       "dead": 1,
         *       "dry_run": false,
         *       "parts": [
         *         {
         *           "dead": 1,
         *           "floor": 76520,
         *           "partition": 0,
         *           "purged": 121
         *         }
         *       ],
         *       "purged": 121,
         *       "undo": "snap_6f2c9d1e00a47b35"
         *     }
         */
        Purged: {
            /** @description It was only asked what it would do. */
            dry_run: boolean;
            /**
             * Format: int64
             * @description Messages that will not be delivered, and dead ones that are forgotten, as of when it began; those included that
             *     compaction had dropped.
             */
            purged: number;
            /**
             * Format: int64
             * @description Of them, the dead ones.
             */
            dead: number;
            /**
             * @description Undoes it, as `undo` of a seek: of each partition the latest four seeks and purges can be, one of dead
             *     letters alone until the next seek or other purge.
             * @example snap_6f2c9d1e00a47b35
             */
            undo?: string;
            /** @description The same per partition. */
            parts: components["schemas"]["PurgedPart"][];
        };
        /** @description What a purge did to one partition. */
        PurgedPart: {
            /** @description Its topic, of a subscription to several. */
            topic?: string;
            /**
             * Format: int64
             * @description The partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Where it stands afterwards: all before is settled.
             */
            floor: number;
            /**
             * Format: int64
             * @description As of the whole.
             */
            purged: number;
            /**
             * Format: int64
             * @description As of the whole.
             */
            dead: number;
        };
        /** @description Averages over about the last ten seconds, all partitions together. */
        Rates: {
            /**
             * Format: double
             * @description Records published per second.
             */
            publish_records_per_second: number;
            /**
             * Format: double
             * @description Encoded bytes published per second.
             */
            publish_bytes_per_second: number;
            /**
             * Format: double
             * @description Records delivered to readers per second.
             */
            deliver_records_per_second: number;
        };
        /** @description What a read found. */
        ReadPage: {
            /** @description The records, in offset order per partition. */
            messages: components["schemas"]["Record"][];
            /** @description Where to read on: an offset, or an opaque cursor if several partitions were read. */
            next: components["schemas"]["Next"];
            /** @description `next` is the end of what may be seen. */
            up_to_date: boolean;
        };
        /** @description That requests are served, and what operators should know all the same. */
        Readiness: {
            /** @description True. */
            ready: boolean;
            /** @description What will be refused, or is not as it should be, in words: empty if all is well. */
            warnings: string[];
        };
        /** @description What has become of a confirm. */
        Receipt: {
            /** @description The receipt. */
            receipt: string;
            /**
             * Format: int64
             * @description Partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Offset that was answered; absent of what a settle published and was not there yet.
             */
            offset?: number;
            /** @description The level reached by now. */
            level: components["schemas"]["Level"];
            /** @description The offset cannot change any more. */
            final: boolean;
            /** @description The record was lost with its leader below `quorum`: it does not exist. */
            lost: boolean;
            /**
             * Format: int64
             * @description When it was accepted, milliseconds since the epoch; absent if it is lost.
             */
            ts?: number;
        };
        /** @description A stored record. Exactly one of `data` and `data_base64` is present. */
        Record: {
            /** @description Its topic, where a subscription consumes several. */
            topic?: string;
            /**
             * Format: int64
             * @description Partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Position in the partition.
             */
            offset: number;
            /**
             * Format: int64
             * @description When it was accepted, milliseconds since the epoch.
             */
            ts: number;
            /** @description Its key; absent if it has none or one that is not UTF-8. */
            key?: string;
            /** @description Its key in Base64, if it is not UTF-8. */
            key_base64?: string;
            /** @description User headers whose values are UTF-8. */
            headers?: {
                [key: string]: string;
            };
            /** @description Those whose values are not, in Base64. */
            headers_base64?: {
                [key: string]: string;
            };
            /** @description Content type of the payload. */
            content_type?: string;
            /** @description Content encoding of the payload, which is then in `data_base64` as it was sent. */
            content_encoding?: string;
            /** @description `Content-Digest` of the payload as it was sent. */
            content_digest?: string;
            /** @description Queue subscriptions do not deliver it before this time (RFC 3339). */
            deliver_at?: string;
            /**
             * Format: int64
             * @description Queue subscriptions do not deliver it when it is older than this, in milliseconds.
             */
            ttl_ms?: number;
            /** @description W3C trace context. */
            traceparent?: string;
            /** @description W3C trace context, vendor part. */
            tracestate?: string;
            /**
             * @description The JSON value of a JSON payload, digit for digit; the text of one whose content type says that it is
             *     text, if it is UTF-8: `text/*`, `application/x-www-form-urlencoded`, XML, YAML, JavaScript and GraphQL.
             */
            data?: unknown;
            /** @description Any other payload. */
            data_base64?: string;
        };
        /**
         * @description Dead letters to be delivered once more, to this subscription alone.
         * @example {
         *       "filter": "header.region == 'eu*'",
         *       "max": 500,
         *       "rate": 50,
         *       "stop_after": 5
         *     }
         */
        Redrive: {
            /** @description These; without any, the oldest of each partition. */
            ids?: string[];
            /**
             * Format: int64
             * @description At most this many; 100 by default.
             */
            max?: number | null;
            /** @description Only those that this matches. */
            filter?: string | null;
            /**
             * Format: int64
             * @description At most this many a second. What does not fit into 20 seconds is left for the next request.
             */
            rate?: number | null;
            /**
             * Format: int64
             * @description Stop when this many of one partition are dead again; 10 by default, 0 never.
             */
            stop_after?: number | null;
            /** @description `next` of the answer before; with `ids`, the same ones again. */
            cursor?: string | null;
        };
        /**
         * @description What a redrive did.
         * @example {
         *       "dead_again": 0,
         *       "dry_run": false,
         *       "next": null,
         *       "redriven": [
         *         "0:76531"
         *       ],
         *       "stopped": false
         *     }
         */
        Redriven: {
            /** @description Nothing was redriven: this is what would be. */
            dry_run: boolean;
            /** @description What will be delivered again. What was not dead, or does not exist any more, is not among them. */
            redriven: string[];
            /**
             * Format: int64
             * @description How many of them were dead again before the last one of their partition was redriven.
             */
            dead_again: number;
            /** @description It ended early: too many were. */
            stopped: boolean;
            /** @description Pass as `cursor` to go on, with `ids` beside the same ones; `null`: there is nothing beyond. */
            next?: string | null;
        };
        /** @description A delivery that failed. */
        Rejection: {
            /** @description The lease. */
            lease: string;
            /**
             * Format: int64
             * @description When it may be delivered again, milliseconds from now; as the subscription's `backoff_ms` says by default.
             */
            delay_ms?: number;
            /** @description Why, for operators; at most 1 KiB. */
            reason?: string;
        };
        /** @description What is removed. Absent limits mean unlimited. */
        Retention: {
            /**
             * Format: int64
             * @description Records older than this many milliseconds.
             */
            age_ms?: number | null;
            /**
             * Format: int64
             * @description Per partition: the oldest records beyond this many encoded bytes.
             */
            bytes?: number | null;
            /**
             * Format: int64
             * @description Per partition: the oldest records beyond this many.
             */
            records?: number | null;
            /**
             * @description Also the oldest batches that every subscription has settled. A topic without subscriptions keeps its messages.
             * @default false
             */
            until_settled: boolean;
        };
        /** @description Changes to what is removed. Fields that are left out stay; `null` removes a limit. */
        RetentionPatch: {
            /**
             * Format: int64
             * @description Records older than this many milliseconds.
             */
            age_ms?: number | null;
            /**
             * Format: int64
             * @description Per partition: the oldest records beyond this many encoded bytes.
             */
            bytes?: number | null;
            /**
             * Format: int64
             * @description Per partition: the oldest records beyond this many.
             */
            records?: number | null;
            /** @description Also the oldest batches that every subscription has settled. A topic without subscriptions keeps its messages. */
            until_settled?: boolean | null;
        };
        /** @description What is removed. Absent limits mean unlimited. */
        RetentionSettings: {
            /**
             * Format: int64
             * @description Records older than this many milliseconds.
             */
            age_ms?: number | null;
            /**
             * Format: int64
             * @description Per partition: the oldest records beyond this many encoded bytes.
             */
            bytes?: number | null;
            /**
             * Format: int64
             * @description Per partition: the oldest records beyond this many.
             */
            records?: number | null;
            /**
             * @description Also the oldest batches that every subscription has settled. A topic without subscriptions keeps its messages.
             * @default false
             */
            until_settled: boolean | null;
        };
        /**
         * @description Moves a subscription.
         * @example {
         *       "to": "ts:2026-09-01T10:00:00Z"
         *     }
         */
        Seek: {
            /**
             * @description `earliest`, `latest`, `ts:` and RFC 3339 or milliseconds, or, if there is one partition in all, an offset.
             *     Or `undo`, with `undo`.
             */
            to: string | number;
            /** @description With `"to": "undo"`: the `undo` of the answer to the seek or purge that is to be undone. */
            undo?: string | null;
        };
        /**
         * @description What a seek did, or would do.
         * @example {
         *       "dry_run": true,
         *       "parts": [
         *         {
         *           "floor": 76400,
         *           "partition": 0,
         *           "redelivered": 120,
         *           "skipped": 0
         *         }
         *       ],
         *       "redelivered": 120,
         *       "skipped": 0
         *     }
         */
        Seeked: {
            /** @description It was only asked what it would do. */
            dry_run: boolean;
            /**
             * Format: int64
             * @description Messages from there to the end that had been delivered, settled or dead-lettered before.
             */
            redelivered: number;
            /**
             * Format: int64
             * @description Messages before it that were not settled.
             */
            skipped: number;
            /**
             * @description Undoes it: of each partition the latest four seeks and purges can be.
             * @example snap_6f2c9d1e00a47b35
             */
            undo?: string;
            /** @description The same per partition. */
            parts: components["schemas"]["SeekedPart"][];
        };
        /** @description What a seek did to one partition. */
        SeekedPart: {
            /** @description Its topic, of a subscription to several. */
            topic?: string;
            /**
             * Format: int64
             * @description The partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Where it stands afterwards: everything from here on is delivered.
             */
            floor: number;
            /**
             * Format: int64
             * @description As of the whole.
             */
            redelivered: number;
            /**
             * Format: int64
             * @description As of the whole.
             */
            skipped: number;
        };
        /** @description What this gateway is and what it accepts. */
        Service: {
            /** @description `weir`. */
            service: string;
            /** @description Version of the gateway. */
            version: string;
            /** @description Sizes and times it accepts. */
            limits: components["schemas"]["Limits"];
            /** @description Confirm levels that a publish may ask for. */
            levels: components["schemas"]["Level"][];
            /** @description WebSocket subprotocols. */
            subprotocols: string[];
        };
        /**
         * @description What becomes of leases. Each list may be left out.
         * @example {
         *       "ack": [
         *         "l_AYKAgICAIIGAgICAgAEAAIGAgIAQiHsRUw"
         *       ],
         *       "dead": [
         *         {
         *           "lease": "l_AYKAgICAIIGAgICAgAEBAYWAgIAQ6YJnNA",
         *           "reason": "no such customer"
         *         }
         *       ],
         *       "extend": [
         *         {
         *           "lease": "l_AYKAgICAIIGAgICAgAEBAIGAgIAQXIZG4w",
         *           "ms": 60000
         *         }
         *       ],
         *       "nack": [
         *         {
         *           "delay_ms": 5000,
         *           "lease": "l_AYKAgICAIIGAgICAgAEQAIKAgIAQ7JIkyw",
         *           "reason": "no stock"
         *         }
         *       ]
         *     }
         */
        Settle: {
            /** @description Done: never delivered again. */
            ack?: string[];
            /** @description Failed: delivered again after a delay. */
            nack?: components["schemas"]["Rejection"][];
            /** @description Held longer. */
            extend?: components["schemas"]["Extension"][];
            /** @description Given up: a dead letter. */
            dead?: components["schemas"]["Dismissal"][];
            /** @description Published in the same step, all or nothing with the leases, which then are of one partition. */
            publish?: components["schemas"]["OutputMessage"][];
        };
        /**
         * @description What can become of a lease.
         * @enum {string}
         */
        SettleOutcome: "ok" | "lease_lost" | "already_settled" | "unknown" | "failed";
        /**
         * @description The answer to a settle: one result per lease, those of `ack` first, then `nack`, `extend`, `dead`, each in its
         *     order.
         */
        Settled: {
            /** @description The results. */
            results: components["schemas"]["SettledLease"][];
            /** @description What was published, in the order of the request. */
            published?: components["schemas"]["PublishedMessage"][];
            /** @description Level that all of it has reached: `none` while some is on its way. */
            level?: components["schemas"]["Level"];
        };
        /** @description What became of one lease. */
        SettledLease: {
            /** @description The lease. */
            lease: string;
            /** @description What became of it. */
            result: components["schemas"]["SettleOutcome"];
            /** @description With `lease_lost`: the delivery that took its place, if one did. */
            current?: components["schemas"]["Takeover"];
            /** @description With `failed`: why. */
            problem?: components["schemas"]["Problem"];
        };
        /** @description What an object store charges. The defaults are list prices of S3 Standard in us-east-1. */
        StoragePrices: {
            /**
             * @description What the prices are in. Default `USD`.
             * @default USD
             */
            currency: string;
            /**
             * Format: double
             * @description A GiB for a month of 30 days. Default 0.023.
             * @default 0.023
             */
            stored_gib_month: number;
            /**
             * Format: double
             * @description A thousand requests that write. Default 0.005.
             * @default 0.005
             */
            thousand_puts: number;
            /**
             * Format: double
             * @description A thousand requests that read. Default 0.0004.
             * @default 0.0004
             */
            thousand_gets: number;
            /**
             * @description Whose prices, and of when.
             * @default list prices of S3 Standard, us-east-1, first 50 TB, as of April 2024
             */
            source: string;
        };
        /** @description A subscription. */
        Subscription: {
            /** @description Namespace. */
            ns: string;
            /** @description Name. */
            name: string;
            /**
             * Format: int64
             * @description This life of it; a recreated subscription has another.
             */
            id: number;
            /**
             * Format: int64
             * @description Version of the configuration, from 1. Also in the `ETag`.
             */
            version: number;
            /**
             * Format: int64
             * @description When it was created, milliseconds since the epoch.
             */
            created_ms: number;
            /**
             * Format: int64
             * @description The life of the topic that it belongs to: once that is deleted, nothing is leased any more. `null` of a
             *     subscription to several topics.
             */
            topic_incarnation?: number | null;
            /**
             * @description That life has ended, or those of all topics that it names: deleted, and perhaps created again. The subscription
             *     can only be deleted.
             */
            topic_deleted: boolean;
            /** @description Those of several topics that were deleted; what they are called now is consumed no more. */
            topics_deleted: string[];
            /**
             * Format: int64
             * @description Partitions that the pattern matches and that are not consumed, because there are more than
             *     `subscription_partitions` of `GET /v1`. A change of the configuration takes in as many as there is room for.
             */
            partitions_left_out: number;
            /** @description What it began as, if it is a fork. */
            forked_from?: components["schemas"]["ForkedFrom"];
            /** @description Its configuration, complete. */
            config: components["schemas"]["SubscriptionConfig"];
            /** @description What it holds of each partition, by number; of several topics, in the order of their lives. */
            parts: components["schemas"]["SubscriptionPart"][];
            /** @description The same over all partitions that can be reached. */
            totals: components["schemas"]["SubscriptionTotals"];
        };
        /** @description What an application sets. Fields that are left out take their default. */
        SubscriptionConfig: {
            /** @description A queue, or a stream. Cannot be changed later. */
            mode: components["schemas"]["Mode"];
            /**
             * @description The topics, in the subscription's namespace; or one pattern, a prefix and `*`: every topic whose name begins so,
             *     now and later. Cannot be changed later.
             */
            topics: string[];
            /**
             * Format: int64
             * @description How long a message is leased unless a pull says otherwise, milliseconds. Of a stream: how long a consumer that
             *     pulls may be silent before another takes its place.
             */
            lease_ms: number;
            /**
             * Format: int64
             * @description Deliveries of a message after which it is a dead letter; 0: no limit.
             */
            max_attempts: number;
            /** @description Milliseconds before delivery 2, 3, …; the last one repeats. Empty: at once. `[1000, 5000, 30000]` by default. */
            backoff_ms: number[];
            /** @description Topic that dead letters go to, in the subscription's namespace; `null`: they are settled and counted. */
            dlq: string | null;
            /** @description In which order messages are leased. Cannot be changed later. */
            order: components["schemas"]["Order"];
            /**
             * @description Where it starts, in every partition: `earliest`, `latest`, or `ts:` and RFC 3339 or milliseconds; of a
             *     stream also an offset, or `tail:` and a number of messages. In a topic that is created later and
             *     matches a pattern it starts at the beginning. Cannot be changed later; `:seek` moves a subscription.
             */
            start: string;
            /**
             * Format: int64
             * @description Most messages of one topic leased at once, all its partitions together.
             */
            max_unacked: number;
            /** @description No message is leased. */
            paused: boolean;
            /**
             * @description Only messages that this expression over headers, `key` and `content_type` matches are leased; the others are
             *     settled without being delivered. `null`: all.
             * @example header.region == 'eu*' and not header.test == '1'
             */
            filter: string | null;
            /**
             * @description Messages that differ in this header (or in `key`, `content_type`) take turns; `null`: about in the
             *     order of offsets.
             * @example header.tenant
             */
            fair_by: string | null;
        };
        /** @description A page of subscriptions, in name order. */
        SubscriptionPage: {
            /** @description The subscriptions. */
            items: components["schemas"]["Subscription"][];
            /** @description Pass as `cursor` for the next page; `null` on the last. */
            next?: string | null;
        };
        /**
         * @description What a subscription holds of one partition. Numbers are `null` while its shard cannot be reached, and once the
         *     topic was deleted.
         */
        SubscriptionPart: {
            /** @description Its topic. */
            topic: string;
            /**
             * Format: int64
             * @description The partition's number, from 0.
             */
            partition: number;
            /**
             * Format: int64
             * @description Everything below this offset is settled: of a stream, its cursor.
             */
            floor?: number | null;
            /**
             * Format: int64
             * @description End of the partition.
             */
            end?: number | null;
            /**
             * Format: int64
             * @description Messages that could be leased now.
             */
            ready?: number | null;
            /**
             * Format: int64
             * @description Messages that are leased: of a stream, that its reader was shown and has not acknowledged.
             */
            leased?: number | null;
            /**
             * Format: int64
             * @description Messages that wait for their time.
             */
            delayed?: number | null;
            /**
             * Format: int64
             * @description Messages that wait until others of their key are settled, as far as was looked ahead.
             */
            blocked?: number | null;
            /**
             * Format: int64
             * @description Messages that the partition's leader keeps in memory for this subscription.
             */
            in_memory?: number | null;
            /**
             * Format: int64
             * @description Messages settled above the floor.
             */
            settled_above_floor?: number | null;
            /**
             * Format: int64
             * @description Dead letters so far.
             */
            dead?: number | null;
            /**
             * Format: int64
             * @description Dead letters on their way to their topic.
             */
            dead_pending?: number | null;
            /**
             * Format: int64
             * @description Time of the oldest message that is not settled, milliseconds since the epoch; `null` too if there is none.
             */
            oldest_ms?: number | null;
            /** @description Of a stream, who reads it now: its `holder`. */
            reader?: string | null;
            /**
             * Format: int64
             * @description The shard that holds it.
             */
            shard: number;
            /**
             * Format: int64
             * @description Of a fork, the instant that it began as, milliseconds since the epoch; absent where that is not known.
             */
            forked_at_ms?: number;
        };
        /**
         * @description Changes to a configuration. Fields that are left out stay; `null` removes the dead letter topic.
         * @example {
         *       "dlq": null,
         *       "lease_ms": 60000
         *     }
         */
        SubscriptionPatch: {
            /** @description `queue` or `stream`; must be what it is once the subscription exists. */
            mode?: string | null;
            /** @description Must be what it is. */
            topics?: string[] | null;
            /**
             * Format: int64
             * @description How long a message is leased unless a pull says otherwise, milliseconds.
             */
            lease_ms?: number | null;
            /**
             * Format: int64
             * @description Deliveries of a message after which it is a dead letter; 0: no limit.
             */
            max_attempts?: number | null;
            /** @description Milliseconds before delivery 2, 3, …; the last one repeats. Empty: at once. */
            backoff_ms?: number[] | null;
            /** @description Topic that dead letters go to; `null`: none. */
            dlq?: string | null;
            /** @description `none` or `key`; must be what it is once the subscription exists. */
            order?: string | null;
            /** @description Must be what it is. */
            start?: string | null;
            /**
             * Format: int64
             * @description Most messages of one topic leased at once, all its partitions together.
             */
            max_unacked?: number | null;
            /** @description No message is leased. */
            paused?: boolean | null;
            /** @description Which messages are leased; `null`: all. */
            filter?: string | null;
            /** @description What messages take turns by; `null`: nothing. */
            fair_by?: string | null;
        };
        /**
         * @description What an application sets. Fields that are left out take their default.
         * @example {
         *       "backoff_ms": [
         *         1000,
         *         5000,
         *         30000
         *       ],
         *       "dlq": "orders.dlq",
         *       "lease_ms": 30000,
         *       "max_attempts": 8,
         *       "max_unacked": 10000,
         *       "mode": "queue",
         *       "start": "earliest",
         *       "topics": [
         *         "orders"
         *       ]
         *     }
         */
        SubscriptionSettings: {
            /**
             * @description A queue, or a stream. Cannot be changed later.
             * @default queue
             */
            mode: components["schemas"]["Mode"] | null;
            /**
             * @description The topics, in the subscription's namespace; or one pattern, a prefix and `*`: every topic whose name begins so,
             *     now and later. Cannot be changed later.
             */
            topics: string[];
            /**
             * Format: int64
             * @description How long a message is leased unless a pull says otherwise, milliseconds. Of a stream: how long a consumer that
             *     pulls may be silent before another takes its place.
             * @default 30000
             */
            lease_ms: number | null;
            /**
             * Format: int64
             * @description Deliveries of a message after which it is a dead letter; 0: no limit.
             * @default 16
             */
            max_attempts: number | null;
            /** @description Milliseconds before delivery 2, 3, …; the last one repeats. Empty: at once. `[1000, 5000, 30000]` by default. */
            backoff_ms?: number[] | null;
            /** @description Topic that dead letters go to, in the subscription's namespace; `null`: they are settled and counted. */
            dlq?: string | null;
            /**
             * @description In which order messages are leased. Cannot be changed later.
             * @default none
             */
            order: components["schemas"]["Order"] | null;
            /**
             * @description Where it starts, in every partition: `earliest`, `latest`, or `ts:` and RFC 3339 or milliseconds; of a
             *     stream also an offset, or `tail:` and a number of messages. In a topic that is created later and
             *     matches a pattern it starts at the beginning. Cannot be changed later; `:seek` moves a subscription.
             * @default earliest
             */
            start: string | null;
            /**
             * Format: int64
             * @description Most messages of one topic leased at once, all its partitions together.
             * @default 10000
             */
            max_unacked: number | null;
            /**
             * @description No message is leased.
             * @default false
             */
            paused: boolean | null;
            /**
             * @description Only messages that this expression over headers, `key` and `content_type` matches are leased; the others are
             *     settled without being delivered. `null`: all.
             * @example header.region == 'eu*' and not header.test == '1'
             */
            filter?: string | null;
            /**
             * @description Messages that differ in this header (or in `key`, `content_type`) take turns; `null`: about in the
             *     order of offsets.
             * @example header.tenant
             */
            fair_by?: string | null;
        };
        /** @description Sums over the partitions that can be reached. */
        SubscriptionTotals: {
            /**
             * Format: int64
             * @description Messages that are not settled: ready, leased, delayed or on their way to the dead letter topic.
             */
            unsettled: number;
            /**
             * Format: int64
             * @description Messages that could be leased now.
             */
            ready: number;
            /**
             * Format: int64
             * @description Messages that are leased.
             */
            leased: number;
            /**
             * Format: int64
             * @description Messages that wait for their time.
             */
            delayed: number;
            /**
             * Format: int64
             * @description Messages that wait until others of their key are settled, as far as was looked ahead.
             */
            blocked: number;
            /**
             * Format: int64
             * @description Dead letters so far.
             */
            dead: number;
            /**
             * Format: int64
             * @description Dead letters on their way to their topic.
             */
            dead_pending: number;
            /**
             * Format: int64
             * @description Time of the oldest message that is not settled, milliseconds since the epoch; `null` if there is none.
             */
            oldest_ms?: number | null;
        };
        /** @description The delivery that took a lost lease's place. */
        Takeover: {
            /**
             * Format: int64
             * @description Its number among the deliveries of the message.
             */
            attempt: number;
            /**
             * Format: int64
             * @description Its fence.
             */
            fence: number;
        };
        /** @description A topic. */
        Topic: {
            /** @description Namespace. */
            ns: string;
            /** @description Name. */
            name: string;
            /**
             * Format: int64
             * @description This life of it; a recreated topic has another.
             */
            incarnation: number;
            /**
             * Format: int64
             * @description Version of the configuration, from 1. Also in the `ETag`.
             */
            version: number;
            /**
             * Format: int64
             * @description When it was created, milliseconds since the epoch.
             */
            created_ms: number;
            /** @description Its configuration, complete. */
            config: components["schemas"]["TopicConfig"];
            /** @description Its partitions, by number. */
            partitions: components["schemas"]["Partition"][];
            /** @description What goes in and out at the moment. */
            rates: components["schemas"]["Rates"];
            /**
             * @description What it takes of the object store; absent in lists, without an object store, and while a shard cannot
             *     be reached.
             */
            storage?: components["schemas"]["TopicStorage"];
        };
        /** @description What an administrator sets. Fields that are left out take their default. */
        TopicConfig: {
            /**
             * Format: int64
             * @description Number of partitions, 1 to 1024. Cannot be changed later.
             */
            partitions: number;
            /**
             * @description Content type of messages whose publisher names none. JSON values keep `application/json` unless this is the
             *     type of JSON or of text; record batches that a client built are stored as they are.
             * @example application/json
             */
            content_type: string | null;
            /** @description What is removed, and when. Unlimited by default. */
            retention: components["schemas"]["Retention"];
            /**
             * @description `none`, or `key`: of messages with a key, the newest of each key is kept and older ones are dropped
             *     once they are in the object store, without which it is refused as `not_supported`. Offsets stay what
             *     they were. A key whose newest message is empty is deleted, and a day later that message goes too.
             *     Cannot be combined with `retention.until_settled`; other limits of `retention` count what was
             *     published, dropped or not.
             */
            compaction: components["schemas"]["Compaction"];
            /** @description Confirm level of publishes that name none. */
            default_confirm: components["schemas"]["Level"];
            /**
             * @description Level from which who follows is delivered a message, unless it says `min_level`: `quorum`, or `memory`: before
             *     it is committed. Pages and queues are of committed messages.
             */
            deliver_from: components["schemas"]["DeliverFrom"];
            /** @description Publishes that ask for less are refused. */
            min_confirm: components["schemas"]["Level"];
            /** @description Idempotency keys. */
            dedupe: components["schemas"]["Dedupe"];
            /**
             * Format: int64
             * @description Time to live of messages that name none, in milliseconds: queue subscriptions do not deliver a message that is
             *     older. Readers are shown it as long as it is retained.
             */
            ttl_ms: number | null;
            /** @description No more records are accepted. */
            closed: boolean;
            /**
             * @description Which caches may keep what never changes: `private`, those of browsers, or `public`, those of proxies and
             *     CDNs too, which give it to whoever asks them. By default what the namespace said when the topic was made.
             */
            cache: components["schemas"]["Cache"];
        };
        /** @description A page of topics, in name order. */
        TopicPage: {
            /** @description The topics. */
            items: components["schemas"]["Topic"][];
            /** @description Pass as `cursor` for the next page; `null` on the last. */
            next?: string | null;
        };
        /** @description Changes to a configuration. Fields that are left out stay; `null` removes a limit. */
        TopicPatch: {
            /**
             * Format: int64
             * @description Must be what it is: growing is not supported yet.
             */
            partitions?: number | null;
            /** @description Content type of records that name none. */
            content_type?: string | null;
            /** @description What is removed, and when. */
            retention?: components["schemas"]["RetentionPatch"] | null;
            /** @description Whether older messages of a key are dropped. What was dropped does not come back. */
            compaction?: components["schemas"]["Compaction"] | null;
            /** @description Confirm level of publishes that name none. */
            default_confirm?: components["schemas"]["Level"] | null;
            /** @description Level from which who follows is delivered a message: `quorum` or `memory`. */
            deliver_from?: components["schemas"]["DeliverFrom"] | null;
            /** @description Publishes that ask for less are refused. */
            min_confirm?: components["schemas"]["Level"] | null;
            /** @description How long idempotency keys are remembered. */
            dedupe?: components["schemas"]["DedupeSettings"] | null;
            /**
             * Format: int64
             * @description Time to live of messages that name none, in milliseconds, for queue subscriptions.
             */
            ttl_ms?: number | null;
            /** @description No more records are accepted. */
            closed?: boolean | null;
            /** @description Which caches may keep what never changes. What they keep already they keep. */
            cache?: components["schemas"]["Cache"] | null;
        };
        /** @description What an administrator sets. Fields that are left out take their default. */
        TopicSettings: {
            /**
             * Format: int64
             * @description Number of partitions, 1 to 1024. Cannot be changed later.
             * @default 1
             */
            partitions: number | null;
            /**
             * @description Content type of messages whose publisher names none. JSON values keep `application/json` unless this is the
             *     type of JSON or of text; record batches that a client built are stored as they are.
             * @example application/json
             */
            content_type?: string | null;
            /** @description What is removed, and when. Unlimited by default. */
            retention?: components["schemas"]["RetentionSettings"] | null;
            /**
             * @description `none`, or `key`: of messages with a key, the newest of each key is kept and older ones are dropped
             *     once they are in the object store, without which it is refused as `not_supported`. Offsets stay what
             *     they were. A key whose newest message is empty is deleted, and a day later that message goes too.
             *     Cannot be combined with `retention.until_settled`; other limits of `retention` count what was
             *     published, dropped or not.
             * @default none
             */
            compaction: components["schemas"]["Compaction"] | null;
            /**
             * @description Confirm level of publishes that name none.
             * @default quorum
             */
            default_confirm: components["schemas"]["Level"] | null;
            /**
             * @description Level from which who follows is delivered a message, unless it says `min_level`: `quorum`, or `memory`: before
             *     it is committed. Pages and queues are of committed messages.
             * @default quorum
             */
            deliver_from: components["schemas"]["DeliverFrom"] | null;
            /**
             * @description Publishes that ask for less are refused.
             * @default none
             */
            min_confirm: components["schemas"]["Level"] | null;
            /** @description Idempotency keys. */
            dedupe?: components["schemas"]["DedupeSettings"] | null;
            /**
             * Format: int64
             * @description Time to live of messages that name none, in milliseconds: queue subscriptions do not deliver a message that is
             *     older. Readers are shown it as long as it is retained.
             */
            ttl_ms?: number | null;
            /**
             * @description No more records are accepted.
             * @default false
             */
            closed: boolean | null;
            /**
             * @description Which caches may keep what never changes: `private`, those of browsers, or `public`, those of proxies and
             *     CDNs too, which give it to whoever asks them. By default what the namespace said when the topic was made.
             * @default private
             */
            cache: components["schemas"]["Cache"] | null;
        };
        /** @description What a topic takes of the object store. An estimate: objects are shared with other topics, by bytes. */
        TopicStorage: {
            /**
             * Format: int64
             * @description Bytes of objects.
             */
            object_bytes: number;
            /**
             * Format: double
             * @description Requests that wrote its objects within the last day.
             */
            puts_per_day: number;
            /**
             * Format: double
             * @description Requests that compared and read its objects within about a day.
             */
            gets_per_day: number;
            /**
             * Format: double
             * @description Bytes that came from the store for its readers within about a day.
             */
            read_bytes_per_day: number;
            /**
             * Format: double
             * @description Blocks of objects that its readers asked for within about a day. A block is what is read at once:
             *     about 512 KiB of messages of a partition, before compression.
             */
            blocks_asked_per_day: number;
            /**
             * Format: double
             * @description Of these, the blocks that the caches had, or that were on their way already: nothing was fetched for them.
             */
            blocks_cached_per_day: number;
            /** @description What that costs. */
            cost_per_day: components["schemas"]["CostPerDay"];
            /**
             * @description Objects that its messages could not be read from, the newest failure first, no more than 64. Empty if
             *     all is well, as far as anybody has read.
             */
            damaged: components["schemas"]["DamagedObject"][];
        };
        /**
         * @description A topic's oldest messages, to be removed for good.
         * @example {
         *       "before": "76400",
         *       "partition": 3
         *     }
         */
        Trim: {
            /**
             * Format: int64
             * @description Only this partition; all by default.
             */
            partition?: number | null;
            /**
             * @description The first message that stays: an offset, which belongs to one partition, `ts:` and RFC 3339 or
             *     milliseconds, or `end`, which leaves none.
             */
            before: string | number;
        };
        /**
         * @description What a trim did, or would do.
         * @example {
         *       "bytes": 9100000,
         *       "dry_run": true,
         *       "messages": 76400,
         *       "partitions": [
         *         {
         *           "bytes": 9100000,
         *           "messages": 76400,
         *           "partition": 3,
         *           "start": 76400
         *         }
         *       ]
         *     }
         */
        Trimmed: {
            /** @description It was only asked what it would do. */
            dry_run: boolean;
            /**
             * Format: int64
             * @description Messages that go, those included that compaction had dropped.
             */
            messages: number;
            /**
             * Format: int64
             * @description Bytes of the stored batches that go; a batch goes with its last message.
             */
            bytes: number;
            /** @description The same per partition. */
            partitions: components["schemas"]["TrimmedPartition"][];
        };
        /** @description What a trim did to one partition. */
        TrimmedPartition: {
            /**
             * Format: int64
             * @description The partition.
             */
            partition: number;
            /**
             * Format: int64
             * @description Its earliest offset afterwards.
             */
            start: number;
            /**
             * Format: int64
             * @description As of the whole.
             */
            messages: number;
            /**
             * Format: int64
             * @description As of the whole.
             */
            bytes: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    readHealth: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It does. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readMetrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The metrics. */
            200: {
                headers: {
                    /** @description `gzip` or `zstd`, if `Accept-Encoding` names it. */
                    "Content-Encoding"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readOpenapi: {
        parameters: {
            query?: never;
            header?: {
                /** @description Answer 304 if the document has this tag. */
                "If-None-Match"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OpenAPI 3.1. */
            200: {
                headers: {
                    /** @description `gzip` or `zstd`, if `Accept-Encoding` names it. */
                    "Content-Encoding"?: string;
                    /** @description Tag of the document in this encoding. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description If-None-Match names it. */
            304: {
                headers: {
                    /** @description Tag of the document in this encoding. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readReadiness: {
        parameters: {
            query?: {
                /** @description Also say what operators should know; it needs no value. */
                verbose?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description They would; with `verbose`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Readiness"];
                };
            };
            /** @description They would. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    describeService: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description What the gateway is and accepts. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Service"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listNamespaces: {
        parameters: {
            query?: {
                /** @description Only names that contain this text. */
                q?: string;
                /** @description Order of the items; `name` is the only one. */
                sort?: "name";
                /** @description Most items of a page; 100 by default. A page that has a `next` may contain fewer, or none: a shard looks at no more than 10,000 names for one page. */
                limit?: number;
                /** @description The `next` of the previous page; any other text is `invalid_cursor`. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NamespacePage"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readNamespace: {
        parameters: {
            query?: never;
            header?: {
                /** @description Answer 304 if the configuration still has this tag, or one of these. */
                "If-None-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The namespace. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Namespace"];
                };
            };
            /** @description The settings still have the tag that you sent. */
            304: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    createNamespace: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
                /** @description `*`: only if it does not exist; otherwise 412. Tags: only if it has none of them. Not together with `If-Match`. */
                "If-None-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NamespaceSettings"];
            };
        };
        responses: {
            /** @description It already exists with this configuration. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Namespace"];
                };
            };
            /** @description Created. */
            201: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    /** @description Its path. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Namespace"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteNamespace: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    updateNamespace: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NamespacePatch"];
                "application/merge-patch+json": components["schemas"]["NamespacePatch"];
            };
        };
        responses: {
            /** @description Changed. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Namespace"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    followEvents: {
        parameters: {
            query: {
                /** @description A topic; repeat it for more, at most 100. */
                topic: string[];
                /** @description As for reading, without offsets; `latest` by default. */
                from?: string;
                /** @description The same as the header `Last-Event-ID`. */
                last_event_id?: string;
                /** @description Only messages that match this expression over `header.<name>`, `key` and `content_type`, such as `header.region == 'eu*' and not key == 'test'`. The storage node filters. One page looks at no more than 32,768 messages or 16 MiB, divided among the partitions that are read, so a page may be empty without being the end; its positions follow what was looked at. */
                filter?: string;
                /** @description Lowest level that you accept; each topic's `deliver_from` by default. `memory` shows messages before they are committed: `firm` and `retract` tell what became of them. */
                min_level?: "memory" | "quorum";
            };
            header?: {
                /** @description `id` of the last event received: continue after it. */
                "Last-Event-ID"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events, without end. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listSubscriptions: {
        parameters: {
            query?: {
                /** @description Only names that contain this text. */
                q?: string;
                /** @description Only those that consume the topic with this name. */
                topic?: string;
                /** @description Order of the items; `name` is the only one. */
                sort?: "name";
                /** @description Most items of a page; 100 by default. A page that has a `next` may contain fewer, or none: a shard looks at no more than 10,000 names for one page. */
                limit?: number;
                /** @description The `next` of the previous page; any other text is `invalid_cursor`. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubscriptionPage"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readSubscription: {
        parameters: {
            query?: never;
            header?: {
                /** @description Answer 304 if the configuration still has this tag, or one of these. */
                "If-None-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The subscription. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description The configuration still has the tag that you sent; counts may differ. */
            304: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    createSubscription: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
                /** @description `*`: only if it does not exist; otherwise 412. Tags: only if it has none of them. Not together with `If-Match`. */
                "If-None-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SubscriptionSettings"];
            };
        };
        responses: {
            /** @description It already exists with this configuration. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description Created. */
            201: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    /** @description Its path. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteSubscription: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    updateSubscription: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["SubscriptionPatch"];
                "application/merge-patch+json": components["schemas"]["SubscriptionPatch"];
            };
        };
        responses: {
            /** @description The subscription as it is now. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listDeadLetters: {
        parameters: {
            query?: {
                /** @description Only this partition; all by default. */
                partition?: number;
                /** @description Only offsets from here on, with `partition`. */
                from?: number;
                /** @description Most items of a page; 100 by default. */
                limit?: number;
                /** @description The `next` of the previous page, instead of `partition`, `from` and `topic`; any other text is `invalid_cursor`. */
                cursor?: string;
                /** @description Only this topic, if the subscription consumes several. With `partition`, the topic whose partition is meant. */
                topic?: string;
            };
            header?: never;
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeasePage"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    explainMessage: {
        parameters: {
            query: {
                /** @description Partition and offset, as in `0:76531`; if the subscription consumes several topics, `orders:0:76531`. */
                id: string;
            };
            header?: never;
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Where the message stands. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Explained"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listLeases: {
        parameters: {
            query?: {
                /** @description Only this partition; all by default. */
                partition?: number;
                /** @description Only offsets from here on, with `partition`. */
                from?: number;
                /** @description Most items of a page; 100 by default. */
                limit?: number;
                /** @description The `next` of the previous page, instead of `partition`, `from` and `topic`; any other text is `invalid_cursor`. */
                cursor?: string;
                /** @description Only this topic, if the subscription consumes several. With `partition`, the topic whose partition is meant. */
                topic?: string;
            };
            header?: never;
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeasePage"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listMessagesOfState: {
        parameters: {
            query?: {
                /** @description In which state; `ready` by default. */
                of?: "ready" | "leased" | "delayed" | "blocked" | "settling" | "filtered" | "dead";
                /** @description The messages that were `ready`, `delayed` or `dead` at that time: `ts:` and RFC 3339 or milliseconds; or the `undo` of a seek or purge for the instant before it, where messages published since count as ready. Each partition keeps its latest four seeks and purges, and about an hour of history: the first change in each minute keeps what stood before it. `as_of_ms` in the answer is the instant that is shown. 410 `snapshot_gone` if nothing from then or before is kept. */
                as_of?: string;
                /** @description Only this partition; all by default. */
                partition?: number;
                /** @description Only offsets from here on, with `partition`. */
                from?: number;
                /** @description Most items of a page; 100 by default. */
                limit?: number;
                /** @description The `next` of the previous page, instead of `partition`, `from` and `topic`; any other text is `invalid_cursor`. */
                cursor?: string;
                /** @description Only this topic, if the subscription consumes several. With `partition`, the topic whose partition is meant. */
                topic?: string;
            };
            header?: never;
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LeasePage"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    forkSubscription: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ForkSubscription"];
            };
        };
        responses: {
            /** @description It already exists with this configuration. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description Created. */
            201: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    /** @description Its path. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pauseSubscription: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The subscription as it is now. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pullMessages: {
        parameters: {
            query?: never;
            header?: {
                /** @description Structured-field string. A pull that is repeated with the same key gets the same leases for as long as any of them is held. */
                "Idempotency-Key"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Pull"];
            };
        };
        responses: {
            /** @description What was leased, if anything. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Pulled"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    purgeSubscription: {
        parameters: {
            query?: {
                /** @description Only say what would happen. */
                dry_run?: boolean;
            };
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Purge"];
            };
        };
        responses: {
            /** @description What happened, or would happen. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Purged"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    redriveDeadLetters: {
        parameters: {
            query?: {
                /** @description Only say what would be redriven. */
                dry_run?: boolean;
            };
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Redrive"];
            };
        };
        responses: {
            /** @description What was redriven, or would be. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Redriven"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    resumeSubscription: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The subscription as it is now. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Subscription"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    seekSubscription: {
        parameters: {
            query?: {
                /** @description Only say what would happen. */
                dry_run?: boolean;
            };
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Seek"];
            };
        };
        responses: {
            /** @description What happened, or would happen. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Seeked"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    settleMessages: {
        parameters: {
            query?: never;
            header?: {
                /** @description With `publish`: answer 202 if the messages are not confirmed within this time; 5000 by default. */
                "Confirm-Deadline-Ms"?: number;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Subscription. */
                subscription: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Settle"];
            };
        };
        responses: {
            /** @description All leases are settled, and all messages published. */
            200: {
                headers: {
                    /** @description With `publish`: the level that all messages have reached. */
                    "Confirm-Level"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Settled"];
                };
            };
            /** @description All leases are settled; some of the published messages have not arrived yet. */
            202: {
                headers: {
                    /** @description With `publish`: the level that all messages have reached. */
                    "Confirm-Level"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Settled"];
                };
            };
            /** @description Some leases could not be settled, or the topic of a published message was deleted meanwhile; each has its own result. */
            207: {
                headers: {
                    /** @description With `publish`: the level that all messages have reached. */
                    "Confirm-Level"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Settled"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listTopics: {
        parameters: {
            query?: {
                /** @description Only names that contain this text. */
                q?: string;
                /** @description Order of the items; `name` is the only one. */
                sort?: "name";
                /** @description Most items of a page; 100 by default. A page that has a `next` may contain fewer, or none: a shard looks at no more than 10,000 names for one page. */
                limit?: number;
                /** @description The `next` of the previous page; any other text is `invalid_cursor`. */
                cursor?: string;
            };
            header?: never;
            path: {
                /** @description Namespace. */
                ns: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TopicPage"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readTopic: {
        parameters: {
            query?: never;
            header?: {
                /** @description Answer 304 if the configuration still has this tag, or one of these. */
                "If-None-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The topic. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Topic"];
                };
            };
            /** @description The configuration still has the tag that you sent; offsets and rates may differ. */
            304: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    createTopic: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
                /** @description `*`: only if it does not exist; otherwise 412. Tags: only if it has none of them. Not together with `If-Match`. */
                "If-None-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["TopicSettings"];
            };
        };
        responses: {
            /** @description It already exists with this configuration. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Topic"];
                };
            };
            /** @description Created. */
            201: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    /** @description Its path. */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Topic"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteTopic: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    updateTopic: {
        parameters: {
            query?: never;
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["TopicPatch"];
                "application/merge-patch+json": components["schemas"]["TopicPatch"];
            };
        };
        responses: {
            /** @description Changed. */
            200: {
                headers: {
                    /** @description Tag of the configuration, for `If-Match` and `If-None-Match`. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Topic"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readMessages: {
        parameters: {
            query?: {
                /** @description `earliest` (default), `latest`, an offset, `ts:` and RFC 3339 or milliseconds, `tail:` and a number of messages, `cursor:` and an opaque cursor. */
                from?: string;
                /** @description Most messages; 100 by default. */
                limit?: number;
                /** @description Stop at this many encoded bytes; 1 MiB by default. One message is always returned. */
                max_bytes?: number;
                /** @description If there is nothing to read, wait up to this many seconds. */
                wait?: number;
                /** @description Only this partition; all by default. */
                partition?: number;
                /** @description Stop before this: an offset, or `ts:` and a time. */
                until?: string;
                /** @description Move a position outside the topic to the nearest one inside it. */
                clamp?: boolean;
                /** @description Only messages that match this expression over `header.<name>`, `key` and `content_type`, such as `header.region == 'eu*' and not key == 'test'`. The storage node filters. One page looks at no more than 32,768 messages or 16 MiB, divided among the partitions that are read, so a page may be empty without being the end; its positions follow what was looked at. */
                filter?: string;
                /** @description The `incarnation` of the topic that you mean. If the topic was deleted and created again the answer is 410 `incarnation_gone`. Answers that cannot change may then be cached for ever. */
                incarnation?: number;
                /** @description Lowest level that you accept. Pages contain committed messages only: `memory` is refused as `level_unavailable`, unless storage confirms at `memory` at most. With `text/event-stream`, `memory` shows messages before they are committed; the default is the topic's `deliver_from`. */
                min_level?: "memory" | "quorum";
                /** @description The same as the header `Last-Event-ID`. */
                last_event_id?: string;
            };
            header?: {
                /** @description Answer 304 if the range has this tag. */
                "If-None-Match"?: string;
                /** @description With `Accept: text/event-stream`: the `id` of the last event received; continue after it. */
                "Last-Event-ID"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Messages. */
            200: {
                headers: {
                    /** @description `immutable` for a full range of committed messages if a cursor or `incarnation` says which life of the topic is meant, otherwise `no-cache` (compare the tag). At the tail `no-store`. */
                    "Cache-Control"?: string;
                    /** @description `true` if the topic is closed: nothing follows the end unless it is opened again. */
                    Closed?: string;
                    /** @description `gzip` or `zstd`, if `Accept-Encoding` names it; never of record batches. The tag is another one then. */
                    "Content-Encoding"?: string;
                    /** @description Where to continue: an opaque cursor over all partitions that were read. */
                    Cursor?: string;
                    /** @description Tag of the range and of the topic's life. */
                    ETag?: string;
                    /** @description `rel=next`. */
                    Link?: string;
                    /** @description Where to continue (one partition). */
                    "Next-Offset"?: string;
                    /** @description `true` if this is the end. */
                    "Up-To-Date"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ReadPage"];
                    "application/x-ndjson": components["schemas"]["Record"];
                    "application/vnd.weir.batch": string;
                    "application/cloudevents-batch+json": components["schemas"]["CloudEvent"][];
                    "text/event-stream": string;
                };
            };
            /** @description Nothing came while waiting. */
            204: {
                headers: {
                    /** @description `immutable` for a full range of committed messages if a cursor or `incarnation` says which life of the topic is meant, otherwise `no-cache` (compare the tag). At the tail `no-store`. */
                    "Cache-Control"?: string;
                    /** @description `true` if the topic is closed: nothing follows the end unless it is opened again. */
                    Closed?: string;
                    /** @description `gzip` or `zstd`, if `Accept-Encoding` names it; never of record batches. The tag is another one then. */
                    "Content-Encoding"?: string;
                    /** @description Where to continue: an opaque cursor over all partitions that were read. */
                    Cursor?: string;
                    /** @description Tag of the range and of the topic's life. */
                    ETag?: string;
                    /** @description `rel=next`. */
                    Link?: string;
                    /** @description Where to continue (one partition). */
                    "Next-Offset"?: string;
                    /** @description `true` if this is the end. */
                    "Up-To-Date"?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description The range still has the tag that you sent. */
            304: {
                headers: {
                    /** @description `immutable` for a full range of committed messages if a cursor or `incarnation` says which life of the topic is meant, otherwise `no-cache` (compare the tag). At the tail `no-store`. */
                    "Cache-Control"?: string;
                    /** @description `true` if the topic is closed: nothing follows the end unless it is opened again. */
                    Closed?: string;
                    /** @description `gzip` or `zstd`, if `Accept-Encoding` names it; never of record batches. The tag is another one then. */
                    "Content-Encoding"?: string;
                    /** @description Where to continue: an opaque cursor over all partitions that were read. */
                    Cursor?: string;
                    /** @description Tag of the range and of the topic's life. */
                    ETag?: string;
                    /** @description `rel=next`. */
                    Link?: string;
                    /** @description Where to continue (one partition). */
                    "Next-Offset"?: string;
                    /** @description `true` if this is the end. */
                    "Up-To-Date"?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    publishMessage: {
        parameters: {
            query?: never;
            header?: {
                /** @description The message's key: it chooses the partition and orders messages. `ce-partitionkey` means the same. */
                "Message-Key"?: string;
                /** @description Level to wait for; the topic's `default_confirm` by default. */
                Confirm?: "none" | "memory" | "durable" | "quorum" | "archived";
                /** @description If the level is not reached within this time, answer 202 with the level reached so far and the receipt. */
                "Confirm-Deadline-Ms"?: number;
                /** @description With `Producer-Epoch` and `Producer-Seq`, which then must be there too: accept each number once. */
                "Producer-Id"?: string;
                /** @description A higher epoch fences all lower ones. */
                "Producer-Epoch"?: number;
                /** @description The producer's number of this message (of a batch, of its first message), counted from 0 in each epoch without gaps. */
                "Producer-Seq"?: number;
                /** @description Structured-field string, or a UUID without quotes. The same key with the same message gets the same answer; with another message it is 422. Not together with a producer. */
                "Idempotency-Key"?: string;
                /** @description Append only if the tail has this tag, or one of these, which must be of one partition; otherwise 412. `*`: only if the topic exists. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
                /** @description `*`: only if this becomes the partition's first message; otherwise 412. Not together with `If-Match`. */
                "If-None-Match"?: string;
                /** @description Time to live, counted from when the message is accepted; the topic's by default. Queue subscriptions do not deliver older messages; readers still see them. Shown with the message. */
                "Message-TTL-Ms"?: number;
                /** @description RFC 3339, at most 366 days from now. Queue subscriptions do not deliver the message before this time; readers see it at once. Shown with the message. */
                "Deliver-At"?: string;
                /** @description The same, in milliseconds from now. Not together with `Deliver-At`. */
                "Deliver-Delay-Ms"?: number;
                /** @description RFC 9530, `sha-256` or `sha-512`: verified against the body; `digest_mismatch` if it is another. */
                "Content-Digest"?: string;
                /** @description W3C trace context; stored with the message and shown with it. What is none, or all zero, is not. */
                traceparent?: string;
                /** @description W3C trace context; stored. */
                tracestate?: string;
                /** @description W3C baggage; stored as the header `baggage`, up to 8,192 bytes. */
                baggage?: string;
                /** @description `return=minimal`: headers only, with 204 instead of 200 and 201. */
                Prefer?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: unknown;
                };
                "application/octet-stream": string;
                "text/plain": string;
                "application/cloudevents+json": components["schemas"]["CloudEvent"];
                "*/*": string;
            };
        };
        responses: {
            /** @description It was stored before; nothing was added. */
            200: {
                headers: {
                    /** @description The level reached. */
                    "Confirm-Level"?: string;
                    /** @description Resolve or upgrade the confirm with it. */
                    "Confirm-Receipt"?: string;
                    /** @description Tag of the partition's tail, for `If-Match`. */
                    ETag?: string;
                    /** @description `true` if an Idempotency-Key was recognised. */
                    "Idempotency-Replayed"?: string;
                    /** @description Path of the stored message, if its place is known. */
                    Location?: string;
                    /** @description Offset after the message, likewise. */
                    "Next-Offset"?: string;
                    /** @description `return=minimal` if that was asked for. */
                    "Preference-Applied"?: string;
                    /** @description With a producer: its epoch. */
                    "Producer-Epoch"?: string;
                    /** @description With a producer: the highest of its numbers that was accepted, also of a duplicate (of several partitions, by the one that it went to). */
                    "Producer-Seq"?: string;
                    /** @description What is left of it (`r`), and after how many seconds to look again (`t`). */
                    RateLimit?: string;
                    /** @description The publish budget in bytes. */
                    "RateLimit-Policy"?: string;
                    /** @description Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch. */
                    "Server-Timing"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Published"];
                };
            };
            /** @description Stored. */
            201: {
                headers: {
                    /** @description The level reached. */
                    "Confirm-Level"?: string;
                    /** @description Resolve or upgrade the confirm with it. */
                    "Confirm-Receipt"?: string;
                    /** @description Tag of the partition's tail, for `If-Match`. */
                    ETag?: string;
                    /** @description `true` if an Idempotency-Key was recognised. */
                    "Idempotency-Replayed"?: string;
                    /** @description Path of the stored message, if its place is known. */
                    Location?: string;
                    /** @description Offset after the message, likewise. */
                    "Next-Offset"?: string;
                    /** @description `return=minimal` if that was asked for. */
                    "Preference-Applied"?: string;
                    /** @description With a producer: its epoch. */
                    "Producer-Epoch"?: string;
                    /** @description With a producer: the highest of its numbers that was accepted, also of a duplicate (of several partitions, by the one that it went to). */
                    "Producer-Seq"?: string;
                    /** @description What is left of it (`r`), and after how many seconds to look again (`t`). */
                    RateLimit?: string;
                    /** @description The publish budget in bytes. */
                    "RateLimit-Policy"?: string;
                    /** @description Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch. */
                    "Server-Timing"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Published"];
                };
            };
            /** @description Accepted at a level below `durable`, or below the one asked for when the deadline came. */
            202: {
                headers: {
                    /** @description The level reached. */
                    "Confirm-Level"?: string;
                    /** @description Resolve or upgrade the confirm with it. */
                    "Confirm-Receipt"?: string;
                    /** @description Tag of the partition's tail, for `If-Match`. */
                    ETag?: string;
                    /** @description `true` if an Idempotency-Key was recognised. */
                    "Idempotency-Replayed"?: string;
                    /** @description Path of the stored message, if its place is known. */
                    Location?: string;
                    /** @description Offset after the message, likewise. */
                    "Next-Offset"?: string;
                    /** @description `return=minimal` if that was asked for. */
                    "Preference-Applied"?: string;
                    /** @description With a producer: its epoch. */
                    "Producer-Epoch"?: string;
                    /** @description With a producer: the highest of its numbers that was accepted, also of a duplicate (of several partitions, by the one that it went to). */
                    "Producer-Seq"?: string;
                    /** @description What is left of it (`r`), and after how many seconds to look again (`t`). */
                    RateLimit?: string;
                    /** @description The publish budget in bytes. */
                    "RateLimit-Policy"?: string;
                    /** @description Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch. */
                    "Server-Timing"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Published"];
                };
            };
            /** @description Stored now or before; `Prefer: return=minimal`. */
            204: {
                headers: {
                    /** @description The level reached. */
                    "Confirm-Level"?: string;
                    /** @description Resolve or upgrade the confirm with it. */
                    "Confirm-Receipt"?: string;
                    /** @description Tag of the partition's tail, for `If-Match`. */
                    ETag?: string;
                    /** @description `true` if an Idempotency-Key was recognised. */
                    "Idempotency-Replayed"?: string;
                    /** @description Path of the stored message, if its place is known. */
                    Location?: string;
                    /** @description Offset after the message, likewise. */
                    "Next-Offset"?: string;
                    /** @description `return=minimal` if that was asked for. */
                    "Preference-Applied"?: string;
                    /** @description With a producer: its epoch. */
                    "Producer-Epoch"?: string;
                    /** @description With a producer: the highest of its numbers that was accepted, also of a duplicate (of several partitions, by the one that it went to). */
                    "Producer-Seq"?: string;
                    /** @description What is left of it (`r`), and after how many seconds to look again (`t`). */
                    RateLimit?: string;
                    /** @description The publish budget in bytes. */
                    "RateLimit-Policy"?: string;
                    /** @description Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch. */
                    "Server-Timing"?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readMessage: {
        parameters: {
            query?: {
                /** @description The `incarnation` of the topic that you mean. If the topic was deleted and created again the answer is 410 `incarnation_gone`. Answers that cannot change may then be cached for ever. */
                incarnation?: number;
                /** @description Lowest level that you accept. Pages contain committed messages only: `memory` is refused as `level_unavailable`, unless storage confirms at `memory` at most. With `text/event-stream`, `memory` shows messages before they are committed; the default is the topic's `deliver_from`. */
                min_level?: "memory" | "quorum";
            };
            header?: {
                /** @description Answer 304 if it has this tag. */
                "If-None-Match"?: string;
                /** @description Encodings that you accept; any if the header is missing. */
                "Accept-Encoding"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
                /** @description Partition, from 0. */
                partition: number;
                /** @description Offset. */
                offset: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The payload. */
            200: {
                headers: {
                    /** @description `immutable` once the message is committed and if `incarnation` is given, otherwise `no-cache` (compare the tag). */
                    "Cache-Control"?: string;
                    /** @description As published; not if the payload was decoded. */
                    "Content-Digest"?: string;
                    /** @description As published; not if the payload was decoded. */
                    "Content-Encoding"?: string;
                    /** @description As published, RFC 3339. */
                    "Deliver-At"?: string;
                    /** @description Tag of the message. */
                    ETag?: string;
                    /** @description As published. */
                    "Message-Key"?: string;
                    /** @description What of the message no header can tell: names of headers as they would be here, percent-encoded where they are none. In a page they are shown. */
                    "Message-Left-Out"?: string;
                    /** @description As published, milliseconds. */
                    "Message-TTL-Ms"?: string;
                    /** @description When it was accepted, milliseconds since the epoch. */
                    "Message-Timestamp"?: string;
                    /** @description As published. */
                    baggage?: string;
                    /** @description As published. */
                    traceparent?: string;
                    /** @description As published. */
                    tracestate?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/cloudevents+json": components["schemas"]["CloudEvent"];
                    "application/octet-stream": string;
                    "application/json": unknown;
                    "text/plain": string;
                    "*/*": string;
                };
            };
            /** @description The message still has the tag that you sent. */
            304: {
                headers: {
                    /** @description `immutable` once the message is committed and if `incarnation` is given, otherwise `no-cache` (compare the tag). */
                    "Cache-Control"?: string;
                    /** @description Tag of the message. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    publishBatch: {
        parameters: {
            query?: {
                /** @description All messages of one partition are accepted or refused together; at most 3 MiB. */
                atomic?: boolean;
            };
            header?: {
                /** @description Level to wait for; the topic's `default_confirm` by default. */
                Confirm?: "none" | "memory" | "durable" | "quorum" | "archived";
                /** @description If the level is not reached within this time, answer 202 with the level reached so far and the receipt. */
                "Confirm-Deadline-Ms"?: number;
                /** @description With `Producer-Epoch` and `Producer-Seq`, which then must be there too: accept each number once. */
                "Producer-Id"?: string;
                /** @description A higher epoch fences all lower ones. */
                "Producer-Epoch"?: number;
                /** @description The producer's number of this message (of a batch, of its first message), counted from 0 in each epoch without gaps. */
                "Producer-Seq"?: number;
                /** @description RFC 9530, `sha-256` or `sha-512`: verified against the body; `digest_mismatch` if it is another. */
                "Content-Digest"?: string;
                /** @description W3C trace context; stored with each line and event that has none. Record batches are stored unchanged. */
                traceparent?: string;
                /** @description W3C trace context; stored with it. */
                tracestate?: string;
                /** @description `return=minimal`: headers only, with 204 instead of 200 and 201. */
                Prefer?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-ndjson": components["schemas"]["BatchLine"];
                "application/cloudevents-batch+json": components["schemas"]["CloudEvent"][];
                "application/cloudevents+json": components["schemas"]["CloudEvent"];
                "application/vnd.weir.batch": string;
            };
        };
        responses: {
            /** @description All were accepted. */
            200: {
                headers: {
                    /** @description The level reached. */
                    "Confirm-Level"?: string;
                    /** @description Resolve or upgrade the confirm with it. */
                    "Confirm-Receipt"?: string;
                    /** @description Tag of the partition's tail, for `If-Match`. */
                    ETag?: string;
                    /** @description Path of the first message, if all were stored as one batch. */
                    Location?: string;
                    /** @description Offset after the last, likewise. */
                    "Next-Offset"?: string;
                    /** @description `return=minimal` if that was asked for. */
                    "Preference-Applied"?: string;
                    /** @description With a producer: its epoch. */
                    "Producer-Epoch"?: string;
                    /** @description With a producer: the highest of its numbers that was accepted, also of a duplicate (of several partitions, by the one that it went to). */
                    "Producer-Seq"?: string;
                    /** @description What is left of it (`r`), and after how many seconds to look again (`t`). */
                    RateLimit?: string;
                    /** @description The publish budget in bytes. */
                    "RateLimit-Policy"?: string;
                    /** @description Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch. */
                    "Server-Timing"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BatchPublished"];
                };
            };
            /** @description All were accepted, at a level below `durable`, or below the one asked for when the deadline came. */
            202: {
                headers: {
                    /** @description The level reached. */
                    "Confirm-Level"?: string;
                    /** @description Resolve or upgrade the confirm with it. */
                    "Confirm-Receipt"?: string;
                    /** @description Tag of the partition's tail, for `If-Match`. */
                    ETag?: string;
                    /** @description Path of the first message, if all were stored as one batch. */
                    Location?: string;
                    /** @description Offset after the last, likewise. */
                    "Next-Offset"?: string;
                    /** @description `return=minimal` if that was asked for. */
                    "Preference-Applied"?: string;
                    /** @description With a producer: its epoch. */
                    "Producer-Epoch"?: string;
                    /** @description With a producer: the highest of its numbers that was accepted, also of a duplicate (of several partitions, by the one that it went to). */
                    "Producer-Seq"?: string;
                    /** @description What is left of it (`r`), and after how many seconds to look again (`t`). */
                    RateLimit?: string;
                    /** @description The publish budget in bytes. */
                    "RateLimit-Policy"?: string;
                    /** @description Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch. */
                    "Server-Timing"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BatchPublished"];
                };
            };
            /** @description All were accepted; `Prefer: return=minimal`. */
            204: {
                headers: {
                    /** @description The level reached. */
                    "Confirm-Level"?: string;
                    /** @description Resolve or upgrade the confirm with it. */
                    "Confirm-Receipt"?: string;
                    /** @description Tag of the partition's tail, for `If-Match`. */
                    ETag?: string;
                    /** @description Path of the first message, if all were stored as one batch. */
                    Location?: string;
                    /** @description Offset after the last, likewise. */
                    "Next-Offset"?: string;
                    /** @description `return=minimal` if that was asked for. */
                    "Preference-Applied"?: string;
                    /** @description With a producer: its epoch. */
                    "Producer-Epoch"?: string;
                    /** @description With a producer: the highest of its numbers that was accepted, also of a duplicate (of several partitions, by the one that it went to). */
                    "Producer-Seq"?: string;
                    /** @description What is left of it (`r`), and after how many seconds to look again (`t`). */
                    RateLimit?: string;
                    /** @description The publish budget in bytes. */
                    "RateLimit-Policy"?: string;
                    /** @description Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch. */
                    "Server-Timing"?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Some were refused; each has its problem. */
            207: {
                headers: {
                    /** @description The level reached. */
                    "Confirm-Level"?: string;
                    /** @description Resolve or upgrade the confirm with it. */
                    "Confirm-Receipt"?: string;
                    /** @description Tag of the partition's tail, for `If-Match`. */
                    ETag?: string;
                    /** @description Path of the first message, if all were stored as one batch. */
                    Location?: string;
                    /** @description Offset after the last, likewise. */
                    "Next-Offset"?: string;
                    /** @description `return=minimal` if that was asked for. */
                    "Preference-Applied"?: string;
                    /** @description With a producer: its epoch. */
                    "Producer-Epoch"?: string;
                    /** @description With a producer: the highest of its numbers that was accepted, also of a duplicate (of several partitions, by the one that it went to). */
                    "Producer-Seq"?: string;
                    /** @description What is left of it (`r`), and after how many seconds to look again (`t`). */
                    RateLimit?: string;
                    /** @description The publish budget in bytes. */
                    "RateLimit-Policy"?: string;
                    /** @description Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch. */
                    "Server-Timing"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BatchPublished"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readProducer: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
                /** @description `Producer-Id`. */
                producer: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Its state. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Producer"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readReceipt: {
        parameters: {
            query?: {
                /** @description Wait for this level … */
                level?: "memory" | "durable" | "quorum" | "archived";
                /** @description … for at most this many seconds; 0 by default. */
                wait?: number;
            };
            header?: never;
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
                /** @description `Confirm-Receipt` of a publish; any other text is `invalid_cursor`. */
                receipt: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description What it has reached. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Receipt"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    trimTopic: {
        parameters: {
            query?: {
                /** @description Only say what would happen. */
                dry_run?: boolean;
            };
            header?: {
                /** @description Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with any tag. A weak tag is refused, and so is a list without a tag of this gateway. */
                "If-Match"?: string;
            };
            path: {
                /** @description Namespace. */
                ns: string;
                /** @description Topic. */
                topic: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Trim"];
            };
        };
        responses: {
            /** @description What happened, or would happen. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Trimmed"];
                };
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    openWebSocket: {
        parameters: {
            query?: never;
            header: {
                /** @description `weir.v1.json` or `weir.v1.bin`. */
                "Sec-WebSocket-Protocol": string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The connection is a WebSocket now. */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed. */
            default: {
                headers: {
                    /** @description Seconds after which to try again, if that may help. */
                    "Retry-After"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}
