//! One writer: what is due goes out in batches, within window and credit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Epoch, ProducerKey, Seq};
use weir_protocol::ws::Limit;

use super::Shared;
use super::door::Door;
use super::payloads::Payloads;
use super::publishing::{News, Publishing};
use crate::bench::identity::Identity;
use crate::bench::schedule::{Schedule, Window};
use crate::bench::tally::Tally;

/// Messages with one due time that are not confirmed yet.
struct Unconfirmed {
    /// Number behind the last.
    end: u64,
    count: u64,
    due_ns: u64,
}

/// A writer with its connection.
pub(super) struct Writer {
    number: u32,
    shared: Arc<Shared>,
    publishing: Publishing,
    producer: ProducerKey,
    limit: Limit,
    payloads: Payloads,
    sent: u64,
    sent_bytes: u64,
    confirmed: u64,
    unconfirmed: VecDeque<Unconfirmed>,
    /// When there was room again after there was none: what was due before could not be sent earlier.
    opened_ns: u64,
    tally: Tally,
}

impl Writer {
    pub(super) async fn connect(door: &Door, shared: &Arc<Shared>, number: u32) -> anyhow::Result<Self> {
        let (publishing, producer, limit) = Publishing::open(door, shared, number).await?;
        let payloads = Payloads::new(shared.noise.clone(), shared.shape.payload, number);
        Ok(Self {
            number,
            shared: Arc::clone(shared),
            publishing,
            producer,
            limit,
            payloads,
            sent: 0,
            sent_bytes: 0,
            confirmed: 0,
            unconfirmed: VecDeque::new(),
            opened_ns: 0,
            tally: Tally::new(),
        })
    }

    /// Publishes until the window is over and all of it is confirmed.
    pub(super) async fn run(
        mut self,
        window: Window,
        mut ticks: watch::Receiver<u64>,
    ) -> anyhow::Result<Tally> {
        let schedule = self.shared.per_writer.map(Schedule::new);
        let last_tick = window.ticks();
        let limit = self.shared.shape.messages.unwrap_or(u64::MAX);
        loop {
            let tick = *ticks.borrow_and_update();
            let is_over = tick >= last_tick || self.sent >= limit;
            let due = match schedule {
                Some(schedule) => self.whole(schedule.due(tick.min(last_tick)).min(limit), is_over),
                None if is_over || tick == 0 => self.sent,
                None => limit,
            };
            while self.room(due) > 0 {
                self.put_batch(due, schedule, &window).await?;
                self.opened_ns = window.now_ns();
            }
            let is_blocked = self.sent < due;
            let waits_for_confirms = self.shared.shape.confirm.is_some() && self.confirmed < self.sent;
            if is_over && !is_blocked && !waits_for_confirms {
                break;
            }
            tokio::select! {
                biased;
                news = self.publishing.next() => {
                    self.take(news?, &window);
                    while self.publishing.has_next() {
                        let news = self.publishing.next().await?;
                        self.take(news, &window);
                    }
                    if is_blocked {
                        self.opened_ns = window.now_ns();
                    }
                }
                _ = ticks.changed(), if !is_blocked || !is_over => {}
            }
        }
        self.tally.sent = self.sent;
        self.tally.confirmed = self.confirmed;
        self.shared.sent[self.number as usize].store(self.sent, Ordering::Release);
        Ok(self.tally)
    }

    /// Of what is due, what there is enough of to be sent together; at the end all of it.
    fn whole(&self, due: u64, is_over: bool) -> u64 {
        let together = u64::from(self.shared.shape.together);
        if is_over { due } else { self.sent + due.saturating_sub(self.sent) / together * together }
    }

    /// When the first messages that are sent together, from `first` on, were all due: earlier nobody sends them.
    fn complete_ns(&self, first: u64, schedule: Option<Schedule>) -> u64 {
        let last = (first + u64::from(self.shared.shape.together)).min(self.sent) - 1;
        schedule.map_or(0, |schedule| schedule.due_ns(last))
    }

    /// Messages that may go out now.
    fn room(&self, due: u64) -> u64 {
        let shape = &self.shared.shape;
        let in_window = match shape.confirm {
            Some(_) => shape.window.saturating_sub(self.sent - self.confirmed),
            None => u64::MAX,
        };
        let in_credit =
            in_credit(self.limit, Limit { msgs: self.sent, bytes: self.sent_bytes }, shape.payload as u64);
        in_window.min(in_credit).min(due.saturating_sub(self.sent)).min(u64::from(shape.batch_max))
    }

    async fn put_batch(
        &mut self,
        due: u64,
        schedule: Option<Schedule>,
        window: &Window,
    ) -> anyhow::Result<()> {
        let (first, now) = (self.sent, window.now_ns());
        let batch = self.batch(self.room(due), schedule, now)?;
        self.sent_bytes += u64::from(batch.header().raw_bytes);
        self.publishing.put(first, batch).await?;
        self.tally.batches += u64::from(window.counts(now));
        let free_ns = self.opened_ns.max(self.complete_ns(first, schedule));
        if window.counts(now) {
            for group in self.unconfirmed.iter().rev().take_while(|group| group.end > first) {
                let opened_ns = group.due_ns.max(free_ns);
                self.tally.late.record(now.saturating_sub(group.due_ns) / 1_000, group.count);
                self.tally.generator.record(now.saturating_sub(opened_ns) / 1_000, group.count);
            }
        }
        if self.shared.shape.confirm.is_none() {
            self.unconfirmed.clear();
        }
        Ok(())
    }

    fn batch(&mut self, count: u64, schedule: Option<Schedule>, now: u64) -> anyhow::Result<Batch> {
        let mut builder = BatchBuilder::new(self.producer, Epoch(0), Seq(self.sent));
        let headers = Headers::default();
        let mut is_first = true;
        for seq in self.sent..self.sent + count {
            let due_ns = schedule.map_or(now, |schedule| schedule.due_ns(seq));
            let value = self.payloads.next(Identity { writer: self.number, seq, due_ns });
            builder.push(RecordParts { key: None, headers: &headers, value })?;
            match self.unconfirmed.back_mut() {
                Some(group) if !is_first && group.due_ns == due_ns => {
                    group.end += 1;
                    group.count += 1;
                }
                _ => self.unconfirmed.push_back(Unconfirmed { end: seq + 1, count: 1, due_ns }),
            }
            is_first = false;
        }
        self.sent += count;
        Ok(builder.build(Compression::None)?)
    }

    fn take(&mut self, news: News, window: &Window) {
        match news {
            News::Confirmed(end) => self.confirmed_to(end, window),
            News::Limit(limit) => self.limit = limit,
            News::Nothing => {}
        }
    }

    fn confirmed_to(&mut self, end: u64, window: &Window) {
        let now = window.now_ns();
        self.confirmed = end;
        while let Some(group) = self.unconfirmed.pop_front_if(|group| group.end <= end) {
            if window.counts(group.due_ns) {
                self.tally.confirm.record(now.saturating_sub(group.due_ns) / 1_000, group.count);
            }
            if window.counts(now) {
                self.tally.confirmed_in_window += group.count;
            }
        }
    }
}

/// Messages of `payload` bytes that credit allows beyond what was `sent`.
fn in_credit(limit: Limit, sent: Limit, payload: u64) -> u64 {
    // A record's overhead is below this. Of what does not fit one may go while there is any credit: a record
    // can be larger than all of it.
    let left = limit.bytes.saturating_sub(sent.bytes);
    (left / (payload + 64)).max(u64::from(left > 0)).min(limit.msgs.saturating_sub(sent.msgs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_larger_than_all_credit_goes_alone_and_nothing_goes_without_credit() {
        let of = |msgs, bytes| Limit { msgs, bytes };
        let room = |limit, sent| in_credit(limit, sent, 936);
        assert_eq!(room(of(100, 5_000), of(0, 0)), 5);
        assert_eq!(room(of(3, 5_000), of(0, 0)), 3);
        assert_eq!(room(of(100, 5_000), of(5, 4_850)), 1, "the last may overshoot");
        assert_eq!(room(of(100, 500), of(0, 0)), 1, "it would wait for ever");
        assert_eq!(room(of(100, 500), of(1, 960)), 0);
        assert_eq!(room(of(100, 500), of(1, 500)), 0);
        assert_eq!(room(of(7, 5_000), of(7, 100)), 0);
    }
}
