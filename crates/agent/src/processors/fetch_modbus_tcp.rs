//! FetchModbusTcp: values of an industrial device, as a record.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::refused::Refused;
use super::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::json::Fields;
use crate::modbus::{self, FRAME_BYTES_MAX, HEAD_BYTES, Tag};
use crate::net::socket::{Socket, read_exact_until};
use crate::net::{STOP_LOOK, tls};
use crate::record_sets::{WRITER_ROLE, Writers};
use crate::services::SslContext;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "FetchModbusTcp",
    description: "Reads coils, inputs and registers of a device over Modbus TCP and writes them as \
                  one record. Each further property is a field and its address, such as \
                  holding-register:12:REAL, 4x12:REAL[3] or 400012.",
    properties: &[
        PropertyKind::new("Hostname", "The device's host.")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new("Port", "The device's port.")
            .default("502")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new("Unit Identifier", "The device behind a gateway, 0 to 255.")
            .default("1")
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Idle Connection Expiration",
            "A connection that nothing went over for so long is closed; 0 keeps it.",
        )
        .default("15 seconds")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Connection Per FlowFile",
            "Whether each has a connection of its own.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new("Timeout", "Longest wait for a connection or an answer.")
            .default("15 seconds")
            .shape(Shape::Duration),
        PropertyKind::new(
            "SSL Context Service",
            "The agent's certificate and authorities.",
        )
        .shape(Shape::Service("SSLContextService")),
        PropertyKind::new("Record Set Writer", "The service that writes the record.")
            .required()
            .shape(Shape::Service(WRITER_ROLE)),
    ],
    dynamic: Dynamic::Named {
        prefix: "",
        meaning: "a field of the record and its address",
    },
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles with the record as content.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles for which the device gave no or no right answer, unchanged.",
        },
    ],
    writes: &[
        AttributeKind::new("mime.type", "What the writer writes."),
        AttributeKind::new("modbus.error.message", "What failed, by 'failure'."),
    ],
    input: Input::Allowed,
    make: |settings| FetchModbusTcp::new(settings).map(|made| Box::new(made) as _),
};

struct FetchModbusTcp {
    host: Expression,
    port: Expression,
    unit: Expression,
    fields: Vec<(String, Expression)>,
    idle: Duration,
    wait: Duration,
    is_single_use: bool,
    tls: Option<Arc<ClientConfig>>,
    writers: Arc<Writers>,
    link: Option<Link>,
    transaction: u16,
}

/// A connection to a device.
struct Link {
    address: String,
    socket: Socket,
    used: Instant,
}

/// What is asked of which device.
struct Asked {
    address: String,
    unit: u8,
    tags: Vec<(String, Tag)>,
}

impl FetchModbusTcp {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let context = settings.service::<SslContext>("SSL Context Service")?;
        let needed = |name: &str| {
            let expression = settings.expression(name)?;
            expression.ok_or_else(|| format!("{name} is empty"))
        };
        let fields = settings.dynamic()?;
        if fields.is_empty() {
            return Err(
                "there is nothing to read: add a property with a field's name and its \
                        address"
                    .to_owned(),
            );
        }
        for (name, address) in &fields {
            if let Some(address) = address.as_literal() {
                Tag::parse(address).map_err(|why| format!("{name}: {why}"))?;
            }
        }
        Ok(FetchModbusTcp {
            host: needed("Hostname")?,
            port: needed("Port")?,
            unit: needed("Unit Identifier")?,
            fields,
            idle: settings.duration("Idle Connection Expiration")?,
            wait: settings.duration("Timeout")?.max(Duration::from_millis(1)),
            is_single_use: settings.flag("Connection Per FlowFile")?,
            tls: context
                .map(|context| tls::client(Some(&context), true))
                .transpose()?,
            writers: settings
                .service("Record Set Writer")?
                .ok_or("Record Set Writer is required and empty")?,
            link: None,
            transaction: 0,
        })
    }

    fn asked(&self, session: &ProcessSession<'_>, flow_file: &FlowFile) -> Result<Asked, Refused> {
        let scope = session.scope(flow_file);
        let port = self.port.evaluate(scope)?;
        let port: u16 = port
            .trim()
            .parse()
            .map_err(|_| Refused::flow_file(format!("Port: '{port}' is no port")))?;
        let unit = self.unit.evaluate(scope)?;
        let unit = unit.trim().parse().map_err(|_| {
            Refused::flow_file(format!(
                "Unit Identifier: '{unit}' is not between 0 and 255"
            ))
        })?;
        let mut tags = Vec::with_capacity(self.fields.len());
        for (name, address) in &self.fields {
            let tag = Tag::parse(&address.evaluate(scope)?);
            let tag = tag.map_err(|why| Refused::FlowFile(format!("{name}: {why}")))?;
            tags.push((name.clone(), tag));
        }
        Ok(Asked {
            address: format!("{}:{port}", self.host.evaluate(scope)?),
            unit,
            tags,
        })
    }

    /// Reads all values, on one connection; it is kept when all went well.
    fn read(&mut self, context: &Context, asked: &Asked) -> Result<Fields, String> {
        let now = Instant::now();
        let is_fresh = |link: &Link| self.idle.is_zero() || now - link.used < self.idle;
        let kept = self.link.take().filter(|link| {
            link.address == asked.address && is_fresh(link) && !link.socket.is_closed()
        });
        let mut link = match kept {
            Some(link) => link,
            None => {
                let tls = self.tls.as_ref();
                let address = &asked.address;
                let socket = Socket::connect(address, tls, self.wait, STOP_LOOK, self.wait);
                Link {
                    address: address.clone(),
                    socket: socket.map_err(|error| error.to_string())?,
                    used: now,
                }
            }
        };
        let mut record = Fields::default();
        for (name, tag) in &asked.tags {
            self.transaction = self.transaction.wrapping_add(1);
            let data = exchange(
                context,
                &mut link.socket,
                self.transaction,
                asked.unit,
                tag,
                self.wait,
            );
            let data = data.map_err(|why| format!("{name}: {why}"))?;
            record.set(name, tag.value(&data));
        }
        if !self.is_single_use {
            link.used = Instant::now();
            self.link = Some(link);
        }
        Ok(record)
    }

    fn fetch(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        flow_file: &mut FlowFile,
    ) -> Result<(), Refused> {
        let asked = self.asked(session, flow_file)?;
        let record = self.read(context, &asked);
        let record =
            record.map_err(|why| Refused::FlowFile(format!("{}: {why}", asked.address)))?;
        let mut content = session.writer();
        {
            let mut writer = self.writers.create(&mut content);
            writer.write(&record)?;
            writer.finish()?;
        }
        let content = content.finish()?;
        session.set_content(flow_file, content)?;
        Ok(())
    }
}

/// One request and its answer's data.
fn exchange(
    context: &Context,
    socket: &mut Socket,
    transaction: u16,
    unit: u8,
    tag: &Tag,
    wait: Duration,
) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let frame = modbus::request(transaction, unit, tag.area, tag.start, tag.units());
    socket.write_all(&frame).map_err(failed)?;
    socket.flush().map_err(failed)?;
    let deadline = Instant::now() + wait;
    loop {
        let mut head = [0; HEAD_BYTES];
        read_exact_until(socket, &mut head, deadline, || context.is_stopping()).map_err(failed)?;
        let (answered, len) = modbus::head(head).map_err(|fault| fault.to_string())?;
        let mut body = [0; FRAME_BYTES_MAX];
        let body = &mut body[..len];
        read_exact_until(socket, body, deadline, || context.is_stopping()).map_err(failed)?;
        if answered == transaction {
            let data = modbus::answer(tag.area, tag.units(), body);
            return Ok(data.map_err(|fault| fault.to_string())?.to_vec());
        }
        // An answer that was given up for.
    }
}

impl Processor for FetchModbusTcp {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let mut flow_file = match session.take_one() {
            Some(flow_file) => flow_file,
            // What was there has expired.
            None if context.has_incoming() => return Ok(Next::Scheduled),
            None => session.create(Arc::default()),
        };
        let fetched = self.fetch(context, session, &mut flow_file);
        let mut attributes = Arc::clone(flow_file.attributes());
        let changed = Arc::make_mut(&mut attributes);
        let relationship = match fetched {
            Ok(()) => {
                changed.set("mime.type", self.writers.mime_type());
                SUCCESS
            }
            Err(Refused::FlowFile(reason)) => {
                context.post(Level::Error, &reason);
                changed.set("modbus.error.message", reason);
                FAILURE
            }
            Err(Refused::Session(error)) => return Err(error),
        };
        session.set_attributes(&mut flow_file, attributes);
        match relationship {
            SUCCESS => session.transfer(flow_file, SUCCESS),
            _ => session.transfer_penalized(flow_file, FAILURE),
        }
        Ok(Next::Scheduled)
    }

    fn stop(&mut self) {
        self.link = None;
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use serde_json::json;

    use crate::testing::Rig;

    /// A device with 100 registers that hold ten times their number, and coils of which each third
    /// is on; counts its connections.
    fn device() -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            for link in listener.incoming() {
                let mut link = link.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let mut asked = [0; 12];
                while link.read_exact(&mut asked).is_ok() {
                    let start = u16::from_be_bytes([asked[8], asked[9]]);
                    let count = u16::from_be_bytes([asked[10], asked[11]]);
                    let mut pdu = vec![asked[7]];
                    match asked[7] {
                        3 if start + count <= 100 && asked[6] == 1 => {
                            pdu.push(2 * count as u8);
                            pdu.extend((start..start + count).flat_map(|n| (10 * n).to_be_bytes()));
                        }
                        1 => {
                            let mut bits = vec![0_u8; usize::from(count).div_ceil(8)];
                            for n in (0..count).filter(|n| (start + n) % 3 == 0) {
                                bits[usize::from(n / 8)] |= 1 << (n % 8);
                            }
                            pdu.push(bits.len() as u8);
                            pdu.extend(bits);
                        }
                        _ => pdu = vec![asked[7] | 0x80, 2],
                    }
                    // An answer to something else comes first: it was given up for.
                    let mut frames = vec![0xff, 0xff, 0, 0, 0, 3, 1, 3, 0];
                    frames.extend_from_slice(&asked[..4]);
                    frames.extend_from_slice(&(pdu.len() as u16 + 1).to_be_bytes());
                    frames.push(asked[6]);
                    frames.extend(pdu);
                    link.write_all(&frames).unwrap();
                }
            }
        });
        (port, count)
    }

    fn rig(port: u16, properties: &[(&str, &str)]) -> Result<Rig, String> {
        let writer = json!({ "Controller Services": [{
            "id": "w", "name": "w", "class": "JsonRecordSetWriter",
            "Properties": { "Output Grouping": "One Line Per Object" },
        }] });
        let port = port.to_string();
        let own = [
            ("Hostname", "127.0.0.1"),
            ("Port", &port),
            ("Record Set Writer", "w"),
        ];
        Rig::try_new("FetchModbusTcp", &[&own[..], properties].concat(), writer)
    }

    #[test]
    fn values_of_a_device_become_a_record() {
        let (port, connections) = device();
        let properties = [
            ("speed", "holding-register:3"),
            ("all", "4x1:UINT[3]"),
            ("lamps", "coil:${first}[4]"),
        ];
        let mut rig = rig(port, &properties).unwrap();
        for _ in 0..3 {
            rig.put(&[("first", "1")], "asks");
        }
        rig.run();
        for out in rig.out("success") {
            let expected = "{\"all\":[0,10,20],\"lamps\":[true,false,false,true],\"speed\":20}\n";
            assert_eq!(out.text(), expected);
            assert_eq!(out.attribute("mime.type"), "application/json");
        }
        assert_eq!(
            connections.load(Ordering::SeqCst),
            1,
            "the connection is kept"
        );
    }

    #[test]
    fn what_a_device_refuses_is_told() {
        let (port, _) = device();
        let mut it = rig(port, &[("a", "4x100:DINT")]).unwrap();
        it.put(&[], "asks");
        it.trigger().unwrap();
        it.advance(Duration::from_secs(60));
        let out = it.one("failure");
        assert_eq!(out.text(), "asks");
        let why = out.attribute("modbus.error.message");
        assert!(why.contains("a: the device refuses with code 2"), "{why}");
        let mut it = rig(port, &[("a", "${where}")]).unwrap();
        it.put(&[("where", "nowhere")], "");
        it.trigger().unwrap();
        assert_eq!(it.counts(), [("failure", 1)]);
        for wrong in [&[("a", "nowhere")][..], &[]] {
            assert!(rig(port, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_device_that_is_away_fails_the_flow_file() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut it = rig(port, &[("a", "4x1")]).unwrap();
        it.put(&[], "");
        it.trigger().unwrap();
        assert_eq!(it.counts(), [("failure", 1)]);
    }
}
