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
/// A single partition keeps what it was granted; of several each gives back what it has nothing for, so that credit is
/// where records are.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) limit: Credit,
    used: Credit,
    parts: Vec<Granted>,
    /// There is one partition, and never another.
    is_alone: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Granted {
    granted: Credit,
    gone: Credit,
    /// There may be something for more credit.
    wants: bool,
}

impl Granted {
    fn left(&self) -> Credit {
        Credit {
            records: self.granted.records.saturating_sub(self.gone.records),
            bytes: self.granted.bytes.saturating_sub(self.gone.bytes),
        }
    }
}

impl Shares {
    /// There are no partitions yet; `is_alone`: there will be one.
    pub(super) fn new(is_alone: bool, limit: Credit) -> Self {
        Self { limit, used: Credit::default(), parts: Vec::new(), is_alone }
    }

    /// One more partition, to which nothing is granted yet.
    pub(super) fn add(&mut self) {
        self.parts.push(Granted { wants: self.is_alone, ..Granted::default() });
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
        let places = (0..).zip(&self.parts).filter(|(_, part)| {
            let left = part.left();
            part.wants && (left.records < WINDOW_RECORDS / 2 || left.bytes < LOW_BYTES)
        });
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        let (mut free, mut turns) = (self.free(), places.len() as u64);
        let mut offers = Vec::new();
        for place in places {
            let (granted, left) = (self.parts[place].granted, self.parts[place].left());
            let records = free.records.div_ceil(turns).min(WINDOW_RECORDS.saturating_sub(left.records));
            let bytes = free.bytes.div_ceil(turns);
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
        // Who had something is likely to have more, and gives back what it has nothing for.
        part.wants = is_alone || is_ready || came.records > 0;
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
        let mut shares = Shares::new(partitions == 1, limit);
        (0..partitions).for_each(|_| shares.add());
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
    fn what_a_lost_stream_was_granted_is_free_again() {
        let mut shares = of(2, credit(10, 100));
        shares.heard(0, credit(0, 0), credit(0, 0), true);
        shares.granted(0, credit(10, 100));
        shares.heard(1, credit(0, 0), credit(0, 0), true);
        assert_eq!(shares.offers(), []);
        assert_eq!(shares.lost(0), 100);
        assert_eq!(shares.offers(), [(1, credit(10, 100))]);
    }

    proptest! {
        #[test]
        fn no_more_is_granted_than_is_allowed_and_nobody_waits_while_there_is_credit(
            partitions in 1usize..5,
            steps in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..6, 0u64..4), 1..120),
        ) {
            // What each partition has to lease; a record is ten bytes.
            let mut has = vec![0u64; partitions];
            let mut shares = of(partitions, credit(0, 0));
            let mut came = 0;
            for (which, published, raised) in steps {
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
                        if partitions > 1 && part.left() != credit(0, 0) {
                            gone = credit(part.granted.records, gone.bytes.max(part.granted.bytes));
                        }
                        let is_ready = partitions > 1 && *has > 0 && !part.wants;
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
                prop_assert!(waiting == 0 || came == shares.limit.records, "{waiting} wait, {came} came: {shares:?}");
            }
        }
    }
}
