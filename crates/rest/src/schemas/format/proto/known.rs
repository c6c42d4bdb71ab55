//! Files that schemas import without a reference, as everybody has them: Google's common types and
//! what Confluent's own schemas rest on, by their documented names, fields and numbers. Those of
//! `google/protobuf` are in every pool already.

/// The text of a file, where it is one of them.
pub(super) fn text(name: &str) -> Option<&'static str> {
    let mut known = KNOWN.iter();
    known.find(|(of, _)| *of == name).map(|(_, text)| *text)
}

macro_rules! known {
    ($($name:literal),* $(,)?) => {
        /// The files by the names by which they are imported.
        const KNOWN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("known/", $name)))),*];
    };
}

known![
    "confluent/meta.proto",
    "confluent/type/decimal.proto",
    "google/type/calendar_period.proto",
    "google/type/color.proto",
    "google/type/date.proto",
    "google/type/datetime.proto",
    "google/type/dayofweek.proto",
    "google/type/decimal.proto",
    "google/type/expr.proto",
    "google/type/fraction.proto",
    "google/type/interval.proto",
    "google/type/latlng.proto",
    "google/type/localized_text.proto",
    "google/type/money.proto",
    "google/type/month.proto",
    "google/type/phone_number.proto",
    "google/type/postal_address.proto",
    "google/type/quaternion.proto",
    "google/type/timeofday.proto",
];

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;

    use super::KNOWN;

    #[test]
    fn every_file_is_read_and_has_what_its_name_says() {
        for (name, text) in KNOWN {
            let mut pool = DescriptorPool::global();
            let file = super::super::add(&mut pool, name, text);
            let file = file.unwrap_or_else(|reason| panic!("{name}: {reason}"));
            let (folder, stem) = name.rsplit_once('/').unwrap();
            assert_eq!(file.package_name(), folder.replace('/', "."), "{name}");
            let stem = stem.strip_suffix(".proto").unwrap().replace('_', "");
            let messages = file.messages().map(|of| of.name().to_lowercase());
            let enums = file.enums().map(|of| of.name().to_lowercase());
            assert!(messages.chain(enums).any(|of| of == stem), "{name}");
        }
        assert_eq!(KNOWN.len(), 19);
    }
}
