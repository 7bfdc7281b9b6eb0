//! Doubles, and checks.

/// Returns twice x; panics on overflow.
pub fn double(x: i32) -> i32 {
    x.checked_mul(2).expect("too much")
}

#[cfg(test)]
mod tests {
    #[test]
    fn doubles() {
        assert_eq!(super::double(21), 42);
    }

    #[test]
    #[should_panic(expected = "too much")]
    fn panics() {
        super::double(i32::MAX);
    }
}
