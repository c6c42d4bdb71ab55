//! Hostile records: each damage costs one record, says why, and leaves the neighbours alone.

use base::Rng;

use super::*;

/// A well-formed record of the given fields.
pub(crate) fn built(leader_tail: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut directory, mut data) = (String::new(), Vec::new());
    for (tag, text) in fields {
        directory.push_str(&format!("{tag}{:04}{:05}", text.len() + 1, data.len()));
        data.extend_from_slice(text.as_bytes());
        data.push(FIELD_END);
    }
    let base = LEADER_BYTES + directory.len() + 1;
    let length = base + data.len() + 1;
    let mut record =
        format!("{length:05}cam {leader_tail}22{base:05} a 4500{directory}").into_bytes();
    record.push(FIELD_END);
    record.extend_from_slice(&data);
    record.push(RECORD_END);
    record
}

/// A record like those of a library: `n` is in its id and title.
pub(crate) fn book(n: usize) -> Vec<u8> {
    let id = format!("   {n:08} ");
    let title = format!(
        "10\u{1f}aThe book number {n} :\u{1f}bits \"use\" \\ la litte\u{301}rature /\u{1f}cA. N. Other."
    );
    let note = format!("  \u{1f}a{}", "Much has been said. ".repeat(n % 40));
    built(
        "a",
        &[
            ("001", &id),
            ("008", "980410s1997    fr"),
            ("245", &title),
            ("500", &note),
        ],
    )
}

/// A record in MARCXML, its elements' names behind `prefix`.
pub(crate) fn to_xml(record: &MarcRecord<'_>, prefix: &str) -> String {
    let escaped = |text: &str| quick_xml::escape::escape(text).into_owned();
    let mut xml = format!(
        "<{prefix}record><{prefix}leader>{}</{prefix}leader>",
        record.leader
    );
    for field in &record.fields {
        let tag = &field.tag;
        if field.is_text() {
            let data = escaped(&field.data);
            xml.push_str(&format!(
                "<{prefix}controlfield tag=\"{tag}\">{data}</{prefix}controlfield>"
            ));
            continue;
        }
        let [one, two] = field.indicators();
        xml.push_str(&format!(
            "<{prefix}datafield tag=\"{tag}\" ind1=\"{one}\" ind2=\"{two}\">"
        ));
        for (code, text) in field.subfields() {
            let text = escaped(text);
            xml.push_str(&format!(
                "<{prefix}subfield code=\"{code}\">{text}</{prefix}subfield>"
            ));
        }
        xml.push_str(&format!("</{prefix}datafield>"));
    }
    xml.push_str(&format!("</{prefix}record>"));
    xml
}

/// Cuts a whole buffer up, by a format's own functions: `Ok(id)` for records, `Err(reason)` for the
/// others.
pub(crate) fn cut_by<'a, 'r, E: From<&'static str>>(
    buffer: &'a [u8],
    frame: impl Fn(&'a [u8], bool) -> Framed<'a>,
    parse: impl Fn(&'a [u8]) -> Result<MarcRecord<'r>, E>,
) -> Vec<Result<String, E>> {
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        match frame(&buffer[at..], true) {
            Framed::End => return found,
            Framed::Incomplete | Framed::Blank { .. } => panic!("not at the end of a file"),
            Framed::Damaged {
                before,
                len,
                reason,
            } => {
                assert!(len > 0, "no progress at {at}");
                found.push(Err(E::from(reason)));
                at += before + len;
            }
            Framed::Record { before, bytes, .. } => {
                let id = |record: MarcRecord<'_>| record.id().map(str::to_owned);
                found.push(parse(bytes).and_then(|record| id(record).ok_or(E::from("no id"))));
                at += before + bytes.len();
            }
        }
    }
}

fn cut(buffer: &[u8]) -> Vec<Result<String, &'static str>> {
    cut_by(buffer, frame, parse)
}

fn ids<'a>(found: &'a [Result<String, &'static str>]) -> Vec<&'a str> {
    found.iter().filter_map(|one| one.as_deref().ok()).collect()
}

/// Three books, the middle one changed by `damage`; answers what was said of it.
fn around(damage: impl FnOnce(&mut Vec<u8>)) -> Result<String, &'static str> {
    let mut middle = book(2);
    damage(&mut middle);
    let buffer = [book(1), middle, book(3)].concat();
    let found = cut(&buffer);
    assert_eq!(found.first(), Some(&Ok("00000001".to_owned())), "{found:?}");
    assert_eq!(found.last(), Some(&Ok("00000003".to_owned())), "{found:?}");
    assert_eq!(found.len(), 3, "{found:?}");
    found[1].clone()
}

#[test]
fn a_whole_record_is_read_field_by_field() {
    let bytes = book(7);
    let record = parse(&bytes).unwrap();
    assert_eq!((record.id(), &record.note), (Some("00000007"), &None));
    assert_eq!(
        record.title().unwrap(),
        "The book number 7 : its \"use\" \\ la litte\u{301}rature"
    );
    let mut json = String::new();
    write_json(&record, &mut json);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["leader"].as_str().unwrap().len(), 24);
    assert_eq!(value["fields"][0]["001"], "   00000007 ");
    let title = &value["fields"][2]["245"];
    assert_eq!(
        (title["ind1"].as_str(), title["ind2"].as_str()),
        (Some("1"), Some("0"))
    );
    assert_eq!(
        title["subfields"][1]["b"],
        "its \"use\" \\ la litte\u{301}rature /"
    );
    assert_eq!(title["subfields"].as_array().unwrap().len(), 3);
}

#[test]
fn the_id_falls_back_to_010_a() {
    let bytes = built(
        "a",
        &[("010", "  \u{1f}z1\u{1f}a  n 123 "), ("245", "00\u{1f}aT")],
    );
    assert_eq!(parse(&bytes).unwrap().id(), Some("n 123"));
    let bytes = built("a", &[("001", " "), ("245", "00\u{1f}aT")]);
    assert_eq!(parse(&bytes).unwrap().id(), None);
}

#[test]
fn lengths_and_offsets_that_are_off_are_repaired_from_the_terminators() {
    // The record length is one too small, one too large, and no number at all.
    for length in ["00001", "99999", "0x12a"] {
        let taken = around(|record| record[..5].copy_from_slice(length.as_bytes()));
        assert_eq!(taken, Ok("00000002".to_owned()), "{length}");
    }
    // A base address that points elsewhere, and a directory whose starts are off by one.
    assert!(around(|record| record[12..17].copy_from_slice(b"00099")).is_ok());
    assert!(around(|record| record[24 + 11] += 1).is_ok());
    let mut record = book(2);
    record[24 + 12 + 11] += 1;
    assert!(parse(&record).unwrap().note.unwrap().contains("offsets"));
    // A leader with letters where the entry map's digits should be is no damage.
    assert!(around(|record| record[19] = b'4').is_ok());
}

#[test]
fn a_missing_terminator_costs_its_record_only() {
    let joined = Err("another record begins inside of it");
    assert_eq!(around(|record| *record.last_mut().unwrap() = b'x'), joined);
    let popped = around(|record| {
        record.pop();
    });
    assert_eq!(popped, joined);
    // Where the next record's length is wrong too, the first one's own length tells.
    let mut next = book(3);
    next[..5].copy_from_slice(b"99998");
    let mut first = book(2);
    *first.last_mut().unwrap() = b'x';
    let found = cut(&[first, next, book(4)].concat());
    let missing = Err("the record terminator is missing");
    assert_eq!(
        found,
        [
            missing,
            Ok("00000003".to_owned()),
            Ok("00000004".to_owned())
        ]
    );
    // With a wrong length on top, the next leader tells where the next record begins.
    let popped = around(|record| {
        record.pop();
        record[..5].copy_from_slice(b"00090");
    });
    assert_eq!(popped, joined);
}

#[test]
fn text_that_is_not_what_the_leader_says_is_refused_or_taken_as_what_it_is() {
    let at = book(2).iter().position(|byte| *byte == 0xcc).unwrap();
    let reason = around(|record| record[at] = 0xff).unwrap_err();
    assert!(reason.contains("not UTF-8"), "{reason}");
    let reason = around(|record| record[9] = b' ').map(|id| assert_eq!(id, "00000002"));
    assert_eq!(reason, Ok(()), "UTF-8 that claims to be MARC-8 is taken");
    let reason = around(|record| {
        record[9] = b' ';
        record[at] = 0xe2;
        record[at + 1] = b'e';
    });
    assert_eq!(reason.as_deref(), Ok("00000002"), "MARC-8 is converted");
}

#[test]
fn marc_8_becomes_unicode_and_the_leader_says_so() {
    let mut record = built(
        " ",
        &[("001", "x1"), ("245", "00\u{1f}aM?nchen\u{1f}bT?st")],
    );
    let marks: Vec<usize> = (0..record.len()).filter(|at| record[*at] == b'?').collect();
    // The umlaut of ANSEL stands before its letter; the other is in no table.
    record.splice(marks[1]..=marks[1], [0xff]);
    record.splice(marks[0]..=marks[0], [0xe8]);
    record.splice(marks[0] + 1..=marks[0] + 1, [b'u']);
    let parsed = parse(&record).unwrap();
    assert_eq!(&parsed.leader[9..10], "a");
    let texts: Vec<(char, &str)> = parsed.fields[1].subfields().collect();
    assert_eq!(texts, [('a', "Mu\u{308}chen"), ('b', "T\u{fffd}st")]);
    assert!(parsed.note.unwrap().contains("1 MARC-8 code"));
}

#[test]
fn filler_between_records_is_no_record() {
    let buffer = [&b"\r\n"[..], &book(1), b"\n\n", &book(2), b"\r\n \x1a\0"].concat();
    assert_eq!(ids(&cut(&buffer)), ["00000001", "00000002"]);
    assert_eq!(cut(b"\n\n"), []);
    assert_eq!(cut(b""), []);
}

#[test]
fn byte_order_marks_before_records_are_filler() {
    let mark = "\u{feff}".as_bytes();
    let buffer = [mark, &book(1), b"\n", mark, mark, &book(2), b"\n", mark].concat();
    let found = cut(&buffer);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(ids(&found), ["00000001", "00000002"]);
}

#[test]
fn a_terminator_inside_of_a_record_costs_that_one_once() {
    let inside = Err("a record terminator is inside of it");
    for at in [200, 210] {
        // Over a letter, so that the length is right still.
        let changed = around(|record| record[at] = RECORD_END);
        assert_eq!(changed, inside, "byte {at}");
    }
    let twice = around(|record| {
        record[200] = RECORD_END;
        record[215] = RECORD_END;
    });
    assert_eq!(twice, inside);
    // At the file's end as well.
    let mut last = book(2);
    last[200] = RECORD_END;
    let found = cut(&[book(1), last.clone(), b"\n ".to_vec()].concat());
    assert_eq!(found, [Ok("00000001".to_owned()), inside]);
    // What is behind it tells, so that is waited for.
    assert_eq!(frame(&last, false), Framed::Incomplete);
    // A length that reaches over records which follow is a lie.
    let length = format!("{:05}", book(2).len() + book(3).len());
    let lie = around(|record| record[..5].copy_from_slice(length.as_bytes()));
    assert_eq!(lie, Ok("00000002".to_owned()));
}

#[test]
fn a_record_that_is_longer_than_its_leader_can_say_is_taken_field_by_field() {
    let fields = [
        ("001", "00000002".to_owned()),
        ("500", format!("  \u{1f}a{}", "much ".repeat(30_000))),
        ("505", "0 \u{1f}alittle".to_owned()),
    ];
    let (mut directory, mut data) = (String::new(), Vec::new());
    for (tag, text) in &fields {
        // As many digits as there is room for, as writers do.
        let (len, start) = (text.len() + 1, data.len());
        directory.push_str(&format!(
            "{tag}{:04}{:05}",
            len.min(9_999),
            start.min(99_999)
        ));
        data.extend_from_slice(text.as_bytes());
        data.push(FIELD_END);
    }
    let base = LEADER_BYTES + directory.len() + 1;
    let mut long = format!("99999cam a22{base:05} a 4500{directory}").into_bytes();
    long.push(FIELD_END);
    long.extend_from_slice(&data);
    long.push(RECORD_END);
    let found = cut(&[book(1), long.clone(), book(3)].concat());
    assert_eq!(ids(&found), ["00000001", "00000002", "00000003"]);
    let record = parse(&long).unwrap();
    let last: Vec<&str> = record.subfields("505", "a").collect();
    assert_eq!(last, ["little"]);
}

#[test]
fn a_field_that_lost_its_end_is_taken_in_a_record_of_its_length_alone() {
    let mut record = book(2);
    let end = record.len() - 2;
    record[end] = b'.';
    assert!(parse(&record).unwrap().note.unwrap().contains("offsets"));
    // Else the field may have lost more.
    record.drain(end - 3..=end);
    assert_eq!(
        parse(&record).unwrap_err(),
        "the directory does not fit the fields"
    );
}

#[test]
fn a_field_without_subfields_is_a_text() {
    let bytes = built(
        "a",
        &[
            ("001", "x"),
            ("FMT", "BK"),
            ("SYS", "000123456"),
            ("245", "00\u{1f}aT"),
        ],
    );
    let record = parse(&bytes).unwrap();
    assert_eq!(record.note, None);
    let mut json = String::new();
    write_json(&record, &mut json);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["fields"][2], serde_json::json!({"SYS": "000123456"}));
    assert_eq!(value["fields"][1]["FMT"]["ind1"], "B");
    let mut again = String::new();
    write_json(&parse_json(json.as_bytes()).unwrap(), &mut again);
    assert_eq!(again, json);
}

#[test]
fn what_a_field_has_too_much_or_too_little_is_told() {
    let note = |text: &str| {
        let bytes = built("a", &[("001", "x"), ("245", text)]);
        parse(&bytes).unwrap().note.map(Cow::into_owned)
    };
    assert_eq!(note("00\u{1f}aT"), None);
    let more = note("00x\u{1f}aT").unwrap();
    assert!(more.contains("field 245 has text before"), "{more}");
    let less = note("0\u{1f}aT").unwrap();
    assert!(less.contains("field 245 lacks an indicator"), "{less}");
}

#[test]
fn a_directory_that_is_cut_or_does_not_fit_is_refused() {
    let cut = around(|record| {
        record.remove(30);
    });
    let reason = cut.unwrap_err();
    assert!(reason.contains("entries"), "{reason}");
    // A field's end is lost, so there are more entries than fields.
    let lost = around(|record| {
        let ends: Vec<usize> = memchr::memchr_iter(FIELD_END, record).collect();
        record[ends[2]] = b' ';
    });
    assert_eq!(lost, Err("the directory does not fit the fields"));
}

#[test]
fn a_file_that_ends_in_a_record_loses_that_one() {
    let whole = [book(1), book(2)].concat();
    for cut_off in 1..book(2).len() - 1 {
        let found = cut(&whole[..whole.len() - cut_off]);
        assert_eq!(
            found[0],
            Ok("00000001".to_owned()),
            "{cut_off} bytes cut off"
        );
        assert!(found[1..].iter().all(Result::is_err), "{found:?}");
        assert!(found.len() == 2, "{cut_off}: {found:?}");
    }
}

#[test]
fn a_record_at_the_end_of_the_buffer_waits_for_more() {
    let whole = book(1);
    for len in 0..whole.len() {
        assert_eq!(
            frame(&whole[..len], false),
            Framed::Incomplete,
            "{len} bytes"
        );
    }
}

#[test]
fn random_damage_never_panics_and_never_costs_a_whole_neighbour() {
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let mut middle = book(rng.below(50) as usize);
        for _ in 0..=rng.below(6) {
            if middle.is_empty() {
                break;
            }
            let at = rng.below(middle.len() as u64) as usize;
            match rng.below(4) {
                0 => middle[at] = rng.next_u64() as u8,
                1 => drop(middle.remove(at)),
                2 => middle.insert(at, b"\x1d\x1e\x1f09az \xff"[rng.below(9) as usize]),
                _ => middle.truncate(at.max(1)),
            }
        }
        let buffer = [book(100), middle, book(101), book(102)].concat();
        let found = cut(&buffer);
        let ids = ids(&found);
        assert!(
            ids.contains(&"00000100") && ids.contains(&"00000102"),
            "seed {seed}: {found:?}"
        );
        // The record right behind may only be lost where its neighbour's end is.
        let lost = !ids.contains(&"00000101");
        assert!(!lost, "seed {seed}: {found:?}");
    }
}
