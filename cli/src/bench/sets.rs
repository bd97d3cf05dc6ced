//! The named sets: commands, and how often each is run for its spread.

/// A set: its name, what it is for, and its commands.
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) parts: &'static [&'static [Repeated]],
}

/// How often, and what behind `weir bench`.
type Repeated = (u32, &'static str);

impl Set {
    pub(super) fn lines(&self) -> impl Iterator<Item = Repeated> {
        self.parts.iter().copied().flatten().copied()
    }
}

pub(super) const SETS: &[Set] = &[
    Set {
        name: "proof",
        about: "everything once, in about a minute and a half: shows that all of it works",
        parts: &[PROOF],
    },
    Set {
        name: "quick",
        about: "what the targets of one machine need, in about twelve minutes",
        parts: &[QUICK],
    },
    Set {
        name: "full",
        about: "everything that follows, in about three quarters of an hour",
        parts: &[LOW_RATE, STREAM, QUEUE, SCALE],
    },
    Set {
        name: "low-rate",
        about: "confirm and delivery at 50, 1,000 and 10,000 a second, beside the disk of the same minute",
        parts: &[LOW_RATE],
    },
    Set { name: "stream", about: "writers and readers in every shape", parts: &[STREAM] },
    Set { name: "queue", about: "the life of queued messages, at each prefetch", parts: &[QUEUE] },
    Set {
        name: "scale",
        about: "many topics, many connections, a large journal, what idles and what freezes",
        parts: &[SCALE],
    },
    Set {
        name: "cold",
        about: "from the object store and to it; needs an S3 with the bucket weir-bench, which scripts/bench-results starts",
        parts: &[COLD],
    },
];

const PROOF: &[Repeated] = &[
    (1, "smoke"),
    (1, "steady --rate 2k --writers 4 --readers 4 --clients 3 --seconds 1 --warmup 1"),
    (1, "steady --rate 2k --writers 2 --readers 4 --transport internal --seconds 1 --warmup 1"),
    (1, "steady --rate 2k --writers 2 --readers 2 --object-store local --seconds 2 --warmup 1"),
    (1, "payload --size 100B,1MiB --seconds 1 --warmup 1"),
    (1, "burst --messages 20000"),
    (1, "fan-out --readers 4 --rate 1k --seconds 1 --warmup 1"),
    (1, "fan-out --readers 4 --rate 1k --seconds 1 --warmup 1 --transport sse"),
    (1, "frozen --readers 4 --rate 200 --seconds 1 --warmup 1"),
    (1, "queue-lifecycle --prefetch 64 --rate 500 --seconds 2 --warmup 1"),
    (1, "queue-lifecycle --over ws --prefetch 1 --rate 500 --clients 2 --seconds 1 --warmup 1"),
    (1, "catch-up --readers 2 --size 4MiB"),
    (1, "recovery --size 8MiB"),
    (1, "many-topics --topics 100 --seconds 1"),
    (1, "http --seconds 1 --rounds 1 --connections 16"),
    (1, "http --seconds 1 --rounds 1 --connections 16 --http2"),
    (1, "lone --seconds 1"),
];

// Behind five seconds a server at full rate has all the memory that it needs; getting it costs pauses on some machines.
const QUICK: &[Repeated] = &[
    (3, "lone --rate 50,1k,max --seconds 2"),
    (3, "steady --rate 50,1k,10k --writers 1 --readers 1 --seconds 4 --warmup 1"),
    (3, "steady --rate 50k,150k,max --seconds 4 --warmup 5"),
    (3, "steady --rate max --readers 0 --batch 64 --seconds 4 --warmup 5"),
    (3, "steady --rate 150k --transport internal --seconds 4 --warmup 5"),
    (3, "steady --rate 150k --clients 2 --seconds 4 --warmup 5"),
    (3, "queue-lifecycle --rate 5k --over ws,ws-json,http --prefetch 64 --seconds 3 --warmup 1"),
    (3, "queue-lifecycle --rate 5k --over ws --prefetch 1,16384 --seconds 3 --warmup 1"),
    (3, "queue-lifecycle --rate 50k --over ws --prefetch 16384 --seconds 3 --warmup 1"),
    (3, "queue-lifecycle --rate 250k --together 64 --over ws --prefetch 16384 --seconds 4 --warmup 3"),
    (
        3,
        "queue-lifecycle --rate 250k --together 64 --nack-one-in 0 --dead-one-in 0 --over ws --prefetch 16384 \
         --seconds 4 --warmup 3",
    ),
    (3, "queue-lifecycle --rate 250k --together 256 --over ws --prefetch 16384 --seconds 4 --warmup 3"),
    (
        3,
        "queue-lifecycle --rate 250k --together 256 --nack-one-in 0 --dead-one-in 0 --over ws --prefetch 16384 \
         --seconds 4 --warmup 3",
    ),
    (3, "fan-out --readers 1,8,32 --rate 10k --seconds 3 --warmup 1"),
    (3, "fan-out --readers 8,16 --rate 100k --seconds 4 --warmup 4"),
    (3, "http --connections 64,1024 --seconds 1 --rounds 1"),
    (2, "many-topics --topics 64,10000 --seconds 3"),
    (2, "frozen --readers 500 --rate 50 --seconds 4 --warmup 2"),
    (2, "recovery --size 1GiB"),
    (1, "stream-tiers --seconds 3 --warmup 1"),
    (1, "catch-up --readers 1,10 --size 64MiB"),
    (1, "idle --topics 100000 --sockets 1000 --connections 1000 --seconds 10"),
];

const LOW_RATE: &[Repeated] = &[
    (5, "lone --rate 50,1k,max --seconds 4"),
    // Long enough for a thousand messages, of which one is p99.9.
    (5, "steady --rate 50 --writers 1 --readers 1 --seconds 25 --warmup 2"),
    (5, "steady --rate 1k,10k --writers 1 --readers 1 --seconds 6 --warmup 2"),
];

const STREAM: &[Repeated] = &[
    (3, "steady --rate 50k,150k,250k,400k,max --seconds 8 --warmup 5"),
    (3, "steady --rate 150k --confirm none --seconds 8 --warmup 5"),
    (3, "steady --rate 20k --transport ws-json --seconds 8 --warmup 5"),
    (3, "steady --rate max --readers 0 --batch 64 --seconds 8 --warmup 5"),
    (3, "steady --rate 50k,150k,max --transport internal --seconds 8 --warmup 5"),
    (3, "steady --rate 150k --clients 2 --seconds 8 --warmup 5"),
    (3, "payload --seconds 4 --warmup 1"),
    (3, "burst"),
    (3, "stream-tiers --rate 50k --seconds 5 --warmup 1"),
    (3, "fan-out --readers 1,8,32 --rate 10k --seconds 5 --warmup 1"),
    (3, "fan-out --readers 1,2,4,8,16 --rate 100k --seconds 5 --warmup 4"),
    (3, "fan-out --readers 32,256,1000 --rate 100 --seconds 5 --warmup 1"),
    (3, "fan-out --readers 1,8,32 --rate 1k --seconds 5 --warmup 1 --transport sse"),
    (3, "catch-up --readers 1,10,100"),
];

const QUEUE: &[Repeated] = &[
    (3, "queue-lifecycle --rate 1k --seconds 6 --warmup 2"),
    (3, "queue-lifecycle --rate 5k --seconds 6 --warmup 2"),
    (3, "queue-lifecycle --rate 50k --over ws --prefetch 64,16384 --seconds 6 --warmup 2"),
    (3, "queue-lifecycle --rate 150k --together 64 --over ws --prefetch 64,16384 --seconds 6 --warmup 3"),
    (
        3,
        "queue-lifecycle --rate 150k --together 64 --nack-one-in 0 --dead-one-in 0 --over ws --prefetch 16384 \
         --seconds 6 --warmup 3",
    ),
];

const SCALE: &[Repeated] = &[
    (3, "many-topics --topics 64,500,2000,10000 --seconds 5"),
    (3, "http --connections 1,16,64,256,1024 --seconds 2"),
    (3, "http --connections 64,256,1024 --seconds 2 --http2"),
    (3, "frozen --readers 1000 --rate 50 --seconds 8 --warmup 4"),
    (2, "recovery --size 4GiB"),
    (1, "idle --topics 100000 --sockets 0 --seconds 60"),
    (1, "idle --topics 0 --sockets 9000 --seconds 60"),
];

const COLD: &[Repeated] = &[
    (3, "catch-up --object-store s3://weir-bench --readers 1 --size 256MiB"),
    (1, "catch-up --object-store s3://weir-bench --readers 1000 --size 4MiB"),
    // Longer than states that go out are apart, and several rounds: p99 of one program differs from run to run.
    (5, "steady --rate 10k,50k --seconds 32 --warmup 4"),
    (5, "steady --rate 10k,50k --seconds 32 --warmup 4 --object-store local"),
    (5, "steady --rate 10k,50k --seconds 32 --warmup 4 --object-store s3://weir-bench"),
    (3, "steady --rate max --seconds 6 --warmup 5"),
    (3, "steady --rate max --seconds 6 --warmup 5 --object-store s3://weir-bench"),
];
