//! Sums against integers that hold them, and in any order.

use base::Rng;

use super::Exact;

fn sum(numbers: &[f64]) -> f64 {
    let mut sum = Exact::default();
    numbers.iter().for_each(|number| sum.add(*number));
    sum.to_f64()
}

#[test]
fn a_number_alone_is_itself() {
    let mut rng = Rng::from_seed(1);
    let least = f64::from_bits(1);
    let known = [
        0.0,
        1.0,
        -1.5,
        0.1,
        least,
        -least,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
    ];
    for number in known {
        assert_eq!(
            sum(&[number]).to_bits(),
            (number + 0.0).to_bits(),
            "{number:e}"
        );
    }
    for _ in 0..20_000 {
        let number = f64::from_bits(rng.below(u64::MAX));
        if number.is_finite() {
            assert_eq!(sum(&[number]), number, "{number:e}");
        }
    }
}

#[test]
fn nothing_is_lost_between_large_and_small() {
    assert_eq!(sum(&[1e308, 1.0, 1e308, -1e308, -1e308]), 1.0);
    assert_eq!(sum(&[1e16, 1.0, -1e16]), 1.0);
    assert_eq!(sum(&[0.1; 10]), 1.0);
    assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
    assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    let least = f64::from_bits(1);
    assert_eq!(sum(&[least, least, -1.0, 1.0]), 2.0 * least);
}

#[test]
fn halves_go_to_the_even_neighbor() {
    let one_more = 2_f64.powi(53);
    assert_eq!(sum(&[one_more, 1.0]), one_more);
    assert_eq!(sum(&[one_more, 3.0]), one_more + 4.0);
    assert_eq!(sum(&[one_more, 1.0, f64::from_bits(1)]), one_more + 2.0);
    assert_eq!(sum(&[-one_more, -1.0, -f64::from_bits(1)]), -one_more - 2.0);
    // All ones, and one more.
    assert_eq!(sum(&[one_more - 1.0, 0.5]), one_more);
}

/// Sums of quarters are sums of integers.
#[test]
fn sums_are_those_of_integers() {
    let mut rng = Rng::from_seed(2);
    for _ in 0..300 {
        let quarters: Vec<i64> = (0..1 + rng.below(200))
            .map(|_| rng.below(1 << 51) as i64 - (1 << 50))
            .collect();
        let numbers: Vec<f64> = quarters.iter().map(|four| *four as f64 / 4.0).collect();
        let whole: i128 = quarters.iter().copied().map(i128::from).sum();
        assert_eq!(sum(&numbers), whole as f64 / 4.0);
        let (mut total, mut squares) = (Exact::default(), Exact::default());
        for number in &numbers {
            total.add(*number);
            squares.add_square(*number);
        }
        // Of up to 200 numbers of 51 bits the sum of squares has 110 bits.
        let exact: i128 = quarters.iter().map(|four| i128::from(*four).pow(2)).sum();
        assert_eq!(squares.to_f64(), exact as f64 / 16.0);
        let apart = i128::from(whole as i64) * i128::from(whole as i64);
        assert_eq!(total.times(&total).to_f64(), apart as f64 / 16.0);
        squares.subtract(&total.times(&total));
        assert_eq!(squares.to_f64(), (exact - apart) as f64 / 16.0);
    }
}

#[test]
fn any_order_and_any_parts_give_the_same_bits() {
    let mut rng = Rng::from_seed(3);
    for round in 0..200 {
        let mut numbers: Vec<f64> = (0..2 + rng.below(60))
            .map(|_| {
                let magnitude =
                    rng.below(1_000_000) as f64 * 10_f64.powi(rng.below(600) as i32 - 300);
                if rng.below(2) == 0 {
                    magnitude
                } else {
                    -magnitude
                }
            })
            .collect();
        let expected = sum(&numbers);
        for _ in 0..5 {
            for place in (1..numbers.len()).rev() {
                numbers.swap(place, rng.below(place as u64 + 1) as usize);
            }
            assert_eq!(sum(&numbers).to_bits(), expected.to_bits(), "round {round}");
            let (left, right) = numbers.split_at(rng.below(numbers.len() as u64) as usize);
            let (mut both, mut other) = (Exact::default(), Exact::default());
            left.iter().for_each(|number| both.add(*number));
            right.iter().for_each(|number| other.add(*number));
            both.join(&other);
            assert_eq!(both.to_f64().to_bits(), expected.to_bits(), "round {round}");
        }
    }
}

#[test]
fn many_additions_carry_in_time() {
    let mut sum = Exact::default();
    for _ in 0..3 {
        sum.waiting = super::WAITING_MAX - 2;
        sum.add(-0.75);
        sum.add(f64::from(u32::MAX));
    }
    assert_eq!(sum.to_f64(), 3.0 * f64::from(u32::MAX) - 2.25);
}

#[test]
fn a_checkpoint_holds_it() {
    let mut sum = Exact::default();
    for number in [1e300, -0.1, 7.25, -1e300] {
        sum.add(number);
    }
    let mut out = crate::codec::Encoder::default();
    sum.encode(&mut out);
    let mut read = Exact::decode(&mut crate::codec::Decoder::new(&out.0)).unwrap();
    assert_eq!(read.to_f64(), 7.15);
    read.add(0.1);
    assert_eq!(read.to_f64(), 7.25);
}
