//! What a function of a module takes and gives, as statements see it and as the module does.
//!
//! | type | values | in the module | null, where it is written `type?` |
//! | --- | --- | --- | --- |
//! | `long` | whole numbers | i64 | the least i64 |
//! | `int` | whole numbers of 32 bits | i32 | the least i32 |
//! | `double` | numbers | f64 | a NaN |
//! | `float` | numbers, rounded | f32 | a NaN |
//! | `boolean` | truth values | i32, 0 or 1 | the least i32 |
//! | `string` | texts | argument: i32 pointer, i32 length; result: i64, pointer in the upper half, length in the lower | argument: length -1; result: anything negative |
//!
//! A null argument of a type without a question mark gives null without a call. A result that is no
//! finite number is null whatever the type says.

use std::borrow::Cow;

use wasmi::{F32, F64, FuncType, Val, ValType};

use crate::expression::{CastTo, Expression};
use crate::limits::FUNCTION_ARGUMENTS_MAX;
use crate::value::{OwnedValue, Value};

/// What a function takes and gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The function's name, as the module exports it.
    pub name: String,
    /// Its parameters.
    pub parameters: Vec<Type>,
    /// Its result.
    pub result: Type,
}

/// The type of a parameter or result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    /// Its values.
    pub kind: Kind,
    /// Whether it may be null.
    pub is_nullable: bool,
}

/// The values of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `long`.
    Long,
    /// `int`.
    Int,
    /// `double`.
    Double,
    /// `float`.
    Float,
    /// `boolean`.
    Boolean,
    /// `string`.
    Text,
}

/// An argument on its way into a module.
pub enum Argument<'a> {
    /// A number.
    Plain(Val),
    /// A text, or none.
    Text(Option<Cow<'a, str>>),
    /// Null, where the function takes none.
    Missing,
}

impl Signature {
    /// Reads `name(type, …) -> type`.
    ///
    /// # Errors
    /// It is written otherwise; the text says how.
    pub fn parse(text: &str) -> Result<Signature, String> {
        let usage = || {
            format!("'{text}' is no signature: write name(string, double?) -> long, with {TYPES}")
        };
        let (name, rest) = text.split_once('(').ok_or_else(usage)?;
        let (parameters, result) = rest.split_once(')').ok_or_else(usage)?;
        let result = result.trim().strip_prefix("->").ok_or_else(usage)?;
        let name = name.trim();
        if !is_name(name) {
            return Err(usage());
        }
        let parameters = match parameters.trim() {
            "" => Vec::new(),
            list => {
                let types = list.split(',').map(Type::parse);
                types.collect::<Option<Vec<_>>>().ok_or_else(usage)?
            }
        };
        if parameters.len() > FUNCTION_ARGUMENTS_MAX {
            return Err(format!(
                "{name} takes {} arguments, and {FUNCTION_ARGUMENTS_MAX} at most can be given",
                parameters.len()
            ));
        }
        Ok(Signature {
            name: name.to_owned(),
            parameters,
            result: Type::parse(result).ok_or_else(usage)?,
        })
    }

    /// What a function of numbers takes and gives by its type in the module alone.
    pub fn of_numbers(name: &str, of: &FuncType) -> Option<Signature> {
        let [result] = of.results() else {
            return None;
        };
        let parameters = of.params().iter().map(|of| Type::of(*of));
        let parameters = parameters.collect::<Option<Vec<_>>>()?;
        Some(Signature {
            name: name.to_owned(),
            parameters,
            result: Type::of(*result)?,
        })
        .filter(|signature| signature.parameters.len() <= FUNCTION_ARGUMENTS_MAX)
    }

    /// The function's type in the module.
    pub fn in_module(&self) -> FuncType {
        let mut parameters = Vec::with_capacity(self.parameters.len() + 1);
        for parameter in &self.parameters {
            match parameter.kind {
                Kind::Text => parameters.extend([ValType::I32; 2]),
                plain => parameters.push(plain.in_module()),
            }
        }
        FuncType::new(parameters, [self.result.kind.in_module()])
    }

    /// Whether texts go in or come out.
    pub fn has_texts(&self) -> bool {
        let mut types = self.parameters.iter().chain([&self.result]);
        types.any(|of| of.kind == Kind::Text)
    }

    /// Whether the arguments can be of the parameters' types, as far as that is known before there
    /// is an event.
    ///
    /// # Errors
    /// The text says which is not, and what to write.
    pub fn check(&self, module: &str, arguments: &[Expression]) -> Result<(), String> {
        if arguments.len() != self.parameters.len() {
            return Err(format!("{module}.{} is written {module}.{self}", self.name));
        }
        for (number, (argument, parameter)) in (1..).zip(arguments.iter().zip(&self.parameters)) {
            let Some(known) = known_type(argument) else {
                continue;
            };
            if !parameter.kind.takes(known) {
                return Err(format!(
                    "argument {number} of {module}.{self} is a {}: CAST it",
                    known.name()
                ));
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}(", self.name)?;
        for (place, parameter) in self.parameters.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{parameter}")?;
        }
        write!(f, ") -> {}", self.result)
    }
}

impl Type {
    fn parse(text: &str) -> Option<Type> {
        let text = text.trim();
        let (name, is_nullable) = match text.strip_suffix('?') {
            Some(name) => (name.trim_end(), true),
            None => (text, false),
        };
        let kind = KINDS.iter().find(|(known, _)| *known == name)?.1;
        Some(Type { kind, is_nullable })
    }

    fn of(plain: ValType) -> Option<Type> {
        let kind = match plain {
            ValType::I32 => Kind::Int,
            ValType::I64 => Kind::Long,
            ValType::F32 => Kind::Float,
            ValType::F64 => Kind::Double,
            _ => return None,
        };
        Some(Type {
            kind,
            is_nullable: false,
        })
    }

    /// A value as an argument; what is of another type counts as null.
    pub fn argument<'a>(self, value: Value<'a>) -> Argument<'a> {
        let plain = match (self.kind, value) {
            (Kind::Long, Value::Int(number)) => Some(Val::I64(number)),
            (Kind::Int, Value::Int(number)) => i32::try_from(number).ok().map(Val::I32),
            (Kind::Double, number) => number.as_f64().map(|number| Val::F64(F64::from(number))),
            (Kind::Float, number) => number
                .as_f64()
                .map(|number| Val::F32(F32::from(number as f32))),
            (Kind::Boolean, Value::Bool(truth)) => Some(Val::I32(i32::from(truth))),
            (Kind::Text, Value::Text(text)) => return Argument::Text(Some(text)),
            _ => None,
        };
        match (plain, self.is_nullable, self.kind) {
            (Some(plain), _, _) => Argument::Plain(plain),
            (None, false, _) => Argument::Missing,
            (None, true, Kind::Text) => Argument::Text(None),
            (None, true, Kind::Long) => Argument::Plain(Val::I64(i64::MIN)),
            (None, true, Kind::Int | Kind::Boolean) => Argument::Plain(Val::I32(i32::MIN)),
            (None, true, Kind::Double) => Argument::Plain(Val::F64(F64::from(f64::NAN))),
            (None, true, Kind::Float) => Argument::Plain(Val::F32(F32::from(f32::NAN))),
        }
    }

    /// The value of a result that is no text.
    pub fn value(self, result: &Val) -> Value<'static> {
        match (self.kind, result) {
            (_, Val::I32(i32::MIN)) | (_, Val::I64(i64::MIN)) if self.is_nullable => Value::Null,
            (Kind::Boolean, Val::I32(truth)) => Value::Bool(*truth != 0),
            (_, Val::I32(number)) => Value::Int(i64::from(*number)),
            (_, Val::I64(number)) => Value::Int(*number),
            (_, Val::F32(number)) => Value::float(f64::from(f32::from(*number))),
            (_, Val::F64(number)) => Value::float(f64::from(*number)),
            _ => Value::Null,
        }
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.is_nullable { "?" } else { "" };
        write!(f, "{}{mark}", self.kind.name())
    }
}

impl Kind {
    fn name(self) -> &'static str {
        let known = KINDS.iter().find(|(_, kind)| *kind == self);
        known.map_or("", |(name, _)| name)
    }

    /// What holds it in a module; of a text, its result.
    fn in_module(self) -> ValType {
        match self {
            Kind::Long | Kind::Text => ValType::I64,
            Kind::Int | Kind::Boolean => ValType::I32,
            Kind::Double => ValType::F64,
            Kind::Float => ValType::F32,
        }
    }

    /// Whether some value of the other kind is one of this.
    fn takes(self, other: Kind) -> bool {
        match self {
            Kind::Long | Kind::Int => matches!(other, Kind::Long | Kind::Int),
            Kind::Double | Kind::Float => !matches!(other, Kind::Boolean | Kind::Text),
            Kind::Boolean | Kind::Text => other == self,
        }
    }
}

/// Whether a name can be a function's or a module's.
pub fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let begins = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    bytes.next().is_some_and(begins)
        && name.len() <= NAME_BYTES
        && bytes.all(|byte| begins(byte) || byte.is_ascii_digit())
}

/// Of what kind an expression's values are, where its form alone says so.
fn known_type(expression: &Expression) -> Option<Kind> {
    match expression {
        Expression::Literal(OwnedValue::Int(_)) | Expression::Cast(_, CastTo::Int) => {
            Some(Kind::Long)
        }
        Expression::Literal(OwnedValue::Float(_)) | Expression::Cast(_, CastTo::Float) => {
            Some(Kind::Double)
        }
        Expression::Literal(OwnedValue::Text(_))
        | Expression::Cast(_, CastTo::Text)
        | Expression::Concat(_) => Some(Kind::Text),
        Expression::Literal(OwnedValue::Bool(_))
        | Expression::Cast(_, CastTo::Bool)
        | Expression::Not(_)
        | Expression::Compare(..)
        | Expression::And(_)
        | Expression::Or(_)
        | Expression::IsNull(_)
        | Expression::IsTruth(..)
        | Expression::In(..)
        | Expression::Between(_)
        | Expression::Like(..)
        | Expression::Regexp(..) => Some(Kind::Boolean),
        Expression::User(call, _) => Some(call.signature().result.kind),
        _ => None,
    }
}

const TYPES: &str = "long, int, double, float, boolean or string, and ? behind what may be null";

const KINDS: [(&str, Kind); 6] = [
    ("long", Kind::Long),
    ("int", Kind::Int),
    ("double", Kind::Double),
    ("float", Kind::Float),
    ("boolean", Kind::Boolean),
    ("string", Kind::Text),
];

/// Longest name of a function or module, bytes: it stands in statements and in paths.
const NAME_BYTES: usize = 64;
