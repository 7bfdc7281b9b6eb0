// Panics that are caught, and some that take a backtrace.
use std::backtrace::Backtrace;
use std::panic::catch_unwind;

#[inline(never)]
fn descend(depth: u32) -> u32 {
    let space = vec![depth; 3];
    if depth == 0 {
        panic!("bottom");
    }
    descend(depth - 1) + space[1]
}

fn main() {
    std::panic::set_hook(Box::new(|_| {
        assert!(!Backtrace::force_capture().to_string().is_empty());
    }));
    let caught = (0..30).filter(|_| catch_unwind(|| descend(20)).is_err()).count();
    println!("{} panics", caught);
}
