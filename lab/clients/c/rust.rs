// Rust's std::backtrace below a recursion. Its size is not known before names are looked up: the depth is printed.
use std::{env, hint::black_box, time::Instant};

#[inline(never)]
fn down(depth: usize) -> std::backtrace::Backtrace {
    if depth == 0 {
        return std::backtrace::Backtrace::force_capture();
    }
    black_box(down(black_box(depth - 1)))
}

fn main() {
    let args: Vec<usize> = env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (depth, n) = (args[0], args[1]);
    let _ = black_box(down(depth));
    let begin = Instant::now();
    for _ in 0..n {
        let _ = black_box(down(black_box(depth)));
    }
    println!("{} traces, {} frames, {} ns", n, n * depth, begin.elapsed().as_nanos());
}
