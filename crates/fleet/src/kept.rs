//! The last known value of every section of an agent's heartbeats, packed small. Without IO.
//!
//! Heartbeats of agents of one class that run one flow differ in little but numbers and names. So
//! the first one is a sample, and each is kept as an LZ4 block with its sample as the dictionary: a
//! tenth to a fifth of its text, and nothing is lost.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use c2::{AgentInfo, DeviceInfo, FlowInfo, Glance, Heartbeat, ResourceInfo};
use parking_lot::Mutex;

use crate::limits;

/// A heartbeat with the manifest left out.
#[derive(Clone, Debug)]
pub struct Kept {
    packed: Box<[u8]>,
    /// What it is packed against; empty for nothing.
    sample: Arc<[u8]>,
    /// Bytes of the text.
    length: u32,
    sections: Sections,
}

/// Which sections a heartbeat has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sections {
    known: u8,
    /// A digest of the names of the others; 0 for none.
    others: u32,
}

/// One heartbeat for all that are like it.
#[derive(Debug, Default)]
pub struct Samples {
    by_likeness: Mutex<HashMap<u64, Arc<[u8]>>>,
}

impl Samples {
    /// The sample for agents of a class that run a flow; `text` becomes it where there is none. (Their
    /// manifests' hashes may be one for each agent.)
    pub fn of(&self, class: Option<&str>, flow: Option<&str>, text: &[u8]) -> Arc<[u8]> {
        let mut likeness = DefaultHasher::new();
        (class, flow).hash(&mut likeness);
        let likeness = likeness.finish();
        let mut by_likeness = self.by_likeness.lock();
        if let Some(sample) = by_likeness.get(&likeness) {
            return sample.clone();
        }
        if by_likeness.len() >= limits::SAMPLES_MAX {
            return Arc::default();
        }
        let sample: Arc<[u8]> = Arc::from(&text[..text.len().min(limits::SAMPLE_BYTES_MAX)]);
        by_likeness.insert(likeness, sample.clone());
        sample
    }
}

impl Kept {
    /// What is known after a heartbeat of this text, with what was known before: a section that
    /// it lacks stays as it was. `None` where that is too large to be kept.
    pub fn after(
        before: Option<&Kept>,
        mut news: Heartbeat,
        text: &[u8],
        sample: impl FnOnce(&[u8]) -> Arc<[u8]>,
    ) -> Option<Kept> {
        let manifest = news
            .agent_info
            .as_mut()
            .and_then(|agent| agent.agent_manifest.take());
        let sections = Sections::of(&news);
        let stays = before.filter(|before| !sections.cover(before.sections));
        let (text, sections) = match stays.and_then(Kept::read) {
            Some(mut all) => {
                merge(&mut all, news);
                (Cow::Owned(all.to_vec().ok()?), Sections::of(&all))
            }
            None if manifest.is_some() => (Cow::Owned(news.to_vec().ok()?), sections),
            None => (Cow::Borrowed(text), sections),
        };
        if text.len() > limits::KEPT_HEARTBEAT_BYTES_MAX {
            return None;
        }
        let sample = sample(&text);
        Kept::packed(&text, sample, sections)
    }

    /// What is known after a heartbeat of this text that was taken at a glance, if it has all
    /// sections that were known before; see [`Kept::covers`]. Slow, as packing is: not under a lock.
    pub fn at_a_glance(glance: &Glance<'_>, text: &[u8], samples: &Samples) -> Option<Kept> {
        if text.len() > limits::KEPT_HEARTBEAT_BYTES_MAX {
            return None;
        }
        let flow = glance.flow.as_ref().and_then(Option::as_deref);
        let sample = samples.of(glance.class(), flow, text);
        Kept::packed(text, sample, Sections::at_a_glance(glance))
    }

    /// Whether nothing stays of `before` after this.
    pub fn covers(&self, before: &Kept) -> bool {
        self.sections.cover(before.sections)
    }

    fn packed(text: &[u8], sample: Arc<[u8]>, sections: Sections) -> Option<Kept> {
        Some(Kept {
            packed: lz4_flex::block::compress_with_dict(text, &sample).into(),
            sample,
            length: u32::try_from(text.len()).ok()?,
            sections,
        })
    }

    /// The sections.
    pub fn read(&self) -> Option<Heartbeat> {
        let length = self.length as usize;
        let text = lz4_flex::block::decompress_with_dict(&self.packed, length, &self.sample);
        let mut heartbeat = Heartbeat::parse(&text.ok()?).ok()?;
        // What repeats the sections, or says nothing.
        heartbeat.operation = None;
        heartbeat.identifier = None;
        heartbeat.agent_id = None;
        heartbeat.agent_class = None;
        Some(heartbeat)
    }

    /// Bytes that it takes, without what agents share.
    pub fn bytes(&self) -> usize {
        size_of::<Kept>() + self.packed.len()
    }
}

impl Sections {
    fn of(heartbeat: &Heartbeat) -> Sections {
        let known = [
            heartbeat.created.is_some(),
            heartbeat.device_info.is_some(),
            heartbeat.agent_info.is_some(),
            heartbeat.flow_info.is_some(),
            heartbeat.resource_info.is_some(),
        ];
        Sections::new(known, heartbeat.other.keys().map(String::as_str))
    }

    fn at_a_glance(glance: &Glance<'_>) -> Sections {
        let known = [
            glance.has_created,
            glance.device.is_some(),
            glance.agent.is_some(),
            glance.flow.is_some(),
            glance.resources.is_some(),
        ];
        Sections::new(known, glance.others.iter().map(|name| &**name))
    }

    fn new<'a>(known: [bool; 5], others: impl Iterator<Item = &'a str>) -> Sections {
        let bits = known.iter().enumerate();
        let mut names = DefaultHasher::new();
        let mut count = 0;
        for name in others {
            name.hash(&mut names);
            count += 1;
        }
        Sections {
            known: bits.map(|(bit, is_there)| u8::from(*is_there) << bit).sum(),
            others: match count {
                0 => 0,
                _ => names.finish() as u32 | 1,
            },
        }
    }

    /// Whether nothing stays of a heartbeat with the sections `before`.
    fn cover(self, before: Sections) -> bool {
        before.known & !self.known == 0 && (before.others == 0 || before.others == self.others)
    }
}

fn merge(last: &mut Heartbeat, news: Heartbeat) {
    fn over<T>(old: &mut Option<T>, new: Option<T>) {
        if new.is_some() {
            *old = new;
        }
    }
    over::<i64>(&mut last.created, news.created);
    over::<DeviceInfo>(&mut last.device_info, news.device_info);
    over::<AgentInfo>(&mut last.agent_info, news.agent_info);
    over::<FlowInfo>(&mut last.flow_info, news.flow_info);
    over::<ResourceInfo>(&mut last.resource_info, news.resource_info);
    last.other.extend(news.other);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(samples: &Samples, before: Option<&Kept>, text: &str) -> Option<Kept> {
        let news = Heartbeat::parse(text.as_bytes()).unwrap();
        Kept::after(before, news, text.as_bytes(), |text| {
            samples.of(Some("m"), Some("f"), text)
        })
    }

    fn beat(agent: u32, size: u32) -> String {
        format!(
            r#"{{"created":1800000{agent:06},"deviceInfo":{{"identifier":"02FC00{agent:06}",
            "systemInfo":{{"machineArch":"amd64","operatingSystem":"Linux","vCores":2}},
            "networkInfo":{{"deviceId":"eth0","hostname":"host-{agent:06}"}}}},
            "agentInfo":{{"identifier":"agent-{agent:06}","agentClass":"edge",
            "agentManifestHash":"6963de0d5518f3f5d3dc48c7a5df9484b811abea7c6d374e1f34773309b89ac2",
            "status":{{"uptime":51{size},"repositories":{{"flowFile":{{"dataSize":{size}}}}}}}}},
            "flowInfo":{{"flowId":"0f3c6a5e-6a53-4a08-9d2f-3a5a3c0c7f11","queues":{{
            "5ab1c0a2-0186-1000-8e4b-0242ac110002":{{"size":{size},"sizeMax":10000}}}}}},
            "own":{{"depth":{size}}},"agentId":"agent-{agent:06}"}}"#
        )
    }

    #[test]
    fn what_is_kept_is_small_and_whole() {
        let samples = Samples::default();
        kept(&samples, None, &beat(1, 100)).unwrap();
        let text = beat(777, 31_337);
        let kept = kept(&samples, None, &text).unwrap();
        assert!(kept.packed.len() * 5 < text.len(), "{}", kept.packed.len());
        let mut sent = Heartbeat::parse(text.as_bytes()).unwrap();
        sent.agent_id = None;
        assert_eq!(kept.read().unwrap(), sent);
    }

    #[test]
    fn an_absent_section_stays_and_an_absent_key_too() {
        let samples = Samples::default();
        let first = kept(&samples, None, &beat(1, 100)).unwrap();
        let short = r#"{"agentInfo":{"identifier":"agent-000001"},"more":1}"#;
        let second = kept(&samples, Some(&first), short).unwrap();
        let all = second.read().unwrap();
        assert!(all.flow_id().is_some() && all.device_info.is_some());
        assert_eq!(all.agent_info.as_ref().unwrap().agent_class, None);
        let others: Vec<_> = all.other.keys().map(String::as_str).collect();
        assert_eq!(others, ["more", "own"]);
        let third = kept(&samples, Some(&second), short).unwrap();
        assert_eq!(third.read(), Some(all));
    }

    #[test]
    fn manifests_and_what_is_too_large_are_left_out() {
        let samples = Samples::default();
        let with = r#"{"agentInfo":{"identifier":"a","agentManifest":{"agentType":"cpp"}}}"#;
        let kept_with = kept(&samples, None, with).unwrap();
        let info = kept_with.read().unwrap().agent_info.unwrap();
        assert_eq!(
            (info.identifier.as_deref(), info.agent_manifest),
            (Some("a"), None)
        );
        let huge = format!(
            r#"{{"own":"{}"}}"#,
            "x".repeat(limits::KEPT_HEARTBEAT_BYTES_MAX)
        );
        assert!(kept(&samples, None, &huge).is_none());
    }

    #[test]
    fn samples_are_bounded() {
        let samples = Samples::default();
        for n in 0..limits::SAMPLES_MAX + 10 {
            samples.of(Some(&n.to_string()), None, b"text");
        }
        assert_eq!(samples.by_likeness.lock().len(), limits::SAMPLES_MAX);
        let over = samples.of(Some("over"), None, b"text");
        assert!(over.is_empty());
        let text = beat(1, 5);
        let news = Heartbeat::parse(text.as_bytes()).unwrap();
        let kept = Kept::after(None, news, text.as_bytes(), |_| over).unwrap();
        assert!(kept.read().is_some());
    }
}
