//! Character references of XML and HTML.

/// Whose names are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The five of XML.
    Xml,
    /// HTML 3.2: those and Latin 1.
    Html3,
    /// HTML 4: those, Greek, arrows and signs.
    Html4,
}

/// Writes characters that mean something, or have a name, as references.
pub(super) fn escape(text: &str, dialect: Dialect) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match name(c, dialect) {
            Some(name) => {
                out.push('&');
                out.push_str(name);
                out.push(';');
            }
            // Control characters cannot stand in XML 1.0 in any way.
            None if dialect == Dialect::Xml && c < ' ' && !matches!(c, '\t' | '\n' | '\r') => {}
            None => out.push(c),
        }
    }
    out
}

/// Reads references, by name or by number; what is none stays as it is.
pub(super) fn unescape(text: &str, dialect: Dialect) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once('&') {
        out.push_str(before);
        let reference = tail
            .split_once(';')
            .filter(|(name, _)| name.len() <= NAME_BYTES_MAX)
            .and_then(|(name, after)| Some((character(name, dialect)?, after)));
        match reference {
            Some((c, after)) => {
                out.push(c);
                rest = after;
            }
            None => {
                out.push('&');
                rest = tail;
            }
        }
    }
    out.push_str(rest);
    out
}

fn name(c: char, dialect: Dialect) -> Option<&'static str> {
    let basic = match c {
        '"' => "quot",
        '&' => "amp",
        '<' => "lt",
        '>' => "gt",
        '\'' if dialect == Dialect::Xml => "apos",
        _ if dialect == Dialect::Xml || c.is_ascii() => return None,
        _ => "",
    };
    if !basic.is_empty() {
        return Some(basic);
    }
    let code = u32::from(c);
    if let Some(index) = code.checked_sub(LATIN_FIRST)
        && let Some(name) = LATIN.split_ascii_whitespace().nth(index as usize)
    {
        return Some(name);
    }
    let known = || EXTENDED.iter().find(|(known, _)| *known == code);
    (dialect == Dialect::Html4)
        .then(known)?
        .map(|(_, name)| *name)
}

fn character(name: &str, dialect: Dialect) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code);
    }
    match name {
        "quot" => return Some('"'),
        "amp" => return Some('&'),
        "lt" => return Some('<'),
        "gt" => return Some('>'),
        "apos" if dialect == Dialect::Xml => return Some('\''),
        _ if dialect == Dialect::Xml => return None,
        _ => {}
    }
    if let Some(index) = LATIN
        .split_ascii_whitespace()
        .position(|known| known == name)
    {
        return char::from_u32(LATIN_FIRST + u32::try_from(index).ok()?);
    }
    let known = || EXTENDED.iter().find(|(_, known)| *known == name);
    let (code, _) = (dialect == Dialect::Html4).then(known)??;
    char::from_u32(*code)
}

/// Bytes of a reference's name at most.
const NAME_BYTES_MAX: usize = 12;

/// The first character of [`LATIN`].
const LATIN_FIRST: u32 = 160;

/// Names of the characters 160 to 255, in order.
const LATIN: &str = "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg \
    macr deg plusmn sup2 sup3 acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 \
    iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave \
    Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc \
    Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc \
    euml igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave \
    uacute ucirc uuml yacute thorn yuml";

/// Further names of HTML 4, by character.
const EXTENDED: &[(u32, &str)] = &[
    (338, "OElig"),
    (339, "oelig"),
    (352, "Scaron"),
    (353, "scaron"),
    (376, "Yuml"),
    (402, "fnof"),
    (710, "circ"),
    (732, "tilde"),
    (913, "Alpha"),
    (914, "Beta"),
    (915, "Gamma"),
    (916, "Delta"),
    (917, "Epsilon"),
    (918, "Zeta"),
    (919, "Eta"),
    (920, "Theta"),
    (921, "Iota"),
    (922, "Kappa"),
    (923, "Lambda"),
    (924, "Mu"),
    (925, "Nu"),
    (926, "Xi"),
    (927, "Omicron"),
    (928, "Pi"),
    (929, "Rho"),
    (931, "Sigma"),
    (932, "Tau"),
    (933, "Upsilon"),
    (934, "Phi"),
    (935, "Chi"),
    (936, "Psi"),
    (937, "Omega"),
    (945, "alpha"),
    (946, "beta"),
    (947, "gamma"),
    (948, "delta"),
    (949, "epsilon"),
    (950, "zeta"),
    (951, "eta"),
    (952, "theta"),
    (953, "iota"),
    (954, "kappa"),
    (955, "lambda"),
    (956, "mu"),
    (957, "nu"),
    (958, "xi"),
    (959, "omicron"),
    (960, "pi"),
    (961, "rho"),
    (962, "sigmaf"),
    (963, "sigma"),
    (964, "tau"),
    (965, "upsilon"),
    (966, "phi"),
    (967, "chi"),
    (968, "psi"),
    (969, "omega"),
    (977, "thetasym"),
    (978, "upsih"),
    (982, "piv"),
    (8194, "ensp"),
    (8195, "emsp"),
    (8201, "thinsp"),
    (8204, "zwnj"),
    (8205, "zwj"),
    (8206, "lrm"),
    (8207, "rlm"),
    (8211, "ndash"),
    (8212, "mdash"),
    (8216, "lsquo"),
    (8217, "rsquo"),
    (8218, "sbquo"),
    (8220, "ldquo"),
    (8221, "rdquo"),
    (8222, "bdquo"),
    (8224, "dagger"),
    (8225, "Dagger"),
    (8226, "bull"),
    (8230, "hellip"),
    (8240, "permil"),
    (8242, "prime"),
    (8243, "Prime"),
    (8249, "lsaquo"),
    (8250, "rsaquo"),
    (8254, "oline"),
    (8260, "frasl"),
    (8364, "euro"),
    (8465, "image"),
    (8472, "weierp"),
    (8476, "real"),
    (8482, "trade"),
    (8501, "alefsym"),
    (8592, "larr"),
    (8593, "uarr"),
    (8594, "rarr"),
    (8595, "darr"),
    (8596, "harr"),
    (8629, "crarr"),
    (8656, "lArr"),
    (8657, "uArr"),
    (8658, "rArr"),
    (8659, "dArr"),
    (8660, "hArr"),
    (8704, "forall"),
    (8706, "part"),
    (8707, "exist"),
    (8709, "empty"),
    (8711, "nabla"),
    (8712, "isin"),
    (8713, "notin"),
    (8715, "ni"),
    (8719, "prod"),
    (8721, "sum"),
    (8722, "minus"),
    (8727, "lowast"),
    (8730, "radic"),
    (8733, "prop"),
    (8734, "infin"),
    (8736, "ang"),
    (8743, "and"),
    (8744, "or"),
    (8745, "cap"),
    (8746, "cup"),
    (8747, "int"),
    (8756, "there4"),
    (8764, "sim"),
    (8773, "cong"),
    (8776, "asymp"),
    (8800, "ne"),
    (8801, "equiv"),
    (8804, "le"),
    (8805, "ge"),
    (8834, "sub"),
    (8835, "sup"),
    (8836, "nsub"),
    (8838, "sube"),
    (8839, "supe"),
    (8853, "oplus"),
    (8855, "otimes"),
    (8869, "perp"),
    (8901, "sdot"),
    (8968, "lceil"),
    (8969, "rceil"),
    (8970, "lfloor"),
    (8971, "rfloor"),
    (9001, "lang"),
    (9002, "rang"),
    (9674, "loz"),
    (9824, "spades"),
    (9827, "clubs"),
    (9829, "hearts"),
    (9830, "diams"),
];
