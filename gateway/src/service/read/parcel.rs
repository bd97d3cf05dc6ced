//! Records that go out together.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use weir_protocol::batch::Batch;
use weir_protocol::ids::Offset;
use weir_protocol::rpc::Credit;
use weir_protocol::ws::{DeliveriesBody, Delivery};

use super::records::{RecordSlice, corrupt};
use super::texts::{TextBudget, TextForm, Texts, TextsOf};
use crate::answers::Held;
use crate::service::ServiceError;

/// A body is sealed at this many bytes; one batch may overshoot.
const BODY_BYTES: usize = 64 << 10;

/// What an allocation takes beside what is asked for: counts of who holds it, and what the allocator adds and
/// rounds up.
const ALLOCATED_BYTES: usize = 64;

/// Records of one partition that go out together, in order.
#[derive(Debug, Clone)]
pub enum Parcel {
    /// For one reader.
    Own(Vec<RecordSlice>),
    /// All that came together, for every reader that takes it whole.
    Shared(Arc<SharedParcel>),
    /// One that has room among what is held for its client, as long as any of it is there.
    #[expect(private_interfaces, reason = "made and looked into here alone")]
    Held(Box<Parcel>, Arc<Held>),
}

impl Parcel {
    /// Where it is held.
    pub(crate) fn room(&self) -> Option<&Arc<Held>> {
        if let Self::Held(_, room) = self { Some(room) } else { None }
    }

    /// Others hold its records too.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Shared(_) => true,
            Self::Held(parcel, _) => parcel.is_shared(),
        }
    }

    /// The records.
    #[must_use]
    pub fn slices(&self) -> &[RecordSlice] {
        match self {
            Self::Own(slices) => slices,
            Self::Shared(parcel) => &parcel.slices,
            Self::Held(parcel, _) => parcel.slices(),
        }
    }

    /// The records, to be divided. They share their batches with whoever else has them.
    #[must_use]
    pub fn into_slices(self) -> Vec<RecordSlice> {
        match self {
            Self::Own(slices) => slices,
            Self::Shared(parcel) => parcel.slices.clone(),
            Self::Held(parcel, _) => parcel.into_slices(),
        }
    }

    /// Their texts in a form, one per record, if they are shared: made by the first reader that wants them.
    ///
    /// # Errors
    /// As `make`.
    pub fn texts<E>(
        &self,
        form: TextForm,
        make: impl FnOnce(&[RecordSlice]) -> Result<Texts, E>,
    ) -> Result<Option<Texts>, E> {
        match self {
            Self::Own(_) => Ok(None),
            Self::Shared(parcel) => parcel.texts.get(form, || make(&parcel.slices)).map(Some),
            Self::Held(parcel, _) => parcel.texts(form, make),
        }
    }

    /// As bodies of frames, if they are laid out for everybody.
    #[must_use]
    pub fn bodies(&self) -> Option<&[DeliveriesBody]> {
        match self {
            Self::Own(_) => None,
            Self::Shared(parcel) => Some(&parcel.bodies),
            Self::Held(parcel, _) => parcel.bodies(),
        }
    }
}

/// A parcel divided by credit.
pub(super) struct Split {
    /// What may go; without records if nothing may.
    pub(super) now: Parcel,
    pub(super) rest: Vec<RecordSlice>,
    pub(super) used: Credit,
}

impl Parcel {
    /// As many records as credit allows: while there is any, another goes, and the last may overshoot the bytes.
    pub(super) fn split(self, left: Credit) -> Result<Split, ServiceError> {
        if let Self::Shared(parcel) = &self
            && parcel.fits(left)
        {
            return Ok(Split { used: parcel.amount, now: self, rest: Vec::new() });
        }
        let (mut now, mut rest, mut used) = (Vec::new(), Vec::new(), Credit { records: 0, bytes: 0 });
        for slice in self.into_slices() {
            if !rest.is_empty() {
                rest.push(slice);
                continue;
            }
            let records = left.records - used.records;
            let bytes = left.bytes.saturating_sub(used.bytes);
            let size = slice.size()?;
            if u64::from(slice.take) <= records && size <= bytes {
                used.records += u64::from(slice.take);
                used.bytes += size;
                now.push(slice);
                continue;
            }
            match slice.prefix(records, bytes)? {
                None => rest.push(slice),
                Some((prefix, size)) => {
                    used.records += u64::from(prefix.take);
                    used.bytes += size;
                    rest.extend(slice.after(prefix.take));
                    now.push(prefix);
                }
            }
        }
        Ok(Split { now: Self::Own(now), rest, used })
    }
}

/// Committed records, laid out once for all readers. Their batches are parts of the bodies: the bytes are
/// held once, and nothing else with them (what comes from a node is part of a larger read).
#[derive(Debug)]
pub struct SharedParcel {
    slices: Vec<RecordSlice>,
    bodies: Vec<DeliveriesBody>,
    amount: Credit,
    texts: TextsOf,
}

impl SharedParcel {
    /// Lays `slices` out, at least one of them. Their bytes are copied.
    ///
    /// # Errors
    /// `corrupt` if a batch is damaged; `None` if some records are not committed, which may be taken back from one
    /// reader and not from another.
    pub(crate) fn new(slices: Vec<RecordSlice>) -> Result<Option<Self>, ServiceError> {
        if slices.iter().any(|slice| slice.end() > slice.committed_end) {
            return Ok(None);
        }
        let mut parcel = Self {
            slices: Vec::with_capacity(slices.len()),
            bodies: Vec::new(),
            amount: Credit { records: 0, bytes: 0 },
            texts: TextsOf::default(),
        };
        let (mut together, mut together_bytes) = (Vec::new(), 0);
        for slice in slices {
            let bytes = slice.batch.bytes().len();
            if !together.is_empty() && together_bytes + bytes > BODY_BYTES {
                parcel.lay_out(std::mem::take(&mut together))?;
                together_bytes = 0;
            }
            together_bytes += bytes;
            together.push(slice);
        }
        parcel.lay_out(together)?;
        Ok(Some(parcel))
    }

    /// Keeps texts only as far as there is room for them.
    pub(super) fn with_texts_within(mut self, budget: &Arc<TextBudget>) -> Self {
        self.texts = TextsOf::within(Some(Arc::clone(budget)));
        self
    }

    fn lay_out(&mut self, slices: Vec<RecordSlice>) -> Result<(), ServiceError> {
        let delivery = |slice: &RecordSlice| {
            let batch = [slice.batch.bytes().clone(), Bytes::new()];
            Delivery { first: slice.first, take: slice.take, batch }
        };
        let body = DeliveriesBody::of(slices.iter().map(delivery).collect());
        for (slice, bytes) in slices.into_iter().zip(body.batches()) {
            // Checked again: from here on every reader is sent these bytes.
            let batch = Batch::parse(bytes).map_err(|error| corrupt(&error))?;
            let slice = RecordSlice { batch, ..slice };
            self.amount.records += u64::from(slice.take);
            self.amount.bytes += slice.size()?;
            self.slices.push(slice);
        }
        self.bodies.push(body);
        Ok(())
    }

    /// What a reader at `next` may take of them with `left`: all of it if it can.
    pub(super) fn part(self: &Arc<Self>, next: Offset, left: Credit) -> Result<Split, ServiceError> {
        let parcel = Parcel::Shared(Arc::clone(self));
        if self.range().start >= next {
            return parcel.split(left);
        }
        let behind = |slice: &RecordSlice| {
            let before = next.0.saturating_sub(slice.first.0).min(slice.take.into());
            slice.clone().after(u32::try_from(before).expect("no more than the slice's"))
        };
        Parcel::Own(self.slices.iter().filter_map(behind).collect()).split(left)
    }

    /// Their offsets.
    pub(super) fn range(&self) -> Range<Offset> {
        let (first, last) = (self.slices.first(), self.slices.last());
        first.map_or(Offset(0), |slice| slice.first)..last.map_or(Offset(0), RecordSlice::end)
    }

    fn fits(&self, left: Credit) -> bool {
        self.amount.records <= left.records && self.amount.bytes <= left.bytes
    }

    /// Memory that it takes: the bodies, and what describes them.
    pub(super) fn held_bytes(&self) -> u64 {
        let bodies: usize = self.bodies.iter().map(|body| body.bytes().len() + ALLOCATED_BYTES).sum();
        let described = size_of_val(self.bodies.as_slice()) + size_of_val(self.slices.as_slice());
        (size_of::<Self>() + 3 * ALLOCATED_BYTES + bodies + described) as u64
    }
}
