//! Whole and decimal numbers.

use base::Rng;

use super::{Function, Given, Number, Subject, alone, number, on, written};
use crate::expression::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    on("plus", 1, 1, |given| {
        given.calculate(i64::checked_add, |a, b| a + b)
    }),
    on("minus", 1, 1, |given| {
        given.calculate(i64::checked_sub, |a, b| a - b)
    }),
    on("multiply", 1, 1, |given| {
        given.calculate(i64::checked_mul, |a, b| a * b)
    }),
    on("divide", 1, 1, |given| {
        given.calculate(i64::checked_div, |a, b| a / b)
    }),
    on("mod", 1, 1, |given| {
        given.calculate(i64::checked_rem, |a, b| a % b)
    }),
    on("toNumber", 0, 0, |given| {
        Ok(Value::Whole(number(&given.subject)?.whole()?))
    }),
    on("toDecimal", 0, 0, |given| {
        finite(number(&given.subject)?.fraction())
    }),
    on("toRadix", 1, 2, |given| given.in_radix()),
    on("fromRadix", 1, 1, |given| given.of_radix()),
    Function {
        subject: Subject::Allowed,
        pure: false,
        ..on("math", 1, 2, |given| given.math())
    },
    alone("random", 0, 0, |_| {
        Ok(Value::Whole((Rng::from_entropy().next_u64() >> 1) as i64))
    }),
];

impl Given<'_> {
    fn calculate(
        self,
        whole: fn(i64, i64) -> Option<i64>,
        fraction: fn(f64, f64) -> f64,
    ) -> Result<Value, String> {
        match (number(&self.subject)?, number(&self.arguments[0])?) {
            (Number::Whole(a), Number::Whole(b)) => match whole(a, b) {
                Some(result) => Ok(Value::Whole(result)),
                None => Err(format!("{a} and {b} have no result in 64 bits")),
            },
            (a, b) => finite(fraction(a.fraction(), b.fraction())),
        }
    }

    fn radix(&self) -> Result<u32, String> {
        let radix = self.index(0)?;
        u32::try_from(radix)
            .ok()
            .filter(|radix| (2..=36).contains(radix))
            .ok_or_else(|| format!("{radix} is no base between 2 and 36"))
    }

    fn in_radix(self) -> Result<Value, String> {
        let radix = self.radix()?;
        let width = if self.arguments.len() == 2 {
            self.index(1)?
        } else {
            0
        };
        if width > WIDTH_MAX {
            return Err(format!("{width} digits are more than {WIDTH_MAX}"));
        }
        let value = number(&self.subject)?.whole()?;
        let (mut rest, mut digits) = (value.unsigned_abs(), Vec::new());
        loop {
            let digit = (rest % u64::from(radix)) as u32;
            digits.push(char::from_digit(digit, radix).unwrap_or('0'));
            rest /= u64::from(radix);
            if rest == 0 {
                break;
            }
        }
        digits.resize(digits.len().max(width), '0');
        if value < 0 {
            digits.push('-');
        }
        Ok(Value::Text(digits.iter().rev().collect()))
    }

    fn of_radix(self) -> Result<Value, String> {
        let radix = self.radix()?;
        let text = match written(&self.text()) {
            // A decimal is cut at its point first, as documented.
            Some(Number::Fraction(value)) if self.text().contains('.') => {
                Number::Fraction(value).whole()?.to_string()
            }
            _ => self.text().trim().to_owned(),
        };
        i64::from_str_radix(&text, radix)
            .map(Value::Whole)
            .map_err(|_| format!("'{text}' is no number in base {radix}"))
    }

    /// The functions of Java's `Math`, by name.
    fn math(mut self) -> Result<Value, String> {
        let name = self.argument(0);
        if name == "random" {
            // 53 bits are what a double holds between 0 and 1.
            let bits = Rng::from_entropy().next_u64() >> 11;
            return Ok(Value::Fraction(bits as f64 / (1_u64 << 53) as f64));
        }
        let subject = number(&self.subject)?;
        let other = self.arguments.get(1).map(number).transpose()?;
        if let Some(other) = other {
            return of_two(&name, subject, other);
        }
        if let (Number::Whole(value), "abs") = (subject, name.as_str()) {
            return value
                .checked_abs()
                .map(Value::Whole)
                .ok_or_else(|| format!("{value} has no absolute value in 64 bits"));
        }
        let value = subject.fraction();
        finite(match name.as_str() {
            "abs" => value.abs(),
            "ceil" => value.ceil(),
            "floor" => value.floor(),
            "rint" => value.round_ties_even(),
            "round" => {
                return Number::Fraction((value + 0.5).floor())
                    .whole()
                    .map(Value::Whole);
            }
            "signum" => {
                if value == 0.0 {
                    value
                } else {
                    value.signum()
                }
            }
            "sqrt" => value.sqrt(),
            "cbrt" => value.cbrt(),
            "exp" => value.exp(),
            "expm1" => value.exp_m1(),
            "log" => value.ln(),
            "log10" => value.log10(),
            "log1p" => value.ln_1p(),
            "sin" => value.sin(),
            "cos" => value.cos(),
            "tan" => value.tan(),
            "asin" => value.asin(),
            "acos" => value.acos(),
            "atan" => value.atan(),
            "sinh" => value.sinh(),
            "cosh" => value.cosh(),
            "tanh" => value.tanh(),
            "toDegrees" => value.to_degrees(),
            "toRadians" => value.to_radians(),
            _ => return Err(format!("there is no '{name}' of one number")),
        })
    }
}

fn of_two(name: &str, a: Number, b: Number) -> Result<Value, String> {
    if let (Number::Whole(a), Number::Whole(b)) = (a, b) {
        match name {
            "max" => return Ok(Value::Whole(a.max(b))),
            "min" => return Ok(Value::Whole(a.min(b))),
            _ => {}
        }
    }
    let (a, b) = (a.fraction(), b.fraction());
    finite(match name {
        "max" => a.max(b),
        "min" => a.min(b),
        "pow" => a.powf(b),
        "hypot" => a.hypot(b),
        "atan2" => a.atan2(b),
        "scalb" => a * b.trunc().exp2(),
        "copySign" => a.copysign(b),
        "IEEEremainder" => a - b * (a / b).round_ties_even(),
        _ => return Err(format!("there is no '{name}' of two numbers")),
    })
}

fn finite(value: f64) -> Result<Value, String> {
    if value.is_finite() {
        return Ok(Value::Fraction(value));
    }
    Err(format!("the result is {value}"))
}

/// Digits that a number is padded to at most.
const WIDTH_MAX: usize = 1_000;
