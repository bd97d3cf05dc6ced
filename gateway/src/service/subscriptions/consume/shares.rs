//! One credit, divided over partitions. Pure.

use weir_protocol::rpc::Credit;

/// Records that one partition may send before any of them was received: what may still come after a pause.
pub(super) const WINDOW_RECORDS: u64 = 2_048;
/// A partition with less than this left is given more bytes.
const LOW_BYTES: u64 = 256 << 10;

/// ```text
///   limit    what the client allows: absolute totals, never falling
///   used     what came
///   granted  what a partition was told it may use: absolute totals
///   gone     of it, what was used or given back
///   free     limit - used - (granted - gone) of all partitions
/// ```
/// A single partition keeps what it was granted. Of several each gives back what it has nothing for, so that
/// credit is where records are: at once but for what it keeps, which at most half the credit is in, and that
/// after a while without a record. So a record that comes now and then finds credit waiting, and costs no
/// talk about it.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) limit: Credit,
    used: Credit,
    parts: Vec<Granted>,
    /// There is one partition, and never another.
    is_alone: bool,
    /// What each of the first partitions keeps.
    keeps: Credit,
}

#[derive(Debug, Clone, Copy, Default)]
struct Granted {
    granted: Credit,
    gone: Credit,
    /// What it keeps for a while when it has nothing for it.
    keeps: Credit,
    wants: Wants,
}

/// What a partition would do with more credit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Wants {
    /// Give it back.
    #[default]
    Nothing,
    /// Keep what it keeps: records come now and then.
    ToKeep,
    /// Use it: there may be something for it.
    More,
}

impl Granted {
    fn left(&self) -> Credit {
        Credit {
            records: self.granted.records.saturating_sub(self.gone.records),
            bytes: self.granted.bytes.saturating_sub(self.gone.bytes),
        }
    }

    /// How much more it may be granted, at most; `None` if it needs none now.
    fn room(&self) -> Option<Credit> {
        let left = self.left();
        let (is_low, most) = match self.wants {
            Wants::Nothing => return None,
            Wants::ToKeep => {
                (left.records <= self.keeps.records / 2 || left.bytes <= self.keeps.bytes / 2, self.keeps)
            }
            Wants::More => (
                left.records < WINDOW_RECORDS / 2 || left.bytes < LOW_BYTES,
                Credit { records: WINDOW_RECORDS, bytes: u64::MAX },
            ),
        };
        is_low.then(|| Credit {
            records: most.records.saturating_sub(left.records),
            bytes: most.bytes.saturating_sub(left.bytes),
        })
    }
}

impl Shares {
    /// There are no partitions yet, and at first there will be `partitions`; `is_alone`: one, and never another.
    pub(super) fn new(is_alone: bool, partitions: u32, limit: Credit) -> Self {
        let share = |of: u64| of / 2 / u64::from(partitions.max(1));
        let keeps = Credit { records: share(limit.records).min(WINDOW_RECORDS), bytes: share(limit.bytes) };
        // Records without bytes are of no use, nor are bytes without records.
        let keeps =
            if is_alone || keeps.records == 0 || keeps.bytes == 0 { Credit::default() } else { keeps };
        Self {
            limit,
            used: Credit::default(),
            parts: Vec::with_capacity(partitions as usize),
            is_alone,
            keeps,
        }
    }

    /// One more partition, to which nothing is granted yet; one that is `late` keeps nothing. Returns what it keeps.
    pub(super) fn add(&mut self, is_late: bool) -> Credit {
        let keeps = if is_late { Credit::default() } else { self.keeps };
        let wants = if self.is_alone { Wants::More } else { Wants::Nothing };
        self.parts.push(Granted { keeps, wants, ..Granted::default() });
        keeps
    }

    /// Whether a partition keeps credit that nothing is there for.
    pub(super) fn keeps_credit(&self) -> bool {
        self.is_alone
    }

    fn free(&self) -> Credit {
        let (records, bytes) = self
            .parts
            .iter()
            .map(Granted::left)
            .fold((0, 0), |(records, bytes), left| (records + left.records, bytes + left.bytes));
        Credit {
            records: self.limit.records.saturating_sub(self.used.records + records),
            bytes: self.limit.bytes.saturating_sub(self.used.bytes + bytes),
        }
    }

    /// What may be granted now: each a partition and the limit, of which `bytes` may be granted in part.
    pub(super) fn offers(&self) -> Vec<(usize, Credit)> {
        let places = (0..).zip(&self.parts).filter_map(|(place, part)| Some((place, part.room()?)));
        let mut places: Vec<(usize, Credit)> = places.collect();
        // First who has something.
        places.sort_by_key(|(place, _)| self.parts[*place].wants != Wants::More);
        let (mut free, mut turns) = (self.free(), places.len() as u64);
        let mut offers = Vec::new();
        for (place, room) in places {
            let (granted, left) = (self.parts[place].granted, self.parts[place].left());
            let records = free.records.div_ceil(turns).min(room.records);
            let bytes = free.bytes.div_ceil(turns).min(room.bytes);
            turns -= 1;
            let is_of_use = left.records + records > 0 && left.bytes + bytes > 0;
            // Bytes follow records: of several partitions none gathers what others need.
            let is_wanted = records > 0 || (bytes > 0 && (left.bytes == 0 || self.keeps_credit()));
            if !is_of_use || !is_wanted {
                continue;
            }
            free = Credit { records: free.records - records, bytes: free.bytes - bytes };
            offers.push((
                place,
                Credit { records: granted.records + records, bytes: granted.bytes.saturating_add(bytes) },
            ));
        }
        offers
    }

    /// A partition was granted this; true if that is more than before.
    pub(super) fn granted(&mut self, place: usize, credit: Credit) -> bool {
        let granted = &mut self.parts[place].granted;
        let raised =
            Credit { records: granted.records.max(credit.records), bytes: granted.bytes.max(credit.bytes) };
        std::mem::replace(granted, raised) != raised
    }

    /// What these partitions were granted, and what each of them would be if it were granted all that is free.
    pub(super) fn reaches(&self, places: &[usize]) -> Vec<(usize, Credit, Credit)> {
        let free = self.free();
        let reach = |granted: Credit| Credit {
            records: granted.records.saturating_add(free.records),
            bytes: granted.bytes.saturating_add(free.bytes),
        };
        let granted = places.iter().map(|place| (*place, self.parts[*place].granted));
        granted.map(|(place, granted)| (place, granted, reach(granted))).collect()
    }

    /// What a partition was granted.
    pub(super) fn granted_to(&self, place: usize) -> Credit {
        self.parts[place].granted
    }

    /// A partition said something: what is gone in all, and what of it came just now. Returns the bytes that are gone
    /// since the last time.
    pub(super) fn heard(&mut self, place: usize, gone: Credit, came: Credit, is_ready: bool) -> u64 {
        let is_alone = self.keeps_credit();
        self.used.records += came.records;
        self.used.bytes += came.bytes;
        let part = &mut self.parts[place];
        let bytes = gone.bytes.saturating_sub(part.gone.bytes);
        part.gone =
            Credit { records: part.gone.records.max(gone.records), bytes: part.gone.bytes.max(gone.bytes) };
        let left = part.left();
        let is_used_up = left.records == 0 || left.bytes == 0;
        // Who had something for all its credit is likely to have more.
        part.wants = if is_alone || is_ready || (came.records > 0 && is_used_up) {
            Wants::More
        } else if came.records > 0 {
            Wants::ToKeep
        } else {
            Wants::Nothing
        };
        bytes
    }

    /// A partition's stream ended: what it was granted and did not use is free again. Returns the bytes of it.
    pub(super) fn lost(&mut self, place: usize) -> u64 {
        let part = self.parts[place];
        self.heard(place, part.granted, Credit::default(), false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn credit(records: u64, bytes: u64) -> Credit {
        Credit { records, bytes }
    }

    fn of(partitions: usize, limit: Credit) -> Shares {
        let count = u32::try_from(partitions).unwrap();
        let mut shares = Shares::new(partitions == 1, count, limit);
        (0..partitions).for_each(|_| _ = shares.add(false));
        shares
    }

    #[test]
    fn a_single_partition_gets_the_clients_limit_as_it_is() {
        let mut shares = of(1, credit(3, 100));
        assert_eq!(shares.offers(), [(0, credit(3, 100))]);
        assert!(shares.granted(0, credit(3, 100)));
        assert_eq!(shares.offers(), []);
        shares.heard(0, credit(2, 110), credit(2, 110), false);
        assert_eq!(shares.offers(), [], "the last one overshot");
        shares.limit = credit(5, 200);
        assert_eq!(shares.offers(), [(0, credit(5, 190))]);
    }

    #[test]
    fn one_message_of_credit_reaches_whichever_partition_has_something() {
        let mut shares = of(3, credit(1, 50));
        assert_eq!(shares.offers(), [], "nobody asked yet");
        shares.heard(2, credit(0, 0), credit(0, 0), true);
        shares.heard(1, credit(0, 0), credit(0, 0), true);
        assert_eq!(shares.offers(), [(1, credit(1, 25))], "one at a time");
        shares.granted(1, credit(1, 25));
        assert_eq!(shares.offers(), []);
        // Somebody else was faster there.
        shares.heard(1, credit(1, 25), credit(0, 0), false);
        assert_eq!(shares.offers(), [(2, credit(1, 50))]);
    }

    #[test]
    fn a_partition_reaches_as_far_as_credit_goes_that_no_other_has() {
        let mut alone = of(1, credit(20_000, 100 << 20));
        assert_eq!(alone.offers(), [(0, credit(WINDOW_RECORDS, 100 << 20))]);
        // Of the bytes a window of the gateway.
        alone.granted(0, credit(WINDOW_RECORDS, 1 << 20));
        let granted = credit(WINDOW_RECORDS, 1 << 20);
        assert_eq!(alone.reaches(&[0]), [(0, granted, credit(20_000, 100 << 20))]);
        let mut shares = of(2, credit(10, 1_000));
        shares.heard(0, credit(0, 0), credit(0, 0), true);
        shares.heard(1, credit(0, 0), credit(0, 0), true);
        shares.granted(0, credit(4, 400));
        shares.granted(1, credit(5, 300));
        let reaches = [(0, credit(4, 400), credit(5, 700)), (1, credit(5, 300), credit(6, 600))];
        assert_eq!(shares.reaches(&[0, 1]), reaches);
    }

    #[test]
    fn what_a_lost_stream_was_granted_is_free_again() {
        let mut shares = of(2, credit(10, 100));
        shares.heard(0, credit(0, 0), credit(0, 0), true);
        shares.granted(0, credit(10, 100));
        shares.heard(1, credit(0, 0), credit(0, 0), true);
        assert_eq!(shares.offers(), []);
        assert_eq!(shares.lost(0), 100);
        assert_eq!(shares.offers(), [(1, credit(10, 100))]);
    }

    #[test]
    fn who_has_something_now_and_then_keeps_a_share_of_half_the_credit() {
        let mut shares = of(2, credit(16, 1_600));
        assert_eq!(shares.keeps, credit(4, 400));
        shares.heard(0, credit(0, 0), credit(0, 0), true);
        assert_eq!(shares.offers(), [(0, credit(16, 1_600))]);
        shares.granted(0, credit(16, 1_600));
        // One came, and all but what it keeps is given back.
        shares.heard(0, credit(1, 100), credit(1, 100), false);
        shares.heard(0, credit(12, 1_200), credit(0, 0), false);
        assert_eq!(shares.offers(), [], "it has enough");
        shares.heard(0, credit(13, 1_300), credit(1, 100), false);
        assert_eq!(shares.offers(), []);
        shares.heard(0, credit(14, 1_400), credit(1, 100), false);
        assert_eq!(
            shares.offers(),
            [(0, credit(18, 1_800))],
            "it keeps four again, and asks at every second"
        );
        shares.granted(0, credit(18, 1_800));
        shares.heard(0, credit(18, 1_800), credit(4, 400), false);
        assert_eq!(
            shares.offers(),
            [(0, credit(27, 2_700))],
            "it had something for all of it: 16 less 7 are free"
        );
    }

    #[test]
    fn what_was_kept_too_long_goes_to_who_has_something() {
        let mut shares = of(2, credit(8, 800));
        shares.heard(0, credit(0, 0), credit(0, 0), true);
        shares.granted(0, credit(8, 800));
        shares.heard(0, credit(6, 600), credit(1, 100), false);
        shares.heard(1, credit(0, 0), credit(0, 0), true);
        assert_eq!(shares.offers(), [(1, credit(5, 500))], "7 are left, of which the other keeps two");
        shares.granted(1, credit(5, 500));
        shares.heard(1, credit(5, 500), credit(5, 500), false);
        assert_eq!(shares.offers(), []);
        shares.heard(0, credit(8, 800), credit(0, 0), false);
        assert_eq!(shares.offers(), [(1, credit(7, 700))]);
    }

    proptest! {
        #[test]
        fn no_more_is_granted_than_is_allowed_and_nobody_waits_while_there_is_credit(
            partitions in 1usize..5,
            first in 0u64..40,
            steps in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..6, 0u64..4), 1..120),
        ) {
            // What each partition has to lease; a record is ten bytes.
            let mut has = vec![0u64; partitions];
            let mut shares = of(partitions, credit(first, 10 * first));
            let mut came = 0;
            // Now and then so much time passes that nobody keeps anything.
            for (step, (which, published, raised)) in (0..).zip(steps) {
                let is_late = step % 3 == 2;
                let place = which.index(partitions);
                has[place] += published;
                shares.limit = credit(shares.limit.records + raised, shares.limit.bytes + 10 * raised);
                // Nodes speak until nobody has anything to say.
                loop {
                    let mut is_quiet = true;
                    for (place, limit) in shares.offers() {
                        is_quiet &= !shares.granted(place, limit);
                    }
                    for (place, has) in has.iter_mut().enumerate() {
                        let part = shares.parts[place];
                        let n = (*has).min(part.left().records).min(part.left().bytes.div_ceil(10));
                        let mut gone = credit(part.gone.records + n, part.gone.bytes + 10 * n);
                        *has -= n;
                        came += n;
                        let is_used_up = gone.records >= part.granted.records || gone.bytes >= part.granted.bytes;
                        let keeps = if is_used_up || is_late { credit(0, 0) } else { part.keeps };
                        if partitions > 1 && part.left() != credit(0, 0) {
                            gone.records = gone.records.max(part.granted.records.saturating_sub(keeps.records));
                            gone.bytes = gone.bytes.max(part.granted.bytes.saturating_sub(keeps.bytes));
                        }
                        let is_ready = partitions > 1 && *has > 0 && part.wants != Wants::More;
                        if n > 0 || gone != part.gone || is_ready {
                            shares.heard(place, gone, credit(n, 10 * n), is_ready);
                            is_quiet = false;
                        }
                    }
                    let left: u64 = shares.parts.iter().map(|part| part.left().records).sum();
                    prop_assert!(came + left <= shares.limit.records);
                    if is_quiet { break }
                }
                let waiting: u64 = has.iter().sum();
                let free = shares.free();
                let kept: u64 = shares.parts.iter().map(|part| part.left().records).sum();
                let most = if is_late || partitions == 1 { 0 } else { first / 2 };
                prop_assert!(kept <= most || waiting == 0, "{kept} are kept: {shares:?}");
                // Kept records may hold all the bytes, or kept bytes all the records: the rest is of no use then.
                let is_used = if is_late { came == shares.limit.records } else { free.records == 0 || free.bytes == 0 };
                prop_assert!(waiting == 0 || is_used, "{waiting} wait, {came} came: {shares:?}");
            }
        }
    }
}
