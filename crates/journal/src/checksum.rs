//! The CRC32C of a payload, made of those of its parts where these are known.
//!
//! Joining two costs some hundred steps however long they are: a multiplication of polynomials
//! over GF(2), by x to the power of the bits that come behind. Counting again costs a step for
//! each few bytes, so that short parts are counted.

/// The CRC32C of bytes, to which more can be added behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum(u32);

impl Checksum {
    /// With `bytes` behind.
    #[must_use]
    pub fn then(self, bytes: &[u8]) -> Checksum {
        Checksum(crc32c::crc32c_append(self.0, bytes))
    }

    /// With `bytes` behind, whose own CRC32C is `crc`. A wrong one makes a frame that recovery
    /// takes for damage.
    #[must_use]
    pub fn then_known(self, bytes: &[u8], crc: u32) -> Checksum {
        if bytes.len() < JOIN_BYTES_MIN {
            return self.then(bytes);
        }
        Checksum(multiply(power_of_x(bytes.len() as u64 * 8), self.0) ^ crc)
    }

    pub(crate) fn value(self) -> u32 {
        self.0
    }
}

/// x to the power of `exponent`, modulo the polynomial.
fn power_of_x(mut exponent: u64) -> u32 {
    let mut power = ONE;
    for square in SQUARES {
        if exponent == 0 {
            break;
        }
        if exponent & 1 == 1 {
            power = multiply(square, power);
        }
        exponent >>= 1;
    }
    power
}

/// The product of two polynomials modulo that of CRC32C; the highest bit is the coefficient of 1.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        bit >>= 1;
        b = if b & 1 == 1 {
            (b >> 1) ^ POLYNOMIAL
        } else {
            b >> 1
        };
    }
    product
}

/// x to the powers 1, 2, 4 and so on.
const SQUARES: [u32; 40] = {
    let mut squares = [ONE >> 1; 40];
    let mut at = 1;
    while at < squares.len() {
        squares[at] = multiply(squares[at - 1], squares[at - 1]);
        at += 1;
    }
    squares
};

const ONE: u32 = 1 << 31;
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Bytes from which on joining is cheaper than counting.
const JOIN_BYTES_MIN: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_with_known_sums_come_to_the_sum_of_the_whole() {
        let mut rng = base::Rng::from_seed(5);
        for _ in 0..200 {
            let mut whole = Vec::new();
            let mut sum = Checksum::default();
            for _ in 0..rng.below(6) {
                let mut part = vec![0; rng.below(3 * JOIN_BYTES_MIN as u64) as usize];
                rng.fill(&mut part);
                sum = match rng.below(2) {
                    0 => sum.then(&part),
                    _ => sum.then_known(&part, crc32c::crc32c(&part)),
                };
                whole.extend_from_slice(&part);
            }
            assert_eq!(sum.value(), crc32c::crc32c(&whole), "{} bytes", whole.len());
        }
    }

    #[test]
    fn a_wrong_sum_of_a_part_is_a_wrong_sum_of_the_whole() {
        let part = vec![7; JOIN_BYTES_MIN];
        let right = Checksum::default().then_known(&part, crc32c::crc32c(&part));
        let wrong = Checksum::default().then_known(&part, crc32c::crc32c(&part) ^ 1);
        assert_ne!(right, wrong);
    }
}
