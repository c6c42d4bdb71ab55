//! Named places at which a test can end the work, as a crash would.

/// A place between two steps that a crash must be able to part; does nothing outside of tests.
#[cfg(not(test))]
#[inline]
pub(crate) fn fail_point(_name: &'static str) {}

/// A place between two steps that a crash must be able to part; panics where a test armed it.
#[cfg(test)]
pub(crate) fn fail_point(name: &'static str) {
    if ARMED.with(std::cell::Cell::get) == Some(name) {
        std::panic::panic_any(Crash(name));
    }
}

/// Arms the place `name` on this thread, or none.
#[cfg(test)]
pub(crate) fn arm(name: Option<&'static str>) {
    ARMED.with(|armed| armed.set(name));
}

/// What a test's crash panics with.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Crash(pub(crate) &'static str);

#[cfg(test)]
thread_local! {
    static ARMED: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}
