//! What a script has in its hand: FlowFiles, streams of content, and the processor's state.
//!
//! FlowFiles that a script sends on or removes go when it has ended well, so that it may look at them
//! until then; what it keeps of them beyond its trigger is an error to touch. The names of methods
//! are MiNiFi C++'s.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use mlua::{AnyUserData, Error, Lua, LuaString, UserData, UserDataMethods, UserDataRef, Value};
use parking_lot::Mutex;

use crate::content::{Content, ContentReader};
use crate::flowfile::{Attributes, FILENAME, FlowFile, OWN};
use crate::limits::{
    CONTENT_PIECE_BYTES, CONTENT_READ_BYTES_MAX, SCRIPT_ATTRIBUTE_BYTES_MAX,
    SCRIPT_STREAMS_DEPTH_MAX, SESSION_FLOW_FILES_MAX,
};
use crate::processors::ProcessorError;
use crate::session::ProcessSession;

/// What one trigger of a script works with.
pub(super) struct Hand<'t, 'n> {
    session: RefCell<&'t mut ProcessSession<'n>>,
    /// All that it took and made.
    held: RefCell<Vec<Handle>>,
    /// Those of them that it sent on or removed, in that order.
    disposed: RefCell<Vec<Handle>>,
    /// Bytes of attributes that it may still set.
    room: Arc<AtomicUsize>,
    /// What the session failed of, also where the script caught it.
    fault: RefCell<Option<ProcessorError>>,
    /// Streams within streams.
    streams: Cell<usize>,
    /// The state that it set.
    state: RefCell<Option<Bytes>>,
}

/// `session`.
pub(super) struct Sessions<'h, 't, 'n>(pub(super) &'h Hand<'t, 'n>);

/// `context`.
pub(super) struct Surroundings<'h> {
    pub(super) properties: &'h BTreeMap<String, String>,
    pub(super) states: AnyUserData,
}

/// What `context:getStateManager()` gives.
pub(super) struct States<'h, 't, 'n>(pub(super) &'h Hand<'t, 'n>);

/// `REL_SUCCESS` and `REL_FAILURE`, by the index of the relationship.
pub(super) struct Relationship(pub(super) usize);

/// A FlowFile as the script has it.
#[derive(Clone)]
struct Handle(Arc<Mutex<Held>>);

struct Held {
    /// None when the trigger is over.
    flow_file: Option<FlowFile>,
    uuid: String,
    attributes: Arc<Attributes>,
    is_changed: bool,
    end: Option<End>,
    room: Arc<AtomicUsize>,
}

/// Where a FlowFile goes.
#[derive(Clone, Copy)]
enum End {
    To(usize),
    Nowhere,
}

/// Content that is read.
struct InputStream<'h, 't, 'n> {
    hand: &'h Hand<'t, 'n>,
    reader: RefCell<ContentReader>,
}

/// Content that is written, bounded in memory by one piece.
struct OutputStream<'h, 't, 'n> {
    hand: &'h Hand<'t, 'n>,
    buffer: RefCell<Vec<u8>>,
    parts: RefCell<Vec<Content>>,
}

impl<'t, 'n> Hand<'t, 'n> {
    pub(super) fn new(session: &'t mut ProcessSession<'n>) -> Self {
        Hand {
            session: RefCell::new(session),
            held: RefCell::default(),
            disposed: RefCell::default(),
            room: Arc::new(AtomicUsize::new(SCRIPT_ATTRIBUTE_BYTES_MAX)),
            fault: RefCell::default(),
            streams: Cell::new(0),
            state: RefCell::default(),
        }
    }

    /// What the session failed of.
    pub(super) fn fault(&self) -> Option<ProcessorError> {
        self.fault.take()
    }

    /// Whether the script took and made nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.held.borrow().is_empty()
    }

    /// Sends on and removes as the script said; what it forgot stays held, which the session's
    /// commit refuses.
    pub(super) fn finish(self) {
        let mut session = self.session.borrow_mut();
        for handle in self.disposed.borrow().iter() {
            let held = &mut *handle.0.lock();
            // It may have been sent on twice: the last word counts.
            let (Some(mut flow_file), Some(end)) = (held.flow_file.take(), held.end) else {
                continue;
            };
            match end {
                End::To(relationship) => {
                    if held.is_changed {
                        session.set_attributes(&mut flow_file, Arc::clone(&held.attributes));
                    }
                    session.transfer(flow_file, relationship);
                }
                End::Nowhere => session.remove_all(vec![flow_file]),
            }
        }
    }

    fn get(&self) -> mlua::Result<Option<Handle>> {
        self.check_count()?;
        let mut session = self.session.borrow_mut();
        let taken = session.take_one();
        Ok(taken.map(|flow_file| self.hold(&session, flow_file)))
    }

    fn create(&self, parent: Option<&Handle>) -> mlua::Result<Handle> {
        self.check_count()?;
        let mut session = self.session.borrow_mut();
        let Some(parent) = parent else {
            let flow_file = session.create(Arc::default());
            let handle = self.hold(&session, flow_file);
            let uuid = handle.0.lock().uuid.clone();
            handle.0.lock().set("filename", &uuid)?;
            return Ok(handle);
        };
        let parent = parent.0.lock();
        let attributes = Arc::clone(&parent.attributes);
        let child = session.create_child(&[parent.flow_file()?], attributes);
        Ok(self.hold(&session, child))
    }

    fn hold(&self, session: &ProcessSession<'n>, flow_file: FlowFile) -> Handle {
        let handle = Handle(Arc::new(Mutex::new(Held {
            uuid: session.uuid(&flow_file),
            attributes: Arc::clone(flow_file.attributes()),
            flow_file: Some(flow_file),
            is_changed: false,
            end: None,
            room: Arc::clone(&self.room),
        })));
        self.held.borrow_mut().push(handle.clone());
        handle
    }

    fn check_count(&self) -> mlua::Result<()> {
        match self.held.borrow().len() < SESSION_FLOW_FILES_MAX {
            true => Ok(()),
            false => Err(Error::runtime(format!(
                "more than {SESSION_FLOW_FILES_MAX} FlowFiles in one trigger"
            ))),
        }
    }

    fn dispose(&self, handle: &Handle, end: End) -> mlua::Result<()> {
        let mut held = handle.0.lock();
        held.flow_file()?;
        if held.end.replace(end).is_none() {
            self.disposed.borrow_mut().push(handle.clone());
        }
        Ok(())
    }

    fn read(&self, lua: &Lua, handle: &Handle, callback: &Value) -> mlua::Result<()> {
        let reader = self.session.borrow().reader(handle.0.lock().flow_file()?);
        let stream = InputStream {
            hand: self,
            reader: RefCell::new(reader),
        };
        lua.scope(|scope| self.call(callback, scope.create_userdata(&stream)?))
    }

    fn write(&self, lua: &Lua, handle: &Handle, callback: &Value) -> mlua::Result<()> {
        handle.0.lock().flow_file()?;
        let stream = OutputStream {
            hand: self,
            buffer: RefCell::default(),
            parts: RefCell::default(),
        };
        lua.scope(|scope| self.call(callback, scope.create_userdata(&stream)?))?;
        stream.cut()?;
        let content = Content::join(stream.parts.take());
        let mut held = handle.0.lock();
        let flow_file = held.flow_file.as_mut().ok_or_else(released)?;
        let set = self.session.borrow_mut().set_content(flow_file, content);
        set.map_err(|error| self.failed(error))
    }

    /// Calls what handles a stream: a table's `process`, or a function.
    fn call(&self, callback: &Value, stream: AnyUserData) -> mlua::Result<()> {
        if self.streams.get() >= SCRIPT_STREAMS_DEPTH_MAX {
            return Err(Error::runtime(format!(
                "more than {SCRIPT_STREAMS_DEPTH_MAX} streams within each other"
            )));
        }
        self.streams.set(self.streams.get() + 1);
        let answer = match callback {
            Value::Table(table) => match table.get::<Value>("process") {
                Ok(Value::Function(process)) => process.call::<Value>((table, stream)),
                Ok(_) => Err(Error::runtime("the callback has no function 'process'")),
                Err(error) => Err(error),
            },
            Value::Function(process) => process.call::<Value>(stream),
            _ => Err(Error::runtime(
                "the callback is no table with a function 'process'",
            )),
        };
        self.streams.set(self.streams.get() - 1);
        match answer? {
            Value::Integer(count) if count < 0 => {
                Err(Error::runtime(format!("the callback failed with {count}")))
            }
            _ => Ok(()),
        }
    }

    fn state(&self) -> mlua::Result<Option<BTreeMap<String, String>>> {
        let set = self.state.borrow().clone();
        let bytes = set.unwrap_or_else(|| self.session.borrow().state());
        if bytes.is_empty() {
            return Ok(None);
        }
        let state = serde_json::from_slice(&bytes);
        state.map(Some).map_err(Error::external)
    }

    fn set_state(&self, state: &BTreeMap<String, String>) -> mlua::Result<()> {
        let bytes = Bytes::from(serde_json::to_vec(state).map_err(Error::external)?);
        let set = self.session.borrow_mut().set_state(bytes.clone());
        set.map_err(|error| self.failed(error))?;
        *self.state.borrow_mut() = Some(bytes);
        Ok(())
    }

    /// Keeps what the session failed of, which no script can make undone, and gives it to the script.
    fn failed(&self, error: ProcessorError) -> Error {
        let text = base::report(&error);
        *self.fault.borrow_mut() = Some(error);
        Error::runtime(text)
    }
}

impl Drop for Hand<'_, '_> {
    /// What a script keeps of FlowFiles beyond its trigger is none.
    fn drop(&mut self) {
        for handle in self.held.get_mut() {
            handle.0.lock().flow_file = None;
        }
    }
}

impl Held {
    fn flow_file(&self) -> mlua::Result<&FlowFile> {
        self.flow_file.as_ref().ok_or_else(released)
    }

    fn value(&self, name: &str) -> mlua::Result<Cow<'_, str>> {
        Ok(match self.known(name)? {
            Some(value) => value,
            None if matches!(name, "uuid" | FILENAME) => Cow::Borrowed(&self.uuid),
            None => Cow::default(),
        })
    }

    fn has(&self, name: &str) -> mlua::Result<bool> {
        Ok(self.known(name)?.is_some())
    }

    fn known(&self, name: &str) -> mlua::Result<Option<Cow<'_, str>>> {
        let flow_file = self.flow_file()?;
        let known = self.attributes.get(name).map(Cow::Borrowed);
        let is_own = self.attributes.has_origin() && OWN.contains(&name);
        Ok(known.or_else(|| flow_file.attribute(name).filter(|_| is_own)))
    }

    fn set(&mut self, name: &str, value: &str) -> mlua::Result<()> {
        self.flow_file()?;
        let copied = match self.is_changed {
            true => 0,
            false => self.attributes.bytes(),
        };
        let needed = copied + name.len() + value.len();
        let replaced = self.attributes.get(name);
        let freed = replaced.map_or(0, |replaced| name.len() + replaced.len());
        let room = self.room.load(Ordering::Relaxed) + freed;
        let left = room.checked_sub(needed).ok_or_else(|| {
            Error::runtime(format!(
                "more than {SCRIPT_ATTRIBUTE_BYTES_MAX} bytes of attributes in one trigger"
            ))
        })?;
        self.room.store(left, Ordering::Relaxed);
        Arc::make_mut(&mut self.attributes).set(name, value);
        self.is_changed = true;
        Ok(())
    }

    fn remove(&mut self, name: &str) -> mlua::Result<bool> {
        let is_there = self.has(name)?;
        if is_there {
            Arc::make_mut(&mut self.attributes).remove(|known| known == name);
            self.is_changed = true;
        }
        Ok(is_there)
    }
}

impl UserData for Sessions<'_, '_, '_> {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |_, this, ()| this.0.get());
        methods.add_method("create", |_, this, parent: Option<UserDataRef<Handle>>| {
            this.0.create(parent.as_deref())
        });
        methods.add_method(
            "read",
            |lua, this, (flow_file, callback): (UserDataRef<Handle>, Value)| {
                this.0.read(lua, &flow_file, &callback)
            },
        );
        methods.add_method(
            "write",
            |lua, this, (flow_file, callback): (UserDataRef<Handle>, Value)| {
                this.0.write(lua, &flow_file, &callback)
            },
        );
        methods.add_method(
            "transfer",
            |_, this, (flow_file, to): (UserDataRef<Handle>, UserDataRef<Relationship>)| {
                this.0.dispose(&flow_file, End::To(to.0))
            },
        );
        methods.add_method("remove", |_, this, flow_file: UserDataRef<Handle>| {
            this.0.dispose(&flow_file, End::Nowhere)
        });
    }
}

impl UserData for Handle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getAttribute", |lua, this, name: String| {
            lua.create_string(this.0.lock().value(&name)?.as_bytes())
        });
        methods.add_method(
            "setAttribute",
            |_, this, (name, value): (String, String)| this.0.lock().set(&name, &value),
        );
        methods.add_method(
            "addAttribute",
            |_, this, (name, value): (String, String)| {
                let mut held = this.0.lock();
                let is_new = !held.has(&name)?;
                if is_new {
                    held.set(&name, &value)?;
                }
                Ok(is_new)
            },
        );
        methods.add_method(
            "updateAttribute",
            |_, this, (name, value): (String, String)| {
                let mut held = this.0.lock();
                let is_there = held.has(&name)?;
                if is_there {
                    held.set(&name, &value)?;
                }
                Ok(is_there)
            },
        );
        methods.add_method("removeAttribute", |_, this, name: String| {
            this.0.lock().remove(&name)
        });
    }
}

impl UserData for &InputStream<'_, '_, '_> {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("read", |lua, this, count: Option<u64>| {
            lua.create_string(this.read(count.unwrap_or(0))?)
        });
    }
}

impl InputStream<'_, '_, '_> {
    /// The next `count` bytes, or all that are left for 0.
    fn read(&self, count: u64) -> mlua::Result<Vec<u8>> {
        let mut reader = self.reader.borrow_mut();
        let failed = |error: std::io::Error| {
            let message = format!("cannot read content: {error}");
            self.hand.failed(ProcessorError::Failed(message))
        };
        let left = reader.size() - reader.stream_position().map_err(failed)?;
        let wanted = match count {
            0 => left,
            count => count.min(left),
        };
        if wanted > CONTENT_READ_BYTES_MAX {
            return Err(Error::runtime(format!(
                "{wanted} bytes are more than is read in one piece ({CONTENT_READ_BYTES_MAX}): read so \
                 many at a time"
            )));
        }
        let mut bytes = Vec::with_capacity(wanted as usize);
        let read = (&mut *reader).take(wanted).read_to_end(&mut bytes);
        read.map_err(failed)?;
        Ok(bytes)
    }
}

impl UserData for &OutputStream<'_, '_, '_> {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("write", |_, this, bytes: LuaString| {
            this.write(&bytes.as_bytes())
        });
    }
}

impl OutputStream<'_, '_, '_> {
    fn write(&self, bytes: &[u8]) -> mlua::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = CONTENT_PIECE_BYTES - self.buffer.borrow().len();
            let (now, later) = rest.split_at(rest.len().min(room));
            self.buffer.borrow_mut().extend_from_slice(now);
            if now.len() == room {
                self.cut()?;
            }
            rest = later;
        }
        Ok(bytes.len())
    }

    /// Hands what was written so far to the session.
    fn cut(&self) -> mlua::Result<()> {
        let bytes = Bytes::from(self.buffer.take());
        if bytes.is_empty() {
            return Ok(());
        }
        let content = self.hand.session.borrow_mut().content(bytes);
        let content = content.map_err(|error| self.hand.failed(error))?;
        self.parts.borrow_mut().push(content);
        Ok(())
    }
}

impl UserData for Surroundings<'_> {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getProperty", |lua, this, name: String| {
            let value = this.properties.get(&name);
            lua.create_string(value.map_or("", String::as_str))
        });
        methods.add_method("getStateManager", |_, this, ()| Ok(this.states.clone()));
    }
}

impl UserData for States<'_, '_, '_> {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |_, this, ()| this.0.state());
        methods.add_method("set", |_, this, state: BTreeMap<String, String>| {
            this.0.set_state(&state).map(|()| true)
        });
    }
}

impl UserData for Relationship {}

fn released() -> Error {
    Error::runtime("this FlowFile is of an earlier trigger")
}
