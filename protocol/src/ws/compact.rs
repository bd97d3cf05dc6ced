//! Binary bodies of the frames that are sent most often.
//!
//! `confirm`; its `arg` is `upto`:
//!
//! | offset | size | field   | meaning (little-endian) |
//! |-------:|-----:|---------|-------------------------|
//! | 0      | 1    | level   | [`Level`] number, not 0 |
//! | 1      | 1    | staged  | 1: the offsets may still change and belong to `term`; else 0 |
//! | 2      | 2    |         | zero |
//! | 4      | 4    | count   | number of bases |
//! | 8      | 8    | term    | zero unless staged |
//! | 16     | 28   | stages  | microseconds: gw, net, queue, write, fsync, quorum, total |
//! | 44     | 4    |         | zero |
//! | 48     | 24 n | bases   | each `seq u64, n u32, p u32, o u64` |
//!
//! `limit` and `pub_limit`: `msgs u64, bytes u64`.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Base, Confirm, Limit, StageMicros};
use crate::rpc::Level;

const CONFIRM_HEAD_BYTES: usize = 48;
const BASE_BYTES: usize = 24;
pub(super) const LIMIT_BYTES: usize = 16;

pub(super) fn confirm_bytes(confirm: &Confirm) -> usize {
    CONFIRM_HEAD_BYTES + BASE_BYTES * confirm.base.len()
}

pub(super) fn put_confirm(out: &mut BytesMut, confirm: &Confirm) {
    out.put_u8(u8::try_from(confirm.level as i32).expect("levels are numbered 0 to 5"));
    out.put_u8(u8::from(confirm.term.is_some()));
    out.put_u16_le(0);
    out.put_u32_le(u32::try_from(confirm.base.len()).expect("as many as fit a message"));
    out.put_u64_le(confirm.term.unwrap_or(0));
    let us = &confirm.us;
    for stage in [us.gw, us.net, us.queue, us.write, us.fsync, us.quorum, us.total, 0] {
        out.put_u32_le(stage);
    }
    for base in &confirm.base {
        out.put_u64_le(base.seq);
        out.put_u32_le(base.n);
        out.put_u32_le(base.p);
        out.put_u64_le(base.o);
    }
}

/// `None` if the body is not laid out as the table says.
pub(super) fn take_confirm(upto: Option<u64>, mut body: Bytes) -> Option<Confirm> {
    if body.len() < CONFIRM_HEAD_BYTES {
        return None;
    }
    let level = Level::try_from(i32::from(body.get_u8())).ok().filter(|level| *level != Level::Unset)?;
    let (staged, zero) = (body.get_u8(), body.get_u16_le());
    let (count, term) = (body.get_u32_le() as usize, body.get_u64_le());
    let mut stages = [0; 8];
    stages.fill_with(|| body.get_u32_le());
    let [gw, net, queue, write, fsync, quorum, total, last] = stages;
    let zeros = zero == 0 && last == 0 && (staged == 1 || (staged == 0 && term == 0));
    if !zeros || count.checked_mul(BASE_BYTES) != Some(body.len()) {
        return None;
    }
    let mut take_base =
        || Base { seq: body.get_u64_le(), n: body.get_u32_le(), p: body.get_u32_le(), o: body.get_u64_le() };
    let base = (0..count).map(|_| take_base()).collect();
    let us = StageMicros { gw, net, queue, write, fsync, quorum, total };
    Some(Confirm { upto, level, term: (staged == 1).then_some(term), base, us })
}

pub(super) fn put_limit(out: &mut BytesMut, limit: Limit) {
    out.put_u64_le(limit.msgs);
    out.put_u64_le(limit.bytes);
}

/// `None` for any other length.
pub(super) fn take_limit(mut body: Bytes) -> Option<Limit> {
    (body.len() == LIMIT_BYTES).then(|| Limit { msgs: body.get_u64_le(), bytes: body.get_u64_le() })
}
