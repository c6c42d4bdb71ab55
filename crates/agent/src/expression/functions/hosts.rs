//! What the host says: its name and address, random ids, counters.

use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::{Function, alone, is_true, on};
use crate::expression::{Expression, Value};
use crate::{host, reverse_dns};

pub(super) const FUNCTIONS: &[Function] = &[
    alone("hostname", 0, 1, |given| {
        let is_full = given.arguments.first().is_some_and(is_true);
        Ok(Value::Text(if is_full {
            host::full_hostname()
        } else {
            host::hostname()
        }))
    }),
    alone("ip", 0, 0, |_| Ok(Value::Text(host::address()))),
    alone("reverseDnsLookup", 1, 2, |mut given| {
        let wait = match given.arguments.len() {
            2 => Duration::from_millis(given.index(1)? as u64).min(LOOK_UP_MAX),
            _ => LOOK_UP_MAX,
        };
        let text = given.argument(0);
        let address: IpAddr = text
            .trim()
            .parse()
            .map_err(|_| format!("'{text}' is no IP address"))?;
        // An address that nobody named is its own name.
        let name = reverse_dns::look_up(address, wait).unwrap_or(text);
        Ok(Value::Text(name))
    }),
    alone("UUID", 0, 0, |_| {
        Ok(Value::Text(uuid::Uuid::new_v4().to_string()))
    }),
    alone("nextInt", 0, 0, |_| {
        Ok(Value::Whole(COUNTER.fetch_add(1, Ordering::Relaxed)))
    }),
    alone("now", 0, 0, |given| {
        Ok(Value::Whole(given.frame.scope.now.0))
    }),
    Function {
        pure: true,
        ..alone("literal", 1, 1, |mut given| {
            Ok(given.arguments.swap_remove(0))
        })
    },
    Function {
        pure: false,
        ..on("evaluateELString", 0, 0, |given| {
            let text = given.text();
            let deeper = given.frame.deeper()?;
            let inner = Expression::parse(&text).map_err(|error| error.to_string())?;
            inner
                .evaluate_in(deeper)
                .map(|value| Value::Text(value.into_owned()))
                .map_err(|error| error.to_string())
        })
    },
];

/// Counts on over the life of the process, over all processors.
static COUNTER: AtomicI64 = AtomicI64::new(0);

/// How long a name is looked for; the processor waits meanwhile.
const LOOK_UP_MAX: Duration = Duration::from_secs(5);
