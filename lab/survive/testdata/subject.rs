// The Rust subject: threads, collections, and a panic that unwinds.
use std::collections::BTreeMap;
use std::panic;
use std::thread;

fn fail(n: usize) -> usize {
    let empty: Vec<usize> = Vec::new();
    empty[n]
}

fn main() {
    panic::set_hook(Box::new(|_| ())); // suppresses the message, which contains a thread number
    let threads: Vec<_> = (0..8).map(|i| thread::spawn(move || (0..1000).map(|n| n * i).sum::<usize>())).collect();
    let sums: BTreeMap<usize, usize> = threads.into_iter().enumerate().map(|(i, t)| (i, t.join().unwrap())).collect();
    println!("{:?} {}", sums, panic::catch_unwind(|| fail(3)).is_err());
}
