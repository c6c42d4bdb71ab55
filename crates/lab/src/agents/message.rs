//! Requests of agents, written out once with holes for what differs from agent to agent and from
//! beat to beat: a beat costs a copy of a page and a few digits.
//!
//! The shapes are those of the agents: MiNiFi Java writes compact JSON and repeats its names at the
//! top, MiNiFi C++ writes it for people to read.

use std::ops::Range;
use std::sync::OnceLock;

use flate2::{Compress, Compression, Crc, FlushCompress};

/// The kind of an agent, which decides how it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MiNiFi Java: 1.3 KB.
    Java,
    /// MiNiFi C++: 2.2 KB.
    Cpp,
}

/// What all heartbeats of a crowd share.
#[derive(Clone, Debug)]
pub struct Build<'a> {
    /// The kind of agent.
    pub kind: Kind,
    /// Its class.
    pub class: &'a str,
    /// The hash of its manifest.
    pub manifest_hash: &'a str,
    /// The flow that it runs; empty for none.
    pub flow: &'a str,
    /// Whether bodies are packed.
    pub is_gzip: bool,
}

/// A heartbeat with holes, and what a beat of it needs.
pub struct Beats {
    text: Vec<u8>,
    holes: Vec<(Hole, Range<usize>)>,
    body_at: usize,
    packer: Option<Packer>,
    packed: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hole {
    Agent,
    Now,
    Uptime,
    Noise,
}

impl Beats {
    /// The heartbeats of a build, as whole requests.
    pub fn new(build: &Build<'_>) -> Beats {
        let body = body(build);
        let head = head(HEARTBEAT, body.len(), false);
        let mut text = head.clone().into_bytes();
        text.extend_from_slice(body.as_bytes());
        let mut holes = Vec::new();
        let marks = [
            (Hole::Agent, AGENT),
            (Hole::Now, NOW),
            (Hole::Uptime, UPTIME),
            (Hole::Noise, NOISE),
        ];
        for (hole, mark) in marks {
            let mut from = 0;
            while let Some(at) = find(&text[from..], mark.as_bytes()) {
                holes.push((hole, from + at..from + at + mark.len()));
                from += at + mark.len();
            }
        }
        Beats {
            text,
            holes,
            body_at: head.len(),
            packer: build.is_gzip.then(Packer::new),
            packed: Vec::new(),
        }
    }

    /// The request of an agent's next beat.
    pub fn beat(&mut self, agent: u32, now_ms: u64, noise: u64) -> &[u8] {
        let mut noise = noise;
        // An agent that says another start each time would seem to be restarted with every beat.
        let started_ms = *STARTED_MS.get_or_init(|| now_ms.saturating_sub(UPTIME_MS));
        for (hole, range) in &self.holes {
            let digits = &mut self.text[range.clone()];
            match hole {
                Hole::Agent => write_digits(digits, u64::from(agent)),
                Hole::Now => write_digits(digits, now_ms),
                Hole::Uptime => write_digits(digits, now_ms.saturating_sub(started_ms)),
                Hole::Noise => {
                    // A leading zero is no number in JSON.
                    write_digits(digits, 10_000 + noise % 90_000);
                    noise = noise
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .rotate_left(17);
                }
            }
        }
        let Some(packer) = &mut self.packer else {
            return &self.text;
        };
        self.packed = packer.request(HEARTBEAT, &self.text[self.body_at..]);
        &self.packed
    }
}

/// An acknowledge of an operation as a whole request; a DESCRIBE brings the manifest.
pub fn acknowledge(
    agent: u32,
    operation: &str,
    manifest: Option<(&str, &str)>,
    is_gzip: bool,
) -> Vec<u8> {
    let info = manifest.map_or_else(String::new, |(hash, text)| {
        format!(
            ",\"agentInfo\":{{\"identifier\":\"{}\",\"agentManifestHash\":\"{hash}\",\
             \"agentManifest\":{text}}}",
            name(agent)
        )
    });
    let body = format!(
        "{{\"operationId\":\"{operation}\",\"operationState\":{{\"state\":\"FULLY_APPLIED\"}}{info}}}"
    );
    if is_gzip {
        return Packer::new().request(ACKNOWLEDGE, body.as_bytes());
    }
    let mut request = head(ACKNOWLEDGE, body.len(), false).into_bytes();
    request.extend_from_slice(body.as_bytes());
    request
}

/// The identifier of an agent by its number.
pub fn name(agent: u32) -> String {
    format!("site-agent-{agent:07}")
}

/// A manifest of about `bytes` bytes, with processors and properties as real ones have them.
pub fn manifest(kind: Kind, bytes: usize) -> String {
    let (agent_type, version, group) = match kind {
        Kind::Java => ("minifi-java", "1.18.0", "org.apache.nifi"),
        Kind::Cpp => ("cpp", "0.99.1", "org.apache.nifi.minifi"),
    };
    let mut text = format!(
        "{{\"identifier\":\"{agent_type}\",\"agentType\":\"{agent_type}\",\"version\":\"{version}\",\
         \"buildInfo\":{{\"version\":\"{version}\",\"revision\":\"109e54c\"}},\"bundles\":[{{\
         \"group\":\"{group}\",\"artifact\":\"standard\",\"version\":\"{version}\",\
         \"componentManifest\":{{\"processors\":["
    );
    let tail = "]}}],\"supportedOperations\":[{\"type\":\"DESCRIBE\",\"properties\":{\"MANIFEST\":{}}},\
        {\"type\":\"UPDATE\",\"properties\":{\"CONFIGURATION\":{}}}]}";
    let mut number = 0;
    while text.len() + tail.len() < bytes {
        if number > 0 {
            text.push(',');
        }
        text.push_str(&processor(group, number));
        number += 1;
    }
    text.push_str(tail);
    text
}

fn processor(group: &str, number: u32) -> String {
    let property = |index: u32| {
        format!(
            "\"property-{index}\":{{\"name\":\"property-{index}\",\"displayName\":\"Property {index}\",\
             \"description\":\"What the processor {number} is told with its property {index}, in as \
             many words as such descriptions have.\",\"required\":false,\"sensitive\":false,\
             \"expressionLanguageScope\":\"NONE\",\"dynamic\":false}}"
        )
    };
    let properties: Vec<String> = (0..10).map(property).collect();
    format!(
        "{{\"group\":\"{group}\",\"artifact\":\"standard\",\"type\":\"{group}.processors.Processor{number}\",\
         \"typeDescription\":\"Takes FlowFiles, does the work of its number {number} on them, and \
         passes them on.\",\"propertyDescriptors\":{{{}}},\"supportedRelationships\":[{{\"name\":\
         \"success\",\"description\":\"What went well\"}}]}}",
        properties.join(",")
    )
}

fn body(build: &Build<'_>) -> String {
    let template = match build.kind {
        Kind::Java => JAVA,
        Kind::Cpp => CPP,
    };
    template
        .replace("@class", build.class)
        .replace("@hash", build.manifest_hash)
        .replace("@flow", build.flow)
}

fn head(path: &str, length: usize, is_gzip: bool) -> String {
    let encoding = if is_gzip {
        "Content-Encoding: gzip\r\n"
    } else {
        ""
    };
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json; charset=utf-8\r\n\
         {encoding}Content-Length: {length}\r\n\r\n"
    )
}

/// Packs bodies one after another by one compressor: making one for each would cost several times
/// the packing, and take the caches from the server that is measured on the same processor.
struct Packer {
    compress: Compress,
    deflated: Vec<u8>,
}

impl Packer {
    fn new() -> Self {
        Packer {
            compress: Compress::new(Compression::fast(), false),
            deflated: Vec::new(),
        }
    }

    fn request(&mut self, path: &str, body: &[u8]) -> Vec<u8> {
        self.compress.reset();
        self.deflated.clear();
        // What cannot be packed takes a few bytes more for each 16 KB.
        self.deflated.reserve(body.len() + body.len() / 1_000 + 64);
        // Into memory that suffices this does not fail.
        let _ = self
            .compress
            .compress_vec(body, &mut self.deflated, FlushCompress::Finish);
        let mut sum = Crc::new();
        sum.update(body);
        let length = GZIP_HEAD.len() + self.deflated.len() + 8;
        let mut request = head(path, length, true).into_bytes();
        request.reserve(length);
        request.extend_from_slice(&GZIP_HEAD);
        request.extend_from_slice(&self.deflated);
        request.extend_from_slice(&sum.sum().to_le_bytes());
        request.extend_from_slice(&sum.amount().to_le_bytes());
        request
    }
}

fn write_digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len()).position(|window| window == mark)
}

/// How a member begins of which no more is told than that it is deflated (RFC 1952).
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

const HEARTBEAT: &str = "/efm/api/c2-protocol/heartbeat";
const ACKNOWLEDGE: &str = "/efm/api/c2-protocol/acknowledge";

// Marks as long as what stands in their place.
const AGENT: &str = "@agent@";
const NOW: &str = "@now---------";
const NOISE: &str = "@nois";
const UPTIME: &str = "@uptime-";
/// When all agents started, milliseconds since 1970.
static STARTED_MS: OnceLock<u64> = OnceLock::new();
/// How long they ran before the first beat, milliseconds.
const UPTIME_MS: u64 = 51_000_000;

/// As the library of version 2.3 writes it, of a flow with one processor and one queue.
const JAVA: &str = concat!(
    r#"{"created":@now---------,"deviceInfo":{"identifier":"02FC@agent@","systemInfo":{"machineArch":"amd64","#,
    r#""operatingSystem":"Linux","physicalMem":8053063680,"vCores":2,"memoryUsage":66558@nois,"#,
    r#""cpuUtilization":5.@nois,"cpuLoadAverage":1.@nois},"networkInfo":{"deviceId":"eth0","#,
    r#""hostname":"host-@agent@","ipAddress":"192.0.2.2"}},"agentInfo":{"identifier":"site-agent-@agent@","#,
    r#""agentClass":"@class","agentManifestHash":"@hash","status":{"uptime":@uptime-,"repositories":{"#,
    r#""flowFile":{"dataSize":@nois,"dataSizeMax":270553174016,"dataSizeUtilization":0.@nois},"#,
    r#""provenance":{"dataSize":0,"dataSizeMax":100000,"dataSizeUtilization":0.0}},"#,
    r#""resourceConsumption":{"memoryUsage":5935@nois}}},"flowInfo":{"flowId":"@flow","queues":{"#,
    r#""5ab1c0a2-0186-1000-8e4b-0242ac110002":{"size":@nois,"sizeMax":10000,"dataSize":@nois,"#,
    r#""dataSizeMax":1073741824,"sizeUtilization":0.@nois,"dataSizeUtilization":0.@nois}},"#,
    r#""processorBulletins":[],"processorStatuses":[{"id":"5ab1c0a2-0186-1000-8e4b-0242ac110003","#,
    r#""groupId":"5ab1c0a2-0186-1000-8e4b-0242ac110001","bytesRead":@nois,"bytesWritten":@nois,"#,
    r#""flowFilesIn":@nois,"flowFilesOut":@nois,"bytesIn":@nois,"bytesOut":@nois,"invocations":@nois,"#,
    r#""processingNanos":@nois,"activeThreadCount":1,"terminatedThreadCount":0}],"runStatus":"RUNNING"},"#,
    r#""resourceInfo":{},"flowId":"@flow","agentClass":"@class","agentId":"site-agent-@agent@","#,
    r#""deviceId":"02FC@agent@"}"#,
);

/// As MiNiFi C++ writes it, of a flow with two processors and one queue.
const CPP: &str = r#"{
    "agentInfo": {
        "agentClass": "@class",
        "agentManifestHash": "@hash",
        "identifier": "site-agent-@agent@",
        "status": {
            "components": {
                "FlowController": {
                    "running": true,
                    "uuid": "2438e3c8-015a-1000-79ca-83af40ec1990"
                },
                "GetFile": {
                    "running": true,
                    "uuid": "2438e3c8-015a-1000-79ca-83af40ec1991"
                },
                "PublishKafka": {
                    "running": true,
                    "uuid": "2438e3c8-015a-1000-79ca-83af40ec1992"
                }
            },
            "repositories": {
                "content_repo": {
                    "entryCount": @nois,
                    "full": false,
                    "maxSize": 0,
                    "running": true,
                    "size": @nois
                },
                "flow_file_repo": {
                    "entryCount": @nois,
                    "full": false,
                    "maxSize": 10485760,
                    "running": true,
                    "size": @nois
                }
            },
            "resourceConsumption": {
                "cpuUtilization": 0.@nois,
                "memoryUsage": 316@nois
            },
            "uptime": @uptime-
        }
    },
    "deviceInfo": {
        "identifier": "1043@agent@",
        "networkInfo": {
            "deviceId": "eth0",
            "hostname": "host-@agent@",
            "ipAddress": "192.0.2.3"
        },
        "systemInfo": {
            "cpuLoadAverage": 1.@nois,
            "cpuUtilization": 0.@nois,
            "machineArch": "x86_64",
            "memoryUsage": 15458@nois,
            "operatingSystem": "Linux",
            "physicalMem": 67179008000,
            "vCores": 16
        }
    },
    "flowInfo": {
        "flowId": "@flow",
        "processorStatuses": [],
        "queues": {
            "8368e3c8-015a-1003-52ca-83af40ec1332": {
                "dataSize": @nois,
                "dataSizeMax": 1073741824,
                "name": "GetFile/success/PublishKafka",
                "size": @nois,
                "sizeMax": 10000,
                "uuid": "8368e3c8-015a-1003-52ca-83af40ec1332"
            }
        },
        "runStatus": "RUNNING",
        "versionedFlowSnapshotURI": {
            "bucketId": "default",
            "flowId": "@flow"
        }
    },
    "operation": "heartbeat",
    "resourceInfo": {
        "hash": "null"
    }
}
"#;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn beats(kind: Kind, is_gzip: bool) -> Beats {
        Beats::new(&Build {
            kind,
            class: "edge",
            manifest_hash: "h",
            flow: "f-1",
            is_gzip,
        })
    }

    #[test]
    fn a_beat_is_json_of_its_agent_and_moment() {
        for kind in [Kind::Java, Kind::Cpp] {
            let mut beats = beats(kind, false);
            let size = beats.text.len() - beats.body_at;
            assert!((1_000..2_600).contains(&size), "{kind:?}: {size}");
            for agent in [0, 42, 9_999_999] {
                let at = beats.body_at;
                let request = beats.beat(agent, 1_800_000_000_123, 7).to_vec();
                let later = beats.beat(agent, 1_800_000_060_123, 8).to_vec();
                let body: Value = serde_json::from_slice(&request[at..]).unwrap();
                assert_eq!(body["agentInfo"]["identifier"], name(agent));
                assert_eq!(body["flowInfo"]["flowId"], "f-1");
                let later: Value = serde_json::from_slice(&later[at..]).unwrap();
                let uptime = |body: &Value| body["agentInfo"]["status"]["uptime"].as_u64().unwrap();
                assert_eq!(uptime(&later) - uptime(&body), 60_000, "no restart");
                if kind == Kind::Java {
                    assert_eq!(body["created"], 1_800_000_000_123_u64);
                }
                let text = String::from_utf8(request).unwrap();
                assert!(!text.contains('@'), "{text}");
                assert!(text.contains(&format!("Content-Length: {size}\r\n")));
            }
            let one = beats.beat(1, 0, 1).to_vec();
            assert_ne!(one, beats.beat(1, 0, 2), "no two beats are equal");
        }
    }

    #[test]
    fn a_packed_beat_is_the_same_beat() {
        let mut packed = beats(Kind::Java, true);
        let request = packed.beat(5, 6, 7).to_vec();
        let at = find(&request, b"\r\n\r\n").unwrap() + 4;
        let mut body = String::new();
        let mut reader = flate2::read::GzDecoder::new(&request[at..]);
        std::io::Read::read_to_string(&mut reader, &mut body).unwrap();
        let mut plain = beats(Kind::Java, false);
        let at = plain.body_at;
        assert_eq!(body.as_bytes(), &plain.beat(5, 6, 7)[at..]);
    }

    #[test]
    fn a_manifest_has_its_size_and_is_json() {
        let text = manifest(Kind::Java, 800_000);
        assert!((800_000..805_000).contains(&text.len()), "{}", text.len());
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["agentType"], "minifi-java");
    }
}
