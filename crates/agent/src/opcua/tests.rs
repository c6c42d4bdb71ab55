//! The codec against bytes that another implementation wrote (Python's asyncua), and damaged ones.

use super::frame::{self, Assembly, HEAD_BYTES, Way};
use super::message;
use super::status::Status;
use super::wire::{Kind, NodeId, Reader};
use super::writer::Writer;
use super::{Fault, Place, Security, Server, parse, size, text, time, whole};
use crate::net::limits::{OPC_CHUNK_BYTES_MAX, OPC_MESSAGE_BYTES_MAX};

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn values_are_those_that_were_written() {
    let answer = bytes(READ);
    let from = message::answer(message::READ, &answer).unwrap();
    let values = message::values(from, 16).unwrap();
    let expected: [(&str, &str, usize); 16] = [
        ("Int32", "-5", 4),
        ("Float", "1.1", 4),
        ("Double", "0.000000001", 8),
        ("String", "Grüße", 7),
        ("Boolean", "True", 1),
        ("DateTime", "2026-01-31T12:00:00.250Z", 8),
        ("ByteString", "", 2),
        ("Guid", "12345678-9abc-def0-1234-56789abcdef0", 16),
        ("LocalizedText", "Ventil", 6),
        ("UInt16", "[1,2,3]", 6),
        ("String", r#"["a","b\""]"#, 3),
        ("Int64", "[1,2,3,4]", 32),
        ("NodeId", "", 0),
        ("UInt64", "18446744073709551615", 8),
        ("", "", 0),
        ("QualifiedName", "q", 1),
    ];
    for (index, (told, (kind, content, bytes))) in values.iter().zip(expected).enumerate() {
        let Some(value) = &told.value else {
            assert_eq!(index, 14);
            assert_eq!(told.status.to_string(), "BadNotReadable");
            continue;
        };
        assert_eq!(value.kind.name(), kind);
        match kind {
            "ByteString" => assert_eq!(text(value).unwrap(), [0, 0xff]),
            "NodeId" => assert_eq!(text(value), None),
            _ => assert_eq!(String::from_utf8(text(value).unwrap()).unwrap(), content),
        }
        assert_eq!(size(value), bytes, "{kind}");
        let source = told.source_time.map(time);
        match kind {
            "QualifiedName" => assert_eq!(source, None),
            _ => assert_eq!(source.unwrap(), "2026-01-31T12:00:00.250Z"),
        }
    }
}

#[test]
fn references_are_those_that_were_written() {
    let answer = bytes(BROWSE);
    let from = message::answer(message::BROWSE, &answer).unwrap();
    let browsed = message::browsed(from).unwrap();
    assert_eq!(browsed.continuation, b"go on");
    let told: Vec<String> = browsed
        .references
        .iter()
        .map(|found| format!("{} {} {}", found.node, found.browse_name, found.class))
        .collect();
    let expected = [
        "i=7 seven 1",
        "ns=2;i=700 big 2",
        "ns=2;i=70000 bigger 2",
        "ns=2;s=Speed speed 2",
        "ns=2;g=12345678-9abc-def0-1234-56789abcdef0 guid 2",
        "ns=2;b=opaque bytes 4",
    ];
    assert_eq!(told, expected);
}

#[test]
fn requests_are_as_another_implementation_writes_them() {
    let speed = NodeId {
        namespace: 2,
        name: super::Identifier::Text("Speed".to_owned()),
    };
    let check = |write: &dyn Fn(&mut Writer), expected: &str| {
        let mut to = Writer::default();
        write(&mut to);
        assert_eq!(to.into_bytes(), bytes(expected));
    };
    check(&|to| message::read(to, &[(&speed, message::VALUE)]), RREAD);
    let path = [(35, "plant".to_owned()), (47, "line".to_owned())];
    check(&|to| message::translate(to, 2, &path), RTRANS);
    let new = NodeId {
        namespace: 2,
        name: super::Identifier::Text("new".to_owned()),
    };
    let place = Place {
        parent: &NodeId::number(2, 1),
        reference: 47,
        browse_name: "New",
    };
    // Its short form of a number says the same.
    let expected = RADD.replace("01006501", "02000065010000");
    check(
        &|to| message::add_variable(to, &place, &new, &whole(-5)),
        &expected,
    );
    // The other one says that the value is good, which goes without saying.
    let expected = RWRITE.replace("0306fbffffff00000000", "0106fbffffff");
    check(&|to| message::write(to, &speed, &whole(-5)), &expected);
}

#[test]
fn damaged_answers_are_refused_wherever_they_end() {
    for (hex, service) in [(READ, message::READ), (BROWSE, message::BROWSE)] {
        let whole = bytes(hex);
        // The last four bytes are words about failures, which nobody reads.
        for len in 0..whole.len() - 4 {
            let read = message::answer(service, &whole[..len]).and_then(|from| {
                if service.request == message::READ.request {
                    message::values(from, 16)?;
                } else {
                    message::browsed(from)?;
                }
                Ok(())
            });
            assert!(matches!(read, Err(Fault::Damaged(_))), "{len}: {read:?}");
        }
    }
    let other = bytes(READ);
    let read = message::answer(message::BROWSE, &other).map(Reader::rest);
    assert!(read.unwrap_err().to_string().contains("another request"));
    let mut less = bytes(READ);
    less[28] = 15;
    let from = message::answer(message::READ, &less).unwrap();
    let fault = message::values(from, 16).unwrap_err();
    assert!(fault.to_string().contains("less than was asked for"));
}

#[test]
fn lengths_allocate_nothing_and_depth_ends() {
    for (value, why) in [
        // A text, bytes and a list of 2 GB.
        (&[12, 0xff, 0xff, 0xff, 0x7f][..], "ends too early"),
        (&[15, 0xff, 0xff, 0xff, 0x7f], "ends too early"),
        (&[0x86, 0xff, 0xff, 0xff, 0x7f], "longer than the message"),
        (
            &[0xc1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f],
            "longer than the message",
        ),
        (&[63, 0], "unknown type"),
        (&[17, 9], "unknown form"),
        (&[22, 0, 0, 9], "unknown encoding"),
    ] {
        let fault = Reader::new(value).variant().unwrap_err();
        assert!(fault.to_string().contains(why), "{value:?}: {fault}");
    }
    // Values in values in values.
    let fault = Reader::new(&[24; 100_000]).variant().unwrap_err();
    assert!(fault.to_string().contains("too deep"), "{fault}");
    let fault = Reader::new(&[0x40; 100_000])
        .skip_diagnostic_info()
        .unwrap_err();
    assert!(fault.to_string().contains("too deep"), "{fault}");
    // A list of flags as long as a message.
    let mut many = vec![0x81];
    many.extend_from_slice(&(OPC_MESSAGE_BYTES_MAX as u32).to_le_bytes());
    many.resize(OPC_MESSAGE_BYTES_MAX + 5, 1);
    let fault = Reader::new(&many).variant().unwrap_err();
    assert!(fault.to_string().contains("too many items"), "{fault}");
}

#[test]
fn chunks_are_bounded_and_put_together() {
    let too_long = (OPC_CHUNK_BYTES_MAX as u32 + 1).to_le_bytes();
    for (first, why) in [
        (*b"HTTP/1.1", "no OPC UA"),
        (*b"MSGF\x07\0\0\0", "length that cannot be"),
        (
            [
                b'M',
                b'S',
                b'G',
                b'F',
                too_long[0],
                too_long[1],
                too_long[2],
                0,
            ],
            "length that cannot be",
        ),
    ] {
        let fault = frame::head(first).unwrap_err();
        assert!(fault.to_string().contains(why), "{fault}");
    }
    let way = Way {
        channel: 1,
        token: 2,
    };
    let mut greeting = Vec::new();
    for number in [0, 2_048, 2_048, 10_000, 5_u32] {
        greeting.extend_from_slice(&number.to_le_bytes());
    }
    let bounds = frame::acknowledged(&greeting).unwrap();
    let message: Vec<u8> = (0..5_000).map(|n| n as u8).collect();
    let mut sequence = 7;
    let sent = frame::message(None, *b"MSG", way, &mut sequence, 9, &message, &bounds).unwrap();
    assert_eq!(sequence, 10, "it takes three chunks");
    let (mut rest, mut assembly, mut whole) = (&sent[..], Assembly::default(), None);
    while let Some((first, more)) = rest.split_first_chunk::<HEAD_BYTES>() {
        assert_eq!(whole, None, "nothing comes behind the last chunk");
        let head = frame::head(*first).unwrap();
        let (body, more) = more.split_at(head.len);
        whole = assembly.add(None, &head, body, way, 9).unwrap();
        assert!(Assembly::default().add(None, &head, body, way, 8).is_err());
        rest = more;
    }
    assert_eq!(whole, Some(message));
    for len in [10_001, 2_048 * 5] {
        let refused = frame::message(None, *b"MSG", way, &mut sequence, 9, &vec![0; len], &bounds);
        assert!(matches!(refused, Err(Fault::TooLarge)), "{len}");
    }
    let fault = frame::refusal(&[0, 0, 0x83, 0x80, 4, 0, 0, 0, b'n', b'o', b'n', b'e']);
    let told = "the server ends the connection: BadTcpEndpointUrlInvalid none";
    assert_eq!(fault.to_string(), told);
    assert!(
        frame::acknowledged(&[0; 20]).is_err(),
        "a server takes something"
    );
}

#[test]
fn content_is_read_as_its_type() {
    for (kind, content, told) in [
        (Kind::INT32, " -7\n", "-7"),
        (Kind::UINT32, "4294967295", "4294967295"),
        (Kind::INT64, "-9223372036854775808", "-9223372036854775808"),
        (Kind::UINT64, "18446744073709551615", "18446744073709551615"),
        (Kind::FLOAT, "1.1", "1.1"),
        (Kind::DOUBLE, "-2.5e-3", "-0.0025"),
        (Kind::BOOLEAN, "TRUE", "True"),
        (Kind::STRING, " as it is ", " as it is "),
    ] {
        let value = parse(kind, content).unwrap();
        let mut to = Writer::default();
        to.variant(&value);
        let written = to.into_bytes();
        let read = Reader::new(&written).variant().unwrap().unwrap();
        assert_eq!(read, value);
        assert_eq!(text(&read).unwrap(), told.as_bytes());
    }
    for (kind, content) in [
        (Kind::INT32, "2147483648"),
        (Kind::UINT32, "-1"),
        (Kind::INT64, "12abc"),
        (Kind::BOOLEAN, "1"),
        (Kind::DOUBLE, ""),
    ] {
        assert_eq!(parse(kind, content), None, "{content}");
    }
}

#[test]
fn addresses_are_read_as_flows_write_them() {
    for good in [
        "opc.tcp://h",
        "opc.tcp://h:1/a:b",
        "opc.tcp://[::1]:4840/",
        "opc.tcp://[::1]",
    ] {
        assert!(
            Server::new(good, None, None, Security::default()).is_ok(),
            "{good}"
        );
    }
    for bad in [
        "http://h:4840",
        "opc.tcp://",
        "opc.tcp://h:x",
        "opc.tcp://:4840",
        "h:4840",
    ] {
        assert!(
            Server::new(bad, None, None, Security::default()).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn statuses_have_their_names() {
    assert_eq!(Status(0x8034_0000).to_string(), "BadNodeIdUnknown");
    assert_eq!(Status(0x8034_0401).to_string(), "BadNodeIdUnknown");
    assert_eq!(Status(0x8fff_0000).to_string(), "status 0x8fff0000");
    assert!(!Status(0x4000_0000).is_bad() && Status(0x8000_0000).is_bad());
    assert!(Status(0x8025_0000).is_of_session() && !Status(0x803b_0000).is_of_session());
}

const READ: &str = "\
    01007a02a0854020a992dc0103000000000000000000000000000000100000000f06fbffffff00000000a0854020\
    a992dc01a0854020a992dc010f0acdcc8c3f00000000a0854020a992dc01a0854020a992dc010f0b95d626e80b2e\
    113e00000000a0854020a992dc01a0854020a992dc010f0c070000004772c3bcc39f6500000000a0854020a992dc\
    01a0854020a992dc010f010100000000a0854020a992dc01a0854020a992dc010f0da0854020a992dc0100000000\
    a0854020a992dc01a0854020a992dc010f0f0200000000ff00000000a0854020a992dc01a0854020a992dc010f0e\
    78563412bc9af0de123456789abcdef000000000a0854020a992dc01a0854020a992dc010f150302000000646506\
    00000056656e74696c00000000a0854020a992dc01a0854020a992dc010f850300000001000200030000000000a0\
    854020a992dc01a0854020a992dc010f8c02000000010000006102000000622200000000a0854020a992dc01a085\
    4020a992dc010fc80400000001000000000000000200000000000000030000000000000004000000000000000200\
    0000020000000200000000000000a0854020a992dc01a0854020a992dc010f11030200010000007800000000a085\
    4020a992dc01a0854020a992dc010f09ffffffffffffffff00000000a0854020a992dc01a0854020a992dc010300\
    00003a800b140300010000007100000000a0854020a992dc0100000000";

const BROWSE: &str = "\
    01001202a0854020a992dc0100000000000000000000000000000000010000000000000005000000676f206f6e06\
    0000000023010007020005000000736576656e0205000000736576656e01000000003f0023010102bc0202000300\
    0000626967020300000062696702000000003f002301020200701101000200060000006269676765720206000000\
    62696767657202000000003f00230103020005000000537065656402000500000073706565640205000000737065\
    656402000000003f00230104020078563412bc9af0de123456789abcdef002000400000067756964020400000067\
    75696402000000003f002301050200060000006f7061717565020005000000627974657302050000006279746573\
    04000000003f00000000";

const RREAD: &str = "\
    000000000000000000000000010000000302000500000053706565640d000000ffffffff0000ffffffff";

const RWRITE: &str = "\
    010000000302000500000053706565640d000000ffffffff0306fbffffff00000000";

const RTRANS: &str = "\
    010000000200005500000002000000020000230000000000020005000000706c616e740200002f00000000000200\
    040000006c696e65";

const RADD: &str = "\
    01000000020200010000000200002f000000030200030000006e65770200030000004e6577020000000100650101\
    340000005100290002030000004e657700000000000000000006fbffffff02000006000000ffffffff0000000003\
    030000000000000000000200003f000000";
