//! `log`, as scripts see it: the agent's log, and bulletins.

use mlua::{Lua, UserData, UserDataMethods, Value};

use crate::bulletins::Level;
use crate::engine::Context;
use crate::limits::BULLETIN_BYTES_MAX;

/// `log`.
pub(super) struct Log {
    processor: String,
    post: Post,
}

/// Puts up a bulletin.
type Post = Box<dyn Fn(Level, &str) + Send + Sync>;

impl Log {
    /// The log of a processor.
    pub(super) fn new(context: &Context) -> Self {
        Log {
            processor: context.name().to_owned(),
            post: Box::new(context.voice()),
        }
    }
}

impl UserData for Log {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("trace", |lua, this, words: Value| {
            tracing::trace!(processor = this.processor, "{}", line(lua, words)?);
            Ok(())
        });
        methods.add_method("debug", |lua, this, words: Value| {
            tracing::debug!(processor = this.processor, "{}", line(lua, words)?);
            Ok(())
        });
        methods.add_method("info", |lua, this, words: Value| {
            tracing::info!(processor = this.processor, "{}", line(lua, words)?);
            Ok(())
        });
        methods.add_method("warn", |lua, this, words: Value| {
            (this.post)(Level::Warning, &line(lua, words)?);
            Ok(())
        });
        methods.add_method("error", |lua, this, words: Value| {
            (this.post)(Level::Error, &line(lua, words)?);
            Ok(())
        });
    }
}

/// A value as a line of the log, no longer than a bulletin. What only its own `__tostring` could
/// tell is told by its type: that would be a call within the call.
fn line(lua: &Lua, words: Value) -> mlua::Result<String> {
    let kind = words.type_name();
    let mut line = match words {
        Value::Boolean(is) => is.to_string(),
        words => match lua.coerce_string(words)? {
            Some(text) => text.to_string_lossy(),
            None => kind.to_owned(),
        },
    };
    line.truncate(line.floor_char_boundary(BULLETIN_BYTES_MAX));
    Ok(line)
}
