//! What lives, by the states of the shards.

use std::collections::BTreeMap;
use std::ops::Range;

use weir_journal::{CarriedUsage, Part, Span, StreamId};

use super::indexes;
use crate::shard::state::{BatchRow, ShardState};

/// Copies of the states of all shards.
pub(super) type States = BTreeMap<StreamId, ShardState>;

/// What lives of these entries, in order, none twice.
pub(super) fn parts(states: &States, spans: &[Span]) -> Vec<Part> {
    let of_span = |(stream, span): &Span| {
        let stream = *stream;
        let living = states.get(&stream).map(|state| state.living(indexes(span)));
        living.into_iter().flatten().map(move |row| part(stream, &row))
    };
    let mut parts: Vec<Part> = spans.iter().flat_map(of_span).collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}

fn part(stream: StreamId, row: &BatchRow) -> Part {
    Part { stream, index: row.index.0, pos: row.pos, len: row.len }
}

/// Bytes that topics keep outside of packs. Dead letters and outputs on their way are left out: of most of them a topic
/// has the bytes too, and what is counted twice would hide what has died.
pub(super) fn bytes_at_least(states: &States) -> u64 {
    states.values().map(ShardState::kept_bytes).sum()
}

/// Bytes that live of each carried file. Of what is needed twice, by a topic and as a dead letter, it counts both: then
/// a file is tidied later than it might be.
pub(super) fn bytes_of(states: &States, files: &[CarriedUsage]) -> Vec<u64> {
    let mut lives = vec![0; files.len()];
    for (stream, state) in states {
        let spans = files.iter().enumerate().flat_map(|(nth, file)| {
            let of_stream = file.spans.iter().filter(|(of, _)| of == stream);
            of_stream.map(move |(_, span)| (span.clone(), nth))
        });
        // Ascending from file to file.
        let spans: Vec<(Range<u64>, usize)> = spans.collect();
        let Some(end) = spans.last().map(|(span, _)| span.end) else { continue };
        for row in state.living(indexes(&(0..end))) {
            let at = spans.partition_point(|(span, _)| span.end <= row.index.0);
            if let Some((_, nth)) = spans.get(at).filter(|(span, _)| span.contains(&row.index.0)) {
                lives[*nth] += u64::from(row.len);
            }
        }
    }
    lives
}
