//! Writing a frame's operations.

use std::sync::Arc;

use journal::Position;

use super::{
    Check, ClaimAt, LIKE_BYTES_MAX, LIKE_COUNT_MAX, OP_CONTENT, OP_COPY, OP_COUNTER, OP_EVENTS,
    OP_MOVE, OP_PART, OP_PIECE, OP_PIECES, OP_PUT, OP_PUT_LIKE, OP_REMOVE, OP_ROPE, OP_STATE,
    OP_SWAP_IN, OP_SWAP_OUT, OP_SWAPPED, SwapAt,
};
use crate::content::{Claim, View};
use crate::flowfile::{Attributes, FlowFile, FlowFileId};

/// Builds a frame's operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
}

/// Where one claim stands, as the repository knows it while it writes a frame.
pub(crate) type Locate<'a> = &'a dyn Fn(&Arc<Claim>) -> ClaimAt;

impl Writer {
    pub(crate) fn state(&mut self, processor: &str, bytes: &[u8]) {
        self.out.push(OP_STATE);
        self.bytes(processor.as_bytes());
        self.bytes(bytes);
    }

    /// FlowFiles that are gone; ids in any order.
    pub(crate) fn remove(&mut self, ids: &[FlowFileId]) {
        if ids.is_empty() {
            return;
        }
        self.out.push(OP_REMOVE);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for id in ids {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == id.0 => *count += 1,
                _ => runs.push((id.0, 1)),
            }
        }
        self.number(runs.len() as u64);
        let mut end = 0u64;
        for (first, count) in runs {
            self.signed(first.wrapping_sub(end) as i64);
            self.number(count);
            end = first + count;
        }
    }

    /// FlowFiles that now stand in `connection`, in this order.
    pub(crate) fn put<'f>(
        &mut self,
        connection: &str,
        flow_files: impl IntoIterator<Item = &'f FlowFile>,
        locate: Locate<'_>,
    ) {
        self.put_until(connection, &mut flow_files.into_iter(), locate, usize::MAX);
    }

    /// As [`Self::put`], until there are so many bytes here; whether that is why it ended. What is
    /// left is for the next frame.
    pub(crate) fn put_until(
        &mut self,
        connection: &str,
        flow_files: &mut dyn Iterator<Item = &FlowFile>,
        locate: Locate<'_>,
        bytes_max: usize,
    ) -> bool {
        let mut group: Option<&FlowFile> = None;
        let mut runs = Vec::new();
        let (mut count, mut id_end, mut offset_end) = (0u64, 0u64, 0u64);
        while self.out.len() + runs.len() < bytes_max {
            let Some(flow_file) = flow_files.next() else {
                self.end_group(count, &mut runs);
                return false;
            };
            let view = match flow_file.content.views() {
                [] => None,
                [view] => Some(view),
                views => {
                    self.end_group(count, &mut runs);
                    (group, count) = (None, 0);
                    self.rope(connection, flow_file, views, locate);
                    continue;
                }
            };
            let same = group.is_some_and(|first| same_group(first, flow_file));
            if !same {
                self.end_group(count, &mut runs);
                match group.filter(|before| is_like(&before.attributes, &flow_file.attributes)) {
                    Some(before) => self.group_like(before, flow_file),
                    None => {
                        self.out.push(OP_PUT);
                        self.group(connection, flow_file);
                    }
                }
                self.claim(view.map(|view| &view.claim), locate);
                (group, count, id_end, offset_end) = (Some(flow_file), 0, 0, 0);
            }
            let (offset, len) = view.map_or((0, 0), |view| (view.offset, view.len));
            signed(&mut runs, flow_file.id.0.wrapping_sub(id_end) as i64);
            signed(&mut runs, u64::from(offset).wrapping_sub(offset_end) as i64);
            number(&mut runs, u64::from(len));
            id_end = flow_file.id.0 + 1;
            offset_end = u64::from(offset) + u64::from(len);
            count += 1;
        }
        self.end_group(count, &mut runs);
        true
    }

    /// The same, and the content journal's end that it needs, which stands first.
    pub(crate) fn behind_content(self, end: Position) -> Self {
        let mut first = Writer::default();
        first.out.push(OP_CONTENT);
        first.number(end.0);
        first.out.extend_from_slice(&self.out);
        first
    }

    pub(crate) fn copied(&mut self, from: Position, to: Position, len: u32) {
        self.out.push(OP_COPY);
        self.number(from.0);
        self.number(to.0);
        self.number(u64::from(len));
    }

    /// FlowFiles that leave memory; `puts` are theirs.
    pub(crate) fn swap_out(&mut self, swap: SwapAt<'_>, puts: &Writer) {
        self.out.push(OP_SWAP_OUT);
        self.swap(swap);
        self.bytes(&puts.out);
    }

    /// FlowFiles that were written away before.
    pub(crate) fn swapped(&mut self, position: Position, swap: SwapAt<'_>) {
        self.out.push(OP_SWAPPED);
        self.number(position.0);
        self.swap(swap);
    }

    /// FlowFiles that come back, or are dropped.
    pub(crate) fn swap_in(&mut self, position: Position) {
        self.out.push(OP_SWAP_IN);
        self.number(position.0);
    }

    fn swap(&mut self, swap: SwapAt<'_>) {
        self.bytes(swap.connection.as_bytes());
        self.number(swap.count);
        self.number(swap.bytes);
        self.number(swap.lowest.map_or(0, |lowest| lowest.0 + 1));
    }

    /// Provenance events, already written down.
    pub(crate) fn events(&mut self, events: &[u8]) {
        self.out.push(OP_EVENTS);
        self.bytes(events);
    }

    pub(crate) fn counter(&mut self, next: u64) {
        self.out.push(OP_COUNTER);
        self.number(next);
    }

    /// Which frame of its snapshot this is, from zero on.
    pub(crate) fn part(&mut self, index: u64) {
        self.out.push(OP_PART);
        self.number(index);
    }

    /// Which piece of its commit this frame is, from zero on, and where piece zero stands.
    pub(crate) fn piece(&mut self, index: u64, first: Position) {
        self.out.push(OP_PIECE);
        self.number(index);
        self.number(first.0);
    }

    /// The commit's pieces, which stand before this frame.
    pub(crate) fn pieces(&mut self, first: Position, count: u64) {
        self.out.push(OP_PIECES);
        self.number(first.0);
        self.number(count);
    }

    pub(crate) fn append(&mut self, mut other: Writer) {
        self.out.append(&mut other.out);
    }

    pub(crate) fn moved(&mut self, from: Position, offset: u64, len: u32) {
        self.out.push(OP_MOVE);
        self.number(from.0);
        self.number(offset);
        self.number(u64::from(len));
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn into_operations(self) -> Vec<u8> {
        self.out
    }

    fn group(&mut self, connection: &str, flow_file: &FlowFile) {
        self.bytes(connection.as_bytes());
        let attributes = flow_file.attributes.records();
        self.number(attributes.len() as u64);
        for (name, value) in attributes {
            self.bytes(name.as_bytes());
            self.bytes(value.as_bytes());
        }
        self.signed(flow_file.entry.0);
    }

    /// A group by what it differs in from the one before it.
    fn group_like(&mut self, before: &FlowFile, flow_file: &FlowFile) {
        self.out.push(OP_PUT_LIKE);
        self.signed(flow_file.entry.0.wrapping_sub(before.entry.0));
        let pairs = || {
            before
                .attributes
                .records()
                .zip(flow_file.attributes.records())
        };
        let differing = || {
            let numbered = pairs().enumerate();
            numbered.filter(|(_, ((_, old), (_, new)))| old != new)
        };
        self.number(differing().count() as u64);
        let mut next = 0;
        for (index, ((_, old), (_, new))) in differing() {
            self.number((index - next) as u64);
            next = index + 1;
            let kept = shared_len(old, new);
            self.number(kept as u64);
            self.bytes(&new.as_bytes()[kept..]);
        }
    }

    fn claim(&mut self, claim: Option<&Arc<Claim>>, locate: Locate<'_>) {
        let Some(claim) = claim else {
            self.out.push(0);
            return;
        };
        let check = claim.check();
        let (here, at) = match check {
            Check::None => (1, 2),
            Check::Crc(_) => (4, 5),
            Check::Sealed => (6, 7),
        };
        match locate(claim) {
            ClaimAt::None => self.out.push(0),
            ClaimAt::Here { offset, len } => {
                self.out.push(here);
                self.number(offset);
                self.number(u64::from(len));
            }
            ClaimAt::At { position, len } => {
                self.out.push(at);
                self.number(position.0);
                self.number(u64::from(len));
            }
            ClaimAt::Memory { len } => {
                self.out.push(3);
                self.number(u64::from(len));
                return;
            }
        }
        if let Check::Crc(crc) = check {
            self.out.extend_from_slice(&crc.to_le_bytes());
        }
    }

    fn rope(&mut self, connection: &str, flow_file: &FlowFile, views: &[View], locate: Locate<'_>) {
        self.out.push(OP_ROPE);
        self.group(connection, flow_file);
        self.number(flow_file.id.0);
        self.number(views.len() as u64);
        for view in views {
            self.claim(Some(&view.claim), locate);
            self.number(u64::from(view.offset));
            self.number(u64::from(view.len));
        }
    }

    fn end_group(&mut self, count: u64, runs: &mut Vec<u8>) {
        if count > 0 {
            self.number(count);
            self.out.append(runs);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn number(&mut self, value: u64) {
        number(&mut self.out, value);
    }

    fn signed(&mut self, value: i64) {
        signed(&mut self.out, value);
    }
}

fn same_group(a: &FlowFile, b: &FlowFile) -> bool {
    let same_claim = match (a.content.views(), b.content.views()) {
        ([], []) => true,
        ([a], [b]) => Arc::ptr_eq(&a.claim, &b.claim),
        _ => false,
    };
    same_claim
        && a.entry == b.entry
        && (Arc::ptr_eq(&a.attributes, &b.attributes) || a.attributes == b.attributes)
}

/// Whether attributes have the same names, and are few enough to be told by their differences.
fn is_like(before: &Attributes, attributes: &Attributes) -> bool {
    let pairs = || before.records().zip(attributes.records());
    before.records().len() == attributes.records().len()
        && attributes.records().len() <= LIKE_COUNT_MAX
        && pairs().all(|((old, _), (new, _))| old == new)
        && attributes.bytes() <= LIKE_BYTES_MAX
}

/// Bytes that two texts begin with alike, in whole characters of both.
fn shared_len(a: &str, b: &str) -> usize {
    let pairs = a.bytes().zip(b.bytes());
    let len = pairs.take_while(|(a, b)| a == b).count();
    b.floor_char_boundary(a.floor_char_boundary(len))
}

/// Writes a number.
pub(crate) fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a text, its length first.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn signed(out: &mut Vec<u8>, value: i64) {
    number(out, ((value << 1) ^ (value >> 63)) as u64);
}
