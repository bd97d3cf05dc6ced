//! Why a record is where it is. Looking changes nothing.

use bytes::Bytes;
use weir_protocol::ids::Offset;
use weir_protocol::rpc::{ExplainRequest, Explanation, Hindrance, LeaseInfo, Refusal, Standing};

use super::ahead::Sight;
use super::{PartHandle, View};
use crate::clock;
use crate::read::{Allowance, Reader};
use crate::replica::{Held, ShardHandle};
use crate::server::decode::decode;
use crate::subscription::Fate;

/// Nobody consumes if nobody has pulled for this long, in milliseconds.
const NO_CONSUMER_MS: u64 = 60_000;

pub(in crate::server) async fn explain(shard: ShardHandle, body: Bytes) -> Result<Explanation, Refusal> {
    let request: ExplainRequest = decode(body)?;
    let (handle, offset) = (PartHandle::new(shard.clone(), request.part), Offset(request.offset));
    let queue = handle.queue(&handle.view()?);
    let (explanation, view) = {
        let (held, view) = handle.lock(&queue)?;
        (at_rest(&held, &view, offset), view)
    };
    if explanation.record.standing() != Standing::Ready {
        return Ok(explanation);
    }
    if view.held.config.is_stream {
        // It is shown whatever the record says, if it is there.
        let next = Reader::new(shard, handle.key.1).next_there(offset).await?;
        return Ok(if next > offset {
            compacted(explanation)
        } else {
            with_record(explanation, None, false)
        });
    }
    let reader = Reader::new(shard, handle.key.1);
    let read = reader.look(offset, offset.plus(1), Allowance { records: 1, bytes: u64::MAX }).await?;
    if read.records == 0 && read.next > offset {
        return Ok(compacted(explanation));
    }
    let (sight, now) = (Sight::of(&view)?, clock::now());
    let fate = sight.look(&read, now)?.first().map(|seen| seen.fate);
    // Whatever is skipped though any filter would let it through has expired.
    let is_expired =
        sight.without_filter().look(&read, now)?.first().map(|seen| seen.fate) == Some(Fate::Skip);
    Ok(with_record(explanation, fate, is_expired))
}

/// Nothing else matters of a record that is not there any more.
fn compacted(explanation: Explanation) -> Explanation {
    Explanation { hindrances: vec![Hindrance::Compacted as i32], ..explanation }
}

/// What is known without reading the record.
fn at_rest(held: &Held, view: &View, offset: Offset) -> Explanation {
    let (now, part) = (clock::now(), &view.held.part);
    let mut record = LeaseInfo { offset: offset.0, ..LeaseInfo::default() };
    match offset {
        _ if offset < view.start => record.set_standing(Standing::Trimmed),
        _ if offset >= view.end => record.set_standing(Standing::Absent),
        _ if view.held.config.is_stream => record = held.cursor.standing(part, offset, view.end, now),
        _ => record = held.leases.standing(part, offset, now),
    }
    let mut explanation = Explanation {
        ahead: part.count_unsettled_before(offset.min(view.end)),
        pulled_ms_ago: held.pulled.map(|at| now.0.saturating_sub(at.0)),
        start: view.start.0,
        end: view.end.0,
        record,
        hindrances: Vec::new(),
    };
    let waits = matches!(
        explanation.record.standing(),
        Standing::Ready | Standing::Delayed | Standing::Blocked | Standing::Skipped
    );
    let is_exhausted = !view.held.config.is_stream && held.leases.is_exhausted(explanation.record.attempts);
    if waits && is_exhausted {
        explanation.hindrances.push(Hindrance::Exhausted as i32);
    }
    // What is given up once its time has come needs nobody who pulls.
    if waits && !(is_exhausted && explanation.record.standing() == Standing::Delayed) {
        let is_alone = explanation.pulled_ms_ago.is_none_or(|ms| ms > NO_CONSUMER_MS);
        let is_paused = view.held.config.paused;
        for (is_so, hindrance) in [
            (is_paused, Hindrance::Paused),
            (held.leases.is_full(now) && !is_paused && !view.held.config.is_stream, Hindrance::WindowFull),
            (is_alone, Hindrance::NoConsumer),
            (held.is_seeking, Hindrance::Seeking),
            (held.leases.is_full_of_what_comes_again(), Hindrance::ComesAgainFull),
            (held.leases.is_full_of_what_was_looked_at(), Hindrance::LookAheadFull),
        ] {
            if is_so {
                explanation.hindrances.push(hindrance as i32);
            }
        }
    }
    explanation
}

/// What the record itself adds.
fn with_record(mut explanation: Explanation, fate: Option<Fate>, is_expired: bool) -> Explanation {
    let own = match fate {
        Some(Fate::Skip) if is_expired => Some(Hindrance::Expired),
        Some(Fate::Skip) => Some(Hindrance::Filtered),
        Some(Fate::DeliverAt(_)) => Some(Hindrance::Scheduled),
        _ if explanation.ahead > 0 && explanation.hindrances.is_empty() => Some(Hindrance::InLine),
        _ => None,
    };
    if let Some(own) = own {
        explanation.hindrances.insert(0, own as i32);
    }
    explanation
}
