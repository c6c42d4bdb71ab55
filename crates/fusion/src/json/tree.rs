//! The wanted fields as a tree, so that one descent serves every path.

use crate::value::Value;

/// Names from the payload's root to a field; no names mean the whole payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(pub Vec<String>);

impl std::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            f.write_str("payload")
        } else {
            f.write_str(&self.0.join("."))
        }
    }
}

/// Index of a node.
pub type Node = usize;

/// The tree of wanted fields; node 0 is the payload itself.
#[derive(Clone, Debug)]
pub struct FieldTree {
    nodes: Vec<Entry>,
    slots: usize,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    slot: Option<usize>,
    children: Vec<(Box<[u8]>, Node)>,
}

impl FieldTree {
    /// Path `i` fills slot `i`; equal paths may not stand twice.
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p FieldPath>) -> Self {
        let mut tree = FieldTree {
            nodes: vec![Entry::default()],
            slots: 0,
        };
        for path in paths {
            let mut node = ROOT;
            for name in &path.0 {
                node = tree.child_or_insert(node, name.as_bytes());
            }
            assert!(
                tree.nodes[node].slot.is_none(),
                "the field {path} stands twice"
            );
            tree.nodes[node].slot = Some(tree.slots);
            tree.slots += 1;
        }
        tree
    }

    /// How many fields are wanted.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The child of `node` with that name.
    pub fn child(&self, node: Node, name: &[u8]) -> Option<Node> {
        let children = &self.nodes[node].children;
        if children.len() <= LINEAR_MAX {
            return children
                .iter()
                .find(|(key, _)| **key == *name)
                .map(|(_, node)| *node);
        }
        let found = children
            .binary_search_by(|(key, _)| key.as_ref().cmp(name))
            .ok()?;
        Some(children[found].1)
    }

    /// Which slot the node's own value fills.
    pub fn slot(&self, node: Node) -> Option<usize> {
        self.nodes[node].slot
    }

    /// True when a field below the node is wanted.
    pub fn has_children(&self, node: Node) -> bool {
        !self.nodes[node].children.is_empty()
    }

    /// Sets everything below the node to null, for a key that stands a second time.
    pub fn clear_below(&self, node: Node, values: &mut [Value<'_>]) {
        for (_, child) in &self.nodes[node].children {
            if let Some(slot) = self.nodes[*child].slot {
                values[slot] = Value::Null;
            }
            self.clear_below(*child, values);
        }
    }

    fn child_or_insert(&mut self, node: Node, name: &[u8]) -> Node {
        if let Some(child) = self.child(node, name) {
            return child;
        }
        let child = self.nodes.len();
        self.nodes.push(Entry::default());
        let children = &mut self.nodes[node].children;
        let place = children.partition_point(|(key, _)| key.as_ref() < name);
        children.insert(place, (name.into(), child));
        child
    }
}

/// The payload itself.
pub const ROOT: Node = 0;

/// Up to so many names, comparing each beats a search: most differ in length.
const LINEAR_MAX: usize = 8;
