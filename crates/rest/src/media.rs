//! Content types and their negotiation, as functions on header text.
//!
//! The form is `application/vnd.kafka[.<embedded>].<api>+json`; without an embedded format it means
//! binary (base64). `application/json`, `application/octet-stream`, `*/*` and no header at all are
//! taken too, as servers of the first API version took them.

use crate::error::RestError;
use crate::schemas::format::SchemaType;

/// The API version that a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiVersion {
    V1,
    V2,
}

/// How keys and values stand in JSON bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Embedded {
    /// Base64 text.
    Binary,
    /// JSON as it is.
    Json,
    /// Text that is stored as it reads, in UTF-8.
    Text,
    /// JSON that stands for a value of a schema.
    Schema(SchemaType),
}

/// What a body's `Content-Type` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyType {
    pub embedded: Embedded,
    pub version: ApiVersion,
}

impl Embedded {
    /// The name in consumer configurations.
    pub fn name(self) -> &'static str {
        match self {
            Embedded::Binary => "binary",
            Embedded::Json => "json",
            Embedded::Text => "text",
            Embedded::Schema(SchemaType::Avro) => "avro",
            Embedded::Schema(SchemaType::Json) => "jsonschema",
            Embedded::Schema(SchemaType::Protobuf) => "protobuf",
        }
    }

    /// The format of a name in consumer configurations and media types.
    pub fn of_name(name: &str) -> Option<Embedded> {
        EMBEDDED.into_iter().find(|format| format.name() == name)
    }

    /// The media type of a read's answer.
    pub fn read_type(self, version: ApiVersion) -> &'static str {
        match (self, version) {
            (Embedded::Binary, ApiVersion::V1) => "application/vnd.kafka.binary.v1+json",
            (Embedded::Binary, ApiVersion::V2) => "application/vnd.kafka.binary.v2+json",
            (Embedded::Json, ApiVersion::V1) => "application/vnd.kafka.json.v1+json",
            (Embedded::Json, ApiVersion::V2) => "application/vnd.kafka.json.v2+json",
            (Embedded::Text, ApiVersion::V1) => "application/vnd.kafka.text.v1+json",
            (Embedded::Text, ApiVersion::V2) => "application/vnd.kafka.text.v2+json",
            (Embedded::Schema(kind), ApiVersion::V1) => match kind {
                SchemaType::Avro => "application/vnd.kafka.avro.v1+json",
                SchemaType::Json => "application/vnd.kafka.jsonschema.v1+json",
                SchemaType::Protobuf => "application/vnd.kafka.protobuf.v1+json",
            },
            (Embedded::Schema(kind), ApiVersion::V2) => match kind {
                SchemaType::Avro => "application/vnd.kafka.avro.v2+json",
                SchemaType::Json => "application/vnd.kafka.jsonschema.v2+json",
                SchemaType::Protobuf => "application/vnd.kafka.protobuf.v2+json",
            },
        }
    }
}

impl ApiVersion {
    /// The media type of metadata and produce answers when the caller has no wish.
    pub fn answer_type(self) -> &'static str {
        match self {
            ApiVersion::V1 => "application/vnd.kafka.v1+json",
            ApiVersion::V2 => "application/vnd.kafka.v2+json",
        }
    }
}

/// Reads a `Content-Type`; `None` is a missing header.
pub(crate) fn body_type(header: Option<&str>) -> Result<BodyType, RestError> {
    let unsupported = || RestError::UnsupportedMediaType(header.unwrap_or_default().to_owned());
    let plain = BodyType {
        embedded: Embedded::Binary,
        version: ApiVersion::V2,
    };
    let Some(text) = header else { return Ok(plain) };
    // What most send, without taking it apart.
    let usual = EMBEDDED.into_iter().find_map(|embedded| {
        let versions = [ApiVersion::V2, ApiVersion::V1].into_iter();
        let mut is_it = versions.filter(|version| embedded.read_type(*version) == text);
        is_it.next().map(|version| BodyType { embedded, version })
    });
    if let Some(usual) = usual {
        return Ok(usual);
    }
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    for parameter in parameters.split(';') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let utf8 = ["utf-8", "utf8"]
            .iter()
            .any(|utf| value.trim().trim_matches('"').eq_ignore_ascii_case(utf));
        if name.trim().eq_ignore_ascii_case("charset") && !utf8 {
            return Err(unsupported());
        }
    }
    let essence = essence.trim().to_ascii_lowercase();
    match kafka_type(&essence) {
        Some(KafkaType { embedded, version }) => Ok(BodyType {
            embedded: match embedded {
                None => Embedded::Binary,
                Some(name) => Embedded::of_name(name).ok_or_else(unsupported)?,
            },
            version: version.unwrap_or(ApiVersion::V2),
        }),
        None if ["application/json", "application/octet-stream", ""].contains(&&*essence) => {
            Ok(plain)
        }
        None => Err(unsupported()),
    }
}

/// Refuses a body of version 3 that is not plain JSON; no header is taken as JSON.
pub(crate) fn check_json(header: Option<&str>) -> Result<(), RestError> {
    let text = header.unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.is_empty() || essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(RestError::UnsupportedMediaType(text.to_owned()))
}

/// Whether a caller takes plain JSON.
pub(crate) fn accepts_json(accept: &str) -> bool {
    let known = ["*/*", "application/*", "application/json"];
    let mut ranges = ranges(accept);
    accept.trim().is_empty()
        || ranges.any(|(range, quality)| quality > 0 && known.contains(&range.as_str()))
}

/// Whether a caller wants a stream of events.
pub(crate) fn accepts_events(accept: &str) -> bool {
    let mut ranges = ranges(accept);
    ranges.any(|(range, quality)| quality > 0 && range == "text/event-stream")
}

/// Chooses the media type of a metadata or produce answer.
pub(crate) fn answer_type(
    accept: Option<&str>,
    spoken: ApiVersion,
) -> Result<&'static str, RestError> {
    let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else {
        return Ok(spoken.answer_type());
    };
    let mut best: Option<(u32, &'static str)> = None;
    for (range, quality) in ranges(accept) {
        let candidate = match (range.as_str(), kafka_type(&range)) {
            ("*/*" | "application/*", _) => spoken.answer_type(),
            ("application/json", _) => "application/json",
            ("application/vnd.kafka+json", _) => "application/vnd.kafka+json",
            (
                _,
                Some(KafkaType {
                    version: Some(version),
                    ..
                }),
            ) => version.answer_type(),
            _ => continue,
        };
        // The first of equals wins, as the caller wrote them.
        if quality > 0 && best.is_none_or(|(most, _)| quality > most) {
            best = Some((quality, candidate));
        }
    }
    best.map(|(_, media)| media).ok_or(RestError::NotAcceptable)
}

/// The version that a request names by the type of its body, or else by what it takes in answer.
pub(crate) fn named_version(body: Option<&str>, accept: Option<&str>) -> Option<ApiVersion> {
    let of = |text: &str| ranges(text).find_map(|(range, _)| kafka_type(&range)?.version);
    body.and_then(of).or_else(|| accept.and_then(of))
}

/// The format of the records that a read without an instance asks for.
pub(crate) fn read_format(
    accept: Option<&str>,
    version: ApiVersion,
) -> Result<Embedded, RestError> {
    let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else {
        return Ok(Embedded::Binary);
    };
    for (range, quality) in ranges(accept) {
        let embedded = match (range.as_str(), kafka_type(&range)) {
            ("*/*" | "application/*" | "application/json", _) => None,
            (_, Some(kafka)) if kafka.version.is_none_or(|named| named == version) => {
                kafka.embedded
            }
            _ => continue,
        };
        match embedded {
            _ if quality == 0 => {}
            None => return Ok(Embedded::Binary),
            Some(name) => {
                if let Some(format) = Embedded::of_name(name) {
                    return Ok(format);
                }
            }
        }
    }
    Err(RestError::NotAcceptable)
}

/// Checks that a read's `Accept` asks for the instance's format, in the instance's version.
pub(crate) fn read_type(
    accept: Option<&str>,
    format: Embedded,
    version: ApiVersion,
) -> Result<&'static str, RestError> {
    let answered = format.read_type(version);
    let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else {
        return Ok(answered);
    };
    let mut names_a_format = false;
    for (range, quality) in ranges(accept) {
        if quality == 0 {
            continue;
        }
        match (range.as_str(), kafka_type(&range)) {
            ("*/*" | "application/*" | "application/json", _) => return Ok(answered),
            (_, Some(kafka)) if kafka.version.is_none_or(|named| named == version) => {
                names_a_format = true;
                if kafka.embedded.unwrap_or("binary") == format.name() {
                    return Ok(answered);
                }
            }
            _ => {}
        }
    }
    if names_a_format {
        Err(RestError::FormatMismatch {
            format: format.name(),
            accept: answered,
        })
    } else {
        Err(RestError::NotAcceptable)
    }
}

/// All formats.
const EMBEDDED: [Embedded; 6] = [
    Embedded::Binary,
    Embedded::Json,
    Embedded::Text,
    Embedded::Schema(SchemaType::Avro),
    Embedded::Schema(SchemaType::Json),
    Embedded::Schema(SchemaType::Protobuf),
];

struct KafkaType<'a> {
    embedded: Option<&'a str>,
    version: Option<ApiVersion>,
}

/// Takes `application/vnd.kafka[.embedded][.vN]+json` apart; `essence` is in lower case.
fn kafka_type(essence: &str) -> Option<KafkaType<'_>> {
    let middle = essence
        .strip_prefix("application/vnd.kafka")?
        .strip_suffix("+json")?;
    if middle.is_empty() {
        return Some(KafkaType {
            embedded: None,
            version: None,
        });
    }
    let middle = middle.strip_prefix('.')?;
    let (embedded, version) = match middle.rsplit_once('.') {
        Some((embedded, version)) => (Some(embedded), version),
        None => (None, middle),
    };
    let version = match version {
        "v1" => ApiVersion::V1,
        "v2" => ApiVersion::V2,
        _ => return None,
    };
    if embedded.is_some_and(|name| Embedded::of_name(name).is_none()) {
        return None;
    }
    Some(KafkaType {
        embedded,
        version: Some(version),
    })
}

/// The media ranges of an `Accept` header in lower case, each with its quality in thousandths.
pub(crate) fn ranges(accept: &str) -> impl Iterator<Item = (String, u32)> + '_ {
    accept.split(',').map(|range| {
        let mut parts = range.split(';');
        let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let quality = parts
            .filter_map(|part| part.trim().strip_prefix("q=").map(str::trim))
            .find_map(|text| text.parse::<f32>().ok())
            .map_or(1_000.0, |q| (q * 1_000.0).clamp(0.0, 1_000.0));
        // Clamped to 0..=1000 above, so the cast is exact enough; NaN becomes 0.
        (essence, quality as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_name_format_and_version() {
        type Case = (Option<&'static str>, Option<(Embedded, ApiVersion)>);
        let cases: [Case; 12] = [
            (None, Some((Embedded::Binary, ApiVersion::V2))),
            (
                Some("application/json; charset=UTF-8"),
                Some((Embedded::Binary, ApiVersion::V2)),
            ),
            (
                Some("application/vnd.kafka.v2+json"),
                Some((Embedded::Binary, ApiVersion::V2)),
            ),
            (
                Some("application/vnd.kafka+json"),
                Some((Embedded::Binary, ApiVersion::V2)),
            ),
            (
                Some("application/vnd.kafka.json.v1+json"),
                Some((Embedded::Json, ApiVersion::V1)),
            ),
            (
                Some("Application/Vnd.Kafka.JSON.v2+json"),
                Some((Embedded::Json, ApiVersion::V2)),
            ),
            (
                Some("application/vnd.kafka.binary.v1+json"),
                Some((Embedded::Binary, ApiVersion::V1)),
            ),
            (
                Some("application/vnd.kafka.avro.v2+json"),
                Some((Embedded::Schema(SchemaType::Avro), ApiVersion::V2)),
            ),
            (Some("application/vnd.kafka.thrift.v2+json"), None),
            (Some("application/vnd.kafka.json.v3+json"), None),
            (Some("application/json; charset=latin1"), None),
            (Some("text/plain"), None),
        ];
        for (header, expected) in cases {
            let found = body_type(header).ok().map(|t| (t.embedded, t.version));
            assert_eq!(found, expected, "{header:?}");
        }
    }

    #[test]
    fn answers_follow_the_callers_order_and_quality() {
        let cases: [(Option<&str>, Option<&str>); 8] = [
            (None, Some("application/vnd.kafka.v1+json")),
            (Some("*/*"), Some("application/vnd.kafka.v1+json")),
            (
                Some("application/vnd.kafka.v2+json"),
                Some("application/vnd.kafka.v2+json"),
            ),
            (
                Some("application/json;q=0.5, application/vnd.kafka+json; q=0.9"),
                Some("application/vnd.kafka+json"),
            ),
            (
                Some("text/html, application/json"),
                Some("application/json"),
            ),
            (Some("text/html"), None),
            (Some("application/json;q=0"), None),
            (Some("application/vnd.kafka.v9+json"), None),
        ];
        for (accept, expected) in cases {
            assert_eq!(
                answer_type(accept, ApiVersion::V1).ok(),
                expected,
                "{accept:?}"
            );
        }
    }

    #[test]
    fn a_read_in_another_format_is_40601_and_an_unknown_type_406() {
        let code =
            |accept| read_type(Some(accept), Embedded::Json, V2).map_or_else(|e| e.code(), |_| 0);
        assert_eq!(code("application/vnd.kafka.json.v2+json"), 0);
        assert_eq!(code("application/vnd.kafka.binary.v2+json, */*;q=0.1"), 0);
        assert_eq!(code("application/vnd.kafka.json.v1+json"), 406);
        assert_eq!(code("application/vnd.kafka.v2+json"), 40601);
        assert_eq!(code("application/vnd.kafka.avro.v2+json"), 40601);
        assert_eq!(code("text/html"), 406);
        let of_binary = |accept| read_type(Some(accept), Embedded::Binary, V2);
        assert!(of_binary("application/vnd.kafka.v2+json").is_ok());
    }

    #[test]
    fn a_request_names_its_version_by_its_body_before_its_answer() {
        let (v1, v2) = (
            Some("application/vnd.kafka.v1+json"),
            Some("application/json, application/vnd.kafka.json.v2+json"),
        );
        assert_eq!(named_version(v1, v2), Some(ApiVersion::V1));
        assert_eq!(named_version(None, v2), Some(V2));
        assert_eq!(named_version(Some("application/json"), None), None);
        assert_eq!(named_version(None, Some("*/*")), None);
    }

    #[test]
    fn reads_without_an_instance_are_binary_unless_json_is_asked_for() {
        let format = |accept| read_format(accept, ApiVersion::V1).ok();
        assert_eq!(format(None), Some(Embedded::Binary));
        assert_eq!(format(Some("*/*")), Some(Embedded::Binary));
        let json = "application/vnd.kafka.json.v1+json";
        assert_eq!(format(Some(json)), Some(Embedded::Json));
        assert_eq!(format(Some("application/vnd.kafka.json.v2+json")), None);
        let avro = Some(Embedded::Schema(SchemaType::Avro));
        assert_eq!(format(Some("application/vnd.kafka.avro.v1+json")), avro);
        assert_eq!(format(Some("application/vnd.kafka.thrift.v1+json")), None);
        assert_eq!(format(Some("text/html")), None);
    }

    const V2: ApiVersion = ApiVersion::V2;
}
