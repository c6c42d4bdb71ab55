//! What FlowFiles carry: a rope of views of claims.
//!
//! Cutting, joining and copying content makes views and moves no byte. A claim is one piece of
//! bytes in the content repository ([`claim`]); the newest ones are in memory, older ones are
//! read by range. Content of any size is read and written as a stream ([`stream`]).

mod arena;
mod claim;
mod stream;

use std::sync::Arc;

pub(crate) use arena::{Arena, NoRoom};
pub(crate) use claim::{Claim, Contents, Pin, Store};
pub use stream::{ContentReader, ContentWriter};

/// What a FlowFile carries; a clone shares every byte.
#[derive(Clone, Debug, Default)]
pub struct Content(Parts);

/// A range of a claim.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) claim: Arc<Claim>,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

#[derive(Clone, Debug, Default)]
enum Parts {
    #[default]
    Empty,
    One(View),
    Many(Arc<Rope>),
}

/// Views one after the other; `ends[i]` is where view `i` ends in the content.
#[derive(Debug)]
struct Rope {
    views: Vec<View>,
    ends: Vec<u64>,
}

impl Content {
    /// All of a claim.
    pub(crate) fn whole(claim: Arc<Claim>) -> Content {
        let len = claim.len();
        Content::view(claim, 0, len)
    }

    /// A range of a claim.
    pub(crate) fn view(claim: Arc<Claim>, offset: u32, len: u32) -> Content {
        if len == 0 {
            return Content::default();
        }
        Content(Parts::One(View { claim, offset, len }))
    }

    pub(crate) fn of_views(views: Vec<View>) -> Content {
        let mut kept: Vec<View> = Vec::with_capacity(views.len());
        for view in views {
            match kept.last_mut() {
                _ if view.len == 0 => {}
                Some(last)
                    if Arc::ptr_eq(&last.claim, &view.claim)
                        && last.offset + last.len == view.offset =>
                {
                    last.len += view.len;
                }
                _ => kept.push(view),
            }
        }
        if kept.len() < 2 {
            return Content(kept.pop().map_or(Parts::Empty, Parts::One));
        }
        let mut end = 0;
        let ends = kept.iter().map(|view| {
            end += u64::from(view.len);
            end
        });
        let ends = ends.collect();
        Content(Parts::Many(Arc::new(Rope { views: kept, ends })))
    }

    /// Bytes of it.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Parts::Empty => 0,
            Parts::One(view) => u64::from(view.len),
            Parts::Many(rope) => rope.ends.last().copied().unwrap_or(0),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` bytes from `offset` on, as far as there are so many.
    pub fn slice(&self, offset: u64, len: u64) -> Content {
        let end = offset.saturating_add(len).min(self.len());
        if offset >= end {
            return Content::default();
        }
        let mut views = Vec::new();
        let mut at = offset;
        while at < end {
            let Some((view, within)) = self.view_at(at) else {
                break;
            };
            let len = u64::from(view.len - within).min(end - at);
            views.push(View {
                claim: Arc::clone(&view.claim),
                offset: view.offset + within,
                // At most the view's own length.
                len: len as u32,
            });
            at += len;
        }
        Content::of_views(views)
    }

    /// One content after the other.
    pub fn join(parts: impl IntoIterator<Item = Content>) -> Content {
        let mut views = Vec::new();
        for part in parts {
            match part.0 {
                Parts::Empty => {}
                Parts::One(view) => views.push(view),
                Parts::Many(rope) => views.extend(rope.views.iter().cloned()),
            }
        }
        Content::of_views(views)
    }

    /// The pieces that it is made of, in order.
    pub(crate) fn views(&self) -> &[View] {
        match &self.0 {
            Parts::Empty => &[],
            Parts::One(view) => std::slice::from_ref(view),
            Parts::Many(rope) => &rope.views,
        }
    }

    /// The view that has the byte at `offset`, and where in it that is.
    pub(crate) fn view_at(&self, offset: u64) -> Option<(&View, u32)> {
        match &self.0 {
            Parts::Empty => None,
            Parts::One(view) => {
                let within = u32::try_from(offset).ok()?;
                (within < view.len).then_some((view, within))
            }
            Parts::Many(rope) => {
                let index = rope.ends.partition_point(|end| *end <= offset);
                let view = rope.views.get(index)?;
                let start = rope.ends[index] - u64::from(view.len);
                // Below the view's length.
                Some((view, (offset - start) as u32))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn content(contents: &Arc<Contents>, text: &str) -> Content {
        Content::whole(contents.create(Bytes::copy_from_slice(text.as_bytes()), 0))
    }

    fn text(content: &Content) -> String {
        let views = content.views().iter();
        let parts = views.map(|view| view.claim.read(view.offset, view.len).unwrap());
        String::from_utf8(parts.collect::<Vec<_>>().concat()).unwrap()
    }

    #[test]
    fn ropes_are_cut_and_joined_as_texts_are() {
        let contents = Contents::new(1 << 20, Arc::default());
        let all = ["edge", "", " to ", "core"].map(|part| content(&contents, part));
        let joined = Content::join(all);
        let whole = "edge to core";
        assert_eq!((text(&joined), joined.len()), (whole.to_owned(), 12));
        for start in 0..=whole.len() {
            for end in start..=whole.len() {
                let slice = joined.slice(start as u64, (end - start) as u64);
                assert_eq!(text(&slice), whole[start..end]);
                let rest = Content::join([slice, joined.slice(end as u64, u64::MAX)]);
                assert_eq!(text(&rest), whole[start..]);
            }
        }
    }

    #[test]
    fn neighbors_of_one_claim_grow_together_again() {
        let contents = Contents::new(1 << 20, Arc::default());
        let whole = content(&contents, "abcdef");
        let again = Content::join([whole.slice(0, 2), whole.slice(2, 3), whole.slice(5, 1)]);
        assert_eq!(
            (text(&again), again.views().len()),
            ("abcdef".to_owned(), 1)
        );
        assert!(whole.slice(6, 1).is_empty());
    }
}
