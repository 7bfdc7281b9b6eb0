//! A static library with all of Rust's standard library in it, and a panic that unwinds.
use std::collections::HashMap;

#[no_mangle]
pub extern "C" fn words(n: i32) -> i32 {
    let sum = std::panic::catch_unwind(|| {
        let mut m = HashMap::new();
        for i in 0..n {
            *m.entry(format!("{}", i % 7)).or_insert(0) += i;
        }
        if n > 100 {
            panic!("too many");
        }
        m.values().sum::<i32>()
    });
    sum.unwrap_or(-1)
}
