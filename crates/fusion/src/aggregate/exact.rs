//! Sums of doubles without rounding: the same whatever the order in which they are added.
//!
//! A sum is an integer times a power of two, kept as digits of 32 bits in places of 64, so that
//! carries wait: adding touches three digits. Digits stand from the lowest that was ever needed to
//! the highest; doubles between 2^-1074 and 2^1023 need 66 at most, their squares 131, those of one
//! order of magnitude three or four. Only [`Exact::to_f64`] rounds, to the nearest double.

use crate::codec::{Decoder, Encoder};

/// A sum of doubles, or of their squares.
#[derive(Clone, Debug, Default)]
pub struct Exact {
    /// The first digit counts 2^(32 · base).
    base: i32,
    /// The lowest first.
    digits: Vec<i64>,
    /// Additions since carries were settled.
    waiting: u32,
}

impl Exact {
    /// Adds a number; those that are none, or infinite, are left out.
    pub fn add(&mut self, number: f64) {
        if let Some((mantissa, exponent)) = parts(number) {
            self.add_part(mantissa, exponent, number < 0.0);
        }
    }

    /// Adds the square of a number.
    pub fn add_square(&mut self, number: f64) {
        if let Some((mantissa, exponent)) = parts(number) {
            let square = u128::from(mantissa) * u128::from(mantissa);
            self.add_wide(square, 2 * exponent, false);
        }
    }

    /// Adds an integer.
    pub fn add_int(&mut self, number: i128) {
        self.add_wide(number.unsigned_abs(), 0, number < 0);
    }

    /// Adds another sum.
    pub fn join(&mut self, other: &Exact) {
        self.add_all(other, 1);
    }

    /// Takes another sum away.
    pub fn subtract(&mut self, other: &Exact) {
        self.add_all(other, -1);
    }

    /// The product with another.
    pub fn times(&self, other: &Exact) -> Exact {
        let ((a, of_a), (b, of_b)) = (self.magnitude(), other.magnitude());
        let mut digits = vec![0_u64; a.len() + b.len()];
        for (i, a) in a.iter().enumerate() {
            let mut carry = 0;
            for (j, b) in b.iter().enumerate() {
                let digit = u64::from(*a) * u64::from(*b) + digits[i + j] + carry;
                digits[i + j] = digit & LOW;
                carry = digit >> 32;
            }
            // No earlier round came so far.
            digits[i + b.len()] = carry;
        }
        let sign = if of_a == of_b { 1 } else { -1 };
        Exact {
            base: self.base + other.base,
            // Digits have 32 bits.
            digits: digits
                .into_iter()
                .map(|digit| sign * digit as i64)
                .collect(),
            waiting: 1,
        }
    }

    /// The nearest double; of two that are as near the even one.
    pub fn to_f64(&self) -> f64 {
        let (digits, is_negative) = self.magnitude();
        let Some(top) = digits.iter().rposition(|digit| *digit != 0) else {
            return 0.0;
        };
        let digit = |back: usize| top.checked_sub(back).map_or(0, |place| digits[place]);
        let high = (0..4).fold(0_u128, |high, back| high << 32 | u128::from(digit(back)));
        let below = &digits[..top.saturating_sub(3)];
        let is_more = below.iter().any(|digit| *digit != 0);
        // The last bit of `high` counts 2^exponent.
        let exponent = 32 * (self.base + top as i32 - 3);
        let length = 128 - high.leading_zeros() as i32;
        let last = (exponent + length - MANTISSA_BITS).max(LEAST_EXPONENT);
        let shift = (last - exponent).cast_unsigned();
        if shift > 128 {
            return 0.0;
        }
        let whole = high.checked_shr(shift).unwrap_or(0);
        let rest = high - whole.checked_shl(shift).unwrap_or(0);
        let half = 1_u128 << (shift - 1);
        let rounds_up = rest > half || (rest == half && (is_more || whole & 1 == 1));
        // Fifty-three bits, or one more when all of them were ones.
        let mut mantissa = whole as u64 + u64::from(rounds_up);
        let mut last = last;
        if mantissa == 1 << MANTISSA_BITS {
            mantissa >>= 1;
            last += 1;
        }
        let magnitude = match last - LEAST_EXPONENT {
            _ if mantissa < IMPLIED => f64::from_bits(mantissa),
            field @ ..2046 => {
                let field = u64::from((field + 1).cast_unsigned());
                f64::from_bits(field << 52 | mantissa & (IMPLIED - 1))
            }
            _ => f64::INFINITY,
        };
        if is_negative { -magnitude } else { magnitude }
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        self.digits.len() * size_of::<i64>()
    }

    /// Writes the sum.
    pub fn encode(&self, out: &mut Encoder) {
        let mut own = self.clone();
        own.settle();
        out.i64(own.base.into());
        out.count(own.digits.len());
        own.digits.iter().for_each(|digit| out.i64(*digit));
    }

    /// Reads it back.
    pub fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let base = i32::try_from(from.i64()?).ok()?;
        let count = from.count()?;
        if count > DIGITS_MAX || !(-DIGITS_FAR..=DIGITS_FAR).contains(&base) {
            return None;
        }
        let mut own = Exact {
            base,
            ..Exact::default()
        };
        for _ in 0..count {
            let digit = from.i64()?;
            if digit.unsigned_abs() > DIGIT_MAX {
                return None;
            }
            own.digits.push(digit);
        }
        own.settle();
        Some(own)
    }

    fn add_wide(&mut self, mantissa: u128, exponent: i32, is_negative: bool) {
        self.add_part(mantissa as u64, exponent, is_negative);
        let high = (mantissa >> 64) as u64;
        if high != 0 {
            self.add_part(high, exponent + 64, is_negative);
        }
    }

    fn add_part(&mut self, mantissa: u64, exponent: i32, is_negative: bool) {
        if mantissa == 0 {
            return;
        }
        let place = exponent.div_euclid(32);
        let wide = u128::from(mantissa) << exponent.rem_euclid(32);
        let first = self.reach(place, 3);
        let sign = if is_negative { -1 } else { 1 };
        for (back, digit) in self.digits[first..first + 3].iter_mut().enumerate() {
            *digit += sign * ((wide >> (32 * back)) as u64 & LOW) as i64;
        }
        self.waiting += 1;
        if self.waiting >= WAITING_MAX {
            self.settle();
        }
    }

    fn add_all(&mut self, other: &Exact, sign: i64) {
        let mut other = other.clone();
        other.settle();
        self.settle();
        if other.digits.is_empty() {
            return;
        }
        let first = self.reach(other.base, other.digits.len());
        for (own, digit) in self.digits[first..].iter_mut().zip(&other.digits) {
            *own += sign * digit;
        }
        self.settle();
    }

    /// Makes room for so many digits from a place on; where they begin.
    fn reach(&mut self, place: i32, count: usize) -> usize {
        if self.digits.is_empty() {
            self.base = place;
        }
        if place < self.base {
            let more = (self.base - place).unsigned_abs() as usize;
            self.digits.splice(0..0, std::iter::repeat_n(0, more));
            self.base = place;
        }
        let first = (place - self.base).unsigned_abs() as usize;
        if self.digits.len() < first + count {
            self.digits.resize(first + count, 0);
        }
        first
    }

    /// Carries, so that every digit but the last has 32 bits and none is negative but the last.
    fn settle(&mut self) {
        let mut carry = 0;
        let mut place = 0;
        while place < self.digits.len() || carry != 0 {
            if place == self.digits.len() {
                self.digits.push(0);
            }
            let digit = self.digits[place] + carry;
            let is_last = place + 1 == self.digits.len();
            if is_last && i32::try_from(digit).is_ok() {
                self.digits[place] = digit;
                carry = 0;
            } else {
                self.digits[place] = digit & LOW as i64;
                carry = digit >> 32;
            }
            place += 1;
        }
        self.waiting = 0;
    }

    /// Its digits without a sign, and whether it is negative.
    fn magnitude(&self) -> (Vec<u32>, bool) {
        let mut own = self.clone();
        own.settle();
        let is_negative = own.digits.last().is_some_and(|top| *top < 0);
        if is_negative {
            own.digits.iter_mut().for_each(|digit| *digit = -*digit);
            own.settle();
        }
        let digits = own.digits.into_iter();
        // None is negative now, and the last one has 31 bits.
        (digits.map(|digit| digit as u32).collect(), is_negative)
    }
}

/// A finite double as an integer times a power of two, without its sign.
fn parts(number: f64) -> Option<(u64, i32)> {
    if !number.is_finite() {
        return None;
    }
    let bits = number.to_bits();
    let fraction = bits & (IMPLIED - 1);
    Some(match (bits >> 52 & 0x7ff) as i32 {
        0 => (fraction, LEAST_EXPONENT),
        field => (fraction | IMPLIED, LEAST_EXPONENT + field - 1),
    })
}

/// The bits of a digit.
const LOW: u64 = 0xffff_ffff;

/// A double's bits.
const MANTISSA_BITS: i32 = 53;

/// The highest of them, which is not written.
const IMPLIED: u64 = 1 << 52;

/// What the last bit of the smallest doubles counts.
const LEAST_EXPONENT: i32 = -1074;

/// Additions of 32 bits that a digit of 64 bears, with room to spare.
const WAITING_MAX: u32 = 1 << 28;

/// More than a digit ever holds.
const DIGIT_MAX: u64 = 1 << 62;

/// More digits than any sum needs.
const DIGITS_MAX: usize = 200;

/// Farther from the point than any digit stands.
const DIGITS_FAR: i32 = 100;

#[cfg(test)]
mod tests;
