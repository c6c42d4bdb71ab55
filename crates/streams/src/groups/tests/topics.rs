//! Topics that a test creates, grows and deletes.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::groups::Catalog;

#[derive(Default)]
pub(in crate::groups) struct Topics {
    version: u64,
    pub(in crate::groups) by_name: BTreeMap<String, (Uuid, i32)>,
    ids: u128,
}

impl Topics {
    pub(in crate::groups) fn put(&mut self, name: &str, partitions: i32) -> Uuid {
        self.version += 1;
        self.ids += 1;
        let fresh = Uuid::from_u128(self.ids);
        let topic = self.by_name.entry(name.to_owned()).or_insert((fresh, 0));
        topic.1 = partitions;
        topic.0
    }

    pub(in crate::groups) fn delete(&mut self, name: &str) {
        self.version += 1;
        self.by_name.remove(name);
    }
}

impl Catalog for Topics {
    fn version(&self) -> u64 {
        self.version
    }

    fn topic(&self, name: &str) -> Option<(Uuid, i32)> {
        self.by_name.get(name).copied()
    }

    fn each(&self, visit: &mut dyn FnMut(&str, Uuid, i32)) {
        for (name, (id, count)) in &self.by_name {
            visit(name, *id, *count);
        }
    }
}
