//! Syslog messages of RFC 5424 and RFC 3164, read without IO.
//!
//! 5424: `<PRI>VERSION TIME HOST APP PROC MSGID DATA[ MESSAGE]`, where `-` stands for none, and is
//! what all but the time have then, as in MiNiFi C++.
//! 3164: `<PRI>Mmm dd hh:mm:ss HOST MESSAGE`.

/// A message; texts that a message does not have are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Syslog<'m> {
    /// Facility times eight plus severity.
    pub(crate) priority: u8,
    /// 1 for RFC 5424, 0 for RFC 3164.
    pub(crate) version: u16,
    pub(crate) timestamp: &'m str,
    pub(crate) hostname: &'m str,
    pub(crate) app_name: &'m str,
    pub(crate) proc_id: &'m str,
    pub(crate) msg_id: &'m str,
    pub(crate) structured_data: &'m str,
    pub(crate) message: &'m str,
}

/// Reads a message; nothing where it is of neither kind.
pub(crate) fn parse(text: &str) -> Option<Syslog<'_>> {
    let (priority, rest) = text.strip_prefix('<')?.split_once('>')?;
    let is_number = |text: &str, digits_max: usize| {
        (1..=digits_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !is_number(priority, 3) {
        return None;
    }
    let priority: u8 = priority
        .parse()
        .ok()
        .filter(|priority| *priority <= PRIORITY_MAX)?;
    let newer = rest
        .split_once(' ')
        .filter(|(version, _)| is_number(version, 3) && !version.starts_with('0'));
    let parsed = match newer {
        Some((version, rest)) => rfc_5424(version.parse().ok()?, rest),
        None => rfc_3164(rest),
    };
    parsed.map(|parsed| Syslog { priority, ..parsed })
}

impl Syslog<'_> {
    /// Which part of the system it is about.
    pub(crate) fn facility(&self) -> u8 {
        self.priority / 8
    }

    /// How bad it is: 0 is the worst, 7 the mildest.
    pub(crate) fn severity(&self) -> u8 {
        self.priority % 8
    }
}

fn rfc_5424(version: u16, text: &str) -> Option<Syslog<'_>> {
    let mut rest = text;
    let mut word = || {
        let (word, behind) = rest.split_once(' ')?;
        rest = behind;
        (!word.is_empty()).then_some(word)
    };
    let (timestamp, hostname) = (word()?, word()?);
    let timestamp = if timestamp == "-" { "" } else { timestamp };
    let (app_name, proc_id, msg_id) = (word()?, word()?, word()?);
    let is_time = timestamp.is_empty()
        || (timestamp.contains('T') && timestamp.starts_with(|c: char| c.is_ascii_digit()));
    if !is_time {
        return None;
    }
    let (structured_data, rest) = structured(rest)?;
    let message = match rest.strip_prefix(' ') {
        Some(message) => message.strip_prefix('\u{feff}').unwrap_or(message),
        None if rest.is_empty() => rest,
        None => return None,
    };
    Some(Syslog {
        version,
        timestamp,
        hostname,
        app_name,
        proc_id,
        msg_id,
        structured_data,
        message,
        ..Syslog::default()
    })
}

/// Structured data, and what stands behind it.
fn structured(text: &str) -> Option<(&str, &str)> {
    if text.starts_with('-') {
        return text.split_at_checked(1);
    }
    let (mut is_inside, mut is_quoted, mut is_escaped) = (false, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' if is_inside => is_quoted = !is_quoted,
            '[' if !is_inside => is_inside = true,
            ']' if is_inside && !is_quoted => is_inside = false,
            _ if !is_inside => return (at > 0).then(|| text.split_at(at)),
            _ => {}
        }
    }
    (!is_inside && !text.is_empty()).then_some((text, ""))
}

fn rfc_3164(text: &str) -> Option<Syslog<'_>> {
    let (timestamp, rest) = text.split_at_checked(TIME_3164.len())?;
    let is_time = timestamp
        .bytes()
        .zip(TIME_3164.bytes())
        .all(|(byte, shape)| match shape {
            b'M' => byte.is_ascii_alphabetic(),
            b'd' => byte.is_ascii_digit() || byte == b' ',
            b'0' => byte.is_ascii_digit(),
            shape => byte == shape,
        });
    if !is_time || !MONTHS.contains(&timestamp.get(..3)?) {
        return None;
    }
    let rest = rest.strip_prefix(' ')?;
    let (hostname, message) = rest.split_once(' ').unwrap_or((rest, ""));
    (!hostname.is_empty()).then_some(Syslog {
        timestamp,
        hostname,
        message,
        ..Syslog::default()
    })
}

/// Facility 23, severity 7.
const PRIORITY_MAX: u8 = 191;

/// How a time of RFC 3164 looks: `Oct 11 22:14:15`.
const TIME_3164: &str = "MMM d0 00:00:00";

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 5424, section 6.5.
    #[test]
    fn the_newer_rfc_s_examples_are_read() {
        let first = parse(
            "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \
             \u{feff}'su root' failed for lonvick on /dev/pts/8",
        );
        let first = first.unwrap();
        assert_eq!(
            (first.facility(), first.severity(), first.version),
            (4, 2, 1)
        );
        assert_eq!(first.timestamp, "2003-10-11T22:14:15.003Z");
        assert_eq!(
            (first.hostname, first.app_name),
            ("mymachine.example.com", "su")
        );
        assert_eq!((first.proc_id, first.msg_id), ("-", "ID47"));
        assert_eq!(first.message, "'su root' failed for lonvick on /dev/pts/8");
        let data = "[exampleSDID@32473 iut=\"3\" eventSource=\"App]\\\"lication\"]\
                    [examplePriority@32473 class=\"high\"]";
        let text = format!("<165>1 2003-10-11T22:14:15.003Z h evntslog 7 ID47 {data}");
        let second = parse(&text).unwrap();
        assert_eq!((second.structured_data, second.message), (data, ""));
        assert_eq!(second.proc_id, "7");
        let nothing = parse("<0>1 - - - - - -").unwrap();
        assert_eq!(
            nothing,
            Syslog {
                version: 1,
                hostname: "-",
                app_name: "-",
                proc_id: "-",
                msg_id: "-",
                structured_data: "-",
                ..Syslog::default()
            }
        );
    }

    /// The examples of RFC 3164, section 5.4.
    #[test]
    fn the_older_rfc_s_examples_are_read() {
        let text = "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8";
        let first = parse(text).unwrap();
        assert_eq!((first.priority, first.version), (34, 0));
        assert_eq!(
            (first.timestamp, first.hostname),
            ("Oct 11 22:14:15", "mymachine")
        );
        assert_eq!(
            first.message,
            "su: 'su root' failed for lonvick on /dev/pts/8"
        );
        let second = parse("<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!").unwrap();
        assert_eq!(second.timestamp, "Feb  5 17:32:18");
    }

    #[test]
    fn what_is_of_neither_kind_is_nothing() {
        for bad in [
            "",
            "plain",
            "<>1 - - - - - -",
            "<192>1 - - - - - -",
            "<1234>1 - - - - - -",
            "<34>1 - - - - -",
            "<34>1 yesterday h a p m -",
            "<34>1 - - - - - [open",
            "<34>1 - - - - - -x",
            "<34>Foo 11 22:14:15 host message",
            "<34>Oct 11 22-14-15 host message",
            "<34>Oct 11 22:14:15",
            "<34>Oct 11 22:14:1\u{e4}",
        ] {
            assert_eq!(parse(bad), None, "{bad:?} was read");
        }
    }
}
