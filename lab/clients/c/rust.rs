// Rust's std::backtrace below a recursion. The number of frames is unknown until names are looked up, so this prints
// the depth.
use std::{env, hint::black_box, time::Instant};

#[inline(never)]
fn down(depth: usize, n: usize) -> usize {
    if depth == 0 {
        for _ in 0..n {
            let _ = black_box(std::backtrace::Backtrace::force_capture());
        }
        return n;
    }
    black_box(down(black_box(depth - 1), n))
}

fn main() {
    let args: Vec<usize> = env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (depth, n) = (args[0], args[1]);
    down(depth, n / 10 + 1);
    let begin = Instant::now();
    down(depth, n);
    println!("{} traces, {} frames, {} ns", n, n * depth, begin.elapsed().as_nanos());
}
